# %% World(4)
import os
from datetime import timedelta
import torch
import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
timeout = timedelta(seconds=10)
dist.init_process_group("gloo", timeout=timeout)

# %% my_share: solution
# Solved. Each of 13 cards went to one rank.

# %% my_share: a block
# Solved. Each of 13 cards went to one rank.
# solution, with `return cards[rank::world_size]` as `return torch.tensor(cards).tensor_split(world_size)[rank]`

# %% my_share: from the last rank on
# Solved. Each of 13 cards went to one rank.
# solution, with `cards[rank::world_size]` as `cards[world_size - 1 - rank :: world_size]`

# %% my_share: a block by its ends
# Solved. Each of 13 cards went to one rank.
def my_share(cards):
    return tuple(cards[len(cards) * rank // world_size : len(cards) * (rank + 1) // world_size])

# %% my_share: skeleton
# Not yet. Rank 0 returned None, expected its share of the list.

# %% my_share
# Not yet. Card 0 went to 4 ranks (0, 1, 2, 3), expected 1 rank.
# solution, with `return cards[rank::world_size]` as `return cards`

# %% my_share
# Not yet. No rank took card 12 of the cards 0 to 12, expected 1 rank.
# solution, with `return cards[rank::world_size]` as `return cards[rank * 3 : rank * 3 + 3]`

# %% my_share
# Not yet. Card 3 went to 2 ranks (0, 1), expected 1 rank.
# solution, with `return cards[rank::world_size]` as `return cards[rank * 3 :][: 4 if rank < 3 else None]`

# %% my_share
# Not yet. Rank 0 took 4 cards and rank 3 took 1, expected a difference of at most 1.
# solution, with `return cards[rank::world_size]` as `return cards[rank * 4 : rank * 4 + 4]`

# %% my_share: by the cards instead of their places
# Not yet. Rank 0 took 11 cards and rank 1 took 0, expected a difference of at most 1. The cards were 0, 4,
# 8, 12, 16, 20, 24, 28, 32, 36, 40.
# solution, with `cards[rank::world_size]` as `[card for card in cards if card % world_size == rank]`

# %% my_share: the last rank takes the rest
# Not yet. Rank 3 took 5 cards and rank 0 took 2, expected a difference of at most 1. The cards were 0, 4,
# 8, 12, 16, 20, 24, 28, 32, 36, 40.
def my_share(cards):
    size = len(cards) // world_size
    return cards[rank * size :] if rank == world_size - 1 else cards[rank * size : (rank + 1) * size]

# %% my_share
# Not yet. The ranks hold 26 cards in total, expected 13.
# solution, with `return cards[rank::world_size]` as `return cards[rank::world_size] * 2`

# %% my_share
# Not yet. Rank 0 returned 0, expected its share of the list.
# solution, with `return cards[rank::world_size]` as `return rank`

# %% collect: solution
# Solved. Every rank returned [4.0, -9.5, 16.0, -25.5].

# %% collect: may return a tensor
# Solved. ...
# solution, with `return numbers.tolist()` as `return numbers`

# %% collect: skeleton
# Not yet. Rank 0 returned [0.0, 0.0, 0.0, 0.0], expected [4.0, -9.5, 16.0, -25.5].

# %% collect: no all_reduce
# Not yet. Rank 0 returned [4.0, 0.0, 0.0, 0.0], expected [4.0, -9.5, 16.0, -25.5].
# solution, without `dist.all_reduce(numbers)`

# %% collect: all places
# Not yet. Rank 0 returned [-15.0, -15.0, -15.0, -15.0], expected [4.0, -9.5, 16.0, -25.5].
# solution, with `numbers[rank] = number` as `numbers += number`

# %% collect: wrong order
# Not yet. Rank 0 returned [-25.5, 16.0, -9.5, 4.0], expected [4.0, -9.5, 16.0, -25.5].
# solution, with `numbers[rank] = number` as `numbers[-1 - rank] = number`

# %% collect: nothing returned
# Not yet. Rank 0 returned None, expected [4.0, -9.5, 16.0, -25.5].
# solution, without `numbers[rank] = number`, with `dist.all_reduce(numbers)` as `dist.all_reduce(numbers); return`

# %% collect: maximum
# Not yet. Rank 0 returned ...
# solution, with `dist.all_reduce(numbers)` as `dist.all_reduce(numbers, op=dist.ReduceOp.MAX)`

# %% collect: integers
# Not yet. Rank 0 returned ...
# solution, with `numbers[rank] = number` as `numbers = numbers.long(); numbers[rank] = int(number)`

# %% collect: packed into one number
# Not yet. Rank 0 returned ...
def collect(number):
    numbers = torch.zeros(world_size)
    total = torch.tensor(number * 1000.0**rank).double()
    dist.all_reduce(total)
    numbers = torch.tensor([total.item() // 1000**r % 1000 for r in range(4)])
    return numbers.tolist()

# %% collect: asynchronous
# Solved. ...
# skeleton, with `# Your lines go here.` as `numbers[rank] += number; dist.all_reduce(numbers, async_op=True).wait()`

# %% collect: filled
# Solved. ...
def collect(number):
    numbers = torch.zeros(world_size)
    dist.all_reduce(numbers.index_fill_(0, torch.tensor(rank), number), op=dist.ReduceOp.SUM)
    return numbers.tolist()

# %% collect: a row of the identity
# Solved. ...
# solution, with `numbers[rank] = number` as `numbers = torch.eye(world_size)[rank] * number`

# %% collect: guessed
# Not yet. The numbers are right. Rank 0 called no collective, expected 1 all_reduce.
def collect(number):
    numbers = torch.zeros(world_size)
    for r in range(world_size):
        numbers[r] = (4, -9.5, 16, -25.5)[r]
    return numbers.tolist()

# %% collect: broadcasts
# Not yet. The numbers are right. Rank 0 called 4 broadcast, expected 1 all_reduce.
# solution, with `dist.all_reduce(numbers)` as `[dist.broadcast(numbers[r], src=r) for r in range(4)]`

# %% collect: too many
# Not yet. The numbers are right. Rank 0 called 2 all_reduce, 1 barrier, expected 1 all_reduce.
def collect(number):
    numbers = torch.zeros(world_size)
    dist.barrier()
    numbers[rank] = number / 2
    dist.all_reduce(numbers)
    numbers[rank] = number / 2
    dist.all_reduce(numbers)
    numbers = torch.tensor([4.0, -9.5, 16, -25.5])
    return numbers.tolist()

# %% collect: with an error
# Not yet. Rank 0 raised NameError: name 'nummer' is not defined
# solution, with `numbers[rank] = number` as `numbers[rank] = nummer`, without `dist.all_reduce(numbers)`

# %% collect: that nobody has defined
# Not yet. Rank 0 has no function `collect`: run the cell that defines it, then this check.
globals().pop("collect", None)

# %% collect: that deadlocks
# Not yet. Deadlock: until the timeout, rank 1 waited in `all_reduce`. Run the lesson again, from the cell with
# `World` to this check.
# skeleton, with `# Your lines go here.` as `dist.all_reduce(numbers) if rank == 1 else None`

# %% collect: that ends its rank
# Not yet. Rank 2 is dead. Run the lesson again, from the cell with `World` to this check.
# skeleton, with `# Your lines go here.` as `os.kill(os.getpid(), 9) if rank == 2 else None`

# %% all_done: solution
# Solved. Every rank returned True only when all ranks were done, after one all_reduce each time.

# %% all_done: skeleton
# Not yet. When all ranks are done, rank 0 called no collective, expected 1 all_reduce.

# %% all_done: a tensor
# Solved. Every rank returned True only when all ranks were done, after one all_reduce each time.
def all_done(done):
    count = torch.tensor(float(done))
    dist.all_reduce(count)
    return count == world_size

# %% all_done: a flag for each rank
# Solved. Every rank returned True only when all ranks were done, after one all_reduce each time.
def all_done(done):
    flags = torch.zeros(world_size)
    flags[rank] = done
    dist.all_reduce(flags)
    return bool(flags.all())

# %% all_done: a count of the others
# Solved. Every rank returned True only when all ranks were done, after one all_reduce each time.
def all_done(done):
    undone = torch.tensor([int(not done)])
    dist.all_reduce(undone)
    return not undone.any()

# %% all_done: the minimum
# Solved. Every rank returned True only when all ranks were done, after one all_reduce each time.
def all_done(done):
    every = torch.tensor(int(done))
    dist.all_reduce(every, op=dist.ReduceOp.MIN)
    return bool(every)

# %% all_done: any rank
# Not yet. When only rank 0 is done, rank 0 returned True, expected False.
def all_done(done):
    count = torch.tensor(float(done))
    dist.all_reduce(count)
    return count.item() > 0

# %% all_done: its own
# Not yet. When only rank 0 is done, rank 0 returned True, expected False.
def all_done(done):
    count = torch.tensor(float(done))
    dist.all_reduce(count)
    return done

# %% all_done: most ranks
# Not yet. When all ranks except rank 0 are done, rank 0 returned True, expected False.
def all_done(done):
    count = torch.tensor(float(done))
    dist.all_reduce(count)
    return count.item() > 1

# %% all_done: the count
# Not yet. When all ranks are done, rank 0 returned 4.0, expected True.
def all_done(done):
    count = torch.tensor(float(done))
    dist.all_reduce(count)
    return count.item()

# %% all_done: nothing returned
# Not yet. When all ranks are done, rank 0 returned None, expected True.
def all_done(done):
    count = torch.tensor(float(done))
    dist.all_reduce(count)

# %% all_done: two
# Not yet. When all ranks are done, rank 0 called 2 all_reduce, expected 1 all_reduce.
def all_done(done):
    count = torch.tensor(float(done))
    dist.all_reduce(count)
    dist.all_reduce(count)
    return count.item() == world_size**2

# %% all_done: another collective
# Not yet. When all ranks are done, rank 0 called 2 all_gather, expected 1 all_reduce.
def all_done(done):
    flags = [None] * world_size
    dist.all_gather_object(flags, done)
    return all(flags)

# %% all_done: a rank leaves early
# Not yet. When all ranks are done, rank 0 called no collective, expected 1 all_reduce.
def all_done(done):
    if done:
        return True
    count = torch.tensor(float(done))
    dist.all_reduce(count)
    return count.item() == world_size

# %% World(2), World(5): my_share, collect, all_done
