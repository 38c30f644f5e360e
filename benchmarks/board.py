"""What the board takes: the processor time of a notebook's kernel and of its ranks, with the board and without it."""

import os
import time
from statistics import median

import psutil
from jupyter_client.manager import start_new_kernel
from tqdm import tqdm

from helpers.kernels import KERNEL

REPEATS = 5
SECONDS = 10
N = 4

START = f"from helpers import World\nworld = World({N})"
# As in a lesson: a cell runs on every rank, and takes no time of a processor itself.
RUN = f"%%px --noblock\nimport time; time.sleep({4 * REPEATS * SECONDS + 60})"


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    # JupyterLab says so when it starts a kernel; then the board is a panel.
    manager, client = start_new_kernel(kernel_name=KERNEL, env=os.environ | {"JPY_SESSION_NAME": "board.ipynb"})
    try:
        kernel = psutil.Process(manager.provisioner.process.pid)
        for cell in (START, RUN):
            _run(client, cell)
        without, with_board = [], []
        for _ in tqdm(range(REPEATS), desc="board"):
            without.append(_share(kernel))
            _run(client, "world.board()")
            with_board.append(_share(kernel))
            _run(client, "world._board.end()")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    taken = median(one - other for one, other in zip(with_board, without, strict=True))
    return [
        [
            f"processor time that the board of {N} ranks takes",
            f"{taken:.1%} of a core",
            f"{median(without):.1%}, the same processes without it",
            "",
        ]
    ]


def _run(client, cell):
    reply = client.execute_interactive(cell, output_hook=lambda message: None, timeout=120)
    if reply["content"]["status"] != "ok":
        raise RuntimeError("\n".join(reply["content"]["traceback"]))


def _share(kernel):
    """Return the processor time that these processes take within some seconds, as a share of one core."""
    processes = [kernel, *kernel.children(recursive=True)]
    time.sleep(1)  # what has just begun or ended is over
    before, started = _processor_time(processes), time.monotonic()
    time.sleep(SECONDS)
    return (_processor_time(processes) - before) / (time.monotonic() - started)


def _processor_time(processes):
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))
