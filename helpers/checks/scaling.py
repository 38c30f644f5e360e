"""Checks of what the learner writes in 14_scaling, and of its exercises."""

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

# alpha in seconds, beta in bytes per second, payload in bytes
_LINKS = [(3e-5, 1.25e9, 4e6), (1e-3, 6e7, 4e6), (1e-6, 1e10, 1e8)]
_INFINITE = float("inf")


def my_communicating(world) -> Verdict:
    """Check `my_communicating(k, alpha, beta, payload)`, the time of a ring all-reduce of k ranks."""
    cases = [
        ("no latency, 4 ranks and 100 bytes at 1 byte per second", (4, 0.0, 1.0, 100)),
        ("infinite bandwidth, 4 ranks and a latency of 1 s", (4, 1.0, _INFINITE, 100)),
        ("one rank", (1, 1.0, 1.0, 100)),
        *(
            (f"{k} ranks, latency {link[0]:g} s, {link[1]:g} B/s, {link[2]:g} B", (k, *link))
            for k in (2, 5)
            for link in _LINKS
        ),
    ]

    def check(runs):
        for rank, run in enumerate(runs):
            for (case, arguments), result in zip(cases, run.result, strict=True):
                _require_close(f"With {case}, rank {rank} returned", result, _ring(*arguments))
        return "Latency and bandwidth are those of the ring: 2(k - 1) steps of B/k bytes."

    return judge(world, "my_communicating", check, _run, "my_communicating", [arguments for _, arguments in cases])


def my_rate(world) -> Verdict:
    """Check `my_rate(number, warm_up, base, k)`, which rises from base to k * base in the first `warm_up` steps."""
    cases = [(number, 10, 0.1, 8) for number in (0, 1, 5, 9, 10, 11, 1000)] + [(3, 4, 0.02, 32), (7, 20, 0.5, 1)]

    def check(runs):
        for rank, run in enumerate(runs):
            for arguments, result in zip(cases, run.result, strict=True):
                number, steps, base, k = arguments
                target = base + (k * base - base) * min(1, number / steps)
                about = f"In step {number} of a warm-up of {steps}, from {base:g} to {k} times it, rank {rank} returned"
                _require_close(about, result, target)
        return "The rate rises from the base to k times that, and stays there."

    return judge(world, "my_rate", check, _run, "my_rate", cases)


def machines(world) -> Verdict:
    """Check `machines(compute, alpha, beta, payload, least)`: the most machines, up to 1024, that are so efficient.

    One rank on each machine, and no overlap: the efficiency is compute / (compute + communication).
    """
    cases = [(compute, *link, least) for compute in (0.02, 0.2) for link in _LINKS for least in (0.5, 0.8, 0.95)]

    def check(runs):
        for rank, run in enumerate(runs):
            for (compute, *link, least), result in zip(cases, run.result, strict=True):
                target = max(k for k in range(1, 1025) if compute / (compute + _ring(k, *link)) >= least)
                if result != target or isinstance(result, bool):
                    raise Wrong(
                        f"With {compute:g} s of computing, latency {link[0]:g} s, {link[1]:g} B/s and {link[2]:g} B, "
                        f"rank {rank} returned {result} for an efficiency of {least:.0%}, and the target is {target}."
                    )
        return "The model says how many machines are worth their price on each link."

    return judge(world, "machines", check, _run, "machines", cases)


def fastest(world) -> Verdict:
    """Check `fastest(compute, alpha, beta, payload)`: how many machines, up to 1024, make the shortest step.

    They share one global batch, for which one machine computes `compute` seconds: strong scaling.
    """
    cases = [(compute, *link) for compute in (0.02, 0.5, 5.0) for link in _LINKS]

    def check(runs):
        for rank, run in enumerate(runs):
            for (compute, *link), result in zip(cases, run.result, strict=True):
                times = {k: compute / k + _ring(k, *link) for k in range(1, 1025)}
                target = min(times, key=times.get)
                if isinstance(result, bool) or not isinstance(result, int) or result not in times:
                    raise Wrong(f"Rank {rank} returned {result}, and the target is a number of machines, 1 to 1024.")
                if times[result] > times[target] * (1 + 1e-9):
                    raise Wrong(
                        f"With {compute:g} s of computing, latency {link[0]:g} s, {link[1]:g} B/s and {link[2]:g} B, "
                        f"rank {rank} returned {result}, whose step takes {times[result]:.6g} s; {target} take "
                        f"{times[target]:.6g} s."
                    )
        return "The shortest step is found on each link."

    return judge(world, "fastest", check, _run, "fastest", cases)


def _ring(k, alpha, beta, payload):
    """Return the time of a ring all-reduce of k ranks, in seconds."""
    return 2 * (k - 1) * (alpha + payload / k / beta)


def _require_close(about, result, target):
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise Wrong(f"{about} {result}, and the target is a number.")
    if not abs(result - target) <= 1e-6 * max(abs(target), 1e-12):
        raise Wrong(f"{about} {result:g}, and the target is {target:g}.")


def _run(function, cases):
    results = []
    for arguments in cases:
        run = call_answer(function, list(arguments))
        if run.error:
            return run
        results.append(run.result.item() if hasattr(run.result, "item") else run.result)
    return Run(results, [], "")
