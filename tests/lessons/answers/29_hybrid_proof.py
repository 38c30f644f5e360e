# %% World(4)
import sys
from helpers.course import NOTEBOOKS

sys.path.append(str(NOTEBOOKS))
# cell `start(` of solutions

from hybrid_model import new_optimizer

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

# %% my_turns: no step
# Not yet. Trainer 0 took 0 steps, expected 1.
# skeleton, with `optimizer.step(context)` as `dist.barrier()`

# %% my_turns: an error
# Not yet. Rank 0 raised AttributeError ...
# skeleton, with `optimizer.step(context)` as `optimizer.walk()`

# %% one_rate: solution
# Solved. Both parts move as in one process.

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

# %% one_rate
# Not yet. Rank 0 raised AttributeError ...
# skeleton, with `return DistributedOptimizer(torch.optim.SGD, references(model), lr=rate)` as `return None`

# %% one_rate
# Not yet. Rank 0 raised AttributeError ...
def one_rate(model, rate):
    return [new_optimizer(references(model))]

# %% World(4)
# Nobody has started RPC.

# %% my_turns: before RPC has been started
# Not yet. The model is not there: run all cells from `World` on ...
def my_turns(*arguments):
    pass

# %% one_rate: before RPC has been started
# Not yet. The model is not there: run all cells from `World` on ...
def one_rate(*arguments):
    pass
