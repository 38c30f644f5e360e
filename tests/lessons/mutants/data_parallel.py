"""The lesson data_parallel, broken on purpose."""

MUTANTS = {
    "the loop with three lines more does without the sum": (
        "        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)\n",
        "",
    ),
    "the second epoch is dealt as the first": (
        "for sampler in samplers:\n    sampler.set_epoch(1)",
        "for sampler in samplers:\n    sampler.set_epoch(0)",
    ),
    "all ranks take the same share": (
        "sampler = DistributedSampler(training, shares, share, seed=SEED)",
        "sampler = DistributedSampler(training, shares, 0, seed=SEED)",
    ),
    "rank 0 does not send its first weights": (
        "    for tensor in model.state_dict().values():\n        dist.broadcast(tensor, src=0)\n",
        "",
    ),
    "the gradients are added up and not divided": (
        "            parameter.grad /= dist.get_world_size(group)\n",
        "",
    ),
    "the averages stay in the bucket": (
        "        bucket.launch()\n        bucket.finish()\n",
        "        bucket.launch()\n        bucket.work.wait()\n",
    ),
    "the bucket is sent for every parameter": (
        "        for parameter in model.parameters():\n            bucket.take(parameter)\n        bucket.launch()\n",
        "        for parameter in model.parameters():\n            bucket.take(parameter)\n"
        "        for parameter in model.parameters():\n            dist.all_reduce(torch.zeros(1))\n"
        "        bucket.launch()\n",
    ),
    "DDP gives each rank its own gradients": (
        "    return DDP(model, process_group=group), sgd(model.parameters()).step",
        "    return model, sgd(model.parameters()).step",
    ),
    "a share that is clipped before the average is clipped rightly": (
        '    if when == "after":',
        '    if when == "before":',
    ),
    "the gradients are below the limit anyway": (
        "LIMIT = 0.1\n",
        "LIMIT = 100.0\n",
    ),
}
