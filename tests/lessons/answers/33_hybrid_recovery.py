# %% World(4)
import sys
from helpers.course import NOTEBOOKS

sys.path.append(str(NOTEBOOKS))
# cell `from hybrid_training import`
# cell `start(rpc_timeout`
# cell `class InTurns`
# cell `def prepare(`
# cell `def train(`
# cell `def read_table(`

# %% my_living: solution
# Solved. The list has the workers that answered, and silent workers cost the timeout only once.

# %% my_living: threads
# Solved. The list has the workers that answered, and silent workers cost the timeout only once.
from concurrent.futures import ThreadPoolExecutor

def my_living(names, seconds):
    def answers(name):
        try:
            return rpc.rpc_sync(name, os.getpid, timeout=seconds)
        except RuntimeError:
            return False

    with ThreadPoolExecutor(len(names)) as threads:
        return [name for name, alive in zip(names, threads.map(answers, names), strict=True) if alive]

# %% my_living: skeleton
# Not yet. When trainer1 is silent, `my_living` returned ['server', 'trainer0', 'trainer1', 'master'], expected ...

# %% my_living: one after the other
# Not yet. When trainer1 and server are silent, `my_living(names, 1.2)` took ... s, expected about 1.2 s: give each ...
def my_living(names, seconds):
    alive = []
    for name in names:
        try:
            rpc.rpc_sync(name, os.getpid, timeout=seconds)
            alive.append(name)
        except RuntimeError:
            pass
    return alive

# %% my_living: no timeout
# Not yet. When trainer1 is silent, `my_living(names, 1.2)` took ... s, expected about 1.2 s: give each call ...
# solution, with `, timeout=seconds` as ``

# %% my_living: a timeout of its own
# Not yet. When trainer1 is silent, `my_living(names, 1.2)` took ... s, expected about 1.2 s: give each call ...
# solution, with `timeout=seconds` as `timeout=2`

# %% my_living: a shorter timeout of its own
# Not yet. When trainer1 is silent, `my_living(names, 1.2)` took 1.0 s, expected about 1.2 s: give each call the ...
# solution, with `timeout=seconds` as `timeout=1`

# %% my_living: takes the silent from the list
# Not yet. When trainer1 is silent, `my_living` changed its list `names` to ['server', 'trainer0', 'master'], expected no
# change: a silent worker may answer the next time.
def my_living(names, seconds):
    calls = {worker: rpc.rpc_async(worker, os.getpid, timeout=seconds) for worker in names}
    for worker, call in calls.items():
        try:
            call.wait()
        except RuntimeError:
            names.remove(worker)
    return names

# %% my_living: the dead
# Not yet. When no rank is silent, `my_living` returned [], expected ['server', 'trainer0', 'trainer1', 'master'].
def my_living(names, seconds):
    calls = [rpc.rpc_async(name, os.getpid, timeout=seconds) for name in names]
    dead = []
    for name, call in zip(names, calls, strict=True):
        try:
            call.wait()
        except RuntimeError:
            dead.append(name)
    return dead

# %% my_living: no except
# Not yet. Rank 2 raised ...
def my_living(names, seconds):
    calls = [rpc.rpc_async(name, os.getpid, timeout=seconds) for name in names]
    return [name for name, call in zip(names, calls, strict=True) if call.wait()]

# %% my_regroup: solution
# Solved. Only the members made each group, the groups work, and no wait lasted longer than the timeout.

# %% my_regroup: skeleton
# Not yet. On trainer 0, `my_regroup([0])` returned a group of size 2, expected a group of size 1.

# %% my_regroup: without return
# Not yet. On trainer 0, `my_regroup([0])` returned None, expected a process group.
# solution, with `return ` as ``

# %% my_regroup: waits for all
# Not yet. On trainer 0, `my_regroup([0])` waited for trainers outside the list, expected a group that only its members
# make.
# solution, with `, use_local_synchronization=True` as ``

# %% my_regroup: the default timeout
# Not yet. Trainer 0 waited for 8 s in its group for a member that never called `all_reduce`, expected an error after the
# group's timeout of 5 s.
# solution, with `timeout=timeout, ` as ``

# %% my_regroup: a shorter timeout
# Not yet. Trainer 0 waited for 2 s in its group for a member that never called `all_reduce`, expected an error after the
# group's timeout of 5 s.
# solution, with `seconds=5` as `seconds=2`

# %% my_resume: solution
# Solved. Only the members got a new model, which has a new table and the state of the checkpoint.

# %% my_resume: reads the number itself
# Solved. Only the members got a new model, which has a new table and the state of the checkpoint.
def my_resume(members):
    path = f"{job.folder}/latest"
    number = torch.load(path) if os.path.exists(path) else 0
    table = new_table()
    if number > 0:
        rpc.rpc_sync(table.get_module_rref().owner(), read_table, (table.get_module_rref(), number))
    for call in [rpc.rpc_async(f"trainer{member}", prepare, (table, number)) for member in members]:
        call.wait()
    return number

# %% my_resume: skeleton
# Not yet. After 0 steps, `my_resume([0, 1])` left trainer 0 with its old table, expected a model with a new table: ...

# %% my_resume: no table
# Not yet. After 13 steps, `my_resume([0, 1])` gave trainer 0 a wrong table, expected the table after 10 steps.
# solution, with `if number:` as `if False:`

