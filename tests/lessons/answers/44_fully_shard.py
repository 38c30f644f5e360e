# %% World(4)
import torch
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

# %% grouped: solution
# Solved. There are as few units as possible, and no unit is larger than the limit.

# %% grouped: skeleton
# Not yet. With layers of [4, 4, 4, 4] bytes and a limit of 8, rank 0 returned 4 units, expected 2.

# %% grouped: from the last layer
# Solved. ...
def grouped(sizes, limit):
    units, held = [[]], 0
    for layer in reversed(range(len(sizes))):
        if held + sizes[layer] > limit:
            units.insert(0, [])
            held = 0
        units[0].insert(0, layer)
        held += sizes[layer]
    return units

# %% grouped: tuples
# Solved. ...
def grouped(sizes, limit):
    units = ()
    for layer, size in enumerate(sizes):
        if units and sum(sizes[number] for number in units[-1]) + size <= limit:
            units = (*units[:-1], (*units[-1], layer))
        else:
            units = (*units, (layer,))
    return units

# %% grouped: as far as it fits
# Solved. ...
def grouped(sizes, limit):
    units, first = [], 0
    while first < len(sizes):
        end = max(end for end in range(first + 1, len(sizes) + 1) if sum(sizes[first:end]) <= limit)
        units.append(list(range(first, end)))
        first = end
    return units

# %% grouped
# Not yet. With layers of [4, 4, 4, 4] bytes and a limit of 8, rank 0 returned a unit [0, ...
# skeleton, with `return [[layer] for layer in range(len(sizes))]` as `return [list(range(len(sizes)))]`

# %% grouped
# Not yet. With layers of [4, 4, 4, 4] bytes and a limit of 8, rank 0 returned [[0, 1]], expected each layer ...
# skeleton, with `return [[layer] for layer in range(len(sizes))]` as `return [list(range(2))]`

# %% grouped
# Not yet. With layers of [4, 4, 4, 4] bytes and a limit of 8, rank 0 returned [[0, 2], [1, 3]], expected each ...
# skeleton, with `return [[layer] for layer in range(len(sizes))]` as `return [[0, 2], [1, 3]]`

# %% grouped
# Not yet. With layers of [4, 4, 4, 4] bytes and a limit of 4, ...
# skeleton, with `[layer] for layer in range(len(sizes))` as `[layer, layer + 1] for layer in range(0, len(sizes), 2)`

# %% grouped
# Not yet. With layers of [4, 4, 4, 4] bytes and a limit of 8, rank 0 returned 4, expected a list of lists ...
# skeleton, with `return [[layer] for layer in range(len(sizes))]` as `return len(sizes)`
