"""The stacks of a rank: all threads over the side channel, or the main thread if the side channel does not answer.

The answering thread needs the GIL. When another thread holds the GIL, as in a long call of C code that does not
release it, faulthandler still writes the stack of the main thread to a file when the rank receives SIGUSR1. It cannot
read the stacks of the other threads without the GIL, because RPC creates and frees threads all the time.
"""

import faulthandler
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_BEGIN = "Stack (most recent call first):\n"  # faulthandler writes this, and then a line for each frame
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_SECONDS_TO_WRITE = 1.0


class Frame(NamedTuple):
    """A frame of a stack; `arguments` has the arguments of a function of torch, see `helpers.probe.arguments`."""

    path: str
    line_number: int
    function: str
    arguments: Mapping[str, object]


class Stacks(NamedTuple):
    """The stacks of a process, the innermost frame of each first; `others` has the threads besides the main thread."""

    main_thread: list[Frame]
    others: list[list[Frame]]


def _path(directory, rank):
    return Path(directory, f"rank-{rank}.stacks")


# ---------------------------------------------------------------- in the rank


def of_this_process(with_arguments: bool = True) -> Stacks:
    """Return the stacks of all threads; leaving out the arguments of torch's functions saves time."""
    main_thread, others = [], []
    for thread, innermost in sys._current_frames().items():
        stack = [
            Frame(frame.f_code.co_filename, line_number, frame.f_code.co_name, _arguments(frame, with_arguments))
            for frame, line_number in traceback.walk_stack(innermost)
        ]
        if thread == threading.main_thread().ident:
            main_thread = stack
        else:
            others.append(stack)
    return Stacks(main_thread, others)


def _arguments(frame, wanted):
    if not wanted:
        return {}
    # Imported here because it imports torch, which the notebook does not need to read stacks.
    from helpers.probe import arguments

    return arguments.of(frame) or {}


def write_on_signal(rank: int, directory: str) -> None:
    """Make SIGUSR1 append the stack of the main thread to a file in the world's folder, without the GIL."""
    path = _path(directory, rank)
    path.write_bytes(b"")
    # Opened for appending, because the notebook truncates the file.
    faulthandler.register(signal.SIGUSR1, file=path.open("ab", buffering=0), all_threads=False)


# ---------------------------------------------------------------- in the notebook


def by_signal(directory: str, pids: Mapping[int, int]) -> dict[int, Stacks]:
    """Send SIGUSR1 to ranks, given with their process ids; return the stacks of the main threads that were written.

    Raises FileNotFoundError when the file of a rank has been removed.
    """
    for rank, pid in pids.items():
        os.truncate(_path(directory, rank), 0)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + _SECONDS_TO_WRITE
    written = {rank: _read(_path(directory, rank), pid, deadline) for rank, pid in pids.items()}
    return {rank: parse(text) for rank, text in written.items() if _BEGIN in text}


def _read(path, pid, deadline):
    """Return the text of a file once it is not empty and no longer grows, or at the deadline."""
    previous, size = None, 0
    while not 0 < size == previous and psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
        previous, size = size, path.stat().st_size
    return path.read_text(errors="replace")


def parse(text: str) -> Stacks:
    """Return the stack that faulthandler wrote last; a rank that was stopped may have answered several signals."""
    last = text.rpartition(_BEGIN)[2]
    return Stacks([Frame(path, int(number), function, {}) for path, number, function in _FRAME.findall(last)], [])
