"""Checks of the exercises of 16_rpc_threads_and_failures: functions on worker1, and a caller of a dead worker."""

import os
import signal
import threading
import time
from functools import partial
from typing import NamedTuple

from helpers.checks.judging import RESTART, Run, Verdict, Wrong, judge, killed, missing
from helpers.checks.rpc_judging import SECONDS_AT_MOST, call_with_rpc, in_one_line, waits_inside
from helpers.checks.rpc_locking import my_record as my_record

_SECONDS_FOR_A_SHARE = 0.9
_BATCH = 3
_BATCHES = 4
_SECONDS_FOR_AN_ANSWER = 8  # from the first call on, even on a busy machine
_SECONDS_TO_DIE = 5
_SENT_A_FUTURE = "Can not pickle torch.futures.Future"  # what RPC says
_SECONDS_IN_TIME, _SECONDS_LATE = 3, 12  # the timeout of RPC for the slow worker, and the time that it takes


def my_ask(world) -> Verdict:
    """Check `my_ask(worker, function)`: on worker1, its rank and what the worker answers; no thread waits in it."""
    expected = [1, world.size]  # the last worker answers its rank + 1

    def check(runs):
        if runs[0].result == _SENT_A_FUTURE:
            raise Wrong(
                "worker1 tried to send a future, expected a pair: is `my_ask` decorated, and does its future get the "
                "answer itself?"
            )
        if runs[0].result != expected:
            raise Wrong(
                f"my_ask returned {_as_pair(runs[0].result)}, expected {_as_pair(expected)}: the rank that runs it, "
                "and what the function returned."
            )
        _require_no_wait(runs[1], "my_ask")
        return f"my_ask returned {_as_pair(expected)}, and no server thread of worker1 waited for it."

    return judge(world, "my_ask", check, _run_my_ask)


def Batcher(world) -> Verdict:
    """Check `Batcher(size, run)`: on worker1, `ask(x)` answers `size` callers together, with one call of run."""

    def check(runs):
        early, answers, sizes = runs[0].result
        if early:
            raise Wrong(f"ask answered a caller early, expected no answer before {_BATCH} callers have asked.")
        for x, answer in answers.items():
            if answer is None:
                raise Wrong(
                    f"{len(answers)} callers asked, and some got no answer within {_SECONDS_FOR_AN_ANSWER} s, expected "
                    f"an answer for each: does each full batch fill all its futures?"
                )
            if answer != 10 * x:
                raise Wrong(f"The caller with {x} got {answer}, expected {10 * x}: the result for its own value.")
        if sizes != [_BATCH] * _BATCHES:
            raise Wrong(f"run was called with {sizes} values, expected {[_BATCH] * _BATCHES}.")
        _require_no_wait(runs[1], "ask")
        return f"{_BATCHES} calls of run answered {_BATCH * _BATCHES} callers."

    return judge(world, "Batcher", check, _run_batches)


def ask_any(world) -> Verdict:
    """Check `ask_any(workers, function, args)` on rank 0: the first answer of workers of which some are dead.

    The check kills the last rank.
    """

    def check(runs):
        after_death, refused, all_dead, after_timeout = runs[0].result
        _require_the_next(after_death, "was dead")
        if not refused.error.startswith("ValueError"):
            did = f"raised {refused.error.rstrip(': ')}" if refused.error else f"returned {refused.result!r}"
            raise Wrong(f"The function raised a ValueError, and ask_any {did}, expected the ValueError.")
        if len(refused.callees) != 1:
            asked = len(refused.callees)
            raise Wrong(
                f"The function raised a ValueError, and ask_any asked {asked} workers, expected only the first."
            )
        if not all_dead.error:
            raise Wrong(f"All workers were dead, and ask_any returned {all_dead.result!r}, expected a RuntimeError.")
        if not all_dead.error.startswith("RuntimeError"):
            raise Wrong(f"All workers were dead, and ask_any raised {all_dead.error}, expected a RuntimeError.")
        _require_the_next(after_timeout, "did not answer in time")
        return "ask_any passed over a dead worker and a slow worker, and let the function's own error through."

    try:
        _kill_last(world)
    except Wrong as wrong:
        return Verdict(False, str(wrong))
    return judge(_FirstRank(world), "ask_any", check, _run_ask_any)


