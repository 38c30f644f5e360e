"""The lesson when_ranks_fail, broken on purpose."""

MUTANTS = {
    "the first panel shows another rank that waits": ('message": {1: [0]}', 'message": {0: [1]}'),
    "the absent rank of the figure is another one": ("{r: [1] for r in others}", "{r: [0] for r in others}"),
    "the deadlock of the figure is no circle": ('"a deadlock": {0: [1], 1: [0]}', '"a deadlock": {0: [1], 2: [1]}'),
    "rank 1 waits for nothing": ("box = torch.zeros(1)\ndist.recv(box, src=0)", "box = torch.zeros(1)"),
    "rank 0 sends another number": ("dist.send(torch.tensor([42.0]), dst=1)", "dist.send(torch.tensor([41.0]), dst=1)"),
    "rank 1 waits for another rank": (
        "box = torch.zeros(1)\ndist.recv(box, src=0)",
        "box = torch.zeros(1)\ndist.recv(box)",
    ),
    "every rank holds as many numbers": (
        "def total(group):\n    result = 0.0\n    for number in torch.arange(3.0 * world_size + 1)",
        "def total(group):\n    result = 0.0\n    for number in torch.arange(3.0 * world_size)",
    ),
    "nobody presses Interrupt": ("Timer(6, os.kill", "Timer(60, os.kill"),
    "the interrupted ranks stay": (
        "    world.restart()\n    world.call(set_up)",
        "    if world.where()[0].state == 'idle':\n        world.restart()\n        world.call(set_up)",
    ),
    "new ranks have the imports and the group of the old ranks": ("    world.call(set_up)\n", ""),
    "nobody is killed": ("os.kill(world.pids[1], signal.SIGKILL)", "pass"),
    "rank 1 is not late": ("time.sleep(60)", "time.sleep(0)"),
    "two ranks are killed": (
        "os.kill(world.pids[1], signal.SIGKILL)",
        "[os.kill(pid, signal.SIGKILL) for pid in world.pids[1:3]]",
    ),
    "rank 1 is stopped, not dead": ("world.pids[1], signal.SIGKILL", "world.pids[1], signal.SIGSTOP"),
    "nobody is absent": ("if rank != 1:\n    try:", "if True:\n    try:"),
    "another rank is absent": ("if rank != 1:\n    try:", "if rank != 2 % world_size:\n    try:"),
    "rank 1 takes the group of all": ("group = pair if rank == 1 else everybody", "group = everybody"),
    "the whole pair takes its group": ("group = pair if rank == 1 else", "group = pair if rank < 2 else"),
    "rank 1 is on another line": (
        "dist.all_reduce(torch.ones(3), group=group)",
        "if rank == 1:\n        dist.all_reduce(torch.ones(3), group=pair)\n"
        "    dist.all_reduce(torch.ones(3), group=everybody)",
    ),
    "another rank takes the pair": ("group = pair if rank == 1 else", "group = pair if rank == 0 else"),
    "a rank waits for the ranks that have called": ('get("group_name") != name', 'get("group_name") == name'),
    "rank 1 has elements enough": ("torch.arange(1.0 if rank == 1 else 4.0)", "torch.arange(4.0)"),
    "another rank has too few elements": ("torch.arange(1.0 if rank == 1", "torch.arange(1.0 if rank == 0"),
    "rank 1 stops nobody": ("total = normalised(batch).sum()", "total = batch.sum()"),
    "the standard deviation is a number": ("std = batch.std()", "std = batch.std(correction=0)"),
    "another error comes": (
        'if not result.isfinite().all():\n        raise ValueError("a result is not a number")',
        'raise ValueError("a result" if batch.numel() == 1 else "a number")',
    ),
    "the calling function has another batch": (
        "total = normalised(batch).sum()",
        "total = normalised(batch + 1).sum()",
    ),
    "the ranks pass tensors of several shapes": (
        "dist.all_reduce(torch.ones(3), group=group)",
        "dist.all_reduce(torch.ones(3 + rank), group=group)",
    ),
    "the call of rank 1 is on another line": (
        "box = torch.zeros(1)\ndist.recv(box, src=0)",
        "box = torch.zeros(1)\n\ndist.recv(box, src=0)",
    ),
    "the sum of the other ranks lacks nothing": (
        "def total(group):\n    result = 0.0\n    for number in torch.arange(3.0 * world_size + 1)",
        "def total(group):\n    result = 0.0\n    for number in torch.arange(3.0 * world_size, -1, -1)",
    ),
    "the ranks take the largest of their results": (
        "dist.all_reduce(total, group=group)",
        "dist.all_reduce(total, dist.ReduceOp.MAX, group=group)",
    ),
}
