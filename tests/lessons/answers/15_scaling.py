# %% World(4)

# %% my_communicating: skeleton
# Not yet. With no latency, 4 ranks and 100 bytes at 1 s per byte, rank 0 returned None, expected 150.

# %% my_communicating
# Solved. ...
# skeleton, with `return None  # your line` as `return 2 * (k - 1) * alpha + 2 * (k - 1) / k * beta * payload`

# %% my_communicating: solution
# Solved. Latency and bandwidth are those of the ring: 2(k - 1) steps of B/k bytes.

# %% my_communicating
# Solved. ...
# skeleton, with `return None  # your line` as `return sum(alpha + payload / k * beta for step in range(2 * (k - 1)))`

# %% my_communicating
# Not yet. With no latency, 4 ranks and 100 bytes at 1 s per byte, rank 0 returned 75, expected 150.
# solution, with `return 2 * (k - 1) * (alpha + beta * payload / k)` as `return (k - 1) * (alpha + beta * payload / k)`

# %% my_communicating
# Not yet. With no latency, 4 ranks and 100 bytes at 1 s per byte, rank 0 returned 600, expected 150.
# solution, with `return 2 * (k - 1) * (alpha + beta * payload / k)` as `return 2 * (k - 1) * (alpha + beta * payload)`

# %% my_communicating
# Not yet. With no time per byte, 4 ranks and a latency of 1 s, rank 0 returned 2, expected 6.
# solution, with `2 * (k - 1) * (alpha + beta * payload / k)` as `2 * alpha + 2 * (k - 1) / k * beta * payload`

# %% my_communicating
# Not yet. With no latency, 4 ranks and 100 bytes at 1 s per byte, rank 0 returned 200, expected 150.
# solution, with `return 2 * (k - 1) * (alpha + beta * payload / k)` as `return 2 * k * (alpha + beta * payload / k)`

# %% my_rate: solution
# Solved. The rate rises from the base to k times that, and stays there.

# %% my_rate: skeleton
# Not yet. In step 0 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned None, expected 0.1.

# %% my_rate
# Solved. ...
# skeleton, with `return None  # your line` as `return base + (k * base - base) * min(1, number / warm_up)`

# %% my_rate
# Solved. ...
# skeleton, with `None  # your line` as `base * (1 + (k - 1) * number / warm_up) if number < warm_up else k * base`

# %% my_rate
# Solved. ...
# skeleton, with `return None  # your line` as `return min(k * base, base + number * (k - 1) * base / warm_up)`

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

# %% machines: solution
# Solved. The model says how many machines are worth their price on each link.
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

# %% fastest: solution
# Solved. The shortest step is found on each link.
# solution of machines
# solution

# %% fastest: skeleton
# Not yet. With 0.02 s of computing, latency 3e-05 s, 8e-10 s per byte and 4e+06 B, rank 0 returned 1024, whose step
# takes 0.0677933 s, expected 15, whose step takes 0.00814667 s.

# %% fastest: the least of all times
# Solved. ...
def fastest(compute, alpha, beta, payload):
    def time(k):
        return compute / k + 2 * (k - 1) * (alpha + beta * payload / k)

    return min(range(1, 1025), key=time)

# %% fastest
# Solved. ...
# answer "the least of all times",
# with `return min(range(1, 1025), key=time)` as `return sorted((time(k), k) for k in range(1, 1025))[0][1]`

# %% fastest
# Solved. ...
# answer "the least of all times",
# with `min(range(1, 1025), key=time)` as `int(__import__("numpy").argmin([time(k) for k in range(1, 1025)])) + 1`

# %% fastest
# Not yet. ...
# answer "the least of all times",
# with `return min(range(1, 1025), key=time)` as `return min(range(1024), key=lambda k: time(k + 1))`

# %% fastest
# Not yet. With 0.02 s of computing ...
# answer "the least of all times", with `return min(range(1, 1025), key=time)` as `return 1`

# %% fastest
# Not yet. With ...
# answer "the least of all times", with `compute / k +` as `compute +`

# %% fastest
# Not yet. Rank 0 returned ...
# answer "the least of all times",
# with `return min(range(1, 1025), key=time)` as `return min(time(k) for k in range(1, 1025))`
