# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
SEED = 0
# cell `def gathered(`
# cell `def pass_on(`

# %% my_update: skeleton
# Not yet. With scores of about 1,000, rank 0 returned nan for a query, expected numbers: exp overflows, or all weights are 0.

# %% my_update: with a correction
# Solved. In every order, with small and large scores, the blocks give the attention over all keys.
def my_update(state, scores, values):
    largest, total, output = state
    new = torch.maximum(largest, scores.amax(-1, keepdim=True))
    correction = (largest - new).exp()
    weights = (scores - new).exp()
    total = total * correction + weights.sum(-1, keepdim=True)
    output = output * correction + weights @ values
    return new, total, output

# %% my_update
# Solved. In every order, with small and large scores, the blocks give the attention over all keys.
def my_update(state, scores, values):
    largest, total, output = state
    before = largest + total.log()
    now = torch.logaddexp(before, scores.logsumexp(-1, keepdim=True))
    output = output * (before - now).exp() + (scores - now).exp() @ values
    return now, torch.ones_like(total), output

# %% my_update
# Solved. In every order, with small and large scores, the blocks give the attention over all keys.
def my_update(state, scores, values):
    if scores.dim() > 2:
        heads = [my_update(*head) for head in zip(zip(*state), scores, values)]
        return [torch.stack(part) for part in zip(*heads)]
    rows = []
    for (largest, total, output), row in zip(zip(*state), scores):
        new = max(largest.item(), row.max().item())
        shrunk = torch.exp(largest - new)
        weights = torch.exp(row - new)
        mean = output * shrunk + (weights.unsqueeze(1) * values).sum(0)
        rows.append((torch.full_like(largest, new), total * shrunk + weights.sum(), mean))
    return [torch.stack(part) for part in zip(*rows)]

# %% my_update: solution
# Solved. In every order, with small and large scores, the blocks give the attention over all keys.

# %% my_update
# Not yet. With small scores, rank 0 has [...
# answer "with a correction", with `total = total * correction` as `total = total`

# %% my_update
# Not yet. With small scores, rank 0 has [...
# answer "with a correction", with `output = output * correction` as `output = output`

# %% my_update
# Not yet. With small scores, rank 0 returned nan ...
# answer "with a correction", with `(largest - new).exp()` as `(new - largest).exp()`

# %% my_update
# Not yet. With scores of which some are -inf, rank 0 returned nan for a query, ...
# answer "with a correction",
# with `torch.maximum(largest, scores.amax(-1, keepdim=True))` as `scores.amax(-1, keepdim=True)`

# %% my_update: the largest score of all queries
# Not yet. With scores that differ by 1,000 from query to query, rank 0 returned nan for a query, ...
# answer "with a correction", with `scores.amax(-1, keepdim=True)` as `scores.max()`

# %% my_update
# Not yet. With small scores, rank 0 has [...
# answer "with a correction", with `weights @ values` as `weights.softmax(-1) @ values`

# %% my_update
# Not yet. ... , as in `state`: tensors of shape (3, 1), shape (3, 1), shape ...
# answer "with a correction", with `return new, total, output` as `return new, total`

# %% my_update
# Not yet. With small scores, rank 0 has ...
# answer "with a correction", with `return new,` as `return largest,`

# %% my_update
# Not yet. ... tensors of shape (2, 3, 1), shape (2, 3, 1) ...
# answer "with a correction", with `sum(-1, keepdim=True)` as `sum(1, keepdim=True)`

# %% my_ring: skeleton
# Not yet. Rank 0 called 1 all_gather, expected only messages to the right neighbour.

# %% my_ring: solution
# Solved. Every rank computed with the blocks of all ranks, while the next block was on its way.

# %% my_ring: waits before it computes
# Not yet. In step 0, no block was on its way to rank 0 during the call of `compute`, expected the next block. ...
def my_ring(block, compute):
    for step in range(n):
        if step < n - 1:
            next_block, works = pass_on(block)
            finish(works)
        compute(block, (rank - step) % n)
        block = next_block

# %% my_ring: computes with the block that has not arrived
# Not yet. In step 0, rank 0 called `compute` with ..., expected the block of rank 0.
def my_ring(block, compute):
    for step in range(n):
        block, works = pass_on(block)
        compute(block, (rank - step) % n)
        finish(works)

