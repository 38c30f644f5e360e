"""Exercises of 20_rpc_threads_and_failures: requests on worker1, a shutdown, and a caller of a dead worker."""

import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import torch.distributed.rpc as rpc

from helpers import tap
from helpers.checks.exam import AnswerError, answer, exercise, missing, number, plain, show, times_in_words
from helpers.checks.judging import FRESH_RANKS, RESTART, kill_last
from helpers.checks.learner import learners_module
from helpers.checks.rpc_and_rref import Meeting
from helpers.checks.rpc_judging import (
    SECONDS_AT_MOST,
    end_rpc,
    one_line_errors,
    require_first_rpc,
    rpc_runs,
    start_rpc,
    waits_inside_cells,
)
from helpers.measure.calls import recorded
from helpers.torch_parts import rpc_timeout, worker_of

_CALLERS = 4
_FIRST_NUMBER = 10  # which an answer knows only from `read`
_SECONDS_FOR_ALL = 12  # the callers of my_record
_SECONDS_FOR_A_SHARE = 0.9
_SECONDS_TO_BEGIN = 0.1  # of the thread of worker1 that watches the others
_SECONDS_TO_WATCH_AT_MOST = 20  # on a busy machine
_BATCH = 3
_BATCHES = 4
_SECONDS_FOR_AN_ANSWER = 8  # from the first call on, even on a busy machine
_SECONDS_FOR_A_PAIR = 4
_SENT_A_FUTURE = "Can not pickle torch.futures.Future"  # what RPC says
_SECONDS_IN_TIME, _SECONDS_LATE = 3, 12  # the timeout of RPC for the slow worker, and the time that it takes
_SECONDS_TO_LEAVE = 10  # the argument of my_leave, enough for all workers on a busy machine
_SECONDS_BEFORE_THE_LAST_LEAVES = 1
_SECONDS_TO_LEAVE_ALONE = 8  # at most, even on a busy machine; a shutdown that waits for the last worker takes 20 s
_SECONDS_TO_MEET = 20
_SECONDS_TO_FAIL = 0.5  # of a shutdown, so that the other workers are answered until then
# Each process counts its graceful shutdowns in C++, and a shutdown of all waits until the counts are equal.
_NOT_TOGETHER = (
    "RuntimeError: these processes can no longer shut down together, because not all workers called an earlier "
    "shutdown. Call fresh_ranks(), then run the cell with your answer again"
)


@exercise
def my_record(exam):
    """Check `my_record(work, read, write)`: on worker1, requests at the same time work together and count right."""
    if exam.rank == 0:
        unanswered, total, writes, works, alone = exam.on_rank(_have_recorded)
        exam.require(
            unanswered == 0,
            f"{unanswered} of {_CALLERS} requests got no answer within {_SECONDS_FOR_ALL} s, expected an answer for "
            f"each: does each request release the lock? {RESTART}",
        )
        exam.require(
            works == _CALLERS, f"{_CALLERS} requests called `work` {times_in_words(works)}, expected once each."
        )
        exam.require(
            not alone,
            "A request waited while another request ran `work`, expected all to run it at the same time: hold the "
            "lock only while a request uses the shared number.",
        )
        exam.require(
            writes == _CALLERS, f"{_CALLERS} requests called `write` {times_in_words(writes)}, expected once each."
        )
        exam.require(
            total == _CALLERS,
            f"{_CALLERS} concurrent requests counted to {total}, expected {_CALLERS}: let no other request run "
            "between `read` and `write`.",
        )
    return f"{_CALLERS} requests worked at the same time, and counted to {_CALLERS}."


