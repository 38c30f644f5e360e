"""The lesson uneven_ranks, broken on purpose."""

MUTANTS = {
    "all ranks have one batch": (
        "    for number in range(rank + 1):\n        yield",
        "    for number in range(1):\n        yield",
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
    "the loop divides by all ranks": (
        "parameter.grad /= taking_part",
        "parameter.grad /= n",
    ),
    "a rank without a batch takes no step": (
        "            parameter.grad /= taking_part\n        optimizer.step()",
        "            parameter.grad /= taking_part\n        if batch is not None:\n            optimizer.step()",
    ),
    "a rank without a batch sends its last gradient": (
        "            return\n        optimizer.zero_grad()\n        if batch is not None:",
        "            return\n        if batch is not None:\n            optimizer.zero_grad()",
    ),
    "the workers do not split the stream": (
        "numbers = islice(numbers, worker.id, None, worker.num_workers)",
        "numbers = islice(numbers, 0, None, 1)",
    ),
    "the ranks do not split the stream": (
        "numbers = islice(numbers, rank, None, n)",
        "numbers = islice(numbers, 0, None, 1)",
    ),
    "all ranks have the same number of examples": (
        "numbers = range(6 * n + 1)",
        "numbers = range(6 * n)",
    ),
    "join calls nothing": (
        "context = model.join() if under_join else nullcontext()",
        "context = nullcontext()",
    ),
    "another rank straggles": (
        "time.sleep(0.4 if straggling and rank == n - 1 else 0.01)",
        "time.sleep(0.4 if straggling and rank == 0 else 0.01)",
    ),
    "nobody straggles": (
        "step(straggling=True)}",
        "step()}",
    ),
    "the slow links are not slow": (
        "links = network.limit(world, 4e8, ranks=[LAST])",
        "links = network.limit(world, 4e11, ranks=[LAST])",
    ),
    "the slow links are those of another rank": (
        "links = network.limit(world, 4e8, ranks=[LAST])",
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
    "the communication time leaves out the gaps": (
        "return max(call.end for call in calls) - min(call.begin for call in calls)",
        "return sum(call.end - call.begin for call in calls)",
    ),
    "rank r has one batch in the sum over all batches": (
        "all_batches = sum((r + 1) ** 2 for r in range(WORLD_SIZE))",
        "all_batches = sum(r + 1 for r in range(WORLD_SIZE))",
    ),
    "the loop takes no further step": ("joined(model, optimizer, [torch.ones(1, 1)])\n", ""),
    "a transfer begins with the call": (
        'bars.append(call._replace(name="transfer", begin=middle))',
        'bars.append(call._replace(name="transfer"))',
    ),
}
