"""The lesson ring_attention, broken on purpose."""

MUTANTS = {
    "the sum of weights needs no correction": (
        "    total = total * correction + weights.sum(-1, keepdim=True)",
        "    total = total + weights.sum(-1, keepdim=True)",
    ),
    "the largest score of the last block is enough": (
        "    new_largest = torch.maximum(largest, scores.amax(-1, keepdim=True))",
        "    new_largest = scores.amax(-1, keepdim=True)",
    ),
    "the sum of values needs no correction": (
        "    output = output * correction + weights @ values",
        "    output = output + weights @ values",
    ),
    "the blocks of the neighbours are enough": (
        "        compute(block, (rank - step) % n)\n",
        "        compute(block if step < 1 else block * 0, (rank - step) % n)\n",
    ),
    "each block goes all the way round": (
        "        if step < n - 1:\n            next_block, works = pass_on(block)\n        compute(",
        "        next_block, works = pass_on(block)\n        finish(works if step == n - 1 else [])\n        compute(",
    ),
    "a rank holds all blocks": (
        "        compute(block, (rank - step) % n)\n",
        "        kept = [*kept, block] if step else [block]\n        compute(block, (rank - step) % n)\n",
    ),
    "blocks go to the left": (
        "    return received, [dist.irecv(received, left), dist.isend(tensor, right)]",
        "    return received, [dist.irecv(received, right), dist.isend(tensor, left)]",
    ),
    "a ring that waits first overlaps": (
        "            next_block, works = pass_on(block)\n        compute(",
        "            next_block, works = pass_on(block)\n            finish(works)\n        compute(",
    ),
    "an all-gather lets a rank compute": (
        '{"gather first": timed(gather_first), "ring": timed(ring)}',
        '{"gather first": timed(ring), "ring": timed(ring)}',
    ),
    "the gradients of keys and values stay where they are": (
        "        gradient, gradient_works = pass_on(contribution)\n",
        "        gradient, gradient_works = contribution, []\n",
    ),
    "each query needs no D": ("(G[:, rows] @ values.mT - D[:, rows])", "(G[:, rows] @ values.mT)"),
    "the gradient of the keys needs no scale": (
        "contribution[0, :, columns] += dS.mT @ q[:, rows] / root",
        "contribution[0, :, columns] += dS.mT @ q[:, rows]",
    ),
    "each gradient is waited for before the next block is computed": (
        "        gradient, gradient_works = pass_on(contribution)\n",
        "        gradient, gradient_works = pass_on(contribution)\n        finish(gradient_works)\n",
    ),
    "as much again as the output is kept": (
        "        context.save_for_backward(q, k, v, output, logsumexp)",
        "        context.save_for_backward(q, k, v, output, logsumexp.expand_as(q).clone()[..., :1])",
    ),
    "a rank sees the blocks behind it": ("            if key_chunk <= query_chunk:\n", "            if True:\n"),
    "all of a chunk on the diagonal is seen": (
        "pieces.append((i, j, key_chunk == query_chunk))",
        "pieces.append((i, j, False))",
    ),
    "rank r has chunks r and n + r": ("    return rank, 2 * n - 1 - rank", "    return rank, n + rank"),
    "in order all ranks have the same work": (
        'work = {"in order": list(computed)}',
        'work = {"in order": [3] + [2] * (n - 1)}',
    ),
    "the map shows zigzag": (
        "owners = [chunk // 2 for chunk in range(2 * n)]",
        "owners = [min(chunk, 2 * n - 1 - chunk) for chunk in range(2 * n)]",
    ),
    "a chunk of queries meets only its own chunk of keys": (
        "            keys, values = block[:, :, halves[j]]",
        "            keys, values = block[:, :, halves[i]]",
    ),
    "keys see the queries": (
        "visible_pieces(chunks_of(rank, n), chunks_of(owner, n))",
        "visible_pieces(chunks_of(owner, n), chunks_of(rank, n))",
    ),
    "context_parallel splits in order": (
        "assert_close(output[0], reference[:, own_ids], **exactly)",
        "assert_close(output[0], own_slice(reference), **exactly)",
    ),
    "context_parallel gives the keys no gradients of other ranks": (
        "        loss_of(output).backward()\n\nreference_leaves",
        "        loss_of(output).backward()\nown_leaves[1].grad /= n\n\nreference_leaves",
    ),
    "the library reduce-scatters nothing": (
        "            loss_of(output).backward()\n    assert counts(forward)",
        "            pass\n        loss_of(output).backward()\n    assert counts(forward)",
    ),
    "the choice of a rotate method is measured with gathered keys": (
        "CommDebugMode() as forward:\n            output = F.scaled_dot_product_attention(*own_leaves)",
        "CommDebugMode() as forward:\n            output = ring_attention(*[x.squeeze(0) for x in own_leaves])[None]",
    ),
    "ulysses sends as much as the ring": (
        "    return exchanged(output.reshape(n, c, d))",
        "    exchanged(many_heads)\n    return exchanged(output.reshape(n, c, d))",
    ),
    "the largest score so far starts at 0": (
        "    return torch.full_like(q[..., :1], -inf), torch.zeros_like(q[..., :1]), torch.zeros_like(q)",
        "    return torch.zeros_like(q[..., :1]), torch.zeros_like(q[..., :1]), torch.zeros_like(q)",
    ),
    "a rank waits as long as all ranks together": (
        "    waited[name] = sum(waits) / n\n",
        "    waited[name] = sum(waits)\n",
    ),
    "a message is an eighth as large": ("loop(torch.zeros(2, 2**16), compute)", "loop(torch.zeros(2, 2**13), compute)"),
    "the log-sum-exp leaves out the largest score": (
        "return output / total, largest + total.log()",
        "return output / total, total.log()",
    ),
    "the pieces of both orders are counted together": (
        "computed.clear()\noutput = RingAttention",
        "output = RingAttention",
    ),
    "a head of Ulysses has the positions of this rank": (
        "one_head = [exchanged(x).reshape(1, n * c, d) for x in (q, k, v)]",
        "one_head = [x.reshape(1, n * c, d) for x in (q, k, v)]",
    ),
}
