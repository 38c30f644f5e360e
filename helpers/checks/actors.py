"""Exercises of the lesson actors: a mailbox on worker1, messages in order, and a ring of actors that never waits."""

import queue
import threading
import time
from typing import NamedTuple

import torch
import torch.distributed.rpc as rpc

from helpers.checks.exam import (
    AnswerError,
    Asked,
    Exam,
    answer,
    counted,
    errors_of_answer,
    exercise,
    missing,
    plain,
    show,
)
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import error_in_one_line, one_line_errors, start_rpc

_CALLERS = 4
_NOTES = 5
_WAITING_CALLS = 20  # more than a rank has server threads
_SECONDS_AT_WORK = 0.05
_SECONDS_FOR_AN_ANSWER = 8
_SECONDS_HELD = 6  # a method of the actor that waits for its gate ends then
_SECONDS_FOR_THE_GATE = 3
_SECONDS_FOR_THE_RING = 5
_SECONDS_OF_QUIET, _TIMES_TO_WAIT_FOR_QUIET = 0.2, 15
_SENT_A_FUTURE = "pickle torch.futures.Future"  # what RPC says
_DISK = "the disk is full"
# Each arrival: the sender, the number, and the messages that can be handled then.
_ARRIVALS = (
    ("a", 0, ["a0"]),
    ("a", 2, []),
    ("b", 1, []),
    ("a", 3, []),
    ("a", 2, []),
    ("a", 1, ["a1", "a2", "a3"]),
    ("b", 0, ["b0", "b1"]),
    ("a", 1, []),
    ("a", 4, ["a4"]),
    ("b", 2, ["b2"]),
    ("b", 6, []),
    ("a", 5, ["a5"]),
)


@exercise(actors=True)
def MyMailbox(exam):
    """Check `MyMailbox(cls, *arguments)`: on worker1, `call` and `cast` have one thread run one method at a time."""
    exam.on_rank(start_rpc, f"worker{exam.rank}")
    if exam.rank == 0:
        _require_actors(exam, _spawn)
    return "One thread handled one message at a time, and errors reached the caller; no server thread waited."


def verdict_on(spawn) -> str:
    """Judge the actors of another system as `MyMailbox` is judged, from this rank; return the verdict in words.

    `spawn(cls, *arguments)` starts an actor, always in the same process, and returns its address.
    """
    exam = Exam(spawn.__name__, 0, 1, lambda function, arguments: Asked(function(*arguments), [], ""))
    _require_actors(exam, spawn)
    if exam.fault:
        return f"Not yet. {exam.fault[1]}"
    return "Solved. One thread handled one message at a time, and errors reached the caller."


def _require_actors(exam, spawn):
    for part in (_require_one_at_a_time, _require_casts, _require_errors, _require_free_threads):
        if exam.fault is None:
            part(exam, spawn)


@exercise(actors=True)
def InOrder(exam):
    """Check `InOrder`: `arrive(sender, number, message)` returns what can be handled, in the order of sending."""
    if exam.rank == 0:
        returned, by_another = exam.on_rank(_arrive)
        for i, ((sender, number, expected), result) in enumerate(zip(_ARRIVALS, returned, strict=True)):
            before = ", ".join(f"{sender}{number}" for sender, number, _ in _ARRIVALS[:i]) or "no message"
            exam.require(
                isinstance(result, list) and result == expected,
                f"After {before}, message {sender}{number} arrived, and `arrive` returned {_say(result)}, expected "
                f"{expected}.",
            )
        exam.require(
            by_another == ["a0"],
            f"Message a0 arrived at another `InOrder`, and `arrive` returned {_say(by_another)}, expected ['a0']: keep "
            "the state in `self`, not in the class.",
        )
    return "Two senders' messages were handled in the order of sending, each once."


@exercise(actors=True)
def Member(exam):
    """Check `Member`: all members of a ring of actors can be asked at the same time for the sum of the ring."""
    exam.on_rank(start_rpc, f"worker{exam.rank}")
    if exam.rank == 0:
        for asked, hops in ((1, exam.n), (exam.n, exam.n), (exam.n, 2), (exam.n, 1)):
            totals, is_quiet, error = exam.on_rank(_totals, exam.n, asked, hops)
            at_once = "One member was asked" if asked == 1 else f"{asked} members were asked at once"
            at_once += f" for the sum of {counted(hops, 'member')}" * (hops < exam.n)
            exam.require(len(totals) >= asked or not error, f"{at_once}, and a member raised {error}")
            exam.require(
                len(totals) >= asked,
                f"{at_once}, and {len(totals)} sums arrived within {_SECONDS_FOR_THE_RING} s, expected {asked}: a "
                "member that waits handles no message, so pass the work on with `cast`.",
            )
            expected = [sum((first + hop) % exam.n + 1 for hop in range(hops)) for first in range(asked)]
            exam.require(totals == expected, f"{at_once}, and the sums were {totals}, expected {expected}.")
            exam.require(
                is_quiet,
                f"{at_once}, and messages still went round the ring after the last sum, expected none: stop once "
                "every member has added its number.",
            )
            if exam.fault is not None:
                break
    return f"All {exam.n} members were asked at once, and each sum of the ring arrived."


def _require_one_at_a_time(exam, spawn):
    tried = exam.on_rank(_call_at_once, spawn)
    if not _require_answers(exam, tried, f"{_CALLERS} callers at once"):
        return
    if not _require_result(exam, tried.state, "a count and two numbers of threads"):
        return
    count, at_once, threads = tried.state
    exam.require(
        count == _CALLERS,
        f"Concurrent calls lost updates of a counter: {at_once} threads used the object at the same time, expected 1.",
    )
    exam.require(
        at_once == 1,
        f"{at_once} threads used the object at the same time, expected 1: let a single thread take the messages.",
    )
    exam.require(
        sorted(map(str, tried.answers)) == [str(number + 1) for number in range(_CALLERS)],
        f"{_CALLERS} calls returned {tried.answers}, expected the counts 1 to {_CALLERS}.",
    )
    exam.require(
        threads == 1, f"{threads} threads called the method, expected 1: let the mailbox's own thread call it."
    )


def _require_casts(exam, spawn):
    tried = exam.on_rank(_cast_while_held, spawn)
    if not _require_answers(exam, tried, "A call after casts"):
        return
    if not _require_result(exam, tried.state, "whether a gate opened, some notes and a number of threads"):
        return
    early, notes, threads = tried.state
    exam.require(
        threads == 1,
        f"{threads} threads called the methods, expected 1: let the mailbox's own thread call them all.",
    )
    exam.require(early, "`cast` returned only after the method had ended, expected it to return at once.")
    expected = list(range(_NOTES + 1))
    exam.require(
        notes == expected, f"One sender sent its notes in order, and the actor handled {notes}, expected {expected}."
    )


def _require_errors(exam, spawn):
    tried = exam.on_rank(_let_fail, spawn)
    kind, text = tried.state
    did = f"raised {text}" if kind == "raised" else f"returned {text}"
    hint = ": see the trap of `set_exception`" if kind == "returned" else ""
    exam.require(
        kind == "raised" and _DISK in text,
        f"A method raised ValueError('{_DISK}'), but the future of its `call` {did}, expected it to raise this "
        f"error{hint}.",
    )
    for sent, answered in zip(("call", "cast"), tried.answers, strict=True):
        exam.require(
            answered,
            f"After a `{sent}` whose method raised an error, the actor answered no call, expected it to keep running.",
        )


def _require_free_threads(exam, spawn):
    tried = exam.on_rank(_fill_the_mailbox, spawn)
    exam.require(
        tried.state,
        f"While {_WAITING_CALLS} calls waited in the mailbox, worker1 ran no other request, expected free server "
        "threads: let `call` return a future, and decorate it with `async_execution`.",
    )
    _require_answers(exam, tried, f"{_WAITING_CALLS} calls")


def _require_answers(exam, tried, what):
    sent_a_future = _SENT_A_FUTURE in tried.error
    exam.require(
        not sent_a_future,
        "worker1 tried to send a future, expected an answer: is `call` decorated with `async_execution`?",
    )
    late = "timeout" in tried.error
    exam.require(not late, f"{what} got no answer within {_SECONDS_FOR_AN_ANSWER} s, expected an answer.")
    return exam.require(not tried.error or late or sent_a_future, f"{what}: {tried.error}") and not tried.error


def _require_result(exam, result, parts):
    """Require that `call` returned the result of a method that returns three parts."""
    return exam.require(
        isinstance(result, tuple) and len(result) == 3,
        f"A method returned a tuple, {parts}, and its `call` returned {show(result)}, expected this tuple.",
    )


class Tried(NamedTuple):
    """The outcome of a few messages: the answers, the error of the first call that failed, and what a part asks for."""

    answers: list
    error: str
    state: object = None


