# %% World(4)
import os, threading, warnings
import torch
import torch.distributed.rpc as rpc

warnings.filterwarnings("ignore", message="You are using a Backend")
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=10, _transports=["uv"], _channels=["basic"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n, rpc_backend_options=options)
lock = threading.Lock()

# %% my_ask: solution
# Solved. my_ask returned (1, 4), and no server thread of worker1 waited for it.

# %% my_ask
# Solved. my_ask returned (1, 4), and no server thread ...
@rpc.functions.async_execution
def my_ask(worker, function):
    return rpc.rpc_async(worker, function).then(lambda answered: (rank, answered.value()))

# %% my_ask
# Solved. my_ask returned (1, 4), and no server thread ...
@rpc.functions.async_execution
def my_ask(worker, function):
    future = torch.futures.Future()
    asking = threading.Thread(target=lambda: future.set_result((rank, rpc.rpc_sync(worker, function))))
    asking.start()
    return future

# %% my_ask: skeleton
# Not yet. The answers are right, but a server thread of worker1 waited inside `my_ask`, expected no server thread to
# wait: return a future that gets the answer later.

# %% my_ask
# Not yet. The answers are right, but a server thread of worker1 waited inside `my_ask`, expected no server thread to
# wait: return a future that gets the answer later.
@rpc.functions.async_execution
def my_ask(worker, function):
    return rpc.rpc_async(worker, function).then(lambda answered: (rank, rpc.rpc_sync(worker, function)))

# %% my_ask
# Not yet. The answers are right, but a server thread of worker1 waited inside `my_ask`, expected no server thread to
# wait: return a future that gets the answer later.
@rpc.functions.async_execution
def my_ask(worker, function):
    asked = rpc.rpc_async(worker, function)
    asked.wait()
    return asked.then(lambda a: (rank, a.value()))

# %% my_ask
# Not yet. `my_ask` returned 4, expected (1, 4): the rank that runs it, and the function's result.
@rpc.functions.async_execution
def my_ask(worker, function):
    return rpc.rpc_async(worker, function).then(lambda answered: answered.value())

# %% my_ask
# Not yet. `my_ask` returned (4, 1), expected (1, 4): the rank that runs it, and the function's result.
@rpc.functions.async_execution
def my_ask(worker, function):
    return rpc.rpc_async(worker, function).then(lambda answered: (answered.value(), rank))

# %% my_ask
# Not yet. `my_ask` returned 4, expected (1, 4): the rank that runs it, and the function's result.
@rpc.functions.async_execution
def my_ask(worker, function):
    return rpc.rpc_async(worker, function)

# %% my_ask
# Not yet. worker1 tried to send a future, expected a pair: decorate `my_ask`, and read the answer in `then` with
# `future.value()`.
def my_ask(worker, function):
    return rpc.rpc_async(worker, function).then(lambda answered: (rank, answered.value()))

# %% my_ask
# Not yet. worker1 tried to send a future, expected a pair: decorate `my_ask`, and read the answer in `then` with
# `future.value()`.
@rpc.functions.async_execution
def my_ask(worker, function):
    return rpc.rpc_async(worker, function).then(lambda answered: (rank, answered))

# %% my_ask: that returns no future
# Not yet. Rank 0 raised RuntimeError: ... must return a torch.futures.Future ...
@rpc.functions.async_execution
def my_ask(worker, function):
    return rank, 4

# %% my_ask: that is missing
# Not yet. Rank 0 has no function `my_ask`: run the cell that defines it, then this check.
globals().pop("my_ask", None)

# %% my_ask: waits in a function of then
# Not yet. The answers are right, but a server thread of worker1 waited inside `my_ask`, expected no server thread to
# wait: return a future that gets the answer later.
def finish(future):
    return rank, rpc.rpc_sync("worker3", share_again)
def share_again():
    import time
    time.sleep(0.9)
    return rank + 1
@rpc.functions.async_execution
def my_ask(worker, function):
    return rpc.rpc_async(worker, function).then(finish)

