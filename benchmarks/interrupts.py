"""A drill rather than a measurement: interrupts of World(...), restart() and stop() at random moments.

After each one the next world has to work. At the end of them all no process and no file may be left but those that
multiprocessing keeps for the next world.
"""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.util import get_temp_dir

import psutil
from tqdm import tqdm

from helpers import World

MOMENTS = 50
_SECONDS_TO_VANISH = 10


def rows() -> list[list]:
    """Interrupt each call at so many moments, and return a row for each call."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has background jobs ignore it
    return [_drill(name, call) for name, call in CALLS.items()]


def _start():
    World(2)


def _restart():
    World(2).restart()


def _restart_one():
    World(2).restart(rank=1)


def _stop():
    World(2).stop()


CALLS = {
    "World(2)": _start,
    "World(2).restart()": _restart,
    "World(2).restart(rank=1)": _restart_one,
    "World(2).stop()": _stop,
}


def _drill(name, call):
    _seconds(call)  # the fork server starts with the first world
    seconds = _seconds(call)
    interrupted = worked = 0
    for _ in tqdm(range(MOMENTS), desc=name):
        interrupted += _interrupt(call, random.uniform(0, seconds))
        world = World(2)
        world.view.execute("answer = 6 * 7")
        worked += world.view["answer"] == [42, 42]
        world.stop()
    left = what_is_left()
    return [
        f"{name}, interrupted at {MOMENTS} random moments of {seconds:.2f} s",
        f"the next world worked {worked} times",
        f"interrupts that came in time: {interrupted}",
        f"left: {left or 'nothing'}",
    ]


def _seconds(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def _interrupt(call, moment):
    """Interrupt the call at this moment, in seconds; return whether it came before the end of the call."""
    timer = threading.Timer(moment, os.kill, [os.getpid(), signal.SIGINT])
    in_time = True
    with suppress(KeyboardInterrupt):
        timer.start()
        call()
        in_time = False
        timer.join()
        time.sleep(0.1)  # a signal takes a moment
    return in_time


def what_is_left():
    """Return the processes and files that there should not be, once nothing is expected to vanish any more."""
    deadline = time.monotonic() + _SECONDS_TO_VANISH
    while left := [*_processes(), *(name for name in os.listdir(get_temp_dir()) if name.startswith("world-"))]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return ", ".join(left)


def _processes():
    own = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
    this = psutil.Process()
    return [
        f"process {process.pid}"
        for process in this.children(recursive=True)
        if process.ppid() != this.pid or not any(name in " ".join(process.cmdline()) for name in own)
    ]
