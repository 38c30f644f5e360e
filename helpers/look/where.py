"""Where every rank is, down to the line of the learner's own cell, also while it is blocked inside a C++ call.

A thread of the rank writes the stacks of all its threads to a file when it is asked to. When that thread cannot,
because another one keeps the lock of Python, a signal has faulthandler write the stack of the main thread.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from helpers.look.cells import Cells
from helpers.ranks.rank import MAIN_THREAD, OTHER_THREAD, requests_path, stacks_path
from helpers.table import table

_SECONDS_TO_ANSWER = 1.0
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


def whereabouts(
    pids: list[int],
    directory: str,
    deaths: Callable[[], dict[int, str]],
    cells: Cells,
) -> Whereabouts:
    """Ask every rank where it is.

    `directory` holds the files of their stacks, `deaths` tells what ended the ranks that are dead, and `cells` are
    those that the ranks were sent.
    """
    owed = cells.owed()
    alive = set(range(len(pids))) - deaths().keys()
    offsets = [stacks_path(directory, rank).stat().st_size for rank in range(len(pids))]
    for rank in alive:
        _request(requests_path(directory, rank))
    states = Whereabouts()
    for rank, pid in enumerate(pids):
        path = stacks_path(directory, rank)
        main_thread, others = _read(path, offsets[rank], pid)
        if main_thread is None and rank in alive - deaths().keys():  # else the number may be somebody else's by now
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
            main_thread, others = _read(path, offsets[rank], pid)
        if rank in (dead := deaths()):
            states.append(RankState(rank, "dead", line=dead[rank]))
        else:
            states.append(_state(rank, main_thread, others, owed.get(rank), cells))
    return states


def _request(path):
    with suppress(OSError):  # nobody reads the requests of a rank that is dead
        requests = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        with open(requests, "wb", buffering=0) as file:
            file.write(b"?")


def _read(path: Path, offset: int, pid: int) -> tuple[list[_Frame] | None, list[list[_Frame]]]:
    """Return the stack of the main thread, None without an answer, and those of the others, innermost frame first."""
    deadline = time.monotonic() + _SECONDS_TO_ANSWER
    previous, size = None, offset
    # Until there is something, and no more comes.
    while not offset < size == previous and psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
        previous, size = size, path.stat().st_size
    main_thread, others, frames = None, [], []
    for line in path.read_bytes()[offset:].decode(errors="replace").splitlines():
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
