# %% World(4)
# cell `init_process_group(` of solutions
def one_forward_one_backward(stage, stages, m):
    ahead = min(stages - stage, m)
    order = [("F", i) for i in range(ahead)]
    for i in range(m):
        order.append(("B", i))
        if ahead + i < m:
            order.append(("F", ahead + i))
    return order

# %% my_stages: solution
# Solved. Each rank holds its stages, in a loop and in a V.

# %% my_stages: skeleton
# Not yet. With 4 ranks, 2 stages on each and shape='loop', rank 0 got [0, 1], expected [0, 4].

# %% my_stages: a range, and a tuple
# Solved. Each rank holds its stages, in a loop and in a V.
def my_stages(rank, ranks, each, shape):
    if shape == "loop":
        return range(rank, ranks * each, ranks)
    stages = []
    for number in range(ranks * each):
        turn, place = divmod(number, ranks)
        if rank == (place if turn % 2 == 0 else ranks - 1 - place):
            stages.append(number)
    return tuple(stages)

# %% my_stages: a loop in both cases
# Not yet. With 4 ranks, 2 stages on each and shape='V', rank 0 got [0, 4], expected [0, 7].
# solution, with `if shape == "V"` as `if shape == "v"`

# %% my_stages: a V of two stages only
# Not yet. With 3 ranks, 3 stages on each and shape='V', rank 0 got [0, 5, 8], expected [0, 5, 6].
# solution, with `if j % 2 else` as `if j else`

# %% my_stages: without return
# Not yet. With 4 ranks, 2 stages on each and shape='loop', rank 0 got None, expected [0, 4].
def my_stages(rank, ranks, each, shape):
    [rank + ranks * j for j in range(each)]

# %% my_stages: an array
# Not yet. With 4 ranks, 2 stages on each and shape='loop', rank 0 got ..., expected [0, 4].
def my_stages(rank, ranks, each, shape):
    import numpy

    back = ranks - 1 - rank if shape == "V" else rank
    return numpy.array([ranks * j + (back if j % 2 else rank) for j in range(each)])

# %% my_stages: two on each rank
# Not yet. With 3 ranks, 3 stages on each and shape='loop', rank 0 got [0, 3], expected [0, 3, 6].
def my_stages(rank, ranks, each, shape):
    return [rank, rank + ranks if shape == "loop" else 2 * ranks - 1 - rank]

