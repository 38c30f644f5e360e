# %% World(4)
# cell `init_process_group(`
# cell `def one_step(`, up to `@torch.no_grad()`
# cell `def weights_of(`

# %% my_local_sgd: solution
# Solved. Every rank trained on its batches, and continued after each round from what `synchronise` returned.

# %% my_local_sgd: skeleton
# Not yet. With a period of 3 and 7 batches, rank 0 called `synchronise` 0 times, expected 2.

# %% my_local_sgd: also after the last step
# Not yet. With a period longer than the training, rank 0 called `synchronise` once, expected no call.
def my_local_sgd(model, optimizer, batches, period, synchronise):
    start = weights_of(model)
    for number, batch in enumerate(batches, start=1):
        one_step(model, optimizer, batch)
        if number % period == 0 or number == 7:
            start = synchronise(start, weights_of(model))
            set_weights(model, start)

# %% my_local_sgd: from the first start
# Not yet. With a period of 3 and 7 batches, at the end of round 2 on rank 0 `start` is off by ..., expected the weights from which the round started, in a vector of its own.
# solution, with `start = synchronise` as `after = synchronise` and `set_weights(model, start)` as `set_weights(model, after)`

# %% my_local_sgd: does not load
# Not yet. With a period of 3 and 7 batches, at the end of round 2 on rank 0 `own` is off by ..., expected the weights
# after 3 steps from the weights that `synchronise` returned last.
# solution, without `set_weights(model, start)`

# %% my_local_sgd: counts from 0
# Not yet. With a period longer than the training, rank 0 called `synchronise` once, expected no call.
# solution, with `start=1` as `start=0`

# %% my_local_sgd: the start is a view of the model
# Not yet. With a period of 3 and 7 batches, at the end of round ... on rank 0 `start` is off by ...
def my_local_sgd(model, optimizer, batches, period, synchronise):
    for parameter, view in zip(model.parameters(), weights_of(model).split([p.numel() for p in model.parameters()])):
        parameter.data = view.view_as(parameter)
    start = next(model.parameters()).data.untyped_storage()
    start = torch.tensor([], dtype=torch.float32).set_(start)
    for number, batch in enumerate(batches, start=1):
        one_step(model, optimizer, batch)
        if number % period == 0:
            start.copy_(synchronise(start, weights_of(model)))

# %% my_local_sgd: fetches all batches first
# Not yet. The weights are right, but rank 0 fetched a batch before it had taken the step on the previous batch. Fetch
# one batch, take its step, then fetch the next batch.
# solution, with `enumerate(batches, start=1)` as `enumerate(list(batches), start=1)`

# %% my_local_sgd: stops after the last full round
# Not yet. Rank 0 used 0 of 7 batches, expected all of them.
def my_local_sgd(model, optimizer, batches, period, synchronise):
    count = 7 // period * period
    start = weights_of(model)
    for number in range(1, count + 1):
        one_step(model, optimizer, next(batches))
        if number % period == 0:
            start = synchronise(start, weights_of(model))
            set_weights(model, start)

# %% my_local_sgd: with a count of its own
# Solved. ...
def my_local_sgd(model, optimizer, batches, period, synchronise):
    start, left = weights_of(model), period
    for batch in batches:
        one_step(model, optimizer, batch)
        left -= 1
        if not left:
            left = period
            start = synchronise(start, own=weights_of(model))
            set_weights(model, start)

# %% my_outer_step: solution
# Solved. Every rank returned the same start and velocity, after one all_reduce.

# %% my_outer_step: skeleton
# Not yet. With eta = 1 and mu = 0, on rank 0 the new start is ..., expected the mean of `own` over the ranks, ...

# %% my_outer_step: the other sign
# Not yet. With eta = 1 and mu = 0, on rank 0 the new start is ..., expected the mean of `own` over the ranks, ...
# solution, with `start - mean(own)` as `mean(own) - start`

# %% my_outer_step: always the average
# Not yet. With eta = 0.5 and mu = 0, on rank 0 the new start is ..., expected half of the way to the mean, ...
def my_outer_step(start, own, velocity, eta=0.7, mu=0.9):
    return mean(own), velocity

# %% my_outer_step: momentum without Nesterov
# Not yet. With a velocity of zeros, eta = 0.7 and mu = 0.9, on rank 0 the new start is ..., expected start - eta * (g + mu * v), ...
# solution, with `(pseudo_gradient + mu * velocity)` as `velocity`