class Subject:
    """The object behind the learner's mailbox: a counter that loses updates, notes, and a gate."""

    def __init__(self, first: int):
        self.count = first
        self.at_once = []
        self.inside = 0
        self.threads = set()
        self.notes = []
        self.opened = False

    def add_one(self):
        """Add one, slowly, and return the count."""
        self.inside += 1
        self.at_once.append(self.inside)
        self.threads.add(threading.get_ident())
        before = self.count
        time.sleep(_SECONDS_AT_WORK)
        self.count = before + 1
        self.inside -= 1
        return self.count

    def note(self, number):
        """Keep a number."""
        self.threads.add(threading.get_ident())
        self.notes.append(number)

    def hold(self):
        """Wait until the gate of this worker opens."""
        self.threads.add(threading.get_ident())
        self.opened = _gate.wait(_SECONDS_HELD)

    def fail(self):
        """Raise ValueError."""
        raise ValueError(_DISK)

    def lose(self):
        """Raise KeyError."""
        raise KeyError(_DISK)

    def counted(self):
        """Return the count, how many threads were inside at once, and how many threads came."""
        return self.count, max(self.at_once), len(self.threads)

    def held(self):
        """Return whether the gate opened while `hold` waited, the notes, and how many threads came."""
        return self.opened, self.notes, len(self.threads)


_gate = threading.Event()


def set_gate(is_open):
    """Open or shut the gate of this worker."""
    if is_open:
        _gate.set()
    else:
        _gate.clear()


class Gate:
    """An actor next to the actor that is judged, which opens and shuts the gate of their process."""

    def set(self, is_open):
        """Open or shut the gate."""
        set_gate(is_open)


def _set_gate(spawn, is_open, seconds=_SECONDS_FOR_AN_ANSWER):
    if spawn is _spawn:
        rpc.rpc_sync("worker1", set_gate, args=(is_open,), timeout=seconds)
    else:
        spawn(Gate).call("set", is_open).wait()


def _spawn(cls, *arguments):
    """Start an actor with the learner's mailbox."""
    name = "MyMailbox"
    if name not in vars(learners_module()):
        raise AnswerError(missing(name))
    mailbox = rpc.remote("worker1", vars(learners_module())[name], args=(cls, *arguments))
    return Address(mailbox, _SECONDS_FOR_AN_ANSWER)


def _answers(futures):
    """Wait for all futures; return the answers, and the first error in one line."""
    answers, error = [], ""
    for future in futures:
        try:
            answers.append(plain(future.wait()))
        except Exception as raised:
            error = error or error_in_one_line(raised)
    return answers, error


def _call_at_once(spawn):
    with one_line_errors():
        actor = spawn(Subject, 0)
        answers, error = _answers([actor.call("add_one") for _ in range(_CALLERS)])
        if error:
            return Tried(answers, error)
        (state,), error = _answers([actor.call("counted")])
        return Tried(answers, error, state)


def _cast_while_held(spawn):
    with one_line_errors():
        _set_gate(spawn, False)
        actor = spawn(Subject, 0)
        actor.cast("hold")
        for number in range(_NOTES):
            actor.cast("note", number)
        _set_gate(spawn, True)
        _, error = _answers([actor.call("note", _NOTES)])
        if error:
            return Tried([], error)
        answers, error = _answers([actor.call("held")])
        return Tried(answers, error, answers[0] if answers else None)


def _let_fail(spawn):
    with one_line_errors():
        actor = spawn(Subject, 0)
        try:
            state = ("returned", repr(actor.call("fail").wait()))
        except Exception as raised:
            state = ("raised", _DISK if _DISK in str(raised) else error_in_one_line(raised))
        alive = [not _answers([actor.call("add_one")])[1]]
        if alive == [True]:
            try:
                actor.cast("lose")
            except Exception as raised:
                raise AnswerError(f"a `cast` whose method raised: {error_in_one_line(raised)}") from raised
        alive.append(not alive[0] or not _answers([actor.call("add_one")])[1])
        return Tried(alive, "", state)


def _fill_the_mailbox(spawn):
    with one_line_errors():
        _set_gate(spawn, False)
        actor = spawn(Subject, 0)
        actor.cast("hold")
        waiting = [actor.call("add_one") for _ in range(_WAITING_CALLS)]
        try:
            _set_gate(spawn, True, _SECONDS_FOR_THE_GATE)
            free = True
        except RuntimeError:
            free = False
        return Tried(*_answers(waiting), free)


def _arrive():
    """Return what the learner's `InOrder` returned for each arrival, and what another one returned for the first."""
    in_order = answer("InOrder", [])
    returned = [_arrived(in_order, sender, number) for sender, number, _ in _ARRIVALS]
    return returned, _arrived(answer("InOrder", []), "a", 0)


