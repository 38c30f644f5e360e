"""The lesson hybrid_proof, broken on purpose."""

MUTANTS = {
    "DDP adds up gradients": (
        "mean_dense = local.dense.weight.grad / trainers",
        "mean_dense = local.dense.weight.grad.clone()",
    ),
    "the gradient of the table is averaged": (
        '    table = rpc.rpc_sync("server", gradient_of_table, (context,))\n',
        '    table = rpc.rpc_sync("server", gradient_of_table, (context,)) / trainers\n',
    ),
    "all trainers have the same batch": (
        "share = batch(range(rank, 48, trainers))",
        "share = batch(range(0, 48, trainers))",
    ),
    "the steps of the trainers average": ("total, mean_table = table.clone()", "total, mean_table = table / trainers"),
    "one process has one rate": ('"lr": trainers * RATE}', '"lr": RATE}'),
    "gradients of one process are not zeroed": ("        optimizer.zero_grad()\n", ""),
    "all trainers take the same share": (
        "share = batch(passages[rank::trainers])",
        "share = batch(passages[::trainers])",
    ),
    "only one trainer takes its turn": ("        if rank == turn:\n", "        if rank == turn == 0:\n"),
    "the next batch does not wait for the last turn": (
        "            optimizer.step(context)\n    dist.barrier()",
        "            optimizer.step(context)",
    ),
    "nothing is learned": ("            take_step(optimizer, context)\n", ""),
    "early reads are in turns": (
        "    time.sleep(0.03 * rank)\n    optimizer.step(context)",
        "    in_turns(optimizer, context)",
    ),
    "the locked optimizer is compiled": (
        "new_optimizer(references(model), kind=LockedSGD)",
        "new_optimizer(references(model))",
    ),
    "the steps of lost updates do not overlap": ("    all_have_read.wait(timeout=5)\n", ""),
    "nobody waits after the step": (
        "def step_and_wait(optimizer, context):\n    optimizer.step(context)\n    dist.barrier()",
        "def step_and_wait(optimizer, context):\n    optimizer.step(context)",
    ),
    "missed steps count the steps of the same batch": ("lookup // trainers * trainers - version", "lookup - version"),
    "the watched hook does not divide": ("bucket.buffer().div_(trainers), async_op", "bucket.buffer(), async_op"),
    "backward ends before it begins": (
        '        dist_autograd.backward(context, [loss])\n        mark("backward ends")',
        '        mark("backward ends")\n        dist_autograd.backward(context, [loss])',
    ),
    "the thread records no other operation": ("        one * 1\n", "        one.detach() * 1\n"),
    "overlapping steps lose no update": (
        "weights.copy_(read - RATE * gradient_of_table(context))",
        "weights.sub_(RATE * gradient_of_table(context))",
    ),
    "the library loses updates only with early reads": (
        "run((library, step_and_wait), 8)",
        "run((library, step_at_will), 8)",
    ),
    "the last loss is the loss of trainer 0": ("mean_losses(runs)[-16:]", "runs[0][0][-16:]"),
    "the all-reduce ends as soon as it has begun": (
        '\n    def end(done):\n        mark("all-reduce ends")\n',
        '    mark("all-reduce ends")\n\n    def end(done):\n',
    ),
    "all trainers are equally late": ("time.sleep(0.03 * rank)\n", "time.sleep(0.03)\n"),
    "the distances compare only the last weights": (
        "(dense - expected_dense).abs().amax(dim=(1, 2)).tolist()",
        "(dense[-1] - expected_dense).abs().amax(dim=(1, 2)).tolist()",
    ),
}
