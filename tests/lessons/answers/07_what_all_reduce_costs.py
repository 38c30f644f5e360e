# %% World(4)
# cell `init_process_group(`
# cell `def ring_all_reduce(`
# cell `def exchange(` of solutions

# %% crossover: solution
# Solved. Every rank found the size for which the tree and the ring take equally long, from 4 to 1000 ranks.

# %% crossover: skeleton
# Not yet. For 4 ranks, 50 µs and 8 ns per byte, rank 0 returned 25000, expected 5000 bytes.

# %% crossover: solved on paper
# Solved. ...
def crossover(n, alpha, beta):
    rounds = (n - 1).bit_length()
    return round(alpha / beta * n * (n - 1 - rounds) / (n * rounds - n + 1))

# %% crossover: searched for
# Solved. ...
def crossover(n, alpha, beta):
    rounds = 2 * (n - 1).bit_length()
    size = 1.0
    while rounds * (alpha + size * beta) < 2 * (n - 1) * (alpha + size / n * beta):
        size *= 1.002
    return size

# %% crossover: a tensor
# Solved. ...
def crossover(n, alpha, beta):
    rounds = torch.tensor(2.0 * (n - 1).bit_length(), dtype=torch.float64)
    return (2 * (n - 1) - rounds) * alpha / beta / (rounds - 2 * (n - 1) / n)

# %% crossover: only up the tree
# Not yet. For 4 ranks, 50 µs and 8 ns per byte, rank 0 returned 50000, expected 5000 bytes.
# answer "a tensor", with `2.0 * (n - 1).bit_length()` as `1.0 * (n - 1).bit_length()`

# %% crossover: a ring without bytes
# Not yet. For 4 ranks, 50 µs and 8 ns per byte, rank 0 returned 3125, expected 5000 bytes.
# answer "a tensor", without ` - 2 * (n - 1) / n`

# %% crossover: a ring of whole tensors
# Not yet. For 4 ranks, 50 µs and 8 ns per byte, rank 0 returned -6250, expected 5000 bytes.
# answer "a tensor", with `(n - 1) / n` as `(n - 1)`

# %% crossover: without a result
# Not yet. For 4 ranks, 50 µs and 8 ns per byte, rank 0 returned None, expected 5000 bytes.
def crossover(n, alpha, beta):
    print(n * alpha / beta)

# %% timed: solution
# Solved. All ranks returned 0.1 ...

# %% timed: skeleton
# Not yet. Rank 0 began before the last rank had arrived, expected after it. Call a barrier first.

# %% timed: objects
# Solved. ...
def timed(algorithm, tensor):
    everybody = [None] * n
    dist.all_gather_object(everybody, rank)
    begin = time.monotonic()
    algorithm(tensor)
    dist.all_gather_object(everybody, time.monotonic() - begin)
    return max(everybody)

# %% timed: a barrier at both ends, and the time of rank 0
# Solved. ...
def timed(algorithm, tensor):
    dist.barrier()
    seconds = torch.tensor([-time.perf_counter()], dtype=torch.float64)
    algorithm(tensor)
    dist.barrier()
    seconds += time.perf_counter()
    dist.broadcast(seconds, src=0)
    return seconds

# %% timed: 32 bits
# Solved. ...
def timed(algorithm, tensor):
    dist.all_reduce(torch.ones(1))
    begin = time.perf_counter()
    algorithm(tensor)
    seconds = torch.tensor(time.perf_counter() - begin)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()

# %% timed: the fastest
# Not yet. ... expected at least 0.1 ...
# solution, with `ReduceOp.MAX` as `ReduceOp.MIN`

# %% timed: each its own
# Not yet. ... the same number on every rank ...
# solution, with `dist.all_reduce(seconds, op=dist.ReduceOp.MAX)` as `pass`

# %% timed: the clock before the barrier
# Not yet. ... Start the clock after all ranks have arrived. ...
# solution, with `time.perf_counter() - start` as `time.perf_counter() - early` and `dist.barrier()` as
# `early = time.perf_counter(); dist.barrier()`

# %% timed: nothing
# Not yet. Rank 0 called the algorithm 0 times ...
# solution, with `    algorithm(tensor)` as `    pass`

