"""The lesson rpc_threads_and_failures, broken on purpose."""

MUTANTS = {
    "requests run one at a time": (
        'calls = [rpc.rpc_async("worker1", add_one, args=(how,)) for _ in range(4)]',
        'calls = [rpc.rpc_async("worker1", add_one, args=("with",)) for _ in range(4)]',
    ),
    "the lock is none": ('"with": threading.Lock()', '"with": nullcontext()'),
    "the callback runs on the main thread": ("threading.current_thread() is threading.main_thread()", "True"),
    "the chain does not come back": ("if len(path) > n:", "if len(path) > n - 1:"),
    "nobody waits in the chain": ("        go_on.wait(600)\n", ""),
    "threads do not limit requests": (
        "served = {worker: torch",
        "served = {worker: [(i, *nap()[1:]) for i in range(n + 2)] or torch",
    ),
    "with a thread to spare it starves": ("crowd(spare=1)", "crowd(spare=0)"),
    "without one it does not": ('"results = crowd(spare=0)"', '"results = crowd(spare=1)"'),
    "the function holds its thread": (
        'return rpc.rpc_async("worker0", get_rank).then(lambda answered: 10 + answered.value())',
        'return rpc.rpc_async("worker0", get_rank).then(lambda answered: 11 + answered.value())',
    ),
    "async_execution without its decorator": ("@rpc.functions.async_execution\ndef wait_at_gate", "def wait_at_gate"),
    "the gate is open from the start": (
        "gate = torch.futures.Future()",
        "gate = torch.futures.Future()\ngate.set_result('sesame')",
    ),
    "nobody dies": ("        os.kill(world.pids[-1], signal.SIGKILL)", "        os.kill(world.pids[-1], 0)"),
    "the shutdown of rank 0 has a timeout": ("1 if rank > 0 else 0", "1"),
    "the wait is not told from the work": ("1 if rank > 0 else 0", "0"),
    "who leaves alone has not left": ("            rpc.shutdown(graceful=False)\n", "            pass\n"),
    "leaving together is given up": (
        "        rpc.shutdown(timeout=seconds)\n",
        "        rpc.shutdown(timeout=seconds)\n        return False\n",
    ),
    "the dead are not asked": (
        "for r in range(n)])\n        rpc.shutdown",
        "for r in range(1)])\n        return True\n        rpc.shutdown",
    ),
    "the lock covers the work": (
        "    meeting.wait()\n    with guard:\n",
        "    with guard:\n        meeting.wait()\n",
    ),
    "the count needs no lock": (
        "    with guard:\n        before = recorded",
        "    with nullcontext():\n        before = recorded",
    ),
}
