# %% World(4)
# cell `init_process_group(` of solutions
# cell `def finish(` of solutions

# %% my_stashed_backward: solution
# Solved. Every stage has the gradients of the stashed weights, and has updated its newest weights.

# %% my_stashed_backward: skeleton
# Not yet. Stage 0, batch 0: it returned the newest weights without an update, expected one update by the gradient of
# this batch.

# %% my_stashed_backward: by .grad, which is cleared
# Solved. Every stage has the gradients of the stashed weights, and has updated its newest weights.
def my_stashed_backward(x, output, used, newest):
    for tensor in used:
        tensor.grad = None
    output.backward(None if last else receive(output, rank + 1))
    if not first:
        send(x.grad, rank - 1)
    return updated(newest, [tensor.grad for tensor in used])

# %% my_stashed_backward: one product after the other
# Solved. Every stage has the gradients of the stashed weights, and has updated its newest weights.
def my_stashed_backward(x, output, used, newest):
    if not last:
        gradient = torch.zeros_like(output)
        dist.recv(gradient, src=rank + 1)
        output = (output * gradient).sum()
    wanted = list(used) if rank == 0 else list(used) + [x]
    weight, bias, *of_x = torch.autograd.grad(output, wanted)
    for gradient in of_x:
        dist.send(gradient, rank - 1)
    new_weight = (newest[0].detach() - weight).requires_grad_()
    return new_weight, (newest[1].detach() - bias).requires_grad_()

# %% my_stashed_backward: updates what the forward used
# Not yet. Stage 0, batch 0: it returned the forward pass's weights plus one update, so the updates in between are lost,
# expected one update by the gradient of this batch.
# solution, with `updated(newest, gradients[:2])` as `updated(used, gradients[:2])`

# %% my_stashed_backward: adds up in .grad
# Not yet. Stage 0, batch 1: it returned weights after an update by the gradients of two batches, which add up in
# `.grad`, expected one update by the gradient of this batch.
# answer "by .grad, which is cleared", with `tensor.grad = None` as `pass`

# %% my_stashed_backward: the gradient of x on the first stage, too
# Not yet. Rank 0 raised RuntimeError: One of the differentiated Tensors does not require grad. The inputs of the model
# need no gradient. Run the lesson again, from the cell with `World` to this check.
# solution, with `used if first else [*used, x]` as `[*used, x]`

# %% my_stashed_backward: the graph twice
# Not yet. Rank 3 raised RuntimeError: Trying to backward through the graph a second time ... Does it differentiate
# a graph twice, or keep a tensor of an earlier call? Run the lesson again, from the cell with `World` to this check.
def my_stashed_backward(x, output, used, newest):
    gradient = None if last else receive(output, rank + 1)
    gradients = torch.autograd.grad(output, used, gradient)
    if not first:
        send(torch.autograd.grad(output, x, gradient)[0], rank - 1)
    return updated(newest, gradients)

# %% my_stashed_backward: in place
# Not yet. Stage 0, batch 0: it changed `newest` in place, expected new tensors: another batch may need that version.
def my_stashed_backward(x, output, used, newest):
    gradient = None if last else receive(output, rank + 1)
    gradients = torch.autograd.grad(output, used if first else [*used, x], gradient)
    if not first:
        send(gradients[2], rank - 1)
    with torch.no_grad():
        newest[0] -= gradients[0]
        newest[1] -= gradients[1]
    return newest

# %% my_stashed_backward: gradients of the newest weights
# Not yet. Rank ... raised RuntimeError: The differentiated Tensor at index 0 appears to not have been used in the ...
# solution, with `used if first else [*used, x]` as `newest if first else [*newest, x]`

# %% my_stashed_backward: the gradients of tensors that the forward did not use
# Not yet. Rank ... raised TypeError: ... 'NoneType'. A collective returns None, and a `grad` is None until a backward
# pass reaches a tensor that needs it. ...
def my_stashed_backward(x, output, used, newest):
    output.backward(None if last else receive(output, rank + 1))
    new_weights = updated(newest, [tensor.grad for tensor in newest])
    if not first:
        send(x.grad, rank - 1)
    return new_weights

