"""Processes that start fast, because torch is imported once for all of them, and that end with the notebook.

Every process is a `multiprocessing.Process`, which learns that the process which has started it has ended, however that
ended. On Linux they are forked from multiprocessing's fork server. To fork a process that has imported torch is a Linux
habit, so elsewhere each one is a fresh Python.
"""

import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
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
# Names the modules, as JSON, that a world asks the fork server to import.
MODULES_TO_IMPORT = "MODULES_TO_IMPORT"
NO_MORE_PROCESSES = (
    "This user may start no more processes: `ulimit -u` says how many they may be. End some, such as those of other "
    "notebooks, and try again."
)
# A socket with a name in the file system has at most 103 bytes for it on macOS, 107 on Linux.
_BYTES_OF_A_SOCKET_NAME = 100
_LONGEST_NAME = "world-12345678/socket:99"
_SECONDS_TO_FORK = 120  # for the first process torch is imported, maybe from a slow disk
_SECONDS_AFTER_INTERRUPT = 5


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

    It does nothing when the fork server is running already, or when this system starts fresh Pythons. Raises
    `WorldError` when `preload` is no list of names, and when the name of the temporary folder is too long for the
    sockets that will be in it.
    """
    if not isinstance(preload, list | tuple) or not all(isinstance(name, str) and name for name in preload):
        raise WorldError(f"preload={preload!r}: give a list of modules, as in preload=['torch._dynamo'].")
    if START_METHOD != "forkserver":
        return
    folder = _temporary_folder()
    forkserver.set_forkserver_preload(PRELOADED)
    environment = {**at_import(), FOLDER_TO_REMOVE: folder, MODULES_TO_IMPORT: json.dumps(list(preload))}
    with _interrupted_later(), spare.in_use(environment), _without_main():
        if _is_out_of_reach():
            end_fork_server()
        forkserver.ensure_running()


def at_import() -> dict[str, str]:
    """Return the environment variables that torch reads when a rank imports it.

    Several ranks that share the cores must not start a thread for each core. And c10d warns of every connection whose
    host has no name, as it is on the loopback of a machine that is offline; whoever wants to see it sets the level.
    """
    return {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}


def start(target, *arguments) -> multiprocessing.Process:
    """Start a process that calls `target(*arguments)`, a function of an importable module.

    Raises `WorldError` when the fork server cannot start one, and when it does not answer in time; it has ended then,
    and the next call starts another one.
    """
    warm_up()
    process = multiprocessing.get_context(START_METHOD).Process(target=target, args=arguments)
    with _Patience() as patience, _interrupted_later(patience.end_soon), _without_main():
        try:
            process.start()
        except (EOFError, ConnectionError):
            if patience.is_over:
                why = f"The process that ranks are forked from did not answer for {_SECONDS_TO_FORK} s. Try again."
            else:
                why = (
                    "The process that ranks are forked from has ended, maybe because it may start no more processes "
                    "(`ulimit -u`), or because `import torch` fails in this notebook. Its last words are above or in "
                    "the log of Jupyter."
                )
            raise WorldError(why) from None
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


def close_end(process: multiprocessing.Process, end: int) -> None:
    """Close what `end_of` has returned for a process."""
    if end != process.sentinel:
        os.close(end)


def wait_for_parent() -> None:
    """Return when the process that has started this one has ended."""
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])


def make_folder() -> str:
    """Make a folder that only this user can read, inside the one that is removed when the notebook has ended.

    Raises `WorldError` when its name is too long for the sockets that will be in it.
    """
    return tempfile.mkdtemp(prefix="world-", dir=_temporary_folder())


def _temporary_folder():
    """Return the private folder of this process, made again where it has been removed.

    A fork server that is killed removes it, and so does a cleaner of /tmp. Raises `WorldError` when its name is too
    long, and when the name belongs to somebody else by now.
    """
    folder = get_temp_dir()
    if len(os.fsencode(f"{folder}/{_LONGEST_NAME}")) > _BYTES_OF_A_SOCKET_NAME:
        shutil.rmtree(folder, ignore_errors=True)
        raise WorldError(
            f"The name of the temporary folder, {tempfile.gettempdir()}, is too long for the sockets of a world. Start "
            "the notebook with a shorter one, as in: TMPDIR=/tmp make lab"
        )
    with suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)
    if os.lstat(folder).st_uid != os.geteuid():
        raise WorldError(f"The temporary folder {folder} is another user's by now. Restart this kernel.")
    return folder


def _is_out_of_reach():
    """Return whether the socket of the fork server has been removed."""
    address = forkserver._forkserver._forkserver_address
    return address is not None and not os.path.exists(address)


def end_fork_server():
    """Kill the fork server, so that another one can start. Processes that it has forked live on."""
    pid = forkserver._forkserver._forkserver_pid
    with suppress(ProcessLookupError, ChildProcessError, TypeError):  # it has ended; there is none
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


class _Patience:
    """Within this context a fork server that keeps the caller waiting for too long is killed.

    A fork server that was stopped by a signal would never answer.
    """

    def __init__(self):
        self.is_over = False
        self._timers = []

    def __enter__(self):
        self._end_after(_SECONDS_TO_FORK)
        return self

    def __exit__(self, *_):
        for timer in self._timers:
            timer.cancel()

    def end_soon(self):
        """Allow the fork server a few more seconds only: after an Interrupt the learner expects the prompt back."""
        self._end_after(_SECONDS_AFTER_INTERRUPT)

    def _end_after(self, seconds):
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _end(self):
        self.is_over = True
        end_fork_server()


@contextmanager
def _interrupted_later(at_once: Callable[[], None] = lambda: None):
    """Put an Interrupt off until the end: the fork server dies of a request that breaks off in the middle.

    Only `at_once` is called when the Interrupt comes.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    interrupts = []

    def note(*_):
        interrupts.append(True)
        at_once()

    before = signal.signal(signal.SIGINT, note)
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
