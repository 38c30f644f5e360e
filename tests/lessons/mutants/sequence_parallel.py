"""The lesson sequence_parallel, broken on purpose."""

MUTANTS = {
    "the tokens of a rank get their gradient from this rank alone": (
        "        return scattered(gradient)",
        "        return gradient.chunk(n, dim=1)[rank].contiguous()",
    ),
    "behind g a rank has only the gradients of its own tokens": (
        "        return joined(gradient)",
        "        return torch.cat([gradient] * n, dim=1)",
    ),
    "the partial gradients stay partial": ("    dist.all_reduce(flat)\n", ""),
    "each partial gradient travels alone": (
        "    dist.all_reduce(flat)\n",
        "    for part in flat:\n        dist.all_reduce(part)\n",
    ),
    "all gradients are whole": ("        partial.add(name)", "        pass"),
    "the ring adds nothing": ("passing = received + parts[(rank - step - 1) % n]", "passing = received"),
    "the library scatters by a ring, too": (
        'in {"gloo": by_library, "ring": by_ring}.items()',
        'in {"gloo": by_ring, "ring": by_ring}.items()',
    ),
    "all tokens are kept": (
        "by_sequence = kept(sequence_block, my_tokens(eight))",
        "by_sequence = kept(tensor_block, eight)",
    ),
    "nothing is sent while it is measured": (
        "        block(x).square().sum().backward()\n        dist.barrier()\n    return carried.bytes / 2",
        "        dist.barrier()\n    block(x).square().sum().backward()\n    return carried.bytes / 2",
    ),
    "the first plan is as good as the second": ('{**plan, "attention": once}, x)', '{**plan, "mlp": once}, x)'),
    "the norms have all tokens": ('    "norm1": SequenceParallel(),\n', ""),
    "both DTensors are on one mesh": (
        "torch.ones(2 * n), grid, [Replicate(), Shard(0)]",
        "torch.ones(2 * n), mesh, [Shard(0)]",
    ),
    "the library needs no loss_parallel": ("with loss_parallel():\n", "if True:\n"),
    "the parameters are activations": (
        "        if storage.data_ptr() not in parameters:\n",
        "        if True:\n",
    ),
    "memory that two tensors share counts twice": (
        "storages[storage.data_ptr()] = storage  # alive",
        "storages[len(storages)] = storage  # alive",
    ),
    "the received bytes are sent bytes": (
        "    return carried.bytes / 2  # the other half was received",
        "    return carried.bytes  # the other half was received",
    ),
    "the ring begins with the rank's own part": (
        "    passing = parts[(rank - 1) % n]\n",
        "    passing = parts[rank]\n",
    ),
    "a norm of all gradients needs no numbers of other ranks": (
        "norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms",
        "norm.to_local() if isinstance(norm, DTensor) else norm for norm in norms",
    ),
    "each rank has other tokens": (
        "    torch.manual_seed(SEED + 1)\n",
        "    torch.manual_seed(SEED + 1 + rank)\n",
    ),
}
