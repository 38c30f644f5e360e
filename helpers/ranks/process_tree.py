"""End processes when their parent ends, and together with every process that they have started."""

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
from contextlib import suppress

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_SECONDS_TO_END = 5


# ---------------------------------------------------------------- the whole tree


def become_root() -> None:
    """Start a new session and adopt orphans, so that `kill_descendants` finds every descendant, orphans included.

    From now on only this user can read the files that this process and its descendants create.
    """
    os.setsid()  # an Interrupt or a kill of the notebook may go to its whole process group
    os.umask(0o077)  # protects the files even if another user can enter the private folder
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants() -> None:
    """Kill every descendant of this process, even a descendant whose own parent has ended."""
    this = psutil.Process()
    while alive := [child for child in this.children(recursive=True) if not _is_over(child)]:
        for child in alive:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(alive, timeout=_SECONDS_TO_END)


def _is_over(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def has_ended(pid: int) -> bool:
    """Return whether there is no process with this id, or only a zombie."""
    try:
        return _is_over(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


# ---------------------------------------------------------------- in a parent


def end_of(process: multiprocessing.Process) -> int:
    """Return an object with which `multiprocessing.connection.wait` can wait for the end of a process.

    The object is a pidfd if the system has pidfds. The process's `sentinel` is a pipe, which the children of the
    process inherit and keep open after the process has ended.
    """
    try:
        return os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # macOS, an old kernel
        return process.sentinel


def close_end(process: multiprocessing.Process, end: int) -> None:
    """Close the object that `end_of` returned for a process."""
    if end != process.sentinel:
        os.close(end)


# ---------------------------------------------------------------- in a child


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends; only Linux can do this."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != multiprocessing.parent_process().pid:  # the parent has already ended
            os._exit(1)


def wait_for_parent() -> None:
    """Return when the parent of this process has ended."""
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])


def _prctl(option, value):
    """Set an option of this process, see prctl(2); raise OSError when that fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
