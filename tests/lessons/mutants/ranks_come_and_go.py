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
    "a new process keeps its own state": ("    training.load(state)", "    training.state()"),
    "all ranks take the state with the fewest steps": ("steps.index(max(steps))", "steps.index(min(steps))"),
    "all ranks take the state of rank 0": ("dist.broadcast(state, furthest)", "dist.broadcast(state, 0)"),
    "a new process counts for the killed process": (
        "{base.add(f'processes with the name {name}', 1)}",
        "1",
    ),
    "the quorum has no grace period": ("    time.sleep(grace)", "    time.sleep(0)"),
    "a late process is put on the list": ("if me in members:\n        place, size", "if members:\n        place, size"),
    "a rank that trains ignores arrivals": ('place(number + 1).check(["a rank has arrived"])', "False"),
    "the victim is silent, not dead": (
        "return interruption.kill(world, victim, awaited_by=others), training",
        "return time.monotonic(), training",
    ),
    "the spare trains from the start": (
        'while not place(1).check(["a rank has arrived"]):',
        "while False:",
    ),
    "the spare does not join": ("    return train(until)", "    return [[until, 0, [me]]]"),
    "each step takes the same batch": ("first = self.step * BATCH % len(inputs)", "first = 0"),
    "a process keeps its name as its rank": (
        "rank, n = dist.get_rank(), dist.get_world_size()\n    take_state()",
        "rank, n = name, dist.get_world_size()\n    take_state()",
    ),
    "the line of the kill is the line of the arrival": (
        "first = of_rank_0[:STEPS], killed, ",
        "first = of_rank_0[:STEPS], joined_at, ",
    ),
    "the survivors are compared with themselves": (
        "difference = training.weights() - single_process(training.step).weights()",
        "difference = training.weights() - training.weights()",
    ),
    "a survivor arrives late": (
        'members, in_a_group = world.call("arrive_late", targets=victim)',
        'members, in_a_group = world.call("arrive_late", targets=0)',
    ),
    "the cost of the spare is counted from the first kill": (
        "by_spare = interruption.cost(second_kill, DIES_AT",
        "by_spare = interruption.cost(killed, DIES_AT",
    ),
}
