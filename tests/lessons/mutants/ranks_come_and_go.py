"""The lesson ranks_come_and_go, broken on purpose."""

MUTANTS = {
    "a rank with an error stays in its group": (
        "if_they_leave = seconds_until_error(leaves=True)",
        "if_they_leave = seconds_until_error(leaves=False)",
    ),
    "all ranks get an error at once": (
        "if_they_stay = seconds_until_error(leaves=False)",
        "if_they_stay = seconds_until_error(leaves=True)",
    ),
    "a mean of means is the mean": ('reduction="sum") / BATCH', 'reduction="mean") / n'),
    "the batch is not split": ("[rank::n]", "[: BATCH // n]"),
    "the momentum is no part of the state": ("weights, self.momentum = state[1:]", "weights, _ = state[1:]"),
    "a new rank keeps its own state": ("    training.load(state)", "    training.state()"),
    "all ranks take the state with the fewest steps": ("steps.index(max(steps))", "steps.index(min(steps))"),
    "the victim is silent, not dead": (
        "os.kill(world.pids[victim], signal.SIGKILL)\n    return time.monotonic(), training",
        "os.kill(world.pids[victim], signal.SIGSTOP)\n    return time.monotonic(), training",
    ),
    "the spare trains from the start": (
        "while first_open() == 0 or not has_arrivals(first_open()):",
        "while False:",
    ),
    "the spare does not join": ("    return train(until)", "    return [[until, 0, [name]]]"),
    "every step writes a checkpoint": ("training.step % 25 == 0", "training.step % 1 == 0"),
    "no rank reads the checkpoint": ('world.view.execute("training.load(torch.load(path))")', ""),
    "torchrun continues without the checkpoint": ("    training.load(torch.load(path))\nlog", "    pass\nlog"),
}
