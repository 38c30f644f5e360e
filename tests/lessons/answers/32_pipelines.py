# %% World(4)
# cell `init_process_group(` of solutions
import torch
from torch.nn.functional import mse_loss
# cell `def finish(`
# cell `def order_of_the_lesson(`
# cell `def one_forward_one_backward(`

# %% my_backward: skeleton
# Not yet. The parameters of stage 0 have no gradient, expected the gradient of one process.

# %% my_backward: solution
# Solved. Every stage has the gradients of one process.

# %% my_backward
# Solved. Every stage has the gradients of one process.
# solution, with `output.backward(gradient)` as `torch.autograd.backward([output], [gradient])`

# %% my_backward
# Solved. Every stage has the gradients of one process.
# solution, with `output.backward(gradient)` as `(output * gradient).sum().backward()`

# %% my_backward
# Solved. Every stage has the gradients of one process.
# solution, with `dist.recv(gradient, rank + 1)` as `dist.irecv(gradient, rank + 1).wait()`

# %% my_backward
# Solved. Every stage has the gradients of one process.
# solution, with `dist.send(x.grad, rank - 1)` as `dist.isend(x.grad, rank - 1).wait()`

# %% my_backward
# Solved. Every stage has the gradients of one process.
# solution, with `dist.send(x.grad, rank - 1)` as `send(x.grad, rank - 1)`

# %% my_backward
# Solved. Every stage has the gradients of one process.
# solution, with `mse_loss(output, targets).backward()` as `(output - targets).square().mean().backward()`

# %% my_backward
# Not yet. The gradient of stage ...
# solution, with `mse_loss(output, targets).backward()` as `(2 * mse_loss(output, targets)).backward()`

# %% my_backward
# Not yet. The gradient of stage ...
# solution, with `output.backward(gradient)` as `output.sum().backward()`

# %% my_backward
# Not yet. Rank ... Call world.restart(), then run the lesson again, from its setup cell to this check.
# solution, with `output.backward(gradient)` as `output.backward()`

# %% my_backward
# Not yet. The gradient of stage 0 is 24.00 times, expected 1.00 times, the gradient of one process.
# solution, with `mse_loss(output, targets).backward()` as `mse_loss(output, targets, reduction='sum').backward()`

# %% my_backward
# Not yet. The parameters of stage 0 have no gradient, expected the gradient of one process.
# solution, with `output.backward(gradient)` as `x.grad = gradient.clone()`

# %% my_order: skeleton
# Not yet. For stage 3 of 4 and 8 micro-batches the order of rank 0 keeps 8 micro-batches at once, expected 1 at most.

# %% my_order: solution
# Solved. No order ends sooner, and a stage keeps at most as many micro-batches as there are stages from it to the
# end.

# %% my_order
# Solved. No order ends sooner, and a stage keeps at most as many micro-batches as there are stages from it to the
# end.
def my_order(stage, stages, m):
    warm_up = min(stages - stage - 1, m)
    for i in range(warm_up):
        yield "F", i
    for i in range(m - warm_up):
        yield "F", warm_up + i
        yield "B", i
    for i in range(m - warm_up, m):
        yield "B", i

# %% my_order
# Solved. No order ends sooner, and a stage keeps at most as many micro-batches as there are stages from it to the
# end.
def my_order(stage, stages, m):
    order, forwards, backwards = [], 0, 0
    while backwards < m:
        if forwards < m and forwards - backwards < stages - stage:
            order.append(["F", forwards])
            forwards += 1
        else:
            order.append(["B", backwards])
            backwards += 1
    return order

# %% my_order
# Not yet. With 4 stages and 8 micro-batches stage 0 waits forever before ('B', 0).
# solution, with `stages - stage` as `stage + 1`

# %% my_order
# Not yet. With 4 stages and 8 micro-batches a step takes 96 ticks, expected 33.
# solution, with `stages - stage` as `1`

# %% my_order
# Not yet. With 4 stages and 8 micro-batches a step takes 69 ticks, expected 33.
# solution, with `stages - stage` as `stages`

# %% my_order
# Not yet. For stage 0 of 4 and 2 micro-batches rank 0 returned the action ...
# solution, with `min(stages - stage, m)` as `stages - stage`

# %% my_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('B', 0), ...
# solution, with `order.append(("B", i))` as `pass`

# %% my_order
# Not yet. With 4 stages and 8 micro-batches stage 0 waits forever before ('B', 7).
# solution, with `("B", i)` as `("B", m - 1 - i)`

# %% my_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned None, expected a list of ...
# solution, with `return order` as `return None`

# %% my_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned a list with 'F', ...
# solution, with `return order` as `return ['F']`

# %% my_order: by the own rank
# Not yet. ...
# solution, with `ahead = min(stages - stage, m)` as `ahead = min(stages - rank, m)`

