# %% World(4)
# A shorter timeout than the learner's, because a test of a deadlock waits for it.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`

# %% my_synchronise: solution
# Solved. Every rank holds the mean of all gradients, which is the gradient that one process would compute.

# %% my_synchronise: skeleton
# Not yet. Rank 0 still has the gradients of its own shard, expected the mean over all ranks.

# %% my_synchronise: summed, then divided
# Solved. ...
def my_synchronise(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= n

# %% my_synchronise: divided, then summed
# Solved. ...
def my_synchronise(model):
    for parameter in model.parameters():
        parameter.grad /= n
        dist.all_reduce(parameter.grad)

# %% my_synchronise: a new tensor for each gradient
# Solved. ...
# answer "summed, then divided", with `parameter.grad /= n` as `parameter.grad = parameter.grad / dist.get_world_size()`

# %% my_synchronise: one bucket
# Solved. ...
def my_synchronise(model):
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) / n
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat, [parameter.grad for parameter in model.parameters()])

# %% my_synchronise: gathered
# Solved. ...
def my_synchronise(model):
    for parameter in model.parameters():
        everybody = [torch.empty_like(parameter.grad) for _ in range(n)]
        dist.all_gather(everybody, parameter.grad)
        parameter.grad = torch.stack(everybody).mean(dim=0)

# %% my_synchronise: the sum
# Not yet. On rank 0 the gradients are 4.00 times the mean over all ranks. ...
# answer "summed, then divided", without `parameter.grad /= n`

# %% my_synchronise: only divided
# Not yet. On rank 0 the gradient of 0.weight differs from the mean over all ranks. ...
# answer "summed, then divided", without `dist.all_reduce(parameter.grad)`

# %% my_synchronise: a sum that is thrown away
# Not yet. Rank 0 still has the gradients of its own shard, expected the mean over all ranks.
# answer "divided, then summed", with `parameter.grad /= n` as `pass`
# and `all_reduce(parameter.grad)` as `all_reduce(parameter.grad / n)`

# %% my_synchronise: the largest
# Not yet. On rank 0 the gradient of 0.weight differs from the mean over all ranks. ...
# answer "divided, then summed", with `parameter.grad /= n` as `pass`
# and `all_reduce(parameter.grad)` as `all_reduce(parameter.grad, op=dist.ReduceOp.MAX)`

# %% my_synchronise: those of rank 0
# Not yet. Rank 0 still has the gradients of its own shard, expected the mean over all ranks.
# answer "divided, then summed", with `parameter.grad /= n` as `pass` and `all_reduce(parameter.grad)` as
# `broadcast(parameter.grad, src=0)`

# %% my_synchronise: the weights
# Not yet. Rank 0 still has the gradients of its own shard, expected the mean over all ranks.
# answer "summed, then divided", with `.grad` as `.data`

# %% my_synchronise: on rank 0 only
# Not yet. Deadlock: until the timeout, rank 0 waited in `all_reduce`. Run the lesson again, from the cell with
# `World` to this check.
# answer "summed, then divided", with `dist.all_reduce(parameter.grad)` as
# `dist.all_reduce(parameter.grad) if rank == 0 else None`

# %% MyBucket: solution
# Solved. One all-reduce averages all gradients, and the bucket can be used again in the next step.

# %% MyBucket: skeleton
# Not yet. On rank 0 `flat` is None, expected a tensor of 124 elements, as many as the parameters have together.

# %% MyBucket: of the lesson
# Solved. ...
# cell `class BucketOfTheLesson`, with `BucketOfTheLesson` as `MyBucket`

# %% MyBucket: slices by parameter
# Solved. ...
class MyBucket:
    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.flat = self.parameters[0].new_zeros(sum(self.sizes))
        self.parts = dict(zip(self.parameters, self.flat.split(self.sizes)))

    def take(self, parameter):
        self.parts[parameter].copy_(parameter.grad.flatten() / n)

    def launch(self):
        self.work = dist.all_reduce(self.flat, async_op=True)

    def finish(self):
        self.work.wait()
        for parameter in self.parameters:
            parameter.grad = self.parts[parameter].view_as(parameter)

# %% MyBucket: blocking
# Solved. ...
# answer "slices by parameter", with `self.work = dist.all_reduce(self.flat, async_op=True)` as
# `dist.all_reduce(self.flat)`, without `self.work.wait()`

