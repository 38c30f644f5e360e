# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`

# %% mean: solution
# Solved. Every rank returned 3.0, after one all_reduce.

# %% mean: skeleton
# Not yet. Rank 0 returned 1.0, expected 3.0.

# %% mean: as a number of numpy
# Solved. Every rank returned 3.0, after one all_reduce.
# solution, with `sum_and_count =` as `parts =` and `dist.all_reduce(sum_and_count)` as `dist.all_reduce(parts)`
# and `return (sum_and_count[0] / sum_and_count[1]).item()` as `return parts[0].numpy() / parts[1].numpy()`

# %% mean
# Solved. ...
def mean(numbers):
    both = torch.stack([numbers.sum(), torch.tensor(float(numbers.numel()))])
    dist.all_reduce(both, op=dist.ReduceOp.SUM)
    total, count = both.tolist()
    return total / count

# %% mean
# Solved. ...
def mean(numbers):
    both = torch.ones(2) * len(numbers)
    both[0] = sum(numbers)
    dist.all_reduce(both, async_op=True).wait()
    return float(both[0]) / int(both[1])

# %% mean: of the means
# Not yet. Rank 0 returned 2.5, expected 3.0.
def mean(numbers):
    result = numbers.mean()
    dist.all_reduce(result, op=dist.ReduceOp.AVG)
    return result

# %% mean: of integers only
# Not yet. With numbers that are not integers, rank 0 returned 2.6, expected 2.75.
def mean(numbers):
    sum_and_count = torch.tensor([int(numbers.sum()), numbers.numel()])
    dist.all_reduce(sum_and_count)
    return (sum_and_count[0] / sum_and_count[1]).item()

# %% mean: divided by n times the own count
# Not yet. Rank 0 returned 7.5, expected 3.0.
def mean(numbers):
    total = numbers.sum()
    dist.all_reduce(total)
    return (total / (n * len(numbers))).item()

# %% mean: on rank 0 only
# Not yet. Rank 1 returned ..., expected 3.0.
# solution, with `dist.all_reduce(sum_and_count)` as `dist.reduce(sum_and_count, dst=0)`

# %% mean: in two calls
# Not yet. Rank 0 called 2 all_reduce, expected 1 all_reduce.
def mean(numbers):
    total, count = numbers.sum(), torch.tensor(len(numbers))
    dist.all_reduce(total)
    dist.all_reduce(count)
    return (total / count).item()

# %% mean: by gathering
# Not yet. Rank 0 called 1 all_gather, expected 1 all_reduce.
def mean(numbers):
    sums = [torch.zeros(2) for _ in range(n)]
    dist.all_gather(sums, torch.tensor([numbers.sum(), len(numbers)]))
    total, count = sum(sums)
    return (total / count).item()

# %% mean: weighted by the count where there are no numbers
# Not yet. When rank 0 holds no numbers, rank 0 returned nan, expected 3.3333.
def mean(numbers):
    parts = torch.tensor([numbers.mean() * len(numbers), len(numbers)])
    dist.all_reduce(parts)
    return (parts[0] / parts[1]).item()

# %% mean: without the ranks that have no numbers
# Not yet. Deadlock: until the timeout, ranks 1, 2 and 3 waited in `all_reduce`. Run the lesson again, from the
# cell with `World` to this check.
def mean(numbers):
    if len(numbers) == 0:
        return 0.0
    parts = torch.tensor([numbers.sum(), len(numbers)])
    dist.all_reduce(parts)
    return (parts[0] / parts[1]).item()

# %% mean: that returns nothing
# Not yet. Rank 0 returned None, expected 3.0.
# skeleton, with `return numbers.mean().item()` as `pass`

# %% mean: that raises
# Not yet. Rank 0 raised ZeroDivisionError: division by zero
# skeleton, with `return numbers.mean().item()` as `return 1 / (len(numbers) - 1)`

# %% transpose: solution
# Solved. Every rank returned its rows of the transposed matrix, after one all_to_all.

# %% transpose: skeleton
# Not yet. Rank 0 holds 1.0 in row 0, column 1, expected 100.0.

# %% transpose
# Solved. ...
def transpose(rows):
    sent = [block.contiguous() for block in rows.T.chunk(n)]
    received = [torch.empty_like(block) for block in sent]
    dist.all_to_all(received, sent)
    return torch.cat(received, dim=1)

# %% transpose
# Solved. ...
def transpose(rows):
    received = torch.empty(2 * n, 2)
    dist.all_to_all_single(received, rows.T.contiguous())
    return torch.hstack(received.split(2))

# %% transpose
# Solved. ...
def transpose(rows):
    received = [torch.empty(2, 2) for _ in range(n)]
    dist.all_to_all(received, [rows[:, 2 * r : 2 * r + 2].contiguous() for r in range(n)])
    return torch.vstack(received).T

# %% transpose: within the blocks only
# Not yet. Rank 0 holds 2.0 in row 0, column 2, expected 200.0.
# skeleton, with `return rows` as `return rows.view(2, n, 2).permute(2, 1, 0).reshape(2, 2 * n)`

# %% transpose: of the blocks but not within them
# Not yet. Rank 0 holds 1.0 in row 0, column 1, expected 100.0.
# solution, with `1, 2, 0` as `1, 0, 2`

# %% transpose: of the wrong shape
# Not yet. Rank 0 returned a tensor of shape [8, 2], expected a tensor of shape [2, 8].
# skeleton, with `return rows` as `return rows.T`

# %% transpose: of the whole matrix on every rank
# Not yet. Rank 0 called 1 all_gather, expected 1 all_to_all.
def transpose(rows):
    matrix = [torch.empty_like(rows) for _ in range(n)]
    dist.all_gather(matrix, rows)
    return torch.cat(matrix).T[2 * rank : 2 * rank + 2]

# %% sharded_step: solution
# Solved. Every rank returned the new weights, and updated only its own shard.

# %% sharded_step: with the mean by the operator
# Solved. ...
def sharded_step(weights, gradient, rate):
    share = torch.empty(2)
    dist.reduce_scatter_tensor(share, gradient, dist.ReduceOp.AVG)
    weights = weights.clone()
    weights[2 * rank : 2 * rank + 2] -= rate * share
    dist.all_gather_into_tensor(weights, weights[2 * rank : 2 * rank + 2].clone())
    return weights

# %% sharded_step: with one tensor
# Solved. ...
def sharded_step(weights, gradient, rate):
    size = len(weights) // n
    mine = gradient.new_empty(size)
    dist.reduce_scatter_tensor(mine, gradient)
    share = weights[rank * size : (rank + 1) * size] - rate / n * mine
    result = torch.empty_like(weights)
    dist.all_gather_into_tensor(result, share)
    return result

# %% sharded_step: in place
# Solved. ...
def sharded_step(weights, gradient, rate):
    share = torch.empty(2)
    dist.reduce_scatter(share, [part / n for part in gradient.split(2)])
    parts = list(weights.split(2))
    dist.all_gather(parts, parts[rank].sub_(rate * share).clone())
    return weights

# %% sharded_step: skeleton
# Not yet. On rank 0 weight 0 is -0.5, expected -1.25.

# %% sharded_step: with the sum of the gradients
# Not yet. On rank 0 weight 0 is -5.0, expected -1.25.
# solution, with `rate * mine / n` as `rate * mine`

# %% sharded_step: that gathers the gradients
# Not yet. The weights are right. Rank 0 passed [10.0, 20.0] to all_gather, expected [-1.25, 7.5], the new weights of
# its shard.
def sharded_step(weights, gradient, rate):
    mine, total = torch.empty(2), torch.empty_like(gradient)
    dist.reduce_scatter_single(mine, gradient)
    dist.all_gather_single(total, mine)
    return weights - rate * total / n

# %% sharded_step: that averages the weights
# Not yet. The weights are right. Rank 0 passed [-0.125, 2.25, ...] to reduce_scatter, expected its gradient.
def sharded_step(weights, gradient, rate):
    mine = torch.empty(2)
    dist.reduce_scatter_single(mine, (weights - rate * gradient) / n)
    dist.all_gather_single(weights, mine)
    return weights

# %% sharded_step: with the chunk of the lesson
# Not yet. On rank 0 weight 1 is -2.5, expected 7.5.
# solution, with `weights.chunk(n)[rank]` as `weights[here]`

# %% sharded_step: within the arguments
# Solved. ...
def sharded_step(weights, gradient, rate):
    per_rank = len(weights) // n
    own = slice(rank * per_rank, (rank + 1) * per_rank)
    dist.reduce_scatter_single(gradient[own], gradient)
    weights[own] -= rate * gradient[own] / n
    dist.all_gather_single(weights, weights[own])
    return weights

# %% sharded_step: that sends the gradients to all
# Not yet. The weights are right. Rank 0 called 1 all_reduce, expected 1 reduce_scatter of the gradients and 1
# all_gather of the weights.
def sharded_step(weights, gradient, rate):
    dist.all_reduce(gradient, dist.ReduceOp.AVG)
    return weights - rate * gradient

