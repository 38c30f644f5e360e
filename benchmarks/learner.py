"""What one learner takes of a machine: a kernel as JupyterLab starts it, and a world in which a group has been made.

A teacher multiplies this by the number of learners; `python -m benchmarks classroom` tries how many there can be.
"""

import os
import tempfile
from pathlib import Path

import psutil
from jupyter_client.manager import start_new_kernel
from tqdm import tqdm

WORLDS = {
    "a world of 4": "World(4)",
    "a world of 4, on 2 hosts": "World(4, hosts=2)",
    "a world of 8, on 2 hosts": "World(8, hosts=2)",
}
START = """
from helpers import World
world = {world}
%px from datetime import timedelta
%px import torch, torch.distributed as dist
%px dist.init_process_group("gloo", timeout=timedelta(seconds=30))
%px total = torch.ones(1); dist.all_reduce(total)
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    found = []
    before = os.environ.get("TMPDIR")
    for name, world in tqdm(WORLDS.items(), desc="learners"):
        with tempfile.TemporaryDirectory(prefix="l-") as folder:
            os.environ["TMPDIR"] = folder
            try:
                found += _taken(name, START.format(world=world), Path(folder))
            finally:
                os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)
    return found


def _taken(name, start, folder):
    """Start the world in a kernel, and return what the kernel and all that it has started take."""
    manager, client = start_new_kernel()
    try:
        answer = client.execute_interactive(start, timeout=120, output_hook=lambda message: None)
        if answer["content"]["status"] != "ok":
            raise RuntimeError("\n".join(answer["content"]["traceback"]))
        kernel = psutil.Process(manager.provisioner.process.pid)
        processes = [kernel, *kernel.children(recursive=True)]
        memory = sum(process.memory_full_info().pss for process in processes)
        return [
            [f"{name}: memory", f"{memory / 2**20:.0f} MiB", "", ""],
            [f"{name}: processes", str(len(processes)), "", ""],
            [f"{name}: threads", str(sum(process.num_threads() for process in processes)), "", ""],
            [f"{name}: open files, the most of one process", str(max(p.num_fds() for p in processes)), "", ""],
            [f"{name}: files in the temporary folder", str(sum(1 for _ in folder.rglob("*"))), "", ""],
        ]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
