"""Exercises of 42_gradients_through_collectives: whether gradients pass through collectives, and how large they are."""

import torch

from helpers.checks.exam import Wrong, answer, called, close, errors_of_answer, exercise, has_shape, rounded, show
from helpers.measure.traffic import collectives

_EXACT = 1e-9
_ROWS = 2  # of two elements, on each rank


@exercise
def MyAllGather(exam):
    """Check `MyAllGather`, an autograd.Function: the rows of all ranks, and the gradient of the sum of all losses."""
    n = exam.n
    rows = _chunks(n)
    _require_function(
        exam, "MyAllGather", rows[exam.rank], rows.flatten(0, 1), "the rows of all ranks", _gathered_gradient
    )
    return "Every rank has the rows of all ranks, and the gradient of its own rows for the losses of all ranks."


@exercise
def ReduceScatter(exam):
    """Check `ReduceScatter`, an autograd.Function: the sum of this rank's chunk, and the gradient of all chunks."""
    rank, n = exam.rank, exam.n
    x = torch.stack([_chunks(n) * (other + 1) for other in range(n)])
    expected = x.sum(dim=0)[rank]
    calls = _require_function(
        exam, "ReduceScatter", x[rank].flatten(0, 1), expected, f"the sum of chunk {rank}", _scattered_gradient
    )
    for direction, found, right in (
        ("forward", calls["forward"], {"reduce_scatter": 1}),
        ("backward", calls["backward"], {"all_gather": 1}),
    ):
        exam.require(
            found == right,
            f"Values and gradients are right. In {direction} rank {rank} called {called(found)}, expected one "
            "collective that sends no more than necessary.",
        )
    return "Every rank has the sum of its chunk, and the gradient of all its chunks, after one collective each way."


def _judge_gradients(returned):
    """Judge the gradients of all ranks: for a loss that all ranks share, and for a different loss on each rank."""
    n = len(returned)
    shared, of_its_own = (torch.stack(gradients).mean(dim=0) for gradients in zip(*returned, strict=True))
    weights = _weights()
    (expected,) = torch.autograd.grad((_mean_of_all(n, weights) ** 3).sum(), weights)
    if not close(shared, expected, _EXACT):
        raise Wrong(f"The means are right. {_share(shared, expected, n)}")
    if not close(of_its_own, (n + 1) / 2 * expected, _EXACT):
        raise Wrong(
            "The means are right, and so is the gradient if all ranks have the same loss. If each rank has a loss of "
            "its own, the gradient lacks what the losses of the other ranks contribute."
        )
    return "Every rank holds the mean over all ranks, and the averaged gradients are the gradients of one process."


@exercise(together=_judge_gradients)
def global_mean(exam):
    """Check `global_mean(values)`: a mean over all ranks whose gradients, averaged, are the gradients of one process.

    The gradients are compared for a loss that all ranks share, and for a different loss on each rank.
    """
    rank, n = exam.rank, exam.n
    expected = _mean_of_all(n, _weights()).detach()
    gradients = []
    for scale in (1.0, rank + 1.0):
        mean, gradient = exam.on_rank(_mean_and_gradient, _samples(n)[rank], scale)
        found = rounded(mean) if has_shape(mean, expected) else show(mean)
        exam.require(
            has_shape(mean, expected) and close(mean, expected, _EXACT),
            f"Rank {rank} returned {found}, expected the mean over all ranks, {rounded(expected)}.",
        )
        exam.require(
            gradient is not None,
            f"The means are right, but on rank {rank} no gradient passes through them.",
        )
        gradients.append(gradient)
    return gradients


@exercise
def shard_gradient(exam):
    """Check `shard_gradient(w, x, loss_of)`: the gradient of this rank's shard for one loss that all ranks share."""
    rank, n = exam.rank, exam.n
    weights = _chunks(n).flatten(1).round()
    inputs = weights.flip(0)
    output = (weights * inputs).sum()
    expected = 2 * (output - 1) * inputs[rank]
    found = exam.on_rank(_shard_gradient, weights[rank].clone(), inputs[rank].clone())
    if not exam.require(
        has_shape(found, expected),
        f"Rank {rank} returned {show(found)}, expected a gradient of shape {list(expected.shape)}.",
    ):
        return None
    factor = _factor(found, expected)
    exam.require(
        factor is None or abs(factor - n) > 1e-9,
        f"Rank {rank} returned {n} times the expected gradient. All ranks begin a backward pass from the same loss, "
        "and the backward pass of the `all_reduce` adds up what they contribute.",
    )
    exam.require(
        close(found, expected, _EXACT),
        f"Rank {rank} returned the gradient {rounded(found)}, expected {rounded(expected)}.",
    )
    return "Every rank returned the gradient of its shard, for one loss."