@exercise
def my_ask(exam):
    """Check `my_ask(worker, function)`: on worker1, its rank and what the worker answers; no thread waits in it."""
    expected = (1, exam.n)  # the last worker answers its rank + 1
    if exam.rank == 0:
        result, sent_a_future, waited = exam.on_rank(_have_asked, f"worker{exam.n - 1}")
        exam.require(
            not sent_a_future,
            "worker1 tried to send a future, expected a pair: decorate `my_ask`, and read the answer in `then` with "
            "`future.value()`.",
        )
        exam.require(
            isinstance(result, tuple) and tuple(map(number, result)) == expected,
            f"`my_ask` returned {_as_pair(result)}, expected {_as_pair(expected)}: the rank that runs it, and the "
            "function's result.",
        )
        _require_no_wait(exam, waited, "my_ask")
    return f"my_ask returned {_as_pair(expected)}, and no server thread of worker1 waited for it."


@exercise
def Batcher(exam):
    """Check `Batcher(size, run)`: on worker1, `ask(x)` answers `size` callers together, with one call of run."""
    if exam.rank == 0:
        early, answers, sizes, waited, of_pair = exam.on_rank(_have_asked_for_batches)
        exam.require(
            not early, f"`ask` answered a caller too early, expected no answer until {_BATCH} callers have asked."
        )
        for x, found in enumerate(answers):
            exam.require(
                found is not None,
                f"{len(answers)} callers asked, and some got no answer within {_SECONDS_FOR_AN_ANSWER} s, expected an "
                "answer for each: does each full batch complete all its futures?",
            )
            exam.require(
                number(found) == 10 * _value(x),
                f"The caller of `ask({_value(x)})` got {show(found)}, expected {10 * _value(x)}, the result for its "
                "own value.",
            )
        exam.require(
            sizes == [_BATCH] * _BATCHES, f"The calls of `run` got {sizes} values, expected {[_BATCH] * _BATCHES}."
        )
        _require_no_wait(exam, waited, "ask")
        exam.require(
            of_pair is None or list(map(number, of_pair)) == [10, 20],
            f"One caller asked this `Batcher`, and two callers asked a second `Batcher`, of size 2. The two callers "
            f"got {of_pair}, expected [10, 20]: use `self.size`, and keep the callers in the object.",
        )
    return f"{_BATCHES} calls of run answered {_BATCH * _BATCHES} callers."


@exercise
def my_leave(exam):
    """Check `my_leave(seconds)`: workers leave RPC together, and alone if one is missing or if the shutdown fails.

    The check ends RPC, and starts it again.
    """
    last = exam.n - 1
    together, was_answered = exam.on_rank(_leave_together, exam.rank, exam.n)
    exam.require(
        was_answered,
        f"All workers were alive, but worker0 left while worker{last} was still calling it, expected all workers to "
        "leave together.",
    )
    _require_left(exam, together, "All workers were alive", True)
    left = exam.on_rank(_leave_without_the_last, exam.rank, exam.n)
    if exam.rank < last:
        _require_left(exam, left, f"worker{last} had already left", False)
        exam.require(
            left.seconds < _SECONDS_TO_LEAVE_ALONE,
            f"worker{last} had already left, and on rank {exam.rank} `my_leave` took {left.seconds:.0f} s, expected "
            f"less than {_SECONDS_TO_LEAVE_ALONE} s: check that every worker answers before you wait for all of them. "
            f"{FRESH_RANKS}",
        )
        _require_questions(exam, together.asked)
    left, timeouts = exam.on_rank(_leave_although_the_shutdown_fails, exam.rank)
    if timeouts:
        exam.require(
            timeouts[0] == _SECONDS_TO_LEAVE,
            f"All workers were alive, but on rank {exam.rank} `my_leave` called `rpc.shutdown` "
            f"{f'with a timeout of {timeouts[0]} s' if timeouts[0] else 'without a timeout'}, expected a timeout of "
            f"{_SECONDS_TO_LEAVE} s: a worker that has answered may die before it leaves.",
        )
        _require_left(exam, left, "All workers had answered and `rpc.shutdown` raised RuntimeError", False)
    return (
        f"All workers left together, and each left alone after worker{last} had left, and after a shutdown that failed."
    )


