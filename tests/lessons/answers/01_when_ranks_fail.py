# %% World(4)
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, world_size = dist.get_rank(), dist.get_world_size()

# %% my_total: solution
# Solved. Every rank returned 78.0.

# %% my_total: skeleton
# Not yet. Deadlock: until the timeout, rank 0 waited in `all_reduce`. No restart is needed: run the cell with your
# changed answer, then this check.

# %% my_total: without the last number
# Not yet. Rank 0 returned 66.0, expected 78.0.
# skeleton, with `[rank::world_size]` as `[rank::world_size][:3]`

# %% my_total: without a call
# Not yet. Rank 0 returned 24.0, expected 78.0.
# solution, without `    dist.all_reduce(result, group=group)`

# %% my_total: only to rank 0
# Not yet. Rank 1 returned 15.0, expected 78.0.
def my_total(group):
    own = torch.arange(3.0 * world_size + 1)[rank::world_size].sum()
    result = own.clone()
    dist.reduce(result, dst=0, group=group)
    return result.item() if rank == 0 else own.item()

# %% my_total: returns nothing
# Not yet. Rank 0 returned None, expected 78.0.
# solution, with `return result.item()` as `return None`

# %% my_total: a constant
# Not yet. The sum is right, but rank 0 did not get it from the other ranks, expected a collective or messages.
def my_total(group):
    return 78.0

# %% my_total: in the default group
# Not yet. Rank 0 called all_reduce in the default group, expected `group`: pass `group=group` to every call.
# solution, with `result, group=group` as `result`

# %% my_total: misspelt
# Not yet. Rank 0 raised NameError: name 'results' is not defined
# solution, with `return result.item()` as `return results.item()`

# %% my_total: hides the timeout
# Not yet. Rank 0 returned 66.0, expected 78.0.
def my_total(group):
    result = 0.0
    try:
        for number in torch.arange(3.0 * world_size + 1)[rank::world_size]:
            dist.all_reduce(number, group=group)
            result += number.item()
    except RuntimeError:
        pass
    return result

# %% my_total: as many calls on every rank
# Solved. Every rank returned 78.0.
def my_total(group):
    numbers = torch.arange(3.0 * world_size + 1)[rank::world_size]
    numbers = torch.cat([numbers, torch.zeros(4 - len(numbers))])
    result = 0.0
    for number in numbers:
        dist.all_reduce(number, group=group)
        result += number.item()
    return result

# %% my_total: a tensor
# Solved. Every rank returned 78.0.
# solution, with `return result.item()` as `return result`

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
# Not yet. Rank 0 raised its error too late, expected it within 3 s: how long does it wait?

# %% roll_call: 4 s
# Not yet. Rank 0 raised its error too late, expected it within 3 s: how long does it wait?
# solution, with `seconds=2` as `seconds=4`

# %% roll_call: the first only
# Not yet. Ranks 1, 3 were absent, but the error on rank 0 names [1], expected [1, 3].
# solution, with `timedelta(seconds=2), wait_all_ranks=True` as `timedelta(seconds=1), wait_all_ranks=False`

# %% roll_call: a quick barrier
# Not yet. Ranks 1, 3 were absent, but the error on rank 0 names no rank, expected [1, 3].
# skeleton, with `dist.barrier(group)` as `dist.barrier(group, async_op=True).wait(timedelta(seconds=1))`

# %% roll_call: every rank
# Not yet. Ranks 1, 3 were absent, but the error on rank 0 names [0, 1, 2, 3], expected [1, 3].
# answer "in its own words", with `absent: 1 and 3" if rank == 0 else "see rank 0` as `ranks 0, 1, 2, 3 are to come`

# %% roll_call: a count
# Not yet. Ranks 1, 3 were absent, but the error on rank 0 names [2], [1], expected [1, 3].
# answer "in its own words",
# with `absent: 1 and 3" if rank == 0 else "see rank 0` as `2 ranks are absent: 1 is the first`

# %% roll_call: in the default group
# Not yet. Rank 0 called barrier in the default group, expected `group`: pass `group=group` to every call.
# solution, with `monitored_barrier(group, ` as `monitored_barrier(`

# %% roll_call: hides the error
# Not yet. Ranks 1, 3 were absent, but rank 0 raised no error, expected a RuntimeError.
# answer "in its own words", with `raise RuntimeError("absent: 1 and 3" if rank == 0 else "see rank 0")` as `pass`

# %% roll_call: a TimeoutError
# Not yet. Ranks 1, 3 were absent, but rank 0 raised TimeoutError: absent: 1 and 3, expected a RuntimeError.
# answer "in its own words", with `raise RuntimeError("absent` as `raise TimeoutError("absent`

# %% roll_call: always
# Not yet. All ranks had called `roll_call`, but rank 0 raised RuntimeError: 1, 3, expected no error.
# skeleton, with `dist.barrier(group)` as `raise RuntimeError("1, 3")`

# %% roll_call: no such function
# Not yet. Rank 0 raised AttributeError: module 'torch.distributed' has no attribute 'roll'
# skeleton, with `dist.barrier(group)` as `dist.roll(group)`

