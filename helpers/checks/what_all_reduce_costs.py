"""Exercises of 06_what_all_reduce_costs."""

import os
import time
from math import ceil, log2
from typing import NamedTuple

import torch
import torch.distributed as dist

from helpers.checks.exam import Wrong, answer, exercise, near, number, show
from helpers.checks.ring_all_reduce import CHUNK_BYTES, count, expected_sum, new_tensor, require_numbers, require_sent

_CLUSTERS = ((4, 50e-6, 1.25e8), (8, 20e-6, 1.25e9), (64, 1e-5, 1.25e10), (1000, 5e-6, 5e10))
_HOSTS = ((2, 4, 2**20, 1e-5, 1e10, 1e9), (4, 8, 2**28, 5e-6, 3e11, 5e10), (128, 8, 2**30, 5e-6, 4.5e11, 5e10))
_LATE, _SLOW = 0.3, 0.1  # seconds


@exercise
def crossover(exam):
    """Check `crossover(n, alpha, beta)`: the bytes for which a tree and a ring take equally long on a network.

    A hundredth off is right, so that an answer may search for the size rather than solve for it.
    """
    for n, alpha, beta in _CLUSTERS:
        # 2 log2 n messages of a whole tensor take as long as 2(n - 1) of an n-th.
        rounds, steps = 2 * ceil(log2(n)), 2 * (n - 1)
        expected = (steps - rounds) * alpha * beta / (rounds - steps / n)
        result = exam.call(n, alpha, beta)
        found = show(result) if number(result) is None else f"{number(result):.0f}"
        exam.require(
            near(result, expected, within=0.01 * expected),
            f"For {n} ranks, {1e6 * alpha:g} µs and {8e-9 * beta:g} Gbit/s rank {exam.rank} returned {found}, "
            f"expected {expected:.0f} bytes.",
        )
    return f"Every rank found where tree and ring take equally long, from {_CLUSTERS[0][0]} to 1000 ranks."


@exercise
def two_levels(exam):
    """Check `two_levels(h, m, size, alpha, inside, across)`: the seconds of an all-reduce within hosts and across them.

    A hundredth off is right.
    """
    for h, m, size, alpha, inside, across in _HOSTS:
        expected = 2 * (m + h - 2) * alpha + 2 * (m - 1) / m * size / inside + 2 * (h - 1) / h * size / across
        result = exam.call(h, m, size, alpha, inside, across)
        found = show(result) if number(result) is None else f"{1e3 * number(result):.3f} ms"
        exam.require(
            near(result, expected, within=0.01 * expected),
            f"For {h} hosts of {m} ranks, {size / 2**20:g} MiB, {1e6 * alpha:g} µs, {1e-9 * inside:g} GB/s inside and "
            f"{1e-9 * across:g} GB/s across rank {exam.rank} returned {found}, expected {1e3 * expected:.3f} ms.",
        )
    return f"Every rank found the time of three rings, from {_HOSTS[0][0]} to {_HOSTS[-1][0]} hosts."


@exercise
def my_way_up(exam):
    """Check `my_way_up(tensor)`: rank 0 gets the sum of all, and every other rank sends one message, up a tree."""
    rank, n = exam.rank, exam.n
    rounds = (n - 1).bit_length()
    expected = [(place + 1.0) * n * (n + 1) / 2 for place in range(4)]
    tensor = torch.arange(1.0, 5) * (rank + 1)
    exam.call(tensor)
    exam.require(rank > 0 or tensor.tolist() == expected, f"Rank {rank} holds {tensor.tolist()}, expected {expected}.")
    sent = sum(message.sent for message in exam.messages)
    received = len(exam.messages) - sent
    exam.require(
        sent == (rank > 0),
        f"The sum is right. Rank {rank} sent {count(sent, 'message')}, expected {int(rank > 0)}.",
    )
    exam.require(
        rank > 0 or received == rounds,
        f"The sum is right. Rank {rank} received {count(received, 'message')}, expected {rounds}: one in each "
        "round of a tree.",
    )
    return f"Rank 0 holds the sum after round {rounds}, and every other rank has sent one message."


@exercise
def halving_doubling(exam):
    """Check `halving_doubling(tensor, m)`, an all-reduce in place over the first m ranks.

    Each of them sends 2 log2 m messages, and no more bytes than in a ring. m is the largest power of two that is not
    above the number of ranks; the other ranks do not call the function.
    """
    m = 1 << (exam.n.bit_length() - 1)
    rounds = 2 * (m.bit_length() - 1)
    if exam.rank < m:
        tensor = new_tensor(exam.rank, m)
        exam.call(tensor, m)
        require_numbers(exam, tensor, expected_sum(m))
        require_sent(exam, 2 * (m - 1) * CHUNK_BYTES, rounds, "halving-doubling")
    return f"Ranks 0 to {m - 1} hold the sum of them all, after {count(rounds, 'message')} from each."


class _Times(NamedTuple):
    """When a rank came, began each call of the algorithm, and ended; `took` are the seconds of each call."""

    came: float
    began: list[float]
    took: list[float]
    ended: float


def _judge_stopwatches(returned):
    """Judge the seconds of all ranks by the order of events, so that a busy machine fails no right answer."""
    seconds, times = zip(*returned, strict=True)
    all_there = max(its.came for its in times)
    for rank, its in enumerate(times):
        if its.began[0] < all_there:
            raise Wrong(f"Rank {rank} began before the last rank had come. Nobody waited for it.")
    if not all(abs(other - seconds[0]) <= 1e-3 * abs(other) for other in seconds):
        raise Wrong(f"The ranks returned {', '.join(f'{one:.3f}' for one in seconds)} s, expected one number for all.")
    slowest = max(max(its.took) for its in times)
    if seconds[0] < 0.999 * slowest:
        raise Wrong(f"The ranks returned {seconds[0]:.3f} s, and the slowest of them took {slowest:.3f} s.")
    longest = max(its.ended for its in times) - all_there
    if seconds[0] > 1.001 * longest:
        raise Wrong(
            f"The ranks returned {seconds[0]:.3f} s, and all of them were there for {longest:.3f} s. "
            "Somebody's clock ran while another one was missing."
        )
    return f"All ranks returned {seconds[0]:.2f} s: the slowest rank counts, and the late one does not."


@exercise(together=_judge_stopwatches)
def timed(exam):
    """Check `timed(algorithm, tensor)`: on every rank the seconds from the common start to the end of the slowest.

    Rank 0 takes longest, and the last rank comes late.
    """
    result, times = exam.on_rank(_timed)
    seconds, calls = number(result), len(times.began)
    exam.require(seconds is not None, f"Rank {exam.rank} returned {show(result)}, expected a number of seconds.")
    exam.require(calls == 1, f"Rank {exam.rank} called the algorithm {count(calls, 'time')}, expected once.")
    return seconds, times


def _timed():
    """Return the result of `timed`, and its times on this rank, of which the last one comes late."""
    rank, last = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
    began, took = [], []

    def algorithm(tensor):
        began.append(time.monotonic())
        time.sleep(_SLOW if rank == 0 else 0)
        took.append(time.monotonic() - began[-1])

    dist.barrier()
    time.sleep(_LATE if rank == last else 0)
    came = time.monotonic()
    result = answer("timed", [algorithm, torch.ones(1)])
    return result, _Times(came, began, took, time.monotonic())
