"""The lesson fewer_bytes, broken on purpose."""

MUTANTS = {
    "PyTorch takes a bf16 hook by its name": (
        "for hook in (default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):",
        "for hook in (default_hooks.fp16_compress_hook, default_hooks.allreduce_hook):",
    ),
    "the own hook rounds bf16 no more than fp16": (
        "bf16 = gradients(compress, torch.bfloat16)",
        "bf16 = gradients(compress, torch.float16)",
    ),
    "the own hook adds up and does not divide": (
        "work = dist.all_reduce((bucket.buffer() / n).to(dtype), async_op=True)",
        "work = dist.all_reduce(bucket.buffer().to(dtype), async_op=True)",
    ),
    "a larger r leaves as large an error": (
        "    right = torch.randn(256, r)\n",
        "    right = torch.randn(256, 1)\n",
    ),
    "PowerSGD makes more than three all-reduces": (
        "model = new_model(powerSGD_hook.powerSGD_hook, state, bucket_cap_mb=100)",
        "model = new_model(default_hooks.allreduce_hook, None, bucket_cap_mb=100)",
    ),
    "nothing is missed without feedback": (
        "(low_rank, LowRank(2, feedback=False)),",
        "(low_rank, LowRank(2, feedback=True)),",
    ),
    "feedback is kept and never added": (
        "        gradient += state.missed.get(parameter, 0)\n",
        "",
    ),
    "the low rank sends the whole matrix": (
        "mean(gradient @ state.start(parameter))",
        "mean(gradient) @ state.start(parameter)",
    ),
    "the hook of 16 bits sends 32": (
        '"fp16": lambda: (default_hooks.fp16_compress_hook, None),',
        '"fp16": lambda: (default_hooks.allreduce_hook, None),',
    ),
    "the links are as they are when they should be paced": (
        "links = network.limit(world, 5e6)",
        "links = network.lift(world)",
    ),
    "the low rank leaves the biases out": (
        "            mean(gradient)\n            continue",
        "            continue",
    ),
}