def _require_questions(exam, asked):
    """Require that `my_leave` asked every other worker, with a timeout of at most `seconds`."""
    others = {f"worker{rank}" for rank in range(exam.n) if rank != exam.rank}
    exam.require(
        others <= set(asked),
        f"Before rank {exam.rank} left, `my_leave` asked {', '.join(asked) or 'no worker'}, expected it to ask every "
        "worker: any worker may be missing.",
    )
    for worker, timeout in asked.items():
        exam.require(
            timeout is not None and 0 < timeout <= _SECONDS_TO_LEAVE,
            f"On rank {exam.rank} `my_leave` asked {worker} without a timeout, or with another timeout than "
            f"`seconds`, expected a timeout of {_SECONDS_TO_LEAVE} s: a worker that is stuck never answers.",
        )


def _require_left(exam, left, situation, expected):
    """Require that `my_leave` returned what is expected, and that RPC has ended on this rank."""
    did = f"raised {left.error}" if left.error else f"returned {show(left.result)}"
    exam.require(
        left.result is expected,
        f"{situation}, but on rank {exam.rank} `my_leave` {did}, expected it to return {expected}.",
    )
    exam.require(
        not left.rpc_runs,
        f"{situation}, but RPC was still running on rank {exam.rank} after `my_leave`, expected RPC to have ended.",
    )


@exercise(ranks=slice(1), before=kill_last)
def ask_any(exam):
    """Check `ask_any(workers, function, args)` on rank 0: the first answer, although some workers are dead.

    The check kills the last rank.
    """
    dead, alive = f"worker{exam.n - 1}", f"worker{exam.n - 2}"
    asked = exam.on_rank(_ask, [dead, alive, alive], 42)
    _require_the_next(exam, asked, "The first worker was dead", [dead, alive])
    exam.require(
        asked.workers == [dead, alive, alive],
        f"`ask_any` changed the list of workers to {asked.workers}, expected it to leave the caller's list as it is.",
    )
    asked = exam.on_rank(_ask, [dead, dead, alive], 42)
    _require_the_next(exam, asked, "The first two workers were dead", [dead, dead, alive])
    asked = exam.on_rank(_ask, [alive, alive], -1)
    did = f"raised {asked.error.rstrip(': ')}" if asked.error else f"returned {_quoted(asked.result)}"
    exam.require(
        asked.error.startswith("ValueError"),
        f"The function raised a ValueError, but `ask_any` {did}, expected it to raise this ValueError.",
    )
    exam.require(
        len(asked.callees) == 1,
        f"The function raised a ValueError, but `ask_any` called {len(asked.callees)} workers, expected a call to the "
        "first worker only.",
    )
    asked = exam.on_rank(_ask, [dead, dead], 42)
    did = f"raised {asked.error}" if asked.error else f"returned {_quoted(asked.result)}"
    exam.require(
        asked.error.startswith("RuntimeError"),
        f"All workers were dead, but `ask_any` {did}, expected it to raise a RuntimeError.",
    )
    asked = exam.on_rank(_ask_a_slow_worker, alive)
    _require_the_next(exam, asked, "The first worker did not answer in time", [alive, alive])
    return "ask_any passed over a dead worker and a slow worker, and let the function's own error through."


def _require_the_next(exam, asked, situation, expected_callees):
    """Require that ask_any asked these workers in this order, and returned the answer of the last of them."""
    first = f"{situation}, and `ask_any`"
    kind = asked.error.partition(":")[0]  # the text names a line of TensorPipe
    exam.require(not asked.error, f"{first} raised {kind}, expected it to call the next worker.")
    exam.require(asked.callees == expected_callees, f"{first} called {asked.callees}, expected {expected_callees}.")
    expected = f"{expected_callees[-1]} has 42"
    exam.require(
        isinstance(asked.result, str) and asked.result == expected,
        f"{first} returned {_quoted(asked.result)}, expected {expected!r}.",
    )


