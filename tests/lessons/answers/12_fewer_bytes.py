# %% World(4)
# cell `init_process_group(`
import torch._dynamo  # the first DDP loads it, which takes seconds on a busy machine
# cell `def mean(`
# cell `def one_round(`
# cell `def round_to(`

# %% my_compress: solution
# Solved. The hook sends 16 bits, and its averages stay within their range.

# %% my_compress: skeleton
# Not yet. With torch.float16, rank 0 passed torch.float32 to `all_reduce`, expected torch.float16.

# %% my_compress: divides after the sum
# Not yet. With an entry of -40000 on every rank, rank 0 got -inf by fp16, expected -40000. The sum leaves the range ...
def my_compress(dtype, bucket):
    work = dist.all_reduce(bucket.buffer().to(dtype), async_op=True)
    return work.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0] / n))

# %% my_compress: rounds before it divides
# Not yet. With an entry of -100000 on rank 3 and 0 elsewhere, rank 0 got -inf by fp16, expected -25000. Rounding ...
# solution, with `divided.to(dtype)` as `bucket.buffer().to(dtype) / n`

# %% my_compress: sums
# Not yet. With torch.float16, on rank 0 the gradients are 4.00 times the mean over the ranks.
# solution, with `bucket.buffer() / n` as `bucket.buffer()`

# %% my_compress: always fp16
# Not yet. With torch.bfloat16, rank 0 passed torch.float16 to `all_reduce`, expected torch.bfloat16.
# solution, with `divided.to(dtype)` as `divided.half()`

# %% my_compress: rounds and sends 32 bits
# Not yet. With torch.float16, rank 0 passed torch.float32 to `all_reduce`, expected torch.float16.
# solution, with `divided.to(dtype)` as `divided.to(dtype).float()`

# %% my_compress: its own gradients
# Not yet. With torch.float16, rank 0 passed nothing to `all_reduce`, expected torch.float16.
def my_compress(dtype, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer().to(dtype).float())
    return future

# %% my_compress: waits
# Solved. ...
def my_compress(dtype, bucket):
    rounded = bucket.buffer().div(n).to(dtype)
    dist.all_reduce(rounded)
    future = torch.futures.Future()
    future.set_result(rounded.to(torch.float32))
    return future

# %% my_compress: returns 16 bits
# Solved. ...
def my_compress(dtype, bucket):
    rounded = bucket.buffer().div(n).to(dtype)
    work = dist.all_reduce(rounded, async_op=True)
    return work.get_future().then(lambda done: rounded)

# %% my_compress: returns a tensor
# Not yet. Rank 0 raised TypeError: a hook returns a future, and this hook returned a Tensor
# skeleton, with `return work.get_future().then(lambda done: done.value()[0])` as `return bucket.buffer()`

# %% my_low_rank: solution
# Solved. P and Q are averaged, their product is the mean of all ranks, and each rank keeps its own compression error.

# %% my_low_rank: skeleton
# Not yet. On rank 0 the product of P and Q is off by ..., expected the mean of all ranks' matrices.

# %% my_low_rank: without averages
# Not yet. On rank 0 the product of P and Q is off by ..., expected the mean of all ranks' matrices.
# solution, with `mean(gradient @ right)` as `gradient @ right` and `mean(gradient.T @ left)` as `gradient.T @ left`

# %% my_low_rank: averages orthonormal columns
# Not yet. On rank 0 the columns of P are not orthonormal, expected orthonormal columns.
# solution, with `torch.linalg.qr(mean(gradient @ right))[0]` as `mean(torch.linalg.qr(gradient @ right)[0])`

# %% my_low_rank: averages only P
# Not yet. On rank 0 the product of P and Q is off by ..., expected the mean of all ranks' matrices.
# solution, with `mean(gradient.T @ left)` as `gradient.T @ left`

# %% my_low_rank: averages the gradient
# Not yet. Rank 0 passed tensors of [108] elements to `all_reduce`, expected [24, 18]: P and Q.
def my_low_rank(gradient, right, missed):
    average = mean(gradient + missed)
    left = torch.linalg.qr(average @ right)[0]
    right = average.T @ left
    return left, right, gradient + missed - left @ right.T

# %% my_low_rank: adds nothing
# Not yet. On rank 0 the product of P and Q is the mean gradient, expected the mean of gradient + `missed`.
# solution, without `gradient = gradient + missed`

# %% my_low_rank: keeps what the mean misses
# Not yet. On rank 0 the third result is not this rank's compression error, expected gradient + `missed` - product.
# solution, with `missed = gradient - left @ right.T` as `missed = mean(gradient) - left @ right.T`

# %% my_low_rank: keeps the other sign
# Not yet. On rank 0 the third result is off by 200%, expected gradient + `missed` - product.
# solution, with `missed = gradient - left @ right.T` as `missed = left @ right.T - gradient`

# %% my_low_rank: keeps what it had
# Not yet. On rank 0 the third result is off by ...
# solution, without `missed = gradient - left @ right.T`

# %% my_low_rank: Q lies
# Not yet. Rank 0 returned tensors of shapes ((12, 2), (2, 9), (12, 9)), expected ((12, 2), (9, 2), (12, 9)).
# solution, with `return left, right, missed` as `return left, right.T, missed`

# %% my_low_rank: without return
# Not yet. Rank 0 returned tensors of shapes ('NoneType',), expected ((12, 2), (9, 2), (12, 9)).
# solution, without `return left, right, missed`

# %% my_low_rank: by svd, a list
# Solved. ...
def my_low_rank(gradient, right, missed):
    gradient += missed
    left = torch.linalg.svd(mean(gradient @ right), full_matrices=False)[0]
    right = mean((left.T @ gradient).T.contiguous())
    return [left, right, gradient - torch.mm(left, right.T)]

