# %% World(4)
# cell `init_process_group(` of solutions
# cell `def joined(` of solutions

# %% MyGather: skeleton
# Not yet. On rank 0 the output for the rank's own tokens is wrong, expected the sum of the partial sums of all ranks.
# Each rank needs all tokens for its partial sum.

# %% MyGather: solution
# Solved. Each rank has the output and the gradients of one process for its own tokens and its weights.

# %% MyGather: the gradients of f are not added up
# Not yet. The output is right. Rank 0 got another gradient of x, expected the gradient of one process.
# solution, with `return scattered(gradient)` as `scattered(gradient); return gradient.chunk(n, 1)[rank].contiguous()`

# %% MyGather: g passes back the gradient of the own tokens to all
# Not yet. The output is right. Rank 0 got another gradient of down, expected the gradient of one process.
# solution, with `return joined(gradient)` as `return torch.cat([gradient] * n, dim=1)`

# %% MyGather: the gradients are averaged
# Not yet. The output is right. Rank 0 got 0.25 times the gradient of x, expected the gradient of one process.
# solution, with `return scattered(gradient)` as `return scattered(gradient) / n`

# %% MyGather: g leaves all tokens
# Not yet. Rank 0 returned ..., expected a tensor of the shape [2, 2, 3]: the sums for its own tokens.
# solution, with `return scattered(x)` as `return joined(scattered(x))`

# %% MyGather: the first tokens on every rank
# Not yet. On rank 0 the output for the rank's own tokens is wrong, ...
# solution, with `return joined(x)` as `return torch.cat([x] * n, dim=1)`

# %% MyGather: without the lesson's functions
# Not yet. The gradients are right. Rank 0 called `joined` once, expected twice: once forward and once
# backward.
# solution, with `return joined(x)` as `parts = [0] * n; dist.all_gather_object(parts, x); return torch.cat(parts, 1)`

# %% MyGather: exchanged
# Not yet. Rank 0 raised RuntimeError: ... `reduce_scatter` takes one tensor for each rank.
# solution, with `class MyGather` as `class Other` and `class MyScatter` as `class MyGather`
# and `class Other` as `class MyScatter`

# %% MyGather: f and g of tensor parallelism
# Not yet. On rank 0 the output for the rank's own tokens is wrong, ...
class MyGather(torch.autograd.Function):
    forward = staticmethod(lambda context, x: x.view_as(x))
    backward = staticmethod(lambda context, gradient: all_reduced(gradient))

class MyScatter(torch.autograd.Function):
    forward = staticmethod(lambda context, x: all_reduced(x))
    backward = staticmethod(lambda context, gradient: gradient)

def all_reduced(x):
    total = x.clone()
    dist.all_reduce(total)
    return total

# %% my_sums: skeleton
# Not yet. The gradients are right. Rank 0 called 3 all_reduce for 3 parameters, expected 1 collective.

# %% my_sums: solution
# Solved. One collective adds up all gradients.

# %% my_sums: copied back in place
# Solved. ...
def my_sums(parameters):
    gradients = [parameter.grad for parameter in parameters]
    flat = torch.nn.utils.parameters_to_vector(gradients)
    dist.all_reduce(flat)
    torch.nn.utils.vector_to_parameters(flat, gradients)

# %% my_sums: gathered
# Not yet. The gradients are right. Rank 0 called 1 all_gather, expected 1 all_reduce.
def my_sums(parameters):
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    vectors = [torch.empty_like(flat) for _ in range(n)]
    dist.all_gather(vectors, flat)
    for parameter, part in zip(parameters, sum(vectors).split([p.numel() for p in parameters])):
        parameter.grad.copy_(part.view_as(parameter))

# %% my_sums: the mean
# Not yet. Rank 0 has 0.25 times the gradient of parameter 0, expected the sum over the ranks.
# solution, with `dist.all_reduce(flat)` as `dist.all_reduce(flat); flat /= n`