def _require_the_next(asked, why):
    """Require that ask_any has asked the first worker and the second one, and returned the second one's answer."""
    first = f"The first worker {why}, and ask_any"
    if asked.error:
        kind = asked.error.partition(":")[0]  # the text names a line of TensorPipe
        raise Wrong(f"{first} raised {kind}, expected it to ask the next worker.")
    if asked.callees != asked.expected_callees:
        raise Wrong(f"{first} asked {asked.callees}, expected {asked.expected_callees}.")
    expected = f"{asked.expected_callees[-1]} has 42"
    if asked.result != expected:
        raise Wrong(f"{first} returned {asked.result!r}, expected {expected!r}.")


class _FirstRank:
    """What `judge` needs of a world, with rank 0 as the only rank."""

    def __init__(self, world):
        self.pids = world.pids[:1]
        self.view = world.view.client[world.view.targets[:1]]
        self.where = lambda: world.where()[:1]
        self.call = partial(world.call, targets=[0])
        self.accepted = world.accepted


class _Asked(NamedTuple):
    """The outcome of a call of ask_any, the workers that it asked, and those that it should have asked."""

    result: object
    error: str
    callees: list[str]
    expected_callees: list[str]


def share():
    """Return rank + 1, slowly: the function that an answer calls on the workers."""
    time.sleep(_SECONDS_FOR_A_SHARE)
    return int(os.environ["RANK"]) + 1


_sizes = []  # how many values each call of `tenfold` got, on worker1


def tenfold(values):
    """Return ten times each value, slowly, and note how many values there were."""
    time.sleep(0.05)  # other calls run meanwhile
    _sizes.append(len(values))
    return [10 * value for value in values]


def take_sizes():
    """Return how many values each call of `tenfold` got, and clear the list."""
    taken = list(_sizes)
    _sizes.clear()
    return taken


def has(value):
    """Return a text that names this worker and the value. Raises ValueError if the value is negative."""
    if value < 0:
        raise ValueError("a negative value")
    return f"worker{os.environ['RANK']} has {value}"


_calls_of_slow_once = []
_given_up = threading.Event()


def slow_once(value):
    """Return what `has` returns; the first call returns much too late."""
    _calls_of_slow_once.append(value)
    if len(_calls_of_slow_once) == 1:
        _given_up.wait(_SECONDS_LATE)
    return has(value)


def stop_being_slow():
    """End the late call of `slow_once`, and make the next call the first again."""
    _given_up.set()
    time.sleep(0.1)
    _given_up.clear()
    _calls_of_slow_once.clear()


class SlowNumber(int):
    """A number that is slow to compare, so that other threads run meanwhile: without a lock, updates are lost."""

    def __eq__(self, other):
        time.sleep(0.005)
        return int(self) == other

    def __le__(self, other):
        time.sleep(0.005)
        return int(self) <= other

    __hash__ = int.__hash__


def _run_my_ask():
    """Have rank 0 call `my_ask` on worker1 for the last worker; rank 1 watches whether one of its threads waits."""
    import torch.distributed.rpc as rpc

    rank = os.environ["RANK"]
    if rank == "1":
        return Run(waits_inside("my_ask", 2 * _SECONDS_FOR_A_SHARE), [], _missing("my_ask"))
    if rank != "0" or _missing("my_ask"):
        return Run(None, [], _missing("my_ask") if rank == "0" else "")
    import __main__

    try:
        time.sleep(0.1)  # rank 1 watches by now
        last = f"worker{int(os.environ['WORLD_SIZE']) - 1}"
        result = rpc.rpc_sync("worker1", __main__.my_ask, args=(last, share), timeout=10)
    except Exception as error:
        if _SENT_A_FUTURE in str(error):
            return Run(_SENT_A_FUTURE, [], "")
        return Run(None, [], in_one_line(f"{type(error).__name__}: {error}"))
    return Run(_plain(result), [], "")


