"""Exercises of 16_scaling."""

import time

import torch
import torch.distributed as dist

from helpers.checks.exam import answer, called, exercise, number, show, times_in_words

# alpha in seconds, beta in seconds per byte, payload in bytes
_LINKS = [(3e-5, 8e-10, 4e6), (1e-3, 1.6e-8, 4e6), (1e-6, 1e-10, 1e8)]
_MACHINES = range(1, 1025)
_VERY_SHORT, _SHORT, _LONG, _VERY_LONG = 0.001, 0.02, 0.05, 0.2  # seconds for which the steps of a check sleep
_STEPS = 8  # two without the clock, then six with it


@exercise
def my_step_seconds(exam):
    """Check `my_step_seconds(step, group)`: the step time of the slowest rank, without the first two steps."""
    rank, n = exam.rank, exam.n
    for members, words in ((n, "all ranks"), (max(1, n - 1), f"ranks 0 to {n - 2}" if n > 2 else "rank 0")):
        result, laps = exam.on_rank(_stopwatch, rank, members)
        if rank >= members:
            continue
        if not exam.require(
            len(laps) == _STEPS,
            f"Rank {rank} called `step` {times_in_words(len(laps))}, expected 8 times: two without the clock, then six "
            "with it.",
        ):
            continue
        expected = min(laps[2:])
        seconds = number(result)
        shown = show(result) if seconds is None else f"{seconds:.3f}"
        changes = ", and a different rank is the slowest in every step" if members > 1 else ""
        exam.require(
            seconds is not None and 0.8 * expected < seconds < 1.5 * expected + 0.02,
            f"In a group of {words} the slowest rank takes {expected:.3f} s for a step{changes}. The first step is "
            f"longer, the second shorter, and four of the other six are disturbed. Rank {rank} returned {shown}, "
            f"expected about {expected:.3f} s.",
        )
    return "Every rank returned the step time of the slowest rank."


@exercise
def my_step_time(exam):
    """Check `my_step_time(n, compute, alpha, beta, payload, overlap)`: computing, then the ring of n ranks."""
    cases = [
        ("no latency, 4 ranks and 100 bytes at 1 s per byte", (4, 0.0, 0.0, 1.0, 100)),
        ("no latency, 3 ranks and 100 bytes at 1 s per byte", (3, 0.0, 0.0, 1.0, 100)),
        ("no time per byte, 4 ranks and a latency of 1 s", (4, 0.0, 1.0, 0.0, 100)),
        ("one rank that computes for 3 s", (1, 3.0, 1.0, 1.0, 100)),
        ("4 ranks that compute for 3 s, and a latency of 1 s", (4, 3.0, 1.0, 0.0, 100)),
        ("full overlap, computing for 3 s and communicating for 6 s", (4, 3.0, 1.0, 0.0, 100, True)),
        ("full overlap, computing for 8 s and communicating for 6 s", (4, 8.0, 1.0, 0.0, 100, True)),
    ]
    cases += [(f"{n} ranks, 0.02 s of computing, {_words(link)}", (n, 0.02, *link)) for n in (2, 5) for link in _LINKS]
    for case, arguments in cases:
        result = exam.call(*arguments)
        _require_close(exam, f"With {case}, rank {exam.rank} returned", result, _step(*arguments))
    return "A step computes, and then sends 2(n - 1) messages of B/n bytes; with full overlap the longer time counts."


@exercise
def my_rate(exam):
    """Check `my_rate(number, warm_up, base, k)`, which rises from base to k * base in the first `warm_up` steps."""
    cases = [(step, 10, 0.1, 8) for step in (0, 1, 5, 9, 10, 11, 1000)] + [(3, 4, 0.02, 32), (7, 20, 0.5, 1)]
    for step, steps, base, k in cases:
        expected = base + (k * base - base) * min(1, step / steps)
        result = exam.call(step, steps, base, k)
        about = f"In step {step} of a warm-up of {steps}, from {base:g} to {k} times it, rank {exam.rank} returned"
        _require_close(exam, about, result, expected)
    return "The rate rises from the base to k times the base, and stays there."


