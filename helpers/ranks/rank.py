"""What runs in the process of a rank, beside the learner's cells."""

import faulthandler
import fcntl
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

# What stands above a stack; the first is how faulthandler begins the only one that it writes.
MAIN_THREAD, OTHER_THREAD = "Stack (most recent call first):", "Another thread:"


def log_path(directory: str, rank: int) -> Path:
    """Return the file that takes what the C++ code of a rank prints."""
    return Path(directory, f"rank-{rank}.log")


def stacks_path(directory: str, rank: int) -> Path:
    """Return the file to which a rank writes its stacks when it is asked to."""
    return Path(directory, f"rank-{rank}.stacks")


def requests_path(directory: str, rank: int) -> Path:
    """Return the named pipe that asks a rank for its stacks: any byte does."""
    return Path(directory, f"rank-{rank}.requests")


def run_rank(rank: int, environment: dict[str, str], directory: str) -> None:
    """Be one rank: an ipyparallel engine whose id is `rank`, until it is killed or the notebook's process has ended.

    `environment` takes the place of the one that the rank was forked with; `directory` is the private folder of the
    world.
    """
    os.setsid()  # an Interrupt of the notebook goes to its whole process group
    _end_with_the_notebook()
    os.environ.clear()
    os.environ.update(environment)
    _redirect_output(log_path(directory, rank))
    _answer_with_stacks(rank, directory)

    from ipyparallel.engine.app import IPEngine

    IPEngine.launch_instance(
        argv=[
            f"--IPEngine.id={rank}",
            f"--IPEngine.work_dir={os.getcwd()}",  # by itself, the folder in which ipyparallel was imported
            # No nanny process beside each engine: the notebook sees a rank die at once through its pipe to it.
            "--IPEngine.enable_nanny=False",
            # No watch over the controller's heartbeat: a rank ends by itself when the notebook has ended.
            "--IPEngine.max_heartbeat_misses=0",
        ]
    )


def join_world(rank: int, environment: dict[str, str], directory: str) -> int:
    """Make the engine that calls this, which somebody else has started, a rank; return its process id."""
    os.environ.update(environment)
    _answer_with_stacks(rank, directory)

    import torch

    torch.set_num_threads(1)
    return os.getpid()


def _answer_with_stacks(rank, directory):
    """From now on a request appends the stacks of all threads to a file, also while the rank is blocked in C++.

    It is a thread that answers. While another one keeps the lock of Python it cannot; then SIGUSR1 appends the stack
    of the main thread. A signal could not tell of the others without the lock: RPC makes and frees threads all the
    time, and what has just been freed must not be read.
    """
    path = requests_path(directory, rank)
    path.unlink(missing_ok=True)  # that of the rank before a restart
    os.mkfifo(path, 0o600)
    requests = os.open(path, os.O_RDWR)  # for writing too: no end of the file when the notebook closes it
    stacks = stacks_path(directory, rank).open("wb", buffering=0)  # in one piece: no reader finds half of it
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    threading.Thread(target=_answer, args=[requests, stacks], daemon=True).start()


def _answer(requests, stacks):
    while os.read(requests, 4096):
        stacks.write(_stacks())


def _stacks():
    """Return the stacks of all threads in the format of faulthandler."""
    lines = []
    for thread, innermost in sys._current_frames().items():
        lines.append(MAIN_THREAD if thread == threading.main_thread().ident else OTHER_THREAD)
        for frame, number in traceback.walk_stack(innermost):
            lines.append(f'  File "{frame.f_code.co_filename}", line {number} in {frame.f_code.co_name}')
    return "\n".join([*lines, ""]).encode(errors="replace")


def _end_with_the_notebook():
    """Have the system end this process when the notebook's has ended, even if it never comes back to Python.

    The other end of the sentinel is held by the notebook alone. When that is closed the system sends SIGIO, which ends
    a process that does not handle it.
    """
    notebook = multiprocessing.parent_process()
    fcntl.fcntl(notebook.sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(notebook.sentinel, fcntl.F_SETFL, os.O_ASYNC)
    if not notebook.is_alive():
        os.kill(os.getpid(), signal.SIGIO)


def _redirect_output(path):
    """Send what this process writes to file descriptors 1 and 2 to a file that only its user can read."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
