"""Run exercises in the process that judges, which is in the sandbox but which answers cannot reach.

`outside` means outside the ranks. Each rank's part of an exercise is a thread here. One thread runs at a time, until it
sends its rank a request, an `order`; then the next thread runs. A rank receives a pickle and returns plain data (see
`plain`). In a notebook, `helpers.checks.judging.examine_on_ranks` has the ranks run the exercise themselves.
"""

import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue

import torch
from torch import nn

from helpers.checks.exam import Asked, Exercise, Outcome, Wrong, ask_here
from helpers.checks.judging import SECONDS_TO_ANSWER, stuck_ranks_named
from helpers.measure.traffic import loopback

_SECONDS_BETWEEN_LOOKS = 0.002


def examine(world, exercise: Exercise) -> list[Outcome]:
    """Run the part of each rank that takes part in an exercise.

    Raises `Wrong` when a rank is stuck or has died, and when the ranks report messages that their network did not
    carry.
    """
    with loopback() as carried:
        outcomes = _run(world, exercise)
    require_carried(dict(zip(exercise.ranks_of(world.size), outcomes, strict=True)), carried.bytes)
    return outcomes


def require_carried(outcomes: Mapping[int, Outcome], carried: int) -> None:
    """Require that the network carried at least the bytes of the messages that the ranks report.

    The ranks count their messages themselves, so an answer can forge the list. The system counts what it carries. It
    also carries headers, collectives and RPCs, so a rank can still hide a message that it sent.
    """
    sent, received = Counter(), Counter()
    for rank, outcome in outcomes.items():
        for message in outcome.messages:
            if message.sent:
                sent[rank, message.peer] += message.bytes
            elif message.ended is not None:
                received[message.peer, rank] += message.bytes
    reported = (sent & received).total()  # a receive may have room for more than was sent
    if reported > carried:
        raise Wrong(
            f"The ranks report messages of {reported:,} bytes, and their network carried {carried:,} bytes in all. "
            "Send the messages by torch.distributed."
        )


def _run(world, exercise):
    """Run the part of each rank in a thread, and return the outcomes in rank order."""
    turn, asked = threading.Lock(), SimpleQueue()
    seats = [_Seat(exercise, rank, world.size, turn, asked) for rank in exercise.ranks_of(world.size)]
    views = dict(zip(seats, map(world.view.client.__getitem__, world.view.targets), strict=True))
    for seat in seats:
        seat.start()
    deadline = time.monotonic() + SECONDS_TO_ANSWER
    pending = {}
    try:
        with stuck_ranks_named(world, exercise.name):
            while any(seat.is_alive() for seat in seats):
                if time.monotonic() > deadline:
                    raise TimeoutError
                while seat := _next(asked):
                    pending[seat] = views[seat].apply_async(serve, seat.order)
                for seat in [seat for seat, result in pending.items() if result.ready()]:
                    seat.answer(*pending.pop(seat).get())
                time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        for seat in seats:
            seat.end()
    return [seat.outcome() for seat in seats]


def _next(asked):
    try:
        return asked.get_nowait()
    except Empty:
        return None


class _End(BaseException):
    """Ends a thread whose rank will not answer."""


class _Seat(threading.Thread):
    """One rank's part of an exercise."""

    def __init__(self, exercise, rank, n, turn, asked):
        super().__init__(daemon=True)
        self.order = b""
        self._exercise, self._rank, self._n = exercise, rank, n
        self._turn, self._asked = turn, asked
        self._answered = threading.Event()
        self._answer = None
        self._outcome = self._error = None

    def run(self):
        with self._turn:
            try:
                self._outcome = self._exercise.sit(self._rank, self._n, self._ask)
            except _End:
                pass
            except Exception as error:
                self._error = error

    def outcome(self) -> Outcome:
        if self._error:
            raise self._error
        return self._outcome

    def answer(self, asked: Asked, tensors: list) -> None:
        self._answer = asked, tensors
        self._answered.set()

    def end(self):
        self._answered.set()

    def _ask(self, function: Callable, arguments: Sequence) -> Asked:
        tensors = _tensors_in(arguments)
        # A pickle of a module holds no gradients.
        self.order = pickle.dumps((function, arguments, [tensor.grad for tensor in tensors]))
        random = torch.get_rng_state()  # the other threads seed the same generator
        self._answer = None
        self._answered.clear()
        self._asked.put(self)
        self._turn.release()
        try:
            self._answered.wait()
        finally:
            self._turn.acquire()
        torch.set_rng_state(random)
        if self._answer is None:
            raise _End
        asked, changed = self._answer
        for tensor, (data, grad) in zip(tensors, changed, strict=True):
            tensor.data, tensor.grad = data, grad
        return asked


def serve(order: bytes) -> tuple[Asked, list]:
    """Run a function on a rank; return its outcome, and the tensors among its arguments with their gradients.

    The order comes from the process that judges, which the rank trusts.
    """
    function, arguments, grads = pickle.loads(order)
    tensors = _tensors_in(arguments)
    for tensor, grad in zip(tensors, grads, strict=True):
        tensor.grad = grad
    asked = ask_here(function, arguments)
    return asked, [(tensor.detach(), tensor.grad) for tensor in tensors]


def _tensors_in(value):
    """Return the tensors in a value, including the tensors of modules, in the same order as for a copy of the value."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors_in(part)]
    if isinstance(value, dict):
        return _tensors_in(list(value.values()))
    return []
