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
        "    for step in range(n):\n        if step < n - 1:\n            received, works = pass_on(block)\n"
        "        keys, values = block\n",
        "    for step in range(n):\n        if step < n - 1:\n            received, works = pass_on(block)\n"
        "        keys, values = block if step < 1 else received * 0\n",
    ),
    "each block goes all the way round": (
        "        if step < n - 1:\n            received, works = pass_on(block)\n        keys, values = block\n",
        "        received, works = pass_on(block)\n        finish(works if step == n - 1 else [])\n"
        "        keys, values = block\n",
    ),
    "blocks go to the left": (
        "    return received, [dist.irecv(received, left), dist.isend(tensor, right)]",
        "    return received, [dist.irecv(received, right), dist.isend(tensor, left)]",
    ),
    "nothing is measured in the ring": (
        "in_the_ring = measured(lambda: ring_attention(large_q, large_k, large_v))",
        "in_the_ring = measured(lambda: None)",
    ),
    "waiting first is overlap, too": (
        '("computes, then waits", False)):',
        '("computes, then waits", True)):',
    ),
    "computing first is no overlap": (
        '("waits, then computes", True), (',
        '("waits, then computes", False), (',
    ),
    "the gradients of keys and values stay where they are": (
        "        of_block, works = pass_on(of_block)\n        finish(works)\n",
        "",
    ),
    "each query needs no D": ("(G[:, rows] @ values.mT - D[:, rows])", "(G[:, rows] @ values.mT)"),
    "backward needs no scale": (
        "of_scores = weights * (G[:, rows] @ values.mT - D[:, rows]) / q.shape[-1] ** 0.5",
        "of_scores = weights * (G[:, rows] @ values.mT - D[:, rows])",
    ),
    "as much again as the output is kept": (
        "        context.save_for_backward(q, k, v, output, logarithm)",
        "        context.save_for_backward(q, k, v, output, logarithm.expand_as(q).clone()[..., :1])",
    ),
    "a rank sees the blocks behind it": ("    if theirs > mine:\n        return []\n", ""),
    "all of the own block is seen": (
        "return [(slice(None), slice(None), theirs == mine)]",
        "return [(slice(None), slice(None), False)]",
    ),
    "rank r has chunks r and n + r": ("    return rank, 2 * n - 1 - rank", "    return rank, n + rank"),
    "chunks of keys behind are computed, too": ("            if b <= a:\n", "            if True:\n"),
    "in order all ranks have the same work": (
        'work = {"in order": work_by_step(in_order),',
        'work = {"in order": work_by_step(in_zigzag),',
    ),
    "the map shows zigzag": (
        'owners["in zigzag"][chunk] = rank',
        'owners["in zigzag"][chunk] = chunk % n',
    ),
}
