# %% World(4)
# cell `init_process_group(`

# %% my_step_seconds: solution
# Solved. Every rank returned the step time of the slowest rank.

# %% my_step_seconds: skeleton
# Not yet. Rank 0 called `step` once, expected 8 times: two without the clock, then six with it.

# %% my_step_seconds: the own time
# Not yet. In a group of all ranks the slowest rank takes 0.05... s for a step, and a different rank is the slowest in
# every step. The first step is longer, the second shorter, and four of the other six are disturbed. Rank 0 returned
# 0.02..., expected about 0.05... s.
# solution, without `dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)`

# %% my_step_seconds: in the default group
# Not yet. Deadlock: until the timeout, ranks 0, 1 and 2 waited in `all_reduce` or `barrier`. Run the lesson again, ...
# solution, with `, group=group` as ``

# %% my_step_seconds: the mean of six
# Not yet. In a group of all ranks the slowest rank takes 0.05... s for a step, ..., expected about 0.05... s.
# solution, with `slowest.min()` as `slowest.mean()`

# %% my_step_seconds: the sum over the ranks
# Not yet. In a group of all ranks the slowest rank takes 0.05... s for a step, ..., expected about 0.05... s.
# solution, with `dist.ReduceOp.MAX, group=group` as `group=group`

# %% my_step_seconds: the fastest rank
# Not yet. In a group of all ranks the slowest rank takes 0.05... s for a step, ..., expected about 0.05... s.
# solution, with `dist.ReduceOp.MAX` as `dist.ReduceOp.MIN`

# %% my_step_seconds: milliseconds
# Not yet. In a group of all ranks the slowest rank takes 0.05... s for a step, ..., expected about 0.05... s.
# solution, with `slowest.min().item()` as `1000 * slowest.min().item()`

# %% my_step_seconds: without return
# Not yet. In a group of all ranks ... Rank 0 returned None, expected about 0.05... s.
# solution, with `return slowest.min().item()` as `slowest.min().item()`

# %% my_step_seconds: first the shortest, then the slowest rank
# Not yet. In a group of all ranks the slowest rank takes 0.05... s for a step, and a different rank is the slowest in
# every step. The first step is longer, the second shorter, and four of the other six are disturbed. Rank 0 returned
# 0.02..., expected about 0.05... s.
# solution, with `torch.tensor(times)` as `torch.tensor(min(times))`

# %% my_step_seconds: the median
# Not yet. In a group of all ranks the slowest rank takes 0.05... s for a step, ... Rank 0 returned 0.2..., expected
# about 0.05... s.
# solution, with `slowest.min()` as `slowest.median()`

# %% my_step_seconds: with the first two steps
# Not yet. In a group of all ranks the slowest rank takes 0.05... s for a step, ... Rank 0 returned 0.0..., expected
# about 0.05... s.
# solution, with `number >= 2` as `number >= 0`

# %% my_step_seconds: six steps in all
# Not yet. Rank 0 called `step` 6 times, expected 8 times: two without the clock, then six with it.
# solution, with `range(8)` as `range(6)`

# %% my_step_seconds: barriers around the step
# Solved. ...
def my_step_seconds(step, group):
    def lap():
        dist.barrier(group)
        start = time.monotonic()
        step()
        dist.barrier(group)
        return time.monotonic() - start

    step()
    step()
    return min(lap() for _ in range(6))

# %% my_step_seconds: the barrier inside the clock, a tensor
# Solved. ...
def my_step_seconds(step, group):
    times = []
    for _ in range(8):
        start = time.perf_counter()
        dist.barrier(group)
        step()
        times.append(time.perf_counter() - start)
    slowest = torch.tensor(times[2:])
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return slowest.min()

# %% my_step_time: solution
# Solved. A step computes, and then sends 2(n - 1) messages of B/n bytes; with full overlap the longer time counts.

# %% my_step_time: skeleton
# Not yet. With no latency, 4 ranks and 100 bytes at 1 s per byte, rank 0 returned 0, expected 150.

# %% my_step_time: in one line
# Solved. ...
# skeleton, with `return compute` as `return (max if overlap else lambda *both: sum(both))(compute, 2 * (n - 1) * (alpha + payload / n * beta))`

# %% my_step_time: message by message
# Solved. ...
def my_step_time(n, compute, alpha, beta, payload, overlap=False):
    ring = sum(alpha + beta * payload / n for message in range(2 * (n - 1)))
    return max(compute, ring) if overlap else compute + ring

# %% my_step_time: half of the ring
# Not yet. With no latency, 4 ranks and 100 bytes at 1 s per byte, rank 0 returned 75, expected 150.
# solution, with `2 * (n - 1)` as `(n - 1)`

# %% my_step_time: whole bytes
# Not yet. With no latency, 3 ranks and 100 bytes at 1 s per byte, rank 0 returned 132, expected 133.333.
# solution, with `payload / n` as `payload // n`

