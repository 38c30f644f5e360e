# %% World(4)
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, world_size = dist.get_rank(), dist.get_world_size()

# %% total: solution
# Solved. Every rank returned 78.0.

# %% total: skeleton
# Not yet. Deadlock: the group's timeout ended the wait on these ranks: 0. Call world.restart(), then run the lesson
# again, from its setup cell to this check.

# %% total: by one call
# Solved. Every rank returned 78.0.
# solution, with `seconds=3` as `seconds=2` and `return result.item()` as `result = result.item(); return result`

# %% total: by as many calls on every rank
# Solved. ...
group = dist.new_group(timeout=timedelta(seconds=2))

def total():
    share = torch.arange(3.0 * world_size + 1)[rank::world_size]
    share = torch.cat([share, torch.zeros(4 - len(share))])
    result = 0.0
    for number in share:
        dist.all_reduce(number, group=group)
        result += number.item()
    return result

# %% total: may be a tensor
# Solved. ...
# solution, with `seconds=3` as `seconds=2` and `return result.item()` as `return result`

# %% total: drops the last number
# Not yet. Rank 0 returned 66.0, expected 78.0.
# answer "by as many calls on every rank",
# with `share = torch.cat([share, torch.zeros(4 - len(share))])` as `share = share[:3]`

# %% total: never speaks to the others
# Not yet. Rank 0 returned 24.0, expected 78.0.
group = dist.new_group(timeout=timedelta(seconds=2))

def total():
    share = torch.arange(3.0 * world_size + 1)[rank::world_size]
    result = share.sum().item()
    return result

# %% total: reduces to rank 0
# Not yet. Rank 1 returned 15.0, expected 78.0.
# answer "never speaks to the others",
# with `share.sum()`
# as `share.sum(); dist.reduce(result, dst=0, group=group); result = result.item() if rank == 0 else share.sum()`

# %% total: returns nothing
# Not yet. Rank 0 returned None, expected 78.0.
# answer "never speaks to the others", with `result = share.sum().item()` as `result = None`

# %% total: knows the sum
# Not yet. The sum is right, but rank 0 did not get it from the others.
# answer "never speaks to the others", with `result = share.sum().item()` as `result = 78.0`

# %% total: misspelt
# Not yet. Rank 0 raised NameError: name 'shares' is not defined
# answer "never speaks to the others", with `result = share.sum().item()` as `result = shares.sum()`

# %% total: that hides the error
# Not yet. Rank 0 returned 66.0, expected 78.0.
group = dist.new_group(timeout=timedelta(seconds=2))

def total():
    share = torch.arange(3.0 * world_size + 1)[rank::world_size]
    try:
        result = 0.0
        for number in share:
            dist.all_reduce(number, group=group)
            result += number.item()
    except RuntimeError:
        pass
    return result

# %% roll_call: solution
# Solved. Ranks 1, 3 were absent, and rank 0 named [1, 3] within 3 s.

# %% roll_call: in its own words
# Solved. ...
def roll_call(group):
    try:
        dist.monitored_barrier(group, timeout=timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        raise RuntimeError("absent: 1 and 3" if rank == 0 else "see rank 0")

# %% roll_call
# Solved. ...
# answer "in its own words", with `absent: 1 and 3` as `2 of 4 ranks have not come within 1 s: [1, 3]`

# %% roll_call
# Solved. ...
# answer "in its own words", with `absent: 1 and 3` as `rank 1, rank 3 are missing (2 of 4)`

# %% roll_call
# Solved. ...
# answer "in its own words", with `absent: 1 and 3` as `{1, 3}`

# %% roll_call: skeleton
# Not yet. Rank 0 raised its error later than after 3 s.

# %% roll_call: 4 s
# Not yet. Rank 0 raised its error later than after 3 s.
# solution, with `seconds=2` as `seconds=4`

# %% roll_call: the first only
# Not yet. Ranks 1, 3 were absent, and the error on rank 0 names [1].
# solution, with `timedelta(seconds=2), wait_all_ranks=True` as `timedelta(seconds=1), wait_all_ranks=False`

# %% roll_call: a quick barrier
# Not yet. Ranks 1, 3 were absent, and the error on rank 0 names none.
# skeleton, with `dist.barrier(group)` as `dist.barrier(group, async_op=True).wait(timedelta(seconds=1))`

# %% roll_call: everybody
# Not yet. Ranks 1, 3 were absent, and the error on rank 0 names [0, 1, 2, 3].
# answer "in its own words", with `absent: 1 and 3" if rank == 0 else "see rank 0` as `ranks 0, 1, 2, 3 are to come`

# %% roll_call: a count
# Not yet. Ranks 1, 3 were absent, and the error on rank 0 names [2], [1].
# answer "in its own words",
# with `absent: 1 and 3" if rank == 0 else "see rank 0` as `2 ranks are absent: 1 is the first`

# %% roll_call: hides the error
# Not yet. Ranks 1, 3 were absent, and rank 0 raised no error.
# answer "in its own words", with `raise RuntimeError("absent: 1 and 3" if rank == 0 else "see rank 0")` as `pass`

# %% roll_call: always
# Not yet. All ranks were there, and rank 0 raised RuntimeError: 1, 3
# skeleton, with `dist.barrier(group)` as `raise RuntimeError("1, 3")`

# %% roll_call: no such function
# Not yet. Rank 0 raised AttributeError: module 'torch.distributed' has no attribute 'roll'
# skeleton, with `dist.barrier(group)` as `dist.roll(group)`

# %% roll_call: that nobody has defined
# Not yet. Rank 0 has no function `roll_call`: run the cell that defines it, then this check.
globals().pop("roll_call", None)
