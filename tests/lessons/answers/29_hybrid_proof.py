# %% World(4)
import sys
import time
from helpers.course import NOTEBOOKS

sys.path.append(str(NOTEBOOKS))
# cell `start(` of solutions

from hybrid_model import new_optimizer

# %% my_one_process: solution
# Solved. Both parts of the model take the steps of the hybrid training, and both lists are right.

# %% my_one_process: skeleton
# Not yet. On trainer 0 `my_one_process` returned a list of 0 as the losses of 4 batches, expected a list of 4.

# %% my_one_process: one rate for both
# Not yet. On trainer 0 the first step moved the table 0.50 times as far as the hybrid training with 2 trainers ...
# solution, with `trainers * RATE` as `RATE`

# %% my_one_process: n times the rate for both
# Not yet. On trainer 0 the first step moved the dense layer 2.00 times as far as ...
# solution, with `lr=RATE` as `lr=trainers * RATE`

# %% my_one_process: adds up gradients
# Not yet. On trainer 0 the first step is right, but after 4 batches the dense layer differs, expected steps along ...
# solution, without `optimizer.zero_grad()`

# %% my_one_process: does not step
# Not yet. On trainer 0 the first step moved the dense layer 0.00 times as far as ...
# solution, without `optimizer.step()`

# %% my_one_process: forgets the bias
# Not yet. On trainer 0 the first step moved the bias of the dense layer 0.00 times as far as ...
# solution, with `model.dense.parameters()` as `[model.dense.weight]`

# %% my_one_process: the table as a sum over passages
# Not yet. On trainer 0 the first step moved the dense layer 12.00 times as far as ...
# solution, with `cross_entropy(model(rows, offsets), label)` as `cross_entropy(model(rows, offsets), label, reduction="sum")`

# %% my_one_process: no copy
# Not yet. On trainer 0 the model is right, but the dense weights of batch 0 equal those of the last batch, expected a ...
# solution, with `.detach().clone()` as `.detach()`

# %% my_one_process: copies before the step
# Not yet. On trainer 0 the model is right, but the dense weights of batch 0 were copied before the step ...
# solution, without `dense_weights.append(model.dense.weight.detach().clone())`,
# with `optimizer.zero_grad()` as `optimizer.zero_grad(); dense_weights.append(model.dense.weight.detach().clone())`

# %% my_one_process: the loss after the step
# Not yet. On trainer 0 the model is right, but the loss of batch 0 is ...
# solution, with `losses.append(loss.item())`
# as `losses.append(cross_entropy(model(rows, offsets), label).item())`

# %% my_one_process: the weights of the table
# Not yet. On trainer 0 the model is right, but the dense weights of batch 0 are a tensor of shape ...
# solution, with `dense_weights.append(model.dense.weight` as `dense_weights.append(model.table.weight`

# %% my_one_process: without return
# Not yet. On trainer 0 `my_one_process` returned None, expected two lists: the losses and the dense weights.
# solution, without `return losses, dense_weights`

# %% my_one_process: losses as tensors
# Solved. ...
# solution, with `loss.item()` as `loss.detach()`

# %% my_one_process: by hand, without an optimizer
# Solved. ...
RATE = 0.5

def my_one_process(model, batches):
    losses, dense_weights = [], []
    rates = {"dense.weight": RATE, "dense.bias": RATE, "table.weight": trainers * RATE}
    for passages in batches:
        rows, offsets, label = batch(passages)
        loss = cross_entropy(model(rows, offsets), label)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for (name, values), gradient in zip(model.named_parameters(), gradients):
                values -= rates[name] * gradient
        losses.append(loss.item())
        dense_weights.append(model.dense.weight.detach().clone())
    return losses, dense_weights

# %% my_one_process: its own share
# Not yet. On trainer 0 the first step moved the dense layer ... times as far as ...
# solution, with `batch(passages)` as `batch(passages[rank::trainers])`

# %% my_one_process: a step for each trainer
# Not yet. On trainer 0 the first step moved the dense layer ... times as far as ...
RATE = 0.5

