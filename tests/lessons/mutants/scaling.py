"""The lesson scaling, broken on purpose."""

MUTANTS = {
    "the predictor has no latency": (
        "    communication = 2 * (n - 1) * (alpha + beta * payload / n)\n",
        "    communication = 2 * (n - 1) * beta * payload / n\n",
    ),
    "the predictor has half of the communication": (
        "    communication = 2 * (n - 1) * (alpha + beta * payload / n)\n",
        "    communication = (n - 1) * (2 * alpha + beta * payload / n)\n",
    ),
    "overlap hides everything": (
        "    return max(compute, communication) if overlap else compute + communication",
        "    return compute if overlap else compute + communication",
    ),
    "the stopwatch takes the fastest rank": (
        "    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)\n",
        "    dist.all_reduce(slowest, dist.ReduceOp.MIN, group=group)\n",
    ),
    "a link has twice its time per byte": (
        "    return small / 2, (large - small) / 2**22",
        "    return small / 2, 2 * (large - small) / 2**22",
    ),
    "all NICs of a host are one": (
        '"one NIC for each GPU": 1 / 400e9}',
        '"one NIC for each GPU": 8 / 400e9}',
    ),
    "every rank does all trainings": (
        "for rule, size in settings[rank::n]:",
        "for rule, size in settings:",
    ),
    "AdamW takes the gradients of one rank": (
        "        if together:\n",
        "        if together and new_optimizer is torch.optim.SGD:\n",
    ),
    "the mean over n ranks is a sum": (
        "            gradient /= n\n",
        "            gradient /= 1\n",
    ),
    "the steps are counted at one rate": (
        'training(batch, "scaled, warm-up", epochs=200)',
        'training(batch, "one rate", epochs=200)',
    ),
    "the links cost nothing": (
        "predict(k, compute_25, 1e-5, 8e-11, 4 * 4810)",
        "predict(k, compute_25, 0, 0, 4 * 4810)",
    ),
    "the links are as they are when they should be paced": (
        "paced = network.limit(world, 5e8)",
        "paced = network.lift(world)",
    ),
    "a step sends half of its gradients": (
        "    layers = [nn.Linear(512, 512) for _ in range(4)]",
        "    layers = [nn.Linear(512, 512) for _ in range(2)]",
    ),
    "the same rate is as good as n times the rate": (
        "    scaled, plain = large_step(n * rate), large_step(rate)\n",
        "    scaled, plain = large_step(rate), large_step(rate)\n",
    ),
    "the large step takes one batch": (
        "    model = DDP(new_model(nn.Tanh))\n",
        "    model = new_model(nn.Tanh)\n",
    ),
    "all sizes are trained at one rate": (
        '    "scaled": lambda number, warm_up, k: k * RATE,\n',
        '    "scaled": lambda number, warm_up, k: RATE,\n',
    ),
    "one rate is scaled": (
        '    "one rate": lambda number, warm_up, k: RATE,\n',
        '    "one rate": lambda number, warm_up, k: k * RATE,\n',
    ),
    "the efficiency on paced links is that on fast links": (
        "efficiency = compute / slow[WORLD_SIZE]",
        "efficiency = compute / fast[WORLD_SIZE]",
    ),
    "the warm-up lasts one epoch": (
        "rate_of(number, 2 * steps, batch / BASE)",
        "rate_of(number, steps, batch / BASE)",
    ),
    "the ideal time has fewer steps already": (
        "    ideal[k] = steps[25] * compute_25 / k\n",
        "    ideal[k] = steps[size] * compute_25 / k\n",
    ),
}
