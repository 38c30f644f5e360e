"""The lesson ddp_in_practice, broken on purpose."""

MUTANTS = {
    "every forward sends the buffers": (
        "for trains in (True, False, False, True, True):",
        "for trains in (True, True, True, True, True):",
    ),
    "the average of the variances is enough": (
        "        square = module.running_var + mean**2",
        "        square = module.running_var",
    ),
    "the momentum of the optimizer is not loaded": (
        "    optimizer.load_state_dict(momentum)\n",
        "",
    ),
    "the weights are not loaded": (
        "    model.module.load_state_dict(weights)\n",
        "",
    ),
    "the epoch is not kept": (
        "save(path, model, optimizer, epoch=2)",
        "save(path, model, optimizer, epoch=0)",
    ),
    "a rank that finds an unused parameter sends its gradients": (
        "model = two_steps(find_unused_parameters=True)",
        "model = DDP(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))\n"
        "for number in range(2):\n    model(torch.ones(1, 2)).sum().backward()",
    ),
    "samplers with other seeds miss nothing": (
        "enumerate([SEED, SEED + rank])",
        "enumerate([SEED, SEED])",
    ),
    "a seed for each rank draws one mask": (
        "def mask(seed):\n    torch.manual_seed(seed)",
        "def mask(seed):\n    torch.manual_seed(SEED)",
    ),
    "the layers have one order on all ranks": (
        "sorted(layers, reverse=rank == 1)",
        "sorted(layers)",
    ),
    "a drift heals": (
        "difference, weights_agreed = drift(weight_decay=0)",
        "difference, weights_agreed = drift(weight_decay=0.1)",
    ),
    "a rank compares its checksum with itself": (
        "    dist.all_reduce(ends, op=dist.ReduceOp.MAX)\n",
        "",
    ),
    "every rank uses the layer": (
        "return next(iter(self))(x) if rank == 0 else super().forward(x)",
        "return super().forward(x)",
    ),
    "a layer may be frozen after wrapping": (
        '    if when == "after":\n        layers[0].requires_grad_(False)\n',
        '    if when == "after":\n        layers[0].requires_grad_(True)\n',
    ),
}
