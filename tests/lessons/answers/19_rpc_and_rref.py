# %% World(4)
# cell `rpc.get_worker_info()` of solutions

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
# Not yet. worker3 was called after worker ... had answered, expected all calls before the first answer.
# answer "by threads that wait",
# with `with ThreadPoolExecutor(n) as threads:` as `with ThreadPoolExecutor(n - 1) as threads:`

# %% fan_out: skeleton
# Not yet. worker3 was called after worker0 had answered, expected all calls before the first answer.

# %% fan_out: that waits for each
# Not yet. worker3 was called after worker0 had answered, expected all calls before the first answer.
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

# %% fan_out: adds up in its argument
# Not yet. `fan_out` changed its argument x from [1.0, 2.0] to [10.0, 20.0], expected it to leave x as it is.
def fan_out(function, x):
    futures = [rpc.rpc_async(f"worker{other}", function, args=(x,)) for other in range(n)]
    return x.copy_(sum(torch.futures.wait_all(futures)))

# %% fan_out: float64
# Solved. 4 calls were under way at the same time.
def fan_out(function, x):
    futures = [rpc.rpc_async(f"worker{other}", function, kwargs={"x": x}) for other in range(n)]
    total = torch.zeros(x.shape, dtype=torch.float64)
    for future in futures:
        total += future.wait()
    return total

# %% many_rows: solution
# Solved. Rank 0 got 5 rows by 1 call.

# %% many_rows: skeleton
# Not yet. Rank 0 made 5 calls for 5 rows, expected 1 call.

# %% many_rows: all at once, and not in one call
# Not yet. Rank 0 made 5 calls for 5 rows, expected 1 call.
def many_rows(table, numbers):
    return torch.stack(torch.futures.wait_all([table.rpc_async().row(number) for number in numbers]))

# %% many_rows: of a copy
# Not yet. Rank 0 fetched a copy of the whole table with `to_here`, expected 1 call that returns only the rows.
def many_rows(table, numbers):
    copy = table.to_here()
    return torch.stack([copy.row(number) for number in numbers])

# %% many_rows: by remote
# Solved. ...
def there(table, numbers):
    return torch.stack([table.local_value().row(number) for number in numbers])

def many_rows(table, numbers):
    return rpc.remote(table.owner(), there, (table, numbers)).to_here()

# %% many_rows: to_here on the owner
# Solved. ...
def there(table, numbers):
    return [table.to_here().row(number) for number in numbers]

def many_rows(table, numbers):
    return torch.stack(rpc.rpc_async("worker1", there, (table, numbers)).wait())

# %% many_rows: the first row only
# Not yet. Rank 0 returned a tensor of shape [4], expected the rows [[7.0, 7.0, 7.0, 7.0], ...
def many_rows(table, numbers):
    return table.rpc_sync().row(numbers[0])

# %% many_rows: sorted
# Not yet. Rank 0 returned a tensor of shape [5, 4], expected the rows [[7.0, 7.0, 7.0, 7.0], ...
# solution, with `for number in numbers` as `for number in sorted(numbers)`

# %% many_rows: lists
# Not yet. Rank 0 returned a list, expected a tensor.
def rows_there(table, numbers):
    return [table.local_value().row(number).tolist() for number in numbers]
def many_rows(table, numbers):
    return rpc.rpc_sync(table.owner(), rows_there, args=(table, numbers))

# %% many_rows: empties its list
# Not yet. `many_rows` changed the list [7, 0, 3, 3, 12] to [], expected it to leave the list as it is.
def rows_there(table, numbers):
    return torch.stack([table.local_value().row(number) for number in numbers])
def many_rows(table, numbers):
    wanted = []
    while numbers:
        wanted.append(numbers.pop(0))
    return rpc.rpc_sync(table.owner(), rows_there, args=(table, wanted))

# %% many_rows: a list that is stacked here
# Solved. Rank 0 got 5 rows by 1 call.
def rows_there(table, numbers):
    return [table.local_value().row(number) for number in numbers]
def many_rows(table, numbers):
    return torch.stack(rpc.rpc_async("worker1", rows_there, args=(table, numbers)).wait())

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

# %% add_many: five times
# Not yet. With times = 3, the object on worker1 was updated 5 times, expected 3 times.
# solution, with `range(times)` as `range(5)`

# %% add_many: returns what it was told
# Not yet. The sum was 10 before, and with times = 3 rank 0 returned 3, expected 13.
def add_many(counter, times):
    torch.futures.wait_all([counter.rpc_async().add(1) for _ in range(times)])
    return times

# %% add_many: returns the largest answer
# Solved. ...
def add_many(counter, times):
    return max(torch.futures.wait_all([counter.rpc_async().add(1) for _ in range(times)]))

# %% many_rows: with a function that only rank 0 has
# Not yet. Rank 0 raised ... on worker1
if rank == 0:
    def rows_of_rank_0(table, numbers):
        return torch.stack([table.local_value().row(number) for number in numbers])

def many_rows(table, numbers):
    return rpc.rpc_sync(table.owner(), rows_of_rank_0, args=(table, numbers))

# %% run_worker: solution
# Solved. The leader called 3 servers, and RPC has ended on every rank.

# %% run_worker: skeleton
# Not yet. Rank 0 returned [], expected ['server1 served 1', 'server2 served 2', 'server3 served 3'].

# %% run_worker: all calls at the same time
# Solved. ...
# solution, with `rpc.rpc_sync(` as `rpc.rpc_async(` and `return results` as `return [f.value() for f in results]`

# %% run_worker: servers that go on
# Not yet. RPC was still running on rank 1, expected `run_worker` to end it.
# solution, with `rpc.shutdown()` as `(rpc.shutdown() if rank == 0 else None)`

# %% run_worker: other names
# Not yet. Rank 0 raised RuntimeError: name:leader,rank:0 could not find destination name server1
# solution, with `f"server{rank}"` as `f"worker{rank}"`

# %% run_worker: no leader
# Not yet. Rank 0 raised ...
# solution, with `"leader"` as `"server0"`

# %% run_worker: rank 0 serves as well
# Not yet. Rank 0 raised RuntimeError: name:leader,rank:0 could not find destination name server0
# solution, with `range(1, n)` as `range(n)`

# %% many_rows: after the check of run_worker
# Not yet. Rank 0 raised RuntimeError: the check of `run_worker` has ended the first RPC session of this process, ...
def many_rows(*arguments):
    pass

# %% World(2), World(8): fan_out, many_rows, add_many, run_worker

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