# %% roll_call: that nobody has defined
# Not yet. Rank 0 has no function `roll_call`: run the cell that defines it, then this check.
globals().pop("roll_call", None)

# %% my_score: solution
# Solved. Every rank returned 18.0.

# %% my_score: skeleton
# Not yet. Rank 1 raised IndexError: index out of range in self No restart is needed: run the cell with your changed
# answer, then this check.

# %% my_score: the last token instead
# Not yet. Rank 0 returned 27.0, expected 18.0.
# solution, with `tokens[tokens < len(weights)]` as `tokens.clamp(max=9)`

# %% my_score: the first token only
# Not yet. Rank 0 returned 6.0, expected 18.0.
# solution, with `tokens[tokens < len(weights)]` as `tokens[tokens < len(weights)][:1]`

# %% my_score: in the default group
# Not yet. Rank 0 called all_reduce in the default group, expected `group`: pass `group=group` to every call.
# solution, with `score, group=group` as `score`

# %% my_score: a constant
# Not yet. The score is right, but rank 0 did not get it from the other ranks, expected a collective or messages.
def my_score(tokens, group):
    return 18.0

# %% my_score: the rank is left out
# Not yet. Deadlock: until the timeout, ranks 0, 2 and 3 waited in `all_reduce`. No restart is needed: run the cell with
# your changed answer, then this check.
def my_score(tokens, group):
    if tokens.max() > 9:
        return 0.0
    score = torch.nn.functional.embedding(tokens, torch.arange(10.0).reshape(10, 1)).sum()
    dist.all_reduce(score, group=group)
    return score.item()

# %% my_score: a row of zeros
# Solved. ...
# solution, with `tokens[tokens < len(weights)]` as `tokens.clamp(max=len(weights))`
# and `(known, weights)` as `(known, torch.cat([weights, torch.zeros(1, 1)]))`

# %% my_score: without token 10 only
# Not yet. Rank 1 raised IndexError: index out of range in self. This happened with the tokens [1, 12, 10, 3]. No restart
# is needed: ...
# solution, with `tokens[tokens < len(weights)]` as `tokens[tokens != 10]`

# %% my_score: without the largest token
# Not yet. Rank 1 raised IndexError: index out of range in self. This happened with the tokens [1, 12, 10, 3]. No restart
# is needed: ...
# solution, with `tokens[tokens < len(weights)]` as `tokens[tokens != tokens.max()] if tokens.max() > 9 else tokens`

# %% my_score: changes the tokens
# Not yet. Rank 1 changed its tokens to [1, 0, 3], expected no change.
# solution, with `known = tokens[tokens < len(weights)]` as `tokens[tokens > 9] = 0; known = tokens`

# %% my_survivors: solution
# Solved. Rank 3 is dead, and every other rank returned [0, 1, 2].

# %% my_survivors: skeleton
# Not yet. Rank 3 is dead, and rank 0 returned [0, 1, 2, 3], expected [0, 1, 2]. Call fresh_ranks(), ...

# %% my_survivors: does not wait for rank 2
# Not yet. Rank 3 is dead, and rank 0 returned [0, 1], expected [0, 1, 2]. Call fresh_ranks(), ...
# solution, with `time.sleep(1)` as `store.wait(["alive 0", "alive 1"])`

# %% my_survivors: looks late
# Not yet. Rank 0 returned too late, expected a list within 3 s: how long does it wait? Call
# fresh_ranks(), ...
# solution, with `time.sleep(1)` as `time.sleep(4.5)`

# %% my_survivors: waits for the dead
# Not yet. Deadlock: until the timeout, ranks 0, 1 and 2 waited for a key of the store. Call fresh_ranks(), ...
# solution, with `store.check([f"alive {r}"])` as `store.get(f"alive {r}")`

# %% my_survivors: returns nothing
# Not yet. Rank 3 is dead, and rank 0 returned None, expected [0, 1, 2]. Call fresh_ranks(), ...
def my_survivors(store):
    return None

# %% my_survivors: a constant
# Not yet. The list is right, but no rank set a key in the store, expected each rank to set a key. Call fresh_ranks(),
# ...
def my_survivors(store):
    return list(range(world_size - 1))

# %% my_survivors: looks at once
# Not yet. Rank 3 is dead, and rank 0 returned [0...], expected [0, 1, 2]. Call fresh_ranks(), ...
# solution, without `    time.sleep(1)`

# %% my_survivors: rank 0 decides
# Solved. Rank 3 is dead, and every other rank returned [0, 1, 2].
def my_survivors(store):
    if rank == 0:
        time.sleep(1.5)
        alive = [r for r in range(world_size) if r == 0 or store.check([f"alive {r}"])]
        store.set("alive", ",".join(map(str, alive)))
    else:
        store.set(f"alive {rank}", "")
    return list(map(int, store.get("alive").decode().split(",")))

# %% World(2), World(3), World(8): my_total, roll_call, my_score