# %% my_ring: loses what it receives
# Not yet. In step 1, rank 0 called `compute` with a tensor that is no rank's block, such as a message that has not
# arrived, expected the block of rank 3.
def my_ring(block, compute):
    for step in range(n):
        compute(block, (rank - step) % n)
        if step < n - 1:
            finish(pass_on(block)[1])
            block = torch.zeros_like(block)

# %% my_ring: starts after the computation
# Not yet. In step 0, no block was on its way to rank 0 during the call of `compute`, expected the next block. ...
def my_ring(block, compute):
    for step in range(n):
        compute(block, (rank - step) % n)
        if step < n - 1:
            block, works = pass_on(block)
            finish(works)

# %% my_ring: collects all blocks
# Not yet. In step 0, no block was on its way to rank 0 during the call of `compute`, expected the next block. ...
def my_ring(block, compute):
    blocks = [block]
    for _ in range(n - 1):
        received, works = pass_on(blocks[-1])
        finish(works)
        blocks.append(received)
    for step, block in enumerate(blocks):
        compute(block, (rank - step) % n)

# %% my_ring: keeps all blocks
# Not yet. Rank 0 had 4 blocks in memory, expected its own block, the block in use, and the next block.
def my_ring(block, compute):
    blocks = [block]
    for step in range(n):
        if step < n - 1:
            received, works = pass_on(blocks[-1])
        compute(blocks[-1], (rank - step) % n)
        if step < n - 1:
            finish(works)
            blocks.append(received)

# %% my_ring: the whole way round
# Not yet. In its last step, rank 0 sent a block that no rank needs, expected no message.
def my_ring(block, compute):
    for step in range(n):
        next_block, works = pass_on(block)
        compute(block, (rank - step) % n)
        finish(works)
        block = next_block

# %% my_ring: does not wait for the send
# Not yet. Rank ... never waited for its send to rank ...
# solution, with `finish(works)` as `works[0].wait()`

# %% my_ring: the wrong owner
# Not yet. In step 1, rank 0 called `compute` with the owner 1, expected 3.
# solution, with `(rank - step) % n` as `(rank + step) % n`

# %% my_ring: negative owners
# Not yet. In step 1, rank 0 called `compute` with the owner -1, expected 3.
# solution, with `(rank - step) % n` as `rank - step`

# %% my_ring: its own block again and again
# Not yet. In step 1, rank 0 called `compute` with the block of rank 0, expected the block of rank 3.
# solution, without `block = next_block`

# %% my_ring: to the left
# Not yet. In step 1, rank 0 called `compute` with the block of rank 1, expected the block of rank 3.
def my_ring(block, compute):
    for step in range(n):
        if step < n - 1:
            next_block = torch.empty_like(block)
            works = [dist.irecv(next_block, right), dist.isend(block, left)]
        compute(block, (rank - step) % n)
        if step < n - 1:
            finish(works)
            block = next_block

# %% my_ring: only its own block
# Not yet. Rank 0 called `compute` once, expected 4 times, once for each block.
def my_ring(block, compute):
    compute(block, rank)

# %% my_ring: the last block is missing
# Not yet. Rank 0 called `compute` 3 times, expected 4 times, once for each block.
# solution, with `range(n)` as `range(n - 1)`

# %% my_ring: with a batch, and the last block after the loop
# Solved. ...
def my_ring(block, compute):
    for step in range(n - 1):
        received = torch.empty_like(block)
        pair = [dist.P2POp(dist.isend, block, right), dist.P2POp(dist.irecv, received, left)]
        works = dist.batch_isend_irecv(pair)
        compute(block, (rank - step) % n)
        for work in works:
            work.wait()
        block = received
    compute(block, right)

# %% my_ring: with two buffers
# Solved. ...
def my_ring(block, compute):
    owner, buffers = rank, [torch.empty_like(block), torch.empty_like(block)]
    for step in range(n):
        works = []
        if step + 1 < n:
            works = [dist.isend(block, right), dist.irecv(buffers[step % 2], left)]
        compute(block, owner)
        for work in works:
            work.wait()
        block, owner = buffers[step % 2], (owner - 1) % n

# %% my_ring: keys and values in messages of their own
# Solved. ...
def my_ring(block, compute):
    keys, values = block
    for step in range(n):
        if step < n - 1:
            next_keys, first = pass_on(keys.contiguous())
            next_values, second = pass_on(values.contiguous())
        compute(torch.stack([keys, values]), (rank - step) % n)
        if step < n - 1:
            finish(first + second)
            keys, values = next_keys, next_values

