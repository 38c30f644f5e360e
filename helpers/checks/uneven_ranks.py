"""Exercises of 13_uneven_ranks."""

from itertools import zip_longest

import torch
from torch import nn

from helpers.checks.exam import answer, counted, exercise, near, number, show


@exercise
def my_joined(exam):
    """Check `my_joined(model, optimizer, batches)`: every rank takes every step, with the mean of the ranks in it.

    The ranks have two batches each; then r + 1 batches on rank r; none on rank 0 and one on every other rank; and none
    at all. In a last case the first gradients add up to 0.
    """
    rank, n = exam.rank, exam.n
    for case, inputs in _uneven(n):
        count = max(map(len, inputs))
        expected = _trained(inputs, _mean)
        weights, steps = exam.on_rank(_train, inputs[rank])
        exam.require(steps == count, f"With {case}, rank {rank} took {counted(steps, 'step')}, expected {count}.")
        exam.require(
            _equal(weights, expected),
            f"With {case}, on rank {rank} the weights are {_rounded(weights)} after training, expected "
            f"{_rounded(expected)}.{_reason(weights, inputs, rank)}",
        )
    return "Every rank took every step, each with the mean gradient of the ranks that had a batch."


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
            f"With {case}, rank {rank} returned {show(result)}, expected a list of 2 numbers.",
        ):
            continue
        for place, weight in enumerate(result):
            number_of = number(weight)
            times = show(weight) if number_of is None else f"{number_of * total / n:.2f}"
            advice = " DDP divides by the number of ranks as well." if near(weight, 1 / total) and n > 1 else ""
            exam.require(
                near(weight, n / total),
                f"With {case}, in micro-batch {place} rank {rank} counts each token {times} times in the mean over "
                f"all tokens, expected once.{advice}",
            )
    return "The weighted sums give the mean over all tokens of all ranks."


def _communicating(n):
    """Return pairs: the communication times of n ranks in seconds, and the straggler's number or None."""
    equal = [1.0] * n
    cases = [([0.2 if rank == slow else 1.0 for rank in range(n)], slow) for slow in range(n)]
    cases += [(equal, None), ([1.0 - 0.05 * rank for rank in range(n)], None)]
    cases += [([0.4] + equal[1:], 0), ([0.6] + equal[1:], None)]
    if n > 2:
        cases.append(([0.2, 0.3] + equal[2:], None))  # two that are late, neither of them by far
    return cases


def _uneven(n):
    """Return pairs: a case in words, and for each of n ranks the inputs of its batches."""
    return [
        ("2 batches on every rank", [[(r + 1) / n, 0.5 * (r + 2) / n] for r in range(n)]),
        ("r + 1 batches on rank r", [[(r + 1 + k) / n for k in range(r + 1)] for r in range(n)]),
        ("no batch on rank 0 and 1 batch on each other rank", [[(r + 1) / n] * (r > 0) for r in range(n)]),
        ("no batches", [[]] * n),
        ("2 batches on every rank, whose first gradients add up to 0", [[(2 * r - n + 1) / n, 0.5] for r in range(n)]),
    ]


def _mean(total, taking_part, n):
    return total / taking_part


def _trained(inputs, average):
    """Return the weights after training as one process computes them; `average` makes one gradient of a sum."""
    model, optimizer = _new_model()
    for batches in zip_longest(*inputs):
        present = [batch for batch in batches if batch is not None]
        optimizer.zero_grad()
        sum(model(torch.tensor([[batch]])).sum() for batch in present).backward()
        for parameter in model.parameters():
            parameter.grad = average(parameter.grad, len(present), len(inputs))
        optimizer.step()
    return _weights(model)


def _reason(weights, inputs, rank):
    """Return a sentence about how an answer came to these weights, or nothing."""
    reasons = {
        "they are the weights of this rank alone": _trained([inputs[rank]], _mean),
        "the gradients are sums, not means": _trained(inputs, lambda total, taking_part, n: total),
        "the gradients are divided by the number of all ranks": _trained(
            inputs, lambda total, taking_part, n: total / n
        ),
    }
    for reason, result in reasons.items():
        if _equal(weights, result):
            return f" It seems that {reason}."
    return ""


def _new_model():
    """Return a model with two parameters, whose gradients depend on its weights, and an optimizer with momentum."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False))
    for place, parameter in enumerate(model.parameters()):
        nn.init.constant_(parameter, 0.5 + place)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def _weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def _equal(weights, expected):
    return (weights - expected).abs().max() < 1e-4


def _rounded(weights):
    return [round(weight, 3) for weight in weights.tolist()]


def _show(value):
    """Describe a value so that a tensor with one element differs from a number."""
    return f"a {type(value).__name__}" if hasattr(value, "shape") else show(value)


# The functions below run next to the learner's code.


def _train(inputs):
    """Return the weights of this rank after training, and how many steps its optimizer took."""
    model, optimizer = _new_model()
    steps = []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    answer("my_joined", [model, optimizer, (torch.tensor([[batch]]) for batch in inputs)])
    return _weights(model), len(steps)