def _require_function(exam, name, x, output, what, gradient_of):
    """Require output and gradient of the autograd.Function `name`, and return its collectives in both directions.

    `gradient_of` returns the gradient of x for the sum of all losses, given the scales of the losses of all ranks.
    """
    rank, n = exam.rank, exam.n
    calls = {}
    for losses, scales in (
        ("the same loss on all ranks", torch.ones(n)),
        ("a different loss on each rank", torch.arange(1.0, n + 1)),
    ):
        found, gradient, changed, *counts = exam.on_rank(
            _output_and_gradient, name, x.clone(), scales[rank].item(), list(output.shape)
        )
        calls = dict(zip(("forward", "backward"), counts, strict=True))
        if not exam.require(
            has_shape(found, output),
            f"Rank {rank} returned {show(found)}, expected {what}, a tensor of shape {list(output.shape)}.",
        ):
            continue
        exam.require(
            close(found, output, _EXACT), f"Rank {rank} returned {rounded(found)}, expected {what}, {rounded(output)}."
        )
        expected = gradient_of(exam, scales)
        if not exam.require(
            has_shape(gradient, expected), f"The output is right, but on rank {rank} no gradient reaches the input."
        ):
            continue
        factor = _factor(gradient, expected)
        amount = rounded(gradient) if factor is None else f"{factor:.3g} times the expected gradient"
        if rounded(gradient) == rounded(expected):
            amount = "rounded to fewer digits than in double precision"
        exam.require(
            close(gradient, expected, _EXACT),
            f"The output is right. With {losses}, on rank {rank} the gradient of the input is {amount}, expected "
            f"{rounded(expected)}, the gradient of the sum of the losses of all ranks.",
        )
        exam.require(
            not changed,
            f"The results are right, but on rank {rank} {changed} changed its argument, which the rest of a model may "
            "still need. Give the collective a tensor of its own; `chunk` and slices return views.",
        )
    return calls


def _gathered_gradient(exam, scales):
    """Return the gradient of this rank's rows for the sum of the losses of all ranks."""
    return 2 * scales.sum() * _chunks(exam.n)[exam.rank]


def _scattered_gradient(exam, scales):
    """Return the gradient of this rank's chunks for the sum of the losses of all ranks."""
    n = exam.n
    sums = _chunks(n) * n * (n + 1) / 2
    return (2 * scales.double()[:, None, None] * sums).flatten(0, 1)


def _output_and_gradient(name, x, scale, shape):
    """Return the output of an answer, and the gradient of x for the scaled sum of its squares.

    The gradient is None if there is none, or if the output does not have the expected shape.

    Then follow the method that changed its argument, if one did, and the collectives of both directions.
    """
    argument = x.requires_grad_().detach()
    before = argument.clone()
    with collectives() as forward:
        output = answer(name, [x])
    changed = "" if torch.equal(argument, before) else "`forward`"
    gradient = None
    with collectives() as backward:
        if isinstance(output, torch.Tensor) and list(output.shape) == shape and output.requires_grad:
            of_output = 2 * scale * output.detach()
            before = of_output.clone()
            with errors_of_answer():
                (gradient,) = torch.autograd.grad(output, x, of_output, allow_unused=True)
            changed = changed or ("" if torch.equal(of_output, before) else "`backward`")
    found = output.detach().clone() if isinstance(output, torch.Tensor) else output
    return found, gradient, changed, dict(forward), dict(backward)


def _shard_gradient(w, x):
    """Return what `shard_gradient` returns."""
    found = answer("shard_gradient", [w, x, lambda output: (output - 1) ** 2])
    return found.detach().clone() if isinstance(found, torch.Tensor) else found


def _chunks(n):
    """Return a chunk of rows for each of n ranks, almost whole numbers, which only double precision can tell apart."""
    return torch.arange(1.0, 2 * _ROWS * n + 1, dtype=torch.float64).reshape(n, _ROWS, 2) + 2**-24


def _mean_and_gradient(samples, scale):
    """Return the mean of `global_mean`, and the gradient of the weights for a loss; None if there is none."""
    weights = _weights()
    mean = answer("global_mean", [samples @ weights])
    if not isinstance(mean, torch.Tensor):
        return mean, None
    gradient = None
    if mean.shape == weights.shape[1:] and mean.requires_grad:
        with errors_of_answer():
            (gradient,) = torch.autograd.grad(scale * (mean**3).sum(), weights)
    return mean.detach(), gradient


def _samples(n):
    """Return the samples of n ranks, 5 of 3 features for each rank: another number than in the lesson."""
    return torch.arange(15 * n, dtype=torch.float64).sin().reshape(n, 5, 3)


def _weights():
    """Return the weights by which samples become values."""
    return torch.tensor([[1.0, 0], [0, 1], [1, 1]], dtype=torch.float64, requires_grad=True)


def _mean_of_all(n, weights):
    """Return the mean of the values of n ranks, as one process computes it."""
    return (_samples(n).flatten(0, 1) @ weights).mean(dim=0)


def _factor(found, expected):
    """Return by how much the found gradient is too large, or None if that differs between the elements."""
    factor = ((found * expected).sum() / (expected * expected).sum()).item()
    return factor if close(found, factor * expected, _EXACT) else None


def _share(found, expected, n):
    """Return a sentence on the share of the expected gradient that was found, if it is the same for every element."""
    share = _factor(found, expected)
    if share is None:
        return "The gradient of the weights, averaged over the ranks, differs from the gradient of one process."
    why = " It lacks what the losses of the other ranks contribute." if abs(share * n - 1) < 1e-9 else ""
    return (
        f"The gradient of the weights, averaged over the ranks, is {share:.3g} times the gradient of one process.{why}"
    )
