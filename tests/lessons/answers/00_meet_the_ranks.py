# %% World(4)
import os
from datetime import timedelta
import torch
import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
timeout = timedelta(seconds=10)
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timeout)
dist.init_process_group("gloo", timeout=timeout)

# %% my_share: solution
# Solved. Of 13 cards each has been taken by one rank.

# %% my_share: a block
# Solved. Of 13 cards each has been taken by one rank.
# solution, with `return cards[rank::world_size]` as `return torch.tensor(cards).tensor_split(world_size)[rank]`

# %% my_share: from the last rank on
# Solved. Of 13 cards each has been taken by one rank.
# solution, with `cards[rank::world_size]` as `[card for card in cards if card % world_size == world_size - 1 - rank]`

# %% my_share: a block by its ends
# Solved. Of 13 cards each has been taken by one rank.
def my_share(cards):
    return tuple(cards[len(cards) * rank // world_size : len(cards) * (rank + 1) // world_size])

# %% my_share: skeleton
# Not yet. Rank 0 returned None, expected its part of the list.

# %% my_share
# Not yet. Card 0 has been taken by ranks 0 and 1 and 2 and 3.
# solution, with `return cards[rank::world_size]` as `return cards`

# %% my_share
# Not yet. Of the cards 0 to 12 nobody has taken 12.
# solution, with `return cards[rank::world_size]` as `return cards[rank * 3 : rank * 3 + 3]`

# %% my_share
# Not yet. Card 3 has been taken by ranks 0 and 1.
# solution, with `return cards[rank::world_size]` as `return cards[rank * 3 :][: 4 if rank < 3 else None]`

# %% my_share
# Not yet. Rank 0 has 4 cards, and another only 1.
# solution, with `return cards[rank::world_size]` as `return cards[rank * 4 : rank * 4 + 4]`

# %% my_share
# Not yet. The ranks have 26 cards in all, expected the 13 that were to be dealt out.
# solution, with `return cards[rank::world_size]` as `return cards[rank::world_size] * 2`

# %% my_share
# Not yet. Rank 0 returned 0, expected its part of the list.
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
# Not yet. Deadlock: the group's timeout ended the wait on these ranks: 1. Call world.restart(), then run the lesson
# again, from its setup cell to this check.
# skeleton, with `# Your lines go here.` as `dist.all_reduce(numbers) if rank == 1 else None`

# %% collect: that ends its rank
# Not yet. Rank 2 is dead. Call world.restart(), then run the lesson again, from its setup cell to this check.
# skeleton, with `# Your lines go here.` as `os.kill(os.getpid(), 9) if rank == 2 else None`

# %% turn_round: solution
# Solved. The process with RANK=0 is rank 3 of the new group, and so on down to rank 0.

# %% turn_round: skeleton
# Not yet. The process with RANK=0 is rank 0, expected rank 3.

# %% turn_round: same ranks
# Not yet. The process with RANK=0 is rank 0, expected rank 3.
def turn_round(name):
    meeting_place = dist.PrefixStore(name, store)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=meeting_place, rank=rank, world_size=world_size, timeout=timeout)

# %% turn_round: only left
# Not yet. Rank 0 has left the old group, and is in no new one.
# skeleton, with `# Your lines go here. Give init_process_group the timeout, too.` as `dist.destroy_process_group()`

# %% turn_round: not left
# Not yet. Rank 0 raised ValueError: trying to initialize the default process group twice!
def turn_round(name):
    meeting_place = dist.PrefixStore(name, store)
    dist.init_process_group(
        "gloo", store=meeting_place, rank=world_size - 1 - rank, world_size=world_size, timeout=timeout
    )

# %% turn_round: no prefix
# Not yet. The ranks are in reverse, but they have not met under the prefix `name`. The next group that meets in this
# place would find the addresses of this one.
def turn_round(name):
    meeting_place = dist.PrefixStore(name, store)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=store, rank=world_size - 1 - rank, world_size=world_size, timeout=timeout)

# %% turn_round: in which all want to be rank 0
# Not yet. Deadlock: the group's timeout ended the wait on these ranks: 0, 1, 2, 3. Call world.restart(), then run the
# lesson again, from its setup cell to this check.
def turn_round(name):
    meeting_place = dist.PrefixStore(name, store)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=meeting_place, rank=0, world_size=world_size, timeout=timeout)
