"""Are kernels lost that start beside worlds which start and stop all the time?

Kernels are started in turn as the course does, on private sockets, and as Jupyter does by itself, on TCP ports, which
shows that the drill can lose one. `KERNELS=50 python -m benchmarks kernels` starts 50 of each instead of 300. The TCP
ports are lost to worlds only where a world asks for ports of the machine, not of a network of its own.
"""

import os
import subprocess
import sys
from contextlib import contextmanager

from jupyter_client.manager import start_new_kernel
from tqdm import tqdm

from helpers.kernels import KERNEL

KERNELS = int(os.environ.get("KERNELS", 300))
LOOPS = 2  # processes in which a world follows the other
WORLDS = """
from datetime import timedelta
from helpers import World

if __name__ == "__main__":
    while True:
        world = World(4)
        world.view.execute("import torch.distributed as dist; dist.init_process_group('gloo')")
        for _ in range(5):
            world.restart()
            world.view.execute("import torch.distributed as dist; dist.init_process_group('gloo')")
        world.stop()
"""
KERNEL_NAMES = {"private sockets": KERNEL, "TCP ports": "python3"}


def rows() -> list[list]:
    """Start the kernels, and return the rows of the table."""
    lost = dict.fromkeys(KERNEL_NAMES, 0)
    with _worlds_that_come_and_go():
        for _ in (progress := tqdm(range(KERNELS), desc="kernels")):
            for way, kernel_name in KERNEL_NAMES.items():
                lost[way] += not _starts(kernel_name)
            progress.set_postfix(lost)
    return [[f"of {KERNELS} kernels on {way}, lost", str(number), "", ""] for way, number in lost.items()]


def _starts(kernel_name):
    """Start a kernel, end it, and return whether it answered."""
    try:
        manager, client = start_new_kernel(kernel_name=kernel_name, startup_timeout=120, stderr=subprocess.DEVNULL)
    except RuntimeError:  # "Kernel died before replying to kernel_info"
        return False
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return True


@contextmanager
def _worlds_that_come_and_go():
    command = [sys.executable, "-c", WORLDS]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    loops = [subprocess.Popen(command, **silent) for _ in range(LOOPS)]
    try:
        yield
        assert all(loop.poll() is None for loop in loops), "no worlds were there for a part of the time"
    finally:
        for loop in loops:
            loop.kill()  # its world ends with it
            loop.wait()
