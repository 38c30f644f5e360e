"""The lesson inside_ddp, broken on purpose."""

MUTANTS = {
    "DDP does not rebuild its buckets": (
        "wrapped, sent = watched(Net(), bucket_cap_mb=0.25)\nsteps = ",
        "wrapped, sent = watched(Net(), bucket_cap_mb=0.25, find_unused_parameters=True)\nsteps = ",
    ),
    "setting the limit of a bucket is its default": (
        '"bucket_cap_mb=25": sizes(bucket_cap_mb=25),',
        '"bucket_cap_mb=25": sizes(),',
    ),
    "the small bucket goes first without a rebuild, too": (
        "wrapped, sent = settled(find_unused_parameters=True)",
        "wrapped, sent = settled()",
    ),
    "the gradients are never parts of the buckets": (
        "gradient_as_bucket_view=view",
        "gradient_as_bucket_view=False",
    ),
    "the layer is used after all": (
        "backward(wrapped, batch(rank), skip=True)\nmine = ",
        "backward(wrapped, batch(rank))\nmine = ",
    ),
    "DDP does not complain": (
        "try:\n    backward(wrapped, batch(rank), skip=True)",
        "try:\n    backward(wrapped.module, batch(rank), skip=True)",
    ),
    "find_unused_parameters costs no all-reduce": (
        '(True, {"find_unused_parameters": True}),',
        '(True, {"static_graph": True}),',
    ),
    "no bucket is skipped": (
        "skipped = bytes_sent(bucket_cap_mb=limit, skip_all_reduce_unused_params=True)",
        "skipped = bytes_sent(bucket_cap_mb=limit)",
    ),
    "the gradients of the step do not travel": (
        "with traffic.own_connections() as carried:\n    wrapped(rows)",
        "with traffic.own_connections() as carried:\n    wrapped.module(rows)",
    ),
    "two small batches of four are sent": (
        "quiet and number < 3",
        "quiet and number < 2",
    ),
    "the hook adds up and does not divide": (
        "dist.all_reduce(tensor.div_(n), async_op=True)",
        "dist.all_reduce(tensor, async_op=True)",
    ),
    "backward under no_sync sends nothing": (
        "    with wrapped.no_sync() if backward_quiet else nullcontext():\n        loss.backward()",
        "    with wrapped.no_sync() if backward_quiet else nullcontext():\n        sent.clear()",
    ),
    "plain DDP has as many buckets with every limit": ("plain = DDP(Net(), bucket_cap_mb=0.25)", "plain = DDP(Net())"),
    "DDP always rebuilds its buckets": (
        "plain = DDP(Net(), bucket_cap_mb=0.25)",
        "plain = DDP(Net(), bucket_cap_mb=0.25, find_unused_parameters=True)",
    ),
    "the model under DDP sends, too": ("    backward(plain, batch(rank))", "    backward(plain.module, batch(rank))"),
}
