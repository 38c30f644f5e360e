# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
# cell `def average_of_the_lesson(`
average = average_of_the_lesson

# %% my_average: solution
# Solved. The future holds the mean over all ranks, on every rank.

# %% my_average: skeleton
# Not yet. On rank 0 the future holds [0.0, 4.0, 1.0], expected the means [3.0, 2.5, 1.0].

# %% my_average
# Solved. ...
# solution, with `tensor / dist.get_world_size()` as `tensor.div_(n)`

# %% my_average
# Solved. ...
# solution, with `tensor / dist.get_world_size()` as `tensor` and `done.value()[0]` as `done.value()[0] / n`

# %% my_average
# Solved. ...
def my_average(tensor):
    dist.all_reduce(tensor)
    ready = torch.futures.Future()
    ready.set_result(tensor / n)
    return ready

# %% my_average
# Not yet. On rank 0 the future holds [12.0, 10.0, 4.0], expected the means [3.0, 2.5, 1.0].
# solution, with `tensor / dist.get_world_size()` as `tensor`

# %% my_average
# Not yet. Rank 0 returned the future of a list, expected the future of a tensor.
def my_average(tensor):
    return dist.all_reduce(tensor.div_(n), async_op=True).get_future()

# %% my_average
# Not yet. Rank 0 returned a tensor of shape [3], expected the future of a tensor.
def my_average(tensor):
    work = dist.all_reduce(tensor.div_(n), async_op=True)
    work.wait()
    return tensor

# %% my_average
# Not yet. On rank 0 the future holds [0.0, 4.0, 1.0], expected the means [3.0, 2.5, 1.0].
def my_average(tensor):
    work = dist.all_reduce(tensor / n, async_op=True)
    work.wait()
    ready = torch.futures.Future()
    ready.set_result(tensor)
    return ready

# %% accumulate_all: solution
# Solved. With 3 batches and with 1, every rank sent 496 bytes and has the gradients of one process.

# %% accumulate_all: skeleton
# Not yet. With 3 batches, rank 0 sent 1488 bytes of gradients, expected 496.

# %% accumulate_all: its own all_reduce
# Solved. ...
def accumulate_all(model, parts):
    for inputs, labels in parts:
        with model.no_sync():
            (cross_entropy(model(inputs), labels) / len(parts)).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= n

# %% accumulate_all: its own all_reduce, on the bare model, in one tensor
# Solved. ...
def accumulate_all(model, parts):
    for inputs, labels in parts:
        (cross_entropy(model.module(inputs), labels) / len(parts) / n).backward()
    flat = nn.utils.parameters_to_vector(parameter.grad for parameter in model.parameters())
    dist.all_reduce(flat)
    for parameter, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
        parameter.grad = part.view_as(parameter)

# %% accumulate_all: its own mean of the gradients of all ranks
# Solved. ...
def accumulate_all(model, parts):
    for inputs, labels in parts:
        (cross_entropy(model.module(inputs), labels) / len(parts)).backward()
    for parameter in model.parameters():
        gathered = [torch.empty_like(parameter) for _ in range(n)]
        dist.all_gather(gathered, parameter.grad)
        parameter.grad = torch.stack(gathered).mean(0)

# %% accumulate_all: divided at the end
# Solved. ...
def accumulate_all(model, parts):
    *most, last = parts
    with model.no_sync():
        for inputs, labels in most:
            cross_entropy(model(inputs), labels).backward()
    cross_entropy(model(last[0]), last[1]).backward()
    for parameter in model.parameters():
        parameter.grad.div_(len(parts))

# %% accumulate_all: a sum
# Not yet. With 3 batches, on rank 0 the gradients are 3.00 times those of one process on all batches, ...
def accumulate_all(model, parts):
    for number, (inputs, labels) in enumerate(parts, start=1):
        with model.no_sync() if number < len(parts) else nullcontext():
            cross_entropy(model(inputs), labels).backward()

# %% accumulate_all
# Not yet. With 3 batches, rank 0 did not take one batch after the other, each with its backward.
def accumulate_all(model, parts):
    inputs, labels = map(torch.cat, zip(*parts))
    cross_entropy(model(inputs), labels).backward()

# %% accumulate_all
# Not yet. With 3 batches, rank 0 did not take one batch after the other, each with its backward.
def accumulate_all(model, parts):
    losses = []
    for number, (inputs, labels) in enumerate(parts, start=1):
        with model.no_sync() if number < len(parts) else nullcontext():
            losses.append(cross_entropy(model(inputs), labels) / len(parts))
    sum(losses).backward()

# %% accumulate_all: in silence to the end
# Not yet. With 3 batches, rank 0 sent 0 bytes of gradients, expected 496.
# solution, with `number < len(parts)` as `True`