# %% my_stages: one V over all stages
# Not yet. With 3 ranks, 3 stages on each and shape='V', rank 0 got [0, 5, 8], expected [0, 5, 6].
def my_stages(rank, ranks, each, shape):
    if shape == "loop":
        return [rank + ranks * j for j in range(each)]
    first = [rank + ranks * j for j in range(each // 2)]
    return sorted(first + [ranks * each - 1 - rank - ranks * j for j in range(each - each // 2)])

# %% my_stages: for the own rank
# Not yet. With 4 ranks, 2 stages on each and shape='loop', rank ... got ..., expected ...
def my_stages(rank, ranks, each, shape):
    own = dist.get_rank()
    back = ranks - 1 - own if shape == "V" else own
    return [ranks * j + (back if j % 2 else own) for j in range(each)]

# %% my_split_order: solution
# Solved. The bubble is (p - 1) / (3m + p - 1): every stage waits only while the pipeline fills.

# %% my_split_order: skeleton
# Not yet. With 4 stages and 8 micro-batches a step takes 30 ticks, expected 27. While a stage waits for its last ...

# %% my_split_order
# Solved. The bubble is (p - 1) / (3m + p - 1): every stage waits only while the pipeline fills.
def my_split_order(stage, stages, m):
    order = []
    for tick in range(m + stages):
        if tick < stages - stage:
            order += [("F", tick)] if tick < m else []
            continue
        i = tick - (stages - stage)
        order += [("I", i)] if i < m else []
        order += [("W", i - stage)] if 0 <= i - stage < m else []
        order += [("F", tick)] if tick < m else []
    return order

# %% my_split_order
# Solved. The bubble is (p - 1) / (3m + p - 1): every stage waits only while the pipeline fills.
def my_split_order(stage, stages, m):
    from collections import deque

    postponed, order = deque(), []
    for kind, i in one_forward_one_backward(stage, stages, m):
        order.append(("F" if kind == "F" else "I", i))
        if kind == "B":
            postponed.append(i)
            if len(postponed) > stage:
                order.append(("W", postponed.popleft()))
    return order + [("W", i) for i in postponed]

# %% my_split_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('W', 0), ...
# solution, with `i >= stage` as `i >= 2 * m`

# %% my_split_order
# Not yet. For stage 1 of 4 and 8 micro-batches rank 0 returned 0 times ('W', 0), ...
# solution, with `("W", i - stage)` as `("W", i)`

# %% my_split_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned 2 times ...
# solution, with `range(max(0, m - stage), m)` as `range(m)`

# %% my_split_order
# Not yet. With 4 stages and 8 micro-batches a step takes ...
# solution, with `stages - stage` as `1`

# %% my_split_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('I' ...
# solution, without `order.append(("I", i))`

# %% my_split_order: with all weights at the end
# Not yet. With 4 stages and 8 micro-batches a step takes 30 ticks, expected 27. While a stage waits for its last ...
def my_split_order(stage, stages, m):
    order = [("F" if kind == "F" else "I", i) for kind, i in one_forward_one_backward(stage, stages, m)]
    return order + [("W", i) for i in range(m)]

# %% my_split_order: with the weights as late on every stage as on the last stage
# Not yet. With 4 stages and 8 micro-batches a step takes 30 ticks, expected 27. While a stage waits for its last ...
# solution, with `i >= stage` as `i >= stages - 1` and `i - stage` as `i - stages + 1` and `m - stage)` as `m - stages + 1)`

# %% my_split_order: that runs further ahead
# Not yet. For stage 3 of 4 and 8 micro-batches the order of rank 0 keeps 5 micro-batches at once, expected 4 at most.
# solution, with `ahead = min(stages - stage, m)` as `ahead = min(stages - stage + 1, m)`

# %% my_split_order: names the whole backward
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned the action ('B', 0), expected F or I or W with a ...
# solution, with `order.append(("I", i))` as `order.append(("B", i))`

# %% my_split_order: the last I first
# Solved. The bubble is (p - 1) / (3m + p - 1): every stage waits only while the pipeline fills.
def my_split_order(stage, stages, m):
    postponed, order = [], []
    for kind, i in one_forward_one_backward(stage, stages, m):
        order.append(("F" if kind == "F" else "I", i))
        if kind == "B":
            postponed.append(i)
            if len(postponed) > stage:
                order.append(("W", postponed.pop()))
    return order + [("W", i) for i in postponed]

# %% my_split_order: W before I
# Not yet. With 4 stages and 8 micro-batches stage 0 waits forever before ('W', 0), expected every action to run.
# skeleton, with `[("I", i), ("W", i)]` as `[("W", i), ("I", i)]`

# %% my_split_order: for 4 stages
# Not yet. With 2 stages and 3 micro-batches a step takes 11 ticks, expected 10. While a stage waits for its last ...
# solution, with `stages - stage` as `4 - stage`

# %% enough: solution
# Solved. You found the smallest number of micro-batches.

# %% enough: skeleton
# Not yet. With 4 ranks, 2 stages on each and a bubble of at most 10%, rank 0 returned 4, expected 16.

# %% enough: by a formula
# Solved. You found the smallest number of micro-batches.
def enough(ranks, each, most):
    from fractions import Fraction

    if ranks == 1:
        return 1
    share = Fraction(str(most))
    needed = (ranks - 1) * (1 - share) / (share * each)
    return max(1, -(-needed // ranks)) * ranks

# %% enough: by a formula in floating point
# Solved. You found the smallest number of micro-batches.
def enough(ranks, each, most):
    import math

    needed = (ranks - 1) * (1 - most) / (most * each)
    return max(1, math.ceil(needed / ranks)) * ranks

# %% enough: zero for a single rank
# Not yet. With 1 rank, 2 stages on each and a bubble of at most 10%, rank 0 returned 0, expected 1.
def enough(ranks, each, most):
    import math

    return math.ceil((ranks - 1) * (1 - most) / (most * each) / ranks) * ranks

# %% enough: a multiple that doubles
# Not yet. With 4 ranks, 1 stage on each and a bubble of at most 10%, rank 0 returned 32, expected 28.
# solution, with `m += ranks` as `m *= 2`

# %% enough: the time that a rank works, instead of the step
# Not yet. With 4 ranks, 1 stage on each and a bubble of at most 10%, rank 0 returned 32, expected 28.
# solution, with `(each * m + ranks - 1)` as `(each * m)`

# %% enough: not a multiple of the ranks
# Not yet. With 4 ranks, 2 stages on each and a bubble of at most 10%, rank 0 returned 14, expected 16.
# solution, with `m += ranks` as `m += 1`

# %% enough: the bubble of one stage on each rank
# Not yet. With 4 ranks, 2 stages on each and a bubble of at most 10%, rank 0 returned 28, expected 16.
# solution, with `each * m` as `m`

# %% enough: less than the target
# Not yet. With 3 ranks, 2 stages on each and a bubble of at most 25%, rank 0 returned 6, expected 3.
# solution, with `> most` as `>= most`

# %% enough: without return
# Not yet. With 4 ranks, 2 stages on each and a bubble of at most 10%, rank 0 returned None, expected 16.
# solution, with `return m` as `return None`

# %% World(2), World(3): my_stages, my_split_order, enough