@exercise
def machines(exam):
    """Check `machines(compute, alpha, beta, payload, least)`: the most machines with that efficiency, up to 1024.

    With one rank on each machine and no overlap, the efficiency is compute / (compute + communication).
    """
    cases = [(compute, link, least) for compute in (0.02, 0.2) for link in _LINKS for least in (0.5, 0.8, 0.95)]
    cases += [(6.0, (1.0, 0.0, 4e6), 0.5)]  # 4 machines have exactly this efficiency
    for compute, link, least in cases:
        expected = max(k for k in _MACHINES if compute / (compute + _ring(k, *link)) >= least)
        result = exam.call(compute, *link, least)
        exam.require(
            number(result) == expected,
            f"With {compute:g} s of computing, {_words(link)}, rank {exam.rank} returned {show(result)} for an "
            f"efficiency of {least:.0%}, expected {expected}.",
        )
    return "The model says how many machines are worth their price on each link."


@exercise
def my_noise(exam):
    """Check `my_noise(gradient, batch)`: the noise and the signal in the gradients of all ranks."""
    rank, n = exam.rank, exam.n
    for batch in (1, 25):
        gradients = torch.randn(n, 6, generator=torch.Generator().manual_seed(batch)) + 1
        small = gradients.square().sum(dim=1).mean().item()
        large = gradients.mean(dim=0).square().sum().item()
        noise = (small - large) / (1 / batch - 1 / (n * batch))
        signal = (n * large - small) / (n - 1)
        own = gradients[rank].clone()
        result = exam.call(own, batch)
        values = list(result) if isinstance(result, list | tuple) or getattr(result, "ndim", 0) == 1 else []
        if not exam.require(
            len(values) == 2 and None not in map(number, values),
            f"Rank {rank} returned {show(result)}, expected two numbers: the noise and the signal.",
        ):
            continue
        for name, value, expected in zip(("noise", "signal"), map(number, values), (noise, signal), strict=True):
            exam.require(
                abs(value - expected) <= 1e-3 * abs(expected) + 1e-4,
                f"With batches of {batch}, rank {rank} returned a {name} of {value:.4g}, expected {expected:.4g}.",
            )
        count = sum(exam.collectives.values())
        exam.require(
            count <= 2,
            f"The values are right. Rank {rank} called {called(exam.collectives)}, expected at most 2 collectives.",
        )
        exam.require(
            torch.equal(own, gradients[rank]),
            f"The values are right, but rank {rank} changed `gradient`, expected it unchanged.",
        )
    return "Every rank returned the noise and the signal in the gradients of all ranks."


def _stopwatch(rank, members):
    """Have the first ranks time a step; return the answer's result, and for each step the time of the slowest rank.

    Only the fourth and the fifth step take the time that counts. They follow each other, so that an answer with a
    barrier inside its clock passes too.
    """
    group = dist.new_group(range(members))
    laps = []

    def step():
        number = len(laps)
        nap = _LONG if rank == number % members else _SHORT  # the slowest rank differs from step to step
        if number not in (3, 4):
            nap = _VERY_SHORT if number == 1 else _VERY_LONG
        start = time.perf_counter()
        time.sleep(nap)
        laps.append(time.perf_counter() - start)

    if rank >= members:
        return None, []
    result = answer("my_step_seconds", (step, group))
    laps_of_ranks = [None] * members
    dist.all_gather_object(laps_of_ranks, laps, group=group)
    return result, [max(lap) for lap in zip(*laps_of_ranks, strict=False)]


def _ring(k, alpha, beta, payload):
    """Return the time of a ring all-reduce of k ranks, in seconds."""
    return 2 * (k - 1) * (alpha + beta * payload / k)


def _step(n, compute, alpha, beta, payload, overlap=False):
    """Return the time of a step of n ranks, in seconds."""
    communication = _ring(n, alpha, beta, payload)
    return max(compute, communication) if overlap else compute + communication


def _words(link):
    alpha, beta, payload = link
    return f"latency {alpha:g} s, {beta:g} s per byte and {payload:g} B"


def _require_close(exam, about, result, expected):
    value = number(result)
    shown = show(result) if value is None else f"{value:g}"  # times may be much shorter than 0.0001 s
    exam.require(
        value is not None and abs(value - expected) <= 1e-6 * max(abs(expected), 1e-12),
        f"{about} {shown}, expected {expected:g}.",
    )