def _arrived(in_order, sender, number):
    with errors_of_answer():
        result = in_order.arrive(sender, number, f"{sender}{number}")
        return plain(list(result) if isinstance(result, list | tuple) else result)


def _say(result):
    return str(result) if isinstance(result, list) else show(result)


class Mailbox:
    """The mailbox of this check: one thread runs one method of the object at a time."""

    def __init__(self, cls, *arguments):
        self.messages = queue.SimpleQueue()
        self.taken = 0
        self.is_open = True
        self.error = ""
        threading.Thread(target=self._serve, args=(cls(*arguments),), daemon=True).start()

    def _serve(self, instance):
        while True:
            method, arguments, result = self.messages.get()
            self.taken += 1
            if not self.is_open:
                continue
            try:
                result.set_result(getattr(instance, method)(*arguments))
            except Exception as error:
                self.error = self.error or error_in_one_line(error)
                result.set_exception(error)

    @rpc.functions.async_execution
    def call(self, method, *arguments):
        """Put a request into the queue, and return a future of its answer."""
        result = torch.futures.Future()
        self.messages.put((method, arguments, result))
        return result.then(torch.futures.Future.wait)

    def cast(self, method, *arguments):
        """Put a message into the queue."""
        self.messages.put((method, arguments, torch.futures.Future()))

    def how_many_taken(self):
        """Return how many messages the object's thread has taken."""
        return self.taken

    def first_error(self):
        """Return the first error that a method raised, in one line, or an empty text."""
        return self.error

    def close(self):
        """Ignore all messages from now on."""
        self.is_open = False


class Address:
    """The address of an actor: an RRef to its mailbox, and the timeout of each message."""

    def __init__(self, mailbox, timeout):
        self.mailbox = mailbox
        self.timeout = timeout

    def call(self, method, *arguments):
        """Send a request, and return a future of its answer."""
        return self.mailbox.rpc_async(timeout=self.timeout).call(method, *arguments)

    def cast(self, method, *arguments):
        """Send a message."""
        self.mailbox.rpc_sync(timeout=self.timeout).cast(method, *arguments)


class Asker:
    """An actor that keeps the sums that it gets."""

    def __init__(self):
        self.totals = []

    def take(self, total):
        """Keep a sum."""
        self.totals.append(plain(total))

    def taken(self):
        """Return all sums."""
        return self.totals


def _spawn_with_ours(worker, cls, *arguments):
    """Start an actor with the mailbox of this check."""
    return Address(rpc.remote(worker, Mailbox, args=(cls, *arguments)), _SECONDS_FOR_THE_RING)


def _totals(n, asked, hops):
    """Ask `asked` members of a new ring at the same time, each by an asker of its own, for the sum of `hops` members.

    Returns the sums that arrived in time, by asker, whether the members have stopped sending messages, and the first
    error that a member raised, in one line.
    """
    if "Member" not in vars(learners_module()):
        raise AnswerError(missing("Member"))
    learners = vars(learners_module())["Member"]
    with one_line_errors():
        askers = [_spawn_with_ours("worker0", Asker) for _ in range(asked)]
        ring = [_spawn_with_ours(f"worker{r}", learners, r + 1) for r in range(n)]
        for member, right in zip(ring, ring[1:] + ring[:1], strict=True):
            member.call("meet", right).wait()
        questions = [member.call("total", asker, hops) for member, asker in zip(ring[:asked], askers, strict=True)]
        end = time.monotonic() + _SECONDS_FOR_THE_RING
        while len(_taken(askers)) < asked and time.monotonic() < end:
            time.sleep(0.02)
        for question in questions:
            _raise_unless_late(question)
        is_quiet = len(_taken(askers)) < asked or _becomes_quiet(ring)
        errors = [member.mailbox.rpc_sync().first_error() for member in ring]
        for member in ring:
            member.mailbox.rpc_sync().close()
        return _taken(askers), is_quiet, next((error for error in errors if error and "timeout" not in error), "")


def _taken(askers):
    return [total for asker in askers for total in asker.call("taken").wait()]


def _becomes_quiet(ring):
    """Return whether a moment comes in which no member takes a message."""
    taken = None
    for _ in range(_TIMES_TO_WAIT_FOR_QUIET):
        before, taken = taken, [member.mailbox.rpc_sync().how_many_taken() for member in ring]
        if taken == before:
            return True
        time.sleep(_SECONDS_OF_QUIET)
    return False


def _raise_unless_late(question):
    try:
        question.wait()
    except RuntimeError as error:
        if "timeout" not in str(error):
            raise
