"""Two hosts on this machine: what they add to the start, and whether cables keep to their rate and their bytes."""

from statistics import median

from tqdm import tqdm

from benchmarks import ranks, side_by_side
from helpers import World
from helpers.measure import network, traffic

REPEATS = 7
N = 4
BYTES = 2**24
BITS_PER_SECOND = 2e8
FORMULA = 2 * (N - 1) / N * BYTES  # what a ring sends over each cable, in each direction

SETUP = """
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=30))
tensor = torch.ones(2**22)

def all_reduce(tensor):
    dist.all_reduce(tensor)
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    one, two = [], []
    for _ in tqdm(range(REPEATS), desc="fresh processes"):
        one.append(ranks.measure("with_hosts", "1"))
        two.append(ranks.measure("with_hosts", "2"))
    starts = [
        _starts("first all_reduce of 4 ranks on 2 hosts, from a fresh process", "first all_reduce", two, one),
        _starts("restart of 4 ranks on 2 hosts", "restart", two, one),
    ]
    world = World(N, hosts=2)
    try:
        return starts + (_over_cables(world) if world.has_cables else [])
    finally:
        world.stop()


def _starts(what, name, two, one):
    mine, others = ([run[name] for run in runs] for runs in (two, one))
    ratio = f"{side_by_side.ratio(mine, others):.2f}"
    return [what, f"{median(mine):.2f} s", f"{median(others):.2f} s on one", ratio]


def _over_cables(world):
    world.view.execute(SETUP + side_by_side.TIMED)
    network.limit(world, BITS_PER_SECOND)
    calls = REPEATS + 1  # one to warm up
    with traffic.cable(world.hosts[0]) as cable:
        (times,) = side_by_side.seconds(world, [["all_reduce", "tensor"]], REPEATS)
    formula = FORMULA / (BITS_PER_SECOND / 8)
    return [
        [
            "time of all_reduce, 4 ranks on 2 hosts, 16 MiB at 200 Mbit/s",
            f"{median(times) * 1e3:.0f} ms",
            f"{formula * 1e3:.0f} ms by the formula",
            f"{median(times) / formula:.3f}",
        ],
        [
            "bytes that it sends over a cable",
            f"{cable.sent / calls / 2**20:.2f} MiB",
            f"{FORMULA / 2**20:.2f} MiB by the formula",
            f"{cable.sent / calls / FORMULA:.4f}",
        ],
    ]