# %% timed: no result
# Not yet. Rank 0 returned None ...
# solution, without `    return seconds.item()`

# %% timed: no barrier
# Not yet. ... Call a barrier first. ...
# solution, without `    dist.barrier()`

# %% two_levels: solution
# Solved. Every rank found the time of the three rings, from 2 to 128 hosts.

# %% two_levels: skeleton
# Not yet. For 2 hosts of 4 ranks, 1 MiB, 10 µs, 0.1 ns per byte inside and 1 ns per byte across, rank 0 returned
# 1.975 ms, expected 1.286 ms.

# %% two_levels: by the ring of one level
# Solved. ...
def ring(ranks, size, alpha, beta):
    return 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * size * beta

def two_levels(h, m, size, alpha, inside, across):
    return ring(m, size, alpha, inside) + ring(h, size / m, alpha, across * m)

# %% two_levels: as a tensor
# Solved. ...
def two_levels(h, m, size, alpha, inside, across):
    halves = 2 * torch.tensor([m - 1.0, h - 1.0])
    per_byte = torch.tensor([inside / m, across / h])
    return (halves * (alpha + size * per_byte)).sum()

# %% two_levels: step by step
# Solved. ...
def two_levels(h, m, size, alpha, inside, across):
    seconds = 0
    for _ in range(2 * (m - 1)):
        seconds += alpha + size / m * inside
    for _ in range(2 * (h - 1)):
        seconds += alpha + m * (size / m / h) * across
    return seconds

# %% two_levels: the chunks do not share the NIC
# Not yet. For 2 hosts of 4 ranks ...
# solution, with `size * across` as `size / m * across`

# %% two_levels: no latency within a host
# Not yet. For 2 hosts of 4 ranks ...
# solution, without `2 * (m - 1) * alpha +`

# %% two_levels: no latency between hosts
# Not yet. For 2 hosts of 4 ranks ...
# solution, without `2 * (h - 1) * alpha +`

# %% two_levels: within a host only one way
# Not yet. For 2 hosts of 4 ranks ...
# solution, with `2 * (m - 1) / m * size` as `(m - 1) / m * size`

# %% two_levels: every rank sends the whole tensor across
# Not yet. For 2 hosts of 4 ranks ...
# solution, with `size * across` as `size * m * across`

# %% my_tree_reduce: solution
# Solved. Rank 0 holds the sum after 2 rounds, and every other rank sent one message.

# %% my_tree_reduce: skeleton
# Not yet. Rank 0 holds [1.0, 2.0, 3.0, 4.0], expected [10.0, 20.0, 30.0, 40.0].

# %% my_tree_reduce: the nearest first
# Solved. ...
def my_tree_reduce(tensor):
    received = torch.empty_like(tensor)
    reach = 1
    while reach < n:
        if rank % (2 * reach) == reach:
            dist.send(tensor, rank - reach)
        if rank % (2 * reach) == 0 and rank + reach < n:
            dist.recv(received, rank + reach)
            tensor += received
        reach *= 2

# %% my_tree_reduce: isend
# Solved. ...
# answer "the nearest first", with `dist.send(tensor, rank - reach)` as
# `dist.isend(tensor, rank - reach).wait(); return`

# %% my_tree_reduce: the farthest first
# Solved. ...
def my_tree_reduce(tensor):
    received = torch.empty_like(tensor)
    for reach in (2, 1):
        if reach <= rank < 2 * reach:
            dist.send(tensor, rank - reach)
        elif rank < reach and rank + reach < n:
            dist.recv(received, rank + reach)
            tensor += received

# %% my_tree_reduce: copies instead of adding
# Not yet. Rank 0 holds [4.0, 8.0, 12.0, 16.0] ...
# answer "the nearest first", with `tensor += received` as `tensor.copy_(received)`

# %% my_tree_reduce: all to rank 0
# Not yet. The sum is right. Rank 0 received 3 messages, expected 2: one in each round of the tree.
def my_tree_reduce(tensor):
    if rank:
        return dist.send(tensor, 0)
    received = torch.empty_like(tensor)
    for peer in range(1, n):
        dist.recv(received, peer)
        tensor += received

