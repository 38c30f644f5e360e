"""The lesson rpc_threads_and_failures, broken on purpose."""

MUTANTS = {
    "requests run one at a time": (
        'torch.futures.wait_all([rpc.rpc_async("worker1", eval(name)) for _ in range(4)])',
        '[rpc.rpc_sync("worker1", eval(name)) for _ in range(4)]',
    ),
    "the lock is none": ("    with lock:\n        add_one()", "    if lock:\n        add_one()"),
    "the lock does not cover the work": (
        "    with lock:\n        add_one()",
        "    with lock:\n        write(read() + 1)\n    time.sleep(0.3)",
    ),
    "the count starts where it ended": ('    rpc.rpc_sync("worker1", write, args=(0,))\n', ""),
    "the lock of the lesson covers the work": (
        "    work()\n    with lock:\n        write(read() + 1)",
        "    with lock:\n        work()\n        write(read() + 1)",
    ),
    "the lesson records without a lock": ("or_else=record_of_the_lesson)", "or_else=my_record)"),
    "the callback runs on the main thread": ("threading.current_thread() is threading.main_thread()", "True"),
    "the chain does not come back": ("if len(path) <= n:", "if len(path) <= n - 1:"),
    "no rank waits in the chain": ("        go_on.wait(600)\n", ""),
    "threads do not limit requests": ("num_worker_threads=threads[rank]", "num_worker_threads=16"),
    "with a thread to spare it starves": ('world.call("crowd", 1, targets=0)', 'world.call("crowd", 0, targets=0)'),
    "without a spare thread it does not starve": (
        'world.call("crowd", 0, targets=0)',
        'world.call("crowd", 1, targets=0)',
    ),
    "ask does not wait": (
        "return rank, rpc.rpc_sync(worker, function, timeout=2)",
        "return rank, rpc.rpc_async(worker, function, timeout=2) and rank",
    ),
    "the lesson's cure waits": (
        "    answer = rpc.rpc_async(worker, function)\n",
        "    answer = rpc.rpc_async(worker, function)\n    answer.wait()\n",
    ),
    "worker0 asks itself": (
        '[rpc.rpc_async("worker1", ask_freely,',
        '[rpc.rpc_async("worker0", ask_freely,',
    ),
    "the cure is asked by fewer callers than there are threads": (
        'args=("worker0", late_rank)) for _ in range(20)]\nanswers',
        'args=("worker0", late_rank)) for _ in range(15)]\nanswers',
    ),
    "a caller at the gate is not answered by a future": (
        "@rpc.functions.async_execution\ndef wait_at_gate",
        "def wait_at_gate",
    ),
    "the gate is open from the start": (
        "    gate = torch.futures.Future()",
        "    gate = torch.futures.Future()\n    gate.set_result('sesame')",
    ),
    "no worker dies": ("        os.kill(world.pids[-1], signal.SIGKILL)", "        os.kill(world.pids[-1], 0)"),
    "the call in flight goes to a worker that lives": (
        "    in_flight = rpc.rpc_async(last, time.sleep",
        '    in_flight = rpc.rpc_async("worker0", time.sleep',
    ),
    "the shutdown of rank 0 has a timeout": ("1 if rank > 0 else 0", "1"),
    "no shutdown has a timeout": ("1 if rank > 0 else 0", "0"),
    "a rank that leaves alone has not left": ("            rpc.shutdown(graceful=False)\n", "            pass\n"),
    "the workers do not leave together": (
        "        rpc.shutdown(timeout=seconds)\n",
        "        rpc.shutdown(timeout=seconds)\n        return False\n",
    ),
    "the survivors wait for the dead worker": (
        "        torch.futures.wait_all([rpc.rpc_async(r, os.getpid, timeout=seconds) for r in range(n)])\n",
        "",
    ),
    "the dead worker is not asked": (
        "for r in range(n)])\n        rpc.shutdown",
        "for r in range(1)])\n        return True\n        rpc.shutdown",
    ),
    "the slow read leaves no time for a lost update": (
        "    before = read()\n    time.sleep(0.1)\n    return before\n",
        "    before = read()\n    return before\n",
    ),
    "the queue of rank 0 is read": ("world.view.queue_status()[1]", "world.view.queue_status()[0]"),
    "ask waits at most 5 s": (
        "return rank, rpc.rpc_sync(worker, function, timeout=2)",
        "return rank, rpc.rpc_sync(worker, function, timeout=5)",
    ),
    "the barrier opens for each request alone": ("barrier = threading.Barrier(4,", "barrier = threading.Barrier(1,"),
    "a worker has twice the threads": ("default_threads = [16] * WORLD_SIZE", "default_threads = [32] * WORLD_SIZE"),
    "requests wait since the machine has started": ("args=(time.monotonic(),), timeout=30", "args=(0.0,), timeout=30"),
}