# %% my_step_time: all bytes in each message
# Not yet. With no latency, 4 ranks and 100 bytes at 1 s per byte, rank 0 returned 600, expected 150.
# solution, with `payload / n` as `payload`

# %% my_step_time: n messages
# Not yet. With no latency, 4 ranks and 100 bytes at 1 s per byte, rank 0 returned 200, expected 150.
# solution, with `(n - 1)` as `n`

# %% my_step_time: one latency
# Not yet. With no time per byte, 4 ranks and a latency of 1 s, rank 0 returned 1, expected 6.
# solution, with `2 * (n - 1) * (alpha + beta * payload / n)` as `alpha + 2 * (n - 1) * beta * payload / n`

# %% my_step_time: computing is shared
# Not yet. With 4 ranks that compute for 3 s, and a latency of 1 s, rank 0 returned 6.75, expected 9.
# solution, with `return compute + communication` as `return compute / n + communication`

# %% my_step_time: the latency cannot overlap
# Not yet. With full overlap, computing for 3 s and communicating for 6 s, rank 0 returned 9, expected 6.
# solution, with `max(compute, communication)` as `max(compute, communication - 2 * (n - 1) * alpha) + 2 * (n - 1) * alpha`

# %% my_step_time: no overlap
# Not yet. With full overlap, computing for 3 s and communicating for 6 s, rank 0 returned 9, expected 6.
# solution, with `max(compute, communication)` as `compute + communication`

# %% my_step_time: overlap hides everything
# Not yet. With full overlap, computing for 3 s and communicating for 6 s, rank 0 returned 3, expected 6.
# solution, with `max(compute, communication)` as `compute`

# %% my_step_time: only communication
# Not yet. With one rank that computes for 3 s, rank 0 returned 0, expected 3.
# solution, with `return compute + communication` as `return communication`

# %% my_rate: solution
# Solved. The rate rises from the base to k times the base, and stays there.

# %% my_rate: skeleton
# Not yet. In step 1 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0.1, expected 0.17.

# %% my_rate
# Solved. ...
# skeleton, with `return base` as `return base + (k * base - base) * min(1, number / warm_up)`

# %% my_rate
# Solved. ...
# skeleton, with `return base` as `return base * (1 + (k - 1) * number / warm_up) if number < warm_up else k * base`

# %% my_rate
# Solved. ...
# skeleton, with `return base` as `return min(k * base, base + number * (k - 1) * base / warm_up)`

# %% my_rate
# Not yet. In step 0 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0.8, expected 0.1.
# solution, with `return base * (1 + (k - 1) * min(1, number / warm_up))` as `return k * base`

# %% my_rate
# Not yet. In step 0 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0, expected 0.1.
# solution, with `base * (1 + (k - 1) * min(1, number / warm_up))` as `k * base * min(1, number / warm_up)`

# %% my_rate
# Not yet. In step 11 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0.87, expected 0.8.
# solution, with `base * (1 + (k - 1) * min(1, number / warm_up))` as `base + (k - 1) * base * number / warm_up`

# %% my_rate
# Not yet. In step 1 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0.1, expected 0.17.
# solution, with `base * (1 + (k - 1) * min(1, number / warm_up))` as `base if number < warm_up else k * base`

# %% my_rate
# Not yet. In step 0 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0.17, expected 0.1.
# solution, with `number / warm_up` as `(number + 1) / warm_up`

# %% my_noise: solution
# Solved. Every rank returned the noise and the signal in the gradients of all ranks.

# %% my_noise: skeleton
# Not yet. With batches of 1, rank 0 returned a noise of 0, expected ...

# %% my_noise: all gradients on every rank
# Solved. ...
def my_noise(gradient, batch):
    n = dist.get_world_size()
    gradients = [torch.empty_like(gradient) for _ in range(n)]
    dist.all_gather(gradients, gradient)
    gradients = torch.stack(gradients)
    s = gradients.square().sum(1).mean()
    big = gradients.mean(0).square().sum()
    return [(s - big) / (1 / batch - 1 / (n * batch)), (n * big - s) / (n - 1)]

# %% my_noise: the sum instead of the mean
# Not yet. With batches of 1, rank 0 returned a noise of ..., expected ...
# solution, without `mean /= n`

# %% my_noise: the own norm
# Not yet. With batches of 1, rank 0 returned a noise of ..., expected ...
# solution, with `gradient.square().sum() / n` as `gradient.square().sum()`, without `dist.all_reduce(small)`

# %% my_noise: norms that are not squared
# Not yet. With batches of 1, rank 0 returned a noise of ..., expected ...
# solution, with `gradient.square().sum() / n` as `gradient.norm() / n` and `mean.square().sum()` as `mean.norm()`

