# %% World(4)
# A deadlock is not waited for as long as in the notebook.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
# cell `def sgd(`

# %% average_gradients: solution
# Solved. On every rank the gradients are those of one process, with equal shares and with unequal ones.

# %% average_gradients: skeleton
# Not yet. On rank 0 the gradients are 4.00 times those of one process on all images.

# %% average_gradients: over the ranks of sums
# Not yet. On rank 0 the gradients are 3.00 times those of one process on all images.
# skeleton, with `parameter.grad /= len(images)` as `parameter.grad /= n`

# %% average_gradients: of equal shares
# Not yet. With as many images on every rank it is right. With r + 1 images on rank r, on rank 0 the gradients are 2.50
# times those of one process on all images.
# skeleton, with `parameter.grad /= len(images)` as `parameter.grad /= n * len(images)`

# %% average_gradients: that forgets the other ranks
# Not yet. On rank 0 the gradient of 0.weight differs from those of one process on all images.
# skeleton, without `dist.all_reduce(parameter.grad)`

# %% average_gradients: that forgets a parameter
# Not yet. On rank 0 the gradient of 0.weight differs from those of one process on all images.
# skeleton, with `for parameter in model.parameters():` as `for parameter in list(model.parameters())[1:]:`
# and `parameter.grad /= len(images)` as `parameter.grad /= n * len(images)`

# %% average_gradients: that loses the gradients
# Not yet. On rank 0 the gradient of 0.weight is None, unlike those of one process on all images.
def average_gradients(model, images):
    model.zero_grad()

# %% average_gradients: on one rank only
# Not yet. Deadlock: the group's timeout ended the wait on these ranks: 0. Call world.restart(), then run the lesson
# again, from its setup cell to this check.
# skeleton, with `model.parameters()` as `list(model.parameters())[: 6 * (rank == 0)]`
# and `parameter.grad /= len(images)` as `parameter.grad /= n`

# %% average_what_is_there: solution
# Solved. Every rank has the gradients of one process, and the frozen parameters have none.

# %% average_what_is_there: skeleton
# Not yet. Rank 0 raised TypeError: Invalid function argument. ...

# %% average_what_is_there
# Solved. ...
# solution, with `parameter.grad /= dist.get_world_size()` as `parameter.grad /= n`

# %% average_what_is_there: in one piece
# Solved. ...
def average_what_is_there(model):
    mine = [parameter for parameter in model.parameters() if parameter.requires_grad]
    flat = torch.cat([torch.zeros(p.numel()).double() if p.grad is None else p.grad.flatten() for p in mine])
    dist.all_reduce(flat)
    for parameter, part in zip(mine, (flat / n).split([p.numel() for p in mine])):
        parameter.grad = part.view_as(parameter)

# %% average_what_is_there: by counting
# Solved. ...
def average_what_is_there(model):
    for parameter in filter(lambda p: p.requires_grad, model.parameters()):
        used = torch.tensor([parameter.grad is not None]).double()
        dist.all_reduce(used)
        if used > 0:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(grad)
            parameter.grad = grad / n

# %% average_what_is_there
# Not yet. Rank 0 gave a gradient to 0.weight, which is frozen.
def average_what_is_there(model):
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= n

# %% average_what_is_there
# Not yet. With the last layer used on rank 0 only, on rank 0 the gradient of 4.weight differs from those of one
# process.
# answer "by counting", with `parameter.grad = grad / n` as `parameter.grad = grad / used`

# %% average_what_is_there
# Not yet. With the last layer used on rank 0 only, on rank 0 the gradients are 4.00 times those of one process.
# answer "in one piece", with `flat / n` as `flat`

# %% average_what_is_there
# Not yet. With the last layer used on rank 0 only, on rank 0 the gradient ...
def average_what_is_there(model):
    pass

# %% average_what_is_there: is skipped where it is not
# Not yet. Deadlock: the group's timeout ended the wait on these ranks: 0. Call world.restart(), then run the lesson
# again, from its setup cell to this check.
def average_what_is_there(model):
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        dist.all_reduce(parameter.grad)
        parameter.grad /= n

# %% my_synchronise: solution
# Solved. Every rank holds the mean gradients of all ranks, which are those of one process.

# %% my_synchronise: skeleton
# Not yet. Rank 0 still has the gradients of its own share.

# %% my_synchronise
# Solved. Every rank holds the mean gradients of all ranks, which are those of one process.
# solution, with `parameter.grad /= dist.get_world_size()` as `parameter.grad /= n`

# %% my_synchronise
# Solved. Every rank holds the mean gradients of all ranks, which are those of one process.
# skeleton, with `pass  # your two lines` as `parameter.grad /= n; dist.all_reduce(parameter.grad)`

# %% my_synchronise
# Solved. Every rank holds the mean gradients of all ranks, which are those of one process.
# solution, with `parameter.grad /= dist.get_world_size()` as `parameter.grad = parameter.grad / dist.get_world_size()`

# %% my_synchronise
# Solved. Every rank holds the mean gradients of all ranks, which are those of one process.
def my_synchronise(model):
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) / n
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat, [parameter.grad for parameter in model.parameters()])

# %% my_synchronise
# Solved. Every rank holds the mean gradients of all ranks, which are those of one process.
def my_synchronise(model):
    for parameter in model.parameters():
        everybody = [torch.empty_like(parameter.grad) for _ in range(n)]
        dist.all_gather(everybody, parameter.grad)
        parameter.grad = torch.stack(everybody).mean(dim=0)

# %% my_synchronise
# Not yet. On rank 0 the gradients are 4.00 times the mean over all ranks.
# solution, without `parameter.grad /= dist.get_world_size()`

# %% my_synchronise
# Not yet. On rank 0 the gradient of 0.weight differs from the mean over all ranks.
# skeleton, with `pass  # your two lines` as `parameter.grad /= n`

# %% my_synchronise
# Not yet. Rank 0 still has the gradients of its own share.
# skeleton, with `pass  # your two lines` as `dist.all_reduce(parameter.grad / n)`

# %% my_synchronise
# Not yet. On rank 0 the gradient of 0.weight differs from the mean over all ranks.
# skeleton, with `pass  # your two lines` as `dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX)`

# %% my_synchronise
# Not yet. Rank 0 still has the gradients of its own share.
# skeleton, with `pass  # your two lines` as `dist.broadcast(parameter.grad, src=0)`

# %% my_synchronise
# Not yet. Rank 0 still has the gradients of its own share.
# skeleton, with `pass  # your two lines` as `dist.all_reduce(parameter.data); parameter.data /= n`

# %% my_synchronise: on rank 0 only
# Not yet. Deadlock: the group's timeout ended ... Call world.restart(), then run the lesson again, from its setup cell
# to this check.
# skeleton, with `pass  # your two lines` as `dist.all_reduce(parameter.grad) if rank == 0 else None`

# %% World(5): average_gradients, average_what_is_there
