"""The chunked ring of the lesson beside gloo's all_reduce and the naive exchange, on 4 ranks."""

from statistics import median

from benchmarks import lesson, side_by_side
from helpers import World
from helpers.measure import network

NOTEBOOK = "06_ring_all_reduce.ipynb"
REPEATS = 15
N = 4
BITS_PER_SECOND = 1e9

TENSORS = """
mebibyte, large, paced = (torch.ones(size // 4) for size in (2**20, 2**26, 2**24))

def gloo(tensor):
    dist.all_reduce(tensor)
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(N)
    try:
        world.view.execute(lesson.setup(NOTEBOOK) + side_by_side.TIMED + TENSORS, silent=True)
        world.view.execute(lesson.definitions(NOTEBOOK, "pass_on", "naive_exchange", "ring_of_the_lesson"))
        algorithms = ["ring_of_the_lesson", "gloo", "naive_exchange"]
        large = _times(world, algorithms, "large", REPEATS)
        mebibyte = _times(world, algorithms[:2], "mebibyte", 10 * REPEATS)
        paced = _times(world, algorithms[:2], "paced", 5) if network.limit(world, BITS_PER_SECOND) else None
    finally:
        world.stop()
    return [
        _bandwidths("64 MiB", 2**26, large),
        _bandwidths("1 MiB", 2**20, mebibyte),
        [
            "time of the ring, 64 MiB",
            f"{median(large['ring_of_the_lesson']) * 1e3:.0f} ms",
            f"{median(large['naive_exchange']) * 1e3:.0f} ms, naive exchange",
            f"{side_by_side.ratio(large['ring_of_the_lesson'], large['naive_exchange']):.2f}",
        ],
        *(
            [_against_formula("the ring", paced["ring_of_the_lesson"]), _against_formula("gloo", paced["gloo"])]
            if paced
            else []
        ),
    ]


def _times(world, algorithms, tensor, repeats):
    times = side_by_side.seconds(world, [[algorithm, tensor] for algorithm in algorithms], repeats)
    return dict(zip(algorithms, times, strict=True))


def _bandwidths(size, number_of_bytes, times):
    """Return a row that compares bus bandwidths as nccl-tests defines them, so in which more is better."""
    ring, gloo = (
        number_of_bytes / median(times[algorithm]) * 2 * (N - 1) / N / 1e9
        for algorithm in ("ring_of_the_lesson", "gloo")
    )
    ratio = side_by_side.ratio(times["gloo"], times["ring_of_the_lesson"])
    return [f"bus bandwidth of the ring, {size}", f"{ring:.2f} GB/s", f"{gloo:.2f} GB/s, gloo", f"{ratio:.2f}"]


def _against_formula(what, times):
    formula = 2 * (N - 1) / N * 2**24 / (BITS_PER_SECOND / 8)
    measured = median(times)
    return [
        f"time of {what}, 16 MiB at 1 Gbit/s",
        f"{measured * 1e3:.1f} ms",
        f"{formula * 1e3:.1f} ms by the formula",
        f"{measured / formula:.3f}",
    ]
