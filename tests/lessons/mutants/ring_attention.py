"""The lesson ring_attention, broken on purpose."""

MUTANTS = {
    "the scores of one block are those of all keys": (
        "    (q[0] @ k[0].T).numel(),\n)",
        "    (q[0] @ gathered(k)[0].T).numel(),\n)",
    ),
    "the sum of weights needs no correction": (
        "    total = total * correction + weights.sum(-1, keepdim=True)",
        "    total = total + weights.sum(-1, keepdim=True)",
    ),
    "the sum of values needs no correction": (
        "    output = output * correction + weights @ values",
        "    output = output + weights @ values",
    ),
    "the blocks of the neighbours are enough": (
        "    for step in range(n):\n        if step < n - 1:\n            next_block, works = pass_on(block)\n"
        "        keys, values = block\n",
        "    for step in range(n):\n        if step < n - 1:\n            next_block, works = pass_on(block)\n"
        "        keys, values = block if step < 1 else next_block * 0\n",
    ),
    "each block goes all the way round": (
        "        if step < n - 1:\n            next_block, works = pass_on(block)\n        keys, values = block\n",
        "        next_block, works = pass_on(block)\n        finish(works if step == n - 1 else [])\n"
        "        keys, values = block\n",
    ),
    "blocks go to the left": (
        "    return received, [dist.irecv(received, left), dist.isend(tensor, right)]",
        "    return received, [dist.irecv(received, right), dist.isend(tensor, left)]",
    ),
    "nothing is measured in the ring": (
        "in_the_ring = measured_bytes(lambda: ring_attention(large_q, large_k, large_v))",
        "in_the_ring = measured_bytes(lambda: None)",
    ),
    "a ring that waits first overlaps": (
        '("computes, then waits", False)):',
        '("computes, then waits", True)):',
    ),
    "a ring that computes first does not overlap": (
        '("waits, then computes", True), (',
        '("waits, then computes", False), (',
    ),
    "the gradients of keys and values stay where they are": (
        "        gradient, gradient_works = pass_on(own_part)\n",
        "        gradient, gradient_works = own_part, []\n",
    ),
    "each query needs no D": ("(G[:, rows] @ values.mT - D[:, rows])", "(G[:, rows] @ values.mT)"),
    "the gradient of the keys needs no scale": (
        "dS.mT @ q[:, rows] / q.shape[-1] ** 0.5",
        "dS.mT @ q[:, rows]",
    ),
    "each gradient is waited for before the next block is computed": (
        "        gradient, gradient_works = pass_on(own_part)\n",
        "        gradient, gradient_works = pass_on(own_part)\n        finish(gradient_works)\n",
    ),
    "as much again as the output is kept": (
        "        context.save_for_backward(q, k, v, output, logsumexp)",
        "        context.save_for_backward(q, k, v, output, logsumexp.expand_as(q).clone()[..., :1])",
    ),
    "a rank sees the blocks behind it": ("    if theirs > mine:\n        return []\n", ""),
    "all of the own block is seen": (
        "return [(slice(None), slice(None), theirs == mine)]",
        "return [(slice(None), slice(None), False)]",
    ),
    "rank r has chunks r and n + r": ("    return rank, 2 * n - 1 - rank", "    return rank, n + rank"),
    "chunks of keys behind are computed, too": ("            if key_chunk <= query_chunk:\n", "            if True:\n"),
    "in order all ranks have the same work": (
        'work = {"in order": work_by_step(in_order),',
        'work = {"in order": work_by_step(in_zigzag),',
    ),
    "the map shows zigzag": (
        'owners["in zigzag"][chunk] = rank',
        'owners["in zigzag"][chunk] = chunk % n',
    ),
}