# %% my_stashed_backward: ignores the gradient of the next stage
# Not yet. Stage 0, batch 0: it returned other weights, expected one update by the gradient of this batch...
# solution, with `x], gradient)` as `x], None if last else torch.ones_like(output))`

# %% my_stashed_backward: sends nothing
# Not yet. ...
# solution, with `if not first:` as `if False:`

# %% my_stashed_backward: sends its output's gradient
# Not yet. Stage 0, batch 0: it returned other weights, expected one update by the gradient of this batch.
# solution, with `send(gradients[2], rank - 1)` as `send(torch.ones_like(x), rank - 1)`

# %% my_stashed_backward: without return
# Not yet. Stage 0, batch 0: it returned None, expected a list of the two new weights.
# solution, with `return updated` as `updated`

# %% my_stashed_backward: adds the gradient
# Not yet. Stage 0, batch 0: it returned the newest weights with the gradient added, expected one update by the gradient
# of this batch.
# solution, with `gradients[:2])` as `[-g for g in gradients[:2]])`

# %% my_stashed_backward: weights without a gradient
# Not yet. Stage 0, batch 0: it returned weights without `requires_grad`, expected the weights that `updated` returns.
# solution, with `updated(newest, gradients[:2])` as `[w.detach() - g for w, g in zip(newest, gradients)]`

# %% my_stashed_backward: the newest gradient for the old weights
# Not yet. Stage 0, batch 0: it returned other weights, expected one update by the gradient of this batch.
# solution, with `updated(newest, gradients[:2])` as `updated(used, updated(newest, gradients[:2]))`

# %% my_stashed_backward: half the gradient
# Not yet. Stage 0, batch 0: it returned other weights, expected one update by the gradient of this batch.
# solution, with `updated(newest, gradients[:2])` as `updated(newest, gradients[:2], rate=0.5)`

# %% my_stashed_backward: weight and bias exchanged
# Not yet. Stage 0, batch 0: it returned a list of 2, expected a list of the two new weights.
# solution, with `updated(newest, gradients[:2])` as `updated(newest[::-1], gradients[1::-1])`

# %% my_stashed_backward: with a sum of products
# Solved. Every stage has the gradients of the stashed weights, and has updated its newest weights.
def my_stashed_backward(x, output, used, newest):
    scalar = output if last else (output * receive(output.detach(), rank + 1)).sum()
    *gradients, to_send = torch.autograd.grad(scalar, (*used, x)) if not first else [*torch.autograd.grad(scalar, used), None]
    if to_send is not None:
        works.append(dist.isend(to_send.contiguous(), dst=rank - 1))
    return tuple(updated(newest, gradients))

# %% my_delayed_step: solution
# Solved. The loss is that of the old weights, and their gradients update the newest weights.

# %% my_delayed_step: skeleton
# Not yet. With the delays [0, 0, 0], rank 0 returned the right loss. The weights of stage 0 are not updated, expected
# the newest weights minus the gradient.

# %% my_delayed_step: by backward
# Solved. The loss is that of the old weights, and their gradients update the newest weights.
def my_delayed_step(versions, delays, inputs, targets):
    used = [of_stage[-1 - min(d, len(of_stage) - 1)] for of_stage, d in zip(versions, delays)]
    for pair in used:
        for tensor in pair:
            tensor.grad = None
    x = inputs
    for pair in used:
        x = layer(pair, x)
    loss = (x - targets).square().mean()
    loss.backward()
    return loss.item(), [updated(v[-1], [t.grad for t in u]) for v, u in zip(versions, used)]

# %% my_delayed_step: the loss as a tensor
# Not yet. With the delays [0, 0, 0], rank 0 returned the loss as a tensor, expected a number, as in `loss.item()`.
# solution, with `loss.item()` as `loss`