# %% sharded_step: that returns its share only
# Not yet. Rank 0 returned a tensor of shape [2], expected 8 weights.
def sharded_step(weights, gradient, rate):
    share = torch.empty(2)
    dist.reduce_scatter(share, list(gradient.chunk(n)), dist.ReduceOp.AVG)
    return weights.chunk(n)[rank] - rate * share

# %% my_all_gather: solution
# Solved. Every rank returned all chunks, after 4 broadcasts.

# %% my_all_gather: skeleton
# Not yet. Rank 0 returned [0, 0, 0, 0], expected [1, 20, 300, 4000].

# %% my_all_gather: from rank 0 each time
# Not yet. Rank 0 returned [1, 0, 0, 0], expected [1, 20, 300, 4000].
# solution, with `src=src` as `src=0`

# %% my_all_gather: without the own chunk
# Not yet. Rank 0 returned [0, 0, 0, 0], expected [1, 20, 300, 4000].
# solution, without `result[here] = mine`

# %% my_all_gather: of a copy of the own chunk for each rank
# Solved. ...
def my_all_gather(mine):
    pieces = [mine.clone() for _ in range(n)]
    for src, piece in enumerate(pieces):
        dist.broadcast(piece, src=src)
    return torch.cat(pieces)

# %% my_all_gather: started together
# Solved. ...
def my_all_gather(mine):
    result = mine.repeat(n)
    works = [dist.broadcast(result[src], src=src, async_op=True) for src in range(n)]
    for work in works:
        work.wait()
    return result

# %% my_all_gather: of whole results
# Solved. ...
def my_all_gather(mine):
    result = torch.zeros(n)
    for src in range(n):
        piece = torch.zeros(n)
        if rank == src:
            piece[src] = mine.item()
        dist.broadcast(piece, src=src)
        result += piece
    return result

# %% my_all_gather: the library's own
# Not yet. The chunks are right. Rank 0 called 1 all_gather, expected broadcasts only.
def my_all_gather(mine):
    result = torch.zeros(n, dtype=mine.dtype)
    dist.all_gather_single(result, mine)
    return result

# %% my_all_gather: a list
# Not yet. Rank 0 returned a list of 4, expected a tensor of shape [4].
# solution, with `return result` as `return list(result.chunk(n))`

# %% my_all_gather: into the own chunk
# Not yet. Rank 0 returned [1, 1, 1, 1], expected [1, 20, 300, 4000].
def my_all_gather(mine):
    result = torch.zeros(n, dtype=mine.dtype)
    for src in range(n):
        dist.broadcast(mine, src=src)
        result[src] = mine
    return result

# %% my_all_gather: in the order of the distance
# Not yet. Rank 1 returned [20, 300, 4000, 1], expected [1, 20, 300, 4000].
# solution, with `return result` as `return result.roll(-rank)`

# %% my_all_gather: only the own broadcast
# Not yet. ...
# solution, with `for src in range(n):` as `for src in [rank]:`

# %% my_all_gather: that returns nothing
# Not yet. Rank 0 returned None, expected a tensor of shape [4].
# solution, without `return result`

# %% my_all_reduce: solution
# Solved. Every rank returned all sums: one collective computed them, and the other brought them to all ranks.

# %% my_all_reduce: of one tensor
# Solved. ...
def my_all_reduce(chunks):
    mine = chunks[:1].clone()
    dist.reduce_scatter_tensor(mine, chunks)
    result = torch.empty_like(chunks)
    dist.all_gather_into_tensor(result, mine)
    return result

# %% my_all_reduce: a list of parts
# Solved. ...
def my_all_reduce(chunks):
    mine = chunks.new_zeros(1)
    dist.reduce_scatter(mine, list(chunks.chunk(n)))
    parts = [chunks.new_zeros(1) for _ in range(n)]
    dist.all_gather(parts, mine)
    return torch.cat(parts)

# %% my_all_reduce: in place
# Solved. ...
def my_all_reduce(chunks):
    mine = torch.empty_like(chunks[:1])
    dist.reduce_scatter(mine, [*chunks.split(1)], op=dist.ReduceOp.SUM)
    dist.all_gather([*chunks.split(1)], mine)
    return chunks

# %% my_all_reduce: skeleton
# Not yet. Rank 0 returned [0, 0, 0, 0], expected [1111, 2222, 3333, 4444].

# %% my_all_reduce: one half only
# Not yet. Rank 0 returned [1111, 0, 0, 0], expected [1111, 2222, 3333, 4444].
# solution, without `mine = torch.zeros_like(chunks[here])`, with `(mine, chunks)` as `(result[here], chunks)`,
# without `dist.all_gather_single(result, mine)`

