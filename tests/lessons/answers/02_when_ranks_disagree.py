# %% World(4)
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, world_size = dist.get_rank(), dist.get_world_size()

# %% checked_all_reduce: solution
# Solved. Every rank added up equal calls, and raised a ValueError if the name, the shape or the dtype differed.

# %% checked_all_reduce: skeleton
# Not yet. Rank 1 passed a different name from the other ranks, but rank 0 raised no error, expected a ValueError on
# every rank.

# %% checked_all_reduce: only the name
# Not yet. Rank 1 passed a different shape from the other ranks, but rank 0 raised no error, expected a ValueError on
# every rank.
# solution, with `(name, tensor.shape, tensor.dtype)` as `name`

# %% checked_all_reduce: without the dtype
# Not yet. Rank 1 passed a different dtype from the other ranks, but rank 0 raised no error, expected a ValueError on
# every rank.
# solution, with `(name, tensor.shape, tensor.dtype)` as `(name, tensor.shape)`

# %% checked_all_reduce: compares with rank 0 only
# Not yet. Rank 1 passed a different name from the other ranks, but rank 0 raised RuntimeError: ..., expected a
# ValueError on every rank.
# solution, with `len(set(calls)) > 1` as `calls[rank] != calls[0]`

# %% checked_all_reduce: adds first
# Not yet. Rank 1 passed a different name from the other ranks, and the tensor of rank 0 changed, expected it unchanged:
# compare before you add.
def checked_all_reduce(name, tensor, group):
    call = name, tensor.shape, tensor.dtype
    dist.all_reduce(tensor, group=group)
    calls = [None] * world_size
    dist.all_gather_object(calls, call, group=group)
    if len(set(calls)) > 1:
        raise ValueError(calls)

# %% checked_all_reduce: another error
# Not yet. Rank 1 passed a different name from the other ranks, but rank 0 raised KeyError: ..., expected a ValueError
# on every rank.
# solution, with `raise ValueError` as `raise KeyError`

# %% checked_all_reduce: always refuses
# Not yet. All ranks passed the same name, shape and dtype, but rank 0 raised ValueError: ..., expected no error.
# solution, with `len(set(calls)) > 1` as `calls`

# %% checked_all_reduce: never adds
# Not yet. All ranks passed the same name, shape and dtype, and the tensor of rank 0 contains [1.0, 1.0], expected ...
# solution, without `    dist.all_reduce(tensor, group=group)`

# %% checked_all_reduce: adds in the default group
# Not yet. Rank 0 called all_reduce in the default group, expected `group`: pass `group=group` to every call.
# solution, with `dist.all_reduce(tensor, group=group)` as `dist.all_reduce(tensor)`

# %% checked_all_reduce: compares in the default group
# Not yet. Rank 0 called all_gather in the default group, expected `group`: pass `group=group` to every call.
# solution, with `tensor.dtype), group=group)` as `tensor.dtype))`

# %% checked_all_reduce: misspelt
# Not yet. Rank 0 raised NameError: name 'nam' is not defined
# solution, with `(name, tensor.shape` as `(nam, tensor.shape`

# %% checked_all_reduce: one object for each rank
# Solved. ...
def checked_all_reduce(name, tensor, group):
    for source in range(world_size):
        of_source = [(name, list(tensor.shape), str(tensor.dtype))]
        own = of_source[0]
        dist.broadcast_object_list(of_source, src=source, group=group)
        differs = torch.tensor(float(of_source[0] != own))
        dist.all_reduce(differs, group=group)
        if differs > 0:
            raise ValueError("another call on rank", source)
    dist.all_reduce(tensor, group=group)

# %% my_metrics: solution
# Solved. Every rank returned correct 10.0, max_tokens 40.0.

# %% my_metrics: skeleton
# Not yet. Rank 0 returned correct 21.0, expected 10.0. Look at world.history().

# %% my_metrics: all summed
# Not yet. Rank 0 returned max_tokens 100.0, expected 40.0. Look at world.history().
# solution, with `dist.ReduceOp.MAX if name.startswith("max") else ` as ``

# %% my_metrics: backwards
# Not yet. Rank 0 returned correct 21.0, expected 10.0. Look at world.history().
# skeleton, with `in metrics:` as `in reversed(metrics):`

# %% my_metrics: without a call
# Not yet. Rank 0 returned correct 1.0, expected 10.0. Look at world.history().
# solution, with `dist.all_reduce(metrics[name], op, group=group)` as `pass`

# %% my_metrics: in the default group
# Not yet. Rank 0 called all_reduce in the default group, expected `group`: pass `group=group` to every call.
# solution, with `op, group=group)` as `op)`

# %% my_metrics: returns nothing
# Not yet. Rank 0 returned None, expected a dict with the keys correct, max_tokens.
# solution, with `return metrics` as `return None`

# %% my_metrics: constants
# Not yet. The result is right, but rank 0 did not get it from the other ranks, expected a collective or messages.
def my_metrics(metrics, group):
    return {"correct": 10.0, "max_tokens": 40.0}

# %% my_metrics: by the names of the lesson
# Not yet. With the metrics max_loss and max_length, rank 0 raised KeyError: 'correct', expected no error.
def my_metrics(metrics, group):
    dist.all_reduce(metrics["correct"], group=group)
    dist.all_reduce(metrics["max_tokens"], dist.ReduceOp.MAX, group=group)
    return metrics

