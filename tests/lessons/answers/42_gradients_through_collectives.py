# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
# cell `def all_gather(rows)`, up to `def averaged`
# cell `def reduce_scatter(x)`, up to `def all_reduce`
import torch.distributed._functional_collectives as functional

# %% MyAllGather: solution
# Solved. Every rank has the rows of all ranks, and the gradient of its own rows for the losses of all ranks.

# %% MyAllGather: the lesson's own
# Solved. ...
# cell `class AllGatherOfTheLesson`, with `AllGatherOfTheLesson` as `MyAllGather`

# %% MyAllGather: by an all_reduce
# Solved. ...
# skeleton,
# with `return gradient_of_all.chunk(n)[rank]`
# as `total = gradient_of_all.clone(); dist.all_reduce(total); return total.chunk(n)[rank]`

# %% MyAllGather: in place
# Not yet. The results are right, but on rank 0 `backward` changed its argument, which the rest of a model may still
# need. Give the collective a tensor of its own; `chunk` and slices return views.
# answer "by an all_reduce", with `gradient_of_all.clone()` as `gradient_of_all`

# %% MyAllGather: into a view
# Not yet. The results are right, but on rank 0 `backward` changed its argument, ...
# solution, with `torch.empty_like(gradient_of_all.chunk(n)[rank])` as `gradient_of_all.chunk(n)[rank]`

# %% MyAllGather: with lists
# Solved. ...
# skeleton, with `return gradient_of_all.chunk(n)[rank]`
# as `of_all = list(gradient_of_all.clone().chunk(n)); dist.reduce_scatter(of_all[rank], of_all); return of_all[rank]`

# %% MyAllGather: skeleton
# Not yet. The output is right. With the same loss on all ranks, on rank 0 the gradient of the input is 0.25 times the
# expected gradient, expected [8.0, 16.0, 24.0, 32.0], the gradient of the sum of the losses of all ranks.

# %% MyAllGather: the own gradient n times
# Not yet. The output is right. With a different loss on each rank, on rank 0 the gradient of the input is 0.4 times the
# expected gradient, expected [20.0, 40.0, 60.0, 80.0], the gradient of the sum of the losses of all ranks.
# skeleton, with `return gradient_of_all.chunk(n)[rank]` as `return n * gradient_of_all.chunk(n)[rank]`

# %% MyAllGather: the mean
# Not yet. ... is 0.25 times the expected gradient, ...
# solution, with `return gradient` as `return gradient / n`

# %% MyAllGather: the chunk of another rank
# Not yet. ... on rank 0 the gradient of the input is [40.0, 48.0, 56.0, 64.0], expected [8.0, 16.0, 24.0, 32.0], ...
# answer "by an all_reduce", with `chunk(n)[rank]` as `chunk(n)[(rank + 1) % n]`

# %% MyAllGather: without a gradient
# Not yet. The output is right, but on rank 0 no gradient reaches the input.
# skeleton, with `return gradient_of_all.chunk(n)[rank]` as `return None`

# %% MyAllGather: only the own rows
# Not yet. Rank 0 returned a tensor of shape [2, 2], expected the rows of all ranks, a tensor of shape [8, 2].
# skeleton, with `return all_gather(rows)` as `return rows.clone()`

# %% MyAllGather: only rank 0 adds up
# Not yet. ... Run the lesson again, from the cell with `World` to this check.
# solution, with `dist.reduce_scatter_single(gradient, gradient_of_all.contiguous())`
# as `rank or dist.reduce_scatter_single(gradient, gradient_of_all.contiguous())`

# %% MyAllGather: in few digits
# Not yet. The output is right. With the same loss on all ranks, on rank 0 the gradient of the input is rounded to fewer
# digits than in double precision, expected [8.0, 16.0, 24.0, 32.0], the gradient of the sum of the losses of all ranks.
class MyAllGather(torch.autograd.Function):
    @staticmethod
    def forward(context, rows):
        return all_gather(rows)

    @staticmethod
    def backward(context, gradient_of_all):
        total = gradient_of_all.bfloat16()
        dist.all_reduce(total)
        return total.chunk(n)[rank].double()

# %% ReduceScatter: solution
# Solved. Every rank has the sum of its chunk, and the gradient of all its chunks, after one collective each way.

# %% ReduceScatter: with lists
# Solved. ...
class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        block = torch.empty_like(x.chunk(n)[0])
        dist.reduce_scatter(block, list(x.clone().chunk(n)))
        return block

    @staticmethod
    def backward(context, gradient):
        gradients = [torch.empty_like(gradient) for _ in range(n)]
        dist.all_gather(gradients, gradient)
        return torch.cat(gradients)

# %% ReduceScatter: by the lesson's functions
# Solved. ...
class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return reduce_scatter(x)

    @staticmethod
    def backward(context, gradient):
        return all_gather(gradient)

# %% ReduceScatter: skeleton
# Not yet. Rank 0 returned [1.0, 2.0, 3.0, 4.0], expected the sum of chunk 0, [10.0, 20.0, 30.0, 40.0].

# %% ReduceScatter: with its own gradient for all chunks
# Not yet. The output is right. With the same loss on all ranks, on rank 0 the gradient of the input is [20.0, ...
# solution, with `return all_gather(gradient)` as `return torch.cat(n * [gradient])`

