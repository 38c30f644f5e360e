# %% World(4, hosts=2) with cables
# cell `init_process_group(` of solutions

# %% my_two_level_all_reduce: solution
# Solved. Every rank holds the sum, and 1.00 tensors left each host.

# %% my_two_level_all_reduce: skeleton
# Not yet. The sum is right. 1.5... tensors left host0, expected 1.00.

# %% my_two_level_all_reduce: shards
# Solved. ...
def my_two_level_all_reduce(tensor):
    shard = torch.empty(len(tensor) // m)
    dist.reduce_scatter_tensor(shard, tensor, group=inside)
    dist.all_reduce(shard, group=across)
    dist.all_gather_into_tensor(tensor, shard, group=inside)

# %% my_two_level_all_reduce: everybody adds up inside
# Solved. ...
def my_two_level_all_reduce(tensor):
    dist.all_reduce(tensor, group=inside)
    if rank % m == 0:
        dist.all_reduce(tensor, group=across)
    dist.broadcast(tensor, group_src=0, group=inside)

# %% my_two_level_all_reduce: messages across
# Solved. ...
def my_two_level_all_reduce(tensor):
    first = rank // m * m
    dist.reduce(tensor, dst=first, group=inside)
    if rank == first:
        other = torch.empty_like(tensor)
        work = dist.irecv(other, (first + m) % n)
        dist.send(tensor, (first + m) % n)
        work.wait()
        tensor += other
    dist.broadcast(tensor, src=first, group=inside)

# %% my_two_level_all_reduce: by the last ranks
# Solved. ...
def my_two_level_all_reduce(tensor):
    last = rank // m * m + m - 1
    dist.reduce(tensor, last, group=inside)
    if rank == last:
        tensor.copy_(sum_across(tensor))
    dist.broadcast(tensor, last, group=inside)

def sum_across(tensor):
    parts = [torch.empty_like(tensor) for _ in range(n // m)]
    dist.all_gather(parts, tensor, group=across)
    return torch.stack(parts).sum(0)

# %% my_two_level_all_reduce: all across
# Not yet. ... 2.0 ...
# solution, with `if rank == first:` as `if True:`

# %% my_two_level_all_reduce: nothing across
# Not yet. Rank 0 holds 3, expected ...
# solution, with `dist.all_reduce(tensor, group=across)` as `pass`

# %% my_two_level_all_reduce: no broadcast
# Not yet. Rank 1 holds ...
# solution, without `    dist.broadcast(tensor, src=first, group=inside)`

# %% my_two_level_all_reduce: no reduce
# Not yet. Rank 0 holds 4 ...
# solution, without `dist.reduce(tensor, dst=first, group=inside)`

# %% my_two_level_all_reduce: rank 0 for everybody
# Not yet. Rank 2 raised ValueError ...
# solution, with `src=first` as `src=0`

# %% World(4, hosts=2)
# cell `init_process_group(` of solutions

# %% best_order: solution
# Solved. No ring crosses between hosts more often than necessary.

# %% best_order: skeleton
# Not yet. For ranks on the hosts [0, 1, 0, 1], rank 0 returned [0, 1, 2, 3]. That ring crosses between hosts 4 times,
# expected 2 times.

# %% best_order: backwards
# Solved. ...
# solution, with `rank: hosts[rank]` as `r: (-hosts[r], -r)`

# %% best_order: host by host
# Solved. ...
def best_order(hosts):
    order = []
    for host in dict.fromkeys(hosts):
        order += [r for r, there in enumerate(hosts) if there == host]
    return order

# %% best_order: a tensor
# Solved. ...
# solution, with `sorted(range(len(hosts)), key=lambda rank: hosts[rank])` as `torch.tensor(hosts).argsort()`

# %% best_order: a tuple
# Solved. ...
# skeleton, with `list(range(len(hosts)))` as `tuple(r for _, r in sorted((h, r) for r, h in enumerate(hosts)))`

# %% best_order: hosts
# Not yet. ... returned [0, 0, 1, 1], expected a list with each of the 4 ranks once.
# solution, with `return sorted(range(len(hosts)), key=lambda rank: hosts[rank])` as `return sorted(hosts)`

# %% best_order: only turned round
# Not yet. ... crosses between hosts 4 times ...
# solution, with `sorted(range(len(hosts)), key=lambda rank: hosts[rank])` as `list(range(len(hosts)))[::-1]`

# %% best_order: one host
# Not yet. ... returned [0, 1], expected ...
# skeleton, with `return list(range(len(hosts)))` as `return [r for r in range(len(hosts)) if hosts[r] == 0]`

# %% best_order: nothing
# Not yet. ... returned None, expected a list ...
# solution, with `return sorted(range(len(hosts)), key=lambda rank: hosts[rank])` as `return None`

# %% best_order: two by two
# Not yet. ... crosses between hosts 4 times ...
# skeleton, with `return list(range(len(hosts)))` as `return [r for l in range(2) for r in range(l, len(hosts), 2)]`

# %% sharded_all_reduce: solution
# Solved. Every rank holds the sum, and each rank sent 524288 bytes to other hosts.

# %% sharded_all_reduce: skeleton
# Not yet. The sum is right. Rank 0 sent 1048576 bytes to ranks on other hosts, expected 524288: one of 2 shards of
# 1048576 bytes.

# %% sharded_all_reduce: lists
# Solved. ...
def sharded_all_reduce(tensor, inside, across):
    shards = list(tensor.chunk(m))
    mine = torch.empty_like(shards[0])
    dist.reduce_scatter(mine, shards, group=inside)
    dist.all_reduce(mine, group=across)
    dist.all_gather(shards, mine, group=inside)

# %% sharded_all_reduce: everything added up inside
# Solved. ...
def sharded_all_reduce(tensor, inside, across):
    dist.all_reduce(tensor, group=inside)
    mine = tensor.chunk(m)[dist.get_rank(inside)].clone()
    dist.all_reduce(mine, group=across)
    dist.all_gather_into_tensor(tensor, mine, group=inside)

# %% sharded_all_reduce: messages across
# Solved. ...
def sharded_all_reduce(tensor, inside, across):
    mine = torch.empty(len(tensor) // m)
    dist.reduce_scatter_tensor(mine, tensor, group=inside)
    other, peer = torch.empty_like(mine), (rank + m) % n
    works = [dist.irecv(other, peer), dist.isend(mine, peer)]
    for work in works:
        work.wait()
    dist.all_gather_into_tensor(tensor, mine + other, group=inside)

# %% sharded_all_reduce: nothing across
# Not yet. Rank 0 holds 3, expected ...
# solution, without `dist.all_reduce(shard, group=across)`

# %% sharded_all_reduce: all
# Not yet. Rank 0 holds 20 ...
# solution, with `dist.all_reduce(shard, group=across)` as `dist.all_reduce(shard)`

# %% sharded_all_reduce: not gathered
# Not yet. Rank 0 holds 1, expected ...
# solution, without `    dist.all_gather_into_tensor(tensor, shard, group=inside)`

# %% sharded_all_reduce: more than its shard
# Not yet. ... Rank 0 sent 524320 bytes ...
# solution,
# with `dist.all_reduce(shard, group=across)`
# as `dist.all_reduce(shard, group=across); dist.barrier(); dist.all_reduce(tensor[:8].clone())`

# %% sharded_all_reduce: gathered too early
# Not yet. ... Rank 0 sent 1048576 bytes ...
def sharded_all_reduce(tensor, inside, across):
    shard = torch.empty(len(tensor) // dist.get_world_size(inside))
    dist.reduce_scatter_tensor(shard, tensor, group=inside)
    dist.all_gather_into_tensor(tensor, shard, group=inside)
    dist.all_reduce(tensor, group=across)

# %% two_levels_pay: solution
# Solved. Every rank chose the faster implementation for each of 5 clusters.

# %% two_levels_pay: skeleton
# Not yet. For 2 hosts of 8 ranks, 64 MiB, α = 10 µs and β = 1 ns per byte inside and α = 10 µs and β = 1 ns per byte
# across, rank 0 returned True, expected False: one ring takes 126 ms, two levels take 185 ms.

# %% two_levels_pay: step by step
# Solved. ...
def two_levels_pay(h, m, size, inside, across):
    n, ring, levels = h * m, 0, 0
    for _ in range(2 * (n - 1)):
        ring += across[0] + size / n * across[1]
    for _ in range(2 * (m - 1)):
        levels += inside[0] + size / m * inside[1]
    for _ in range(2 * (h - 1)):
        levels += across[0] + m * (size / m / h) * across[1]
    return levels < ring

# %% two_levels_pay: as a tensor
# Solved. ...
def two_levels_pay(h, m, size, inside, across):
    ranks = torch.tensor([h * m, m, h], dtype=torch.float64)
    alpha, beta = torch.tensor([across, inside, across], dtype=torch.float64).T
    ring, within, between = 2 * (ranks - 1) * (alpha + size / ranks * beta)
    return within + between < ring

# %% two_levels_pay: what is saved
# Solved. ...
def two_levels_pay(h, m, size, inside, across):
    saved = (h * m - h) * across[0] + (1 / h - 1 / (h * m)) * size * across[1]
    paid = (m - 1) * inside[0] + (1 - 1 / m) * size * inside[1]
    return int(saved > paid)

# %% two_levels_pay: by size
# Not yet. For 2 hosts of 8 ranks, 64 MiB ...
# skeleton, with `return True` as `return size > 2**20`

# %% two_levels_pay: by bandwidth
# Not yet. For 16 hosts of 8 ranks ...
# skeleton, with `return True` as `return inside[1] < across[1]`

# %% two_levels_pay: by hosts
# Not yet. For 128 hosts ...
# skeleton, with `return True` as `return h < 100 and inside[1] < across[1] or size == 2**12`

# %% two_levels_pay: never
# Not yet. ... rank 0 returned False, expected True: one ring takes 252 ms, two levels take 170 ms.
# skeleton, with `return True` as `return False`

# %% two_levels_pay: nothing
# Not yet. Rank 0 returned None, expected True or False ...
# skeleton, with `return True` as `return None`
