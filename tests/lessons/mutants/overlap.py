"""The lesson overlap, broken on purpose."""

MUTANTS = {
    "the hooks fire in the order in which they are set": (
        "    model(samples).sum().backward()\n    return order",
        "    model(samples).sum().backward()\n    return [name for name, _ in model.named_parameters()]",
    ),
    "the hook of a tied weight fires for each of its uses": (
        'tied = nn.Sequential(shared, nn.ReLU(), shared)\nfirings = fired(tied, images[:8]).count("0.weight")',
        "tied = nn.Sequential(shared, nn.ReLU(), shared)\n"
        'firings = fired(tied, images[:8]).count("0.weight") + fired(tied, images[:8]).count("0.weight")',
    ),
    "a tied weight has the gradient of one use": (
        "tied = nn.Sequential(shared, nn.ReLU(), shared)\nfirings",
        "tied = nn.Sequential(shared, nn.ReLU(), nn.Linear(64, 64).double())\nfirings",
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
    "the one bucket travels in backward": (
        'versions = ["alone", "one_bucket", "overlapped", "by_ddp", "optimizer_in_hook"]',
        'versions = ["alone", "one_bucket", "overlapped", "by_ddp", "optimizer_in_hook"]\n'
        'world.view.execute("one_bucket = overlapped")',
    ),
}