# %% MyBucket: divided at the end
# Solved. ...
# answer "slices by parameter", with ` / n)` as `)` and `self.work.wait()` as `self.work.wait(); self.flat /= n`

# %% MyBucket: copied back
# Solved. ...
# answer "slices by parameter", with `parameter.grad = self` as `parameter.grad[:] = self`

# %% MyBucket: single precision
# Not yet. On rank 0 `flat` has dtype torch.float32, expected torch.float64, the dtype of the parameters.
# answer "slices by parameter", with `self.parameters[0].new_zeros(sum(self.sizes))` as `torch.zeros(sum(self.sizes))`

# %% MyBucket: too small
# Not yet. On rank 0 `flat` is a tensor of shape [4], expected a tensor of 124 elements ...
# answer "slices by parameter", with `self.parts[parameter].copy_(parameter.grad.flatten() / n)` as
# `self.flat = self.flat[:4]`

# %% MyBucket: slices too small
# Not yet. Rank 0 raised RuntimeError: output with shape [1] doesn't match the broadcast shape [48] ...
# answer "slices by parameter", with `new_zeros(sum(self.sizes))` as `new_zeros(4)`
# and `self.flat.split(self.sizes)` as `self.flat.split([1] * 4)`

# %% MyBucket: nothing taken
# Not yet. In step 1, which takes the gradients in the order of the parameters, after `take`, `flat` on rank 0 has wrong
# elements, expected the rank's gradients, divided by 4. ...
# answer "slices by parameter", with `self.parts[parameter].copy_(parameter.grad.flatten() / n)` as `pass`

# %% MyBucket: no wait
# Not yet. In step 1, which takes the gradients in the order of the parameters, rank 0 still has its own gradients,
# divided by 4, after `finish`, expected the mean over all ranks. Does `finish` wait for the all-reduce? ...
# answer "slices by parameter", without `self.work.wait()`

# %% MyBucket: the sum
# Not yet. In step 1, which takes the gradients in the order of the parameters, on rank 0 the gradients are 4.00 times
# the mean over all ranks. ...
# answer "slices by parameter", with ` / n)` as `)`

# %% MyBucket: not given back
# Not yet. In step 1, which takes the gradients in the order of the parameters, on rank 0 the gradient of 0.weight
# differs from the mean over all ranks. ...
# answer "slices by parameter", with `parameter.grad = self.parts[parameter].view_as(parameter)` as `pass`

# %% MyBucket: one gradient behind the other
# Not yet. In step 2, which takes the gradients in the opposite order of the parameters, on rank 0 the gradient of
# 0.weight differs from the mean over all ranks. ...
# answer "slices by parameter", with `self.parts = dict` as `self.free = 0; self.parts = dict`
# and `self.parts[parameter].copy_(parameter.grad.flatten() / n)` as `self.append(parameter.grad.flatten() / n)`
    def append(self, gradient):
        end = self.free + gradient.numel()
        self.flat[self.free : end] = gradient
        self.free = end % self.flat.numel()

# %% MyBucket: a call for each parameter
# Not yet. In step 1, which takes the gradients in the order of the parameters, rank 0 called 6 all_reduce, expected 1
# all_reduce. ...
# answer "slices by parameter", with `self.work = dist.all_reduce(self.flat, async_op=True)` as
# `for part in self.parts.values(): self.work = dist.all_reduce(part, async_op=True)`

# %% mean_over_tokens: solution
# Solved. Every rank has the gradients of one process, whatever the lengths of the masks.

# %% mean_over_tokens: skeleton
# Not yet. With the same number of tokens in every micro-batch, the answer is right. With 1, 3 and 8 tokens in the
# micro-batches of every rank, on rank 0 the gradient of 0.weight differs from the gradients of one process.

# %% mean_over_tokens: a sum over the tokens
# Solved. ...
def mean_over_tokens(model, micro_batches):
    mine = sum(mask.sum() for *_, mask in micro_batches)
    everybody = mine.clone()
    dist.all_reduce(everybody)
    for inputs, labels, mask in micro_batches:
        losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
        (losses[mask].sum() / everybody).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)

# %% mean_over_tokens: a product with the mask
# Solved. ...
# answer "a sum over the tokens", with `(losses[mask].sum() / everybody)` as `(losses * mask / everybody).sum()`

# %% mean_over_tokens: a weighted mean
# Solved. ...
# answer "a sum over the tokens", with `losses[mask].sum()` as `losses[mask].mean() * mask.sum()`

