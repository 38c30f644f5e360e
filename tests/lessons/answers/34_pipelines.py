# %% World(4)
# cell `init_process_group(` of solutions
import torch
from torch.nn.functional import mse_loss
# cell `def finish(`

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
# solution, with `send(x.grad, rank - 1)` as `dist.isend(x.grad, rank - 1).wait()`

# %% my_backward
# Solved. Every stage has the gradients of one process.
# solution, with `send(x.grad, rank - 1)` as `dist.send(x.grad, rank - 1)`

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
# Not yet. Rank ... Run the lesson again, from the cell with `World` to this check.
# solution, with `output.backward(gradient)` as `output.backward()`

# %% my_backward
# Not yet. The gradient of stage 0 is 24.00 times, expected 1.00 times, the gradient of one process.
# solution, with `mse_loss(output, targets).backward()` as `mse_loss(output, targets, reduction='sum').backward()`

# %% my_backward: sends x
# Not yet. The gradient of stage 0 is not the gradient of one process. The stage received its own output, expected the
# gradient of its output: send `x.grad` instead of `x`.
# solution, with `send(x.grad, rank - 1)` as `send(x.detach(), rank - 1)`

# %% my_backward
# Not yet. The parameters of stage 0 have no gradient, expected the gradient of one process.
# solution, with `output.backward(gradient)` as `x.grad = gradient.clone()`

# %% my_backward: receives into the output
# Not yet. The gradient of stage 0 is not the gradient of one process. Rank 0 changed `output`, expected it unchanged:
# receive into a new tensor.
# solution, with `torch.empty_like(output)` as `output.detach()`

# %% my_backward: the loss on every stage
# Not yet. The gradient of stage 0 is not the gradient of one process.
def my_backward(x, output, targets):
    mse_loss(output, targets).backward()
    if not first:
        send(x.grad, rank - 1)
    if not last:
        dist.recv(torch.empty_like(output), rank + 1)

# %% my_backward: does not wait for the gradient
# Not yet. Rank 0 never waited for its receive from rank 1, so that message may be lost. ...
# solution, with `dist.recv(gradient, rank + 1)` as `dist.irecv(gradient, rank + 1)`

# %% my_backward: from the previous stage
# Not yet. Deadlock: until the timeout, ... Run the lesson again, from the cell with `World` to this check.
# solution, with `dist.recv(gradient, rank + 1)` as `dist.recv(gradient, rank - 1)`
# and `send(x.grad, rank - 1)` as `send(x.grad, rank + 1)`

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
# Not yet. With 4 stages and 8 micro-batches stage 0 waits forever before ('B', 0), expected every action to run.
# solution, with `stages - stage` as `stage + 1`

# %% my_order
# Not yet. With 4 stages and 8 micro-batches a step takes 96 ticks, expected 33. How many forwards can a ...
# solution, with `stages - stage` as `1`

# %% my_order
# Not yet. With 4 stages and 8 micro-batches a step takes 69 ticks, expected 33. How many forwards can a ...
# solution, with `stages - stage` as `stages`

# %% my_order
# Not yet. For stage 0 of 4 and 2 micro-batches rank 0 returned the action ...
# solution, with `min(stages - stage, m)` as `stages - stage`

# %% my_order
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('B', 0), ...
# solution, with `order.append(("B", i))` as `pass`

# %% my_order
# Not yet. With 4 stages and 8 micro-batches stage 0 waits forever before ('B', 7), expected every action to run.
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

# %% my_order: for 4 stages
# Not yet. For stage 1 of 2 and 3 micro-batches the order of rank 0 keeps 3 micro-batches at once, expected 1 at most.
# solution, with `stages - stage` as `4 - stage`

# %% my_order: texts
# Not yet. For stage 0 of 4 and 8 micro-batches rank 0 returned a list with 'F0', expected a list of pairs such as ...
# solution, with `return order` as `return [f"{kind}{i}" for kind, i in order]`

# %% my_batches: skeleton
# Not yet. 1F1B, 4 stages and 8 micro-batches: stage 2 waits forever in ('send', 'F', 1) and stage 3 in ('send', 'B',
# 0), expected every message to arrive. Which of their messages must move together?

