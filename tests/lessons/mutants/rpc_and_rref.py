"""The lesson rpc_and_rref, broken on purpose."""

MUTANTS = {
    "by hand, the decision travels every time": (
        "if loss < 0.5:\n            dist.send_object_list",
        "if loss < 1:\n            dist.send_object_list",
    ),
    "the caller runs the function": (
        'answer = rpc.rpc_sync("worker1", take, args=(torch.ones(2),))',
        "answer = take(torch.ones(2))",
    ),
    "a worker has one name only": ("by_rank = rpc.rpc_sync(1, take", "by_rank = rpc.rpc_sync(0, take"),
    "the function runs on the main thread": (
        'times = rpc.rpc_sync("worker1", stamp)',
        "times = stamp()",
    ),
    "calls wait for one another": (
        '[rpc.rpc_async(f"worker{other}", function, args=(x,)) for other in range(n)]',
        "[rpc.rpc_async(other, function, args=(x,)) for other in range(n) if [rpc.rpc_sync(other, function, (x,))]]",
    ),
    "the caller's definition runs": (
        'definition = rpc.rpc_sync("worker1", version)',
        "definition = version()",
    ),
    "rpc_sync keeps the kind of an error": (
        'rpc.rpc_sync("worker1", function, args=arguments, timeout=timeout)',
        'rpc.remote("worker1", function, args=arguments, timeout=timeout).to_here(timeout)',
    ),
    "a timeout stops the work": ('later = rpc.rpc_sync("worker1", finished) - before', "later = at_once"),
    "there is no timeout": ("(slow, (2,), timeout=0.5)", "(slow, (2,))"),
    "the bare socket is an RPC": (
        "on_the_wire, bare_each_way = bare(each_way)",
        "on_the_wire, bare_each_way = small, each_way",
    ),
    "bytes are counted that do not belong to the calls": ("each_way = wire.bytes // 400", "each_way = wire.bytes"),
    "a large call is a hundred small calls": (
        'large = fastest({"1 MiB": call_with(echo, 2**20)}, turns=20)["1 MiB"]',
        "large = 100 * small",
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
        "rref.local_value().rows[0].item()",
        "(rref.to_here().rows[0] + 1).item()",
    ),
    "the board moves to who plays": (
        "board.rpc_sync().report(rank, 10 * rank)",
        "board.to_here().report(rank, 10 * rank)",
    ),
    "the circle is collected": ("self.me = rpc.RRef(self)", "self.me = self"),
    "its creator lets the object die": (
        'keep(None)\nnote("rank 0',
        'keep(None)\nrpc.rpc_sync("worker1", tables.clear)\nnote("rank 0',
    ),
    "a forgotten variable does not matter": (
        "    rpc.rpc_sync(other, keep, args=(None,))",
        "    rpc.rpc_sync(other, len, args=([],))",
    ),
    "a server leaves without waiting": ("rpc.shutdown()  # on every rank", "rpc.shutdown(graceful=rank == 0)"),
    "an idle rank is busy over TCP": (
        '"TCP": {"_transports": ["uv"], "_channels": ["basic"]}, "shared memory": {}',
        '"TCP": {}, "shared memory": {"_transports": ["uv"], "_channels": ["basic"]}',
    ),
    "RPC opens no port of its own": (
        "new_ports[name] = listening_ports() - ports_before",
        "new_ports[name] = ports_before - listening_ports()",
    ),
    "the builtin is asked of an idle rank, and the Python function as well": (
        "rpc.rpc_async(busy, echo,",
        'rpc.rpc_async("worker0", echo,',
    ),
    "the leader calls only some of the servers": (
        "for other in range(1, n):\n        print(*rpc.",
        "for other in range(2, n):\n        print(*rpc.",
    ),
    "to_here has no timeout": ("sleeping.to_here(timeout=0.1)", "sleeping.to_here()"),
    "the table is on rank 0": ('keep(rpc.remote("worker1", Table))', 'keep(rpc.remote("worker0", Table))'),
    "the function takes most of its call": (
        '"ended": time.monotonic()}',
        '"ended": time.monotonic() + 0.01}',
    ),
    "the large call carries 1 KiB": (
        'large = fastest({"1 MiB": call_with(echo, 2**20)}',
        'large = fastest({"1 MiB": call_with(echo, 2**10)}',
    ),
    "remote() is one more rpc_sync()": (
        "table.remote().add(1).to_here()",
        "table.rpc_sync().add(1)",
    ),
    "the bare socket carries 4 bytes": ("bare_each_way = bare(each_way)", "bare_each_way = bare(4)"),
}
