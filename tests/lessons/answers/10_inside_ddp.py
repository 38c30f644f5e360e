# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
# cell `def hook_of_the_lesson(`
hook = hook_of_the_lesson

# %% my_hook: solution
# Solved. The hook noted the parameters of each bucket, and every rank has the mean gradients of all ranks.

# %% my_hook: skeleton
# Not yet. For a bucket that holds `0.weight`, rank 0 appended nothing to `sent`, expected one list of the bucket's
# parameters.

# %% my_hook: that divides in place
# Solved. ...
# solution, with `bucket.buffer() / dist.get_world_size()` as `bucket.buffer().div_(n)`

# %% my_hook: that divides afterwards
# Solved. ...
# solution, with `bucket.buffer() / dist.get_world_size()` as `bucket.buffer()` and `done.value()[0]` as `done.value()[0] / n`

# %% my_hook: that appends afterwards, a tuple
# Solved. ...
def my_hook(sent, bucket):
    future = dist.all_reduce(bucket.buffer().div_(n), async_op=True).get_future()
    sent.append(tuple(bucket.parameters()))

    def first(done):
        (tensor,) = done.value()
        return tensor

    return future.then(first)

# %% my_hook: that appends nothing
# Not yet. For a bucket that holds `0.weight`, rank 0 appended nothing to `sent`, expected one list of the
# bucket's parameters.
# solution, without `sent.append(bucket.parameters())`

# %% my_hook: that sends nothing
# Not yet. On rank 0 the gradient of 0.weight differs from the mean over all ranks, expected equal gradients.
# skeleton, with `future = ` as `sent.append(bucket.parameters()); future = `

# %% my_hook: a sum
# Not yet. On rank 0 the gradients are 4.00 times the mean over all ranks, expected equal gradients.
# solution, with `bucket.buffer() / dist.get_world_size()` as `bucket.buffer()`

# %% my_hook: that divides twice
# Not yet. On rank 0 the gradients are 0.25 times the mean over all ranks, expected equal gradients.
# solution, with `done.value()[0]` as `done.value()[0] / n`

# %% my_hook: that waits
# Not yet. Rank 0 waited in the hook, expected a hook that returns at once: the backward pass stands still until the
# hook returns.
def my_hook(sent, bucket):
    sent.append(bucket.parameters())
    dist.all_reduce(bucket.buffer().div_(n))
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future

# %% my_hook: that waits for its work
# Not yet. Rank 0 waited in the hook, expected a hook that returns at once: ...
# solution, with `    return ` as `    work.wait(); return `

# %% my_hook: that does not wait for its work
# Not yet. On rank 0 ... the mean over all ranks, expected equal gradients.
def my_hook(sent, bucket):
    sent.append(bucket.parameters())
    mean = bucket.buffer() / n
    dist.all_reduce(mean.clone(), async_op=True)
    future = torch.futures.Future()
    future.set_result(mean)
    return future

# %% my_hook: that extends
# Not yet. For a bucket that holds `0.weight`, rank 0 appended 6 entries to `sent`, expected one list of the
# bucket's parameters.
# solution, with `append` as `extend`

# %% my_hook: that appends the buffer
# Not yet. For a bucket that holds `0.weight`, rank 0 appended a single tensor to `sent`, expected one list of
# the bucket's parameters.
# solution, with `append(bucket.parameters())` as `append(bucket.buffer())`

# %% my_hook: that appends the gradients
# Not yet. For a bucket that holds `0.weight`, rank 0 appended the list ['Tensor', ...] to `sent`, expected one
# list of the bucket's parameters.
# solution, with `append(bucket.parameters())` as `append(bucket.gradients())`

# %% my_hook: that appends the sizes
# Not yet. For a bucket that holds `0.weight`, rank 0 appended the list ['int', ...] to `sent`, expected one list
# of the bucket's parameters.
# solution, with `append(bucket.parameters())` as `append([p.nbytes for p in bucket.parameters()])`

# %% my_hook: the future of the work
# Not yet. Rank 0 raised TypeError: the future of your hook holds no tensor, expected a future of one tensor
def my_hook(sent, bucket):
    sent.append(bucket.parameters())
    return dist.all_reduce(bucket.buffer().div_(n), async_op=True).get_future()

# %% my_hook: the work
# Not yet. Rank 0 returned a ..., expected a future.
def my_hook(sent, bucket):
    sent.append(bucket.parameters())
    return dist.all_reduce(bucket.buffer().div_(n), async_op=True)

# %% my_hook: without return
# Not yet. Rank 0 returned None, expected a future.
def my_hook(sent, bucket):
    sent.append(bucket.parameters())
    dist.all_reduce(bucket.buffer().div_(n), async_op=True)

# %% my_hook: one all-reduce for each gradient
# Not yet. Rank 0 called 6 all_reduce for a bucket, expected 1 all_reduce.
def my_hook(sent, bucket):
    sent.append(bucket.parameters())
    works = [dist.all_reduce(gradient.div_(n), async_op=True) for gradient in bucket.gradients()]
    futures = torch.futures.collect_all([work.get_future() for work in works])
    return futures.then(lambda done: bucket.buffer())

# %% my_last_arrival: solution
# Solved. The last bucket arrives at the right time in all 7 cases.

# %% my_last_arrival: skeleton
# Not yet. With a link that is idle between the buckets: full = [1.0, 9.0], sizes = [2.0, 2.0], n = 2, alpha = 0.5,
# beta = 1.0, rank 0 returned 14.0, expected 12.