# %% my_resume: no dense layer
# Not yet. After 13 steps, `my_resume([0, 1])` gave trainer 0 a wrong dense layer, expected the weights after 10 steps.
# solution, with `prepare, table, number)` as `prepare, table, 0)`

# %% my_resume: no number
# Not yet. After 0 steps, `my_resume([0, 1])` returned None, expected 0.
# solution, with `return number` as ``

# %% my_resume: all trainers
# Not yet. ...
# solution, with `call_trainers(members` as `call_trainers(range(trainers)`

# %% my_resume: one member after the other
# Not yet. After 0 steps, `my_resume([0, 1])` did not end, because a member waited in `prepare` for another member ...
# solution, with `call_trainers(members, prepare, table, number)` as
# `[rpc.rpc_sync(f"trainer{member}", prepare, (table, number)) for member in members]`

# %% my_resume: always a file
# Not yet. Rank 2 raised ...
# solution, with `if number:` as `if True:`

# %% once: solution
# Solved. Each request ran once, even if it came again while it ran, and every caller got the result.

# %% once: futures
# Solved. Each request ran once, even if it came again while it ran, and every caller got the result.
from concurrent.futures import Future

futures = {}

def once(request, function, arguments):
    own = Future()
    first = futures.setdefault(request, own)
    if first is own:
        try:
            own.set_result(function(*arguments))
        except Exception as error:
            own.set_exception(error)
    return first.result()

# %% once: a lock for each request
# Solved. Each request ran once, even if it came again while it ran, and every caller got the result.
import collections
import threading

locks = collections.defaultdict(threading.Lock)
guard = threading.Lock()
done = {}

def once(request, function, arguments):
    with guard:
        lock = locks[request]
    with lock:
        if request not in done:
            try:
                done[request] = True, function(*arguments)
            except Exception as error:
                done[request] = False, error
    returned, result = done[request]
    if returned:
        return result
    raise result

# %% once: an event for each request
# Solved. Each request ran once, even if it came again while it ran, and every caller got the result.
import threading

results, errors, events = {}, {}, {}
guard = threading.Lock()

def once(request, function, arguments):
    with guard:
        first = request not in events
        event = events.setdefault(request, threading.Event())
    if first:
        try:
            results[request] = function(*arguments)
        except Exception as error:
            errors[request] = error
        finally:
            event.set()
    event.wait()
    if request in errors:
        raise errors[request]
    return results[request]

# %% once: the waiter misses the error
# Not yet. For a request that came twice at once, of a function that raises an error, the calls of `once` ended with
# [...KeyError(...], expected ['ValueError(9)', 'ValueError(9)'].
import threading

results, errors, events = {}, {}, {}
guard = threading.Lock()

def once(request, function, arguments):
    if request in errors:
        raise errors[request]
    with guard:
        first = request not in events
        event = events.setdefault(request, threading.Event())
    if first:
        try:
            results[request] = function(*arguments)
        except Exception as error:
            errors[request] = error
            raise
        finally:
            event.set()
    event.wait()
    return results[request]

# %% once: the event is not set after an error
# Not yet. For a request that came twice, of a function that raises an error, the calls of `once` ended with
# ['ValueError(8)', 'no end after 5 s'], expected ['ValueError(8)', 'ValueError(8)'].
import threading

results, events = {}, {}
guard = threading.Lock()

def once(request, function, arguments):
    with guard:
        first = request not in events
        event = events.setdefault(request, threading.Event())
    if first:
        results[request] = function(*arguments)
        event.set()
    event.wait()
    return results[request]

# %% once: by a cache
# Not yet. For a request that came twice, with a tensor, the function ran 2 times, expected once.
import functools
import threading

guard = threading.Lock()

@functools.cache
def outcome(request, function, arguments):
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error

def once(request, function, arguments):
    with guard:
        result, error = outcome(request, function, arguments)
    if error:
        raise error
    return result

# %% once: skeleton
# Not yet. For a request that came three times, one after the other, the function ran 3 times, expected once.

# %% once: an error runs again
# Not yet. For a request that came twice, of a function that raises an error, the function ran 2 times, expected once.
import threading

results = {}
guard = threading.Lock()

def once(request, function, arguments):
    with guard:
        if request not in results:
            results[request] = function(*arguments)
        return results[request]

# %% once: no lock
# Not yet. For a request that came three times, all at once, the function ...
# solution, with `with guard:` as `if True:`

# %% once: None
# Not yet. For a request that came twice, of a function that returns None, the function ran 2 times, expected once.
# solution, with `request not in results and` as `results.get(request) is None and`

# %% once: by arguments
# Not yet. For two requests with the same function and arguments, the function ran once, expected 2 times.
# answer "an error runs again", with `results[request]` as `results[arguments]`
# and `request not in` as `arguments not in`

# %% once: no result
# Not yet. For a request that came three times, one after the other, `once` returned [4, None, None], expected [4, 4,
# 4].
import threading

results = {}
guard = threading.Lock()

def once(request, function, arguments):
    with guard:
        if request not in results:
            results[request] = function(*arguments)
            return results[request]

# %% once: an error
# Not yet. Rank 0 raised ...
# skeleton, with `return function(*arguments)` as `raise ValueError(request)`

# %% once: none
# Not yet. Rank 0 has no function `once`: run the cell that defines it, then this check.
globals().pop("once", None)

# %% World(5): my_regroup, my_resume

# %% World(4)
# Nobody has started RPC.

# %% once: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% my_living: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% my_resume: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass
