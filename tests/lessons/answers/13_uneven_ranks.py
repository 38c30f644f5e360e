# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`

# %% my_mean: solution
# Solved. Every rank got the mean over the ranks that have data.

# %% my_mean: skeleton
# Not yet. When all ranks have data, rank 0 returned 1.0, expected 2.5.

# %% my_mean
# Solved. ...
def my_mean(gradient, has_data):
    pair = torch.tensor([gradient.item() * has_data, float(has_data)])
    dist.all_reduce(pair)
    return pair[0] / pair[1]

# %% my_mean
# Solved. ...
def my_mean(gradient, has_data):
    total = gradient if has_data else torch.zeros(1)
    count = torch.tensor([1.0 * has_data])
    dist.all_reduce(total)
    dist.all_reduce(count)
    return total / count

# %% my_mean
# Solved. ...
def my_mean(gradient, has_data):
    all_of = [None] * n
    dist.all_gather_object(all_of, gradient.item() if has_data else None)
    there = [x for x in all_of if x is not None]
    return sum(there) / len(there)

# %% my_mean
# Not yet. When only the last rank has data, rank 0 returned 1.0, expected 4.0.
# skeleton, with `return gradient` as `total = gradient * has_data; dist.all_reduce(total); return total / n`

# %% my_mean
# Not yet. When only the last rank has data, rank 0 returned 751.0, expected 4.0.
# skeleton, with `return gradient` as `dist.all_reduce(gradient); return gradient / n`

# %% my_mean
# Not yet. When all ranks have data, rank 0 returned 10.0, expected 2.5.
# skeleton, with `return gradient` as `total = gradient * has_data; dist.all_reduce(total); return total`

# %% my_mean
# Not yet. When all ranks have data, rank 0 returned None, expected 2.5.
# skeleton, with `return gradient` as `return None`

# %% straggler: solution
# Solved. Every rank named each of the 4 stragglers, and none where there was none.

# %% straggler: skeleton
# Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 0 returned None, expected 0.

# %% straggler: sorted tensors
# Solved. ...
def straggler(seconds):
    every = [torch.zeros(1) for _ in range(n)]
    dist.all_gather(every, torch.tensor([float(seconds)]))
    values, ranks = torch.cat(every).sort()
    return ranks[0].item() if 2 * values[0] <= values[1] else None

# %% straggler: a sum of places
# Solved. ...
def straggler(seconds):
    every = torch.zeros(n, dtype=torch.float64)
    every[rank] = seconds
    dist.all_reduce(every)
    least = int(every.argmin())
    others = [s for r, s in enumerate(every.tolist()) if r != least]
    if every[least] > min(others) / 2:
        return None
    return least

# %% straggler: pairs
# Solved. ...
def straggler(seconds):
    pairs = [None] * n
    dist.all_gather_object(pairs, (seconds, rank))
    (least, who), (following, _), *_ = sorted(pairs)
    return who if least / following <= 0.5 else None

# %% straggler: that communicates most
# Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 0 returned 1, expected 0.
# solution, with `least, following = sorted(everywhere)[:2]` as `return everywhere.index(max(everywhere))`,
# without `return everywhere.index(least) if least <= following / 2 else None`

# %% straggler: always
# Not yet. When the ranks communicate for 1, 1, 1, 1 s, rank 0 returned 0, expected None.
# solution, with `least, following = sorted(everywhere)[:2]` as `return everywhere.index(min(everywhere))`,
# without `return everywhere.index(least) if least <= following / 2 else None`

# %% straggler
# Not yet. When the ranks communicate for 0.2, 0.3, 1, 1 s, rank 0 returned 0, expected None.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return everywhere.index(min(everywhere)) if min(everywhere) <= max(everywhere) / 2 else None

# %% straggler
# Not yet. When the ranks communicate for 0.2, 0.3, 1, 1 s, rank 0 returned 0, expected None.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return everywhere.index(min(everywhere)) if min(everywhere) <= sum(everywhere) / n / 2 else None

# %% straggler
# Not yet. When the ranks communicate for 0.6, 1, 1, 1 s, rank 0 returned 0, expected None.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return everywhere.index(min(everywhere)) if min(everywhere) <= 2 * 0.9 * sorted(everywhere)[1] / 2 else None

# %% straggler
# Not yet. When the ranks communicate for 0.4, 1, 1, 1 s, rank 0 returned None, expected 0.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return everywhere.index(min(everywhere)) if min(everywhere) <= 2 * 0.3 * sorted(everywhere)[1] / 2 else None

