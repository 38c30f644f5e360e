"""Exercises of 15_scaling."""

from helpers.checks.exam import exercise, number, show

# alpha in seconds, beta in seconds per byte, payload in bytes
_LINKS = [(3e-5, 8e-10, 4e6), (1e-3, 1.6e-8, 4e6), (1e-6, 1e-10, 1e8)]
_MACHINES = range(1, 1025)


@exercise
def my_communicating(exam):
    """Check `my_communicating(k, alpha, beta, payload)`, the time of a ring all-reduce of k ranks."""
    cases = [
        ("no latency, 4 ranks and 100 bytes at 1 s per byte", (4, 0.0, 1.0, 100)),
        ("no time per byte, 4 ranks and a latency of 1 s", (4, 1.0, 0.0, 100)),
        ("one rank", (1, 1.0, 1.0, 100)),
    ]
    cases += [(f"{k} ranks, {_words(link)}", (k, *link)) for k in (2, 5) for link in _LINKS]
    for case, arguments in cases:
        result = exam.call(*arguments)
        _require_close(exam, f"With {case}, rank {exam.rank} returned", result, _ring(*arguments))
    return "Latency and bandwidth are those of the ring: 2(k - 1) steps of B/k bytes."


@exercise
def my_rate(exam):
    """Check `my_rate(number, warm_up, base, k)`, which rises from base to k * base in the first `warm_up` steps."""
    cases = [(step, 10, 0.1, 8) for step in (0, 1, 5, 9, 10, 11, 1000)] + [(3, 4, 0.02, 32), (7, 20, 0.5, 1)]
    for step, steps, base, k in cases:
        expected = base + (k * base - base) * min(1, step / steps)
        result = exam.call(step, steps, base, k)
        about = f"In step {step} of a warm-up of {steps}, from {base:g} to {k} times it, rank {exam.rank} returned"
        _require_close(exam, about, result, expected)
    return "The rate rises from the base to k times that, and stays there."


@exercise
def machines(exam):
    """Check `machines(compute, alpha, beta, payload, least)`: the most machines with that efficiency, up to 1024.

    With one rank on each machine and no overlap, the efficiency is compute / (compute + communication).
    """
    cases = [(compute, link, least) for compute in (0.02, 0.2) for link in _LINKS for least in (0.5, 0.8, 0.95)]
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
def fastest(exam):
    """Check `fastest(compute, alpha, beta, payload)`: the number of machines, up to 1024, with the shortest step.

    Strong scaling: the machines share one global batch, for which one machine would compute `compute` seconds.
    """
    for compute, link in [(compute, link) for compute in (0.02, 0.5, 5.0) for link in _LINKS]:
        times = {k: compute / k + _ring(k, *link) for k in _MACHINES}
        expected = min(times, key=times.get)
        result = exam.call(compute, *link)
        k = number(result)
        if exam.require(
            isinstance(k, int) and k in times,
            f"Rank {exam.rank} returned {show(result)}, expected a number of machines, 1 to 1024.",
        ):
            exam.require(
                times[k] <= times[expected] * (1 + 1e-9),
                f"With {compute:g} s of computing, {_words(link)}, rank {exam.rank} returned {k}, whose step takes "
                f"{times[k]:.6g} s, expected {expected}, whose step takes {times[expected]:.6g} s.",
            )
    return "The shortest step is found on each link."


def _ring(k, alpha, beta, payload):
    """Return the time of a ring all-reduce of k ranks, in seconds."""
    return 2 * (k - 1) * (alpha + beta * payload / k)


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
