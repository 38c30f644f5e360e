# %% World(4)
SEED = 0
# cell `import os, time`
# cell `init_rpc(`
# cell `class Layer(`
# cell `def new_stage(`
# cell `next_rank =`
# cell `def judged(`

# %% staleness: solution
# Solved. Every batch has the right number of updates, even in unusual orders.

# %% staleness: skeleton
# Not yet. For the order F0 F1 B0 F2 B1 B2 rank 0 returned [0, 0, 0], expected [0, 1, 1].

# %% staleness
# Solved. Every batch has the right number of updates, even in unusual orders.
def staleness(order):
    result = []
    for batch in range(len(order) // 2):
        between = order[order.index(("F", batch)) : order.index(("B", batch))]
        result.append(sum(kind == "B" for kind, _ in between))
    return result

# %% staleness
# Solved. Every batch has the right number of updates, even in unusual orders.
def staleness(order):
    stale = [0] * (len(order) // 2)
    open_batches = set()
    for kind, batch in order:
        if kind == "F":
            open_batches.add(batch)
            continue
        open_batches.remove(batch)
        for other in open_batches:
            stale[other] += 1
    return tuple(stale)

# %% staleness
# Not yet. For the order F0 F1 B0 F2 B1 B2 rank 0 returned [0, 0, 0], expected [0, 1, 1].
# solution, with `updates += 1` as `updates += 0`

# %% staleness
# Not yet. For the order F0 B0 F1 B1 rank 0 returned [0, 1], expected [0, 0].
# solution, with `updates - at_forward[batch]` as `updates`

# %% staleness
# Not yet. For the order F0 F1 F2 B2 B1 B0 rank 0 returned [0, 1, 2], expected [2, 1, 0].
# solution, with `sorted(stale)` as `stale`

# %% staleness
# Not yet. Rank 0 raised ValueError: ...
# solution, with `return [stale[batch] for batch in sorted(stale)]` as `return max(stale)`

# %% staleness
# Not yet. For the order F0 F1 B0 F2 B1 B2 rank 0 returned [0, 0, 0] ...
# solution, with `at_forward[batch] = updates` as `at_forward[batch] = batch`

# %% best_cut: solution
# Solved. Every cut is the one in which the busiest rank sends the fewest bytes.

# %% best_cut: skeleton
# Not yet. For ...

# %% best_cut
# Solved. Every cut is the one in which the busiest rank sends the fewest bytes.
def best_cut(ranks, weights, activations):
    best, fewest = None, float("inf")
    for replicas in range(ranks, 0, -1):
        stages, rest = divmod(ranks, replicas)
        if rest:
            continue
        sides = {1: 0, 2: 1}.get(stages, 2)
        bytes_sent = sides * activations / replicas + 2 * weights * (replicas - 1) / ranks
        if bytes_sent < fewest - 1e-6:
            best, fewest = stages, bytes_sent
    return best

# %% best_cut
# Solved. Every cut is the one in which the busiest rank sends the fewest bytes.
def best_cut(ranks, weights, activations):
    table = []
    for stages in range(1, ranks + 1):
        if ranks % stages == 0:
            copies = ranks // stages
            share = weights / stages
            table.append((2 * share * (copies - 1) / copies + min(stages - 1, 2) * activations / copies, stages))
    return sorted(table)[0][1]

# %% best_cut
# Not yet. For ...
# solution, with `min(stages - 1, 2)` as `2`

# %% best_cut
# Not yet. For ...
# solution, with `activations / replicas` as `activations`

# %% best_cut
# Not yet. For ...
# solution, with `2 * (replicas - 1) / replicas * weights / stages` as `2 * (replicas - 1) / replicas * weights`

# %% best_cut
# Not yet. For ...
# solution, with `return min` as `return max`

# %% best_cut
# Not yet. For ...
# solution, with `if ranks % stages == 0` as `if True`
