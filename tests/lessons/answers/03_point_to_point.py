# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`

# %% ring_shift: solution
# Solved. Every rank returned its left neighbour's tensor, and sent 64 bytes.

# %% ring_shift: skeleton
# Not yet. Rank 0 holds 1.0, expected 4.0.

# %% ring_shift: that all begin with send
# Not yet. Deadlock: until the timeout, rank 0 waited in a send to rank 1; rank 1 waited in a send to rank 2; rank 2
# waited in a send to rank 3; rank 3 waited in a send to rank 0. Run the lesson again, from the cell with `World`
# to this check.
# solution, with `work = dist.isend(tensor, dst=right)` as `dist.send(tensor, dst=right)`, without `work.wait()`

# %% ring_shift: to the wrong side
# Not yet. Rank 0 holds 2.0, expected 4.0.
# solution, with `work = dist.isend(tensor, dst=right)` as `work = dist.isend(tensor, dst=left)`
# and `dist.recv(received, src=left)` as `dist.recv(received, src=right)`

# %% ring_shift: with a message too many
# Not yet. Rank 0 sent 96 bytes, expected 64.
def ring_shift(tensor):
    received = torch.empty_like(tensor)
    header = torch.zeros(8)
    for outgoing, incoming in ((header, header.clone()), (tensor, received)):
        work = dist.isend(outgoing, dst=right)
        dist.recv(incoming, src=left)
        work.wait()
    return received

# %% ring_shift: in two halves
# Not yet. Rank 0 sent 2 messages, expected 1.
def ring_shift(tensor):
    received = torch.empty_like(tensor)
    for half in (slice(8), slice(8, 16)):
        work = dist.isend(tensor[half], dst=right)
        dist.recv(received[half], src=left)
        work.wait()
    return received

# %% ring_shift: into the tensor that it sends
# Not yet. ...
def ring_shift(tensor):
    work = dist.isend(tensor, dst=right)
    dist.recv(tensor, src=left)
    work.wait()
    return tensor

# %% ring_shift: that changes its argument
# Not yet. The result is right. Rank 0's own tensor now holds 4.0, expected 1.0: receive into another tensor, because a
# send may still be reading this one.
# solution, with `return received` as `return tensor.copy_(received)`

# %% ring_shift: by a collective
# Not yet. Rank 0 sent 0 bytes, expected 64.
def ring_shift(tensor):
    tensors = [torch.empty_like(tensor) for _ in range(n)]
    dist.all_gather(tensors, tensor)
    return tensors[left]

# %% ring_shift: that raises
# Not yet. Rank 0 raised KeyError: 'ring_shift'
# skeleton, with `return tensor` as `raise ValueError("no such neighbour") if rank == 2 else KeyError("ring_shift")`

# %% ring_shift: an error that mentions gloo is no deadlock
# Not yet. Rank 0 raised RuntimeError: gloo cannot do this before the timeout
def ring_shift(tensor):
    raise RuntimeError("gloo cannot do this before the timeout")

# %% ring_shift: that raises while the others wait
# Not yet. Rank 2 raised ValueError: no such neighbour Run the lesson again, from the cell with `World` to this
# check.
def ring_shift(tensor):
    if rank == 2:
        raise ValueError("no such neighbour")
    dist.recv(tensor, src=left)

# %% ring_shift: that is not there
# Not yet. Rank 0 has no function `ring_shift`: run the cell that defines it, then this check.
globals().pop("ring_shift", None)

# %% ring_shift: that returns something else
# Not yet. Rank 0 holds a ProcessGroup, expected 4.0.
# skeleton, with `return tensor` as `return dist.group.WORLD`

# %% ring_shift: that ends the process
# Not yet. Rank 1 is dead (SIGABRT). gloo aborts a process if the calls of the ranks do not match. Run the lesson
# again, from the cell with `World` to this check.
def ring_shift(tensor):
    work = dist.isend(tensor, dst=right)
    dist.recv(torch.empty(1) if rank == 1 else tensor, src=left)
    work.wait()

# %% ring_shift: a message that nobody received
# Not yet. Rank 3 never waited for its send to rank 1, so that message may be lost. Keep the work object that isend
# returns, and call its wait(). Run the lesson again, from the cell with `World` to this check.
def ring_shift(tensor):
    received = torch.empty_like(tensor)
    work = dist.isend(tensor, dst=right)
    dist.recv(received, src=left)
    work.wait()
    if rank == 3:
        dist.isend(tensor, dst=1)
    return received

# %% ring_shift: a rank that does not send
# Not yet. Deadlock: ... rank 3 waited in a recv from rank 2 ... Run the lesson again, from the cell with `World`
# to this check.
def ring_shift(tensor):
    received = torch.zeros_like(tensor)
    work = dist.isend(tensor, right) if rank != 2 else None
    dist.recv(received, left)
    if work:
        work.wait()
    return received

# %% gather: solution
# Solved. Rank 0 returned the tensors of all ranks, after 3 messages.

