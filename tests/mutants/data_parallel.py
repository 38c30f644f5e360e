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
    "the hook launches before the bucket is full": (
        "        if len(taken) == len(bucket.views):",
        "        if len(taken) == 1:",
    ),
    "the buckets are launched after backward": (
        "        when_full(bucket, Bucket.launch)\n    def update():\n        for bucket in buckets:\n",
        "        when_full(bucket, lambda bucket: None)\n    def update():\n        for bucket in buckets:\n"
        "            bucket.launch()\n",
    ),
    "DDP has one bucket": (
        "bucket_cap_mb=4)",
        "bucket_cap_mb=400)",
    ),
    "the optimizer in the hook never updates early": (
        "        while under_way and under_way[0].work.is_completed():",
        "        while False:",
    ),
    "the links are as they are when they should be paced": (
        "links = network.limit(world, 2e9)\nslow = ",
        "links = network.lift(world)\nslow = ",
    ),
}