def _run_batches():
    import torch.distributed.rpc as rpc

    rank = os.environ["RANK"]
    if rank == "1":
        return Run(waits_inside("ask", 2.5), [], _missing("Batcher"))
    if rank != "0" or _missing("Batcher"):
        return Run(None, [], _missing("Batcher") if rank == "0" else "")
    import __main__

    try:
        rpc.rpc_sync("worker1", take_sizes)
        batcher = rpc.remote("worker1", __main__.Batcher, args=(SlowNumber(_BATCH), tenfold))
        ask = lambda x: batcher.rpc_async(timeout=_SECONDS_FOR_AN_ANSWER).ask(x)  # noqa: E731
        few = range(_BATCH - 1)
        asked = {x: ask(x) for x in few}
        time.sleep(2.5 * SECONDS_AT_MOST)
        early = any(_is_answered(future) for future in asked.values())
        asked |= {x: ask(x) for x in range(len(few), _BATCH * _BATCHES)}
        answers = {x: _answer(future) for x, future in asked.items()}
        return Run((early, answers, rpc.rpc_sync("worker1", take_sizes)), [], "")
    except Exception as error:
        return Run(None, [], in_one_line(f"{type(error).__name__}: {error}"))


def _run_ask_any():
    if missing := _missing("ask_any"):
        return Run(None, [], missing)
    last = int(os.environ["WORLD_SIZE"]) - 1
    dead, alive = f"worker{last}", f"worker{last - 1}"
    asked = []
    for workers, value in (([dead, alive, alive], 42), ([alive, alive], -1), ([dead, dead], 42)):
        run, made = call_with_rpc("ask_any", [workers, has, (value,)])
        callees = [call.callee for call in made if call.kind != "fetch"]
        asked.append(_Asked(_plain(run.result), run.error, callees, [dead, alive]))
    asked.append(_ask_a_slow_worker(alive))
    return Run(asked, [], "")


def _ask_a_slow_worker(worker):
    """Have the learner's function ask a worker that answers too late the first time, and in time the second time."""
    import torch.distributed.rpc as rpc

    timeout = rpc.get_rpc_timeout()
    rpc._set_rpc_timeout(_SECONDS_IN_TIME)
    try:
        run, made = call_with_rpc("ask_any", [[worker, worker], slow_once, (42,)])
    finally:
        rpc._set_rpc_timeout(timeout)
        rpc.rpc_sync(worker, stop_being_slow)
    callees = [call.callee for call in made if call.kind != "fetch"]
    return _Asked(_plain(run.result), run.error, callees, [worker, worker])


def _as_pair(result):
    return f"({', '.join(map(str, result))})" if isinstance(result, list) else str(result)


def _missing(function):
    """Return the error of `judge` for a rank that has no function of this name, and an empty text otherwise."""
    import __main__

    return "" if hasattr(__main__, function) else missing(function)


def _require_no_wait(run, function):
    if run.result:
        raise Wrong(
            f"The answers are right, but a server thread of worker1 waited inside `{function}`, expected none to wait: "
            "return a future instead."
        )


def _is_answered(future):
    return future.done() and _answer(future) is not None


def _answer(future):
    """Return the answer of a future, or None if none came in time."""
    try:
        return _plain(future.wait())
    except RuntimeError as error:
        if "more than set timeout" in str(error):
            return None
        raise


def _plain(result):
    """Return the result as plain values, or the name of its class if the notebook's process may not know it."""
    if hasattr(result, "tolist"):
        return result.tolist()
    if isinstance(result, tuple):
        return [_plain(part) for part in result]
    return result if result is None or isinstance(result, int | float | str) else f"a {type(result).__name__}"


def _kill_last(world):
    """Kill the last rank if it is alive, and wait until it is dead."""
    states = world.where()
    if states[-1].state == "dead":
        return
    for state in states:
        if state.state != "idle":
            raise Wrong(f"Rank {state.rank} is {state.state}. {RESTART}")
    killed.add(world.pids[-1])
    os.kill(world.pids[-1], signal.SIGKILL)
    deadline = time.monotonic() + _SECONDS_TO_DIE
    while world.where()[-1].state != "dead" and time.monotonic() < deadline:
        time.sleep(0.05)
