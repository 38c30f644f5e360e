"""The lesson uneven_ranks, broken on purpose."""

MUTANTS = {
    "all ranks have one batch": (
        "    for number in range(rank + 1):\n        model.zero_grad()",
        "    for number in range(1):\n        model.zero_grad()",
    ),
    "join divides by the other number": (
        "divide_by_initial_world_size=by_all",
        "divide_by_initial_world_size=not by_all",
    ),
    "join always divides by all ranks": (
        "with model.join(divide_by_initial_world_size=by_all):",
        "with model.join():",
    ),
    "there is no momentum to differ": (
        "lr=0.01, momentum=0.9)",
        "lr=0.01)",
    ),
    "join calls nothing": (
        "as intervals, model.join() if joined else nullcontext():",
        "as intervals, nullcontext():",
    ),
    "another rank straggles": (
        "time.sleep(0.4 if straggling and rank == n - 1 else 0.01)",
        "time.sleep(0.4 if straggling and rank == 0 else 0.01)",
    ),
    "nobody straggles": (
        "step(straggling=True),",
        "step(),",
    ),
    "the slow links are not slow": (
        "links = network.limit(world, 4e8, ranks=[WORLD_SIZE - 1])",
        "links = network.limit(world, 4e11, ranks=[WORLD_SIZE - 1])",
    ),
    "the slow links are those of another rank": (
        "links = network.limit(world, 4e8, ranks=[WORLD_SIZE - 1])",
        "links = network.limit(world, 4e8, ranks=[0])",
    ),
    "the others go on when one rank is through": (
        "    with model.join(throw_on_early_termination=True):",
        "    with model.join(throw_on_early_termination=False):",
    ),
    "no rank waits for the last call": (
        "middle = min(call.end, last_call)",
        "middle = call.begin",
    ),
}
