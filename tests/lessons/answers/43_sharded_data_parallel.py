# %% World(4)
# cell `init_process_group(` of solutions
# cell `def exchange(` of solutions
# cell `class Unit` of solutions
# cell `def when_complete(` of solutions

# %% my_zero1: solution
# Solved. Each rank keeps the state of its shards, and all have the weights ...

# %% my_zero1: skeleton
# Not yet. The optimizer of rank 0 keeps 44568 bytes, expected 11136: twice the bytes of its shards.

# %% my_zero1: by the library
# Not yet. In step 0 rank 0 sent 0 bytes by `isend`, expected at least 33408: use the lesson's `reduce_scatter` and
# `all_gather`, because the lesson counts the bytes of their messages.
# solution, with `gradient = unit.take_gradient() / n` as `unit.shard.grad = torch.empty_like(unit.shard)`
# and `unit.shard.grad = reduce_scatter(gradient).clone()`
# as `dist.reduce_scatter_tensor(unit.shard.grad, unit.take_gradient() / n)`
# and `all_gather(unit.shard, unit.full)` as `dist.all_gather_into_tensor(unit.full, unit.shard.clone())`

# %% my_zero1: each shard sent by its rank
# Not yet. In step 0 rank 0 sent 0 bytes by `isend`, expected at least 33408: ...
def my_zero1(units):
    optimizer = adam([unit.shard for unit in units])

    def update():
        for unit in units:
            flat = unit.take_gradient()
            for place, chunk in enumerate(flat.chunk(n)):
                dist.reduce(chunk, place)
            unit.shard.grad = flat.chunk(n)[rank] / n
        optimizer.step()
        for unit in units:
            for place, chunk in enumerate(unit.full.chunk(n)):
                dist.broadcast(chunk, place)

    return optimizer, update

# %% my_zero1: each rank fetches all gradients
# Not yet. In step 0 rank 0 sent 16704 bytes by `isend`, expected at least 33408: ...
# solution, with `gradient = unit.take_gradient() / n` as `gradient = added(unit.take_gradient()) / n`
# and `reduce_scatter(gradient)` as `gradient.chunk(n)[rank]`
def added(flat):
    flats = [torch.empty_like(flat) for _ in range(n)]
    dist.all_gather(flats, flat)
    return sum(flats)

# %% my_zero1: with one vector for the model
# Not yet. After step 0 rank 0 holds 33408 bytes of parameters and gradients, expected 27840: use `unit.shard` itself ...
def my_zero1(units):
    optimizer = adam([torch.cat([unit.shard for unit in units])])
    (mine,) = optimizer.param_groups[0]["params"]

    def update():
        mine.grad = torch.cat([reduce_scatter(unit.take_gradient()) for unit in units]) / n
        optimizer.step()
        for unit, part in zip(units, mine.split([len(unit.shard) for unit in units])):
            all_gather(part, unit.full)

    return optimizer, update

# %% my_zero1: one unit after the other
# Not yet. After step 0 rank 0 holds 23200 bytes of parameters and gradients, expected 27840: leave each gradient in ...
# solution, with `gradient = unit.take_gradient() / n` as `optimizer.zero_grad(); gradient = unit.take_gradient() / n`
# and `        optimizer.step()` as `            optimizer.step()`

# %% my_zero1: a view of a gradient
# Not yet. After step 0 rank 0 holds 44544 bytes of parameters and gradients, expected 27840: use `unit.shard` itself,
# and keep no gradients except the gradients of the shards. A gradient that is a view keeps the whole flat vector in
# memory: `/ n` makes a tensor of its own, and `.div_(n)` does not.
# solution, without `.clone()`

# %% my_zero1
# Solved. ...
# solution, with `gradient = unit.take_gradient() / n` as `unit.shard.grad = reduce_scatter(unit.take_gradient()) / n`,
# without `unit.shard.grad = reduce_scatter(gradient).clone()`

# %% my_zero1
# Not yet. After step 0 the parameters of rank 0 differ from the parameters of one process by up to 0.0...
# solution, with `gradient = unit.take_gradient() / n` as `unit.shard.grad = reduce_scatter(unit.take_gradient()) / n`,
# without `unit.shard.grad = reduce_scatter(gradient).clone()`, with `all_gather(unit.shard, unit.full)` as `pass`