# %% my_ring: changes its own block
# Not yet. Rank 0 changed its argument `block`, expected it unchanged.
# solution, with `block = next_block` as `block.copy_(next_block)`

# %% my_ring: receives into the block that it sends
# Not yet. In step ..., rank ... called `compute` with ..., expected the block of rank ...
def my_ring(block, compute):
    for step in range(n):
        works = [dist.isend(block, right), dist.irecv(block, left)] if step < n - 1 else []
        compute(block, (rank - step) % n)
        for work in works:
            work.wait()

# %% my_ring_back: skeleton
# Not yet. Rank 0 called `compute` once, and returned the contributions of rank 0, expected one contribution of each rank.

# %% my_ring_back: solution
# Solved. Every rank has the gradient of its own block, and the gradients travelled while the ranks computed.

# %% my_ring_back: waits for each gradient at once
# Not yet. In step 1, rank 0 received 560 bytes during the call of `compute`, expected 1120, a block and a gradient. ...
# solution, with `gradient, gradient_works = pass_on(contribution)`
# as `gradient, gradient_works = pass_on(contribution); finish(gradient_works); gradient_works = []`

# %% my_ring_back: waits for the gradient before it computes
# Not yet. In step 1, rank 0 received 560 bytes during the call of `compute`, expected 1120, a block and a gradient. ...
def my_ring_back(block, compute):
    gradient, gradient_works = torch.zeros_like(block), []
    for step in range(n):
        if step < n - 1:
            next_block, works = pass_on(block)
        finish(gradient_works)
        contribution = compute(block, (rank - step) % n) + gradient
        gradient, gradient_works = pass_on(contribution)
        if step < n - 1:
            finish(works)
            block = next_block
    finish(gradient_works)
    return gradient

# %% my_ring_back: waits for the blocks at once
# Not yet. In step 0, rank 0 received 0 bytes during the call of `compute`, expected 560, a block. ...
def my_ring_back(block, compute):
    gradient, gradient_works = torch.zeros_like(block), []
    for step in range(n):
        if step < n - 1:
            next_block, works = pass_on(block)
            finish(works)
        contribution = compute(block, (rank - step) % n)
        finish(gradient_works)
        gradient, gradient_works = pass_on(contribution + gradient)
        block = next_block
    finish(gradient_works)
    return gradient

# %% my_ring_back: without the last hop
# Not yet. Rank 0 returned a gradient of the block of rank 1, expected the gradient of its own block.
def my_ring_back(block, compute):
    gradient, gradient_works = torch.zeros_like(block), []
    for step in range(n):
        if step < n - 1:
            next_block, works = pass_on(block)
        contribution = compute(block, (rank - step) % n)
        finish(gradient_works)
        gradient = contribution + gradient
        if step < n - 1:
            gradient, gradient_works = pass_on(gradient)
            finish(works)
            block = next_block
    return gradient

# %% my_ring_back: an all-reduce
# Not yet. Rank 0 called `compute` once, and returned a tensor that is no sum of contributions to the gradient of one ...
def my_ring_back(block, compute):
    gradient = compute(block, rank)
    dist.all_reduce(gradient)
    return gradient

# %% my_ring_back: forgets the contributions of the ranks before
# Not yet. Rank 0 returned the contributions of rank 3, expected one contribution of each rank.
# solution, without `contribution += gradient  # of this block, from the ranks before this rank`

# %% my_ring_back: adds before the gradient has arrived
# Not yet. Rank ... returned ...
# solution, with `contribution = compute(block, (rank - step) % n)`
# as `contribution = gradient + compute(block, (rank - step) % n)` and `contribution += gradient` as `pass`

# %% my_ring_back: without return
# Not yet. Rank 0 returned None, expected the gradient of its block.
# solution, without `return gradient`

# %% my_ring_back: blocks the whole way round
# Not yet. Rank 0 sent a block or a gradient that no rank needs, expected no such message.
def my_ring_back(block, compute):
    gradient, gradient_works = torch.zeros_like(block), []
    for step in range(n):
        next_block, works = pass_on(block)
        contribution = compute(block, (rank - step) % n)
        finish(gradient_works)
        gradient, gradient_works = pass_on(contribution + gradient)
        finish(works)
        block = next_block
    finish(gradient_works)
    return gradient

# %% my_ring_back: dk and dv as a tuple
# Solved. ...
# solution, with `return gradient` as `return gradient[0], gradient[1]`

