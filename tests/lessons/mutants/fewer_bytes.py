"""The lesson fewer_bytes, broken on purpose."""

MUTANTS = {
    "the ranks draw other batches": (
        "order = torch.Generator().manual_seed(SEED)",
        "order = torch.Generator().manual_seed(SEED + rank)",
    ),
    "the time of the bytes is too long": ("8 * bytes_of[name] / 5e6\n", "8 * bytes_of[name]\n"),
    "the product has as many elements as the matrix": (
        "(left.numel() + right.numel()) / matrix.numel()",
        "(left @ right.T).numel() / matrix.numel()",
    ),
    "bf16 has a small range": (
        "number.half().item(), number.bfloat16().item()",
        "number.half().item(), number.half().item()",
    ),
    "the own hook rounds bf16 no more than fp16": (
        "bf16 = step(compress, torch.bfloat16)",
        "bf16 = step(compress, torch.float16)",
    ),
    "the own hook adds up and does not divide": (
        "work = dist.all_reduce((bucket.buffer() / n).to(dtype), async_op=True)",
        "work = dist.all_reduce(bucket.buffer().to(dtype), async_op=True)",
    ),
    "the own hook rounds before it divides": (
        "work = dist.all_reduce((bucket.buffer() / n).to(dtype), async_op=True)",
        "work = dist.all_reduce(bucket.buffer().to(dtype) / n, async_op=True)",
    ),
    "a sum in bf16 is rounded once": (
        "    total = parts[0].clone()\n",
        "    total = parts[0].float()\n",
    ),
    "the ranks add in float32": (
        "dtype=torch.bfloat16)\ndist.all_reduce(sums)",
        "dtype=torch.float32)\ndist.all_reduce(sums)",
    ),
    "under autocast the parameters are in bf16": (
        "bytes_of_step(torch.float32, autocast=True)",
        "bytes_of_step(torch.bfloat16, autocast=True)",
    ),
    "autocast is off": (
        "bytes_of_step(torch.float32, autocast=True)",
        "bytes_of_step(torch.float32, autocast=False)",
    ),
    "a larger r leaves as large an error": (
        "    right = torch.randn(256, r)\n",
        "    right = torch.randn(256, 1)\n",
    ),
    "PowerSGD makes more than three all-reduces": (
        "new_model(powerSGD_hook.powerSGD_hook, state, bucket_mb=100)",
        "new_model(default_hooks.allreduce_hook, None, bucket_mb=100)",
    ),
    "nothing is missed without feedback": (
        "(low_rank, LowRank(2, feedback=False)),",
        "(low_rank, LowRank(2, feedback=True)),",
    ),
    "feedback is kept and never added": (
        "    matrix = gradient + missed\n",
        "    matrix = gradient\n",
    ),
    "the low rank sends the whole matrix": (
        "mean(matrix @ right)",
        "mean(matrix) @ right",
    ),
    "the hook of 16 bits sends 32": (
        '"fp16": (compress, torch.float16),',
        '"fp16": (compress, torch.float32),',
    ),
    "the links are as they are when they should be paced": (
        "links = network.limit(world, 5e6)",
        "links = network.lift(world)",
    ),
    "the low rank leaves the biases out": (
        "            gradient.copy_(mean(gradient))\n            continue",
        "            continue",
    ),
    "all ranks train on the same images": (
        "losses.append(backward(model, batch[rank::n]))",
        "losses.append(backward(model, batch[::n]))",
    ),
    "each rank starts with a Q of its own": (
        "same = torch.Generator().manual_seed(SEED)",
        "same = torch.Generator().manual_seed(SEED + rank)",
    ),
    "the low rank begins in the second step": ("state.steps += bucket.is_last()\n", "state.steps += 1\n"),
    "the mean of ten steps is a mean over twelve": ("error(total / 10)", "error(total / 12)"),
    "the loss of the last step is the mean of the last epoch": (
        "return mean(torch.stack(losses[-12:])",
        "return mean(torch.stack(losses[-1:])",
    ),
}
