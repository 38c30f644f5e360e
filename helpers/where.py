"""Where every rank is, down to the line of the learner's own cell, also while it is blocked inside a C++ call.

faulthandler writes the stacks of a rank to a file when the rank gets a signal, whatever the rank is doing.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from helpers.cells import Cells
from helpers.rank import stacks_path
from helpers.table import table

_SECONDS_TO_ANSWER = 1.0
_THREAD = re.compile(r"^(?:Current t|T)hread (0x[0-9a-f]+)")
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
    offsets = [_request(pid, stacks_path(directory, rank)) for rank, pid in enumerate(pids)]
    states = Whereabouts()
    for rank, pid in enumerate(pids):
        path = stacks_path(directory, rank)
        threads = _read(path, offsets[rank], pid)
        if rank in (dead := deaths()):
            states.append(RankState(rank, "dead", line=dead[rank]))
        else:
            states.append(_state(rank, threads, _main_thread(path), owed.get(rank), cells))
    return states


def _request(pid, path):
    """Have a rank append its stacks to its file, and return where in the file they will begin."""
    offset = path.stat().st_size
    if psutil.pid_exists(pid):
        os.kill(pid, signal.SIGUSR1)
    return offset


def _read(path: Path, offset: int, pid: int) -> dict[int, list[_Frame]]:
    """Return the stacks from `offset` on, by the identifier of the thread, the innermost frame first."""
    deadline = time.monotonic() + _SECONDS_TO_ANSWER
    previous, size = None, offset
    # Until there is something, and no more comes.
    while not offset < size == previous and psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
        previous, size = size, path.stat().st_size
    threads, frames = {}, []
    for line in path.read_bytes()[offset:].decode(errors="replace").splitlines():
        if thread := _THREAD.match(line):
            frames = threads[int(thread[1], 16)] = []
        elif frame := _FRAME.match(line):
            frames.append(_Frame(frame[1], int(frame[2]), frame[3]))
    return threads


def _main_thread(path):
    with path.open() as stacks:
        return int(stacks.readline().split()[-1], 16)


def _state(rank, threads, main_thread, seconds, cells):
    if main_thread not in threads:
        return RankState(rank, "silent", seconds)
    place = _place(threads.pop(main_thread), cells)
    if place or seconds is not None:
        return RankState(rank, "busy", seconds, *(place or ()))
    for frames in threads.values():
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
