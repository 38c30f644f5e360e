"""The lesson rpc_and_rref, broken on purpose."""

MUTANTS = {
    "by hand, the decision travels every time": (
        "if loss < 0.5:\n            dist.send_object_list",
        "if loss < 1:\n            dist.send_object_list",
    ),
    "RPC opens no port of its own": ("new = len(ports() - of_group) > 0", "new = len(of_group - ports()) > 0"),
    "the caller runs the function": (
        'rpc.rpc_sync("worker1", take, args=(torch.ones(2),))',
        "take(torch.ones(2))",
    ),
    "a worker has one name only": ("by_rank = rpc.rpc_sync(1, take", "by_rank = rpc.rpc_sync(0, take"),
    "calls wait for one another": (
        '[rpc.rpc_async(f"worker{other}", function, args=(x,)) for other in range(n)]',
        "[rpc.rpc_async(other, function, args=(x,)) for other in range(n) if [rpc.rpc_sync(other, function, (x,))]]",
    ),
    "the caller's definition counts": (
        "[rpc.rpc_sync(other, version) for other in (0, 1)]",
        "[version() for other in (0, 1)]",
    ),
    "rpc_sync keeps the kind of an error": (
        "by_sync = kind_of_error(rpc.rpc_sync,",
        "by_sync = kind_of_error(remote_and_fetch,",
    ),
    "a timeout stops the work": ('later = rpc.rpc_sync("worker1", finished) - before', "later = at_once"),
    "there is no timeout": ("rpc.rpc_sync(*call, timeout=0.5)", "rpc.rpc_sync(*call)"),
    "a Python function needs no lock": (
        'by_python = rpc.rpc_async("worker1", echo,',
        'by_python = rpc.rpc_async("worker1", torch.neg,',
    ),
    "the bare socket is an RPC": ("small = bare(each_way)", "small = python"),
    "bytes are counted that do not belong to the calls": ("each_way = wire.bytes // 400", "each_way = wire.bytes"),
    "who serves answers nothing": (
        "rpc.shutdown()  # on every rank",
        "rpc.shutdown(graceful=False)  # on every rank",
    ),
    "to_here brings the object itself": (
        '"to_here": lambda: table.to_here().add(1)',
        '"to_here": lambda: table.rpc_sync().add(1)',
    ),
    "a call through the RRef moves the object": (
        '"rpc_sync": lambda: table.rpc_sync().add(1)',
        '"rpc_sync": lambda: table.to_here().add(1)',
    ),
    "the owner's object is read through a copy": (
        'rpc.rpc_sync(f"worker{other}", keep, args=(table,)) for other in range(1, n)]',
        'rpc.rpc_sync(f"worker{other}", keep, args=(None,)) for other in range(1, n)]',
    ),
    "the board moves to who plays": (
        "answer = board.rpc_sync().report(rank, 10 * rank)",
        "answer = board.to_here().report(rank, 10 * rank)",
    ),
    "the circle is collected": ("self.me = rpc.RRef(self)", "self.me = self"),
    "its creator lets the object die": ("table = None\n", 'table = None\nrpc.rpc_sync("worker1", alive.clear)\n'),
    "a forgotten variable does not matter": (
        '    rpc.rpc_sync(f"worker{other}", keep, args=(None,))',
        '    rpc.rpc_sync(f"worker{other}", len, args=([],))',
    ),
}