# %% straggler: known to itself only
# Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 1 returned None, expected 0.
def straggler(seconds):
    everywhere = [None] * n
    dist.all_gather_object(everywhere, seconds)
    return rank if seconds < sorted(everywhere)[1] / 2 else None

# %% averages: solution
# Solved. Every rank returned the means of all steps, [2.5, 13.0, 23.5, 34.0] with r + 1 gradients on rank r.

# %% averages: that ask for the longest list first
# Solved. ...
def averages(gradients):
    longest = torch.tensor(len(gradients))
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    means = []
    for step in range(longest):
        message = torch.tensor([gradients[step].item(), 1.0]) if step < len(gradients) else torch.zeros(2)
        dist.all_reduce(message)
        means.append((message[0] / message[1]).item())
    return means

# %% averages: all lists at once
# Solved. ...
def averages(gradients):
    everybody = [None] * n
    dist.all_gather_object(everybody, [gradient.item() for gradient in gradients])
    steps = range(max(map(len, everybody)))
    taking_part = [[numbers[step] for numbers in everybody if step < len(numbers)] for step in steps]
    return [sum(numbers) / len(numbers) for numbers in taking_part]

# %% averages: asking in every step
# Solved. ...
def averages(gradients):
    means, waiting = [], list(gradients)
    while True:
        count = torch.tensor(float(bool(waiting)))
        dist.all_reduce(count)
        if count == 0:
            return means
        number = waiting.pop(0).clone() if waiting else torch.zeros(1)
        dist.all_reduce(number)
        means.append(float(number / count))

# %% averages: that end when the sum is 0
# Not yet. With two gradients on every rank, of which the first add up to 0, rank 0 returned a list of 0, expected a
# list of 2.
def averages(gradients):
    means, waiting = [], list(gradients)
    while True:
        message = torch.tensor([waiting.pop(0).item(), 1.0]) if waiting else torch.zeros(2)
        dist.all_reduce(message)
        if message[0] == 0:
            return means
        means.append((message[0] / message[1]).item())

# %% averages: skeleton
# Not yet. With r + 1 gradients on rank r, rank 0 returned a list of 1, expected a list of 4.

# %% averages: over all ranks
# Not yet. With r + 1 gradients on rank r, rank 0 returned 9.75 for step 1, expected 13.0.
# answer "that ask for the longest list first",
# with `means.append((message[0] / message[1]).item())` as `means.append((message[0] / n).item())`

# %% averages: as tensors
# Not yet. With r + 1 gradients on rank r, rank 0 returned a Tensor for step 0, expected 2.5.
# answer "that ask for the longest list first",
# with `means.append((message[0] / message[1]).item())` as `means.append((message[0] / message[1]))`

# %% averages: of the shortest list
# Not yet. With r + 1 gradients on rank r, rank 0 returned a list of 1, expected a list of 4.
# answer "that ask for the longest list first",
# with `dist.all_reduce(longest, op=dist.ReduceOp.MAX)` as `dist.all_reduce(longest, op=dist.ReduceOp.MIN)`

# %% averages: that leave early
# Not yet. Deadlock: ... Call world.restart(), then run the lesson again, from its setup cell to this check.
def averages(gradients):
    for gradient in gradients:
        dist.all_reduce(gradient)
    return [gradient.item() / n for gradient in gradients]

# %% token_weights: solution
# Solved. The weighted sums give the mean over all tokens of all ranks.

# %% token_weights: skeleton
# Not yet. With 1 and r + 1 tokens on rank r, rank 0 gives tokens of micro-batch 0 3.50 times their weight ...

# %% token_weights: mean of means
# Not yet. With 1 and r + 1 tokens on rank r, rank 0 gives tokens of micro-batch 0 1.75 times their weight ...
def token_weights(masks):
    return [1 / (len(masks) * max(1, mask.sum().item())) for mask in masks]

# %% token_weights: n times too small
# Not yet. With 1 and r + 1 tokens on rank r, rank 0 gives tokens of micro-batch 0 0.25 times their weight ... DDP divides ...
# solution, with `n / total.item()` as `1 / total.item()`

# %% token_weights: tokens of this rank
# Not yet. With 1 and r + 1 tokens on rank r, rank 0 gives tokens of micro-batch 0 1.75 times their weight ...
def token_weights(masks):
    return [1 / max(1, sum(mask.sum().item() for mask in masks)) for mask in masks]

# %% token_weights: as a tensor each
# Solved. ...
def token_weights(masks):
    counts = [None] * n
    dist.all_gather_object(counts, sum(mask.sum().item() for mask in masks))
    return [torch.tensor(1 / (sum(counts) / n))] * len(masks)

# %% World(2), World(5): straggler, averages, token_weights