# %% accumulate_all: with forward outside
# Not yet. With 3 batches, rank 0 sent 1488 bytes of gradients, expected 496.
def accumulate_all(model, parts):
    for number, (inputs, labels) in enumerate(parts, start=1):
        loss = cross_entropy(model(inputs), labels) / len(parts)
        with model.no_sync() if number < len(parts) else nullcontext():
            loss.backward()

# %% accumulate_all: that sends the first batch
# Not yet. With 3 batches, on rank 0 the gradient of 0.weight differs from those of one process on all batches, ...
# solution, with `number < len(parts)` as `number > 1`

# %% accumulate_all: that leaves the last batch out
# Not yet. With 3 batches, on rank 0 the gradient of 0.weight differs from those of one process on all batches, ...
def accumulate_all(model, parts):
    inputs, labels = (torch.cat(tensors) for tensors in zip(*parts[: max(1, len(parts) - 1)]))
    cross_entropy(model(inputs), labels).backward()

# %% accumulate_all: for three only
# Not yet. With 1 batch, on rank 0 the gradients are 0.33 times those of one process on all batches, ...
# solution, with `len(parts)).backward(` as `3).backward(`

# %% accumulate_all: on the bare model
# Not yet. With 3 batches, rank 0 sent 0 bytes of gradients, expected 496.
# skeleton, with `cross_entropy(model(inputs), labels)` as `(cross_entropy(model.module(inputs), labels) / len(parts))`

# %% weigh: solution
# Solved. Every sample has the same weight, whichever rank has it, after one all-reduce for each bucket.

# %% weigh: skeleton
# Not yet. With r + 1 samples on rank r, on rank 0 the gradient of 0.weight differs from those of one process,
# expected equal gradients.

# %% weigh: with the mean number of samples
# Not yet. With r + 1 samples on rank r, on rank 0 the gradients are 4.00 times those of one process, expected equal ...
def weigh(samples, bucket):
    message = torch.cat([samples * bucket.buffer(), torch.tensor([float(samples)])])
    work = dist.all_reduce(message, async_op=True)
    return work.get_future().then(lambda done: done.value()[0][:-1] * n / done.value()[0][-1])

# %% weigh: waits
# Solved. ...
def weigh(samples, bucket):
    message = torch.cat([torch.tensor([float(samples)]), bucket.buffer() * samples])
    dist.all_reduce(message)
    future = torch.futures.Future()
    future.set_result(bucket.buffer().copy_(message[1:] / message[0]))
    return future

# %% weigh: double precision
# Solved. ...
def weigh(samples, bucket):
    message = bucket.buffer().new_empty(bucket.buffer().numel() + 1, dtype=torch.float64)
    message[:-1] = bucket.buffer()
    message[-1] = 1
    work = dist.all_reduce(message.mul_(samples), async_op=True)
    return work.get_future().then(lambda done: (done.value()[0][:-1] / done.value()[0][-1]).float())

# %% weigh: by a constant
# Not yet. With 3 samples on rank 0 and 1 on each other rank, on rank 0 the gradients are 0.60 times those of one
# process, expected equal gradients.
def weigh(samples, bucket):
    work = dist.all_reduce(bucket.buffer().mul_(samples / (n * (n + 1) / 2)), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])

# %% weigh: with two collectives
# Not yet. Rank 0 called 2 all_reduce for a bucket, expected 1 all_reduce.
def weigh(samples, bucket):
    count = torch.tensor(float(samples))
    dist.all_reduce(count)
    work = dist.all_reduce(bucket.buffer().mul_(samples / count), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])

# %% weigh: without the others
# Not yet. Rank 0 called no collective for a bucket, expected 1 all_reduce.
def weigh(samples, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future

# %% weigh: with the future of the work
# Not yet. Rank 0 raised TypeError: the future of your hook holds no tensor, as that of `average` does
# skeleton, with `average(bucket.buffer())` as `dist.all_reduce(bucket.buffer(), async_op=True).get_future()`

# %% weigh: that returns a tensor
# Not yet. Rank 0 returned a tensor of shape [124], expected a future.
# skeleton, with `return average(bucket.buffer())` as `dist.all_reduce(bucket.buffer()); return bucket.buffer()`

# %% weigh: that raises
# Not yet. Rank 0 raised TypeError: ...
# skeleton, with `def weigh(samples, bucket):` as `def weigh(samples):` and `return average(bucket.buffer())` as `pass`

# %% weigh: that is not there
# Not yet. Rank 0 has no function `weigh`: run the cell that defines it, then this check.
globals().pop("weigh", None)

# %% weigh: on one rank only
# Not yet. Deadlock: ... Call world.restart(), then run the lesson again, from its setup cell to this check.
def weigh(samples, bucket):
    if rank == 0:
        return average(bucket.buffer())

# %% World(2), World(5): accumulate_all, weigh
