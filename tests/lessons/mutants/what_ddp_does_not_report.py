"""The lesson what_ddp_does_not_report, broken on purpose."""

MUTANTS = {
    "every forward sends the buffers": (
        "for trains in (True, False, False, True, True):",
        "for trains in (True, True, True, True, True):",
    ),
    "the average of the variances is enough": (
        "        square = module.running_var + mean**2",
        "        square = module.running_var",
    ),
    "a rank that finds an unused parameter sends its gradients": (
        "_, model = two_steps(Branch(), find_unused_parameters=True)",
        "_, model = two_steps(nn.ModuleDict())",
    ),
    "every rank uses the layer": (
        "return hidden if rank == 0 else self.second(hidden)",
        "return self.second(hidden)",
    ),
    "a layer may be frozen after wrapping": (
        "        self[0].requires_grad_(False)  #",
        "        self[0].requires_grad_(True)  #",
    ),
    "samplers with other seeds miss nothing": (
        "enumerate([SEED, SEED + rank])",
        "enumerate([SEED, SEED])",
    ),
    "the layers have one order on all ranks": (
        'if rank == 1 else ["first", "second"]',
        'if rank == -1 else ["first", "second"]',
    ),
    "a drift heals": (
        'by_rank = world.call("drift", 0)',
        'by_rank = world.call("drift", 0.1)',
    ),
    "a rank compares its checksum with itself": (
        "    dist.all_reduce(ends, op=dist.ReduceOp.MAX)\n",
        "",
    ),
    "DDP averages every backward pass": (
        "    losses = [model(x).sum(), model(2 * x).sum()]\n    for loss in losses:\n        loss.backward()",
        "    for factor in (1, 2):\n        model(factor * x).sum().backward()",
    ),
    "weight decay keeps the difference": (
        'with_decay, agree_with_decay = world.call("drift", 0.1)[1]',
        'with_decay, agree_with_decay = world.call("drift", 0)[1]',
    ),
    "a sum of losses is averaged once only": (
        "(model(x).sum() + model(2 * x).sum()).backward()",
        "model(x).sum().backward(), model.module(2 * x).sum().backward()",
    ),
    "a checksum of float32 values covers every bit": (
        "flat = [tensor.detach().cpu().contiguous().flatten()",
        "flat = [tensor.detach().cpu().float().contiguous().flatten()",
    ),
    "each rank takes its shard from a different shuffle when two ranks share a seed": (
        "enumerate([SEED, SEED + rank])",
        "enumerate([SEED, SEED + rank // 2])",
    ),
    "the figure exchanges the trainings with and without weight decay": (
        '{"no weight decay": without_decay, "weight decay 0.1": with_decay}',
        '{"no weight decay": with_decay, "weight decay 0.1": without_decay}',
    ),
    "the variance of a rank's own batch is the variance of all images": (
        "variance_of_all = torch.cat(batches).var().item()",
        "variance_of_all = batch.var().item()",
    ),
    "a layer that is frozen before wrapping gets a gradient": (
        "frozen[0].requires_grad_(False)",
        "frozen[0].requires_grad_(True)",
    ),
}
