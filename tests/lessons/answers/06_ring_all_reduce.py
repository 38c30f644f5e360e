# %% World(4)
# A deadlock is not waited for as long as in the notebook.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
# cell `def pass_on(`, up to `must_agree`
# cell `def ring_of_the_lesson(`
# cell `def naive_exchange(`, up to `must_agree`
ring_all_reduce = ring_of_the_lesson

# %% my_ring: solution
# Solved. Every rank holds the sum, and every rank sent one chunk a step.

# %% my_ring: skeleton
# Not yet. Rank 0 received 0 messages, expected one in each of 3 steps of the reduce-scatter.

# %% my_ring: with only its first half
# Not yet. The reduce-scatter is right: each rank finishes one chunk. After the all-gather rank 0 holds [1.0, 2.0, 3.0,
# 4.0] in chunk 0, expected [10.0, 20.0, 30.0, 40.0].
def my_ring(tensor):
    chunks = tensor.tensor_split(n)
    buffer = torch.empty_like(chunks[0])
    for step in range(n - 1):
        mine = chunks[(rank - step - 1) % n]
        received = buffer[: len(mine)]
        pass_on(chunks[(rank - step) % n], received)
        mine += received

# %% my_ring: another first chunk
# Solved. ...
# solution, with `rank - step` as `rank - step - 1`

# %% my_ring: a batch
# Solved. ...
def by_batch(outgoing, incoming):
    ends = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]
    for work in dist.batch_isend_irecv(ends):
        work.wait()

def my_ring(tensor):
    chunks = tensor.tensor_split(n)
    buffer = torch.empty_like(chunks[0])
    for step in range(n - 1):
        mine = chunks[(rank - step - 1) % n]
        received = buffer[: len(mine)]
        by_batch(chunks[(rank - step) % n], received)
        mine += received
    for step in range(n - 1):
        by_batch(chunks[(rank - step + 1) % n], chunks[(rank - step) % n])

# %% my_ring: another formula
# Solved. ...
# solution, with `pass_on(chunks[(rank - step) % n], received)` as `pass_on(chunks[(rank - step + n) % n], received)`
# and `[(rank - step) % n]` as `[(rank - step + n) % n]`

# %% my_ring: that posts its receives first
# Solved. ...
def my_ring(tensor):
    chunks = tensor.tensor_split(n)
    received = [torch.empty_like(chunks[(rank - step - 1) % n]) for step in range(2 * (n - 1))]
    works = [dist.irecv(chunk, left) for chunk in received]
    for step in range(2 * (n - 1)):
        work = dist.isend(chunks[(rank - step) % n], right)
        works[step].wait()
        work.wait()
        mine = chunks[(rank - step - 1) % n]
        mine.copy_(mine + received[step] if step < n - 1 else received[step])

# %% my_ring: copies
# Not yet. After 3 steps rank 0 holds [[1.0, 2.0, 3.0, 4.0], [10.0, 12.0, 14.0, 16.0], [27.0, 30.0, 33.0, 36.0], [52.0,
# 56.0, 60.0, 64.0]], expected one chunk of the sum: one of [[10.0, 20.0, 30.0, 40.0], [50.0, 60.0, 70.0, 80.0], [90.0,
# 100.0, 110.0, 120.0], [130.0, 140.0, 150.0, 160.0]].
# solution, with `mine += received` as `mine.copy_(received)`

# %% my_ring: an all-gather of what is not finished
# Not yet. The reduce-scatter is right: each rank finishes one chunk. After the all-gather rank 0 holds ...
# solution,
# with `pass_on(chunks[(rank - step + 1) % n], chunks[(rank - step) % n])`
# as `pass_on(chunks[(rank - step) % n], chunks[(rank - step - 1) % n])`

# %% my_ring: chunks that are all as long as the first
# Not yet. Rank ... Should the operand be a slice? Run the lesson again, from the cell with `World` to this check.
# solution, with `received = buffer[: len(mine)]` as `received = buffer`

# %% my_ring: that adds to the chunk it has sent
# Not yet. After 3 steps rank 0 holds ... expected one chunk of the sum: one of [[10.0, 20.0, 30.0, 40.0], ...
# solution, with `mine = chunks[(rank - step - 1) % n]` as `mine = chunks[(rank - step) % n]`

# %% my_ring: chunks in the wrong order, all as long as the first
# Not yet. After 3 steps rank 0 holds ... expected one chunk of the sum: one of [[10.0, 20.0, 30.0, 40.0], ...
def my_ring(tensor):
    chunks = tensor.tensor_split(n)
    buffer = torch.empty_like(chunks[0])
    for step in range(n - 1):
        pass_on(chunks[(rank + step) % n], buffer)
        chunks[(rank + step - 1) % n].add_(buffer)

