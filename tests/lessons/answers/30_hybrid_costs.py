# %% World(4)
import sys
from helpers.course import NOTEBOOKS

sys.path.append(str(NOTEBOOKS))
# cell `start(` of solutions

# %% two_optimizers: solution
# Solved. After 4 steps both parts equal those that SparseAdam and Adam train in one process.

# %% two_optimizers: from the list
# Solved. After 4 steps both parts equal those that SparseAdam and Adam train in one process.
class Both:
    def step(self, context):
        for optimizer in self.optimizers:
            optimizer.step(context)

def two_optimizers(model, lr):
    both = Both()
    *rest, table = reversed(references(model))
    both.optimizers = [
        new_optimizer([table], torch.optim.SparseAdam, lr),
        new_optimizer(rest, torch.optim.Adam, lr),
    ]
    return both

# %% two_optimizers: a function
# Solved. After 4 steps both parts equal those that SparseAdam and Adam train in one process.
def two_optimizers(model, lr):
    import types

    table, *rest = references(model)
    one = new_optimizer([table], torch.optim.SparseAdam, lr)
    other = new_optimizer(rest, torch.optim.Adam, lr)

    def step(context):
        other.step(context)
        one.step(context)

    return types.SimpleNamespace(step=step)

# %% two_optimizers: skeleton
# Not yet. In a step the table moved differently, expected a step of SparseAdam at rate 0.07.

# %% two_optimizers: rate
# Not yet. In a step the table moved differently, expected a step of SparseAdam ...
# answer "from the list", with `SparseAdam, lr` as `SparseAdam, lr / 2`

# %% two_optimizers: SGD
# Not yet. In a step the weight of the dense layer moved differently, expected ...
# answer "from the list",
# with `new_optimizer(rest, torch.optim.Adam, lr),` as `new_optimizer(rest, torch.optim.SGD, lr),`

# %% two_optimizers: no table
# Not yet. In a step the table did not move, expected a step of SparseAdam at rate 0.07.
# answer "from the list", with `for optimizer in self.optimizers:` as `for optimizer in self.optimizers[1:]:`

# %% two_optimizers: no dense layer
# Not yet. In a step the weight of the dense layer did not move, expected a step of Adam at rate 0.07.
# answer "from the list", with `for optimizer in self.optimizers:` as `for optimizer in self.optimizers[:1]:`

# %% two_optimizers: no bias
# Not yet. In a step the bias of the dense layer did not move, expected a step of Adam at rate 0.07.
# answer "from the list",
# with `new_optimizer(rest, torch.optim.Adam, lr),` as `new_optimizer(rest[1:], torch.optim.Adam, lr),`

# %% two_optimizers: a list
# Not yet. Rank 0 raised AttributeError: 'list' ...
# skeleton, with `return new_optimizer(references(model), torch.optim.SGD, lr)` as `return [references(model)]`

# %% two_optimizers: Adam for both
# Not yet. Rank 0 raised ...
# answer "from the list", with `SparseAdam` as `Adam`

# %% SplitTable: solution
# Solved. With 20 rows on server and 20 rows on master, sums and gradients equal those of one table of 40 rows.

# %% SplitTable: skeleton
# Not yet. By `remote_parameters`, 40 of 40 rows are on server, expected 20 on each of server and master.

# %% SplitTable
# Solved. With 20 rows on server and 20 rows on master, sums and gradients equal those of one table of 40 rows.
# solution, with `rows // self.half == number` as `rows % 2 == number`
# and `rows[here] - number * self.half` as `rows[here] // 2`

# %% SplitTable
# Solved. With 20 rows on server and 20 rows on master, sums and gradients equal those of one table of 40 rows.
# solution, with `part.forward_async` as `part.forward`
# and `return sum(call.wait() for call in calls)` as `return sum(call for call in calls)`

# %% SplitTable
# Solved. With 20 rows on server and 20 rows on master, sums and gradients equal those of one table of 40 rows.
# solution, with `(size, 16, True, seed)` as `(size, 16, False, seed)`

# %% SplitTable: with a row of zeros for the words of the other
# Solved. With 21 rows on server and 21 rows on master, ...
class Padded(nn.EmbeddingBag):
    def __init__(self, rows, seed):
        torch.manual_seed(seed)
        super().__init__(rows + 1, 16, mode="sum", padding_idx=rows)

class SplitTable(nn.Module):
    def __init__(self, rows, owners):
        super().__init__()
        self.half = rows // 2
        self.parts = [RemoteModule(f"{o}/cpu", Padded, (self.half, seed)) for seed, o in enumerate(owners)]

    def forward(self, rows, offsets):
        first = torch.where(rows < self.half, rows, self.half)
        second = torch.where(rows < self.half, self.half, rows - self.half)
        return self.parts[0].forward(first, offsets) + self.parts[1].forward(second, offsets)

    def remote_parameters(self):
        return self.parts[0].remote_parameters() + self.parts[1].remote_parameters()

# %% SplitTable
# Not yet. Rank 0 raised ...
# solution, with `lengths.cumsum(0) - lengths` as `offsets`

# %% SplitTable
# Not yet. With bags of [3, 4, 5] words, bag ...
# solution,
# with `torch.bucketize(torch.arange(len(rows)), offsets, right=True) - 1`
# as `torch.bucketize(torch.arange(len(rows)), offsets, right=True).clamp(max=len(offsets) - 1)`

# %% SplitTable
# Not yet. `forward` returns one vector for two different rows. Do two owners ...
# solution, with ` - number * self.half` as ` * 0`

# %% SplitTable
# Not yet. `forward` returns one vector for two different rows. Do two owners ...
# solution, with `True, seed)` as `True)`

# %% SplitTable
# Not yet. By `remote_parameters`, 40 of 40 rows are ...
# solution, with `[self.half, rows - self.half]` as `[rows, rows]`

# %% SplitTable
# Not yet. The sums are right, but no gradient reaches the owners, expected a gradient on both.
# solution, with `call.wait() for` as `call.wait().detach() for`

# %% SplitTable
# Not yet. By `remote_parameters`, 0 of 40 rows are ...
# solution, with `for part in self.parts for` as `for part in self.parts[:1] for`

# %% SplitTable
# Not yet. The sums are right, but in a step of SGD row 0 did not move, expected the step of one table.
# solution, with `sum(call.wait() for call in calls)` as `calls[0].wait().detach() + calls[1].wait()`

# %% SplitTable
# Not yet. The sums are right, but in a step of SGD row 0 moved differently, expected the step of one table.
# solution, with `call.wait() for` as `(2 * call.wait() - call.wait().detach()) for`

# %% SplitTable
# Not yet. For 40 bags, `forward` returned shape (1, 16), expected (40, 16).
# solution, with `call.wait() for` as `call.wait()[:1] for`

# %% World(4)
# Nobody has started RPC.

# %% two_optimizers: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% SplitTable: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass
