"""Exercises of 07_what_all_reduce_costs."""

import os
import time
from math import ceil, log2
from typing import NamedTuple

import torch
import torch.distributed as dist

from helpers.checks.exam import Wrong, answer, counted, exercise, near, number, show
from helpers.checks.ring_all_reduce import CHUNK_BYTES, expected_sum, new_tensor, require_numbers, require_sent

# Ranks, seconds of latency, seconds per byte.
_CLUSTERS = ((4, 50e-6, 8e-9), (8, 20e-6, 8e-10), (64, 1e-5, 8e-11), (1000, 5e-6, 2e-11))
# Hosts, ranks of a host, bytes, seconds of latency, seconds per byte inside a host and across hosts.
_HOSTS = (
    (2, 4, 2**20, 1e-5, 1e-10, 1e-9),
    (4, 8, 2**28, 5e-6, 1 / 3e11, 2e-11),
    (128, 8, 2**30, 5e-6, 1 / 4.5e11, 2e-11),
)
_LATE, _SLOW = 0.3, 0.1  # seconds


@exercise
def crossover(exam):
    """Check `crossover(n, alpha, beta)`: the bytes for which a tree and a ring take equally long on a network.

    Accept a result within 1 %, so that an answer may search for the size.
    """
    for n, alpha, beta in _CLUSTERS:
        # 2 log2 n messages of a whole tensor take as long as 2(n - 1) messages of an n-th of the tensor.
        rounds, steps = 2 * ceil(log2(n)), 2 * (n - 1)
        expected = (steps - rounds) * alpha / (rounds - steps / n) / beta
        result = exam.call(n, alpha, beta)
        returned = show(result) if number(result) is None else f"{number(result):.0f}"
        exam.require(
            near(result, expected, within=0.01 * expected),
            f"For {n} ranks, {1e6 * alpha:g} µs and {1e9 * beta:g} ns per byte, rank {exam.rank} returned {returned}, "
            f"expected {expected:.0f} bytes.",
        )
    return "Every rank found the size for which the tree and the ring take equally long, from 4 to 1000 ranks."


@exercise
def two_levels(exam):
    """Check `two_levels(h, m, size, alpha, inside, across)`: the seconds of an all-reduce within hosts and across them.

    Accept a result within 1 %.
    """
    for h, m, size, alpha, inside, across in _HOSTS:
        expected = 2 * (m + h - 2) * alpha + 2 * (m - 1) / m * size * inside + 2 * (h - 1) / h * size * across
        result = exam.call(h, m, size, alpha, inside, across)
        returned = show(result) if number(result) is None else f"{1e3 * number(result):.3f} ms"
        exam.require(
            near(result, expected, within=0.01 * expected),
            f"For {h} hosts of {m} ranks, {size / 2**20:g} MiB, {1e6 * alpha:g} µs, {1e9 * inside:.3g} ns per byte "
            f"inside and {1e9 * across:.3g} ns per byte across, rank {exam.rank} returned {returned}, "
            f"expected {1e3 * expected:.3f} ms.",
        )
    return f"Every rank found the time of the three rings, from {_HOSTS[0][0]} to {_HOSTS[-1][0]} hosts."


@exercise
def my_tree_reduce(exam):
    """Check `my_tree_reduce(tensor)`: rank 0 gets the sum over all ranks; every other rank sends one message."""
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
        f"The sum is right. Rank {rank} sent {counted(sent, 'message')}, expected {int(rank > 0)}.",
    )
    exam.require(
        rank > 0 or received == rounds,
        f"The sum is right. Rank {rank} received {counted(received, 'message')}, expected {rounds}: one in each "
        "round of the tree.",
    )
    return f"Rank 0 holds the sum after {counted(rounds, 'round')}, and every other rank sent one message."


@exercise
def halving_doubling(exam):
    """Check `halving_doubling(tensor, m)`, an all-reduce in place over the first m ranks.

    Each of these ranks sends 2 log2 m messages, and as many bytes as in a ring. m is the largest power of two up to
    the number of ranks; the other ranks do not call the function.
    """
    m = 1 << (exam.n.bit_length() - 1)
    rounds = 2 * (m.bit_length() - 1)
    if exam.rank < m:
        tensor = new_tensor(exam.rank, m)
        exam.call(tensor, m)
        require_numbers(exam, tensor, expected_sum(m))
        require_sent(exam, 2 * (m - 1) * CHUNK_BYTES, rounds, "halving-doubling")
    return f"Ranks 0 to {m - 1} hold the sum over these ranks, after {counted(rounds, 'message')} from each."


class _Times(NamedTuple):
    """When a rank arrived, began each call of the algorithm, and ended; `took` holds the seconds of each call."""

    arrived: float
    began: list[float]
    took: list[float]
    ended: float


def _judge_stopwatches(returned):
    """Judge the seconds of all ranks by the order of events, so that a right answer also passes on a busy machine."""
    seconds, times = zip(*returned, strict=True)
    all_arrived = max(its.arrived for its in times)
    for rank, its in enumerate(times):
        if its.began[0] < all_arrived:
            raise Wrong(f"Rank {rank} began before the last rank had arrived, expected after it. Call a barrier first.")
    if not all(abs(other - seconds[0]) <= 1e-3 * abs(other) for other in seconds):
        each = ", ".join(f"{value:.3f}" for value in seconds)
        raise Wrong(f"The ranks returned {each} s, expected the same number on every rank.")
    slowest = max(max(its.took) for its in times)
    if seconds[0] < 0.999 * slowest:
        raise Wrong(
            f"The ranks returned {seconds[0]:.3f} s, expected at least {slowest:.3f} s, the time of the slowest rank."
        )
    longest = max(its.ended for its in times) - all_arrived
    if seconds[0] > 1.001 * longest:
        raise Wrong(
            f"The ranks returned {seconds[0]:.3f} s, expected at most {longest:.3f} s, the time after the last rank "
            "arrived. Start the clock after all ranks have arrived."
        )
    return f"All ranks returned {seconds[0]:.2f} s: the time of the slowest rank, without the wait for the late rank."


@exercise(together=_judge_stopwatches)
def timed(exam):
    """Check `timed(algorithm, tensor)`: on every rank the seconds from the common start to the end of the slowest rank.

    Rank 0 takes longest, and the last rank arrives late.
    """
    result, times = exam.on_rank(_timed)
    seconds, calls = number(result), len(times.began)
    exam.require(seconds is not None, f"Rank {exam.rank} returned {show(result)}, expected a number of seconds.")
    exam.require(calls == 1, f"Rank {exam.rank} called the algorithm {counted(calls, 'time')}, expected once.")
    return seconds, times


def _timed():
    """Return the result of `timed` and the times of its calls on this rank; the last rank arrives late."""
    rank, last = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
    began, took = [], []

    def algorithm(tensor):
        began.append(time.monotonic())
        time.sleep(_SLOW if rank == 0 else 0)
        took.append(time.monotonic() - began[-1])

    dist.barrier()
    time.sleep(_LATE if rank == last else 0)
    arrived = time.monotonic()
    result = answer("timed", [algorithm, torch.ones(1)])
    return result, _Times(arrived, began, took, time.monotonic())
