"""What `world.history()` and `world.where()` cost: a small all_reduce with a note, and without one."""

from statistics import mean

import ipyparallel as ipp

from helpers import World

N = 4
CALLS = 3000

SETUP = f"""
from datetime import timedelta
from statistics import median
import random
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
alone = [dist.new_group([rank], timeout=timedelta(seconds=20)) for rank in range({N})][dist.get_rank()]
number = torch.ones(1)
noting = vars(dist.ProcessGroup)["allreduce"]  # wrapped by helpers/tap.py

def seconds(group):
    \"\"\"Return the medians of calls with a note and without one, in an order of chance that all ranks share.\"\"\"
    order = random.Random(0)
    methods = {{"noted": noting, "plain": noting.__wrapped__}}
    taken = {{name: [] for name in methods}}
    for call in range({CALLS}):
        for name in order.sample(list(methods), 2):
            dist.ProcessGroup.allreduce = methods[name]
            begin = time.perf_counter()
            dist.all_reduce(number, group=group)
            taken[name].append(time.perf_counter() - begin)
    return [median(taken[name]) for name in methods]
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(N)
    try:
        world.view.execute(SETUP)
        noted, plain = _mean_of_ranks(world, "dist.group.WORLD")
        noted_alone, plain_alone = _mean_of_ranks(world, "alone")
    finally:
        world.stop()
    note = noted_alone - plain_alone
    return [
        [
            f"all_reduce of 4 bytes, {N} ranks, noted",
            f"{noted * 1e6:.1f} µs",
            f"{plain * 1e6:.1f} µs, without a note",
            f"{noted / plain:.3f}",
        ],
        [
            "a note, by itself (in a group of one rank)",
            f"{note * 1e6:.2f} µs",
            f"{plain * 1e6:.1f} µs, the all_reduce of {N} ranks",
            f"{note / plain:.4f}",
        ],
    ]


def _mean_of_ranks(world, group):
    medians = world.view.apply_sync(ipp.Reference("seconds"), ipp.Reference(group))
    return [mean(of_ranks) for of_ranks in zip(*medians, strict=True)]