# %% my_zero1
# Not yet. After step 0 the parameters of rank 0 differ from the parameters of one process by up to 0.0...
# solution, with `gradient = unit.take_gradient() / n` as `unit.shard.grad = unit.take_gradient().chunk(n)[rank]`,
# without `unit.shard.grad = reduce_scatter(gradient).clone()`

# %% my_zero1
# Not yet. In step 0 rank 0 called `all_reduce`, expected a call that gives it only its shard of the sum.
# solution,
# with `gradient = unit.take_gradient()`
# as `flat = unit.take_gradient(); dist.all_reduce(flat); unit.shard.grad = flat.chunk(n)[rank]`,
# without `unit.shard.grad = reduce_scatter(gradient).clone()`

# %% my_zero1
# Not yet. In step 0 rank 0 sent 50112 bytes, expected at most 33408.
# solution,
# with `gradient = unit.take_gradient()`
# as `flat = unit.take_gradient(); all_gather(reduce_scatter(flat), flat); unit.shard.grad = flat.chunk(n)[rank]`,
# without `unit.shard.grad = reduce_scatter(gradient).clone()`

# %% my_zero1
# Not yet. After step 0 the parameters of rank 0 differ from the parameters of one process by up to nan, expected less
# than 1e-12.
# solution, with `gradient = unit.take_gradient() / n` as `unit.shard.grad = reduce_scatter(unit.take_gradient()) / n`
# and `unit.shard.grad = reduce_scatter(gradient).clone()` as `unit.shard.grad[0] = float("nan")`

# %% my_zero1
# Not yet. Rank 0: my_zero1 returned a function, expected an optimizer and a function.
# solution, with `gradient = unit.take_gradient() / n` as `unit.shard.grad = reduce_scatter(unit.take_gradient()) / n`,
# without `unit.shard.grad = reduce_scatter(gradient).clone()`, with `return optimizer, update` as `return update`

# %% my_zero3: solution
# Solved. Each rank keeps only its shards, and all ranks train as one process does.

# %% my_zero3: skeleton
# Not yet. In step 0, after the update, rank 0 holds 39000 bytes, expected at most 24128. Its shards, their gradients
# and the optimizer's state take 22272 bytes, and a whole layer 3712.

# %% my_zero3: as in the lesson
# Solved. ...
def my_zero3(units):
    def finish(unit):
        unit.shard.grad = reduce_scatter(unit.take_gradient()) / n; free(unit)

    def need(unit):
        if unit.full.untyped_storage().nbytes() == 0:
            gather(unit)

    for unit in units:
        unit.shard = unit.shard.clone()
        free(unit)
        unit.layer.register_forward_pre_hook(lambda *_, unit=unit: gather(unit))
        unit.layer.register_forward_hook(lambda *_, unit=unit: free(unit))
        unit.layer.register_full_backward_pre_hook(lambda *_, unit=unit: gather(unit))
        when_complete(unit, finish)
    optimizer = adam([unit.shard for unit in units])
    return optimizer, optimizer.step

# %% my_zero3: bound early
# Solved. ...
# answer "as in the lesson", with `optimizer = adam` as `bind(units); optimizer = adam`
# and `unit.layer.register_forward_pre_hook(lambda *_, unit=unit: gather(unit))` as `pass`
def bind(units):
    for unit in units:
        unit.layer.register_forward_pre_hook(lambda *_, fetch=functools.partial(gather, unit): fetch())

import functools

# %% my_zero3: the last layer stays for backward
# Solved. ...
# answer "as in the lesson", with `unit=unit: gather(unit)` as `unit=unit: need(unit)`
# and `unit=unit: free(unit)` as `unit=unit: None if unit is units[-1] else free(unit)`

# %% my_zero3: the mean is a copy
# Solved. ...
# answer "as in the lesson", with ` / n; free` as `.div_(n).clone(); free`

# %% my_zero3: a view of a gradient
# Not yet. In step 0, after the update, rank 0 holds 39000 bytes, expected at most 24128. Its shards ...
# answer "as in the lesson", with ` / n; free` as `.div_(n); free`

# %% my_zero3: without gradients after the update
# Not yet. After step 0 rank 0 holds 5568 bytes of parameters and gradients, expected 11136: leave each gradient in ...
# answer "as in the lesson", with `return optimizer, optimizer.step`
# as `return optimizer, lambda: [optimizer.step(), optimizer.zero_grad()]`