# %% my_delayed_step: no delay
# Not yet. With the delays [2, 0, 1], rank 0 returned the loss ..., expected ...: a stage with delay d uses its weights
# of d updates ago, or else its oldest weights.
# solution, with `len(of_stage) - 1 - delay` as `len(of_stage) - 1`

# %% my_delayed_step: counts from the oldest
# Not yet. With the delays [0, 0, 0], rank 0 returned the loss ..., expected ...: a stage with delay d uses its weights
# of d updates ago, or else its oldest weights.
# solution, with `len(of_stage) - 1 - delay` as `min(delay, 3)`

# %% my_delayed_step: updates the old weights
# Not yet. With the delays [2, 0, 1], rank 0 returned the right loss. The update of stage 0 starts from the old weights,
# expected the newest weights.
# solution, with `updated(of_stage[-1], gradients` as `updated(used[stage], gradients`

# %% my_delayed_step: gradients of another stage
# Not yet. With the delays [0, 0, 0], rank 0 returned the right loss. The new weights of stage 1 differ, expected the
# newest weights minus the gradient of the old weights.
# solution, with `gradients[2 * stage : 2 * stage + 2]` as `gradients[:2]`

# %% my_delayed_step: wraps around
# Not yet. With the delays [1, 4, 0], rank 0 returned the loss ..., expected ...: a stage with delay d uses its weights
# of d updates ago, or else its oldest weights.
# solution, with `max(0, len(of_stage) - 1 - delay)` as `len(of_stage) - 1 - delay`

# %% my_delayed_step: only the loss
# Not yet. With the delays [0, 0, 0], rank 0 returned ..., expected the loss and the list of new weights.
# solution, with `return loss.item(), new` as `return loss.item()`

# %% my_delayed_step: weights of one stage
# Not yet. With the delays [0, 0, 0], rank 0 returned the right loss. The new weights are ..., expected a list with the
# weights of each stage.
# solution, with `return loss.item(), new` as `return loss.item(), new[0]`

# %% my_delayed_step: appends to the versions
# Not yet. With the delays [0, 0, 0], rank 0 changed `versions`, expected new tensors in a new list: the caller
# appends them to `versions`.
# solution, with `new.append(updated(of_stage[-1], gradients[2 * stage : 2 * stage + 2]))` as `new.append(updated(of_stage[-1], gradients[2 * stage : 2 * stage + 2])); of_stage.append(new[-1])`

# %% my_delayed_step: in place
# Not yet. With the delays [0, 0, 0], rank 0 changed `versions`, expected new tensors in a new list: the caller
# appends them to `versions`.
def my_delayed_step(versions, delays, inputs, targets):
    used = [v[max(0, len(v) - 1 - d)] for v, d in zip(versions, delays)]
    x = inputs
    for weights in used:
        x = layer(weights, x)
    loss = mse_loss(x, targets)
    gradients = list(torch.autograd.grad(loss, sum(used, [])))
    with torch.no_grad():
        for v in versions:
            for tensor in v[-1]:
                tensor -= gradients.pop(0)
    return loss.item(), [v[-1] for v in versions]

# %% my_delayed_step: one delay for all stages
# Not yet. With the delays [2, 0, 1], rank 0 returned the loss 1.1966, expected 1.1385: a stage with delay d uses its
# weights of d updates ago, or else its oldest weights.
# solution, with `len(of_stage) - 1 - delay` as `len(of_stage) - 1 - delays[0]`

# %% my_delayed_step: one update too old
# Not yet. With the delays [0, 0, 0], rank 0 returned the loss 1.1179, expected 1.0320: a stage with delay d uses its
# weights of d updates ago, or else its oldest weights.
# solution, with `len(of_stage) - 1 - delay` as `len(of_stage) - 2 - delay`