def my_one_process(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses, dense_weights = [], []
    for passages in batches:
        for trainer in range(trainers):
            rows, offsets, label = batch(passages[trainer::trainers])
            loss = cross_entropy(model(rows, offsets), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        dense_weights.append(model.dense.weight.detach().clone())
    return losses, dense_weights

# %% my_one_process: by the numbers of the batches
# Solved. ...
# solution, with `for passages in batches:` as `for passages in [batches[number] for number in range(len(batches))]:`

# %% my_order: solution
# Solved. Passes with each of the three orders are recognised.

# %% my_order: skeleton
# Not yet. For passes with a and b at the times (3, 1), (9, 8), `my_order(passes, "a", "b")` returned 'always', expected 'never'.

# %% my_order: only the first pass
# Not yet. For passes with a and b at the times (1, 3), (9, 8), (10, 12), `my_order(passes, "a", "b")` returned 'always', expected 'varies'.
def my_order(passes, first, second):
    return "always" if passes[0][first] < passes[0][second] else "never"

# %% my_order: the other way round
# Not yet. For passes with a and b at the times (1, 3), (8, 9), `my_order(passes, "a", "b")` returned 'never', expected 'always'.
# solution, with `events[first] < events[second]` as `events[first] > events[second]`

# %% my_order: the order of the keys
# Not yet. For passes with a and b at the times (1, 3), (8, 9), `my_order(passes, "a", "b")` returned 'never', expected 'always'.
def my_order(passes, first, second):
    earlier = [list(events).index(first) < list(events).index(second) for events in passes]
    return "always" if all(earlier) else "varies" if any(earlier) else "never"

# %% my_order: True and False
# Not yet. For passes with a and b at the times (1, 3), (8, 9), `my_order(passes, "a", "b")` returned True, expected 'always'.
def my_order(passes, first, second):
    return all(events[first] < events[second] for events in passes)

# %% my_order: with a set
# Solved. ...
def my_order(passes, first, second):
    orders = {events[first] < events[second] for events in passes}
    return {frozenset({True}): "always", frozenset({False}): "never"}.get(frozenset(orders), "varies")

# %% my_order: the order of the mean times
# Not yet. For passes with a and b at the times (1, 3), (9, 8), (10, 12), `my_order(passes, "a", "b")` returned ...
def my_order(passes, first, second):
    mean = {event: sum(events[event] for events in passes) / len(passes) for event in (first, second)}
    return "always" if mean[first] < mean[second] else "never"

# %% my_order: the first pass and the last pass
# Not yet. For passes with a and b at the times (1, 3), (9, 8), (10, 12), `my_order(passes, "a", "b")` returned ...
def my_order(passes, first, second):
    one, other = (events[first] < events[second] for events in (passes[0], passes[-1]))
    return "varies" if one != other else "always" if one else "never"

# %% my_turns: solution
# Solved. The trainers step in the order of their ranks, and no trainer goes on before the last trainer has stepped.

# %% my_turns: skeleton
# Not yet. Trainer 1 stepped before trainer 0 had stepped, expected trainer 1 to wait.

# %% my_turns: no barrier before
# Not yet. Trainer 1 stepped before trainer 0 had stepped ...
def my_turns(optimizer, context):
    for turn in range(trainers):
        pass
        if rank == turn:
            optimizer.step(context)
    dist.barrier()

# %% my_turns: no barrier after
# Not yet. Trainer 0 returned before the last trainer had stepped ...
def my_turns(optimizer, context):
    for turn in range(trainers):
        dist.barrier()
        if rank == turn:
            optimizer.step(context)
    pass

# %% my_turns: sleeps instead of waiting
# Not yet. Trainer 0 called `my_turns` 1 s after the others. Trainer 1 stepped before trainer 0 had stepped, expected ...
def my_turns(optimizer, context):
    time.sleep(0.3 * rank)
    optimizer.step(context)
    dist.barrier()

# %% my_turns: from the last to the first
# Not yet. Trainer 1 stepped before trainer 0 had stepped, expected trainer 1 to wait.
# solution, with `range(trainers)` as `reversed(range(trainers))`

# %% my_turns: a message passes the turn
# Solved. The trainers step in the order of their ranks, and no trainer goes on before the last trainer has stepped.
def my_turns(optimizer, context):
    turn = torch.zeros(1)
    if rank > 0:
        dist.recv(turn, rank - 1)
    optimizer.step(context)
    if rank < trainers - 1:
        dist.send(turn, rank + 1)
    dist.barrier()

# %% my_turns: no step
# Not yet. Trainer 0 took 0 steps, expected 1.
# skeleton, with `optimizer.step(context)` as `dist.barrier()`

# %% my_turns: an error
# Not yet. Rank 0 raised AttributeError ...
# skeleton, with `optimizer.step(context)` as `optimizer.walk()`

# %% one_rate: solution
# Solved. Both parts move as in one process.

# %% one_rate: a rate of its own
# Not yet. On trainer 0 the dense layer moves 1.67 times as far as in one process, expected 1.00 times.
# solution, with `lr=rate` as `lr=0.5`

# %% one_rate: divided by all ranks
# Not yet. On trainer 0 the table moves 0.50 times as far as in one process, expected 1.00 times.
# solution, with `dist.get_world_size()` as `4`

# %% one_rate: skeleton
# Not yet. On trainer 0 the table moves 2.00 times as far as in one process, expected 1.00 times.

# %% one_rate
# Not yet. On trainer 0 the dense layer moves 0.50 times as far as in one process, expected 1.00 times.
# solution, without `table = model.table.remote_parameters()`,
# with `slow = DistributedOptimizer(torch.optim.SGD, table, lr=rate / dist.get_world_size())`
# as `rates = [(model.table.remote_parameters(), rate / 2), (dense, rate / 2)]`
# and `slow, DistributedOptimizer(torch.optim.SGD, dense, lr=rate)`
# as `*[DistributedOptimizer(torch.optim.SGD, of_part, lr=lr) for of_part, lr in rates]`

# %% one_rate
# Not yet. On trainer 0 the dense layer moves 2.00 times as far as in one process, expected 1.00 times.
# solution, without `table = model.table.remote_parameters()`,
# with `slow = DistributedOptimizer(torch.optim.SGD, table, lr=rate / dist.get_world_size())`
# as `rates = [(model.table.remote_parameters(), rate), (dense, 2 * rate)]`
# and `slow, DistributedOptimizer(torch.optim.SGD, dense, lr=rate)`
# as `*[DistributedOptimizer(torch.optim.SGD, of_part, lr=lr) for of_part, lr in rates]`

# %% one_rate
# Not yet. On trainer 0 the table moves 0.50 times as far as in one process, expected 1.00 times.
# solution, without `table = model.table.remote_parameters()`,
# with `slow = DistributedOptimizer(torch.optim.SGD, table, lr=rate / dist.get_world_size())`
# as `rates = [(model.table.remote_parameters(), rate / 4), (dense, rate)]`
# and `slow, DistributedOptimizer(torch.optim.SGD, dense, lr=rate)`
# as `*[DistributedOptimizer(torch.optim.SGD, of_part, lr=lr) for of_part, lr in rates]`

# %% one_rate
# Not yet. On trainer 0 the table moves -1.00 times as far as in one process, expected 1.00 times.
# solution, without `table = model.table.remote_parameters()`,
# with `slow = DistributedOptimizer(torch.optim.SGD, table, lr=rate / dist.get_world_size())`
# as `rates = [(model.table.remote_parameters(), -rate / 2), (dense, rate)]`
# and `slow, DistributedOptimizer(torch.optim.SGD, dense, lr=rate)`
# as `*[DistributedOptimizer(torch.optim.SGD, of_part, lr=lr) for of_part, lr in rates]`

# %% one_rate: without return
# Not yet. On trainer 0 `one_rate` returned None, expected an object with a method `step`.
# skeleton, with `return DistributedOptimizer(torch.optim.SGD, references(model), lr=rate)` as `return None`

# %% one_rate: a list
# Not yet. On trainer 0 `one_rate` returned a list of 1, expected an object with a method `step`.
def one_rate(model, rate):
    return [new_optimizer(references(model))]

# %% one_rate: a step without the context
# Not yet. Rank 0 raised TypeError ...
# solution, with `optimizer.step(context)` as `optimizer.step()`

# %% World(4)
# Nobody has started RPC.

# %% my_turns: before RPC has been started
# Not yet. The ranks have no model: run all cells from `World` on ...
def my_turns(*arguments):
    pass

# %% one_rate: before RPC has been started
# Not yet. The ranks have no model: run all cells from `World` on ...
def one_rate(*arguments):
    pass

# %% my_one_process: before RPC has been started
# Not yet. The ranks have no model: run all cells from `World` on ...
def my_one_process(*arguments):
    pass
