# %% World(4)
import sys
from helpers.course import NOTEBOOKS

sys.path.append(str(NOTEBOOKS))
# cell `start(` of solutions

from torch.distributed.optim import DistributedOptimizer
from hybrid_model import step

# %% my_forward: solution
# Solved. The values are equal to those of one process.

# %% my_forward: asynchronous
# Solved. The values are equal to those of one process.
# solution, with `model.table.forward(words, offsets)` as `model.table.forward_async(words, offsets).wait()`

# %% my_forward: skeleton
# Not yet. On trainer 0 `my_forward` returned None, expected a tensor of shape (2, 6).

# %% my_forward
# Not yet. On trainer 0 `my_forward` returned a list of 1, expected a tensor of shape (2, 6).
# skeleton, with `return None  # your lines, with model.table, model.dense and model.device` as `return [1.0]`

# %% my_forward
# Not yet. On trainer 0 `my_forward` returned ... (2, 6). The lookup is done, the dense layer is missing.
def my_forward(model, words, offsets):
    return model.table.forward(words, offsets)

# %% my_forward
# Not yet. On trainer 0 `my_forward` returned wrong values ...
def my_forward(model, words, offsets):
    return -model.dense(model.table.forward(words, offsets))

# %% my_forward: the module itself
# Not yet. Rank 0 raised AttributeError: 'RemoteModule' object has no attribute '_backward_hooks'. Call the `forward` of
# the module.
def my_forward(model, words, offsets):
    return model.dense(model.table(words, offsets))

# %% my_forward: cut off from the table
# Not yet. On trainer 0 `my_forward` returned the right values, but a backward pass from them does not reach the table,
# expected a gradient of the table on the server. Does a line end the graph?
def my_forward(model, words, offsets):
    return model.dense(model.table.forward(words, offsets).detach().to(model.device))

# %% my_forward: without gradients
# Not yet. On trainer 0 `my_forward` returned the right values, but a backward pass from them does not reach the ...
def my_forward(model, words, offsets):
    with torch.no_grad():
        return model.dense(model.table.forward(words, offsets).to(model.device))

# %% my_forward: with the offsets of the lesson's example
# Not yet. On trainer 0 `my_forward` returned wrong values, expected those of one process with the same weights.
def my_forward(model, words, offsets):
    return model.dense(model.table.forward(words, torch.tensor([0, 20])).to(model.device))

# %% my_forward: bag by bag
# Solved. The values are equal to those of one process.
def my_forward(model, words, offsets):
    bags = words.tensor_split(offsets[1:].tolist())
    return torch.cat([model.dense(model.table.forward(bag, torch.tensor([0]))) for bag in bags])

# %% my_references: solution
# Solved. The list has the parameter of the table and both parameters of the dense layer.

# %% my_references: skeleton
# Not yet. On trainer 0 the list is empty, expected an RRef to each parameter.

# %% my_references
# Not yet. On trainer 0 the list has 0 RRefs to parameters on trainer0, expected 2. The number of RRefs on
# server is right.
# skeleton, with `return []  # your lines` as `return model.table.remote_parameters()`

# %% my_references
# Not yet. On trainer 0 the list has a Parameter, expected RRefs only.
# skeleton, with `return []  # your lines` as `return list(model.dense.parameters())`

# %% my_references
# Not yet. On trainer 0 the list has 0 RRefs to parameters on server, expected 1. The number of RRefs on
# trainer0 is right.
# skeleton, with `return []  # your lines` as `return [rpc.RRef(parameter) for parameter in model.dense.parameters()]`

# %% my_references: with an RRef that the master owns
# Not yet. On trainer 0 the list has RRefs to parameters on master, expected none there.
# solution, with `model.table.remote_parameters()` as `model.table.remote_parameters() + [rpc.remote("master", dict)]`

# %% my_references
# Not yet. On trainer 0 the local RRefs hold other objects, expected both parameters of the dense layer.
# skeleton, with `return []  # your lines` as `return model.table.remote_parameters() + [rpc.RRef(1), rpc.RRef(2)]`

# %% my_references
# Not yet. On trainer 0 `my_references` returned None, expected a list.
# skeleton, with `return []  # your lines` as `return None`

# %% my_references
# Not yet. Rank 0 raised ValueError ...
# skeleton, with `return []  # your lines` as `return list(model.parameters())`

# %% my_references: with the module
# Not yet. On trainer 0 the RRef on server holds a Table, expected the parameter of the model's table.
def my_references(model):
    return [model.table.get_module_rref()] + [rpc.RRef(parameter) for parameter in model.dense.parameters()]

# %% my_references: of another table
# Not yet. On trainer 0 the RRef on server holds another parameter, expected the parameter of the model's table.
# solution, with `model.table.remote_parameters()` as `new_table().remote_parameters()`

# %% my_references: a tuple
# Solved. The list has the parameter of the table and both parameters of the dense layer.
def my_references(model):
    return (*map(rpc.RRef, model.dense.parameters()), *model.table.remote_parameters())

# %% my_hybrid_step: skeleton
# Not yet. The dense layer of trainer 0 has not moved, expected one step along its gradient.

