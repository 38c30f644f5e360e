# %% World(4)
# cell `init_rpc(` of solutions

# %% fan_out: solution
# Solved. 4 calls were under way at the same time.

# %% fan_out: by remote
# Solved. ...
def fan_out(function, x):
    return sum(r.to_here() for r in [rpc.remote(f"worker{rank}", function, (x,)) for rank in range(n)])

# %% fan_out: by threads that wait
# Solved. ...
from concurrent.futures import ThreadPoolExecutor

def fan_out(function, x):
    with ThreadPoolExecutor(n) as threads:
        return sum(threads.map(lambda other: rpc.rpc_sync(other, function, args=(x,)), range(n)))

# %% fan_out: by then
# Solved. ...
def fan_out(function, x):
    futures = [rpc.rpc_async(f"worker{rank}", function, kwargs={"x": x}) for rank in reversed(range(n))]
    added = torch.futures.collect_all(futures).then(lambda done: sum(f.value() for f in done.value()))
    return added.wait()

# %% fan_out: by too few threads
# Not yet. worker3 was called after worker ... had answered.
# answer "by threads that wait",
# with `with ThreadPoolExecutor(n) as threads:` as `with ThreadPoolExecutor(n - 1) as threads:`

# %% fan_out: skeleton
# Not yet. worker3 was called after worker0 had answered.

# %% fan_out: that waits for each
# Not yet. worker3 was called after worker0 had answered.
def fan_out(function, x):
    return sum(rpc.rpc_async(other, function, args=(x,)).wait() for other in range(n))

# %% fan_out: without rank 0
# Not yet. worker0 was called 0 times, expected once.
def fan_out(function, x):
    futures = [rpc.rpc_async(other, function, args=(x,)) for other in range(1, n)]
    return function(x) + sum(torch.futures.wait_all(futures))

# %% fan_out: that takes the mean
# Not yet. Rank 0 returned [2.5, 5.0], expected [10.0, 20.0].
def fan_out(function, x):
    futures = [rpc.rpc_async(other, function, args=(x,)) for other in range(n)]
    return sum(torch.futures.wait_all(futures)) / n

# %% fan_out: that returns the futures
# Not yet. Rank 0 returned a Future, expected [10.0, 20.0].
def fan_out(function, x):
    return torch.futures.collect_all([rpc.rpc_async(other, function, args=(x,)) for other in range(n)])

# %% fan_out: that raises elsewhere
# Not yet. Rank 0 raised ZeroDivisionError('on purpose') on worker2
def fail():
    raise ZeroDivisionError("on purpose")

def fan_out(function, x):
    return rpc.rpc_sync("worker2", fail)

# %% fan_out: that is not there
# Not yet. Rank 0 has no function `fan_out`: run the cell that defines it, then this check.
globals().pop("fan_out", None)

# %% scaled_total: solution
# Solved. 1048576 bytes stayed on worker1, and 4 came to rank 0.

# %% scaled_total: skeleton
# Not yet. Rank 0 fetched 2097152 bytes of tensors, expected 64 at most.

# %% scaled_total: the sum there
# Solved. ...
def total(function, rref):
    return function(rref.local_value()).sum()

def scaled_total(owner, load, scale):
    return rpc.rpc_sync(owner, total, (scale, rpc.remote(owner, load))).item()

# %% scaled_total: one object
# Solved. ...
def load_and_scale(load, scale):
    return scale(load())

def scaled_total(owner, load, scale):
    scaled = rpc.remote(owner, load_and_scale, (load, scale))
    return scaled.remote().sum().to_here().item()

# %% scaled_total: to_here on the owner
# Solved. ...
def scaled_total(owner, load, scale):
    there = rpc.remote(owner, load)
    return rpc.rpc_async(owner, total_there, (there, scale)).wait()

def total_there(there, scale):
    return scale(there.to_here()).sum().item()

# %% scaled_total: by to here
# Not yet. Rank 0 fetched 1048576 bytes of tensors, expected 64 at most.
def scaled_total(owner, load, scale):
    return scale(rpc.remote(owner, load).to_here()).sum().item()

# %% scaled_total: of the tensor of rank 0
# Not yet. Rank 0 sent 1048576 bytes of tensors, expected 64 at most.
def total(scale, tensor):
    return scale(tensor).sum().item()

def scaled_total(owner, load, scale):
    return rpc.rpc_sync(owner, total, args=(scale, load()))

# %% scaled_total: on rank 0
# Not yet. worker1 was never called.
def scaled_total(owner, load, scale):
    return scale(load()).sum().item()

# %% scaled_total: without the scale
# Not yet. Rank 0 returned 524288.0, expected 1048576.0.
def scaled_total(owner, load, scale):
    return rpc.remote(owner, load).rpc_sync().sum().item()

# %% add_many: solution
# Solved. The object on worker1 was updated 5 times, by calls through its RRef.

# %% add_many: skeleton
# Not yet. The object on worker1 was updated 0 times, expected 5 times.

# %% add_many: one by one
# Solved. ...
# skeleton, with `counter.to_here().add(1)` as `counter.rpc_sync().add(1)`
# and `return counter.to_here().get()` as `return counter.rpc_sync().get()`

# %% add_many: by remote
# Solved. ...
# skeleton, with `counter.to_here().add(1)` as `counter.remote().add(1).to_here()`
# and `return counter.to_here().get()` as `return counter.remote().get().to_here()`

# %% add_many: collected
# Solved. ...
def add_many(counter, times):
    calls = [counter.rpc_async().add(1) for _ in range(times)]
    torch.futures.collect_all(calls).wait()
    return counter.rpc_async().get().wait()

# %% add_many: at once
# Not yet. The object on worker1 was updated once, expected 5 times.
def add_many(counter, times):
    return counter.rpc_sync().add(times)

# %% add_many: and one
# Not yet. The object on worker1 was updated 6 times, expected 5 times.
# skeleton, with `counter.to_here().add(1)` as `counter.rpc_sync().add(1)`
# and `return counter.to_here().get()` as `return counter.rpc_sync().add(1)`

# %% add_many: that does not wait
# Not yet. Some updates were still missing when `add_many` returned: wait for their futures.
# skeleton, with `counter.to_here().add(1)` as `counter.rpc_async().add(1)`
# and `return counter.to_here().get()` as `return times`

# %% add_many: of other numbers
# Not yet. The object on worker1 was updated by [0, 1, 2, 3, 4], expected [1, 1, 1, 1, 1].
def add_many(counter, times):
    return [counter.rpc_sync().add(number) for number in range(times)][-1]

# %% add_many: that returns another sum
# Not yet. Rank 0 returned 15, expected 5.
def add_many(counter, times):
    return sum(counter.rpc_sync().add(1) for _ in range(times))

# %% add_many: on the owner
# Not yet. `add` was called 0 times through the RRef, expected 5 times.
def there(counter, times):
    return [counter.local_value().add(1) for _ in range(times)][-1]

def add_many(counter, times):
    return rpc.rpc_sync("worker1", there, args=(counter, times))

# %% World(2), World(8): fan_out, scaled_total, add_many

# %% World(4)
# Nobody has started RPC.

# %% fan_out: before RPC has been started
# Not yet. Rank 0 raised RuntimeError: RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.
def fan_out(*arguments):
    pass

# %% add_many: before RPC has been started
# Not yet. Rank 0 raised RuntimeError: RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.
def add_many(*arguments):
    pass