# %% ReduceScatter: with a gradient for the own chunk
# Not yet. The output is right. With the same loss on all ranks, on rank 0 the gradient of the input is [20.0, ...
# solution, with `return all_gather(gradient)`
# as `blocks = [torch.zeros_like(gradient) for _ in range(n)]; blocks[rank] = gradient; return torch.cat(blocks)`

# %% ReduceScatter: by an all_reduce
# Not yet. Values and gradients are right. In forward rank 0 called 1 all_reduce, expected one collective that sends no
# more than necessary.
# solution, with `mine = torch.empty_like(x.chunk(n)[rank])` as `total = x.clone(); dist.all_reduce(total)`
# and `dist.reduce_scatter_single(mine, x.contiguous())` as `mine = total.chunk(n)[rank].clone()`

# %% ReduceScatter: in place
# Not yet. The results are right, but on rank 0 `forward` changed its argument, ...
# answer "by an all_reduce", with `total = x.clone()` as `total = x`

# %% shard_gradient: solution
# Solved. Every rank returned the gradient of its shard, for one loss.

# %% shard_gradient: the gradient divided
# Solved. ...
# skeleton, with `return w.grad` as `return w.grad / n`

# %% shard_gradient: by a g
# Solved. ...
class G(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context, gradient):
        return gradient

def shard_gradient(w, x, loss_of):
    w = w.clone().requires_grad_()
    loss_of(G.apply((w * x).sum())).backward()
    return w.grad

# %% shard_gradient: skeleton
# Not yet. Rank 0 returned 4 times the expected gradient. All ranks begin a backward pass from the same loss, and the
# backward pass of the `all_reduce` adds up what they contribute.

# %% shard_gradient: of the own output
# Not yet. Rank 0 returned the gradient [...], expected [...].
# skeleton, with `functional.all_reduce((w * x).sum(), "sum", dist.group.WORLD)` as `(w * x).sum()`

# %% shard_gradient: without return
# Not yet. Rank 0 returned None, expected a gradient of shape [4].
# skeleton, without `return w.grad`

# %% global_mean: solution
# Solved. Every rank holds the mean over all ranks, and the averaged gradients are the gradients of one process.

# %% global_mean
# Solved. ...
# solution,
# with `return AllReduce.forward(context, gradient)` as `total = gradient.clone(); dist.all_reduce(total); return total`

# %% global_mean: by the functions of torch.distributed.nn
# Solved. ...
import warnings
import torch.distributed.nn.functional

def global_mean(values):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dist.nn.functional.all_reduce(values.mean(dim=0)) / n

# %% global_mean
# Solved. ...
# answer "by the functions of torch.distributed.nn",
# with `dist.nn.functional.all_reduce(values.mean(dim=0)) / n`
# as `torch.cat(dist.nn.functional.all_gather(values)).mean(dim=0)`

# %% global_mean: skeleton
# Not yet. Rank 0 returned [ ... expected the mean over all ranks, [...

# %% global_mean
# Not yet. The means are right ... The gradient of the weights, averaged over the ranks, is 0.25 times the gradient
# of one process. It lacks what the losses of the other ranks contribute.
# skeleton, with `return values.mean(dim=0)` as `mean = values.mean(dim=0); dist.all_reduce(mean); return mean / n`

# %% global_mean
# Not yet. The means are right ... The gradient of the weights, averaged over the ranks, is 0.25 times the gradient
# of one process. It lacks what the losses of the other ranks contribute.
# solution, with `return AllReduce.forward(context, gradient)` as `return gradient`

# %% global_mean
# Not yet. The means are right ... The gradient of the weights, averaged over the ranks, is 4 times the gradient of
# one process.
# solution,
# with `return AllReduce.forward(context, gradient)`
# as `total = gradient.clone(); dist.all_reduce(total); return total * n`

# %% global_mean
# Not yet. The means are right ... and so is the gradient if all ranks have the same loss. If each rank has a loss of
# its own, the gradient lacks what the losses of the other ranks contribute.
# solution, with `return AllReduce.forward(context, gradient)` as `return gradient * n`

# %% global_mean
# Not yet. The means are right ... on rank 0 no gradient passes through them.
# skeleton,
# with `return values.mean(dim=0)` as `mean = values.detach().mean(dim=0); dist.all_reduce(mean); return mean / n`

# %% global_mean: a sum for a global mean
# Not yet. Rank 0 returned [ ... expected the mean over all ranks, [...
# solution,
# with `return AllReduce.forward(context, gradient)` as `total = gradient.clone(); dist.all_reduce(total); return total`
# and `return AllReduce.apply(values.mean(dim=0)) / n` as `return AllReduce.apply(values.mean(dim=0)) / 1`

# %% global_mean: divided by the lesson's samples
# Not yet. Rank 0 returned [ ... expected the mean over all ranks, [...
# solution, with `return AllReduce.apply(values.mean(dim=0)) / n` as `return AllReduce.apply(values.sum(dim=0)) / (4 * n)`

# %% World(2), World(5): MyAllGather, ReduceScatter, global_mean, shard_gradient
