"""Checks of 15_rpc_and_rref: rank 0 calls the learner's function, which calls the other workers."""

import os
import threading
import time

from helpers.checks.judging import Run, Verdict, Wrong, judge
from helpers.checks.rpc_judging import on_first_rank

_NUMBERS = 2**18  # in the tensor that stays on its owner: 1 MiB
_FEW_BYTES = 64
_TIMES = 5
_SECONDS_TO_MEET = 5  # in vain only if the answer calls one worker after another
_OWN = "_rref_typeof_on_owner"  # a call that torch makes by itself, before the first one on an RRef


def fan_out(world) -> Verdict:
    """Check `fan_out(function, x)`: the sum of function(x) over all workers, each called before any answer is there."""

    def check(runs):
        (result, made), alone = runs[0].result
        # to_here() belongs to the call that made the value, and _join to this check.
        made = [call for call in made if call.kind != "fetch" and call.function != "_join"]
        for rank in range(world.size):
            times = sum(call.callee == f"worker{rank}" for call in made)
            if times != 1:
                raise Wrong(f"worker{rank} was called {_times(times)}, and the target is once.")
        if alone:
            last = max(made, key=lambda call: call.begin).callee
            raise Wrong(f"{last} was called after worker{alone[0]} had answered.")
        target = [value * world.size * (world.size + 1) / 2 for value in (1.0, 2.0)]
        if _numbers(result) != target:
            raise Wrong(f"Rank 0 returned {_numbers(result)}, and the target is {target}.")
        return f"{world.size} calls were under way at the same time."

    return judge(world, "fan_out", check, _run_fan_out)


def stays_there(world) -> Verdict:
    """Check `scaled_total(owner, load, scale)`: a number from two steps on the owner, whose tensors stay there."""

    def check(runs):
        result, made = runs[0].result
        if not any(call.callee == "worker1" for call in made):
            raise Wrong("worker1 was never called.")
        sent, received = (sum(getattr(call, way) for call in made) for way in ("sent", "received"))
        for count, verb in ((received, "fetched"), (sent, "sent")):
            if count > _FEW_BYTES:
                raise Wrong(f"Rank 0 {verb} {count} bytes of tensors, and the target is {_FEW_BYTES} at most.")
        target = 2 * 2.0 * _NUMBERS
        if _numbers(result) != target:
            raise Wrong(f"Rank 0 returned {_numbers(result)}, and the target is {target}.")
        return f"1048576 bytes stayed on worker1, and {received} came to rank 0."

    return judge(world, "scaled_total", check, _run_stays_there)


def add_many(world) -> Verdict:
    """Check `add_many(counter, times)`: the object on its owner is updated so many times, through its RRef."""

    def check(runs):
        (result, made), before, after = runs[0].result
        calls = sum(call.function == "add" for call in made)
        if len(after) != _TIMES:
            raise Wrong(f"The object on worker1 was updated {_times(len(after))}, and the target is {_times(_TIMES)}.")
        if set(after) != {1}:
            raise Wrong(f"The object on worker1 was updated by {after}, and the target is {[1] * _TIMES}.")
        if len(before) != _TIMES:
            raise Wrong("Some updates had not been made when add_many returned: wait for their futures.")
        if calls != _TIMES:
            raise Wrong(f"`add` was called {_times(calls)} through the RRef, and the target is {_times(_TIMES)}.")
        if result != _TIMES:
            raise Wrong(f"Rank 0 returned {_numbers(result)}, and the target is {_TIMES}.")
        return f"The object on worker1 was updated {_times(_TIMES)}, by calls through its RRef."

    return judge(world, "add_many", check, _run_add_many)


class Meeting:
    """On rank 0: who of the workers runs `part`, and who has given up waiting for all the others."""

    def __init__(self, size):
        self._size = size
        self._there = set()
        self._alone = []
        self._changed = threading.Condition()

    def join(self, rank):
        """Wait until all workers are there. Whoever has waited in vain frees the others."""
        with self._changed:
            self._there.add(rank)
            self._changed.notify_all()
            self._changed.wait_for(self._is_over, timeout=_SECONDS_TO_MEET)
            if len(self._there) < self._size:
                self._alone.append(rank)
                self._changed.notify_all()

    def alone(self):
        """Return the ranks that have answered before all were there, the first one first."""
        return list(self._alone)

    def _is_over(self):
        return self._alone or len(self._there) == self._size


_meetings = []


def part(x):
    """Return rank + 1 times x, when all workers run this: the function that they are asked for."""
    import torch.distributed.rpc as rpc

    rank = int(os.environ["RANK"])
    rpc.rpc_sync(0, _join, args=(rank,))
    return (rank + 1) * x


def load():
    """Return the large tensor of this rank."""
    import torch

    return torch.full((_NUMBERS,), int(os.environ["RANK"]) + 1.0)


def scale(tensor):
    """Return twice the tensor."""
    return 2 * tensor


class Tally:
    """The object that the learner updates: it keeps what was added to it, each time slowly."""

    def __init__(self):
        self.added = []
        self._turn = threading.Lock()

    def __getstate__(self):
        return self.added

    def __setstate__(self, added):
        self.__init__()
        self.added = list(added)

    def add(self, number):
        """Add a number, and return the sum so far."""
        with self._turn:
            time.sleep(0.05)
            self.added.append(number)
            return sum(self.added)

    def get(self):
        """Return the sum so far."""
        return sum(self.added)

    def history(self):
        """Return the numbers that were added so far."""
        return list(self.added)


def _run_fan_out():
    import torch

    _meetings[:] = [Meeting(int(os.environ["WORLD_SIZE"]))]
    run = _plain(on_first_rank("fan_out", [part, torch.tensor([1.0, 2.0])]))
    return run._replace(result=(run.result, _meetings[0].alone()))


def _join(rank):
    _meetings[0].join(rank)


def _run_stays_there():
    return _plain(on_first_rank("scaled_total", ["worker1", load, scale]))


def _run_add_many():
    import torch.distributed.rpc as rpc

    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    try:
        counter = rpc.remote("worker1", Tally)
    except RuntimeError as error:  # RPC has not been initialised
        return Run(None, [], f"RuntimeError: {error}")
    run = _plain(on_first_rank("add_many", [counter, _TIMES]))
    before = counter.rpc_sync().history()
    if not run.error:
        time.sleep(0.1 * _TIMES)  # what is still under way
    return run._replace(result=(run.result, before, counter.rpc_sync().history()))


def _plain(run):
    """Make the function's own result a number or a list of numbers, which the notebook's process can take."""
    if run.result is None:
        return run
    result, made = run.result
    if hasattr(result, "tolist"):
        result = result.tolist()
    elif result is not None and not isinstance(result, int | float | list):
        result = f"a {type(result).__name__}"
    return run._replace(result=(result, made))


def _numbers(result):
    return result if isinstance(result, list | str) or result is None else float(result)


def _times(number):
    return "once" if number == 1 else f"{number} times"