# %% my_zero3: whole after forward
# Not yet. In step 1, in the forward of layer 3, rank 0 holds ...
# answer "as in the lesson", with `unit=unit: free(unit)` as `unit=unit: None`
# and `forward_pre_hook(lambda *_, unit=unit: gather(unit))` as `forward_pre_hook(lambda *_, unit=unit: need(unit))`
# and `backward_pre_hook(lambda *_, unit=unit: gather(unit))` as `backward_pre_hook(lambda *_, unit=unit: None)`

# %% my_zero3: whole after backward
# Not yet. In step 0, after the update, rank 0 holds 44568 bytes, ...
# answer "as in the lesson", without `; free(unit)`

# %% my_zero3: the last layer is never freed
# Not yet. In step 0, after the update, rank 0 holds 26008 bytes, ...
# answer "as in the lesson", with `; free(unit)` as `; unit is units[-1] or free(unit)`

# %% my_zero3: the sum instead of the mean
# Not yet. After step 0 the parameters of rank 0 differ from the parameters of one process by up to ...
# answer "as in the lesson", with ` / n; free` as `.clone(); free`

# %% my_zero3: all-reduce
# Not yet. In step 0 rank 0 called `all_reduce`, expected a call that gives it only its shard of the sum.
# answer "as in the lesson", with `unit.shard.grad = reduce_scatter(unit.take_gradient())`
# as `flat = unit.take_gradient(); dist.all_reduce(flat); unit.shard.grad = flat.chunk(n)[rank]`

# %% my_zero3: gathered once more
# Not yet. In step 0 rank 0 sent 66816 bytes, expected at most 50112.
# answer "as in the lesson",
# with `forward_pre_hook(lambda *_, unit=unit: gather(unit))`
# as `forward_pre_hook(lambda *_, unit=unit: [gather(unit), gather(unit)].clear())`

# %% my_zero3: the library reduces
# Not yet. In step 0 rank 0 sent 33408 bytes by `isend`, expected at least 47328: ...
# answer "as in the lesson", with `unit.shard.grad = reduce_scatter(unit.take_gradient())`
# as `unit.shard.grad = torch.empty_like(unit.shard);
# dist.reduce_scatter_tensor(unit.shard.grad, unit.take_gradient()); unit.shard.grad = unit.shard.grad`

# %% my_zero3: not gathered for backward
# Not yet. Rank 0 raised RuntimeError: ...
# answer "as in the lesson",
# with `backward_pre_hook(lambda *_, unit=unit: gather(unit))` as `backward_pre_hook(lambda *_, unit=unit: None)`

# %% my_zero3: the library gathers
# Not yet. In step 0 rank 0 called `gather` 0 times, expected at least 11 times: each layer is gathered for ...
# answer "as in the lesson", with `unit=unit: gather(unit)` as `unit=unit: fetch(unit)`
def launch(unit):
    if unit.full.untyped_storage().nbytes() == 0:
        unit.full.untyped_storage().resize_(unit.full.nbytes)
        unit.work = dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)

def fetch(unit):
    launch(unit)
    unit.work.wait()

# %% my_zero3: one hook for all
# Not yet. ...
# answer "as in the lesson", with `forward_hook(lambda *_, unit=unit: free(unit))` as `forward_hook(lambda *_: free(unit))`

# %% my_zero3: the shard is freed
# Not yet. ...
# answer "as in the lesson", without `unit.shard = unit.shard.clone()`

# %% thrifty: solution
# Solved. Each rank keeps only its shards, and all ranks train as one process does.

# %% thrifty: skeleton
# Not yet. In step 0, after the update, rank 0 holds 39000 bytes, expected at most 24128. Its shards, their gradients
# and the optimizer's state take 22272 bytes, and a whole layer 3712.

# %% thrifty: as in the lesson
# Solved. ...
# answer "as in the lesson" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: the library gathers
# Solved. ...
# answer "the library gathers" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: fetched ahead
# Solved. ...
# answer "the library gathers" to my_zero3, with `my_zero3` as `thrifty`
# and `optimizer = adam` as `fetch_ahead(units); optimizer = adam`
def fetch_ahead(units):
    for unit, following in zip(units, units[1:]):
        unit.layer.register_forward_pre_hook(lambda *_, following=following: launch(following))

