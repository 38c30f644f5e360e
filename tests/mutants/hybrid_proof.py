"""The lesson hybrid_proof, broken on purpose."""

MUTANTS = {
    "DDP adds up gradients": ("mean = copy.dense.weight.grad / 2", "mean = copy.dense.weight.grad.clone()"),
    "the gradient of the table is averaged": (
        "return next(iter(dist_autograd.get_gradients(context).values())).to_dense()",
        "return next(iter(dist_autograd.get_gradients(context).values())).to_dense() / 2",
    ),
    "both trainers have the same batch": (
        "numbers = list(range(rank, 64, 2))",
        "numbers = list(range(0, 64, 2))",
    ),
    "one process has one rate": ('"lr": 2.0}', '"lr": 1.0}'),
    "both trainers take the same half": ("version, numbers[rank::2])", "version, numbers[::2])"),
    "only one trainer takes its turn": ("        if rank == turn:\n", "        if rank == turn == 0:\n"),
    "gradients of one process are not zeroed": (
        "        optimizer.zero_grad()\n        loss = cross",
        "        loss = cross",
    ),
    "nothing is learned": ("        version(optimizer, context)\n    return loss", "    return loss"),
    "late is in turns": (
        "    time.sleep(0.03 * rank)\n    optimizer.step(context)",
        "    in_turns(optimizer, context)",
    ),
    "late is never late": (
        "    time.sleep(0.03 * rank)\n    optimizer.step(context)",
        "    for turn in (1, 0):\n        dist.barrier()\n        if rank == turn:\n"
        "            optimizer.step(context)\n    dist.barrier()",
    ),
    "the watched hook does not divide": ("bucket.buffer().div_(2), async_op", "bucket.buffer(), async_op"),
    "backward ends before it begins": (
        '        dist_autograd.backward(context, [loss])\n        mark("backward ends")',
        '        mark("backward ends")\n        dist_autograd.backward(context, [loss])',
    ),
}
