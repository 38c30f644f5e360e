# %% World(4)
import sys
from helpers.course import NOTEBOOKS

sys.path.append(str(NOTEBOOKS))
# cell `start(` of solutions

# %% my_lookup: solution
# Solved. The vectors and gradients of 3 tables are right, and the trainer called the server once.

# %% my_lookup: a future, and to_here on the owner
# Solved. The vectors and gradients of 3 tables are right, and the trainer called the server once.
def look_up_on_server(pairs, offsets):
    return tuple(table.to_here().forward(own, offsets) for table, own in pairs)

def my_lookup(tables, rows, offsets):
    pairs = list(zip(tables, rows))
    return rpc.rpc_async(tables[0].owner(), look_up_on_server, args=(pairs, offsets)).wait()

# %% my_lookup: stacked
# Solved. The vectors and gradients of 3 tables are right, and the trainer called the server once.
# solution, with `return [table` as `return torch.stack([table` and `zip(tables, rows)]` as `zip(tables, rows)])`

# %% my_lookup: skeleton
# Not yet. The vectors are right, but the trainer waited for 3 answers from server, expected 1 call to the server for
# all 3 tables.

# %% my_lookup: all at once
# Not yet. The vectors are right, but the trainer waited for 3 answers from server, expected 1 call to the server for
# all 3 tables.
def my_lookup(tables, rows, offsets):
    calls = [table.rpc_async().forward(own, offsets) for table, own in zip(tables, rows)]
    return torch.futures.wait_all(calls)

# %% my_lookup: without the first half
# Not yet. `my_lookup` returned a list of 0, expected a list of 3 tensors, one for each table.
# solution,
# with `[table.local_value()(own, offsets) for table, own in zip(tables, rows)]` as `[]`

# %% my_lookup: a sum
# Not yet. `my_lookup` returned a tensor of shape [3, 16], expected a list of 3 tensors, one for each table.
# solution, with `return [table` as `return sum([table` and `zip(tables, rows)]` as `zip(tables, rows)])`

# %% my_lookup: without return
# Not yet. `my_lookup` returned None, expected a list of 3 tensors, one for each table.
# solution, with `return rpc.rpc_sync` as `rpc.rpc_sync`

# %% my_lookup: one table for all
# Not yet. For table 1, `my_lookup` returned wrong vectors, expected the sums of the rows `rows[1]` of this table, bag
# by bag.
# solution, with `table.local_value()` as `tables[0].local_value()`

# %% my_lookup: the rows of one table
# Not yet. For table 1, `my_lookup` returned wrong vectors, expected the sums of the rows `rows[1]` of this table, bag
# by bag.
# solution, with `(own, offsets)` as `(rows[0], offsets)`

# %% my_lookup: in reverse
# Not yet. For table 0, `my_lookup` returned wrong vectors, expected the sums of the rows `rows[0]` of this table, bag
# by bag.
# solution, with `zip(tables, rows)]` as `zip(tables[::-1], rows[::-1])]`

# %% my_lookup: a vector for each word
# Not yet. For table 0, `my_lookup` returned a tensor of shape [12, 16], expected a tensor of shape [3, 16].
# solution, with `table.local_value()(own, offsets)` as `table.local_value().weight[own]`

# %% my_lookup: detached
# Not yet. The vectors are right, but no gradient reached table 0, expected a gradient on the server.
# solution, with `(own, offsets) for` as `(own, offsets).detach() for`

# %% my_lookup: one of them detached
# Not yet. The vectors are right, but no gradient reached table 1, expected a gradient on the server.
def look_up_on_server(tables, rows, offsets):
    vectors = [table.local_value()(own, offsets) for table, own in zip(tables, rows)]
    return [vectors[0], *(each.detach() for each in vectors[1:])]

def my_lookup(tables, rows, offsets):
    return rpc.rpc_sync("server", look_up_on_server, (tables, rows, offsets))

# %% my_lookup: fetched twice
# Not yet. The vectors are right, but the trainer waited for 2 answers from server, expected 1 call to the server ...
# solution,
# with `rpc.rpc_sync("server", look_up_on_server, (tables, rows, offsets))` as `rpc.remote("server", look_up_on_server, (tables, rows, offsets)).to_here()`

# %% my_lookup: the tables themselves travel
# Not yet. The vectors are right, but the trainer received 7680 bytes, expected at most 576: the vectors only.
def look_up_on_server(tables):
    return [table.local_value().weight.clone() for table in tables]

def my_lookup(tables, rows, offsets):
    weights = rpc.rpc_sync("server", look_up_on_server, (tables,))
    look_up = nn.functional.embedding_bag
    return [look_up(own, weight, offsets, mode="sum") for own, weight in zip(rows, weights)]

# %% my_lookup: a future
# Not yet. `my_lookup` returned a ...Future, expected a list of 3 tensors, one for each table.
# solution, with `rpc.rpc_sync` as `rpc.rpc_async`

# %% my_lookup: on the trainer
# Not yet. Rank 0 raised RuntimeError: ...
# solution,
# with `rpc.rpc_sync("server", look_up_on_server, (tables, rows, offsets))` as `look_up_on_server(tables, rows, offsets)`

# %% my_lookup: means instead of sums
# Not yet. For table 0, `my_lookup` returned wrong vectors, expected the sums of the rows `rows[0]` of this table, bag
# by bag.
# solution, with `table.local_value()(own, offsets)`
# as `nn.functional.embedding_bag(own, table.local_value().weight, offsets)`