# %% my_ring_back: the first step before the loop
# Solved. ...
def my_ring_back(block, compute):
    next_block, works = pass_on(block)
    total = compute(block, rank)
    for step in range(1, n):
        finish(works)
        block = next_block
        arriving, gradient_works = pass_on(total)
        if step < n - 1:
            next_block, works = pass_on(block)
        total = compute(block, (rank - step) % n)
        finish(gradient_works)
        total = total + arriving
    gradient, gradient_works = pass_on(total)
    finish(gradient_works)
    return gradient

# %% my_pieces: skeleton
# Not yet. With the chunks (2, 3) of queries and (2, 3) of keys, rank 0 returned diagonal=False for the piece (0, 0), ...

# %% my_pieces: solution
# Solved. The pieces hold every visible key, and no chunk of hidden keys.

# %% my_pieces
# Solved. ...
def my_pieces(query_chunks, key_chunks):
    pairs = [(i, j) for j in (1, 0) for i in (1, 0) if not key_chunks[j] > query_chunks[i]]
    return [[i, j, query_chunks[i] == key_chunks[j]] for i, j in pairs]

# %% my_pieces: no diagonal
# Not yet. With the chunks (2, 3) of queries and (2, 3) of keys, rank 0 returned no piece (0, 0), chunk 2 of queries ...
# solution, with `key_chunk <= query_chunk` as `key_chunk < query_chunk`

# %% my_pieces: later keys
# Not yet. With the chunks (2, 3) of queries and (2, 3) of keys, rank 0 returned the piece (0, 1), ...
# solution, with `key_chunk <= query_chunk` as `key_chunk >= query_chunk`

# %% my_pieces: diagonal by place
# Not yet. With the chunks (2, 3) of queries and (0, 1) of keys, rank 0 returned diagonal=True for the piece (0, 0), ...
# solution, with `key_chunk == query_chunk` as `i == j`

# %% my_pieces: all of the own block
# Not yet. With the chunks (2, 3) of queries and (2, 3) of keys, rank 0 returned the piece (0, 1), ... no piece of hidden keys.
# solution, with `if key_chunk <= query_chunk` as `if key_chunk <= max(query_chunks)`

# %% my_pieces: numbers of chunks instead of places
# Not yet. With the chunks (2, 3) of queries and (2, 3) of keys, rank 0 returned no piece (0, 0), ...
# solution, with `(i, j, key_chunk` as `(query_chunk, key_chunk, key_chunk`

# %% my_pieces: without return
# Not yet. ... rank 0 returned None, expected a list of pieces (i, j, diagonal).
# solution, without `return pieces`

# %% my_pieces: pairs
# Not yet. ... expected a list of pieces (i, j, diagonal).
# solution, with `pieces.append((i, j, key_chunk == query_chunk))` as `pieces.append((i, j))`

# %% my_pieces: only for chunks in order
# Not yet. With the chunks (1, 6) of queries and (0, 7) of keys, rank 0 returned ...
def my_pieces(query_chunks, key_chunks):
    if query_chunks == key_chunks:
        return [(0, 0, True), (1, 0, False), (1, 1, True)]
    if key_chunks[0] > query_chunks[0]:
        return []
    return [(i, j, False) for i in (0, 1) for j in (0, 1)]

# %% my_chunks: skeleton
# Not yet. With 2 ranks, the chunks of rank 0, [0, 1], meet 3 chunks, expected 5, as for every rank.

# %% my_chunks: solution
# Solved. The chunks of every rank meet 2n + 1 chunks.

# %% my_chunks
# Solved. The chunks of every rank meet 2n + 1 chunks.
# solution, with `return rank, 2 * n - 1 - rank` as `return [2 * n - 1 - rank, rank]`

# %% my_chunks
# Solved. The chunks of every rank meet 2n + 1 chunks.
# solution, with `return rank, 2 * n - 1 - rank` as `return torch.tensor([n - 1 - rank, n + rank])`

# %% my_chunks
# Not yet. With 2 ranks, the chunks of rank 0, [0, 2], meet 4 chunks, expected 5, as for every rank.
# solution, with `return rank, 2 * n - 1 - rank` as `return rank, n + rank`

# %% my_chunks
# Not yet. With 2 ranks, `my_chunks` on rank 0 assigned the ranks the chunks [0, 1, 3, 4], expected ...
# solution, with `return rank, 2 * n - 1 - rank` as `return rank, 2 * n - rank`

# %% my_chunks
# Not yet. With 2 ranks, `my_chunks` on rank 0 assigned the ranks the chunks [0, 0, 3, 3], expected each of 0 to 3 once.
# solution, with `return rank, 2 * n - 1 - rank` as `return 0, 2 * n - 1`

