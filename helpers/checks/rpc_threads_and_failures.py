"""Checks of the exercises of 16_rpc_threads_and_failures: functions on worker1, and a caller of a dead worker."""

import os
import signal
import threading
import time
from typing import NamedTuple

from helpers.checks.judging import RESTART, Run, Verdict, Wrong, judge, killed, missing
from helpers.checks.rpc_judging import SECONDS_AT_MOST, call_with_rpc, in_one_line, waits_inside

_SECONDS_FOR_A_SHARE = 0.9
_BATCH = 3
_BATCHES = 4
_SECONDS_FOR_AN_ANSWER = 8  # from the first call on, on a busy machine, too
_SECONDS_TO_DIE = 5
_LATE = "The first worker did not answer in time, and ask_any"
_SECONDS_IN_TIME, _SECONDS_LATE = 3, 12  # the timeout of RPC while a worker is slow, and how slow that is


def total_without_waiting(world) -> Verdict:
    """Check `total(workers, function)`: on worker1, the sum of function() over the workers; no thread waits in it."""
    target = world.size * (world.size + 1) // 2

    def check(runs):
        if runs[0].result != target:
            raise Wrong(f"total returned {runs[0].result}, and the target is {target}.")
        _require_no_wait(runs[1], "total")
        return f"total returned {target}, and no server thread of worker1 waited for it."

    return judge(world, "total", check, _run_total)


def batches(world) -> Verdict:
    """Check `Batcher(size, run)`: on worker1, `ask(x)` answers `size` callers together, with one call of run."""

    def check(runs):
        early, answers, sizes = runs[0].result
        if early:
            raise Wrong(f"ask answered a caller before {_BATCH} had asked.")
        for x, answer in answers.items():
            if answer is None:
                raise Wrong(f"{len(answers)} callers asked, and some got no answer within {_SECONDS_FOR_AN_ANSWER} s.")
            if answer != 10 * x:
                raise Wrong(f"The caller with {x} got {answer}, and the target is {10 * x}.")
        if sizes != [_BATCH] * _BATCHES:
            raise Wrong(f"run was called with {sizes} values, and the target is {[_BATCH] * _BATCHES}.")
        _require_no_wait(runs[1], "ask")
        return f"{_BATCH * _BATCHES} callers were answered by {_BATCHES} calls of run."

    return judge(world, "Batcher", check, _run_batches)


def next_replica(world) -> Verdict:
    """Check `ask_any(workers, function, args)` on rank 0: the first answer of workers of which some are dead.

    The check kills the last rank.
    """

    def check(runs):
        answered, refused, nobody, late = runs[0].result
        target = f"{answered.alive} has 42"
        if answered.error:
            kind = answered.error.partition(":")[0]  # the text names a line of TensorPipe
            raise Wrong(f"The first worker was dead, and ask_any raised {kind} instead of asking the next.")
        if answered.result != target:
            raise Wrong(f"ask_any returned {answered.result!r}, and the target is {target!r}.")
        if answered.callees != [answered.dead, answered.alive]:
            raise Wrong(f"ask_any asked {answered.callees}, and the target is {[answered.dead, answered.alive]}.")
        if not refused.error.startswith("ValueError"):
            told = f"raised {refused.error}" if refused.error else f"returned {refused.result!r}"
            raise Wrong(f"The function raised a ValueError, and ask_any {told}")
        if len(refused.callees) != 1:
            raise Wrong(f"The function raised a ValueError, and ask_any asked {len(refused.callees)} workers.")
        if not nobody.error:
            raise Wrong(f"All workers were dead, and ask_any returned {nobody.result!r}.")
        if not nobody.error.startswith("RuntimeError"):
            raise Wrong(f"All workers were dead, and ask_any raised {nobody.error}, not a RuntimeError.")
        if late.error:
            kind = late.error.partition(":")[0]
            raise Wrong(f"{_LATE} raised {kind} instead of asking the next.")
        if len(late.callees) != 2:
            raise Wrong(f"{_LATE} waited for it.")
        if late.result != target:
            raise Wrong(f"After a worker that was late ask_any returned {late.result!r}, and the target is {target!r}.")
        return "A dead worker was passed over, a late one, too, and an error of the function was not."

    try:
        _kill_last(world)
    except Wrong as wrong:
        return Verdict(False, str(wrong))
    return judge(_FirstRank(world), "ask_any", check, _run_ask_any)


class _FirstRank:
    """A world as `judge` sees it in which rank 0 is the only rank."""

    def __init__(self, world):
        self.pids = world.pids[:1]
        self.view = world.view.client[world.view.targets[:1]]
        self.where = lambda: world.where()[:1]


class _Asked(NamedTuple):
    """What a call of ask_any came to, whom it asked, and who of these is dead and alive."""

    result: object
    error: str
    callees: list[str]
    dead: str
    alive: str


def share():
    """Return rank + 1, after a while: the function that `total` asks the workers for."""
    time.sleep(_SECONDS_FOR_A_SHARE)
    return int(os.environ["RANK"]) + 1


_sizes = []  # how many values each call of `tenfold` got, on worker1


def tenfold(values):
    """Return ten times each value, after a while, and remember how many there were."""
    time.sleep(0.05)  # for calls to meet
    _sizes.append(len(values))
    return [10 * value for value in values]


def take_sizes():
    """Return how many values the calls of `tenfold` got, and forget it."""
    taken = list(_sizes)
    _sizes.clear()
    return taken


def has(value):
    """Return who has this value; of a negative one, raise ValueError."""
    if value < 0:
        raise ValueError("a negative value")
    return f"worker{os.environ['RANK']} has {value}"


_calls_of_slow_once = []
_given_up = threading.Event()


def slow_once(value):
    """Return who has this value; when it is called for the first time, much too late."""
    _calls_of_slow_once.append(value)
    if len(_calls_of_slow_once) == 1:
        _given_up.wait(_SECONDS_LATE)
    return has(value)


def stop_being_slow():
    """End the call of `slow_once` that is late, and be as at the beginning."""
    _given_up.set()
    time.sleep(0.1)
    _given_up.clear()
    _calls_of_slow_once.clear()


class SlowNumber(int):
    """A number that takes its time to be compared, in which other threads go on: who shares needs a lock."""

    def __eq__(self, other):
        time.sleep(0.005)
        return int(self) == other

    def __le__(self, other):
        time.sleep(0.005)
        return int(self) <= other

    __hash__ = int.__hash__


def _run_total():
    import torch.distributed.rpc as rpc

    rank = os.environ["RANK"]
    if rank == "1":
        return Run(waits_inside("total", 2 * _SECONDS_FOR_A_SHARE), [], _missing("total"))
    if rank != "0" or _missing("total"):
        return Run(None, [], _missing("total") if rank == "0" else "")
    import __main__

    try:
        workers = [f"worker{other}" for other in range(int(os.environ["WORLD_SIZE"]))]
        time.sleep(0.1)  # rank 1 looks on by now
        result = rpc.rpc_sync("worker1", __main__.total, args=(workers, share), timeout=10)
    except Exception as error:
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
        asked.append(_Asked(_plain(run.result), run.error, callees, dead, alive))
    asked.append(_ask_who_is_late(alive))
    return Run(asked, [], "")


def _ask_who_is_late(worker):
    """Have the learner's function ask a worker that answers too late, and the second time in time."""
    import torch.distributed.rpc as rpc

    timeout = rpc.get_rpc_timeout()
    rpc._set_rpc_timeout(_SECONDS_IN_TIME)
    try:
        run, made = call_with_rpc("ask_any", [[worker, worker], slow_once, (42,)])
    finally:
        rpc._set_rpc_timeout(timeout)
        rpc.rpc_sync(worker, stop_being_slow)
    return _Asked(_plain(run.result), run.error, [call.callee for call in made if call.kind != "fetch"], "", worker)


def _missing(function):
    """Return the error of `judge` for a rank that has no such function, or nothing."""
    import __main__

    return "" if hasattr(__main__, function) else missing(function)


def _require_no_wait(run, function):
    if run.result:
        raise Wrong(f"The answers are right, but a server thread of worker1 waited inside `{function}` for others.")


def _is_answered(future):
    return future.done() and _answer(future) is not None


def _answer(future):
    """Return what a caller got, or None if it got nothing in time."""
    try:
        return _plain(future.wait())
    except RuntimeError as error:
        if "more than set timeout" in str(error):
            return None
        raise


def _plain(result):
    """Return the result if the notebook's process can take it, else what it is."""
    if hasattr(result, "tolist"):
        return result.tolist()
    return result if result is None or isinstance(result, int | float | str) else f"a {type(result).__name__}"


def _kill_last(world):
    """Kill the last rank, if it lives, and wait until it is dead."""
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