# %% mean_over_tokens: the mean of each rank's mean over its tokens
# Not yet. With the same number of tokens on every rank, the answer is right. With different numbers of tokens on the
# ranks, on rank 0 the gradient of 0.weight differs ...
# answer "a sum over the tokens", with `.sum() / everybody)` as `.sum() / mine / n)`

# %% mean_over_tokens: the mean of each micro-batch's mean
# Not yet. With the same number of tokens in every micro-batch, the answer is right. With 1, 3 and 8 tokens in the
# micro-batches of every rank, on rank 0 the gradient of ...
# answer "a sum over the tokens", with `.sum() / everybody)` as `.mean() / len(micro_batches) / n)`

# %% mean_over_tokens: divided by all tokens and by the ranks
# Not yet. With 4 tokens in every micro-batch, on rank 0 the gradients are 0.25 times ...
# answer "a sum over the tokens", with `/ everybody)` as `/ everybody / n)`

# %% mean_over_tokens: divided by the rank's own tokens
# Not yet. With 4 tokens in every micro-batch, on rank 0 the gradients are 4.00 times ...
# answer "a sum over the tokens", with `/ everybody)` as `/ mine)`

# %% mean_over_tokens: without the mask
# Not yet. With 4 tokens in every micro-batch, on rank 0 the gradient of 0.weight ...
# answer "a sum over the tokens", with `losses[mask].sum() / everybody` as `losses.mean() / len(micro_batches) / n`

# %% mean_over_tokens: the sum
# Not yet. With 4 tokens in every micro-batch, on rank 0 the gradients are 48.00 times ...
# answer "a sum over the tokens", without ` / everybody`

# %% mean_over_tokens: reduced on rank 0 only
# Not yet. Rank 3 is dead (SIGABRT). gloo aborts a process if the calls of the ranks do not match. Run the lesson
# again, from the cell with `World` to this check.
# answer "the sum", with `model.parameters()` as `list(model.parameters())[: 6 * (rank == 0)]`

# %% average_what_is_there: solution
# Solved. Every rank has the gradients of one process, and the frozen parameters have none.

# %% average_what_is_there: skeleton
# Not yet. Rank 0 raised TypeError: Invalid function argument. ...

# %% average_what_is_there: zeros where there is no gradient
# Solved. ...
def average_what_is_there(model):
    for parameter in filter(lambda parameter: parameter.requires_grad, model.parameters()):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= n

# %% average_what_is_there: in one piece
# Solved. ...
def average_what_is_there(model):
    mine = [parameter for parameter in model.parameters() if parameter.requires_grad]
    flat = torch.cat([torch.zeros(p.numel()).double() if p.grad is None else p.grad.flatten() for p in mine])
    dist.all_reduce(flat)
    for parameter, part in zip(mine, (flat / n).split([p.numel() for p in mine])):
        parameter.grad = part.view_as(parameter)

# %% average_what_is_there: by counting who has one
# Solved. ...
def average_what_is_there(model):
    for parameter in filter(lambda p: p.requires_grad, model.parameters()):
        used = torch.tensor([parameter.grad is not None]).double()
        dist.all_reduce(used)
        if used > 0:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(grad)
            parameter.grad = grad / n

# %% average_what_is_there: the frozen ones, too
# Not yet. Rank 0 has a gradient for 0.weight, which is frozen, expected None. ...
# answer "zeros where there is no gradient", with `filter(lambda parameter: parameter.requires_grad, model.parameters())`
# as `model.parameters()`

# %% average_what_is_there: divided by those who have one
# Not yet. Only rank 0 used the last layer, and on rank 0 the gradient of 4.weight differs from the ...
# answer "by counting who has one", with `grad / n` as `grad / used`

# %% average_what_is_there: the sum
# Not yet. Only rank 0 used the last layer, and on rank 0 the gradients are 4.00 times the gradients of one process. ...
# answer "in one piece", with `flat / n` as `flat`

# %% average_what_is_there: nothing
# Not yet. Only rank 0 used the last layer, and on rank 0 the gradient ...
def average_what_is_there(model):
    pass

# %% average_what_is_there: skipped where there is none
# Not yet. Deadlock: until the timeout, rank 0 waited in `all_reduce`. Run the lesson again, from the cell with
# `World` to this check.
# answer "zeros where there is no gradient", with `parameter.grad = torch.zeros_like(parameter)` as `continue`

# %% World(5): my_synchronise, MyBucket, mean_over_tokens, average_what_is_there
