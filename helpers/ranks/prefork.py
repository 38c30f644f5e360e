"""Processes that start fast, because they are forked from a process that has imported torch.

On Linux this process is the fork server of multiprocessing. In a kernel of the course the fork server is a copy of the
kernel from before the kernel had threads, so torch is in memory once for the notebook and its ranks:

    kernel                                 copy of the kernel
      │ prepare(): import torch, fork ────────> waits for an order
      │ warm_up(): order ─────────────────────> becomes the fork server, imports helpers.ranks.preload
      │ start(f, x): request ─────────────────> forks ──────> new process: f(x), forks its own children
      │ end, for any reason                                   learns that its parent has ended, see `process_tree`

A kernel that was started in another way has no such copy, so its fork server is a new Python process. On macOS every
process is a new Python process, because forking a process that has imported torch is not safe there.
"""

import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, reduction, resource_tracker, util
from multiprocessing.connection import Connection
from typing import NamedTuple

import psutil

from helpers.errors import WorldError
from helpers.interrupts import interrupted_later

# The modules that a kernel and its ranks both need, and the modules that only the fork server imports.
SHARED = ["torch.distributed.rpc", "ipykernel.kernelapp", "ipyparallel"]
PRELOADED = ["helpers.ranks.preload"]
START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
# The variable that names the folder to remove when all processes of the fork server have ended; see `preload`.
FOLDER_TO_REMOVE = "FOLDER_TO_REMOVE"
# The variable that names the modules, as JSON, that a world asks the fork server to import.
MODULES_TO_IMPORT = "MODULES_TO_IMPORT"
NO_MORE_PROCESSES = (
    "This user may start no more processes: `ulimit -u` says how many they may be. End some, such as those of other "
    "notebooks, and try again."
)
# The path of a socket has at most 103 bytes on macOS, 107 on Linux.
_BYTES_OF_A_SOCKET_NAME = 100
_LONGEST_NAME = "world-12345678/socket:99"
_SECONDS_TO_FORK = 120  # a fork server that is not a copy first imports torch, maybe from a slow disk
_SECONDS_AFTER_INTERRUPT = 5
_STANDARD_STREAMS = (1, 2)  # the fork server inherits these, as a new Python process would


# ---------------------------------------------------------------- before the kernel has threads


class _Copy(NamedTuple):
    pid: int
    connection: Connection
    environment: Mapping[str, str]  # in which torch was imported


_copy: _Copy | None = None


def prepare() -> None:
    """Import torch, which takes a second or two, for this process and for the ranks that it will start.

    Call this before anything else, because it forks this process, which must have a single thread. Skip a module that
    cannot be imported: the cell that imports it will raise the error.
    """
    global _copy
    if START_METHOD != "forkserver":
        return
    with _changed(at_import()):
        for module in SHARED:
            with suppress(ImportError):
                importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a garbage collection writes to the objects that it visits, and a written page is no longer shared
    ours, theirs = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _wait_for_order(theirs)
    theirs.close()
    _copy = _Copy(pid, ours, at_import())
    if torch := sys.modules.get("torch"):  # only ranks are limited to one thread, not this process
        torch.set_num_threads(threads_of_torch())


