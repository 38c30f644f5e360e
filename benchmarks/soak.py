"""What grows when a notebook goes on for hours: a kernel starts, breaks and repairs worlds in a loop.

Each round starts a world, has its ranks add up, kills a rank and replaces it, restarts all ranks, and has them wait for
each other until Interrupt is pressed. Then it stops the world; every second time the next world takes the place of one
that still runs. `MINUTES=120 python -m benchmarks soak` goes on for two hours instead of ten minutes. The first rounds
only warm up: what they leave, as imported modules and memory that an allocator keeps, is there once.
"""

import os
import tempfile
import threading
import time
from pathlib import Path

import psutil
from jupyter_client.manager import start_new_kernel
from tqdm import tqdm

from helpers.kernels import KERNEL

MINUTES = float(os.environ.get("MINUTES", 10))
ROUNDS_TO_WARM_UP = 5
SECONDS_TO_VANISH = 3

START = "from helpers import World\nworld = World(4)"
SUM = """%%px
import os
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
"""
KILL = """
import os, signal, time
os.kill(world.pids[1], signal.SIGKILL)
while world.where()[1].state != "dead":
    time.sleep(0.1)
world.restart(rank=1)
"""
RESTART = "world.restart()"
DEADLOCK = "%%px\ndist.recv(torch.zeros(1), (dist.get_rank() + 1) % dist.get_world_size())"
STOP = "world.stop()"
COLLECT = "import gc\ngc.collect()"  # a world that has ended is a cycle, which Python frees when it pleases


def rows() -> list[list]:
    """Go round, and return the rows of the table."""
    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["TMPDIR"] = folder
        try:
            return _rows(Path(folder))
        finally:
            os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)


def _rows(folder):
    manager, client = start_new_kernel(kernel_name=KERNEL)
    kernel = psutil.Process(manager.provisioner.process.pid)
    try:
        for number in range(ROUNDS_TO_WARM_UP):
            _round(manager, client, number)
        first = _left(kernel, client, folder)
        rounds, end = ROUNDS_TO_WARM_UP, time.monotonic() + 60 * MINUTES
        with tqdm(total=60 * MINUTES, desc="soak", unit="s", bar_format="{desc}: {percentage:3.0f}% {elapsed}") as bar:
            while time.monotonic() < end:
                _round(manager, client, rounds)
                rounds += 1
                bar.update(min(bar.total, bar.total - end + time.monotonic()) - bar.n)
        last = _left(kernel, client, folder)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return [["rounds", str(rounds), f"{ROUNDS_TO_WARM_UP} of them to warm up", ""]] + [
        [f"{what} when no world runs, at the end", f"{last[what]:,}", f"{first[what]:,} in the beginning", ""]
        for what in last
    ]


def _round(manager, client, number):
    for cell in (START, SUM, KILL, RESTART, SUM):
        _run(client, cell)
    press = threading.Timer(1, manager.interrupt_kernel)
    press.start()
    _run(client, DEADLOCK, ends_well=False)
    press.join()
    if number % 2 == 0:
        _run(client, STOP)


def _run(client, cell, ends_well=True):
    reply = client.execute_interactive(cell, output_hook=lambda message: None, timeout=120)["content"]
    if (reply["status"] == "ok") != ends_well:
        raise RuntimeError("\n".join(reply.get("traceback", [f"a cell that waits for itself has ended:\n{cell}"])))


def _left(kernel, client, folder):
    """Stop the world, and return what the kernel and what it has started still hold."""
    for cell in (STOP, COLLECT):
        _run(client, cell)
    time.sleep(SECONDS_TO_VANISH)
    processes = [kernel, *kernel.children(recursive=True)]
    return {
        "processes": len(processes),
        "threads": sum(process.num_threads() for process in processes),
        "open files and sockets": sum(process.num_fds() for process in processes),
        "sockets with an address": sum(len(process.net_connections("inet")) for process in processes),
        "files in the temporary folder": sum(1 for _ in folder.rglob("*")),
        "KiB of memory": sum(process.memory_full_info().uss for process in processes) // 1024,
    }