# %% my_lookup: without gradients
# Not yet. The vectors are right, but no gradient reached table 0, expected a gradient on the server.
def look_up_on_server(tables, rows, offsets):
    with torch.no_grad():
        return [table.local_value()(own, offsets) for table, own in zip(tables, rows)]

def my_lookup(tables, rows, offsets):
    return rpc.rpc_sync("server", look_up_on_server, (tables, rows, offsets))

# %% my_lookup: in one tensor that the trainer splits
# Solved. The vectors and gradients of 3 tables are right, and the trainer called the server once.
def look_up_on_server(tables, rows, offsets):
    return torch.cat([table.local_value().forward(own, offsets) for table, own in zip(tables, rows)])

def my_lookup(tables, rows, offsets):
    arguments = {"tables": tables, "rows": rows, "offsets": offsets}
    return rpc.rpc_sync("server", look_up_on_server, kwargs=arguments).chunk(len(tables))

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

# %% two_optimizers: other optimizers in each step
# Not yet. In a step the table moved differently, expected a step of SparseAdam at rate 0.07.
def two_optimizers(model, lr):
    class Both:
        def step(self, context):
            table, *dense = references(model)
            new_optimizer([table], torch.optim.SparseAdam, lr).step(context)
            new_optimizer(dense, torch.optim.Adam, lr).step(context)

    return Both()

# %% two_optimizers: the default rate
# Not yet. In a step the table moved differently, expected a step of SparseAdam at rate 0.07.
# solution, with `SparseAdam, lr)` as `SparseAdam)` and `torch.optim.Adam, lr)` as `torch.optim.Adam)`

# %% two_optimizers: a list
# Not yet. `two_optimizers` returned a list of 1, expected an object with a method `step`.
# skeleton, with `return new_optimizer(references(model), torch.optim.SGD, lr)` as `return [references(model)]`

# %% two_optimizers: without return
# Not yet. `two_optimizers` returned None, expected an object with a method `step`.
# skeleton, with `return new_optimizer` as `new_optimizer`

# %% two_optimizers: Adam for both
# Not yet. Rank 0 raised ...
# answer "from the list", with `SparseAdam` as `Adam`

# %% SplitTable: solution
# Solved. With 20 rows on server and 20 rows on master, sums and gradients equal those of one table of 40 rows.

# %% SplitTable: skeleton
# Not yet. According to `remote_parameters`, 40 of 40 rows are on server, expected 20 on each of server and master.

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

# %% SplitTable: owners of its own
# Not yet. According to `remote_parameters`, 0 of 12 rows are on trainer1, expected 6 on each of trainer1 and server.
# solution, with `zip(owners, sizes)` as `zip(("server", "master"), sizes)`

# %% SplitTable: 20 rows on each owner
# Not yet. According to `remote_parameters`, 20 of 12 rows are on trainer1, expected 6 on each of trainer1 and server.
# solution, with `(rows + 1) // 2` as `20` and `rows - self.half]` as `20]`

# %% SplitTable: every word to both owners
# Not yet. `forward` returns the same vector for two rows, expected different vectors. Do both owners ...
class SplitTable(nn.Module):
    def __init__(self, rows, owners):
        super().__init__()
        self.half = rows // 2
        self.parts = [RemoteModule(f"{o}/cpu", Table, (self.half, 16, True, seed)) for seed, o in enumerate(owners)]

    def forward(self, rows, offsets):
        return sum(part.forward(rows % self.half, offsets) for part in self.parts)

    def remote_parameters(self):
        return [parameter for part in self.parts for parameter in part.remote_parameters()]

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
# Not yet. `forward` returns the same vector for two rows, expected different vectors. Do both owners ...
# solution, with ` - number * self.half` as ` * 0`

# %% SplitTable
# Not yet. `forward` returns the same vector for two rows, expected different vectors. Do both owners ...
# solution, with `True, seed)` as `True)`

# %% SplitTable
# Not yet. According to `remote_parameters`, 40 of 40 rows are ...
# solution, with `[self.half, rows - self.half]` as `[rows, rows]`

# %% SplitTable: the vectors of one owner
# Not yet. `forward` returns zeros for 20 rows, expected a vector for every row. Does `forward` add up the vectors of
# both owners?
# solution, with `sum(call.wait() for call in calls)` as `calls[0].wait()`

# %% SplitTable
# Not yet. The sums are right, but no gradient reaches the owners, expected a gradient on both.
# solution, with `call.wait() for` as `call.wait().detach() for`

# %% SplitTable
# Not yet. According to `remote_parameters`, 0 of 40 rows are ...
# solution, with `for part in self.parts for` as `for part in self.parts[:1] for`

# %% SplitTable
# Not yet. The sums are right, but in a step of SGD, row 0 did not move, expected the step of one table.
# solution, with `sum(call.wait() for call in calls)` as `calls[0].wait().detach() + calls[1].wait()`

# %% SplitTable
# Not yet. The sums are right, but in a step of SGD, row 0 moved differently, expected the step of one table.
# solution, with `call.wait() for` as `(2 * call.wait() - call.wait().detach()) for`

# %% SplitTable
# Not yet. For 40 bags, `forward` returned shape (1, 16), expected (40, 16).
# solution, with `call.wait() for` as `call.wait()[:1] for`

# %% World(4)
# Nobody has started RPC.

# %% my_lookup: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% two_optimizers: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% SplitTable: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass
