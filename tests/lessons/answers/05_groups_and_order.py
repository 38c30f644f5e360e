# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`

# %% grid_sums: solution
# Solved. Every rank holds the sums of its row and its column, after two all_reduces.

# %% grid_sums: skeleton
# Not yet. Rank 0 returned 1 for its row, expected 11.

# %% grid_sums
# Solved. ...
def grid_sums(number):
    rows = [[r for r in range(n) if r // 2 == row] for row in range(n // 2)]
    columns = [[r for r in range(n) if r % 2 == column] for column in (0, 1)]
    sums = []
    for groups in (rows, columns):
        mine, _ = dist.new_subgroups_by_enumeration(groups, timeout=timedelta(seconds=4))
        total = number.clone()
        dist.all_reduce(total, group=mine)
        sums.append(total)
    return sums

# %% grid_sums
# Solved. ...
def grid_sums(number):
    mesh = dist.device_mesh.init_device_mesh("cpu", (n // 2, 2))
    row, column = number.clone(), number.clone()
    dist.all_reduce(row, group=mesh.get_group(1))
    dist.all_reduce(column, group=mesh.get_group(0))
    return [row, column]

# %% grid_sums
# Solved. ...
# solution, with `seconds=10` as `seconds=4`

# %% grid_sums: in the wrong order
# Not yet. Rank 0 returned 101 for its row, expected 11.
# solution, with `for members in rows + columns:` as `for members in columns + rows:` and `seconds=10` as `seconds=4`

# %% grid_sums: of the rows only
# Not yet. Rank 0 returned a list of 1, expected two tensors.
# solution, with `for members in rows + columns:` as `for members in rows:` and `seconds=10` as `seconds=4`

# %% grid_sums: in the group of all
# Not yet. Rank 0 returned 1111 for its row, expected 11.
def grid_sums(number):
    row, column = number.clone(), number.clone()
    dist.all_reduce(row)
    dist.all_reduce(column)
    return row, column

# %% grid_sums: by gathering
# Not yet. Rank 0 called 1 all_gather, expected 2 all_reduce.
def grid_sums(number):
    numbers = [torch.zeros_like(number) for _ in range(n)]
    dist.all_gather(numbers, number)
    first = rank - rank % 2
    return sum(numbers[first : first + 2]), sum(numbers[rank % 2 :: 2])

# %% grid_sums: in groups that only their members make
# Not yet. As group number 1, rank 0 made [0, 1] and rank 2 made [2, 3]. All ranks must make all groups in the same order,
# including the groups that they are not in.
def grid_sums(number):
    rows = [list(range(n))[first : first + 2] for first in range(0, n, 2)]
    columns = [list(range(n))[first::2] for first in (0, 1)]
    sums = []
    for members in rows + columns:
        if rank in members:
            group = dist.new_group(members, timeout=timedelta(seconds=4))
        if rank in members:
            sums.append(number.clone())
            dist.all_reduce(sums[-1], group=group)
    return sums

# %% grid_sums: without timeouts
# Not yet. The group of ranks [0, 1] waits 30 minutes for a rank that does not come. Give it a timeout of 10 s.
# solution, with `, timeout=timedelta(seconds=10)` as ``

# %% grid_sums: only some ranks make the columns
# Not yet. As group number 3, rank 0 made [0, 2] and rank 1 made none. All ranks must make all groups in the same order,
# including the groups that they are not in.
# solution, with `for members in rows + columns:` as `for members in rows + columns * (rank != 1):`

# %% stop_together: solution
# Solved. The ranks stop together, after one collective, which each of them calls every time.

# %% stop_together
# Solved. ...
def stop_together(wish):
    wishes = torch.tensor([float(wish)])
    dist.all_reduce(wishes)
    return wishes.item() > 0

# %% stop_together
# Solved. ...
def stop_together(wish):
    calm = torch.tensor(not wish)
    dist.all_reduce(calm, dist.ReduceOp.BAND)
    return not calm

# %% stop_together
# Solved. ...
def stop_together(wish):
    all = [torch.empty(1) for _ in range(n)]
    dist.all_gather(all, torch.tensor([1.0 * wish]))
    return any(all)

# %% stop_together: skeleton
# Not yet. When only the last rank wishes to stop, rank 0 returned False, expected True.

# %% stop_together: when all wish it
# Not yet. When only the last rank wishes to stop, rank 0 returned False, expected True.
# solution, with `dist.all_reduce(wishes, dist.ReduceOp.MAX)` as `dist.all_reduce(wishes, dist.ReduceOp.MIN)`

# %% stop_together: as rank 0 wishes
# Not yet. When only the last rank wishes to stop, rank 0 returned False, expected True.
# skeleton, with `return wish` as `wish = torch.tensor(wish); dist.broadcast(wish, src=0); return bool(wish)`

# %% stop_together: by a reduce to rank 0
# Not yet. When only rank 0 wishes to stop, rank 1 returned False, expected True.
# solution, with `dist.all_reduce(wishes, dist.ReduceOp.MAX)` as `dist.reduce(wishes, 0, dist.ReduceOp.MAX)`

# %% stop_together: by objects
# Not yet. In four calls rank 0 called 8 all_gather, expected one collective in each call.
# skeleton, with `return wish` as `wishes = [None] * n; dist.all_gather_object(wishes, wish); return any(wishes)`

# %% stop_together: only who wishes to stop calls
# Not yet. ... Run the lesson again, from the cell with `World` to this check.
def stop_together(wish):
    wishes = torch.tensor(int(wish))
    if wish:
        dist.all_reduce(wishes)
    return bool(wishes)

# %% hierarchical_sum: solution
# Solved. Every rank holds the sum, and brought only one chunk to an all_reduce across hosts.

# %% hierarchical_sum: with lists of tensors
# Solved. ...
def hierarchical_sum(chunks, mesh):
    local = mesh.get_group("local")
    parts = list(chunks.chunk(dist.get_world_size(local)))
    mine = torch.zeros_like(parts[0])
    dist.reduce_scatter(mine, parts, group=local)
    dist.all_reduce(mine, group=mesh["host"].get_group())
    dist.all_gather(parts, mine, group=local)
    return torch.cat(parts)

# %% hierarchical_sum: by an all reduce within
# Solved. ...
def hierarchical_sum(chunks, mesh):
    local = mesh.get_group("local")
    dist.all_reduce(chunks, group=local)
    place = dist.get_rank(local)
    mine = chunks[place : place + 1].clone()
    dist.all_reduce(mine, group=mesh.get_group("host"))
    dist.all_gather(list(chunks.chunk(len(chunks))), mine, group=local)
    return chunks

# %% hierarchical_sum: skeleton
# Not yet. The sums are right. Rank 0 passed 2 elements to all_reduces across hosts, expected 1 element, once.

# %% hierarchical_sum: in the group of all
# Not yet. The sums are right. Rank 0 passed 2 elements to all_reduces across hosts, expected 1 element, once.
def hierarchical_sum(chunks, mesh):
    dist.all_reduce(chunks)
    return chunks

# %% hierarchical_sum: with the dimensions exchanged
# Not yet. The sums are right. Rank 0 passed nothing to all_reduces across hosts, expected 1 element, once.
# solution, with `local, host` as `host, local`

# %% hierarchical_sum: within the host only
# Not yet. Rank 0 returned [11.0, 22.0], expected [1111.0, 2222.0].
def hierarchical_sum(chunks, mesh):
    dist.all_reduce(chunks, group=mesh.get_group("local"))
    return chunks

# %% my_host_group: solution
# Solved. Each rank has the group of its host, and all ranks make all groups in one order.

# %% my_host_group: with a description
# Solved. Each rank has the group of its host, and all ranks make all groups in one order.
# solution, with `timedelta(seconds=10)` as `timedelta(seconds=10), group_desc=f"host {host}"`

# %% my_host_group
# Solved. ...
ten = timedelta(seconds=10)

def my_host_group(hosts):
    b = [r for r in range(n) if hosts[r] == "b"]
    a = [r for r in range(n) if r not in b]
    both = [dist.new_group(members, timeout=ten) for members in (b, a)]
    return both[0] if rank in b else both[1]

# %% my_host_group
# Solved. ...
ten = timedelta(seconds=10)

def my_host_group(hosts):
    apart = [[r for r in range(n) if hosts[r] == host] for host in "ab"]
    return dist.new_subgroups_by_enumeration(apart, timeout=ten)[0]

# %% my_host_group
# Solved. ...
ten = timedelta(seconds=10)

def my_host_group(hosts):
    members = [r for r in range(n) if hosts[r] == hosts[rank]]
    return dist.new_group(members, timeout=ten, use_local_synchronization=True)

# %% my_host_group: skeleton
# Not yet. Rank 0 returned no group, expected the group of ranks [0, 2].

# %% my_host_group: that only their members make
# Not yet. Rank 0 made the groups [[0, 2]], and rank 1 made [[1, 3]]. All ranks must make all groups, including the
# groups that they are not in.
# skeleton, with `return None` as `group = dist.new_group(members, timeout=timedelta(seconds=10)); return group`

# %% my_host_group: in an order of each ranks own
# Not yet. Rank 0 made the groups in the order [[0, 2], [1, 3]], and rank 1 in [[1, 3], [0, 2]]. Go through the hosts
# in an order that all ranks share. A set has no such order: sort it.
# solution, with `for host in sorted(set(hosts)):` as `for host in sorted(set(hosts), reverse=rank % 2):`

# %% my_host_group: in the order of a set
# Not yet. Rank 0 made the groups in the order [[1, 3], [0, 2]], and rank 1 in [[0, 2], [1, 3]]. Go through the hosts
# in an order that all ranks share. A set has no such order: sort it.
# solution, with `for host in sorted(set(hosts)):` as `for host in set(hosts):`

# %% my_host_group: a group for each rank
# Not yet. Every rank made the groups [[0, 2], [1, 3], [0, 2], [1, 3]], expected each group once. Go through the hosts,
# not the ranks.
# solution, with `for host in sorted(set(hosts)):` as `for host in hosts:`

# %% my_host_group: in the order of the first ranks
# Solved. ...
# solution, with `for host in sorted(set(hosts)):` as `for host in dict.fromkeys(hosts):`

# %% my_host_group: from a table of hosts
# Solved. ...
def my_host_group(hosts):
    ranks_of = {}
    for r, host in enumerate(hosts):
        ranks_of.setdefault(host, []).append(r)
    groups = {host: dist.new_group(ranks, timeout=timedelta(seconds=10)) for host, ranks in ranks_of.items()}
    return groups[hosts[rank]]

# %% my_host_group: without a timeout
# Not yet. The group of ranks [0, 2] waits 30 minutes for a rank that does not come. Give it a timeout of 10 s.
# solution, with `group = dist.new_group(members, timeout=timedelta(seconds=10))` as `group = dist.new_group(members)`

# %% my_host_group: the group that was made last
# Not yet. Rank 0 returned no group, expected the group of ranks [0, 2].
# solution, with `if rank in members:` as `if True:`

# %% World(2), World(5): my_host_group, grid_sums, stop_together
# %% World(5): hierarchical_sum

# %% World(2)
# cell `init_process_group(`

# %% hierarchical_sum: solution with a rank on each host
# Solved. ...
# solution

# %% hierarchical_sum: skeleton with a rank on each host
# Solved. Every rank holds the sum. Its host has no other rank, so nothing could be saved: try 4 ranks as well.
# skeleton
