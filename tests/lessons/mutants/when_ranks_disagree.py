"""The lesson when_ranks_disagree, broken on purpose."""

MUTANTS = {
    "the first panel shows another shape": ("floats, floats[:2])", "floats, floats[:3])"),
    "the second panel shows smaller elements": ('[("1", 8)] * 4', '[("1", 2)] * 4'),
    "the third panel shows one order": (
        '[("count", 1), ("loss", 1)])',
        '[("loss", 1), ("count", 1)])',
    ),
    "the figure shows another rank": ("culprit = 1", "culprit = 0"),
    "the figure marks another rank": ("marked=culprit", "marked=0"),
    "all pass the same shape": ("torch.ones(2 if rank == 1 else 4)", "torch.ones(4)"),
    "a restart keeps the history": (
        "latest = world.history().differences[-1]",
        "fresh_ranks()\nlatest = world.history().differences[-1]",
    ),
    "no result is too small": ("torch.zeros(1 if rank == 1 else 2)", "torch.zeros(2)"),
    "all pass the same dtype": (
        "torch.float64 if rank == 1 else torch.float32)\n    dist.all_reduce",
        "torch.float32)\n    dist.all_reduce",
    ),
    "all call in one order": (
        "steps = (add_counts, add_losses) if rank == 1 else",
        "steps = (add_counts, add_losses) if rank == 9 else",
    ),
    "the history tells calls of one line apart": (
        "steps = (add_counts, add_losses) if rank == 1 else (add_losses, add_counts)",
        "pair = (count, loss) if rank == 1 else (loss, count)\n"
        "steps = [lambda tensor=tensor: dist.all_reduce(tensor) for tensor in pair]",
    ),
    "the message fills the box": ("dist.send(torch.ones(2), dst=1)", "dist.send(torch.ones(4), dst=1)"),
    "the ranks do not compare": (
        'os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"',
        'os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"',
    ),
    "every error names rank 1 first": (r're.findall(r"Rank \d+|Tensor', 're.findall(r"Rank 1|Tensor'),
    "DETAIL has no mismatch to name": (
        "torch.float64 if rank == 1 else torch.float32)\nmessage",
        "torch.float32)\nmessage",
    ),
    "the swapped calls differ in shape": (
        "for number in (count, loss) if rank == 1",
        "for number in (count, torch.ones(2)) if rank == 1",
    ),
    "nothing is swapped under DETAIL": (
        "for number in (count, loss) if rank == 1",
        "for number in (loss, count) if rank == 1",
    ),
    "the swapped calls run in the default group": (
        "        dist.all_reduce(number, group=group)",
        "        dist.all_reduce(number)",
    ),
    "DETAIL stays on": ('"TORCH_DISTRIBUTED_DEBUG"] = "OFF"', '"TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"'),
    "the comparison ignores the shape": ("call = name, tensor.shape, tensor.dtype", "call = name, tensor.dtype"),
    "the comparison ignores the dtype": ("call = name, tensor.shape, tensor.dtype", "call = name, tensor.shape"),
    "the ranks are in one collective": (
        "dist.broadcast(torch.ones(2), src=0, group=group)",
        "dist.all_reduce(torch.ones(2), group=group)",
    ),
    "no operator differs": ("dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM", "dist.ReduceOp.SUM"),
    "the comparison adds in the default group": (
        'raise ValueError(f"the calls differ: {calls}")\n    dist.all_reduce(tensor, group=group)',
        'raise ValueError(f"the calls differ: {calls}")\n    dist.all_reduce(tensor)',
    ),
    "the comparison ignores the name": ("call = name, tensor.shape, tensor.dtype", "call = tensor.shape, tensor.dtype"),
    "the comparison comes after the sum": (
        "    call = name, tensor.shape, tensor.dtype\n",
        "    call = name, tensor.shape, tensor.dtype\n    dist.all_reduce(tensor, group=group)\n",
    ),
    "nothing is swapped when the calls are compared": (
        "for name in reversed(numbers) if rank == 1 else numbers",
        "for name in numbers",
    ),
    "the box holds ones before the message": (
        "box = torch.full((4,), 9.0)\nif rank == 0:\n    dist.send(torch.ones(2), dst=1)",
        "box = torch.ones(4)\nif rank == 0:\n    dist.send(torch.ones(2), dst=1)",
    ),
    "only rank 1 compares the names": (
        "    if any(other != call for other in calls):",
        "    if rank == 1 and any(other != call for other in calls):",
    ),
    "every rank passes a list that is too small": (
        "results = [torch.zeros(1 if rank == 1 else 2) for _ in range(world_size)]",
        "results = [torch.zeros(1) for _ in range(world_size)]",
    ),
}
