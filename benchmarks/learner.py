"""What one learner takes of a machine: a kernel as JupyterLab starts it, and a world in which a group has been made.

A teacher multiplies this by the number of learners; `python -m benchmarks classroom` tries how many there can be.
"""

import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
from jupyter_client.manager import start_new_kernel
from tqdm import tqdm

from helpers.kernels import KERNEL

WORLDS = {
    "a world of 4": "World(4)",
    "a world of 4, on 2 hosts": "World(4, hosts=2)",
    "a world of 8, on 2 hosts": "World(8, hosts=2)",
}
# The notebook itself comes to use torch in most lessons, with the first tensor that it fetches or check that it calls.
START = """
import torch
from helpers import World
world = {world}
%px from datetime import timedelta
%px import torch, torch.distributed as dist
%px dist.init_process_group("gloo", timeout=timedelta(seconds=30))
%px total = torch.ones(1); dist.all_reduce(total)
"""

# The kernel of the course, and the kernel of ipykernel, beside which torch is imported a second time for the ranks.
OURS, JUPYTERS = KERNEL, "python3"
COMPARED = {"first all_reduce, from the start of the kernel": "{:.1f} s", "memory": "{:.0f} MiB"}


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    found = []
    for name, world in tqdm(WORLDS.items(), desc="learners"):
        ours, jupyters = (_taken(START.format(world=world), kernel_name) for kernel_name in (OURS, JUPYTERS))
        for what, form in COMPARED.items():
            mine, other = ours.pop(what), jupyters[what]
            compared = f"{form.format(other)} in a kernel as Jupyter starts it"
            found.append([f"{name}: {what}", form.format(mine), compared, f"{mine / other:.2f}"])
        found += [[f"{name}: {what}", str(number), "", ""] for what, number in ours.items()]
    return found


def _taken(start, kernel_name):
    """Start the world in a kernel, and return what the kernel and all that it has started take."""
    with tempfile.TemporaryDirectory(prefix="l-") as folder, _temporary(folder):
        begin = time.perf_counter()
        manager, client = start_new_kernel(kernel_name=kernel_name)
        try:
            answer = client.execute_interactive(start, timeout=120, output_hook=lambda message: None)
            seconds = time.perf_counter() - begin
            if answer["content"]["status"] != "ok":
                raise RuntimeError("\n".join(answer["content"]["traceback"]))
            kernel = psutil.Process(manager.provisioner.process.pid)
            processes = [kernel, *kernel.children(recursive=True)]
            return {
                "first all_reduce, from the start of the kernel": seconds,
                "memory": sum(process.memory_full_info().pss for process in processes) / 2**20,
                "processes": len(processes),
                "threads": sum(process.num_threads() for process in processes),
                "open files, the most of one process": max(process.num_fds() for process in processes),
                "files in the temporary folder": sum(1 for _ in Path(folder).rglob("*")),
            }
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


@contextmanager
def _temporary(folder):
    """Have kernels use this temporary folder."""
    before = dict(os.environ)
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
