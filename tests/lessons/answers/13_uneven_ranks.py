# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`

# %% my_joined: solution
# Solved. Every rank took every step, each with the mean gradient of the ranks that had a batch.

# %% my_joined: skeleton
# Not yet. With 2 batches on every rank, on rank 0 the weights are [...] after training, expected [...]. It seems that they are the weights of this rank alone.

# %% my_joined: divides by all ranks
# Not yet. With r + 1 batches on rank r, on rank 0 the weights are [...] after training, expected [...]. It seems that the gradients are divided by the number of all ranks.
# solution, with `parameter.grad /= taking_part` as `parameter.grad /= n`

# %% my_joined: leaves early
# Not yet. Deadlock: ... Run the lesson again, from the cell with `World` to this check.
def my_joined(model, optimizer, batches):
    for batch in batches:
        optimizer.zero_grad()
        model(batch).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= n
        optimizer.step()

# %% my_joined: agrees on the longest list first
# Solved. ...
def my_joined(model, optimizer, batches):
    batches = list(batches)
    counts = [None] * n
    dist.all_gather_object(counts, len(batches))
    for step in range(max(counts)):
        optimizer.zero_grad(set_to_none=False)
        if step < len(batches):
            model(batches[step]).sum().backward()
        for parameter in model.parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(gradient)
            parameter.grad = gradient / sum(count > step for count in counts)
        optimizer.step()

# %% my_joined: one message for all
# Solved. ...
def my_joined(model, optimizer, batches):
    batches = iter(batches)
    parameters = list(model.parameters())
    while True:
        batch = next(batches, None)
        message = torch.zeros(1 + sum(p.numel() for p in parameters))
        if batch is not None:
            gradients = torch.autograd.grad(model(batch).sum(), parameters)
            message = torch.cat([torch.ones(1), *(g.flatten() for g in gradients)])
        dist.all_reduce(message)
        if message[0] == 0:
            break
        for p, g in zip(parameters, (message[1:] / message[0]).split([p.numel() for p in parameters])):
            p.grad = g.view_as(p)
        optimizer.step()

# %% my_joined: weights the loss
# Solved. ...
def my_joined(model, optimizer, batches):
    batches, has_batch = iter(batches), True
    while True:
        batch = next(batches, None)
        taking_part = torch.tensor([batch is not None], dtype=torch.int64)
        dist.all_reduce(taking_part)
        if not taking_part:
            return
        loss = 0 * sum(p.sum() for p in model.parameters())
        if batch is not None:
            loss = loss + model(batch).sum() / taking_part.item()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()

# %% my_joined: sums
# Not yet. With 2 batches on every rank, on rank 0 the weights are [...] after training, expected [...]. It seems that the gradients are sums, not means.
# solution, without `parameter.grad /= taking_part`

# %% my_joined: keeps the gradient of an earlier step
# Not yet. With r + 1 batches on rank r, on rank 0 the weights are [...] after training, expected [...].
# solution, with `        optimizer.zero_grad()` as `        if batch is not None: optimizer.zero_grad()`

# %% my_joined: never removes gradients
# Not yet. With 2 batches on every rank, on rank 0 the weights are [...] after training, expected [...].
# solution, without `optimizer.zero_grad()`

# %% my_joined: no step without a batch
# Not yet. With r + 1 batches on rank r, rank 0 took 1 step, expected 4.
# solution, with `        optimizer.step()` as `        if batch is not None: optimizer.step()`

# %% my_joined: broadcasts the weights at the end
# Not yet. With r + 1 batches on rank r, rank 0 took 1 step, expected 4.
# solution, with `            return` as `            [dist.broadcast(p.data, src=n - 1) for p in model.parameters()]; return`
# and `        optimizer.step()` as `        if batch is not None: optimizer.step()`

# %% my_joined: ends when the gradients are 0
# Not yet. With 2 batches on every rank, whose first gradients add up to 0, rank 0 took 0 steps, expected 2.
def my_joined(model, optimizer, batches):
    batches = iter(batches)
    while True:
        batch = next(batches, None)
        optimizer.zero_grad()
        taking_part = torch.tensor(float(batch is not None))
        dist.all_reduce(taking_part)
        if batch is not None:
            model(batch).sum().backward()
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
        if all(parameter.grad.abs().max() < 1e-6 for parameter in model.parameters()):
            return
        for parameter in model.parameters():
            parameter.grad /= taking_part
        optimizer.step()

# %% my_joined: as long as the shortest list
# Not yet. With r + 1 batches on rank r, rank 0 took 1 step, expected 4.
# solution, with `if taking_part == 0:` as `if taking_part < n:`