# %% my_ring: an item of a tuple
# Not yet. Rank 0 raised TypeError: 'tuple' object does not support item assignment. Name the element first, as in
# `a = b[0]`, then change `a`.
def my_ring(tensor):
    chunks = tensor.tensor_split(n)
    buffer = torch.empty_like(chunks[0])
    for step in range(n - 1):
        pass_on(chunks[(rank - step) % n], buffer)
        chunks[(rank - step - 1) % n] += buffer

# %% my_ring: lost
# Not yet. After 3 steps rank 0 holds ...
# solution, with `        mine += received` as `        mine + received`

# %% my_ring: an error
# Not yet. Rank 0 raised ...
# solution, with `        mine += received` as `        missing += received`

# %% my_ring: with bytes of a ring of whole tensors
# Not yet. Rank 0 sent 192 bytes, expected 96 for the ring.
def my_ring(tensor):
    passing, received = tensor.clone(), torch.empty_like(tensor)
    for step in range(n - 1):
        pass_on(passing, received)
        tensor += received
        passing, received = received, passing

# %% reduce_scatter: solution
# Solved. Rank r holds chunk r of the sum, and every rank sent 48 bytes.

# %% reduce_scatter: skeleton
# Not yet. Rank 0 holds [1.0, 2.0, 3.0, 4.0], expected [10.0, 20.0, 30.0, 40.0].

# %% reduce_scatter: irecv
# Solved. ...
# solution, with `dist.recv(received, left)` as `dist.irecv(received, left).wait()`

# %% reduce_scatter: a batch
# Solved. ...
# solution,
# with `work = dist.isend(chunks[(rank - step) % n], right)`
# as `send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right)`
# and `dist.recv(received, left)` as `works = dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, received, left)])`
# and `work.wait()` as `[work.wait() for work in works]`

# %% reduce_scatter: new tensors
# Solved. ...
# solution, with `tensor.tensor_split(n)` as `list(tensor.clone().chunk(n))`
# and `mine += received` as `mine = chunks[(rank - step - 1) % n] = mine + received`

# %% reduce_scatter: in a ring of whole tensors
# Not yet. Rank 0 sent 192 bytes, expected 48 for a reduce-scatter.
def reduce_scatter(tensor):
    passing, received = tensor.clone(), torch.empty_like(tensor)
    for step in range(n - 1):
        pass_on(passing, received)
        tensor += received
        passing, received = received, passing
    return tensor.tensor_split(n)[rank]

# %% reduce_scatter: with a step too many
# Not yet. Rank 0 sent 64 bytes, expected 48 for a reduce-scatter.
def reduce_scatter(tensor):
    chunks = tensor.tensor_split(n)
    received = torch.empty_like(chunks[0])
    for step in range(n - 1):
        pass_on(chunks[(rank - step) % n], received)
        chunks[(rank - step - 1) % n].add_(received)
    pass_on(chunks[right], received)
    return received

# %% reduce_scatter: of an all reduce
# Not yet. Rank 0 sent 96 bytes, expected 48 for a reduce-scatter.
def reduce_scatter(tensor):
    ring_all_reduce(tensor)
    return tensor.tensor_split(n)[rank]

# %% reduce_scatter: of one rank that sends more
# Not yet. Rank 2 sent 52 bytes, expected 48 for a reduce-scatter.
# solution
def without_waste(tensor, solve=reduce_scatter):
    mine = solve(tensor)
    if rank == 2:
        dist.send(mine[:1], 3)
    if rank == 3:
        dist.recv(torch.empty(1), 2)
    return mine

reduce_scatter = without_waste

# %% reduce_scatter: as it stands in the ring
# Not yet. Rank 0 holds [50.0, 60.0, 70.0, 80.0], expected [10.0, 20.0, 30.0, 40.0].
# answer "with a step too many", with `pass_on(chunks[right], received)` as `return chunks[right]`,
# without `return received`

# %% reduce_scatter: by the library
# Not yet. Rank 0 sent 0 bytes, expected 48 for a reduce-scatter.
def reduce_scatter(tensor):
    dist.all_reduce(tensor)
    return tensor.tensor_split(n)[rank]

# %% reduce_scatter: that returns something else
# Not yet. Rank 0 returned None, expected a tensor of 4 elements.
# skeleton, with `return tensor.tensor_split(n)[rank]` as `pass`

# %% reduce_scatter
# Not yet. Rank 0 holds 16 elements, expected 4.
# skeleton, with `return tensor.tensor_split(n)[rank]` as `return tensor`

# %% two_way_ring: solution
# Solved. Every rank holds the sum, and sent 48 bytes in each direction, both at the same time.

# %% two_way_ring: skeleton
# Not yet. Rank 0 sent 6 messages, expected 12 for a ring in both directions.

# %% two_way_ring: a batch
# Solved. ...
# solution,
# with `works.append(dist.isend(chunks[(place - step) % n], target))`
# as `works.append(dist.P2POp(dist.isend, chunks[(place - step) % n], target))`
# and `works.append(dist.irecv(received, source))` as `works.append(dist.P2POp(dist.irecv, received, source))`
# and `for work in works:` as `for work in dist.batch_isend_irecv(works):`

