"""Checks of 06_what_all_reduce_costs, but for halving-doubling, which is that of a ring that is cut."""

import time
from math import ceil, isfinite, log2

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge
from helpers.checks.ring_all_reduce import halving_doubling as halving_doubling

_CLUSTERS = ((4, 50e-6, 1.25e8), (8, 20e-6, 1.25e9), (64, 1e-5, 1.25e10), (1000, 5e-6, 5e10))
_HOSTS = ((2, 4, 2**20, 1e-5, 1e10, 1e9), (4, 8, 2**28, 5e-6, 3e11, 5e10), (128, 8, 2**30, 5e-6, 4.5e11, 5e10))
_LATE, _SLOW = 0.3, 0.1  # seconds


def crossover(world) -> Verdict:
    """Check `crossover(n, alpha, beta)`: the bytes for which a tree and a ring take equally long on a network.

    A hundredth off is right, so that an answer may search for the size rather than solve for it.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            for (n, alpha, beta), found in zip(_CLUSTERS, run.result, strict=True):
                target = _equal(n, alpha, beta)
                if not isinstance(found, int | float) or not abs(found - target) <= 0.01 * target:
                    shown = f"{found:.0f}" if isinstance(found, int | float) and isfinite(found) else found
                    raise Wrong(
                        f"For {n} ranks, {1e6 * alpha:g} µs and {8e-9 * beta:g} Gbit/s rank {rank} returned {shown}, "
                        f"and the target is {target:.0f} bytes."
                    )
        return f"Every rank found where tree and ring take equally long, from {_CLUSTERS[0][0]} to 1000 ranks."

    return judge(world, "crossover", check, _run_over, "crossover", _CLUSTERS)


def two_levels(world) -> Verdict:
    """Check `two_levels(h, m, size, alpha, inside, across)`: the seconds of an all-reduce within hosts and across them.

    A hundredth off is right.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            for cluster, found in zip(_HOSTS, run.result, strict=True):
                h, m, size, alpha, inside, across = cluster
                target = 2 * (m + h - 2) * alpha + 2 * (m - 1) / m * size / inside + 2 * (h - 1) / h * size / across
                if not isinstance(found, int | float) or not abs(found - target) <= 0.01 * target:
                    shown = f"{1e3 * found:.3f} ms" if isinstance(found, int | float) else found
                    raise Wrong(
                        f"For {h} hosts of {m} ranks, {size / 2**20:g} MiB, {1e6 * alpha:g} µs, {1e-9 * inside:g} GB/s "
                        f"inside and {1e-9 * across:g} GB/s across rank {rank} returned {shown}, "
                        f"and the target is {1e3 * target:.3f} ms."
                    )
        return f"Every rank found the time of three rings, from {_HOSTS[0][0]} to {_HOSTS[-1][0]} hosts."

    return judge(world, "two_levels", check, _run_over, "two_levels", _HOSTS)


def my_way_up(world) -> Verdict:
    """Check `my_way_up(tensor)`: rank 0 gets the sum of all, and every other rank sends one message, up a tree."""
    size = world.size
    rounds = (size - 1).bit_length()
    target = [(place + 1.0) * size * (size + 1) / 2 for place in range(4)]

    def check(runs):
        if runs[0].result != target:
            raise Wrong(f"Rank 0 holds {runs[0].result}, and the target is {target}.")
        for rank, run in enumerate(runs):
            sent = sum(message.sent for message in run.messages)
            if sent != (rank > 0):
                raise Wrong(
                    f"The sum is right. Messages that rank {rank} sent: {sent}, and the target is {int(rank > 0)}."
                )
        received = sum(not message.sent for message in runs[0].messages)
        if received != rounds:
            raise Wrong(
                f"The sum is right. Messages that rank 0 received: {received}, and a tree has one a round, {rounds}."
            )
        return f"Rank 0 holds the sum after round {rounds}, and every other rank has sent one message."

    return judge(world, "my_way_up", check, _run_way_up)


def timed(world) -> Verdict:
    """Check `timed(algorithm, tensor)`: on every rank the seconds from the common start to the end of the slowest.

    Rank 0 takes longest, and the last rank comes late. What is asked is the order of events, so that a machine that is
    busy fails no right answer.
    """

    def check(runs):
        seconds, came, began, took, ended = zip(*(run.result for run in runs), strict=True)
        for rank, found in enumerate(seconds):
            if not isinstance(found, int | float):
                raise Wrong(f"Rank {rank} returned {found}, and the target is a number of seconds.")
            if len(began[rank]) != 1:
                raise Wrong(f"Rank {rank} called the algorithm {len(began[rank])} times, and the target is once.")
        for rank, (begin,) in enumerate(began):
            if begin < max(came):
                raise Wrong(f"Rank {rank} began before the last rank had come. Nobody waited for it.")
        if max(seconds) - min(seconds) > 1e-3 * max(seconds):
            raise Wrong(f"The ranks returned {_list(seconds)} s, and the target is one number for all.")
        slowest = max(max(times) for times in took)
        if seconds[0] < 0.999 * slowest:
            raise Wrong(f"The ranks returned {seconds[0]:.3f} s, and the slowest of them took {slowest:.3f} s.")
        longest = max(ended) - max(came)
        if seconds[0] > 1.001 * longest:
            raise Wrong(
                f"The ranks returned {seconds[0]:.3f} s, and all of them were there for {longest:.3f} s. "
                "Somebody's clock ran while another one was missing."
            )
        return f"All ranks returned {seconds[0]:.2f} s: the slowest rank counts, and the late one does not."

    return judge(world, "timed", check, _run_timed)


def _equal(n, alpha, beta):
    """Return the bytes at which 2 log2 n messages of a whole tensor take as long as 2(n - 1) of an n-th."""
    rounds, steps = 2 * ceil(log2(n)), 2 * (n - 1)
    return (steps - rounds) * alpha * beta / (rounds - steps / n)


def _run_over(function, clusters):
    results = []
    for cluster in clusters:
        run = call_answer(function, list(cluster))
        if run.error:
            return run
        results.append(_number(run.result))
    return Run(results, [], "")


def _run_way_up():
    import torch
    import torch.distributed as dist

    tensor = torch.arange(1.0, 5) * (dist.get_rank() + 1)
    return call_answer("my_way_up", [tensor])._replace(result=tensor.tolist())


def _run_timed():
    import torch
    import torch.distributed as dist

    rank, last = dist.get_rank(), dist.get_world_size() - 1
    began, took = [], []

    def algorithm(tensor):
        began.append(time.monotonic())
        time.sleep(_SLOW if rank == 0 else 0)
        took.append(time.monotonic() - began[-1])

    dist.barrier()
    time.sleep(_LATE if rank == last else 0)
    came = time.monotonic()
    run = call_answer("timed", [algorithm, torch.ones(1)])
    return run._replace(result=(_number(run.result), came, began, took, time.monotonic()))


def _number(result):
    """Return a number as a float, and something else by its name."""
    try:
        return float(result)
    except (TypeError, ValueError):
        return "None" if result is None else f"a {type(result).__name__}"


def _list(numbers):
    return ", ".join(f"{number:.3f}" for number in numbers)
