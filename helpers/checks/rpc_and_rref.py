"""Exercises of 19_rpc_and_rref: rank 0 calls the learner's function, which calls the other workers."""

import os
import threading
import time

import torch
import torch.distributed.rpc as rpc

from helpers.checks.exam import answer, counted, exercise, times_in_words
from helpers.checks.rpc_judging import (
    SECONDS_FOR_RREFS,
    answer_with_rpc,
    end_rpc,
    one_line_errors,
    require_first_rpc,
    rpc_runs,
)
from helpers.torch_parts import seconds_for_rrefs

_ROW_NUMBERS = [7, 0, 3, 3, 12]
_WIDTH = 4  # of a row
_TIMES = 5
_EARLIER = [10]  # additions before the answer begins
_FROM_THE_SETUP_CELL = "Call world.restart(), then run the lesson again, from its setup cell"
_SECONDS_TO_MEET = 5  # they run out only if the answer calls one worker after another


@exercise
def fan_out(exam):
    """Check `fan_out(function, x)`: the sum of function(x) over all workers, called before any result arrives."""
    n = exam.n
    if exam.rank == 0:
        result, made, alone, x = exam.on_rank(_fan_out)
        for rank in range(n):
            times = sum(call.callee == f"worker{rank}" for call in made)
            exam.require(times == 1, f"worker{rank} was called {times_in_words(times)}, expected once.")
        if alone:
            last = max(made, key=lambda call: call.begin).callee
            exam.refuse(
                f"{last} was called after worker{alone[0]} had answered, expected all calls before the first answer."
            )
        expected = [value * n * (n + 1) / 2 for value in (1.0, 2.0)]
        exam.require(_numbers(result) == expected, f"Rank 0 returned {_numbers(result)}, expected {expected}.")
        exam.require(
            x.tolist() == [1.0, 2.0],
            f"`fan_out` changed its argument x from {[1.0, 2.0]} to {x.tolist()}, expected it to leave x as it is.",
        )
    return f"{n} calls were under way at the same time."


@exercise
def many_rows(exam):
    """Check `many_rows(table, numbers)`: rows of an object on its owner, by a single call."""
    count = len(_ROW_NUMBERS)
    if exam.rank == 0:
        result, made, numbers, copies = exam.on_rank(_many_rows)
        exam.require(
            made or not copies,
            "Rank 0 fetched a copy of the whole table with `to_here`, expected 1 call that returns only the rows.",
        )
        exam.require(len(made) == 1, f"Rank 0 made {counted(len(made), 'call')} for {count} rows, expected 1 call.")
        expected = [_row(number).tolist() for number in _ROW_NUMBERS]
        exam.require(_numbers(result) == expected, f"Rank 0 returned {_shown(result)}, expected the rows {expected}.")
        exam.require(isinstance(result, torch.Tensor), f"Rank 0 returned a {type(result).__name__}, expected a tensor.")
        exam.require(
            numbers == _ROW_NUMBERS,
            f"`many_rows` changed the list {_ROW_NUMBERS} to {numbers}, expected it to leave the list as it is.",
        )
        received = sum(call.received for call in made)
        limit = 4 * _WIDTH * count
        exam.require(received <= limit, f"Rank 0 fetched {received} bytes of tensors, expected at most {limit}.")
    return f"Rank 0 got {count} rows by 1 call."


@exercise
def add_many(exam):
    """Check `add_many(counter, times)`: the object on its owner is updated `times` times, through its RRef."""
    if exam.rank == 0:
        result, made, before, after = exam.on_rank(_add_many, [], _TIMES)
        calls = sum(call.function == "add" for call in made)
        exam.require(
            len(after) == _TIMES,
            f"The object on worker1 was updated {times_in_words(len(after))}, expected {times_in_words(_TIMES)}.",
        )
        exam.require(set(after) == {1}, f"The object on worker1 was updated by {after}, expected {[1] * _TIMES}.")
        exam.require(
            len(before) == _TIMES, "Some updates were still missing when `add_many` returned: wait for their futures."
        )
        exam.require(
            calls == _TIMES,
            f"`add` was called {times_in_words(calls)} through the RRef, expected {times_in_words(_TIMES)}.",
        )
        exam.require(result == _TIMES, f"Rank 0 returned {_numbers(result)}, expected {_TIMES}.")
        if not exam.fault:
            result, made, _, after = exam.on_rank(_add_many, _EARLIER, _TIMES - 2)
            times = len(after) - len(_EARLIER)
            exam.require(
                times == _TIMES - 2,
                f"With times = {_TIMES - 2}, the object on worker1 was updated {times_in_words(times)}, expected "
                f"{times_in_words(_TIMES - 2)}.",
            )
            exam.require(
                result == sum(after),
                f"The sum was {sum(_EARLIER)} before, and with times = {_TIMES - 2} rank 0 returned "
                f"{_numbers(result)}, expected {sum(after)}.",
            )
    return f"The object on worker1 was updated {times_in_words(_TIMES)}, by calls through its RRef."