# %% my_chunks: for four ranks
# Not yet. Rank 0 raised IndexError: list index out of range
def my_chunks(rank, n):
    return [(0, 7), (1, 6), (2, 5), (3, 4)][rank]

# %% my_chunks: from the middle
# Solved. ...
def my_chunks(rank, n):
    return n - 1 - rank, n + rank

# %% my_chunks
# Not yet. For rank 0 of 2, rank 0 returned 0, expected two chunks.
# solution, with `return rank, 2 * n - 1 - rank` as `return rank`

# %% my_chunks
# Not yet. For rank 0 of 2, rank 0 returned [0], expected two chunks.
# solution, with `return rank, 2 * n - 1 - rank` as `return [rank]`

# %% merged: skeleton
# Not yet. With small scores, rank 0 returned the output [...

# %% merged: solution
# Solved. The results are merged correctly, even with large log-sum-exps and for queries that see no key of a set.

# %% merged
# Solved. ...
def merged(first, second):
    logarithm = torch.logaddexp(first[1], second[1])
    output = first[0] * (first[1] - logarithm).exp() + second[0] * (second[1] - logarithm).exp()
    return output, logarithm

# %% merged
# Solved. ...
def merged(first, second):
    logarithm = torch.logaddexp(first[1], second[1])
    output = torch.lerp(second[0], first[0], torch.sigmoid(first[1] - second[1]))
    return output, logarithm

# %% merged
# Solved. ...
def merged(first, second):
    logarithm = torch.cat([first[1], second[1]], dim=1).logsumexp(1, keepdim=True)
    output = first[0] * (first[1] - logarithm).exp() + second[0] * (second[1] - logarithm).exp()
    return output, logarithm

# %% merged
# Solved. ...
def merged(first, second):
    logarithm = torch.logaddexp(first[1], second[1])
    output = sum(o * w for o, w in zip((first[0], second[0]), torch.stack([first[1], second[1]]).softmax(0)))
    return output, logarithm

# %% merged
# Not yet. With small scores, rank 0 returned the output ...
# solution, with `sum(part * (own - logsumexp).exp() for part, own in (first, second))` as `first[0] + second[0]`

# %% merged
# Not yet. With small scores, rank 0 returned the ...
def merged(first, second):
    logarithm = first[1] + second[1]
    output = first[0] * (first[1] - logarithm).exp() + second[0] * (second[1] - logarithm).exp()
    return output, logarithm

# %% merged
# Not yet. With log-sum-exps of about 1,000, rank 0 returned ...
def merged(first, second):
    logarithm = (first[1].exp() + second[1].exp()).log()
    output = first[0] * (first[1] - logarithm).exp() + second[0] * (second[1] - logarithm).exp()
    return output, logarithm

# %% merged
# Not yet. With small scores, rank 0 returned the output ...
def merged(first, second):
    logarithm = torch.logaddexp(first[1], second[1])
    output = (first[0] * first[1] + second[0] * second[1]) / (first[1] + second[1])
    return output, logarithm

# %% merged
# Not yet. With small scores, rank 0 returned the ...
def merged(first, second):
    logarithm = torch.maximum(first[1], second[1])
    output = first[0] * (first[1] - logarithm).exp() + second[0] * (second[1] - logarithm).exp()
    return output, logarithm

# %% merged
# Not yet. Rank 0 returned None, shape (3, 1), expected (output, logsumexp): tensors of shape (3, 2), shape (3, 1) ...
# solution, with `output = sum(part * (own - logsumexp).exp() for part, own in (first, second))` as `output = None`

# %% merged: relative to the second set
# Not yet. With queries that see no key of a set, rank 0 returned the output [nan, nan] ..., expected [...] ..., ...
def merged(first, second):
    weight = (first[1] - second[1]).exp()
    return (weight * first[0] + second[0]) / (weight + 1), second[1] + (weight + 1).log()

# %% merged: by a sigmoid
# Solved. ...
def merged(first, second):
    share = torch.sigmoid(first[1] - second[1])
    return share * first[0] + (1 - share) * second[0], torch.logaddexp(first[1], second[1])

# %% merged: the weights exchanged
# Not yet. With small scores, rank 0 returned the output [...] ..., expected [...] ..., the result for all keys.
def merged(first, second):
    both = torch.logaddexp(first[1], second[1])
    return (second[1] - both).exp() * first[0] + (first[1] - both).exp() * second[0], both

