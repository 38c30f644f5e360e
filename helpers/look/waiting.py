"""Wait for the ranks' answers to a cell or a call, and pass an Interrupt on to the ranks."""

import linecache
import math
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

import ipyparallel as ipp

from helpers.errors import WorldError
from helpers.interrupts import interrupted_later
from helpers.look.cells import Cells
from helpers.look.tracebacks import is_of_helpers
from helpers.look.where import NO_CONNECTION
from helpers.ranks.protocol import Ranks

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_ARRIVE = 1  # a rank ignores a signal that it gets before its cell or call
_SECONDS_AFTER_INTERRUPT = 1
_SECONDS_TO_ANSWER = 5


class Waiter:
    """Waits for the ranks of one world; `cells` keeps the cells and calls that were sent to them."""

    def __init__(self, world, ranks: Ranks, cells: Cells):
        self._world = world
        self._ranks = ranks
        self._cells = cells
        self._stuck = {}  # by rank: the id of the message that an interrupt did not end

    def require_answering(self, targets: Sequence[int], what: str) -> None:
        """Raise `WorldError` when a cell or call, `what`, would wait for a rank that an interrupt did not free."""
        unanswered = self._cells.messages()
        self._stuck = {rank: message for rank, message in self._stuck.items() if message in unanswered}
        if stuck := sorted(self._stuck.keys() & targets):
            raise WorldError(
                f"This {what} was not run: {_say_ranks(stuck)} still in the call that the interrupt did not end.\n\n"
                f"{self._world.where()!r}\n\n"
                f"Run the {what} again when the call has timed out, or call world.restart()."
            )

    def require_connection(self) -> None:
        """Raise `WorldError` when the process that carries the messages is dead, because no answer would arrive."""
        if not self._ranks.is_connected():
            raise WorldError(NO_CONNECTION)

    def call(self, targets: Sequence[int], function: str | Callable, arguments: tuple, seconds: float | None) -> list:
        """Have these ranks call a function, and return their results; see `World.call`."""
        self.require_connection()
        self.require_answering(targets, "call")
        view = self._view(targets)
        function = ipp.Reference(function) if isinstance(function, str) else function
        line = _running_line()

        def send():
            result = view.apply_async(function, *arguments)
            self._cells.sent(targets, result.msg_ids, line)
            return result

        result, interrupted = self.send_and_wait(targets, send, seconds)
        if interrupted:
            raise KeyboardInterrupt
        return result.get()

    def _view(self, targets):
        try:
            return self._ranks.client[[self._ranks.engine_ids[rank] for rank in targets]]
        except KeyError:  # the controller no longer knows a rank
            died = say_who_died(self._ranks, targets)
            raise WorldError(f"{died} Call world.restart() for working ranks.".strip()) from None

    def send_and_wait(
        self, targets: Sequence[int], send: Callable[[], ipp.AsyncResult], seconds: float | None = None
    ) -> tuple[ipp.AsyncResult, bool]:
        """Have `send` send a cell or a call to these ranks, and wait for their answers.

        Return what `send` returns, and whether an Interrupt ended the work of the ranks. An Interrupt while `send` runs
        takes effect after it, because otherwise some ranks would work on, and nothing would wait for them.

        Raise `TimeoutError` if a rank does not answer within this many seconds; None waits without a limit.
        If the Interrupt leaves some ranks stuck, show the output of the other ranks, and raise `WorldError` with the
        place of every rank and the errors of the other ranks, because one of these errors may be the cause.
        """
        result, early = None, []
        try:
            with interrupted_later(lambda: early.append(True)):
                result = send()
            deadline = time.monotonic() + (math.inf if seconds is None else seconds)
            while not result.wait(_SECONDS_BETWEEN_LOOKS):
                self.require_connection()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"a rank has not answered for {seconds} s")
        except KeyboardInterrupt:
            if result is None:  # nothing has been sent
                raise
            self._interrupt(targets, result, seconds_before=_SECONDS_TO_ARRIVE if early else 0)
            return result, True
        return result, False

    def _interrupt(self, targets, result, seconds_before):
        self._stuck = dict(zip(targets, result.msg_ids, strict=True))
        with suppress(KeyboardInterrupt):  # pressed again
            result.wait(seconds_before)
            self._world.interrupt()
            answered = result.wait(_SECONDS_AFTER_INTERRUPT)
            if not answered and any(s.state == "busy" and s.line_number is None for s in self._world.where()):
                result.wait(_SECONDS_TO_ANSWER)  # a rank left the cell, and is about to send its error
        unanswered = self._cells.messages()
        stuck = [rank for rank, message in self._stuck.items() if message in unanswered]
        if not stuck:
            return
        errors = []
        for rank, answer in zip(targets, result.metadata, strict=True):
            if rank not in stuck and answer["stdout"]:
                print(f"[stdout:{rank}]\n{answer['stdout']}", end="")
            if rank not in stuck and answer["error"] and answer["error"].ename != "KeyboardInterrupt":
                errors.append(say_raised(rank, answer["error"].ename, answer["error"].evalue))
        raise WorldError(
            f"Interrupted, but {_say_ranks(stuck)} inside a call that an interrupt does not reach.\n\n"
            + "\n".join([f"{self._world.where()!r}\n", *errors])
            + "\nCall world.restart() for working ranks, or wait until the call times out."
        )


def _running_line() -> tuple[int, str]:
    """Return the number and the text of the innermost running line that is not in the helpers."""
    stack = traceback.walk_stack(sys._getframe())
    frame, number = next(place for place in stack if not is_of_helpers(place[0].f_code.co_filename))
    return number, linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()


def say_raised(rank: int, kind: str, text: str) -> str:
    """Return a sentence about an error of a rank, with the first line of its text."""
    return f"Rank {rank} raised {kind}: {text.splitlines()[0] if text else ''}"


def say_who_died(ranks: Ranks, targets: Sequence[int]) -> str:
    """Return a sentence about each of these ranks that has died."""
    deaths = ranks.deaths()
    return " ".join(f"Rank {rank} has died ({deaths[rank]})." for rank in targets if rank in deaths)


def _say_ranks(ranks):
    if len(ranks) == 1:
        return f"rank {ranks[0]} is"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} are"