def _require_no_wait(exam, waited, function):
    exam.require(
        not waited,
        f"The answers are right, but a server thread of worker1 waited inside `{function}`, expected no server thread "
        "to wait: return a future that gets the answer later.",
    )


class Desk:
    """The number that all requests of a worker share, and the work that each of them does by itself."""

    def __init__(self):
        self.number = _FIRST_NUMBER
        self.writes = 0
        self.meeting = Meeting(_CALLERS)
        self.works = itertools.count()


_desks = [Desk()]


def new_desk():
    """Give this worker a new `Desk`."""
    _desks[:] = [Desk()]


def work():
    """Return when all requests are in this method at the same time, or after a timeout."""
    desk = _desks[0]
    desk.meeting.join(next(desk.works))


def read():
    """Return the shared number, slowly: other requests run meanwhile."""
    shared = _desks[0].number
    time.sleep(0.1)
    return shared


def write(shared):
    """Set the shared number, slowly."""
    time.sleep(0.05)
    _desks[0].writes += 1
    _desks[0].number = shared


def tally():
    """Return how far the requests counted, how often they wrote, how often they called `work`, and who worked alone."""
    desk = _desks[0]
    return desk.number - _FIRST_NUMBER, desk.writes, next(desk.works), desk.meeting.alone()


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


class SlowNumber(int):
    """A number that is slow to compare, so that other threads run meanwhile: without a lock, updates are lost."""

    def __eq__(self, other):
        time.sleep(0.005)
        return int(self) == other

    def __le__(self, other):
        time.sleep(0.005)
        return int(self) <= other

    __hash__ = int.__hash__


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


def _have_recorded():
    """Have worker1 run `my_record` for several requests; return how many got no answer, and the `tally`."""
    my_record = _learners("my_record")
    with one_line_errors():
        rpc.rpc_sync("worker1", new_desk)
        arguments = (work, read, write)
        asked = [rpc.rpc_async("worker1", my_record, args=arguments, timeout=_SECONDS_FOR_ALL) for _ in range(_CALLERS)]
        return _unanswered(asked), *rpc.rpc_sync("worker1", tally)


def _unanswered(asked):
    """Wait for all requests, so that none runs into the next check; return how many got no answer in time.

    Raises the first error that is no timeout.
    """
    unanswered, errors = 0, []
    for future in asked:
        try:
            future.wait()
        except Exception as error:
            if _is_timeout(error):
                unanswered += 1
            else:
                errors.append(error)
    if errors:
        raise errors[0]
    return unanswered


def _have_asked(last):
    """Have worker1 run `my_ask` for the last worker.

    Returns its result, whether worker1 tried to send a future, and whether a thread of worker1 waited in `my_ask`.
    """
    ask = _learners("my_ask")
    result, sent_a_future = None, False
    with one_line_errors():
        watch = _watch_worker1(2 * _SECONDS_FOR_A_SHARE)
        try:
            result = rpc.rpc_sync("worker1", ask, args=(last, share), timeout=10)
        except Exception as error:
            if _SENT_A_FUTURE not in str(error):
                raise
            sent_a_future = True
        finally:
            waited = watch.wait()
    return result, sent_a_future, waited


def _have_asked_for_batches():
    """Have callers ask a `Batcher` on worker1.

    Returns whether one was answered before its batch was full, all answers, how many values each call of `run` got,
    whether a thread of worker1 waited in `ask`, and what two callers of a second `Batcher` got; None if one of the
    answers before was wrong.
    """
    learners = _learners("Batcher")
    require_first_rpc("Call fresh_ranks(), then run the cell with your answer again")
    with one_line_errors():
        watch = _watch_worker1(2.5)
        try:
            rpc.rpc_sync("worker1", take_sizes)
            batcher = rpc.remote("worker1", learners, args=(SlowNumber(_BATCH), tenfold))
            asked = [batcher.rpc_async(timeout=_SECONDS_FOR_AN_ANSWER).ask(_value(x)) for x in range(_BATCH - 1)]
            time.sleep(2.5 * SECONDS_AT_MOST)
            early = any(future.done() and _answer(future) is not None for future in asked)
            others = range(_BATCH - 1, _BATCH * _BATCHES)
            asked += [batcher.rpc_async(timeout=_SECONDS_FOR_AN_ANSWER).ask(_value(x)) for x in others]
            answers = [_answer(future) for future in asked]
            sizes = rpc.rpc_sync("worker1", take_sizes)
        finally:
            waited = watch.wait()
        right = [10 * _value(x) for x in range(_BATCH * _BATCHES)]
        of_pair = _answers_of_a_pair(learners, batcher) if list(map(number, answers)) == right else None
    return early, answers, sizes, waited, of_pair


def _value(caller):
    """Return the value that a caller asks for; every second caller has the value of the caller before it."""
    return caller // 2


def _answers_of_a_pair(cls, batcher):
    """Have a caller ask the `Batcher`, and two callers a second `Batcher`, of size 2; return what these two got."""
    pair = rpc.remote("worker1", cls, args=(SlowNumber(2), tenfold))
    waiting = [batcher.rpc_async(timeout=_SECONDS_FOR_AN_ANSWER).ask(0)]
    answers = [_answer(future) for future in [pair.rpc_async(timeout=_SECONDS_FOR_A_PAIR).ask(x) for x in (1, 2)]]
    waiting += [batcher.rpc_async(timeout=_SECONDS_FOR_AN_ANSWER).ask(0) for _ in range(_BATCH - 1)]
    for future in waiting:
        _answer(future)  # so that none waits longer than the check
    rpc.rpc_sync("worker1", take_sizes)
    return list(map(plain, answers))


def _watch_worker1(seconds):
    """Have a thread of worker1 watch, for a number of seconds, whether another thread waits in the answer."""
    timeout = seconds + _SECONDS_TO_WATCH_AT_MOST
    watch = rpc.rpc_async("worker1", waits_inside_cells, args=(seconds,), timeout=timeout)
    time.sleep(_SECONDS_TO_BEGIN)
    return watch


def _answer(future):
    """Return the answer of a future, or None if none came in time."""
    try:
        return future.wait()
    except RuntimeError as error:
        if _is_timeout(error):
            return None
        raise


def _is_timeout(error):
    return "more than set timeout" in str(error)


class _Asked(NamedTuple):
    """The outcome of a call of ask_any, the workers that it asked, and its list of workers after the call."""

    result: object
    error: str
    callees: list[str]
    workers: list[str]


def _ask(workers: list[str], value: int, function: Callable = has) -> _Asked:
    """Have `ask_any` ask workers for a function of a value."""
    _learners("ask_any")
    result, error, made = None, "", []
    try:
        with one_line_errors(), recorded() as made:
            result = answer("ask_any", [workers, function, (value,)])
    except AnswerError as raised:
        error = str(raised)
    return _Asked(plain(result), error, [call.callee for call in made], list(map(str, workers)))


def _ask_a_slow_worker(worker: str) -> _Asked:
    """Have `ask_any` ask a worker that answers too late the first time, and in time the second time."""
    try:
        with rpc_timeout(_SECONDS_IN_TIME):
            return _ask([worker, worker], 42, slow_once)
    finally:
        rpc.rpc_sync(worker, stop_being_slow)


class _Left(NamedTuple):
    """The outcome of a call of my_leave: its result or its error, how long it took, and whether RPC still runs.

    `asked` maps each worker that it called to the timeout of the last call.
    """

    result: object
    error: str
    seconds: float
    rpc_runs: bool
    asked: dict[str, float | None]


def _leave() -> _Left:
    """Call `my_leave` on this rank."""
    asked = {}

    def note(event):
        if getattr(event.function, "__module__", "") != rpc.api.__name__:  # a graceful shutdown makes calls, too
            asked[worker_of(event.to).name] = event.timeout

    result, error, begin = None, "", time.monotonic()
    try:
        with one_line_errors(), tap.subscribed(tap.Rpc, begin=note):
            result = answer("my_leave", [_SECONDS_TO_LEAVE])
    except AnswerError as raised:
        kind, _, text = str(raised).partition(":")
        error = kind if isinstance(raised.__cause__.__cause__, RuntimeError) else f"{kind}:{text}"  # RPC's is long
    return _Left(plain(result), error, time.monotonic() - begin, rpc_runs(), asked)


def _leave_together(rank: int, n: int) -> tuple[_Left, bool]:
    """Have all workers leave, the last one later than the others; return also whether worker0 answers until then."""
    _learners("my_leave")
    if not end_rpc("my_leave"):
        _cannot_end_together.set()
    if _cannot_end_together.is_set():
        raise AnswerError(_NOT_TOGETHER)
    _start_again(rank)
    was_answered = True
    if rank == n - 1:
        time.sleep(_SECONDS_BEFORE_THE_LAST_LEAVES)
        was_answered = _answers(0)
    return _leave(), was_answered


def _leave_without_the_last(rank: int, n: int) -> _Left | None:
    """Have the last worker leave alone, then all others; start RPC again for the lesson."""
    _start_again(rank)
    last = n - 1
    left = None
    if rank == last:
        _all_have_met.wait(_SECONDS_TO_MEET)
        time.sleep(0.2)  # until the answers of `meet` are on their way
        rpc.shutdown(graceful=False)
    else:
        rpc.rpc_sync(last, meet, args=(rank, last))
        end = time.monotonic() + _SECONDS_TO_MEET
        while _answers(last) and time.monotonic() < end:
            time.sleep(0.05)
        left = _leave()
        if rpc_runs():
            rpc.shutdown(graceful=False)  # a graceful shutdown would wait for the last worker
    _start_again(rank)
    return left


def _leave_although_the_shutdown_fails(rank: int) -> tuple[_Left, list[float]]:
    """Have all workers leave while every graceful shutdown fails; start RPC again for the lesson.

    Returns also the timeouts of the graceful shutdowns. A graceful shutdown that really failed would make it impossible
    for these processes ever to shut down together, so a stand-in leaves alone and raises the error.
    """
    timeouts = []
    shutdown = rpc.shutdown

    def failing(graceful=True, timeout=0):
        if graceful:
            timeouts.append(timeout)
            time.sleep(_SECONDS_TO_FAIL)
        shutdown(graceful=False)
        if graceful:
            raise RuntimeError("a worker has not called shutdown in time")

    rpc.shutdown = failing
    try:
        left = _leave()
    finally:
        rpc.shutdown = shutdown
    if rpc_runs():
        shutdown(graceful=False)
    _start_again(rank)
    return left, timeouts


def _start_again(rank):
    end_rpc("my_leave")
    _have_met.clear()
    _all_have_met.clear()
    start_rpc(f"worker{rank}")


def _answers(worker):
    """Return whether a worker answers a call."""
    try:
        rpc.rpc_sync(worker, os.getpid, timeout=_SECONDS_IN_TIME)
    except RuntimeError:
        return False
    return True


_cannot_end_together = threading.Event()  # for the rest of this process
_have_met = set()
_all_have_met = threading.Event()


def meet(rank: int, size: int) -> None:
    """Record on the last worker that a rank has arrived, until `size` ranks have arrived."""
    _have_met.add(rank)
    if len(_have_met) == size:
        _all_have_met.set()


def _learners(name):
    """Return the learner's function or class of that name. Raises `AnswerError` if this rank has none."""
    if name not in vars(learners_module()):
        raise AnswerError(missing(name))
    return vars(learners_module())[name]


def _as_pair(result):
    return f"({', '.join(map(show, result))})" if isinstance(result, tuple) else show(result)


def _quoted(result):
    return repr(result) if isinstance(result, str) else show(result)