# %% windowed: skeleton
# Not yet. The output of rank 1 is wrong at its position 0, which is 6 in the sequence: expected attention to itself and ...

# %% windowed: with a mask
# Solved. Each position sees its window, and no rank sent more than 768 bytes.
def windowed(q, k, v):
    c = q.shape[1]
    before = torch.zeros(2, *k.shape, dtype=k.dtype)
    work = dist.irecv(before, left)
    dist.send(torch.stack([k, v]), right)
    work.wait()
    keys, values = torch.cat([before, torch.stack([k, v])], dim=2)
    behind = c + torch.arange(c).unsqueeze(1) - torch.arange(2 * c)
    visible = (behind >= 0) & (behind < c)
    if rank == 0:
        visible[:, :c] = False
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)

# %% windowed
# Solved. Each position sees its window, and no rank sent more than 768 bytes.
def windowed(q, k, v):
    c = q.shape[1]
    before = torch.zeros(2, k.shape[0], c - 1, k.shape[2], dtype=k.dtype)
    if rank % 2 == 0 and rank < n - 1:
        dist.send(torch.stack([k, v])[:, :, 1:].contiguous(), right)
    if rank > 0:
        dist.recv(before, left)
    if rank % 2 == 1 and rank < n - 1:
        dist.send(torch.stack([k, v])[:, :, 1:].contiguous(), right)
    keys = torch.cat([before[0], k], dim=1)
    values = torch.cat([before[1], v], dim=1)
    rows = []
    for i in range(c):
        visible = slice(max(i, c - 1) if rank == 0 else i, i + c)
        weights = (q[:, i : i + 1] @ keys[:, visible].mT / q.shape[-1] ** 0.5).softmax(-1)
        rows.append(weights @ values[:, visible])
    return torch.cat(rows, dim=1)

# %% windowed: solution
# Solved. Each position sees its window, and no rank sent more than 768 bytes.

# %% windowed
# Not yet. The output of rank 1 is wrong at its position 0, which is 6 ...
# answer "with a mask", with `visible = (behind >= 0) & (behind < c)` as `visible = (behind >= 0) & (behind <= c)`

# %% windowed
# Not yet. The output of rank 0 is wrong at its position 0, ...
# answer "with a mask", with `visible[:, :c] = False` as `pass`

# %% windowed
# Not yet. The output of rank 0 is wrong at its position 0, ...
# answer "with a mask", with `visible = (behind >= 0) & (behind < c)` as `visible = behind < c`

# %% windowed
# Not yet. The output is right, but rank 0 called 1 all_gather, expected only messages from neighbours.
def windowed(q, k, v):
    c = q.shape[1]
    both = torch.stack([k, v])
    parts = [torch.empty_like(both) for _ in range(n)]
    dist.all_gather(parts, both)
    keys, values = torch.cat(parts, dim=2)
    behind = rank * c + torch.arange(c).unsqueeze(1) - torch.arange(n * c)
    visible = (behind >= 0) & (behind < c)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)

# %% windowed
# Not yet. The output is right, but rank 0 sent 1536 bytes, expected at most 768.
def windowed(q, k, v):
    c = q.shape[1]
    before = torch.zeros(2, *k.shape, dtype=k.dtype)
    work = dist.irecv(before, left)
    dist.send(torch.stack([k, v]), right)
    work.wait()
    work = dist.irecv(torch.zeros_like(before), left)
    dist.send(before, right)
    work.wait()
    keys, values = torch.cat([before, torch.stack([k, v])], dim=2)
    behind = c + torch.arange(c).unsqueeze(1) - torch.arange(2 * c)
    visible = (behind >= 0) & (behind < c)
    if rank == 0:
        visible[:, :c] = False
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)

# %% windowed
# Not yet. Rank 0 returned None, expected a tensor of shape (2, 6, 4) ...
# answer "with a mask", with `return F` as `F`

# %% windowed: zeros before the first position
# Not yet. The output of rank 0 is wrong at its position 0, ...
# answer "with a mask", with `visible[:, :c] = False` as `keys[:, :c] = 0`

# %% windowed: without a scale
# Not yet. The output of rank 1 is wrong at its position 0, which is 6 ...
# answer "with a mask", with `F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)`
# as `(q @ keys.mT).masked_fill(~visible, -torch.inf).softmax(-1) @ values`

# %% World(2), World(5): my_ring, my_ring_back