# %% my_sums: not written back
# Not yet. Rank 0 has 0.1 times the gradient of parameter 0, expected the sum over the ranks.
# solution, with `parameter.grad = flat[begin : begin + size].view_as(parameter)` as `flat[begin : begin + size]`

# %% my_sums: does not wait
# Not yet. Rank ... has ... the gradient of parameter 0, expected the sum over the ranks.
# solution, with `dist.all_reduce(flat)` as `dist.all_reduce(flat, async_op=True)`

# %% my_sums: only rank 0 has the sums
# Not yet. Rank 1 has another gradient of parameter 0, expected the sum over the ranks.
# solution, with `dist.all_reduce(flat)` as `dist.reduce(flat, 0)`

# %% my_plan: skeleton
# Not yet. Rank 0 keeps 1 of the weight of `attention.q`, expected 1/4.

# %% my_plan: solution
# Solved. Each rank keeps 1/n of all six matrices, and the results are the results of one process.

# %% my_plan: all by columns
# Not yet. ...
# solution, with `RowwiseParallel(), "mlp.down": RowwiseParallel()` as `ColwiseParallel(), "mlp.down": ColwiseParallel()`

# %% my_plan: the modules
# Not yet. Rank 0: The plan names `attention`, expected only `attention.q`, ...
def my_plan():
    return {"attention": ColwiseParallel(), "mlp": RowwiseParallel()}

# %% my_plan: a class instead of an object
# Not yet. Rank 0 raised TypeError: ... found. The plan takes objects: call the class, as in `ColwiseParallel()`.
# solution, with `RowwiseParallel()` as `RowwiseParallel`

# %% my_plan: no dict
# Not yet. Rank 0: `my_plan` returned None, expected a dict.
def my_plan():
    return None

# %% my_plan: rows before columns
# Not yet. Rank 0 raised RuntimeError: ... A layer does not take the split that the layer before it leaves.
# solution, with `ColwiseParallel` as `Other` and `RowwiseParallel` as `ColwiseParallel` and `Other` as `RowwiseParallel`

# %% my_plan: without the values
# Not yet. Rank 0 raised RuntimeError: ... A layer does not take the split that the layer before it leaves.
# solution, with `"attention.v", "mlp.up"` as `"mlp.up"`

# %% my_total_norm: skeleton
# Not yet. Rank 0 returned ..., the norm of its own parts, expected ..., the norm of all elements.

# %% my_total_norm: solution
# Solved. Every rank has the norm of all elements of all gradients.

# %% my_total_norm: all gathered
# Solved. ...
def my_total_norm(gradients):
    whole = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in gradients]
    return torch.cat([gradient.flatten() for gradient in whole]).norm().item()

# %% my_total_norm: the sum of the norms
# Not yet. Rank 0 returned ..., another norm, expected ..., the norm of all elements.
# solution, with `squares = squares + norm**2` as `squares = squares + norm`
# and `return squares.sqrt()` as `return squares`

# %% my_total_norm: the squares of the own parts, added up
# Not yet. Rank 0 returned ..., another norm, expected ..., the norm of all elements.
def my_total_norm(gradients):
    parts = [g.to_local() if hasattr(g, "to_local") else g for g in gradients]
    squares = torch.stack([part.square().sum() for part in parts]).sum()
    dist.all_reduce(squares)
    return squares.sqrt()

# %% my_total_norm: all at once
# Not yet. Rank 0 raised RuntimeError: ... got mixed torch.Tensor and DTensor ...
def my_total_norm(gradients):
    return torch.nn.utils.get_total_norm(gradients)

# %% my_total_norm: the norms of this rank
# Not yet. Rank 0 returned ..., another norm, expected ..., the norm of all elements.
def my_total_norm(gradients):
    norms = [gradient.norm() for gradient in gradients]
    return torch.stack([norm.to_local() if isinstance(norm, DTensor) else norm for norm in norms]).norm()

# %% World(2), World(5): MyGather, my_sums, my_plan, my_total_norm