# %% my_all_reduce: that gathers the chunks before the sum
# Not yet. Rank 0 returned [1, 20, 300, 4000], expected [1111, 2222, 3333, 4444].
# solution, with `dist.all_gather_single(result, mine)` as `dist.all_gather_single(result, chunks[here])`

# %% my_all_reduce: with the output last
# Not yet. Rank 0 raised RuntimeError: ... (16 vs. 1). Pass the output first: it has 1/n of the input's elements.
# solution, with `(mine, chunks)` as `(chunks, mine)`

# %% my_all_reduce: the halves that are the whole
# Not yet. The sums are right. Rank 0 called 1 all_reduce, expected 1 reduce_scatter and 1 all_gather.
def my_all_reduce(chunks):
    dist.all_reduce(chunks)
    return chunks

# %% my_all_reduce: the second half without the first
# Not yet. The sums are right. Rank 0 called 1 all_gather, expected 1 reduce_scatter and 1 all_gather.
def my_all_reduce(chunks):
    parts = [torch.empty_like(chunks) for _ in range(n)]
    dist.all_gather(parts, chunks)
    return sum(parts)

# %% skip_together: solution
# Solved. All ranks skip the same steps, after one all_reduce.

# %% skip_together: skeleton
# Not yet. With a NaN only on rank 3, rank 0 returned False, expected True.

# %% skip_together: without wait
# Not yet. With a NaN only on rank 3, rank 0 returned False, expected True.
# solution, without `work.wait()`

# %% skip_together: by the smallest
# Not yet. With a NaN only on rank 3, rank 0 returned False, expected True.
# solution, with `ReduceOp.MAX` as `ReduceOp.MIN`

# %% skip_together: the norm of all gradients
# Not yet. Rank 0 returned the norm nan, expected 5.4772, the norm of its own gradient.
def skip_together(gradient):
    dist.all_reduce(gradient)
    return bool(gradient.isnan().any()), gradient.norm()

# %% skip_together: one value
# Not yet. Rank 0 returned 1, expected two values: True or False, and a norm.
def skip_together(gradient):
    any_nan = gradient.isnan().any().int()
    dist.all_reduce(any_nan, dist.ReduceOp.MAX)
    return any_nan

# %% skip_together: by gathering
# Not yet. Rank 0 called 1 all_gather, expected 1 all_reduce.
def skip_together(gradient):
    norms = torch.zeros(n)
    dist.all_gather_single(norms, gradient.norm().view(1))
    return norms.isnan().any().item(), norms[rank].item()

# %% skip_together: exactly one rank
# Not yet. With a NaN on every rank, rank 0 returned False, expected True.
# solution, with `dist.ReduceOp.MAX, ` as ``

# %% skip_together: without async_op
# Not yet. The values are right. Rank 0 computed nothing between its all_reduce and `wait()`, expected the norm. Start
# the all_reduce with `async_op=True`, then compute the norm, then wait.
def skip_together(gradient):
    any_nan = gradient.isnan().any().int()
    dist.all_reduce(any_nan, dist.ReduceOp.MAX)
    return any_nan.item() == 1, gradient.norm().item()

# %% skip_together: that waits at once
# Not yet. The values are right. Rank 0 computed nothing between its all_reduce and `wait()`, expected the norm. Start
# the all_reduce with `async_op=True`, then compute the norm, then wait.
def skip_together(gradient):
    any_nan = gradient.isnan().any().int()
    work = dist.all_reduce(any_nan, dist.ReduceOp.MAX, async_op=True)
    work.wait()
    return any_nan.item() == 1, gradient.norm().item()

# %% skip_together: how many ranks, as numbers
# Solved. ...
def skip_together(gradient):
    ranks_with_nan = torch.tensor(float(gradient.isnan().any()))
    work = dist.all_reduce(ranks_with_nan, async_op=True)
    norm = gradient.square().sum().sqrt()
    work.wait()
    return ranks_with_nan.item() > 0, norm

# %% skip_together: a bool, the future, the norm by numpy
# Solved. ...
def skip_together(gradient):
    any_nan = gradient.isnan().any()
    future = dist.all_reduce(any_nan, op=dist.ReduceOp.BOR, async_op=True).get_future()
    numbers = gradient.numpy()
    norm = float((numbers**2).sum() ** 0.5)
    future.wait()
    return bool(any_nan), norm

# %% skip_together: a copy of the gradient
# Solved. ...
def skip_together(gradient):
    total = gradient.clone()
    work = dist.all_reduce(total, async_op=True)
    norm = gradient.norm()
    work.wait()
    return total.isnan().any(), norm

# %% World(2), World(5): my_all_gather, my_all_reduce, mean, transpose, sharded_step, skip_together
