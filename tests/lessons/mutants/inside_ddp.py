"""The lesson inside_ddp, broken on purpose."""

MUTANTS = {
    "DDP wraps a part of the model": (
        "wrapped = DDP(Net(), bucket_cap_mb=0.25)",
        "wrapped = DDP(Net().second, bucket_cap_mb=0.25)",
    ),
    "DDP does not rebuild its buckets": (
        "wrapped, sent = watched(Net(), bucket_cap_mb=0.25)\nsteps = ",
        "wrapped, sent = watched(Net(), bucket_cap_mb=0.25, find_unused_parameters=True)\nsteps = ",
    ),
    "the figure shows step 2 twice": ('rows = {"step 1": steps[0]', 'rows = {"step 1": steps[1]'),
    "setting the limit of a bucket is its default": (
        '"bucket_cap_mb=25": bucket_mib(bucket_cap_mb=25),',
        '"bucket_cap_mb=25": bucket_mib(),',
    ),
    "the layers are defined in the order of their use": (
        'for name in ("last", "third", "second", "first"):',
        'for name in ("first", "second", "third", "last"):',
    ),
    "buckets leave when they are full": (
        'world.call("events", {"find_unused_parameters": True})',
        'world.call("events", {})',
    ),
    "the hook notes the buckets from last to first": (
        "sent.append(bucket.parameters())",
        "sent.insert(0, bucket.parameters())",
    ),
    "all ranks have the same samples": (
        "    backward(wrapped, batch(rank))\n    steps.append(named",
        "    backward(wrapped, batch(0))\n    steps.append(named",
    ),
    "the cost model knows other links": ("WORLD_SIZE, alpha, 8 / 2.5e8", "WORLD_SIZE, alpha, 8 / 2.5e9"),
    "all buckets travel at once": ("end = max(end, begin) + ", "end = begin + "),
    "a bucket pays no latency": (
        "end = max(end, begin) + 2 * (n - 1) * alpha + ",
        "end = max(end, begin) + ",
    ),
    "a bucket pays one latency, whatever n is": (
        "end = max(end, begin) + 2 * (n - 1) * alpha + ",
        "end = max(end, begin) + 2 * alpha + ",
    ),
    "all buckets are full at the end": (
        "full = [backward_seconds * (number + 1) / count for number in range(count)]",
        "full = [backward_seconds for number in range(count)]",
    ),
    "the backward pass takes no time": ("        time.sleep(0.01)\n", ""),
    "the number of buckets makes no difference": ("bucket_cap_mb=2 / count", "bucket_cap_mb=2"),
    "the links are not slow": ("links = network.limit(world, 2.5e8)", "links = network.limit(world, 2.5e10)"),
    "find_unused_parameters costs no all-reduce": (
        'options_cost({"find_unused_parameters": True})\nstatic_steps',
        'options_cost({"static_graph": True})\nstatic_steps',
    ),
    "static_graph does not rebuild": (
        'options_cost({"static_graph": True})\n# Summary 9',
        'options_cost({"find_unused_parameters": True})\n# Summary 9',
    ),
    "the gradients are never parts of the buckets": (
        "gradient_as_bucket_view=as_views",
        "gradient_as_bucket_view=False",
    ),
    "no checkpoint is reentrant": (
        '"use_reentrant=True": world.call("error_of", True),',
        '"use_reentrant=True": world.call("error_of", False),',
    ),
    "static_graph does not help": ('world.call("error_of", True, True)', 'world.call("error_of", True, False)'),
    "the layer is called once": (
        "        return checkpoint(self.shared, hidden, **self.options)",
        "        return hidden",
    ),
    "the micro-batches are sent one by one": (
        "with wrapped.no_sync():\n    for number in range(3):",
        "with nullcontext():\n    for number in range(3):",
    ),
    "the hook adds up and does not divide": (
        "bucket.buffer().div_(n), async_op=True",
        "bucket.buffer(), async_op=True",
    ),
    "backward under no_sync sends nothing": (
        "    with around_backward(wrapped):\n        loss.backward()",
        "    with around_backward(wrapped):\n        sent.clear()",
    ),
    "plain DDP has as many buckets with every limit": ("plain = DDP(Net(), bucket_cap_mb=0.25)", "plain = DDP(Net())"),
    "DDP always rebuilds its buckets": (
        "plain = DDP(Net(), bucket_cap_mb=0.25)",
        "plain = DDP(Net(), bucket_cap_mb=0.25, find_unused_parameters=True)",
    ),
    "the model under DDP sends, too": ("    backward(plain, batch(rank))", "    backward(plain.module, batch(rank))"),
    "every rank has the samples of rank 0": ("torch.Generator().manual_seed(seed)", "torch.Generator().manual_seed(0)"),
    "one of the two calls is in a checkpoint": (
        "        hidden = checkpoint(self.shared, hidden, **self.options)\n",
        "        hidden = self.shared(hidden)\n",
    ),
    "DDP always copies gradient by gradient": (
        "DDP(Net(), bucket_cap_mb=0.25, batched_grad_copy=True)",
        "DDP(Net(), bucket_cap_mb=0.25, batched_grad_copy=False)",
    ),
}
