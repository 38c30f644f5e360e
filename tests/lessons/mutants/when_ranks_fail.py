"""The lesson when_ranks_fail, broken on purpose."""

MUTANTS = {
    "rank 1 waits for nothing": ("if rank == 1:\n        box", "if rank == 9:\n        box"),
    "rank 0 sends nothing": (
        "if rank == 0:\n        dist.send(torch.tensor([42.0])",
        "if False:\n        dist.send(torch.tensor([42.0])",
    ),
    "rank 1 wants two numbers": ("box = torch.zeros(1)\n        dist.recv", "box = torch.zeros(2)\n        dist.recv"),
    "nobody is killed": ("os.kill(world.pids[1], signal.SIGKILL)", "pass"),
    "rank 1 is not late": ("time.sleep(60)", "time.sleep(0)"),
    "all who wait hear of the death at once": (
        "os.kill(world.pids[1], signal.SIGKILL)",
        "[os.kill(pid, signal.SIGKILL) for pid in world.pids[1:3]]",
    ),
    "rank 1 is stopped, not dead": ("world.pids[1], signal.SIGKILL", "world.pids[1], signal.SIGSTOP"),
    "nobody is missing": ("if rank != 1:\n    try:", "if True:\n    try:"),
    "another rank is missing": ("if rank != 1:\n    try:", "if rank != 2 % world_size:\n    try:"),
    "rank 1 means the group of all": ("group = pair if rank == 1 else everybody", "group = everybody"),
    "the whole pair means its group": ("group = pair if rank == 1 else", "group = pair if rank < 2 else"),
    "rank 1 is told apart by its line": (
        "dist.all_reduce(torch.ones(3), group=group)",
        "if rank == 1:\n        dist.all_reduce(torch.ones(3), group=pair)\n"
        "    dist.all_reduce(torch.ones(3), group=everybody)",
    ),
    "another rank means the pair": ("group = pair if rank == 1 else", "group = pair if rank == 0 else"),
    "rank 1 has numbers enough": ("torch.arange(1.0 if rank == 1 else 4.0)", "torch.arange(4.0)"),
    "another rank has too few numbers": ("torch.arange(1.0 if rank == 1", "torch.arange(1.0 if rank == 0"),
    "rank 1 stops nobody": ("total = normalised(batch).sum()", "total = batch.sum()"),
    "the spread is a number": ("spread = batch.std()", "spread = batch.std(correction=0)"),
    "another error comes": (
        'if not result.isfinite().all():\n        raise ValueError("a result is not a number")',
        'raise ValueError("a result" if batch.numel() == 1 else "a number")',
    ),
    "the caller has another batch": ("total = normalised(batch).sum()", "total = normalised(batch + 1).sum()"),
    "all bring the same shape": ("torch.ones(2 if rank == 1 else 4)", "torch.ones(4)"),
    "no part is too small": ("torch.zeros(1 if rank == 1 else 2)", "torch.zeros(2)"),
    "all bring the same type": (
        "torch.float64 if rank == 1 else torch.float32)\n    dist.all_reduce",
        "torch.float32)\n    dist.all_reduce",
    ),
    "all call in one order": (
        "steps = (add_counts, add_losses) if rank == 1 else",
        "steps = (add_counts, add_losses) if rank == 9 else",
    ),
    "the history tells calls of one line apart": (
        "steps = (add_counts, add_losses) if rank == 1 else (add_losses, add_counts)",
        "pair = (count, loss) if rank == 1 else (loss, count)\n"
        "steps = [lambda tensor=tensor: dist.all_reduce(tensor) for tensor in pair]",
    ),
    "a restart keeps the history": (
        "history = world.history()\nprint(history)\nfound = history.differences[-1]",
        "fresh_ranks()\nhistory = world.history()\nprint(history)\nfound = history.differences[-1]",
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