# %% two_way_ring: slices
# Solved. ...
# solution, with `tensor.tensor_split(2)` as `(tensor[: len(tensor) // 2], tensor[len(tensor) // 2 :])`

# %% two_way_ring: places from 1 to n
# Solved. ...
# solution, with `(rank, -rank), (right, left), (left, right)` as `(rank, n - rank), (right, left), (left, right)`

# %% two_way_ring: of two rings to the right
# Not yet. Rank 0 sent 96 bytes to rank 1, expected 48.
def two_way_ring(tensor):
    for half in tensor.tensor_split(2):
        ring_all_reduce(half)

# %% two_way_ring: that takes turns
# Not yet. In step 1 rank 0 waited for one send before it posted the other, expected both sends to be posted first:
# `dist.send` blocks.
def two_way_ring(tensor):
    global rank, left, right
    first, second = tensor.tensor_split(2)
    ring_all_reduce(first)
    rank, left, right = -rank, right, left
    ring_all_reduce(second)
    rank, left, right = -rank, right, left

# %% two_way_ring: that takes turns and waits for its sends in the end
# Not yet. In step 1 rank 0 waited for one send before it posted the other, expected both sends to be posted first:
# `dist.send` blocks.
def two_way_ring(tensor):
    halves, works = [half.tensor_split(n) for half in tensor.tensor_split(2)], []
    for chunks, place, target, source in zip(halves, (rank, -rank), (right, left), (left, right)):
        for step in range(2 * (n - 1)):
            mine = chunks[(place - step - 1) % n]
            received = torch.empty_like(mine)
            work = dist.irecv(received, source)
            works.append(dist.isend(chunks[(place - step) % n].clone(), target))
            work.wait()
            mine.copy_(mine + received if step < n - 1 else received)
    for work in works:
        work.wait()

# %% two_way_ring: of whole tensors
# Not yet. Rank 0 sent 192 bytes, expected 96 for a ring in both directions.
def two_way_ring(tensor):
    passing, received = tensor.clone(), torch.empty_like(tensor)
    for step in range(n - 1):
        pass_on(passing, received)
        tensor += received
        passing, received = received, passing

# %% two_way_ring: with a step too many
# Not yet. Rank 0 sent 112 bytes, expected 96 for a ring in both directions.
# solution, with `for step in range(2 * (n - 1)):` as `for step in range(2 * n - 1):`

# %% two_way_ring: that stops half way
# Not yet. Rank 0 holds [...
# solution, with `for step in range(2 * (n - 1)):` as `for step in range(n - 1):`

# %% two_way_ring: that all begin with send
# Not yet. Deadlock: ... Run the lesson again, from the cell with `World` to this check.
# skeleton, with `ring_all_reduce(tensor)` as `dist.send(tensor[:8], right); dist.recv(tensor[:8], left)`

# %% ordered_exchange: solution
# Solved. Every rank holds the same bits, and sent its tensor once to each other rank.

# %% ordered_exchange: skeleton
# Not yet. In element ... rank 0 holds ... and rank 2 holds ..., expected the same bits. In which order does each rank
# add the tensors?

# %% ordered_exchange: its own tensor first
# Not yet. In element ... expected the same bits. ...
# solution, with `sum(tensors)` as `tensors.pop(rank) + sum(tensors)`

# %% ordered_exchange: by the ring
# Not yet. Rank 0 sent 1536 bytes, expected 3072 for an exchange of whole tensors.
# skeleton, with `naive_exchange(tensor)` as `ring_all_reduce(tensor)`

# %% ordered_exchange: only to the neighbours
# Not yet. Rank 0 sent its tensor to ranks [1, 1, 3], expected [1, 2, 3].
def ordered_exchange(tensor):
    total = torch.stack([torch.randn(256, generator=torch.Generator().manual_seed(other)) for other in range(n)]).sum(dim=0)
    for peer in (right, right, left):
        work = dist.isend(tensor, peer)
        dist.recv(torch.empty_like(tensor), (2 * rank - peer) % n)
        work.wait()
    tensor.copy_(total)

# %% ordered_exchange: with a broadcast at the end
# Not yet. Rank 0 called 1 broadcast, expected no collective. In which order does each rank add the tensors?
def ordered_exchange(tensor):
    naive_exchange(tensor)
    dist.broadcast(tensor, src=0)

# %% ordered_exchange: not in place
# Not yet. Rank 0 holds -1.1258 in element 0, expected the sum, ...
# solution, with `tensor.copy_(sum(tensors))` as `return sum(tensors)`

# %% ordered_exchange: by a stack
# Solved. ...
# solution, with `sum(tensors)` as `torch.stack(tensors).sum(dim=0)`

# %% World(3), World(5): ordered_exchange

# %% World(2), World(3), World(5), World(8): my_ring, reduce_scatter, two_way_ring