# %% my_tree_reduce: a chain
# Not yet. The sum is right. Rank 0 received 1 message, expected 2: one in each round of the tree.
def my_tree_reduce(tensor):
    received = torch.empty_like(tensor)
    if rank < n - 1:
        dist.recv(received, rank + 1)
        tensor += received
    if rank:
        dist.send(tensor, rank - 1)

# %% my_tree_reduce: a collective
# Not yet. The sum is right. Rank 1 sent 0 messages, expected 1.
def my_tree_reduce(tensor):
    dist.reduce(tensor, dst=0)

# %% halving_doubling: solution
# Solved. Ranks 0 to 3 hold the sum over these ranks, after 4 messages from each.

# %% halving_doubling: skeleton
# Not yet. Rank 0 holds [4.0, 8.0, 12.0, 16.0] in chunk 0, expected [10.0, 20.0, 30.0, 40.0].

# %% halving_doubling: a function that calls itself
# Solved. ...
def halving_doubling(tensor, m):
    def go_on(part, distance):
        if distance:
            halves = part.tensor_split(2)
            mine, given = halves if rank & distance == 0 else halves[::-1]
            received = torch.empty_like(mine)
            exchange(given, received, rank ^ distance)
            mine += received
            go_on(mine, distance // 2)
            exchange(mine, given, rank ^ distance)
    go_on(tensor, m // 2)

# %% halving_doubling: indices, and messages that do not wait
# Solved. ...
def halving_doubling(tensor, m):
    def swap(given, taken, peer):
        works = [dist.isend(tensor[given], peer), dist.irecv(received[taken], peer)]
        for work in works:
            work.wait()
    first, last, distance = 0, len(tensor), m // 2
    received = torch.empty_like(tensor)
    path = []
    while distance > 0:
        middle = (first + last) // 2
        halves = [slice(first, middle), slice(middle, last)]
        mine = halves.pop(rank // distance % 2)
        swap(halves[0], mine, rank ^ distance)
        tensor[mine] += received[mine]
        path.append((mine, halves[0], rank ^ distance))
        first, last, distance = mine.start, mine.stop, distance // 2
    for mine, other, peer in path[::-1]:
        swap(mine, other, peer)
        tensor[other] = received[other]

# %% halving_doubling: the nearest first
# Solved. ...
def halving_doubling(tensor, m):
    part, rounds = tensor, []
    for bit in range(m.bit_length() - 1):
        peer = rank ^ 1 << bit
        low, high = part.chunk(2)
        part, given = (low, high) if rank < peer else (high, low)
        received = torch.empty(part.shape)
        exchange(given.clone(), received, peer)
        part.add_(received)
        rounds.insert(0, (peer, part, given))
    for peer, part, given in rounds:
        exchange(part, given, peer)

# %% halving_doubling: a ring
# Not yet. Rank 0 sent 6 messages, expected 4 for halving-doubling.
def halving_doubling(tensor, m):
    ring_all_reduce(tensor)

# %% halving_doubling: a ring with a step too many
# Not yet. Rank 0 sent 112 bytes, expected 96 for halving-doubling.
def halving_doubling(tensor, m):
    ring_all_reduce(tensor)
    pass_on(tensor[:4], torch.empty(4))

# %% halving_doubling: a ring of whole tensors
# Not yet. Rank 0 sent 192 bytes, expected 96 for halving-doubling.
def halving_doubling(tensor, m):
    passing, received = tensor.clone(), torch.empty_like(tensor)
    for _ in range(m - 1):
        pass_on(passing, received)
        tensor += received
        passing, received = received, passing

# %% halving_doubling: whole tensors
# Not yet. Rank 0 sent 128 bytes, expected 96 for halving-doubling.
def halving_doubling(tensor, m):
    distance, received = 1, torch.empty_like(tensor)
    while distance < m:
        exchange(tensor, received, rank ^ distance)
        tensor += received
        distance *= 2

# %% halving_doubling: only halves
# Not yet. Rank 0 holds [...
# solution, up to `    for distance, part, given`

# %% World(2), World(3), World(5), World(8): my_tree_reduce, crossover, timed, two_levels, halving_doubling