# %% gather: skeleton
# Not yet. Rank 0 returned a list of 1, expected a list of 4 tensors.

# %% gather: by irecv
# Solved. ...
def gather(tensor):
    if rank > 0:
        dist.isend(tensor, dst=0).wait()
        return
    tensors = [tensor.clone() for _ in range(n)]
    works = [dist.irecv(tensors[source], src=source) for source in range(1, n)]
    for work in works:
        work.wait()
    return tensors

# %% gather: in the order of arrival
# Not yet. Rank 0 returned ... of its list, expected ... Put each tensor at the index of its sender.
# solution, with `for source in range(1, n):` as `for received in tensors[1:]:`
# and `dist.recv(tensors[source], src=source)` as `dist.recv(received)`

# %% gather: into one tensor
# Not yet. Rank 0 returned 4.0 at index 1 of its list, expected 2.0. Receive each message into a tensor of its own.
# solution,
# with `tensors = [tensor] + [torch.empty_like(tensor) for _ in range(1, n)]`
# as `received, tensors = torch.empty_like(tensor), [tensor]`
# and `dist.recv(tensors[source], src=source)` as `dist.recv(received, src=source); tensors.append(received)`

# %% gather: of a message to oneself
# Not yet. Rank 1 returned a list of 4, expected None.
def gather(tensor):
    tensors = [torch.empty_like(tensor) for _ in range(n)]
    dist.gather(tensor, tensors if rank == 0 else None)
    return tensors

# %% gather: everywhere
# Not yet. Rank 0 sent 192 bytes, expected 0.
def gather(tensor):
    tensors = [tensor if source == rank else torch.empty_like(tensor) for source in range(n)]
    others = [other for other in range(n) if other != rank]
    works = [dist.isend(tensor, other) for other in others]
    for work in works + [dist.irecv(tensors[other], other) for other in others]:
        work.wait()
    return tensors if rank == 0 else None

# %% tree_broadcast: solution
# Solved. Every rank returned the tensor of rank 0, after 3 messages in 2 rounds.

# %% tree_broadcast: skeleton
# Not yet. Rank 1 holds 2.0, expected 1.0.

# %% tree_broadcast: by the power
# Solved. ...
def tree_broadcast(tensor):
    for k in range((n - 1).bit_length()):
        if rank < 2**k and rank + 2**k < n:
            dist.isend(tensor, dst=rank + 2**k).wait()
        elif 2**k <= rank < 2 ** (k + 1):
            dist.recv(tensor, src=rank - 2**k)
    return tensor

# %% tree_broadcast: receive, then pass on
# Solved. ...
def tree_broadcast(tensor):
    mine = tensor.clone()
    if rank > 0:
        dist.recv(mine, src=rank - 2 ** (rank.bit_length() - 1))
    k = rank.bit_length()
    while rank + 2**k < n:
        dist.send(mine, dst=rank + 2**k)
        k += 1
    return mine

# %% tree_broadcast: that is a star
# Not yet. Rank 3 received the tensor in round 3, expected round 2 at the latest.
def tree_broadcast(tensor):
    if rank > 0:
        dist.recv(tensor, src=0)
    else:
        for other in range(1, n):
            dist.send(tensor, dst=other)
    return tensor

# %% tree_broadcast: that is a chain
# Not yet. Rank 3 received the tensor in round 3, expected round 2 at the latest.
def tree_broadcast(tensor):
    if rank > 0:
        dist.recv(tensor, src=left)
    if rank < n - 1:
        dist.send(tensor, dst=right)
    return tensor

# %% tree_broadcast: with messages to those that have the tensor
# Not yet. The ranks sent 8 messages, expected 3.
def tree_broadcast(tensor):
    reach = 1
    while reach < n:
        work = dist.isend(tensor.clone(), dst=rank ^ reach)
        received = torch.empty_like(tensor)
        dist.recv(received, src=rank ^ reach)
        work.wait()
        tensor = torch.minimum(tensor, received)
        reach *= 2
    return tensor

# %% tree_broadcast: of ranks that fill in what they know
# Not yet. No message from rank 0 reached rank 1, either directly or through other ranks.
def tree_broadcast(tensor):
    if rank in (1, 2):
        dist.send(tensor, dst=3)
    if rank == 3:
        dist.recv(tensor, src=1)
        dist.recv(tensor, src=2)
        dist.send(tensor, dst=2)
    if rank == 2:
        dist.recv(tensor, src=3)
    return tensor.fill_(1)

# %% overlap: solution
# Solved. Every rank computed while its messages were under way.

# %% overlap: skeleton, with the skeleton of ring_shift
# Not yet. Rank 0 holds 1.0, expected 4.0.
# skeleton of ring_shift
# skeleton

# %% overlap: skeleton
# Not yet. Rank 0 waited for its send before the computation ended, expected the wait afterwards.
# solution of ring_shift
# skeleton