# %% my_outer_step: forgets the velocity
# Not yet. With a velocity, eta = 0.7 and mu = 0.9, on rank 0 the new velocity is ..., expected mu * v + g, ...
# solution, with `velocity = mu * velocity + pseudo_gradient` as `velocity = pseudo_gradient`

# %% my_outer_step: the old velocity
# Not yet. With a velocity of zeros, eta = 0.7 and mu = 0.9, on rank 0 the new start is ...
def my_outer_step(start, own, velocity, eta=0.7, mu=0.9):
    g = start - mean(own)
    return start - eta * (g + mu * velocity), mu * velocity + g

# %% my_outer_step: averages everything
# Not yet. The values are right. Rank 0 called 2 all_reduce, expected 1 all_reduce.
# solution, with `start - mean(own)` as `mean(start) - mean(own)`

# %% my_outer_step: changes the velocity
# Not yet. The values are right, but rank 0 changed an argument, expected all arguments to stay unchanged.
# solution, with `velocity = mu * velocity + pseudo_gradient` as `velocity.mul_(mu).add_(pseudo_gradient)`

# %% my_outer_step: returns the start alone
# Not yet. Rank 0 returned a tensor of shape [6], expected two vectors of 6 elements: the next start and the next velocity.
# solution, with `(pseudo_gradient + mu * velocity), velocity` as `(pseudo_gradient + mu * velocity)`

# %% my_outer_step: by torch.optim
# Solved. ...
def my_outer_step(start, own, velocity, eta=0.7, mu=0.9):
    parameter = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.SGD([parameter], lr=eta, momentum=mu, nesterov=mu > 0)
    optimizer.state[parameter]["momentum_buffer"] = velocity.clone()
    parameter.grad = start - mean(own)
    optimizer.step()
    return [parameter.detach(), optimizer.state[parameter].get("momentum_buffer")]

# %% pooled_statistics: solution
# Solved. Every rank holds the mean and the variance over the samples of all ranks.

# %% pooled_statistics: skeleton
# Not yet. `running_mean` is right. On rank 0 `running_var` is ..., expected ...: the mean of the variances plus the
# variance of the means.

# %% pooled_statistics: with the new mean
# Not yet. `running_mean` is right. On rank 0 `running_var` is ...
def pooled_statistics(norm):
    norm.running_mean.copy_(mean(norm.running_mean))
    squares = mean(norm.running_var + norm.running_mean**2)
    norm.running_var.copy_(squares - norm.running_mean**2)

# %% pooled_statistics: in three collectives
# Not yet. The statistics are right. Rank 0 called 3 all_reduce, expected at most 2 collectives.
def pooled_statistics(norm):
    new_mean = mean(norm.running_mean)
    variance = mean(norm.running_var) + mean((norm.running_mean - new_mean) ** 2)
    norm.running_mean.copy_(new_mean)
    norm.running_var.copy_(variance)

# %% pooled_statistics: in one collective
# Solved. ...
def pooled_statistics(norm):
    both = mean(torch.stack([norm.running_mean, norm.running_var + norm.running_mean**2]))
    norm.running_mean = both[0]
    norm.running_var = both[1] - both[0] ** 2

# %% streamed_average: solution
# Solved. Every rank averaged only the fragment whose turn it was, with one all_reduce of this fragment.

# %% streamed_average: skeleton
# Not yet. With number = 0 and fragments = 3, rank 0 returned ..., expected ...

# %% streamed_average: sends everything
# Not yet. With number = 0 and fragments = 3, the values are right. Rank 0 passed [24] bytes, expected [8].
def streamed_average(own, number, fragments):
    parts, means = list(own.tensor_split(fragments)), mean(own).tensor_split(fragments)
    parts[number % fragments] = means[number % fragments]
    return torch.cat(parts)

# %% streamed_average: does not begin again
# Not yet. Rank 0 raised IndexError: ...
# solution, with `number % fragments` as `number`

# %% streamed_average: in place
# Not yet. The values are right, but rank 0 changed `own`, expected it unchanged.
def streamed_average(own, number, fragments):
    part = own.tensor_split(fragments)[number % fragments]
    part.copy_(mean(part))
    return own

# %% World(2), World(5): my_local_sgd, my_outer_step, pooled_statistics, streamed_average