# %% my_last_arrival: without the wait for the link
# Not yet. With a bucket that is full before its predecessor has arrived: ... returned 10.0, expected 13.
def my_last_arrival(full, sizes, n, alpha, beta):
    return max(ready + 2 * (n - 1) * (alpha + beta * size / n) for ready, size in zip(full, sizes))

# %% my_last_arrival: without the wait for the bucket
# Not yet. With one bucket and no latency: ... returned 6.0, expected 9.
# solution, with `max(arrived, ready)` as `arrived`

# %% my_last_arrival: adds up
# Not yet. With a link that is idle between the buckets: ... returned 16.0, expected 12.
# solution, with `max(arrived, ready)` as `(arrived + ready)`

# %% my_last_arrival: one latency for all
# Not yet. With a link that is idle between the buckets: ...
def my_last_arrival(full, sizes, n, alpha, beta):
    arrived = 0
    for ready, size in zip(full, sizes):
        arrived = max(arrived, ready) + 2 * (n - 1) * beta * size / n
    return arrived + 2 * (n - 1) * alpha / len(sizes)

# %% my_last_arrival: with a whole tensor in each message
# Not yet. With one bucket and no latency: ... returned 27.0, expected 9.
# solution, with `size / n` as `size`

# %% my_last_arrival: with one latency for an all-reduce
# Not yet. With one bucket and a latency: ... returned 9.25, expected 10.5.
# solution, with `2 * (n - 1) * (alpha + beta * size / n)` as `alpha + 2 * (n - 1) * beta * size / n`

# %% my_last_arrival: in the order in which the buckets are full
# Not yet. With bucket 1 full before bucket 0: ...
# solution, with `zip(full, sizes)` as `sorted(zip(full, sizes))`

# %% my_last_arrival: only the last bucket
# Not yet. With a bucket that is full before its predecessor has arrived: ... returned 5.0, expected 13.
def my_last_arrival(full, sizes, n, alpha, beta):
    return full[-1] + 2 * (n - 1) * (alpha + beta * sizes[-1] / n)

# %% my_last_arrival: without return
# Not yet. With one bucket and no latency: ... rank 0 returned None, expected 9.
# solution, with `return arrived` as `pass`

# %% my_last_arrival: as a tensor, by index
# Solved. ...
def my_last_arrival(full, sizes, n, alpha, beta):
    end = torch.tensor(0.0)
    for place in range(len(full)):
        begin = max(end, torch.tensor(full[place]))
        end = begin + 2 * (n - 1) * alpha + 2 * (n - 1) / n * beta * sizes[place]
    return end

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
# Not yet. With 3 batches, rank 0 combined its batches, expected one batch at a time, each with its own backward pass.
def accumulate_all(model, parts):
    inputs, labels = map(torch.cat, zip(*parts))
    cross_entropy(model(inputs), labels).backward()

# %% accumulate_all
# Not yet. With 3 batches, rank 0 combined its batches, expected one batch at a time, each with its own backward pass.
def accumulate_all(model, parts):
    losses = []
    for number, (inputs, labels) in enumerate(parts, start=1):
        with model.no_sync() if number < len(parts) else nullcontext():
            losses.append(cross_entropy(model(inputs), labels) / len(parts))
    sum(losses).backward()

# %% accumulate_all: in silence to the end
# Not yet. With 3 batches, rank 0 sent 0 bytes of gradients, expected 496.
# solution, with `parts[:-1]` as `parts` and `backward_of_share(*parts[-1])` as `pass`

# %% accumulate_all: with forward outside
# Not yet. With 3 batches, rank 0 sent 1488 bytes of gradients, expected 496.
def accumulate_all(model, parts):
    for number, (inputs, labels) in enumerate(parts, start=1):
        loss = cross_entropy(model(inputs), labels) / len(parts)
        with model.no_sync() if number < len(parts) else nullcontext():
            loss.backward()

# %% accumulate_all: that sends the first batch
# Not yet. With 3 batches, on rank 0 the gradient of 0.weight differs from those of one process on all batches, ...
def accumulate_all(model, parts):
    for number, (inputs, labels) in enumerate(parts, start=1):
        with model.no_sync() if number > 1 else nullcontext():
            (cross_entropy(model(inputs), labels) / len(parts)).backward()

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
# Not yet. Rank 0 raised TypeError: the future of your hook holds no tensor, expected a future of one tensor
# skeleton, with `hook([], bucket)` as `dist.all_reduce(bucket.buffer(), async_op=True).get_future()`

# %% weigh: that returns a tensor
# Not yet. Rank 0 returned a tensor of shape [124], expected a future.
# skeleton, with `return hook([], bucket)` as `dist.all_reduce(bucket.buffer()); return bucket.buffer()`

# %% weigh: that raises
# Not yet. Rank 0 raised TypeError: ...
# skeleton, with `def weigh(samples, bucket):` as `def weigh(samples):` and `return hook([], bucket)` as `pass`

# %% weigh: that is not there
# Not yet. Rank 0 has no function `weigh`: run the cell that defines it, then this check.
globals().pop("weigh", None)

# %% weigh: on one rank only
# Not yet. Deadlock: ... Run the lesson again, from the cell with `World` to this check.
def weigh(samples, bucket):
    if rank == 0:
        return hook([], bucket)

# %% World(2), World(5): my_hook, my_last_arrival, accumulate_all, weigh
