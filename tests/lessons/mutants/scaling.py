"""The lesson scaling, broken on purpose."""

MUTANTS = {
    "the model has no latency": (
        "return 2 * (k - 1) * alpha + 2 * (k - 1) / k * beta * payload",
        "return 2 * (k - 1) / k * beta * payload",
    ),
    "the model has half of the communication": (
        "return 2 * (k - 1) * alpha + 2 * (k - 1) / k * beta * payload",
        "return 2 * (k - 1) * alpha + (k - 1) / k * beta * payload",
    ),
    "ranks do not take turns": (
        "return alone * max(1, k / cores)",
        "return alone",
    ),
    "the links are as they are when they should be paced": (
        "links = network.limit(world, 5e8)",
        "links = network.lift(world)",
    ),
    "two ranks on one GPU take NCCL": (
        "    if ranks > gpus:\n",
        "    if gpus == 1:\n",
    ),
    "DDP takes device_ids on the CPU": (
        "    DDP(nn.Linear(64, 10), device_ids=[0])\n",
        "    DDP(nn.Linear(64, 10), device_ids=None)\n",
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
}