# %% my_hybrid_step: solution
# Solved. Both parts of the model take the step of their gradients, and the loss is returned.

# %% my_hybrid_step
# Not yet. The loss is right, but the dense layer of trainer 0 has not moved, expected one step along its gradient.
# solution, with `optimizer.step(context)` as `pass`

# %% my_hybrid_step
# Not yet. The loss is right, but the dense layer of trainer 0 has moved, but not by ...
# solution, with `optimizer.step(context)` as `optimizer.step(context); optimizer.step(context)`

# %% my_hybrid_step
# Not yet. The loss is right, but the table of trainer 0 has not moved, expected one step along its gradient.
# solution, with `optimizer.step(context)` as `new_optimizer(references(model)[1:], lr=0.7).step(context)`

# %% my_hybrid_step
# Not yet. Both parts moved as expected, but on trainer 0 `my_hybrid_step` returned None, expected the loss ...
# solution, with `return loss` as `return None`

# %% my_hybrid_step
# Not yet. Both parts moved as expected, but on trainer 0 `my_hybrid_step` returned ...
# solution, with `return loss` as `return 2 * loss`

# %% my_hybrid_step
# Not yet. Rank 0 raised TypeError ...
# solution, with `optimizer.step(context)` as `optimizer.step()`

# %% my_hybrid_step: the optimizer after the context
# Not yet. Rank 0 raised RuntimeError: Could not find autograd context with id: .... Use a context inside its `with`
# block.
# solution, with `        optimizer.step(context)` as `    optimizer.step(context)`

# %% my_hybrid_step: local backward
# Not yet. Rank 0 raised RuntimeError: graphTask_ INTERNAL ASSERT FAILED ... Inside a context, start the backward pass by
# `dist_autograd.backward`.
def my_hybrid_step(model, optimizer, data):
    rows, offsets, label = data
    with dist_autograd.context() as context:
        loss = cross_entropy(model(rows, offsets), label.to(model.device))
        loss.backward()
        optimizer.step(context)
    return loss.item()

# %% my_hybrid_step: after local backward
# Solved. Both parts of the model take the step of their gradients, and the loss is returned.
# solution

# %% my_hybrid_step: forward before the context
# Not yet. The loss is right, but the table of trainer 0 has not moved, expected one step along its gradient.
def my_hybrid_step(model, optimizer, data):
    rows, offsets, label = data
    loss = cross_entropy(model(rows, offsets), label.to(model.device))
    with dist_autograd.context() as context:
        dist_autograd.backward(context, [loss])
        optimizer.step(context)
    return loss.item()

# %% my_hybrid_step: with an optimizer of its own
# Not yet. The loss is right, but the dense layer of trainer 0 has moved, but not by ...
# solution, with `optimizer.step(context)` as `new_optimizer(references(model), lr=1.0).step(context)`

# %% frozen_step: solution
# Solved. The dense layer learns, the table keeps every bit, and no gradient travels to the server.

# %% frozen_step: skeleton
# Not yet. 4 steps of trainer 0 have changed the table, expected the same bits as before.

# %% frozen_step
# Not yet. The dense layer of trainer 0 has not moved in 4 steps, expected 4 steps.
def frozen_step(model, optimizer, data):
    rows, offsets, label = data
    with dist_autograd.context() as context:
        vectors = model.table.forward(rows, offsets).detach()
        loss = cross_entropy(model.dense(vectors), label)
        dist_autograd.backward(context, [loss])
        optimizer

# %% frozen_step: with an optimizer of the dense layer
# Not yet. In 4 steps of trainer 0, 4 gradients reached the table, expected none.
def frozen_step(model, optimizer, data):
    rows, offsets, label = data
    with dist_autograd.context() as context:
        vectors = model.table.forward(rows, offsets)
        loss = cross_entropy(model.dense(vectors), label)
        dist_autograd.backward(context, [loss])
        DistributedOptimizer(torch.optim.SGD, references(model)[1:], lr=1.0).step(context)

# %% frozen_step
# Not yet. Rank 0 raised AttributeError ...
# answer "with an optimizer of the dense layer",
# with `model.table.forward(rows, offsets)` as `model.table.forward(rows, offsets).detach()`
# and `DistributedOptimizer(torch.optim.SGD, references(model)[1:], lr=1.0).step(context)` as `loss.missing`

# %% frozen_step
# Solved. ...
# solution,
# with `model.table.forward(rows, offsets).detach().to(model.device)` as `model.table.forward(rows, offsets).detach()`
# and `label.to(model.device)` as `label`, without `return loss.item()`

# %% frozen_step: around DDP
# Not yet. The dense layer of trainer 0 has moved, but not as in one process with the whole batch.
# answer "with an optimizer of the dense layer", with `forward(rows, offsets)` as `forward(rows, offsets).detach()`
# and `model.dense` as `model.dense.module`
# and `DistributedOptimizer(torch.optim.SGD, references(model)[1:], lr=1.0)` as `optimizer`

# %% frozen_step
# Solved. ...
# answer "around DDP", with `model.dense.module` as `model.dense`