@exercise
def run_worker(exam):
    """Check `run_worker(rank, n, function)`: the program of every rank, from `init_rpc` to `shutdown`."""
    result, is_running = exam.on_rank(_run_worker, exam.rank, exam.n)
    names = [f"server{rank}" for rank in range(1, exam.n)]
    expected = [f"{name} served {rank}" for rank, name in enumerate(names, 1)] if exam.rank == 0 else []
    exam.require(_numbers(result) == expected, f"Rank {exam.rank} returned {_numbers(result)}, expected {expected}.")
    exam.require(not is_running, f"RPC was still running on rank {exam.rank}, expected `run_worker` to end it.")
    return f"The leader called {counted(exam.n - 1, 'server')}, and RPC has ended on every rank."


class Meeting:
    """Record, on rank 0, which workers run `part`, and which of them have stopped waiting for the others."""

    def __init__(self, size):
        self._size = size
        self._there = set()
        self._alone = []
        self._changed = threading.Condition()

    def join(self, rank):
        """Wait until all workers have joined. A worker whose wait times out releases the others."""
        with self._changed:
            self._there.add(rank)
            self._changed.notify_all()
            self._changed.wait_for(self._is_over, timeout=_SECONDS_TO_MEET)
            if len(self._there) < self._size:
                self._alone.append(rank)
                self._changed.notify_all()

    def alone(self):
        """Return the ranks that answered before all workers had joined, in the order of their answers."""
        return list(self._alone)

    def _is_over(self):
        return self._alone or len(self._there) == self._size


_meetings = []


def part(x):
    """Return rank + 1 times x once all workers run this function, which the learner's `fan_out` gets."""
    rank = int(os.environ["RANK"])
    rpc.rpc_sync(0, _join, args=(rank,))
    return (rank + 1) * x


class Rows:
    """The object whose rows the learner asks for; a row is made when it is asked for."""

    def row(self, number):
        """Return the row of this number."""
        return _row(number)


class Tally:
    """The object that the learner updates: it stores the numbers that are added, and takes a while for each."""

    def __init__(self, added=()):
        self.added = list(added)
        self._turn = threading.Lock()

    def __getstate__(self):
        return self.added

    def __setstate__(self, added):
        self.__init__(added)

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


def _fan_out():
    """Return the result of `fan_out`, its calls, the ranks that answered too early, and its argument afterwards."""
    _meetings[:] = [Meeting(int(os.environ["WORLD_SIZE"]))]
    x = torch.tensor([1.0, 2.0])
    result, made = answer_with_rpc("fan_out", [part, x])
    # to_here() belongs to the call that made the value, and _join to this check.
    return result, [c for c in made if c.kind != "fetch" and c.function != "_join"], _meetings[0].alone(), x


def _join(rank):
    _meetings[0].join(rank)


def _many_rows():
    """Return the result of `many_rows`, its calls without torch's own, its list afterwards, and its fetches."""
    require_first_rpc(_FROM_THE_SETUP_CELL)
    with one_line_errors():
        table = rpc.remote("worker1", Rows)
    numbers = list(_ROW_NUMBERS)
    result, made = answer_with_rpc("many_rows", [table, numbers])
    fetches = [call for call in made if call.kind == "fetch"]
    made = [call for call in made if call.kind != "fetch" and call.function != "_rref_typeof_on_owner"]
    return result, made, numbers, len(fetches)


def _row(number):
    return torch.full((_WIDTH,), float(number))


def _add_many(earlier, times):
    """Return the result of `add_many`, its calls, and the numbers added when it returned and in the end."""
    require_first_rpc(_FROM_THE_SETUP_CELL)
    with one_line_errors():
        counter = rpc.remote("worker1", Tally, args=(earlier,))
    result, made = answer_with_rpc("add_many", [counter, times])
    before = counter.rpc_sync().history()
    time.sleep(0.1 * times)  # until the calls that are still under way have ended
    return result, made, before, counter.rpc_sync().history()


def _run_worker(rank, n):
    """End RPC, call `run_worker`, and end RPC again; return the result, and whether `run_worker` left RPC running."""
    end_rpc("run_worker")
    try:
        # An RRef of an earlier answer may be left even after the first session, and delays the answer's own shutdown.
        with one_line_errors(), seconds_for_rrefs(SECONDS_FOR_RREFS):
            result = answer("run_worker", [rank, n, served])
        return result, rpc_runs()
    finally:
        end_rpc("run_worker")


def served(number):
    """Return which worker served this number, which the learner's `run_worker` asks of each server."""
    rpc.get_worker_info("leader")  # raises an error if no worker has this name
    return f"{rpc.get_worker_info().name} served {number}"


def _shown(result):
    return f"a tensor of shape {list(result.shape)}" if hasattr(result, "shape") else str(result)


def _numbers(result):
    return result.tolist() if hasattr(result, "tolist") else result
