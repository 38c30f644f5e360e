"""The backends of the lesson, over sockets and over shared memory, next to gloo, on 4 ranks of one machine."""

from statistics import median

from benchmarks import lesson, side_by_side
from helpers import World

NOTEBOOK = "18_a_backend_of_your_own.ipynb"
SOLUTIONS = f"solutions/{NOTEBOOK}"
REPEATS = 15
N = 4

GROUPS = """
Mapped.row_bytes = 2**23
register("shared_memory", lambda *arguments: SharedMemory(*arguments))
shared = dist.new_group(backend="shared_memory", timeout=timedelta(seconds=10))
gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=10))
mebibyte, large = (torch.zeros(size // 4) for size in (2**20, 2**24))
spare = torch.empty_like(large)

def by_gloo(tensor):
    dist.all_reduce(tensor, group=gloo)

def by_ring(tensor):
    dist.all_reduce(tensor)

def by_memory(tensor):
    dist.all_reduce(tensor, group=shared)

def copy_there_and_back(tensor):
    spare[: len(tensor)].copy_(tensor)
    tensor.copy_(spare[: len(tensor)])
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(N)
    try:
        world.view.execute(lesson.setup(NOTEBOOK), silent=True)
        world.view.execute(lesson.definitions(SOLUTIONS, "Mapped", "SharedMemory"), silent=True)
        world.view.execute(side_by_side.TIMED + GROUPS, silent=True)
        return [row for size in ("mebibyte", "large") for row in _rows(world, size)]
    finally:
        world.stop()


def _rows(world, size):
    number_of_bytes = {"mebibyte": 2**20, "large": 2**24}[size]
    calls = [[way, size] for way in ("by_gloo", "by_ring", "by_memory", "copy_there_and_back")]
    gloo, ring, memory, copies = side_by_side.seconds(world, calls, REPEATS)
    what = f"{number_of_bytes // 2**20} MiB, {N} ranks"
    compared = [
        (f"own backend, sockets, {what}", ring, "gloo", gloo),
        (f"own backend, shared memory, {what}", memory, "gloo", gloo),
        (f"own backend, shared memory, {what}", memory, "only copies there and back", copies),
    ]
    return [
        [
            f"bus bandwidth of {name}",
            f"{_bandwidth(number_of_bytes, mine):.2f} GB/s",
            f"{_bandwidth(number_of_bytes, other):.2f} GB/s, {who}",
            f"{side_by_side.ratio(other, mine):.2f}",
        ]
        for name, mine, who, other in compared
    ]


def _bandwidth(number_of_bytes, times):
    """Return the bus bandwidth as nccl-tests defines it, in GB/s."""
    return number_of_bytes / median(times) * 2 * (N - 1) / N / 1e9
