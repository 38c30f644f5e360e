"""The lesson when_ranks_fail, broken on purpose."""

MUTANTS = {
    "rank 1 waits for nothing": ("if rank == 1:\n        box", "if rank == 9:\n        box"),
    "rank 0 sends nothing": (
        "if rank == 0:\n        dist.send(torch.tensor([42.0])",
        "if False:\n        dist.send(torch.tensor([42.0])",
    ),
    "nobody is killed": ("os.kill(world.pids[1], signal.SIGKILL)", "pass"),
    "rank 1 is not late": ("time.sleep(60)", "time.sleep(0)"),
    "all who wait hear of the death at once": (
        "os.kill(world.pids[1], signal.SIGKILL)",
        "[os.kill(pid, signal.SIGKILL) for pid in world.pids[1:3]]",
    ),
    "rank 1 is stopped, not dead": ("world.pids[1], signal.SIGKILL", "world.pids[1], signal.SIGSTOP"),
    "nobody is missing": ("if rank != 1:\n    try:", "if True:\n    try:"),
    "another rank is missing": ("if rank != 1:\n    try:", "if rank != 2 % world_size:\n    try:"),
    "all bring the same shape": ("torch.ones(2 if rank == 1 else 4)", "torch.ones(4)"),
    "no part is too small": ("torch.zeros(1 if rank == 1 else 2)", "torch.zeros(2)"),
    "all bring the same type": (
        "torch.float64 if rank == 1 else torch.float32)\n    dist.all_reduce",
        "torch.float32)\n    dist.all_reduce",
    ),
    "all call in one order": (
        "else (loss, count):\n    dist.all_reduce(number)",
        "else (count, loss):\n    dist.all_reduce(number)",
    ),
    "the message fills the box": ("dist.send(torch.ones(2), dst=1)", "dist.send(torch.ones(4), dst=1)"),
    "nobody compares notes": (
        'os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"',
        'os.environ["TORCH_DISTRIBUTED_DEBUG"] = "OFF"',
    ),
    "DETAIL has no mismatch to name": (
        "torch.float64 if rank == 1 else torch.float32)\ntry",
        "torch.float32)\ntry",
    ),
    "the stack is written too late": ("dump_traceback_later(1, file", "dump_traceback_later(60, file"),
    "another rank fails first": ('["RANK"] == "1":\n    sys.exit(3)', '["RANK"] == "0":\n    sys.exit(3)'),
}