# %% my_ask: forgets then
# Not yet. Rank 0 raised RuntimeError: Error on Node 1: ...
@rpc.functions.async_execution
def my_ask(worker, function):
    rpc.rpc_async(worker, function).then(lambda a: (rank, a.value()))

# %% my_ask: callback
# Solved. my_ask returned (1, 4), and no server thread ...
@rpc.functions.async_execution
def my_ask(worker, function):
    reply = torch.futures.Future()
    rpc.rpc_async(worker, function).add_done_callback(lambda a: reply.set_result((rank, a.value())))
    return reply

# %% Batcher: solution
# Solved. 4 calls of run answered 12 callers.

# %% Batcher: skeleton
# Not yet. `ask` answered a caller too early, expected no answer until 3 callers have asked.

# %% Batcher: with futures
# Solved. 4 calls of run answered 12 callers.
class Batcher:
    def __init__(self, size, run):
        self.size, self.run = size, run
        self.asked, self.lock, self.full = [], threading.Lock(), threading.Event()

    @rpc.functions.async_execution
    def ask(self, x):
        future, batch = torch.futures.Future(), []
        with self.lock:
            self.asked.append((x, future))
            if len(self.asked) == self.size:
                batch, self.asked = self.asked, []
        results = self.run([x for x, _ in batch]) if batch else []
        for (_, waiting), result in zip(batch, results):
            waiting.set_result(result)
        return future

# %% Batcher
# Not yet. `ask` answered a caller too early, expected no answer until 3 callers have asked.
# skeleton, with `self.size = size` as `self.size, self.run = size, run`
# and `self.run = run` as `self.asked, self.lock, self.full = [], threading.Lock(), threading.Event()`

# %% Batcher
# Not yet. ...
# answer "with futures", with `with self.lock:` as `if True:`

# %% Batcher
# Not yet. The caller of `ask(0)` got a list of 3, expected 0, the result for its own value.
# answer "with futures", with `waiting.set_result(result)` as `waiting.set_result(results)`

# %% Batcher
# Not yet. 12 callers asked, and some got no answer within 8 s, expected an answer for each: does each full batch
# complete all its futures?
# answer "with futures", with `batch, self.asked = self.asked, []` as `batch = self.asked`

# %% Batcher
# Not yet. The calls of `run` got [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] values, expected [3, 3, 3, 3].
# answer "with futures",
# with `self.run([x for x, _ in batch]) if batch else []` as `[self.run([x])[0] for x, _ in batch]`

# %% Batcher
# Not yet. The answers are right, but a server thread of worker1 waited inside `ask`, expected no server thread to wait:
# return a future that gets the answer later.
class Batcher:
    def __init__(self, size, run):
        self.size, self.run = size, run
        self.asked, self.lock, self.full = [], threading.Lock(), threading.Event()

    def ask(self, x):
        with self.lock:
            place = len(self.asked)
            self.asked.append(x)
            first = place - place % self.size
            if place == first:
                self.full = threading.Event()
            full = self.full
            if place == first + self.size - 1:
                full.results = self.run(self.asked[first:])
                full.set()
        full.wait()
        return full.results[place - first]

# %% Batcher: after threads were starved
# Not yet. 12 callers asked, and some got no answer within 8 s, expected an answer for each: does each full batch
# complete all its futures?
class Batcher:
    def __init__(self, size, run):
        self.size, self.run = size, run
        self.asked, self.lock, self.full = [], threading.Lock(), threading.Event()

    def ask(self, x):
        self.full.wait()

# %% my_leave: skeleton
# Not yet. All workers were alive, but worker0 left while worker3 was still calling it, expected all workers to leave
# together.

# %% my_leave: solution
# Solved. All workers left together, and each left alone after worker3 had left, and after a shutdown that failed.

# %% my_leave: only the first half
# Not yet. worker3 had already left, but on rank 0 `my_leave` raised RuntimeError, expected it to return False.
def my_leave(seconds):
    torch.futures.wait_all([rpc.rpc_async(r, os.getpid, timeout=seconds) for r in range(n)])
    rpc.shutdown(timeout=seconds)
    return True

