"""What `world.history()` costs: a small all_reduce whose options are noted, beside one that passes without a note."""

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
from helpers.ranks import recorder

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
alone = [dist.new_group([rank], timeout=timedelta(seconds=20)) for rank in range({N})][dist.get_rank()]
number = torch.ones(1)
noting = vars(dist.ProcessGroup)["allreduce"]
while noting.__code__.co_filename != recorder.__file__:
    noting = noting.__wrapped__  # what where() notes of handles stands before it

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
            f"all_reduce of 4 bytes, {N} ranks, noted for the history",
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