def at_import() -> dict[str, str]:
    """Return the environment variables that torch reads when a rank imports it.

    Ranks that share the cores must not each start one thread per core. By default c10d logs a warning for every
    connection to a host without a name, such as the loopback of an offline machine; set TORCH_CPP_LOG_LEVEL to see
    these warnings.
    A module that looks for a GPU when it is imported must not initialise CUDA, because a process cannot use CUDA after
    its parent has initialised it, so torch asks NVML instead.
    """
    return {
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def threads_of_torch() -> int:
    """Return the number of threads that torch uses in a process that imports it in this environment."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has none
    cores = min(psutil.cpu_count(logical=False) or 1, usable)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(asked)) if asked.isdecimal() and int(asked) else cores


def _wait_for_order(connection):
    """Wait, in the copy, for code, and run it as a new Python process would; does not return."""
    os.setsid()  # an Interrupt goes to the kernel's process group
    try:
        code, arguments, environment, folder, numbers = connection.recv()
        received = [reduction.recv_handle(connection) for _ in numbers]
    except (EOFError, OSError):  # the kernel has ended, or wants a new Python process
        os._exit(0)
    connection.close()
    # Each descriptor gets the number that it has in the kernel, by way of higher numbers, because another file may have
    # that number here.
    higher = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for descriptor in received]
    for descriptor in received:
        os.close(descriptor)
    for descriptor, number in zip(higher, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    exec(code, {})
    sys.exit()


# ---------------------------------------------------------------- the fork server


def warm_up(preload: Sequence[str] = ()) -> None:
    """Start the fork server, which imports `helpers.ranks.preload` and these modules while the caller continues.

    Do nothing when the fork server is already running, or when this system starts new Python processes. Raises
    `WorldError` when `preload` is not a list of names, and when the name of the temporary folder is too long for the
    sockets in it.
    """
    if not isinstance(preload, list | tuple) or not all(isinstance(name, str) and name for name in preload):
        raise WorldError(f"preload={preload!r}: give a list of modules, as in preload=['torch._dynamo'].")
    if START_METHOD != "forkserver":
        return
    folder = _temporary_folder()
    forkserver.set_forkserver_preload(PRELOADED)
    environment = {**at_import(), FOLDER_TO_REMOVE: folder, MODULES_TO_IMPORT: json.dumps(list(preload))}
    # An incomplete request would end the fork server.
    with interrupted_later(), _started_from_copy(environment), _without_main():
        if _is_out_of_reach():
            end_fork_server()
        forkserver.ensure_running()


@contextmanager
def _started_from_copy(environment: Mapping[str, str]):
    """Make multiprocessing start its fork server from the copy of this kernel, if the copy has this environment."""
    resource_tracker.ensure_running()  # otherwise it would be started from the copy
    # multiprocessing calls this function to start a Python process. It is undocumented, so tests/canaries checks it.
    original = util.spawnv_passfds

    def start(path, arguments, descriptors):
        code, *rest = arguments[arguments.index("-c") + 1 :]  # Python 3.14 passes arguments to the code
        return _order(code, rest, descriptors, environment) or original(path, arguments, descriptors)

    util.spawnv_passfds = start
    try:
        with _changed(environment):
            yield
    finally:
        util.spawnv_passfds = original


def _order(code, arguments, descriptors, environment):
    """Have the copy run the code, as `python -c` would; return its process id, or None if it cannot."""
    global _copy
    copy, _copy = _copy, None
    if copy is None:
        return None
    with copy.connection as connection:  # the copy ends when it receives no order
        if all(environment.get(name) == value for name, value in copy.environment.items()):
            numbers = [*descriptors, *_STANDARD_STREAMS]
            try:
                connection.send((code, arguments, dict(os.environ), os.getcwd(), numbers))
                for number in numbers:
                    reduction.send_handle(connection, number, copy.pid)
                return copy.pid
            except OSError:  # somebody has killed the copy
                pass
    os.waitpid(copy.pid, 0)
    return None


@contextmanager
def _changed(environment: Mapping[str, str]):
    """Set these environment variables inside the block."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _is_out_of_reach():
    """Return whether the socket of the fork server has been removed."""
    address = forkserver._forkserver._forkserver_address
    return address is not None and not os.path.exists(address)


def end_fork_server() -> None:
    """Kill the fork server, so that a new fork server can start; processes that it has forked keep running."""
    pid = forkserver._forkserver._forkserver_pid
    with suppress(ProcessLookupError, ChildProcessError, TypeError):  # it has ended, or was never started
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


# ---------------------------------------------------------------- processes


def start(target, *arguments) -> multiprocessing.Process:
    """Start a process that calls `target(*arguments)`, a function of an importable module.

    Raises `WorldError` when the fork server cannot start a process, and when it does not answer in time. The fork
    server has then ended, and the next call starts a new fork server.
    """
    warm_up()
    process = multiprocessing.get_context(START_METHOD).Process(target=target, args=arguments)
    with _Patience() as patience, interrupted_later(patience.end_soon), _without_main():
        try:
            process.start()
        except (EOFError, ConnectionError):
            end_fork_server()  # its sockets close a moment before multiprocessing can see that it has ended
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
    """Return the `multiprocessing` context in which a process that `start` has started starts its own children.

    A process that was forked has already imported torch and has a single thread, so it can simply fork.
    """
    return multiprocessing.get_context("fork" if START_METHOD == "forkserver" else START_METHOD)


def pipe(duplex: bool = False):
    """Return the two ends of a pipe between this process and a process that it starts, the receiving end first."""
    return multiprocessing.get_context(START_METHOD).Pipe(duplex)


class _Patience:
    """A context that kills the fork server when the caller has waited too long for it.

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
        """Give the fork server only a few more seconds, because after an Interrupt the learner expects the prompt."""
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
def _without_main():
    """Hide the main module, which multiprocessing would import in the new process although no target is in it.

    A script that makes a world would otherwise make another world in each of its processes.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# ---------------------------------------------------------------- the folder


def make_folder() -> str:
    """Make a folder that only this user can read, inside the folder that is removed when the notebook ends.

    Raises `WorldError` when its name is too long for the sockets in it.
    """
    return tempfile.mkdtemp(prefix="world-", dir=_temporary_folder())


def _temporary_folder():
    """Return the private folder of this process, and create it again if it was removed.

    A fork server that is killed removes the folder, and so may a program that cleans /tmp. Raises `WorldError` when the
    name of the folder is too long, and when another user has taken the name.
    """
    folder = util.get_temp_dir()
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