# %% my_leave: trusts the shutdown
# Not yet. All workers had answered and `rpc.shutdown` raised RuntimeError, but on rank ... `my_leave` raised
# RuntimeError, expected it to return False.
def my_leave(seconds):
    try:
        torch.futures.wait_all([rpc.rpc_async(r, os.getpid, timeout=seconds) for r in range(n)])
    except RuntimeError:
        rpc.shutdown(graceful=False)
        return False
    rpc.shutdown(timeout=seconds)
    return True

# %% my_leave: leaves twice
# Not yet. All workers had answered and `rpc.shutdown` raised RuntimeError, but on rank ... `my_leave` raised
# RuntimeError, expected it to return False.
# solution, with `with suppress(RuntimeError):` as `if True:`

# %% my_leave: shuts down without a timeout
# Not yet. All workers were alive, but on rank ... `my_leave` called `rpc.shutdown` without a timeout, expected a
# timeout of 10 s: a worker that has answered may die before it leaves.
# solution, with `rpc.shutdown(timeout=seconds)` as `rpc.shutdown()`

# %% my_leave: stays if a worker is missing
# Not yet. worker3 had already left, but RPC was still running on rank 0 after `my_leave`, expected RPC to have ended.
# solution, with `rpc.shutdown(graceful=False)` as `pass`

# %% my_leave: always returns True
# Not yet. worker3 had already left, but on rank 0 `my_leave` returned True, expected it to return False.
# solution, with `return False` as `return True`

# %% my_leave: does not ask
# Not yet. worker3 had already left, and on rank 0 `my_leave` took ... s, expected less than 8 s: check that every
# worker answers before you wait for all of them. Call fresh_ranks(), then run the cell with your answer and this check
# again.
def my_leave(seconds):
    try:
        rpc.shutdown(timeout=seconds)
        return True
    except RuntimeError:
        return False

# %% my_leave: with an error of its own
# Not yet. All workers were alive, but on rank 0 `my_leave` raised NameError: name 'os_getpid' is not defined, expected
# it to return True.
# solution, with `os.getpid` as `os_getpid`

# %% my_leave: one worker after another
# Solved. ...
# solution, with `torch.futures.wait_all([rpc.rpc_async(r, os.getpid, timeout=seconds) for r in range(n)])`
# as `[rpc.rpc_sync(r, os.getpid, timeout=seconds) for r in range(n)]`

# %% my_leave: that is missing
# Not yet. Rank 0 has no function `my_leave`: run the cell that defines it, then this check.
globals().pop("my_leave", None)

# %% my_leave: default timeout of the questions
# Not yet. On rank 0 `my_leave` asked worker... without a timeout, or with another timeout than `seconds`, expected a
# timeout of 10 s: a worker that is stuck never answers.
# solution, with `os.getpid, timeout=seconds)` as `os.getpid)`

# %% my_leave: asks only the last
# Not yet. Before rank 0 left, `my_leave` asked worker3, expected it to ask every worker: any worker may be missing.
# solution, with `for r in range(n)` as `for r in [n - 1]`

# %% my_leave: another timeout
# Not yet. All workers were alive, but on rank ... `my_leave` called `rpc.shutdown` with a timeout of 1 s, expected a
# timeout of 10 s: a worker that has answered may die before it leaves.
# solution, with `rpc.shutdown(timeout=seconds)` as `rpc.shutdown(timeout=1)`

# %% my_leave: by name and helper
# Solved. ...
def is_there(worker, seconds):
    try:
        return rpc.rpc_sync(worker, int, args=(1,), timeout=seconds) == 1
    except RuntimeError:
        return False
def my_leave(seconds):
    if all([is_there(f"worker{r}", seconds) for r in range(n)]):
        try:
            rpc.shutdown(timeout=seconds)
        except RuntimeError:
            return False
        return True
    rpc.shutdown(graceful=False)
    return False

# %% Batcher: after the check of my_leave
# Not yet. Rank 0 raised RuntimeError: the check of `my_leave` has ended the first RPC session of this process, and
# RRefs work only in the first session. Call fresh_ranks(), then run the cell with your answer again
# solution