# %% frozen_step
# Not yet. The dense layer of trainer 0 has moved, but not as in one process with the whole batch.
# answer "around DDP",
# with `cross_entropy(model.dense.module(vectors), label)` as `-cross_entropy(model.dense(vectors), label)`

# %% frozen_step: without a context for the lookup
# Solved. ...
def frozen_step(model, optimizer, data):
    rows, offsets, label = data
    vectors = model.table.forward(rows, offsets)
    with dist_autograd.context() as context:
        dist_autograd.backward(context, [cross_entropy(model.dense(vectors), label)])
        optimizer.step(context)

# %% step_in_parts: solution
# Solved. Both parts of the model took the step of the whole batch.

# %% step_in_parts: by weights
# Solved. Both parts of the model took the step of the whole batch.
def step_in_parts(model, optimizer, parts):
    passages = sum(len(label) for _, _, label in parts)
    with dist_autograd.context() as context:
        losses = [cross_entropy(model(*data[:2]), data[2].to(model.device)) for data in parts]
        loss = sum(loss * len(data[2]) / passages for loss, data in zip(losses, parts))
        dist_autograd.backward(context, [loss])
        optimizer.step(context)

# %% step_in_parts: all words in one message
# Not yet. Both parts of the model moved as expected, but a message of trainer 0 to the server had 18 passages, expected
# at most 12: the largest part of the batch.
def step_in_parts(model, optimizer, parts):
    lengths = [len(rows) for rows, _, _ in parts]
    offsets = [offsets + sum(lengths[:number]) for number, (_, offsets, _) in enumerate(parts)]
    rows = torch.cat([rows for rows, _, _ in parts])
    return step(model, optimizer, (rows, torch.cat(offsets), torch.cat([label for *_, label in parts])))

# %% step_in_parts: the vectors of all parts through the dense layer at once
# Solved. Both parts of the model took the step of the whole batch.
def step_in_parts(model, optimizer, parts):
    with dist_autograd.context() as context:
        vectors = torch.cat([model.table.forward(*data[:2]) for data in parts])
        label = torch.cat([label for _, _, label in parts])
        loss = cross_entropy(model.dense(vectors.to(model.device)), label.to(model.device))
        dist_autograd.backward(context, [loss])
        optimizer.step(context)

# %% step_in_parts: skeleton
# Not yet. The dense layer of trainer 0 has moved, but not by one step ...

# %% step_in_parts: mean of means
# Not yet. The dense layer of trainer 0 has moved, but not by one step with all parts.
# answer "by weights", with `loss * len(data[2]) / passages` as `loss / len(parts)`

# %% step_in_parts: sum
# Not yet. The dense layer of trainer 0 has moved, but not by one step with all parts.
# answer "by weights", with `loss * len(data[2]) / passages for` as `loss for`

# %% step_in_parts: nothing
# Not yet. The dense layer of trainer 0 has not moved, expected one step with all parts.
# skeleton, with `return step(model, optimizer, parts[0])` as `pass`

# %% step_in_parts: a step for each part
# Not yet. The dense layer of trainer 0 has moved, but not by one step with all parts.
def step_in_parts(model, optimizer, parts):
    for data in parts:
        step(model, optimizer, data)

# %% step_in_parts: a backward pass for each part
# Not yet. Rank 0 raised RuntimeError: RPCErr:1:RPC ran for more than set timeout (20000 ms) and will now be marked with
# an error. Does each part have a backward pass of its own?
def step_in_parts(model, optimizer, parts):
    with dist_autograd.context() as context:
        for rows, offsets, label in parts:
            loss = cross_entropy(model(rows, offsets), label.to(model.device), reduction="sum")
            dist_autograd.backward(context, [loss / sum(len(label) for _, _, label in parts)])
        optimizer.step(context)

# %% step_in_parts: divided by the passages of the lesson
# Not yet. The dense layer of trainer 0 has moved, but not by one step with all parts.
# solution, with `total / passages` as `total / 24`

# %% step_in_parts: with the offsets as they are
# Not yet. The dense layer of trainer 0 has moved, but not by one step with all parts.
def step_in_parts(model, optimizer, parts):
    return step(model, optimizer, tuple(map(torch.cat, zip(*parts))))

# %% World(4)
# Nobody has started RPC.

# %% my_forward: before RPC has been started
# Not yet. The ranks have no model: run all cells from `World` on ...
def my_forward(*arguments):
    pass

# %% my_references: before RPC has been started
# Not yet. The ranks have no model: run all cells from `World` on ...
def my_references(*arguments):
    pass

# %% my_hybrid_step: before RPC has been started
# Not yet. The ranks have no model: run all cells from `World` on ...
def my_hybrid_step(*arguments):
    pass

# %% frozen_step: before RPC has been started
# Not yet. The ranks have no model: run all cells from `World` on ...
def frozen_step(*arguments):
    pass

# %% step_in_parts: before RPC has been started
# Not yet. The ranks have no model: run all cells from `World` on ...
def step_in_parts(*arguments):
    pass
