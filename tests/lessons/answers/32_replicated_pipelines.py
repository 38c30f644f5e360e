# %% World(4)
SEED = 0
# cell `import os, time`
# cell `init_rpc(`
# cell `class Layer(`
# cell `def new_stage(`
# cell `next_rank =`
# cell `def judged(`

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
