"""Where every rank is, down to the line of the learner's own cell, also while it is blocked inside a C++ call.

How the ranks are asked, and tell of their stacks, is in `helpers.ranks.stacks`.
"""

import re
from typing import NamedTuple

from helpers.look.cells import Cells
from helpers.ranks.stacks import MAIN_THREAD, OTHER_THREAD
from helpers.table import table

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
_CELL = re.compile(r"ipykernel_\d+[/\\]\d+\.py$")
# Decorators of torch that stand between a cell and the collective that it calls.
_DECORATORS = ("wrapper", "decorate_context")


class RankState(NamedTuple):
    """What one rank is doing.

    `state` is idle, busy, serving (one of its threads runs the learner's code for a caller on another rank), silent
    (alive, but it does not say where it is) or dead. `seconds` is how long it has been busy with a cell. `call` is the
    function that the learner's line has called, empty when there is none in Python. `line_number` counts the lines of
    the cell from 1, its `%%px` line included.
    """

    rank: int
    state: str
    seconds: float | None = None
    call: str = ""
    line_number: int | None = None
    line: str = ""


class Whereabouts(list):
    """A list of `RankState`, one for each rank, that shows as a table."""

    def __repr__(self):
        rows = [
            [
                s.rank,
                s.state,
                "" if s.seconds is None else f"{s.seconds:.1f} s",
                s.call,
                s.line_number,
                s.line,
            ]
            for s in self
        ]
        return table(["rank", "state", "for", "call", "line", "code"], rows)


class _Frame(NamedTuple):
    path: str
    number: int
    function: str


def whereabouts(ranks, cells: Cells) -> Whereabouts:
    """Ask every rank where it is.

    `ranks` are the world's `LocalRanks` or `AttachedRanks`, and `cells` are those that they were sent.
    """
    owed = cells.owed()
    answers = ranks.stacks(set(range(ranks.size)) - ranks.deaths().keys())
    states = Whereabouts()
    for rank in range(ranks.size):
        if rank in (dead := ranks.deaths()):
            states.append(RankState(rank, "dead", line=dead[rank]))
        else:
            states.append(_state(rank, *_parse(answers.get(rank, "")), owed.get(rank), cells))
    return states


def _parse(stacks: str) -> tuple[list[_Frame] | None, list[list[_Frame]]]:
    """Return the stack of the main thread, None without an answer, and those of the others, innermost frame first."""
    main_thread, others, frames = None, [], []
    for line in stacks.splitlines():
        if line == MAIN_THREAD:
            frames = main_thread = []
        elif line == OTHER_THREAD:
            others.append(frames := [])
        elif frame := _FRAME.match(line):
            frames.append(_Frame(frame[1], int(frame[2]), frame[3]))
    return main_thread, others


def _state(rank, main_thread, others, seconds, cells):
    if main_thread is None:
        return RankState(rank, "silent", seconds)
    place = _place(main_thread, cells)
    if place or seconds is not None:
        return RankState(rank, "busy", seconds, *(place or ()))
    for frames in others:
        if place := _place(frames, cells):
            return RankState(rank, "serving", None, *place)
    return RankState(rank, "idle")


def _place(frames, cells):
    """Return the call, the line number and the line of the learner's code that a thread runs, or None."""
    for index, frame in enumerate(frames):
        if _CELL.search(frame.path):
            called = [inner.function for inner in frames[:index] if inner.function not in _DECORATORS]
            return called[-1] if called else "", *cells.line(frame.path, frame.number)
    return None
