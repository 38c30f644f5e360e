"""Functions of the ranks, timed in turn in one run, so that what disturbs the machine disturbs them all."""

from statistics import median

import ipyparallel as ipp

# Times one call on a rank, from a moment at which all ranks are there.
TIMED = """
import time

def timed(function, *arguments):
    dist.barrier()
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin
"""


def seconds(world, calls: list[list], repeats: int) -> list[list[float]]:
    """Return for each call how long it took, each time on the slowest rank.

    A call is the name of a function of the ranks, and the names of variables of the ranks that it takes. The ranks have
    run `TIMED`. One round over all calls goes before, to warm up.
    """
    times = [[] for _ in calls]
    for turn in range(repeats + 1):
        for call, taken in zip(calls, times, strict=True):
            answer = world.view.apply_async(ipp.Reference("timed"), *map(ipp.Reference, call))
            slowest = max(answer.get())
            if turn:
                taken.append(slowest)
    return times


def ratio(times: list[float], others: list[float]) -> float:
    """Return the median of the ratios of times that were taken in the same turn."""
    return median(mine / other for mine, other in zip(times, others, strict=True))