# %% split_order: solution
# Solved. The bubble is (p - 1) / (3m + p - 1): every stage waits for its first micro-batch, and never again.

# %% split_order: skeleton
# Not yet. With 4 stages and 8 micro-batches a step takes 30 ticks, expected 27.

# %% split_order
# Solved. The bubble is (p - 1) / (3m + p - 1): every stage waits for its first micro-batch, and never again.
def split_order(stage, stages, m):
    order = []
    for tick in range(m + stages):
        if tick < stages - stage:
            order += [("F", tick)] if tick < m else []
            continue
        i = tick - (stages - stage)
        order += [("B", i)] if i < m else []
        order += [("W", i - stage)] if 0 <= i - stage < m else []
        order += [("F", tick)] if tick < m else []
    return order

# %% split_order
# Solved. The bubble is (p - 1) / (3m + p - 1): every stage waits for its first micro-batch, and never again.
def split_order(stage, stages, m):
    from collections import deque

    postponed, order = deque(), []
    for kind, i in one_forward_one_backward(stage, stages, m):
        order.append((kind, i))
        if kind == "B":
            postponed.append(i)
            if len(postponed) > stage:
                order.append(("W", postponed.popleft()))
    return order + [("W", i) for i in postponed]

# %% split_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('W', 0), ...
# solution, with `i >= stage` as `i >= 2 * m`

# %% split_order
# Not yet. For stage 1 of 4 and 8 micro-batches rank 0 returned 0 times ('W', 0), ...
# solution, with `("W", i - stage)` as `("W", i)`

# %% split_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned 2 times ...
# solution, with `range(max(0, m - stage), m)` as `range(m)`

# %% split_order
# Not yet. With 4 stages and 8 micro-batches a step takes ...
# solution, with `stages - stage` as `1`

# %% split_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('B' ...
# solution, without `order.append(("B", i))`

# %% split_order: with all weights at the end
# Not yet. With 4 stages and 8 micro-batches a step takes 30 ticks, expected 27.
def split_order(stage, stages, m):
    return one_forward_one_backward(stage, stages, m) + [("W", i) for i in range(m)]

# %% split_order: that runs further ahead
# Not yet. For stage 3 of 4 and 8 micro-batches the order of rank 0 keeps 5 micro-batches at once, expected 4 at most.
# solution, with `ahead = min(stages - stage, m)` as `ahead = min(stages - stage + 1, m)`

# %% most_micro_batches: solution
# Solved. You found the largest m that fits. GPipe's order needs memory for all m, 1F1B at most for one on each
# stage.

# %% most_micro_batches: skeleton
# Not yet. With 1F1B, 4 stages, 100 bytes per micro-batch and 650 bytes of memory, rank 0 returned 6, expected 64.

# %% most_micro_batches
# Solved. You found the largest m that fits. GPipe's order needs memory for all m, 1F1B at most for one on each
# stage.
def most_micro_batches(order, stages, bytes_each, memory):
    def needed(actions):
        depth, depths = 0, [0]
        for kind, i in actions:
            depth += {"F": 1, "B": -1}[kind]
            depths.append(depth)
        return bytes_each * max(depths)

    m = 64
    while m > 0 and max(needed(order(s, stages, m)) for s in range(stages)) > memory:
        m -= 1
    return m

# %% most_micro_batches
# Solved. You found the largest m that fits. GPipe's order needs memory for all m, 1F1B at most for one on each
# stage.
def most_micro_batches(order, stages, bytes_each, memory):
    def fits(m):
        for stage in range(stages):
            kept = set()
            for kind, i in order(stage, stages, m):
                (kept.add if kind == "F" else kept.remove)(i)
                if bytes_each * len(kept) > memory:
                    return False
        return True

    return max(filter(fits, range(1, 65)), default=0)

# %% most_micro_batches
# Not yet. With GPipe's order, 4 stages, 100 bytes per micro-batch and 400 bytes of memory, rank 0 returned ...
# solution, with `> memory` as `>= memory`

# %% most_micro_batches
# Not yet. With GPipe's order, 4 stages, 100 bytes per micro-batch and 650 bytes of memory, rank 0 ...
# solution, with `return m - 1` as `return m`

# %% most_micro_batches
# Not yet. With 1F1B, 4 stages, 100 bytes per micro-batch and 399 bytes of memory, rank 0 returned ...
# solution, with `range(stages)` as `[stages - 1]`

# %% most_micro_batches
# Not yet. With GPipe's order, 4 stages, 100 bytes per micro- ...
# solution, with `kept += 1 if kind == "F" else -1` as `kept += 1`

# %% most_micro_batches
# Not yet. With 1F1B, 4 stages, 100 bytes per micro-batch and 650 bytes of memory, rank 0 returned None ...
# solution, with `return 64` as `return None`