# %% my_joined: None stays None
# Not yet. ... TypeError: ...
# solution, without `if parameter.grad is None:` and without `parameter.grad = torch.zeros_like(parameter)`

# %% my_joined: without an optimizer
# Not yet. With 2 batches on every rank, rank 0 took 0 steps, expected 2.
# solution, without `optimizer.step()`

# %% straggler: solution
# Solved. Every rank named each of the 4 stragglers, and none where there was none.

# %% straggler: skeleton
# Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 0 returned None, expected 0.

# %% straggler: sorted tensors
# Solved. ...
def straggler(seconds):
    every = [torch.zeros(1) for _ in range(n)]
    dist.all_gather(every, torch.tensor([float(seconds)]))
    values, ranks = torch.cat(every).sort()
    return ranks[0].item() if 2 * values[0] <= values[1] else None

# %% straggler: a sum of places
# Solved. ...
def straggler(seconds):
    every = torch.zeros(n, dtype=torch.float64)
    every[rank] = seconds
    dist.all_reduce(every)
    least = int(every.argmin())
    others = [s for r, s in enumerate(every.tolist()) if r != least]
    if every[least] > min(others) / 2:
        return None
    return least

# %% straggler: pairs
# Solved. ...
def straggler(seconds):
    pairs = [None] * n
    dist.all_gather_object(pairs, (seconds, rank))
    (least, who), (following, _), *_ = sorted(pairs)
    return who if least / following <= 0.5 else None

# %% straggler: that communicates most
# Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 0 returned 1, expected 0.
# solution, with `    return int(everywhere.argmin()) if least <= following / 2 else None`
# as `    return int(everywhere.argmax())`

# %% straggler: always
# Not yet. When the ranks communicate for 1, 1, 1, 1 s, rank 0 returned 0, expected None.
# solution, with `    return int(everywhere.argmin()) if least <= following / 2 else None`
# as `    return int(everywhere.argmin())`

# %% straggler
# Not yet. When the ranks communicate for 0.2, 0.3, 1, 1 s, rank 0 returned 0, expected None.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return everywhere.index(min(everywhere)) if min(everywhere) <= max(everywhere) / 2 else None

# %% straggler
# Not yet. When the ranks communicate for 0.2, 0.3, 1, 1 s, rank 0 returned 0, expected None.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return everywhere.index(min(everywhere)) if min(everywhere) <= sum(everywhere) / n / 2 else None

# %% straggler
# Not yet. When the ranks communicate for 0.6, 1, 1, 1 s, rank 0 returned 0, expected None.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return everywhere.index(min(everywhere)) if min(everywhere) <= 2 * 0.9 * sorted(everywhere)[1] / 2 else None

# %% straggler
# Not yet. When the ranks communicate for 0.4, 1, 1, 1 s, rank 0 returned None, expected 0.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return everywhere.index(min(everywhere)) if min(everywhere) <= 2 * 0.3 * sorted(everywhere)[1] / 2 else None

# %% straggler: known to itself only
# Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 1 returned None, expected 0.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return rank if seconds < sorted(everywhere)[1] / 2 else None

# %% token_weights: solution
# Solved. The weighted sums give the mean over all tokens of all ranks.

# %% token_weights: skeleton
# Not yet. With 1 and r + 1 tokens on rank r, in micro-batch 0 rank 0 counts each token 3.50 times ...

# %% token_weights: mean of means
# Not yet. With 1 and r + 1 tokens on rank r, in micro-batch 0 rank 0 counts each token 1.75 times ...
def token_weights(masks):
    return [1 / (len(masks) * max(1, mask.sum().item())) for mask in masks]

# %% token_weights: n times too small
# Not yet. With 1 and r + 1 tokens on rank r, in micro-batch 0 rank 0 counts each token 0.25 times ... DDP divides ...
# solution, with `n / total.item()` as `1 / total.item()`

# %% token_weights: tokens of this rank
# Not yet. With 1 and r + 1 tokens on rank r, in micro-batch 0 rank 0 counts each token 1.75 times ...
def token_weights(masks):
    return [1 / max(1, sum(mask.sum().item() for mask in masks)) for mask in masks]

# %% token_weights: as a tensor each
# Solved. ...
def token_weights(masks):
    counts = [None] * n
    dist.all_gather_object(counts, sum(mask.sum().item() for mask in masks))
    return [torch.tensor(1 / (sum(counts) / n))] * len(masks)

# %% World(2), World(5): my_joined, straggler, token_weights