# %% my_batches: solution
# Solved. No stage waits forever, with GPipe's order or with 1F1B.

# %% my_batches: only messages with the same neighbour together
# Solved. No stage waits forever, with GPipe's order or with 1F1B.
def my_batches(order, stage, stages):
    actions = [None, *order, None]
    for (previous, following) in zip(actions, actions[1:]):
        below, above = [], []
        if previous == ("F", previous and previous[1]) and stage < stages - 1:
            below.append(["send", *previous])
        elif previous and previous[0] == "B" and stage > 0:
            above.append(["send", *previous])
        if following and following[0] == "F" and stage > 0:
            above.append(["receive", *following])
        elif following and following[0] == "B" and stage < stages - 1:
            below.append(["receive", *following])
        yield above
        yield below

# %% my_batches: all messages in one batch
# Not yet. GPipe's order, 4 stages and 8 micro-batches: Stage 1 posts ('send', 'F', 0) before the tensor can be ready,
# expected this send in a later batch.
def my_batches(order, stage, stages):
    batch = []
    for kind, i in order:
        if stage > 0:
            batch.append(("receive" if kind == "F" else "send", kind, i))
        if stage < stages - 1:
            batch.append(("send" if kind == "F" else "receive", kind, i))
    return [batch]

# %% my_batches: sends first, then receives
# Not yet. 1F1B, 4 stages and 8 micro-batches: stage ... waits forever in ...
# solution, with `            batch.append(("receive", kind, i))` as `            batches.append(batch), (batch := [("receive", kind, i)])`

# %% my_batches: without the last batch
# Not yet. GPipe's order, 4 stages and 8 micro-batches: Stage 1 has no ('send', 'B', 7), expected it once.
# solution, with `return batches + [batch]` as `return batches`

# %% my_batches: peers exchanged
# Not yet. GPipe's order, 4 stages and 8 micro-batches: Stage 0 has no ('send', 'F', 0), expected it once.
# solution, with `if kind == "F" else` as `if kind == "B" else`

# %% my_batches
# Not yet. GPipe's order, 4 stages and 8 micro-batches: Stage 0 got None, expected a list of batches such as ...
# solution, with `return batches + [batch]` as `return None`

# %% my_batches: messages instead of batches
# Not yet. GPipe's order, 4 stages and 8 micro-batches: Stage 0 got a batch with 'send', expected a list of batches ...
# solution, with `return batches + [batch]` as `return [message for batch in batches + [batch] for message in batch]`

# %% my_batches: every two batches together
# Not yet. GPipe's order, 4 stages and 8 micro-batches: Stage 1 posts ('send', 'F', 0) before the tensor can be ready, ...
# skeleton, with `return batches` as `return [sum(batches[i : i + 2], []) for i in range(0, len(batches), 2)]`

# %% my_batches: sets, and an order that is used up
# Solved. No stage waits forever, with GPipe's order or with 1F1B.
def my_batches(order, stage, stages):
    batches, batch = [], set()
    while order:
        kind, i = order.pop(0)
        source, target = (stage - 1, stage + 1) if kind == "F" else (stage + 1, stage - 1)
        if 0 <= source < stages:
            batch.add(("receive", kind, i))
        batches.append(batch)
        batch = {("send", kind, i)} if 0 <= target < stages else set()
    return (*batches, batch)

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

# %% most_micro_batches: the forwards before the first backward
# Not yet. With a first micro-batch alone, 4 stages, 100 bytes per micro-batch and 650 bytes of memory, rank 0 ...
# solution, with `kept += 1 if kind == "F" else -1` as `kept += 1 if kind == "F" else -1000`

# %% most_micro_batches: of 4 stages
# Not yet. With 1F1B, 7 stages, 100 bytes per micro-batch and 650 bytes of memory, rank 0 returned 64, expected 6.
# solution, with `range(stages)` as `range(4)` and `order(stage, stages, m)` as `order(stage, 4, m)`
