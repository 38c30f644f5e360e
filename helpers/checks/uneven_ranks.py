"""Checks of what the learner writes in 12_uneven_ranks, and of its exercises."""

import os
from itertools import zip_longest

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge


def my_mean(world) -> Verdict:
    """Check `my_mean(gradient, has_data)`: on every rank the mean over the ranks that have data."""
    n = world.size
    cases = {
        "all ranks have data": list(range(n)),
        "only the last rank has data": [n - 1],
        "all but rank 0 have data": list(range(1, n)),
        "only rank 0 has data": [0],
    }

    def check(runs):
        for (case, present), number in zip(cases.items(), range(len(cases)), strict=True):
            target = sum(_gradient(rank, 0) for rank in present) / len(present)
            for rank, run in enumerate(runs):
                found = run.result[number]
                if not isinstance(found, int | float) or not abs(found - target) < 1e-4:
                    raise Wrong(f"When {case}, rank {rank} returned {_show(found)}, and the target is {_show(target)}.")
        return "Every rank got the mean over the ranks that have data."

    return judge(world, "my_mean", check, _run_mean_of_present, list(cases.values()))


def straggler(world) -> Verdict:
    """Check `straggler(seconds)`: every rank names the rank that communicates least, by far, or None.

    It is called with one straggler, which is each rank in turn, and without one, alike and with small differences.
    """
    n = world.size
    alike = [1.0] * n
    cases = [(seconds, slow) for slow in range(n) for seconds in [[0.2 if r == slow else 1.0 for r in range(n)]]]
    cases += [(alike, None), ([1.0 - 0.05 * r for r in range(n)], None)]
    cases += [([0.4] + alike[1:], 0), ([0.6] + alike[1:], None)]
    if n > 2:
        cases.append(([0.2, 0.3] + alike[2:], None))  # two that are slow, and neither by far

    def check(runs):
        for rank, run in enumerate(runs):
            for (seconds, target), result in zip(cases, run.result, strict=True):
                if result != target or isinstance(result, bool):
                    raise Wrong(
                        f"When the ranks communicate for {', '.join(f'{s:g}' for s in seconds)} s, rank {rank} "
                        f"returned {result}, and the target is {target}."
                    )
        return f"Every rank named each of the {n} stragglers, and none where there was none."

    return judge(world, "straggler", check, _run_straggler, [seconds for seconds, _ in cases])


def averages(world) -> Verdict:
    """Check `averages(gradients)`: every rank gets the means of all steps, over the ranks that take part in each.

    It is called with r + 1 gradients on rank r, with none on rank 0 and one elsewhere, with none at all, and with two
    everywhere, of which the first add up to 0.
    """
    n = world.size
    cases = [
        ("r + 1 gradients on rank r", [[_gradient(r, step) for step in range(r + 1)] for r in range(n)]),
        ("no gradient on rank 0 and one on each other rank", [[_gradient(r, 0)] * (r > 0) for r in range(n)]),
        ("no gradients", [[]] * n),
        ("two gradients on every rank, of which the first add up to 0", [[2.0 * r - n + 1, 5.0] for r in range(n)]),
    ]

    def check(runs):
        for rank, run in enumerate(runs):
            for (name, gradients), result in zip(cases, run.result, strict=True):
                target = _means(gradients)
                if not isinstance(result, list) or len(result) != len(target):
                    found = f"a list of {len(result)}" if isinstance(result, list) else f"a {result}"
                    raise Wrong(
                        f"With {name}, rank {rank} returned {found}, and the target is a list of {len(target)}."
                    )
                for step, (found, right) in enumerate(zip(result, target, strict=True)):
                    if not isinstance(found, int | float) or not abs(found - right) < 1e-4:
                        raise Wrong(
                            f"With {name}, rank {rank} returned {_show(found)} for step {step}, "
                            f"and the target is {_show(right)}."
                        )
        return f"Every rank returned the means of all steps, {_means(cases[0][1])} with {cases[0][0]}."

    return judge(world, "averages", check, _run_averages, [gradients for _, gradients in cases])


def _gradient(rank, step):
    return float(rank + 1 + 10 * step)


def _means(gradients):
    """Return the mean gradient of every step, over the ranks that have one; `gradients` are those of each rank."""
    steps = zip_longest(*gradients)
    present = [[gradient for gradient in step if gradient is not None] for step in steps]
    return [sum(step) / len(step) for step in present]


def _run_mean_of_present(cases):
    import torch

    rank = int(os.environ["RANK"])
    results = []
    for present in cases:
        gradient = _gradient(rank, 0) if rank in present else 1000.0
        run = call_answer("my_mean", [torch.tensor([gradient]), rank in present])
        if run.error:
            return run
        one = isinstance(run.result, torch.Tensor) and run.result.numel() == 1
        result = run.result.item() if one else run.result
        results.append(result if isinstance(result, int | float) else f"a {type(result).__name__}")
    return Run(results, [], "")


def _run_straggler(cases):
    rank = int(os.environ["RANK"])
    results = []
    for seconds in cases:
        run = call_answer("straggler", [seconds[rank]])
        if run.error:
            return run
        results.append(run.result if run.result is None or isinstance(run.result, int) else str(run.result))
    return Run(results, [], "")


def _run_averages(cases):
    import torch

    rank = int(os.environ["RANK"])
    results = []
    for gradients in cases:
        run = call_answer("averages", [[torch.tensor([gradient]) for gradient in gradients[rank]]])
        if run.error:
            return run
        if isinstance(run.result, list):
            results.append([x if isinstance(x, int | float) else f"a {type(x).__name__}" for x in run.result])
        else:
            results.append(type(run.result).__name__)
    return Run(results, [], "")


def _show(number):
    return f"{number:.4g}" if isinstance(number, float) else str(number)