# %% overlap: receive first
# Solved. ...
def overlap(tensor, compute):
    received = torch.empty_like(tensor)
    works = [dist.irecv(received, left), dist.isend(tensor, right)]
    result = compute()
    [work.wait() for work in works]
    return result, received

# %% overlap: send first
# Solved. ...
def overlap(tensor, compute):
    sent = dist.isend(tensor, right)
    received = torch.zeros_like(tensor)
    arrived = dist.irecv(received, left)
    result = compute()
    arrived.wait()
    sent.wait()
    return (result, received)

# %% overlap: that waits first
# Not yet. Rank 0 waited for its send before the computation ended, expected the wait afterwards.
def overlap(tensor, compute):
    received = torch.empty_like(tensor)
    works = [dist.isend(tensor, right), dist.irecv(received, left)]
    works[1].wait()
    works[0].wait()
    result = compute()
    return result, received

# %% overlap: that waits for the receive first
# Not yet. Rank 0 waited for its receive before the computation ended, expected the wait afterwards.
def overlap(tensor, compute):
    received = torch.empty_like(tensor)
    works = [dist.isend(tensor, right), dist.irecv(received, left)]
    works[1].wait()
    result = compute()
    works[0].wait()
    return result, received

# %% overlap: that computes first
# Not yet. Rank 0 began the computation before it posted its send, expected the send first.
def overlap(tensor, compute):
    result = compute()
    received = torch.empty_like(tensor)
    works = [dist.isend(tensor, right), dist.irecv(received, left)]
    for work in works:
        work.wait()
    return result, received

# %% overlap: that computes twice
# Not yet. Rank 0 called `compute()` 2 times, expected once.
def overlap(tensor, compute):
    received = torch.empty_like(tensor)
    works = [dist.isend(tensor, right), dist.irecv(received, left)]
    compute()
    result = compute()
    works[1].wait()
    works[0].wait()
    return result, received

# %% overlap: that knows the result
# Not yet. Rank 0 called `compute()` 0 times, expected once.
def overlap(tensor, compute):
    received = torch.empty_like(tensor)
    works = [dist.isend(tensor, right), dist.irecv(received, left)]
    result = rank + 1
    works[1].wait()
    works[0].wait()
    return result, received

# %% overlap: that never waits for the send
# Not yet. Rank 0 never waited for its send to rank 1, so that message may be lost. Keep the work object that isend
# returns, and call its wait(). Run the lesson again, from the cell with `World` to this check.
# answer "that knows the result", with `result = rank + 1` as `result = compute()`
# and `works[0].wait()` as `dist.barrier()`

# %% overlap: in the wrong order of results
# Not yet. Rank 0 returned a tensor of shape [16] first, expected 1.0, the result of `compute()`.
# skeleton, with `received = ring_shift(tensor)` as `return tensor, compute()`, without `return compute(), received`

# %% my_swap: solution
# Solved. Each of the two ranks received the tensor of the other rank, without a deadlock.

# %% my_swap: the lesson's by_parity
# Solved. Each of the two ranks received the tensor of the other rank, without a deadlock.
# cell `def by_parity(`
my_swap = by_parity

# %% my_swap: the lesson's by_isend
# Solved. Each of the two ranks received the tensor of the other rank, without a deadlock.
# cell `def by_parity(`
my_swap = by_isend

# %% my_swap: the lesson's by_batch
# Solved. Each of the two ranks received the tensor of the other rank, without a deadlock.
# cell `def by_parity(`
my_swap = by_batch

# %% my_swap: by two works
# Solved. ...
def my_swap(mine, received):
    receiving = dist.irecv(received, 1 - rank)
    sending = dist.isend(mine, 1 - rank)
    sending.wait()
    receiving.wait()

# %% my_swap: skeleton
# Not yet. Rank 0 holds 0.0, expected 2.0.

# %% my_swap: that both begin with send
# Not yet. Deadlock ... Run the lesson again, from the cell with `World` to this check.
# skeleton, with `other = 1 - rank` as `dist.send(mine, 1 - rank); dist.recv(received, 1 - rank)`

# %% my_swap: that forgets to wait
# Not yet. Rank 0 never waited ... Run the lesson again, from the cell with `World` to this check.
# skeleton, with `other = 1 - rank` as `dist.isend(mine, 1 - rank); dist.irecv(received, 1 - rank)`

# %% my_swap: of one half
# Not yet. Rank 0 holds 0.0, expected 2.0.
def my_swap(mine, received):
    if rank == 0:
        dist.send(mine, 1)
    else:
        dist.recv(received, 0)

# %% my_swap: in two halves
# Not yet. Rank 0 sent 2 messages, expected 1.
def my_swap(mine, received):
    for half in (slice(0, 8), slice(8, 16)):
        work = dist.isend(mine[half], 1 - rank)
        dist.recv(received[half], 1 - rank)
        work.wait()

# %% World(2), World(3), World(5), World(8): my_swap, ring_shift, gather, tree_broadcast, overlap