# %% Batcher: hard-coded for three
# Not yet. One caller asked this `Batcher`, and two callers asked a second `Batcher`, of size 2. The two callers got
# [None, None], expected [10, 20]: use `self.size`, and keep the callers in the object.
# answer "with futures", with `== self.size` as `== 3`

# %% Batcher: by value
# Not yet. 12 callers asked, and some got no answer within 8 s, expected an answer for each: does each full batch
# complete all its futures?
class Batcher:
    def __init__(self, size, run):
        self.size, self.run = size, run
        self.asked, self.lock = {}, threading.Lock()

    @rpc.functions.async_execution
    def ask(self, x):
        future, batch = torch.futures.Future(), {}
        with self.lock:
            self.asked[x] = future
            if len(self.asked) == self.size:
                batch, self.asked = self.asked, {}
        if batch:
            for waiting, result in zip(batch.values(), self.run(list(batch))):
                waiting.set_result(result)
        return future

# %% Batcher: of the class
# Not yet. ... expected [10, 20]: use `self.size`, and keep the callers in the object.
class Batcher:
    asked, lock = [], threading.Lock()
    def __init__(self, size, run):
        self.size, self.run = size, run

    @rpc.functions.async_execution
    def ask(self, x):
        future = torch.futures.Future()
        with self.lock:
            self.asked.append((x, future))
            if len(self.asked) == self.size:
                for (_, f), r in zip(self.asked, self.run([x for x, _ in self.asked])):
                    f.set_result(r)
                self.asked.clear()
        return future

# %% Batcher: one shared future
# Solved. 4 calls of run answered 12 callers.
class Batcher:
    def __init__(self, size, run):
        self.size, self.run = size, run
        self.xs, self.future, self.lock = [], torch.futures.Future(), threading.Lock()

    @rpc.functions.async_execution
    def ask(self, x):
        with self.lock:
            place = len(self.xs)
            self.xs.append(x)
            future = self.future.then(lambda done: done.value()[place])
            if len(self.xs) == self.size:
                xs, full = self.xs, self.future
                self.xs, self.future = [], torch.futures.Future()
                full.set_result(self.run(xs))
        return future

# %% ask_any: skeleton
# Not yet. The first worker was dead, and `ask_any` raised RuntimeError, expected it to call the next worker.

# %% ask_any: after any error
# Not yet. The function raised a ValueError, but `ask_any` called 2 workers, expected a call to the first worker only.
# solution, with `except RuntimeError as failed:` as `except Exception as failed:`

# %% ask_any: solution
# Solved. ask_any passed over a dead worker and a slow worker, and let the function's own error through.

# %% ask_any: without time to answer
# Not yet. The first worker did not answer in time, and `ask_any` called ['worker2'], expected ['worker2', 'worker2'].
def ask_any(workers, function, args):
    for worker in workers:
        future = rpc.rpc_async(worker, function, args=args, timeout=0)
        try:
            return future.wait()
        except RuntimeError as error:
            pass
    raise RuntimeError("nobody is left")

# %% ask_any: all but the first
# Not yet. The first worker was dead, and `ask_any` called ['worker2', 'worker2'], expected ['worker3', 'worker2'].
def ask_any(workers, function, args):
    return [w.wait() for w in [rpc.rpc_async(w, function, args=args) for w in workers[1:]]][0]

# %% ask_any: with an error of its own
# Not yet. The function raised a ValueError, but `ask_any` raised RuntimeError, expected it to raise this ValueError.
# solution, with `except RuntimeError as failed:` as `except Exception as failed:`
# and `raise error` as `raise RuntimeError from error`

# %% ask_any: returns None in the end
# Not yet. All workers were dead, but `ask_any` returned None, expected it to raise a RuntimeError.
# solution, with `raise error` as `return None`

# %% ask_any: with a timeout of its own
# Solved. ask_any passed over a dead worker and a slow worker, and let the function's own error through.
# answer "without time to answer", with `timeout=0` as `timeout=2`