# %% scaled: solution
# Solved. The gradients are right at every magnitude, and 124 entries took 260 bytes.

# %% scaled: skeleton
# Not yet. With a loss multiplied by 1e-07, on rank 0 the gradients are 0.00 times those of one process.

# %% scaled: multiplies in fp16
# Not yet. With a loss multiplied by 1e-07, on rank 0 the gradients are 0.00 times those of one process.
# solution, with `done.value()[0].float() * largest` as `done.value()[0] * largest`

# %% scaled: adds a constant to the largest
# Not yet. With a loss multiplied by 1e-20, on rank 0 the gradients are 0.00 times those of one process.
# solution, with `largest.clamp_(min=1e-30)` as `largest += 1e-8`

# %% scaled: by the largest number of each rank
# Not yet. With a loss multiplied by 1e-07, on rank 0 the gradient ...
# solution, without `dist.all_reduce(largest, op=dist.ReduceOp.MAX)`

# %% scaled: the largest of both signs
# Solved. ...
def scaled(state, bucket):
    ends = torch.stack([bucket.buffer().max(), -bucket.buffer().min()]).max()
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    scale = ends if ends > 0 else torch.ones(())
    work = dist.all_reduce((bucket.buffer() / (scale * n)).to(torch.float16), async_op=True)
    return work.get_future().then(lambda done: done.value()[0].float() * scale)

# %% scaled: by a power of two
# Solved. ...
def scaled(state, bucket):
    largest = bucket.buffer().abs().max()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    power = 2.0 ** torch.log2(largest.clamp_(min=1e-30)).ceil()
    sent = (bucket.buffer() / power / n).half()
    dist.all_reduce(sent)
    future = torch.futures.Future()
    future.set_result(sent.float() * power)
    return future

# %% scaled: by the sum of the largest
# Solved. ...
def scaled(state, bucket):
    largest = bucket.buffer().abs().max()
    dist.all_reduce(largest)
    work = dist.all_reduce((bucket.buffer() / largest.clamp_(min=1e-30)).half(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0].float() * largest / n)

# %% scaled: by the largest that is not negative
# Not yet. With one negative gradient and all others 0, on rank 0 the gradient ...
# solution, with `largest = bucket.buffer().abs().max()` as `largest = bucket.buffer().max()`

# %% scaled: by the largest number of rank 0
# Not yet. With a loss multiplied by 1e+06 on the last rank only, on rank 0 the gradient ...
# solution, with `dist.all_reduce(largest, op=dist.ReduceOp.MAX)` as `dist.broadcast(largest, src=0)`

# %% scaled: by zero
# Not yet. With a loss multiplied by 0, on rank 0 the gradient of 0.weight differs from those of one process.
# solution, without `largest.clamp_(min=1e-30)`

# %% scaled: without rounding
# Not yet. Rank 0 passed 508 bytes to `all_reduce` for 124 entries in 3 buckets, expected at most 260.
# solution, with `n).half(` as `n).float(`

# %% scaled: for small gradients only
# Not yet. With a loss multiplied by ...
def scaled(state, bucket):
    work = dist.all_reduce((bucket.buffer() / n * 2**20).half(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0].float() / 2**20)

# %% scaled: in bf16
# Not yet. Rank 0 sent torch.bfloat16, expected torch.float16.
# skeleton, with `n).half(` as `n).bfloat16(` and `bucket.buffer().copy_(done.value()[0])` as `done.value()[0].float()`

# %% scaled: in bf16, by a coalesced call
# Not yet. Rank 0 sent torch.bfloat16, expected torch.float16.
def scaled(state, bucket):
    sent = (bucket.buffer() / n).bfloat16()
    dist.all_reduce_coalesced([sent], async_op=True).wait()
    future = torch.futures.Future()
    future.set_result(sent.float())
    return future

# %% coarse: solution
# Solved. Every value was rounded, and after 50 steps the sums are off by at most 0.06.

# %% coarse: on a finer grid
# Not yet. After one step the gradients of rank 0 are exact, expected the rounding errors of multiples of 1/64.
def coarse(missed, bucket):
    sent = round_to(bucket.buffer() * 4096)
    dist.all_reduce(sent)
    future = torch.futures.Future()
    future.set_result(sent / 4096 / n)
    return future

# %% coarse: skeleton
# Not yet. Rank 0 sent values that are not rounded to multiples of 1/64.

# %% coarse: without feedback
# Not yet. On rank 0 the sum of the averages of 50 steps for ... , expected at most 0.06.
# solution, with `gradient += missed.get(parameter, 0)` as `pass`,
# without `missed[parameter] = gradient - round_to(gradient)`

# %% coarse: that keeps only the last step
# Not yet. ...
# solution, with `gradient +=` as `missed[parameter], gradient = gradient - round_to(gradient), gradient +`,
# without `missed[parameter] = gradient - round_to(gradient)`

# %% coarse: by bucket
# Not yet. Rank 0 raised RuntimeError: The size of tensor ...
def coarse(missed, bucket):
    gradient = bucket.buffer()
    gradient += missed.get(bucket.index(), 0)
    missed[bucket.index()] = gradient - round_to(gradient)
    gradient.copy_(round_to(gradient))
    return default_hooks.allreduce_hook(None, bucket)

# %% coarse: that returns a tensor
# Not yet. Rank 0 raised TypeError: a hook returns a future, and this hook returned a Tensor
# skeleton, with `return default_hooks.allreduce_hook(None, bucket)` as `return bucket.buffer()`

# %% World(2), World(5): my_compress, my_low_rank, scaled, coarse
