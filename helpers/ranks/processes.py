"""Processes that start fast, because torch is imported once for all of them, and that end with the notebook.

Every process is a `multiprocessing.Process`, which learns that the process which has started it has ended, however that
ended. On Linux they are forked from multiprocessing's fork server. To fork a process that has imported torch is a Linux
habit, so elsewhere each one is a fresh Python.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.util import get_temp_dir

import psutil

from helpers.errors import WorldError
from helpers.ranks import spare

# What both a kernel and its ranks need; and what the fork server imports besides, before it forks.
SHARED = ["torch.distributed.rpc", "ipykernel.kernelapp", "ipyparallel"]
PRELOADED = ["helpers.ranks.preload"]
START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
# Names the folder that the fork server removes when all that it has forked has ended; see `helpers.ranks.preload`.
FOLDER_TO_REMOVE = "FOLDER_TO_REMOVE"
# A socket with a name in the file system has at most 103 bytes for it on macOS, 107 on Linux.
_BYTES_OF_A_SOCKET_NAME = 100


def prepare() -> None:
    """Import torch, which takes a second or two, for this process and for the ranks that it will start.

    Call it before anything else: it forks this process, which must have a single thread.
    """
    if START_METHOD != "forkserver":
        return
    spare.prepare(SHARED, at_import())
    if torch := sys.modules.get("torch"):  # one thread is for ranks, and not for this process
        torch.set_num_threads(threads_of_torch())


def threads_of_torch() -> int:
    """Return with how many threads torch computes in a process that imports it in this environment."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has none
    cores = min(psutil.cpu_count(logical=False) or 1, usable)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(asked)) if asked.isdecimal() and int(asked) else cores


def warm_up(preload: Sequence[str] = ()) -> None:
    """Start the fork server, which goes on to import torch, and these modules, while the caller does something else.

    It does nothing when the fork server is running already, or when this system starts fresh Pythons.
    """
    if START_METHOD != "forkserver":
        return
    forkserver.set_forkserver_preload([*PRELOADED, *preload])
    os.makedirs(get_temp_dir(), mode=0o700, exist_ok=True)  # a fork server that was killed has removed it
    with _interrupted_later(), spare.in_use({**at_import(), FOLDER_TO_REMOVE: get_temp_dir()}), _without_main():
        forkserver.ensure_running()


def at_import() -> dict[str, str]:
    """Return the environment variables that torch reads when a rank imports it.

    Several ranks that share the cores must not start a thread for each core. And c10d warns of every connection whose
    host has no name, as it is on the loopback of a machine that is offline; whoever wants to see it sets the level.
    """
    return {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}


def start(target, *arguments) -> multiprocessing.Process:
    """Start a process that calls `target(*arguments)`, a function of an importable module."""
    warm_up()
    process = multiprocessing.get_context(START_METHOD).Process(target=target, args=arguments)
    with _interrupted_later(), _without_main():
        process.start()
    return process


def children():
    """Return the `multiprocessing` context in which a process that `start` has started makes its own children.

    Such a process has torch already, and a single thread, so where it was forked itself it can just fork.
    """
    return multiprocessing.get_context("fork" if START_METHOD == "forkserver" else START_METHOD)


def pipe(duplex: bool = False):
    """Return the two ends of a pipe between this process and one that it starts: the receiving one first."""
    return multiprocessing.get_context(START_METHOD).Pipe(duplex)


def end_of(process: multiprocessing.Process) -> int:
    """Return what `multiprocessing.connection.wait` can wait for until the process has ended.

    Its `sentinel` is a pipe, which processes that it has forked hold open when it has gone.
    """
    try:
        return os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # macOS, an old kernel
        return process.sentinel


def wait_for_parent() -> None:
    """Return when the process that has started this one has ended."""
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])


def make_folder() -> str:
    """Make a folder that only this user can read, inside the one that is removed when the notebook has ended.

    Raises `WorldError` when its name is too long for the sockets that will be in it.
    """
    folder = tempfile.mkdtemp(prefix="world-", dir=get_temp_dir())
    if len(os.fsencode(folder)) > _BYTES_OF_A_SOCKET_NAME - len("/socket:99"):
        os.rmdir(folder)
        raise WorldError(
            f"The name of the temporary folder, {tempfile.gettempdir()}, is too long for the sockets of a world. Start "
            "the notebook with a shorter one, as in: TMPDIR=/tmp make lab"
        )
    return folder


@contextmanager
def _interrupted_later():
    """Put an Interrupt off until the end: the fork server dies of a request that breaks off in the middle."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    interrupts = []
    before = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupts:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _without_main():
    """Hide the main module, which multiprocessing would import in the new process: no target of ours lies there.

    A script that makes a world would make another one in each of its processes.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
