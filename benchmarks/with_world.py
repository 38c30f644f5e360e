"""One fresh process that starts a world of 4 ranks, uses it, kills a rank, restarts and stops.

Prints its measurements as the last line, in JSON: seconds, and MiB of memory.
"""

import json
import os
import signal
import time

import psutil

from helpers import World

FIRST_CELL = """
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=30))
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == 4
"""


def seconds(action) -> float:
    """Return how long the action takes."""
    before = time.perf_counter()
    action()
    return time.perf_counter() - before


def see_it_die(world, rank):
    """Kill a rank and wait until whoever waits for its answer is told."""
    answer = world.view.execute("import time; time.sleep(60)", block=False)
    os.kill(world.pids[rank], signal.SIGKILL)
    while answer.msg_ids[rank] in world.view.client.outstanding:
        time.sleep(0.001)


if __name__ == "__main__":
    figures = {}
    world = World(4)
    figures["start"] = time.time() - psutil.Process().create_time()
    world.view.execute(FIRST_CELL)
    figures["first all_reduce"] = time.time() - psutil.Process().create_time()
    everything = psutil.Process().children(recursive=True)
    figures["memory"] = sum(process.memory_full_info().pss for process in everything) / 2**20
    figures["death"] = seconds(lambda: see_it_die(world, rank=1))
    figures["restart"] = seconds(world.restart)
    world.view.execute(FIRST_CELL)
    figures["stop"] = seconds(world.stop)
    print(json.dumps(figures))
