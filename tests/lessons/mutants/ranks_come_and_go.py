"""The lesson ranks_come_and_go, broken on purpose."""

MUTANTS = {
    "whoever hears of a death stays": (
        "if_they_leave = seconds_until_heard(leaves=True)",
        "if_they_leave = seconds_until_heard(leaves=False)",
    ),
    "all hear of a death at once": (
        "if_they_stay = seconds_until_heard(leaves=False)",
        "if_they_stay = seconds_until_heard(leaves=True)",
    ),
    "a mean of means is the mean": ('reduction="sum") / BATCH', 'reduction="mean") / n'),
    "the batch is not dealt out": ("[rank::n]", "[: BATCH // n]"),
    "the momentum is no part of the state": ("weights, self.momentum = state[1:]", "weights, _ = state[1:]"),
    "a newcomer keeps its own state": ("    training.load(state)", "    training.state()"),
    "all take the state of the last": ("steps.index(max(steps))", "steps.index(min(steps))"),
    "the victim is silent, not dead": (
        "os.kill(world.pids[victim], signal.SIGKILL)\n    return time.monotonic(), training",
        "os.kill(world.pids[victim], signal.SIGSTOP)\n    return time.monotonic(), training",
    ),
    "the spare trains from the beginning": ("while first_open() == 0 or not knocked(first_open()):", "while False:"),
    "the spare does not step in": ("    return train(until)", "    return [[until, 0, [name]]]"),
    "there is a checkpoint of every step": ("training.step % 25 == 0", "training.step % 1 == 0"),
    "nobody reads the checkpoint": ('world.view.execute("training.load(torch.load(path))")', ""),
    "torchrun goes on where it was": ("    training.load(torch.load(path))\nlog", "    pass\nlog"),
}