# %% thrifty: the last layer stays for backward
# Solved. ...
# answer "the last layer stays for backward" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: the mean is a copy
# Solved. ...
# answer "the mean is a copy" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: a view of a gradient
# Not yet. In step 0, after the update, rank 0 holds 39000 bytes, expected at most 24128. Its shards ...
# answer "a view of a gradient" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: whole after forward
# Not yet. In step 1, in the forward of layer 3, rank 0 holds ...
# answer "whole after forward" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: whole after backward
# Not yet. In step 0, after the update, rank 0 holds 44568 bytes, ...
# answer "whole after backward" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: the last layer is never freed
# Not yet. In step 0, after the update, rank 0 holds 26008 bytes, ...
# answer "the last layer is never freed" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: the sum instead of the mean
# Not yet. After step 0 the parameters of rank 0 differ from the parameters of one process by up to ...
# answer "the sum instead of the mean" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: all-reduce
# Not yet. In step 0 rank 0 called `all_reduce`, expected a call that gives it only its shard of the sum.
# answer "all-reduce" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: gathered once more
# Not yet. In step 0 rank 0 sent 66816 bytes, expected at most 50112.
# answer "gathered once more" to my_zero3, with `my_zero3` as `thrifty`

# %% thrifty: not gathered for backward
# Not yet. Rank 0 raised RuntimeError: ...
# answer "not gathered for backward" to my_zero3, with `my_zero3` as `thrifty`

# %% largest: solution
# Solved. Each number of parameters fits, and one more parameter would not fit.

# %% largest: skeleton
# Not yet. With 1600 bytes, 4 ranks and zero1, rank 0 returned 100, expected more: 101 parameters take 716 bytes.

# %% largest: halving
# Solved. ...
def largest(memory, n, stage):
    sharded = {"data parallel": 0, "zero1": 12, "zero2": 14, "zero3": 16}[stage]
    low, high = 0, memory * n
    while low < high:
        middle = (low + high + 1) // 2
        fits = (16 - sharded) * middle + sharded * -(-middle // n) <= memory
        low, high = (middle, high) if fits else (low, middle - 1)
    return low

# %% largest: by whole rows of n
# Solved. ...
def largest(memory, n, stage):
    sharded = {"data parallel": 0, "zero1": 12, "zero2": 14, "zero3": 16}[stage]
    whole = 16 - sharded
    rows, rest = divmod(memory, n * whole + sharded)
    if whole == 0:
        return rows * n
    return rows * n + max(0, (rest - sharded) // whole)

# %% largest: from above
# Solved. ...
def largest(memory, n, stage):
    whole = {"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}[stage]

    def held(p):
        return whole * p + (16 - whole) * ((p + n - 1) // n)

    return next(p for p in range(memory * n, -1, -1) if held(p) <= memory)

# %% largest
# Not yet. With 1600 bytes, 4 ranks and zero2, rank 0 returned 290, expected fewer ...
def largest(memory, n, stage):
    whole = {"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}[stage]
    return int(memory / (whole + (16 - whole) / n))

# %% largest
# Not yet. With 1600 bytes, 4 ranks and data parallel, rank 0 returned 100.0, ...
def largest(memory, n, stage):
    whole = {"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}[stage]
    return memory / (whole + (16 - whole) / n)

# %% largest
# Not yet. With 1600 bytes, 4 ranks and data parallel, rank 0 returned 400, expected fewer ...
def largest(memory, n, stage):
    whole = {"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}[stage]
    return memory // (whole or 16) * n

# %% largest
# Not yet. With 1600 bytes, 4 ranks and zero1, rank 0 returned 289, expected fewer ...
def largest(memory, n, stage):
    whole = {"data parallel": 16, "zero1": 2, "zero2": 2, "zero3": 0}[stage]
    return next(p for p in range(memory * n, -1, -1) if whole * p + (16 - whole) * -(-p // n) <= memory)

# %% largest
# Not yet. With 1600 bytes, 4 ranks and data parallel, rank 0 returned -1, expected an int, 0 or more.
def largest(memory, n, stage):
    whole = {"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}[stage]
    return -1

# %% largest
# Not yet. With 1600 bytes, 4 ranks and data parallel, rank 0 returned 1000000000000, expected fewer ...
def largest(memory, n, stage):
    whole = {"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}[stage]
    return 10**12

# %% largest
# Not yet. With 1600 bytes, 4 ranks and zero1, rank 0 returned 400, expected fewer ...
def largest(memory, n, stage):
    whole = {"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}[stage]
    return memory // 16 * n if whole < 16 else memory // 16

# %% World(4)
# The cell that defines Unit is missing.
# cell `init_process_group(` of solutions

# %% my_zero1: before the lesson's class
# Not yet. Rank 0: `Unit` is not defined. Run the cells of the lesson above this one.
# solution