# %% ask_any: raises after a timeout
# Not yet. The first worker did not answer in time, and `ask_any` raised RuntimeError, expected it to call the next
# worker.
# answer "without time to answer", with `timeout=0` as `timeout=2`
# and `pass` as `if "timeout" in str(error): raise`

# %% ask_any: tries once more only
# Not yet. The first two workers were dead, and `ask_any` raised RuntimeError, expected it to call the next worker.
def ask_any(workers, function, args):
    try:
        return rpc.rpc_sync(workers[0], function, args=args)
    except RuntimeError:
        return rpc.rpc_sync(workers[1], function, args=args)

# %% ask_any: empties the list
# Not yet. `ask_any` changed the list of workers to ['worker2'], expected it to leave the caller's list as it is.
def ask_any(workers, function, args):
    while workers:
        try:
            return rpc.rpc_sync(workers.pop(0), function, args=args)
        except RuntimeError:
            pass
    raise RuntimeError("nobody is left")

# %% ask_any: recursion
# Solved. ask_any passed over a dead worker and a slow worker, and let the function's own error through.
def ask_any(workers, function, args):
    if not workers:
        raise RuntimeError("no worker has answered")
    first, *others = workers
    try:
        return rpc.rpc_async(first, function, args=tuple(args)).wait()
    except RuntimeError:
        return ask_any(others, function, args)

# %% my_record: skeleton
# Not yet. 4 concurrent requests counted to 1, expected 4: let no other request run between `read` and `write`.

# %% my_record: solution
# Solved. 4 requests worked at the same time, and counted to 4.

# %% my_record
# Solved. 4 requests worked at the same time, and counted to 4.
def my_record(work, read, write):
    work()
    lock.acquire()
    try:
        write(read() + 1)
    finally:
        lock.release()

# %% my_record
# Solved. 4 requests worked at the same time, and counted to 4.
def my_record(work, read, write):
    with lock:
        write(1 + read())
    return work()

# %% my_record
# Solved. 4 requests worked at the same time, and counted to 4.
def my_record(work, read, write):
    done = work()
    with lock:
        before = read()
        write(before + 1)
    return done, before

# %% my_record
# Not yet. A request waited while another request ran `work` ...
def my_record(work, read, write):
    with lock:
        work()
        write(read() + 1)

# %% my_record
# Not yet. ... counted to 1, expected 4: let no other request run between `read` and `write`.
# solution, with `with lock:` as `with threading.Lock():`

# %% my_record
# Not yet. ... counted to 1, expected 4: let no other request run between `read` and `write`.
# solution, with `work()` as `work(); before = read()` and `write(read() + 1)` as `write(before + 1)`

# %% my_record
# Not yet. 4 requests called `work` 0 times, expected once each.
# solution, without `work()`

# %% my_record
# Not yet. 4 requests called `write` 0 times, expected once each.
# skeleton, without `write(read() + 1)`

# %% my_record
# Not yet. ... NameError ...
# solution, with `write(read() + 1)` as `write(read() + missing)`

# %% my_record: a lock that is never released
# Not yet. 3 of 4 requests got no answer within 12 s, expected an answer for each: does each request release the lock?
# Run the lesson again, from the cell with `World` to this check.
# skeleton, with `work()` as `work(); lock.acquire()`

# %% my_record: without the function
# Not yet. Rank 0 has no function `my_record`: run the cell that defines it, then this check.
globals().pop("my_record", None)

# %% my_record: ignores read
# Not yet. 4 concurrent requests counted to -6, expected 4: let no other request run between `read` and `write`.
def my_record(work, read, write):
    global count
    work()
    with lock:
        count = globals().get("count", 0) + 1
        write(count)

# %% my_record: released between
# Not yet. 4 concurrent requests counted to ..., expected 4: let no other request run between `read` and `write`.
def my_record(work, read, write):
    work()
    with lock:
        before = read()
    with lock:
        write(before + 1)

# %% my_record: lock as a default argument
# Solved. 4 requests worked at the same time, and counted to 4.
def my_record(work, read, write, lock=threading.RLock()):
    work()
    with lock:
        write(sum([read(), 1]))

# %% World(2), World(5): my_leave
