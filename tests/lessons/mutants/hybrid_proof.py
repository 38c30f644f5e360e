"""The lesson hybrid_proof, broken on purpose."""

MUTANTS = {
    "DDP adds up gradients": ("mean = copy.dense.weight.grad / trainers", "mean = copy.dense.weight.grad.clone()"),
    "the gradient of the table is averaged": (
        '    table = rpc.rpc_sync("server", gradient_of_table, (context,))\n',
        '    table = rpc.rpc_sync("server", gradient_of_table, (context,)) / trainers\n',
    ),
    "all trainers have the same batch": (
        "data = batch(range(rank, 48, trainers))",
        "data = batch(range(0, 48, trainers))",
    ),
    "the steps of the trainers average": ("total = table.clone()", "total = table / trainers"),
    "one process has one rate": ('"lr": trainers * rate}', '"lr": rate}'),
    "all trainers take the same share": ("mine = numbers[rank::trainers]", "mine = numbers[::trainers]"),
    "only one trainer takes its turn": ("        if rank == turn:\n", "        if rank == turn == 0:\n"),
    "the next batch does not wait for the last turn": (
        "            optimizer.step(context)\n    dist.barrier()",
        "            optimizer.step(context)",
    ),
    "gradients of one process are not zeroed": (
        "        optimizer.zero_grad()\n        loss = cross",
        "        loss = cross",
    ),
    "nothing is learned": ("        variant(optimizer, context)\n    return loss", "    return loss"),
    "late is in turns": (
        "    time.sleep(0.03 * rank)\n    optimizer.step(context)",
        "    in_turns(optimizer, context)",
    ),
    "the watched hook does not divide": ("bucket.buffer().div_(trainers), async_op", "bucket.buffer(), async_op"),
    "backward ends before it begins": (
        '        dist_autograd.backward(context, [loss])\n        mark("backward ends")',
        '        mark("backward ends")\n        dist_autograd.backward(context, [loss])',
    ),
}
