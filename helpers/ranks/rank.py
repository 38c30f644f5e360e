"""What runs in the process of a rank, beside the learner's cells."""

import faulthandler
import os
import random
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path

from helpers.ranks import processes

_SECONDS_TO_REGISTER = 120
# What stands above a stack; the first is how faulthandler begins the only one that it writes.
MAIN_THREAD, OTHER_THREAD = "Stack (most recent call first):", "Another thread:"

_world_joined = None  # the folder of the world that this engine belongs to, if somebody else has started it


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
    """Be one rank: an ipyparallel engine whose id is `rank`, until it is killed or its host has ended.

    `environment` takes the place of the one that the rank was forked with; `directory` is the private folder of the
    world.
    """
    os.setsid()
    threading.Thread(target=_end_with_host, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # Python keeps what it once found in the environment
    _redirect_output(log_path(directory, rank))
    _answer_with_stacks(rank, directory)
    _draw_other_numbers()

    from ipyparallel.engine.app import IPEngine

    IPEngine.launch_instance(
        argv=[
            f"--IPEngine.id={rank}",
            f"--IPEngine.work_dir={os.getcwd()}",  # by itself, the folder in which ipyparallel was imported
            f"--IPEngine.timeout={_SECONDS_TO_REGISTER}",
            "--IPEngine.out_stream_factory=helpers.ranks.ipyparallel_parts.RankStream",
            # No nanny process beside each engine: the notebook sees a rank die at once through its host.
            "--IPEngine.enable_nanny=False",
            # No watch over the controller's heartbeat: a rank ends by itself when the notebook has ended.
            "--IPEngine.max_heartbeat_misses=0",
        ]
    )


def join_world(rank: int, environment: dict[str, str], directory: str) -> int | None:
    """Make the engine that calls this, which somebody else has started, a rank; return its process id.

    Return None when it is a rank of another world already. That world's folder is there as long as the world is.
    """
    global _world_joined
    if _world_joined not in (None, directory) and os.path.exists(_world_joined):
        return None
    _world_joined = directory
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


def _end_with_host():
    """End this process when its host has ended; on Linux the system does it, and waits for no lock of Python."""
    processes.wait_for_parent()
    os.kill(os.getpid(), signal.SIGKILL)


def _draw_other_numbers():
    """Give this process random numbers of its own: a fork draws the same ones as its siblings.

    So has each process that torchrun starts. Only the seed of Python's hashes is that of all ranks: it is drawn when a
    Python starts.
    """
    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.default_generator.seed()


def _redirect_output(path):
    """Send what this process writes to file descriptors 1 and 2 to a new file that only its user can read."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