# %% my_delayed_step: the lesson's inputs
# Not yet. With the delays [0, 0, 0], rank 0 returned the loss 1.1641, expected 1.0320: a stage with delay d uses its
# weights of d updates ago, or else its oldest weights.
# solution, with `x = inputs` as `x = torch.ones_like(inputs)`

# %% my_delayed_step: with slices and a generator
# Solved. The loss is that of the old weights, and their gradients update the newest weights.
def my_delayed_step(versions, delays, inputs, targets):
    used = [(v[: -d] if d else v)[-1] if d < len(v) else v[0] for v, d in zip(versions, delays)]
    x = inputs
    for weight, bias in used:
        x = torch.tanh(torch.nn.functional.linear(x, weight, bias))
    loss = ((x - targets) ** 2).mean()
    grads = iter(torch.autograd.grad(loss, [t for pair in used for t in pair]))
    new = tuple([updated(v[-1], [next(grads), next(grads)]) for v in versions])
    return [float(loss), new]

# %% staleness: solution
# Solved. Every micro-batch has the right number of updates, even in unusual orders.

# %% staleness: skeleton
# Not yet. For the order F0 F1 B0 F2 B1 B2 and m = 1, rank 0 returned [0, 0, 0], expected [0, 1, 1].

# %% staleness: counts the backwards in between
# Not yet. For the order F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5 and m = 3, rank 0 returned [...], expected [...].
def staleness(order, m):
    result = []
    for batch in range(len(order) // 2):
        between = order[order.index(("F", batch)) : order.index(("B", batch))]
        result.append(sum(kind == "B" for kind, _ in between))
    return result

# %% staleness: with sets of open micro-batches
# Solved. Every micro-batch has the right number of updates, even in unusual orders.
def staleness(order, m):
    stale = [0] * (len(order) // 2)
    waiting, done = set(), 0
    for kind, batch in order:
        if kind == "F":
            waiting.add(batch)
            continue
        done += 1
        waiting.remove(batch)
        if done % m == 0:
            for other in waiting:
                stale[other] += 1
    return tuple(stale)

# %% staleness: never updates
# Not yet. For the order F0 F1 B0 F2 B1 B2 and m = 1, rank 0 returned [0, 0, 0], expected [0, 1, 1].
# solution, with `backwards += 1` as `backwards += 0`

# %% staleness: counts all updates
# Not yet. For the order F0 B0 F1 B1 and m = 1, rank 0 returned [0, 1], expected [0, 0].
# solution, with `- updates_at_forward[i]` as ``

# %% staleness: in the order of the backwards
# Not yet. For the order F0 F1 F2 B2 B1 B0 and m = 1, rank 0 returned [0, 1, 2], expected [2, 1, 0].
# solution, with `sorted(stale)` as `stale`

# %% staleness: one number
# Not yet. Rank 0 raised ValueError: ...
# solution, with `return [stale[i] for i in sorted(stale)]` as `return max(stale)`

# %% staleness: PipeDream's formula
# Not yet. For the order F0 F1 F2 B2 B1 B0 and m = 1, rank 0 returned [0, 1, 2], expected [2, 1, 0].
def staleness(order, m):
    ahead = [kind for kind, _ in order].index("B") if ("B", 0) in order else 0
    return [min(i, ahead - 1) for i in range(len(order) // 2)]

# %% staleness: updates by the number of the micro-batch
# Not yet. For the order F0 F1 F2 F3 B3 B2 B1 B0 and m = 2, rank 0 returned [2, 1, 1, 0], expected [1, 1, 0, 0].
def staleness(order, m):
    updates, at, stale = 0, {}, {}
    for kind, i in order:
        if kind == "F":
            at[i] = updates
        else:
            stale[i] = updates - at[i]
            updates += (i + 1) % m == 0
    return [stale[i] for i in sorted(stale)]

# %% staleness: counts its own update
# Not yet. For the order F0 B0 F1 B1 and m = 1, rank 0 returned [1, 1], expected [0, 0].
# solution, with `return [stale[i] for i in sorted(stale)]` as `return [stale[i] + 1 for i in sorted(stale)]`

# %% staleness: rounded up
# Not yet. For the order F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5 and m = 3, rank 0 returned [0, 1, 1, 1, 1, 1], expected
# [0, 0, 0, 1, 1, 0].
def staleness(order, m):
    done, at, stale = 0, {}, {}
    for kind, i in order:
        if kind == "F":
            at[i] = done
        else:
            stale[i] = -(-(done - at[i]) // m)
            done += 1
    return [stale[i] for i in sorted(stale)]

# %% staleness: with positions
# Solved. Every micro-batch has the right number of updates, even in unusual orders.
def staleness(order, m):
    def updates_before(action):
        return sum(kind == "B" for kind, _ in order[: order.index(action)]) // m
    numbers = sorted({i for _, i in order})
    return torch.tensor([updates_before(("B", i)) - updates_before(("F", i)) for i in numbers])

# %% enough_micro_batches: solution
# Solved. Every number of micro-batches is the smallest that is enough.

# %% enough_micro_batches: skeleton
# Not yet. With 4 stages and a bubble of at most 0.25, rank 0 returned 4, where the bubble is 0.429, expected 9, where
# the bubble is 0.250.

# %% enough_micro_batches: by a formula
# Solved. Every number of micro-batches is the smallest that is enough.
def enough_micro_batches(stages, most):
    exact = (stages - 1) * (1 - most) / most
    return max(1, int(exact + 1 - 1e-9))

# %% enough_micro_batches: not rounded
# Not yet. With 8 stages and a bubble of at most 0.3, rank 0 returned ..., expected 17, where the bubble is 0.292.
def enough_micro_batches(stages, most):
    return max(1, round((stages - 1) * (1 - most) / most, 3))

# %% enough_micro_batches: the bubble as a share of the work
# Not yet. With 4 stages and a bubble of at most 0.25, rank 0 returned 12, where the bubble is 0.200, expected 9, where
# the bubble is 0.250.
# solution, with `(m + stages - 1)` as `m`

# %% enough_micro_batches: text
# Not yet. With 4 stages and a bubble of at most 0.25, rank 0 returned ..., expected 9, where the bubble is 0.250.
# solution, with `return m` as `return str(m)`

# %% enough_micro_batches: rounded down
# Not yet. With 8 stages and a bubble of at most 0.3, rank 0 returned 16, where the bubble is 0.304, expected 17,
# where the bubble is 0.292.
def enough_micro_batches(stages, most):
    return max(1, int((stages - 1) * (1 - most) / most))

# %% enough_micro_batches: less than the bubble
# Not yet. With 4 stages and a bubble of at most 0.25, rank 0 returned 10, where the bubble is 0.231, expected 9,
# where the bubble is 0.250.
# solution, with `> most` as `>= most`

# %% enough_micro_batches: in percent
# Not yet. With 4 stages and a bubble of at most 0.25, rank 0 returned 1197, where the bubble is 0.003, expected 9,
# where the bubble is 0.250.
def enough_micro_batches(stages, most):
    m = 1
    while 100 * (stages - 1) / (m + stages - 1) > most:
        m += 1
        if m > 10**4:
            return m
    return m

# %% enough_micro_batches: for 16 stages
# Not yet. With 4 stages and a bubble of at most 0.25, rank 0 returned 285, where the bubble is 0.010, expected 9,
# where the bubble is 0.250.
def enough_micro_batches(stages, most):
    return 285

# %% enough_micro_batches: by fractions
# Solved. Every number of micro-batches is the smallest that is enough.
def enough_micro_batches(stages, most):
    from fractions import Fraction
    part = Fraction(str(most))
    return float(max(1, -((1 - stages) * (1 - part) // part)))

# %% World(2), World(3): my_stashed_backward, my_delayed_step
