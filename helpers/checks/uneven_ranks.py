"""Exercises of 13_uneven_ranks."""

from itertools import zip_longest

import torch

from helpers.checks.exam import exercise, near, number, show


@exercise
def my_mean(exam):
    """Check `my_mean(gradient, has_data)`: every rank gets the mean over the ranks that have data.

    It is called with data on all ranks, only on the last rank, on all ranks except rank 0, and only on rank 0.
    """
    rank, n = exam.rank, exam.n
    for case, present in (
        ("all ranks have data", range(n)),
        ("only the last rank has data", [n - 1]),
        ("all ranks except rank 0 have data", range(1, n)),
        ("only rank 0 has data", [0]),
    ):
        expected = sum(_gradient(other, 0) for other in present) / len(present)
        has_data = rank in present
        gradient = _gradient(rank, 0) if has_data else 1000.0
        result = exam.call(torch.tensor([gradient]), has_data)
        exam.require(
            near(result, expected), f"When {case}, rank {rank} returned {show(result)}, expected {show(expected)}."
        )
    return "Every rank got the mean over the ranks that have data."


@exercise
def straggler(exam):
    """Check `straggler(seconds)`: every rank names the rank with by far the shortest communication time, or None.

    It is called with one straggler, which is each rank in turn, and without a straggler: with equal times, and with
    times that differ little.
    """
    rank, n = exam.rank, exam.n
    for seconds, expected in _communicating(n):
        result = exam.call(seconds[rank])
        exam.require(
            type(result) is type(expected) and result == expected,
            f"When the ranks communicate for {', '.join(f'{s:g}' for s in seconds)} s, rank {rank} returned "
            f"{_show(result)}, expected {expected}.",
        )
    return f"Every rank named each of the {n} stragglers, and none where there was none."


@exercise
def averages(exam):
    """Check `averages(gradients)`: every rank gets the mean of each step over the ranks that take part in it.

    The lists hold r + 1 gradients on rank r; none on rank 0 and one on every other rank; none at all; and two on every
    rank, where the first gradients add up to 0.
    """
    rank, n = exam.rank, exam.n
    cases = [
        ("r + 1 gradients on rank r", [[_gradient(r, step) for step in range(r + 1)] for r in range(n)]),
        ("no gradient on rank 0 and one on each other rank", [[_gradient(r, 0)] * (r > 0) for r in range(n)]),
        ("no gradients", [[]] * n),
        ("two gradients on every rank, of which the first add up to 0", [[2.0 * r - n + 1, 5.0] for r in range(n)]),
    ]
    for case, gradients in cases:
        expected = _means(gradients)
        result = exam.call([torch.tensor([gradient]) for gradient in gradients[rank]])
        if exam.require(
            isinstance(result, list) and len(result) == len(expected),
            f"With {case}, rank {rank} returned {show(result)}, expected a list of {len(expected)}.",
        ):
            _require_means(exam, case, result, expected)
    name, gradients = cases[0]
    return f"Every rank returned the means of all steps, {_means(gradients)} with {name}."


@exercise
def token_weights(exam):
    """Check `token_weights(masks)`: DDP's mean of the weighted sums is the mean over all tokens of all ranks.

    Rank r has micro-batches of 1 and r + 1 tokens; then all ranks have tokens except rank 0.
    """
    rank, n = exam.rank, exam.n
    for case, lengths in (
        ("1 and r + 1 tokens on rank r", [[1, r + 1] for r in range(n)]),
        ("no tokens on rank 0, and 3 and 0 on each other rank", [[0, 0]] + [[3, 0]] * (n - 1)),
    ):
        total = sum(map(sum, lengths))
        result = exam.call([torch.arange(n + 3) < length for length in lengths[rank]])
        if not exam.require(
            isinstance(result, list) and len(result) == 2,
            f"With {case}, rank {rank} returned {show(result)}, expected a list of 2.",
        ):
            continue
        for place, weight in enumerate(result):
            number_of = number(weight)
            times = show(weight) if number_of is None else f"{number_of * total / n:.2f}"
            advice = " DDP divides by the number of ranks as well." if near(weight, 1 / total) and n > 1 else ""
            exam.require(
                near(weight, n / total),
                f"With {case}, rank {rank} gives tokens of micro-batch {place} {times} times their weight in the mean "
                f"over all tokens, expected 1.{advice}",
            )
    return "The weighted sums give the mean over all tokens of all ranks."


def _require_means(exam, case, result, expected):
    for step, (mean, right) in enumerate(zip(result, expected, strict=True)):
        exam.require(
            isinstance(mean, int | float) and near(mean, right),
            f"With {case}, rank {exam.rank} returned {_show(mean)} for step {step}, expected {right}.",
        )


def _communicating(n):
    """Return pairs: the communication times of n ranks in seconds, and the straggler's number or None."""
    equal = [1.0] * n
    cases = [([0.2 if rank == slow else 1.0 for rank in range(n)], slow) for slow in range(n)]
    cases += [(equal, None), ([1.0 - 0.05 * rank for rank in range(n)], None)]
    cases += [([0.4] + equal[1:], 0), ([0.6] + equal[1:], None)]
    if n > 2:
        cases.append(([0.2, 0.3] + equal[2:], None))  # two that are late, neither of them by far
    return cases


def _gradient(rank, step):
    return float(rank + 1 + 10 * step)


def _means(gradients):
    """Return the mean gradient of every step over the ranks that have one, from each rank's list of gradients."""
    steps = zip_longest(*gradients)
    present = [[gradient for gradient in step if gradient is not None] for step in steps]
    return [sum(step) / len(step) for step in present]


def _show(value):
    """Describe a value so that a tensor with one element differs from a number."""
    return f"a {type(value).__name__}" if hasattr(value, "shape") else show(value)