# %% my_noise: without the batch
# Not yet. With batches of 25, rank 0 returned a noise of ..., expected ...
# solution, with `(1 / batch - 1 / (n * batch))` as `(1 - 1 / n)`

# %% my_noise: one collective, a tensor of two numbers
# Solved. ...
def my_noise(gradient, batch):
    n = dist.get_world_size()
    both = torch.cat([gradient, gradient.dot(gradient).view(1)])
    dist.all_reduce(both, dist.ReduceOp.AVG)
    s, l = both[-1], both[:-1].square().sum()
    return torch.stack([(s - l) / (1 / batch - 1 / (n * batch)), (n * l - s) / (n - 1)])

# %% my_noise: without parentheses
# Not yet. With batches of 25, rank 0 returned a noise of ..., expected ...
# solution, with `1 / (n * batch)` as `1 / n * batch`

# %% my_noise: the mean of the squares
# Not yet. With batches of 1, rank 0 returned a noise of ..., expected ...
# solution, with `square().sum()` as `square().mean()`

# %% my_noise: signal and noise
# Not yet. With batches of 1, rank 0 returned a noise of ..., expected ...
# solution, with `return noise.item(), signal.item()` as `return signal.item(), noise.item()`

# %% my_noise: the biased signal
# Not yet. With batches of 1, rank 0 returned a signal of ..., expected ...
# solution, with `(n * large - small) / (n - 1)` as `large`

# %% my_noise: only the scale
# Not yet. Rank 0 returned ..., expected two numbers: the noise and the signal.
# solution, with `return noise.item(), signal.item()` as `return noise / signal`

# %% my_noise: in place
# Not yet. The values are right, but rank 0 changed `gradient`, expected it unchanged.
# solution, with `gradient.clone(), gradient.square().sum() / n` as `gradient, gradient.square().sum() / n`

# %% machines: solution
# Solved. The model says how many machines are worth their price on each link.
# solution of my_step_time
# solution

# %% machines: skeleton
# Not yet. With 0.02 s of computing, latency 3e-05 s, 8e-10 s per byte and 4e+06 B, rank 0 returned 1 for an efficiency
# of 50%, expected 228.

# %% machines: the most that are efficient enough
# Solved. ...
def machines(compute, alpha, beta, payload, least):
    def efficiency(k):
        return compute / (compute + 2 * (k - 1) * (alpha + beta * payload / k))

    return max(k for k in range(1, 1025) if efficiency(k) >= least)

# %% machines
# Solved. ...
def machines(compute, alpha, beta, payload, least):
    def efficiency(k):
        return compute / (compute + 2 * (k - 1) * (alpha + beta * payload / k))

    return sum(efficiency(k) >= least for k in range(1, 1025))

# %% machines
# Solved. ...
def machines(compute, alpha, beta, payload, least):
    def efficiency(k):
        return compute / (compute + 2 * (k - 1) * (alpha + beta * payload / k))

    return next((k - 1 for k in range(1, 1025) if efficiency(k) < least), 1024)

# %% machines
# Not yet. With 0.02 s ...
def machines(compute, alpha, beta, payload, least):
    def efficiency(k):
        return compute / (compute + 2 * (k - 1) * (alpha + beta * payload / k))

    return next((k for k in range(1, 1025) if efficiency(k) < least), 1024)

# %% machines
# Not yet. With ...
# answer "the most that are efficient enough", with `1, 1025` as `1, 10000`

# %% machines
# Not yet. With ...
# answer "the most that are efficient enough", with `payload / k` as `payload`

# %% machines
# Not yet. ...
# answer "the most that are efficient enough", with `alpha + beta` as `beta`

# %% machines: more than the efficiency
# Not yet. With 6 s of computing, latency 1 s, 0 s per byte and 4e+06 B, rank 0 returned 3 for an efficiency of 50%,
# expected 4.
# answer "the most that are efficient enough", with `>= least` as `> least`

# %% machines: by halves
# Solved. ...
def machines(compute, alpha, beta, payload, least):
    low, high = 1, 1024
    while low < high:
        middle = (low + high + 1) // 2
        communication = 2 * (middle - 1) * (alpha + beta * payload / middle)
        low, high = (middle, high) if communication <= compute * (1 / least - 1) else (low, middle - 1)
    return low

# %% machines: strong scaling
# Not yet. With 0.02 s ...
# answer "the most that are efficient enough", with `compute / (compute +` as `compute / k / (compute / k +`

# %% machines: nothing if all are efficient enough
# Not yet. With 0.2 s of computing, ..., rank 0 returned None for an efficiency of 50%, expected 1024.
def machines(compute, alpha, beta, payload, least):
    for k in range(1, 1025):
        if compute / (compute + 2 * (k - 1) * (alpha + beta * payload / k)) < least:
            return k - 1

# %% World(2), World(3): my_step_seconds, my_noise
