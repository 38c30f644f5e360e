# %% World(4)
SEED = 0
# cell `import os, warnings` of solutions
# cell `init_rpc(` of solutions
# cell `class Layer(` of solutions
# cell `def new_stage(` of solutions
next_rank = f"rank{rank + 1}"

# %% my_step: skeleton
# Not yet. Rank 0 called `last_stage` once, expected 4 times, once for each micro-batch.

# %% my_step: arguments without a tuple
# Not yet. Rank 0 raised RuntimeError: Boolean value of Tensor with more than one value is ambiguous. Does an RPC get its
# arguments in a tuple?
# solution, with `(stage(x), target)` as `stage(x), target`

# %% my_step: backward without a list
# Not yet. Rank 0 raised TypeError: backward(): incompatible function arguments. `dist_autograd.backward` takes the
# context and a list of tensors.
# solution, with `[loss]` as `loss`

# %% my_step: solution
# Solved. Every stage has the gradients of one process, and all micro-batches were under way at once.

# %% my_step: wait_all
# Solved. Every stage has the gradients of one process, and all micro-batches were under way at once.
# solution, with `sum(future.wait() for future in futures) / m` as `torch.stack(torch.futures.wait_all(futures)).mean()`

# %% my_step: the losses as several roots
# Solved. Every stage has the gradients of one process, and all micro-batches were under way at once.
# solution, with `[loss])` as `[future.wait() / m for future in futures])`

# %% my_step: by the number of the rank, and a tensor as the result
# Solved. Every stage has the gradients of one process, and all micro-batches were under way at once.
# solution, with `rpc_async(next_rank` as `rpc_async(rank + 1` and `loss.item()` as `loss`

# %% my_step: all forwards before the first call
# Not yet. Rank 0 began its last forward before it called `last_stage` for the first time, expected a call after ...
# solution, with `stage(x)` as `next(outputs)` and `futures = []` as `futures, outputs = [], iter([stage(x) for x in my_inputs.chunk(m)])`

# %% my_step: one forward for all micro-batches
# Not yet. Rank 0 began its last forward before it called `last_stage` for the first time, expected a call after ...
# solution, with `my_inputs.chunk(m)` as `stage(my_inputs).chunk(m)` and `(stage(x), target)` as `(x, target)`

# %% my_step: in a list
# Solved. Every stage has the gradients of one process, and all micro-batches were under way at once.
def my_step(context, m):
    calls = [
        rpc.rpc_async(next_rank, last_stage, args=(stage(x), target))
        for x, target in zip(my_inputs.chunk(m), my_targets.chunk(m))
    ]
    losses = [call.wait() for call in calls]
    dist_autograd.backward(context, [sum(losses) / len(losses)])
    return float(sum(losses)) / m

# %% my_step: waits for each by rpc_sync
# Not yet. Rank 0 waited for each micro-batch before it began the next micro-batch, expected all of them to be under way
# at once.
# solution, with `rpc_async` as `rpc_sync` and `future.wait()` as `future`

# %% my_step: waits for each future at once
# Not yet. Rank 0 waited for each micro-batch before it began the next micro-batch, expected all of them to be under way
# at once.
# solution, with `(stage(x), target)))` as `(stage(x), target)).wait())` and `future.wait()` as `future`

# %% my_step: the sum of the losses
# Not yet. The gradient of rank 0 is 4.00 times the gradient of one process, expected 1.00 times.
# solution, with ` / m` as ``

# %% my_step: a detached output
# Not yet. All calls are right, but after the step of rank 0 its stage has no gradient, expected the gradient of one
# process: call `dist_autograd.backward` in the context.
# solution, with `(stage(x), target)` as `(stage(x).detach(), target)`

# %% my_step: targets of other samples
# Not yet. The gradient of rank 0 differs, expected the gradient of one process.
# solution, with `my_targets.chunk(m)` as `my_targets.flip(0).chunk(m)`

# %% my_step: two micro-batches
# Not yet. Rank 0 called `last_stage` 2 times, expected 4 times, once for each micro-batch.
# solution, with `chunk(m)` as `chunk(2)`

# %% my_step: no backward
# Not yet. All calls are right, but after the step of rank 0 its stage has no gradient, expected the gradient of one
# process: call `dist_autograd.backward` in the context.
# solution, without `dist_autograd.backward(context, [loss])`

# %% my_step: without return
# Not yet. The gradients are right, but rank 0 returned None, expected ..., the mean of the losses.
# solution, without `return loss.item()`

# %% my_step: returns the sum
# Not yet. The gradients are right, but rank 0 returned ..., expected ..., the mean of the losses.
# solution, with `loss.item()` as `m * loss.item()`

# %% my_step: a loop without futures
# Not yet. Rank 0 raised ...
# solution, with `future.wait() for future in futures` as `future for future in futures`

# %% my_step: always four micro-batches
# Not yet. Rank 0 called `last_stage` 4 times, expected 2 times, once for each micro-batch.
# solution, with `chunk(m)` as `chunk(4)` and `/ m` as `/ 4`

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

# %% best_cut: only powers of two
# Not yet. For 9 ranks, 9 MiB of weights and 9 MiB of activations rank 0 returned 1, ... expected 3, ...
# solution, with `if ranks % stages == 0` as `if ranks % stages == 0 and stages in (1, 2, 4, 8)`

# %% best_cut: the largest of several
# Not yet. For 2 ranks, 1 MiB of weights and 1 MiB of activations rank 0 returned 2, ... expected 1, ...
# solution, with `range(1, ranks + 1)` as `range(ranks, 0, -1)`

# %% World(5): my_step
