# %% World(4)
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions
# cell `init_process_group(` of solutions

# %% my_slice: solution
# Solved. Every rank returned the rows of all ranks.

# %% my_slice: skeleton
# Not yet. For `my_slice(7, 2, 0)` rank 0 returned rows 0 to 2, expected rows 0 to 3.

# %% my_slice: chunk
# Solved. ...
def my_slice(rows, n, rank):
    chunks = torch.arange(rows).chunk(n)
    return chunks[rank].tolist() if rank < len(chunks) else []

# %% my_slice: counting down
# Solved. ...
def my_slice(rows, n, rank):
    most, first = (rows + n - 1) // n, 0
    for _ in range(rank):
        first += min(most, rows - first)
    return range(first, first + min(most, rows - first))

# %% my_slice: row by row
# Solved. ...
def my_slice(rows, n, rank):
    return [row for row in range(rows) if row // -(-rows // n) == rank]

# %% my_slice
# Not yet. For `my_slice(8, 2, 0)` rank 0 returned rows 0 to 6, expected rows 0 to 3.
def my_slice(rows, n, rank):
    return range(rank, rows, n)

# %% my_slice
# Not yet. For `my_slice(7, 2, 1)` rank 0 returned rows 4 to 7, expected rows 4 to 6.
def my_slice(rows, n, rank):
    return range(-(-rows // n) * rank, -(-rows // n) * (rank + 1))

# %% my_slice
# Not yet. For `my_slice(7, 2, 0)` rank 0 returned rows 0 to 2, expected rows 0 to 3.
def my_slice(rows, n, rank):
    return range(rows * rank // n, rows * (rank + 1) // n)

# %% my_slice
# Not yet. For `my_slice(8, 1, 0)` rank 0 returned 8, expected a range.
def my_slice(rows, n, rank):
    return len(range(rows)[rank::n])

# %% my_clip: solution
# Solved. All ranks clip their gradients by the norm over all shards.

# %% my_clip: skeleton
# Not yet. With a norm of ...

# %% my_clip: the library clips
# Solved. ...
def my_clip(parameters, most):
    torch.nn.utils.clip_grad_norm_(parameters, most)

# %% my_clip: norms of norms
# Solved. ...
def my_clip(parameters, most):
    norms = torch.stack([parameter.grad.to_local().norm() for parameter in parameters])
    of_all = [torch.empty_like(norms) for _ in range(dist.get_world_size())]
    dist.all_gather(of_all, norms)
    norm = torch.cat(of_all).norm()
    if norm > most:
        for parameter in parameters:
            parameter.grad.to_local().mul_(most / norm)

# %% my_clip: whole gradients
# Solved. ...
def my_clip(parameters, most):
    norm = torch.cat([parameter.grad.full_tensor().flatten() for parameter in parameters]).norm().item()
    for parameter in parameters:
        parameter.grad = parameter.grad * min(1.0, most / norm)

# %% my_clip: by the square root of each norm
# Not yet. With a norm of ... expected 0.5000 times.
def my_clip(parameters, most):
    gradients = [parameter.grad.to_local() for parameter in parameters]
    norm = sum(g.square().sum() for g in gradients).sqrt()
    dist.all_reduce(norm)
    for gradient in gradients:
        gradient.mul_((most / norm).clamp(max=1))

# %% my_clip
# Not yet. With a norm of ... are 2.0000 times what they were, expected 1.0000 times.
def my_clip(parameters, most):
    gradients = [parameter.grad.to_local() for parameter in parameters]
    total = sum(g.square().sum() for g in gradients)
    dist.all_reduce(total)
    norm = total.sqrt()
    for gradient in gradients:
        gradient.mul_(most / norm)

# %% my_clip
# Not yet. With a norm of ... expected 0.5000 times.
def my_clip(parameters, most):
    gradients = [parameter.grad.to_local() for parameter in parameters]
    total = sum(g.square().sum() for g in gradients)
    dist.all_reduce(total)
    norm = total.sqrt()
    for gradient in gradients:
        gradient.mul_((1 / norm).clamp(max=1))

# %% my_clip
# Not yet. With a norm of ... expected 0.5000 times.
# answer "by the square root of each norm",
# with `sum(g.square().sum() for g in gradients).sqrt()` as `sum(g.square().sum() for g in gradients)`

# %% my_clip: that takes the gradients away
# Not yet. After `my_clip` a parameter of rank 0 has no gradient, expected one.
def my_clip(parameters, most):
    for parameter in parameters:
        parameter.grad = None

# %% my_sharded: solution
# Solved. Each layer is a unit, and a step on all ranks is the step of one process.

# %% my_sharded: skeleton
# Not yet. Rank 0 returned Adam, expected an optimizer of the parameters that the model has now. `fully_shard` ...

# %% my_sharded: in the order of the model's modules, and the model itself
# Solved. ...
def my_sharded(model, mesh):
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    return adam(fully_shard(model, mesh=mesh).parameters())

# %% my_sharded: one unit
# Not yet. In a forward pass rank 0 called 1 all_gather, expected 3, one for each layer.
def my_sharded(model, mesh):
    fully_shard(model, mesh=mesh)
    return adam(model.parameters())

# %% my_sharded: without a call for the model
# Not yet. In a step rank 0 called 3 all_gather, expected 6, two for each layer: each layer stayed whole after its
# forward pass. Call `fully_shard` on the model, too, and leave `reshard_after_forward` as it is.
# solution, without `fully_shard(model, mesh=mesh)`

# %% my_sharded: layers that stay whole
# Not yet. In a step rank 0 called 3 all_gather, expected 6, two for each layer: ...
# solution, with `fully_shard(layer, mesh=mesh)` as `fully_shard(layer, mesh=mesh, reshard_after_forward=False)`

# %% my_sharded: nothing
# Not yet. On rank 0 a parameter is not a DTensor, expected shards of every parameter.
def my_sharded(model, mesh):
    return adam(model.parameters())

# %% my_sharded: without the mesh
# Not yet. On rank 0 a parameter is sharded over a different mesh, expected `mesh`: pass `mesh=mesh` to every
# `fully_shard`.
def my_sharded(model, mesh):
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return adam(model.parameters())

# %% my_sharded: no optimizer
# Not yet. Rank 0 returned NoneType, expected an optimizer of the parameters that the model has now. ...
# solution, without `return adam(model.parameters())`

# %% my_sharded: another optimizer
# Not yet. The units are right. After a step the parameters of rank 0 differ from those of one process, ...
# solution, with `adam(model.parameters())` as `torch.optim.SGD(model.parameters(), lr=0.01)`

# %% my_sharded: the last layer by the call for the model
# Solved. ...
# solution, with `for layer in model:` as `for layer in model[:-1]:`

# %% my_report: solution
# Solved. Rank 0 returned the norm of every parameter, and no rank waited for another in vain.

# %% my_report: skeleton
# Not yet. Rank 0 waited 2 s in a collective that the other ranks did not call, expected no wait: ...

# %% my_report: sums of squares
# Solved. ...
def my_report(model):
    parameters = dict(model.named_parameters())
    squares = torch.stack([p.to_local().square().sum() for p in parameters.values()]).detach()
    dist.all_reduce(squares)
    if dist.get_rank() == 0:
        return dict(zip(parameters, squares.sqrt().tolist()))

# %% my_report: own rows
# Not yet. Rank 0 returned ... for `0.weight`, expected ..., the norm of the whole parameter.
def my_report(model):
    norms = {name: p.to_local().norm().item() for name, p in model.named_parameters()}
    return norms if dist.get_rank() == 0 else None

# %% my_report: on all ranks
# Not yet. Rank 1 returned ..., expected None: only rank 0 reports.
def my_report(model):
    return {name: p.full_tensor().norm().item() for name, p in model.named_parameters()}

# %% my_report: a list
# Not yet. Rank 0 returned a list of 6, expected a dict with the names of the parameters: 0.weight, ...
def my_report(model):
    norms = [p.full_tensor().norm().item() for p in model.parameters()]
    return norms if dist.get_rank() == 0 else None

# %% my_save: solution
# Solved. Half as many shards have the parameters that were saved, and the next step is the same.

# %% my_save: skeleton
# Not yet. The parameters are right. After one more step the parameters of rank 0 differ from those of the saved
# training, ...

# %% my_save: whole tensors in one file
# Solved. ...
def my_save(model, optimizer, folder):
    options = StateDictOptions(full_state_dict=True)
    state = get_state_dict(model, optimizer, options=options)
    if dist.get_rank() == 0:
        torch.save(state, f"{folder}/state.pt")
    dist.barrier()

def my_load(model, optimizer, folder):
    of_model, of_optimizer = torch.load(f"{folder}/state.pt")
    options = StateDictOptions(full_state_dict=True)
    set_state_dict(
        model, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer, options=options
    )

# %% my_save: a folder of its own
# Not yet. After `my_save` its folder is empty, expected the files of the checkpoint: write into `folder`.
# solution, with `checkpoint_id=folder` as `checkpoint_id=OWN_FOLDER`
from multiprocessing.util import get_temp_dir

folders = [f"{get_temp_dir()}/checkpoint"]
dist.broadcast_object_list(folders)
OWN_FOLDER = folders[0]

# %% my_save: nothing is loaded
# Not yet. After `my_load` the parameters of rank 0 differ from the saved parameters, ...
# solution, without `checkpoint.load(state, checkpoint_id=folder)`

# %% my_save: the learning rate is not handed back
# Not yet. The parameters are right. After one more step the parameters of rank 0 differ from those of the saved
# training, ...
def my_save(model, optimizer, folder):
    of_model, of_optimizer = get_state_dict(model, optimizer)
    checkpoint.save({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder)

def my_load(model, optimizer, folder):
    of_model, of_optimizer = get_state_dict(model, optimizer)
    checkpoint.load({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder)
