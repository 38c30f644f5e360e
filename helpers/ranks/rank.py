"""The process of a rank: an ipyparallel engine, and a thread that answers questions.

For engines that another program started see `helpers.ranks.engine`.
"""

import gc
import os
import random
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from helpers.probe import recorder, side_channel, stacks
from helpers.ranks import process_tree

_SECONDS_TO_REGISTER = 120
_PR_SET_TIMERSLACK, _NANOSECONDS_LONGER, _DEFAULT = 29, 50_000_000, 0  # linux/prctl.h


def log_path(directory: str, rank: int) -> Path:
    """Return the path of the log of a rank, to which its C++ code prints."""
    return Path(directory, f"rank-{rank}.log")


def last_lines(log: str) -> str:
    """Return the last lines of a log, without the lines that ipyparallel wrote."""
    return "\n".join([line for line in log.splitlines() if "[IPEngine" not in line][-8:])


def run_rank(rank: int, environment: dict[str, str], directory: str) -> None:
    """Run one rank, an ipyparallel engine whose id is `rank`, until it is killed or its supervisor ends.

    `environment` replaces the environment with which the rank was forked; `directory` is the private folder of the
    world.
    """
    os.setsid()
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # Python has cached the value of the old environment
    _redirect_output(log_path(directory, rank))
    stacks.write_on_signal(rank, directory)
    side_channel.answer(rank, directory)
    recorder.watch()
    relax_gloo()
    _seed_anew()

    from helpers.probe import handles

    handles.note()
    gc.freeze()  # keeps the memory of the modules imported before the fork shared; see `helpers.ranks.preload`

    from helpers.ranks.ipyparallel_parts import launch_engine

    launch_engine(
        [
            f"--IPEngine.id={rank}",
            f"--IPEngine.work_dir={os.getcwd()}",  # the default is the folder in which ipyparallel was imported
            f"--IPEngine.timeout={_SECONDS_TO_REGISTER}",
            "--IPEngine.out_stream_factory=helpers.ranks.ipyparallel_parts.RankStream",
            # No nanny process for each engine, because the supervisor reports the death of a rank at once.
            "--IPEngine.enable_nanny=False",
            # No watch over the controller's heartbeat, because a rank ends by itself when the notebook ends.
            "--IPEngine.max_heartbeat_misses=0",
        ]
    )


def relax_gloo() -> None:
    """Let the threads of new process groups sleep up to 0.05 s longer when nothing arrives.

    gloo's I/O thread wakes a hundred times a second to check whether it should end. Linux can let a thread sleep longer
    than requested, and a thread inherits this timer slack from the thread that starts it. Arriving data still wakes the
    threads at once. In return, ending a group takes up to 0.05 s longer.
    """
    if sys.platform != "linux":
        return
    from helpers import tap

    def sleep_longer(event):
        with suppress(OSError):
            process_tree.prctl(_PR_SET_TIMERSLACK, _NANOSECONDS_LONGER)

    def sleep_as_before(event):
        with suppress(OSError):
            process_tree.prctl(_PR_SET_TIMERSLACK, _DEFAULT)

    tap.subscribe(tap.NewGroup, begin=sleep_longer, end=sleep_as_before)


def _end_with_supervisor():
    """End this process when its supervisor ends; on Linux the system does this, even while a thread holds the GIL."""
    process_tree.wait_for_parent()
    os.kill(os.getpid(), signal.SIGKILL)


def _seed_anew():
    """Seed the random number generators, as in a new process of torchrun, because forked siblings draw equal numbers.

    Only the seed of Python's hashes stays the same on all ranks, because Python draws it when it starts.
    """
    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.default_generator.seed()


def _redirect_output(path):
    """Redirect file descriptors 1 and 2 of this process to a new file that only its user can read."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