# %% my_metrics: in two loops
# Not yet. Rank 0 returned max_loss 20.0, expected 4.0. Do all ranks combine them in the same order?
def my_metrics(metrics, group):
    for name in metrics:
        if not name.startswith("max"):
            dist.all_reduce(metrics[name], group=group)
    for name in metrics:
        if name.startswith("max"):
            dist.all_reduce(metrics[name], dist.ReduceOp.MAX, group=group)
    return metrics

# %% my_metrics: a new dict
# Solved. ...
# solution, with `return metrics` as `return {name: metrics[name].item() for name in metrics}`

# %% deliver: solution
# Solved. Rank 1 returned messages of 2, 3 and 10,000 elements.

# %% deliver: skeleton
# Not yet. Rank 1 returned [1.0, 2.0, 9.0, 9.0], expected [1.0, 2.0], the message of rank 0.

# %% deliver: for one length
# Not yet. Rank 1 returned [9.0, 9.0], expected [9.0, 9.0, 9.0], the message of rank 0.
# skeleton, with `box = torch.full((4,), 9.0)` as `box = torch.full((4,), 9.0)` and `return box` as `return box[:2]`

# %% deliver: drops the nines
# Not yet. Rank 1 returned [], expected [9.0, 9.0, 9.0], the message of rank 0.
# skeleton, with `return box` as `return box[box != 9]`

# %% deliver: returns nothing
# Not yet. Rank 1 returned None, expected [1.0, 2.0], the message of rank 0.
# skeleton, with `return box` as `return None`

# %% deliver: a constant
# Not yet. Rank 1 returned [1.0, 2.0], expected [9.0, 9.0, 9.0], the message of rank 0.
def deliver(message, group):
    return torch.tensor([1.0, 2.0])

# %% deliver: receives only
# Not yet. Deadlock: ... rank 1 waited in a recv from rank 0. No restart is needed: ...
# solution, without `        dist.send(torch.tensor(len(message)), dst=1, group=group)`
# and without `        dist.send(message, dst=1, group=group)` and with `if rank == 0:` as `if rank == 0: pass`

# %% deliver: in the default group
# Not yet. Rank 0 called send in the default group, expected `group`: pass `group=group` to every call.
# solution, with `dst=1, group=group` as `dst=1` and `src=0, group=group` as `src=0`

# %% deliver: up to the last number
# Not yet. Rank 1 is dead (SIGABRT). gloo aborts a process if the calls of the ranks do not match. Call
# fresh_ranks(), ...
# skeleton, with `9.0)` as `torch.nan)` and `return box` as `return box[~box.isnan()]`

# %% deliver: up to the last number of 1000
# Not yet. Rank 1 is dead (SIGABRT). ...
# answer "up to the last number", with `(4,)` as `(1000,)`

# %% deliver: up to the last number of 100,000
# Not yet. Rank 1 returned [-1.0, inf, 0.0, ... expected [-1.0, nan, inf, 0.0, ... the message of rank 0.
# answer "up to the last number", with `(4,)` as `(100_000,)`

# %% deliver: to all ranks
# Solved. ...
def deliver(message, group):
    length = torch.tensor(0 if message is None else len(message))
    dist.broadcast(length, src=0, group=group)
    box = torch.empty(length) if message is None else message
    dist.broadcast(box, src=0, group=group)
    return box

# %% deliver: as an object
# Solved. ...
def deliver(message, group):
    box = [message]
    dist.broadcast_object_list(box, src=0, group=group)
    return box[0]

# %% deliver: a list
# Solved. ...
# solution, with `return box` as `return box.tolist()`

# %% detail_group: solution
# Solved. The group compares its collectives, and a group that was made later does not.

# %% detail_group: skeleton
# Not yet. Rank 1 passed a different shape to a collective in the group, but rank 0 raised no error, expected an error
# that begins with `Detected mismatch`.

# %% detail_group: stays on
# Not yet. A group that rank 0 made after `detail_group` also compares its collectives, expected no comparison: set the
# debug level back.
# solution, with `dist.set_debug_level(level)` as `pass`

# %% detail_group: too late
# Not yet. Rank 1 passed a different shape to a collective in the group, but rank 0 raised no error, ...
def detail_group():
    group = dist.new_group(timeout=timedelta(seconds=3))
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    return group

# %% detail_group: another level
# Not yet. Rank 1 passed a different shape to a collective in the group, but rank 0 raised no error, ...
# solution, with `DebugLevel.DETAIL` as `DebugLevel.INFO`

# %% detail_group: without the timeout
# Not yet. The group of rank 0 has a timeout of 1800.0 s, expected 3 s: keep the argument of `new_group`.
# solution, with `timeout=timedelta(seconds=3)` as ``

# %% detail_group: returns nothing
# Not yet. Rank 0 raised TypeError: `detail_group` returned None, expected a group of all ranks
# solution, with `return dist` as `dist`

# %% detail_group: of two ranks
# Not yet. Rank 2 raised TypeError: `detail_group` returned -100, expected a group of all ranks
# solution, with `new_group(` as `new_group([0, 1], `

# %% detail_group: by the environment
# Solved. ...
def detail_group():
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    group = dist.new_group(timeout=timedelta(seconds=3))
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "OFF"
    dist.set_debug_level_from_env()
    return group

# %% World(2), World(3), World(8): checked_all_reduce, my_metrics, deliver, detail_group
