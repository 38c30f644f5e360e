"""Exercises of 08_data_parallel."""

import time
from collections import Counter
from typing import NamedTuple

import torch
from torch import nn

from helpers.checks.exam import answer, called, errors_of_answer, exercise, plain, show
from helpers.checks.small_model import compare_gradients, loss, new_data, new_model
from helpers.measure.traffic import collectives

_IMAGES = 3
_SECONDS_AHEAD = 0.2  # by which rank 0 launches its bucket before the other ranks do
_TOKENS = 8  # of a micro-batch, including those that the mask leaves out
_EACH_HAS_4 = "With 4 tokens in every micro-batch, on"
_EACH_RANK_HAS_12 = (
    "With the same number of tokens in every micro-batch, the answer is right. With 1, 3 and 8 tokens in the "
    "micro-batches of every rank, on"
)
_RANKS_DIFFER = (
    "With the same number of tokens on every rank, the answer is right. With different numbers of tokens on the ranks, "
    "on"
)


class BucketStep(NamedTuple):
    """A step with a bucket: `flat` after all gradients were taken, the collectives, and the gradients at the end."""

    flat: object
    calls: Counter
    gradients: list


@exercise
def my_synchronise(exam):
    """Check `my_synchronise(model)`, which replaces the gradients of each rank with their mean over all ranks."""
    rank, data = exam.rank, [new_data(other, _IMAGES) for other in range(exam.n)]
    model, reference = new_model().double(), new_model().double()
    loss(model, [data[rank]]).backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    exam.call(model)
    loss(reference, data).backward()
    after = [parameter.grad for parameter in model.parameters()]
    own = all(new is not None and torch.equal(old, new) for old, new in zip(before, after, strict=True))
    exam.require(not own, f"Rank {rank} still has the gradients of its own shard, expected the mean over all ranks.")
    difference = compare_gradients(model, reference, tolerance=1e-6)
    exam.require(not difference, f"On rank {rank} {difference} the mean over all ranks.")
    return "Every rank holds the mean of all gradients, which is the gradient that one process would compute."


@exercise
def MyBucket(exam):
    """Check `MyBucket(parameters)`: `take`, `launch` and `finish` average all gradients in one all-reduce.

    One bucket serves two steps. In the second step it takes the gradients in the opposite order.
    """
    rank, n = exam.rank, exam.n
    data = [[new_data(n * step + other, _IMAGES) for other in range(n)] for step in range(2)]
    steps = exam.on_rank(_steps_of_bucket, rank, [batch[rank] for batch in data])
    for step, (batch, order) in enumerate(zip(data, ("order", "opposite order"), strict=True), start=1):
        where = f"In step {step}, which takes the gradients in the {order} of the parameters, "
        own, reference = new_model().double(), new_model().double()
        loss(own, [batch[rank]]).backward()
        loss(reference, batch).backward()
        if not _require_flat(exam, steps[step - 1].flat, own):
            break
        _require_averages(exam, where, steps[step - 1], own, reference)
    return "One all-reduce averages all gradients, and the bucket can be used again in the next step."


def _require_flat(exam, flat, model):
    """Require that `flat` has as many elements as the gradients of a model, and their dtype; return whether it has."""
    if _fits(flat, model):
        return True
    dtype, elements = next(model.parameters()).dtype, _elements(model)
    if isinstance(flat, torch.Tensor) and flat.numel() == elements:
        exam.refuse(
            f"On rank {exam.rank} `flat` has dtype {flat.dtype}, expected {dtype}, the dtype of the parameters."
        )
    else:
        exam.refuse(
            f"On rank {exam.rank} `flat` is {show(flat)}, expected a tensor of {elements} elements, as many as the "
            "parameters have together."
        )
    return False


def _fits(flat, model):
    """Return whether `flat` is a tensor that holds the gradients of a model."""
    fits = isinstance(flat, torch.Tensor) and flat.numel() == _elements(model)
    return fits and flat.dtype == next(model.parameters()).dtype


def _elements(model):
    return sum(parameter.numel() for parameter in model.parameters())


def _require_averages(exam, where, step, own, reference):
    """Require that the bucket took all gradients of the model `own` in this step, and averaged them to `reference`."""
    rank, n = exam.rank, exam.n
    gradients = torch.cat([parameter.grad.flatten() for parameter in own.parameters()])
    taken = [torch.allclose(step.flat.flatten().sort()[0], (gradients / by).sort()[0]) for by in (n, 1)]
    exam.require(
        any(taken),
        f"{where}after `take`, `flat` on rank {rank} has wrong elements, expected the rank's gradients, divided by "
        f"{n}.",
    )
    exam.require(
        step.calls == {"all_reduce": 1},
        f"{where}rank {rank} called {called(step.calls)}, expected 1 all_reduce.",
    )
    result = new_model().double()
    for parameter, gradient in zip(result.parameters(), step.gradients, strict=True):
        parameter.grad = gradient
    for parameter in own.parameters():
        parameter.grad /= n
    exam.require(
        compare_gradients(result, own, tolerance=1e-6),
        f"{where}rank {rank} still has its own gradients, divided by {n}, after `finish`, expected the mean over all "
        "ranks. Does `finish` wait for the all-reduce?",
    )
    difference = compare_gradients(result, reference, tolerance=1e-6)
    exam.require(not difference, f"{where}on rank {rank} {difference} the mean over all ranks.")


def _steps_of_bucket(rank, data):
    """Return a `BucketStep` of the learner's bucket for each batch of this rank."""
    model = new_model().double()
    bucket = answer("MyBucket", [model.parameters()])
    steps = []
    for number, batch in enumerate(data):
        model.zero_grad()
        loss(model, [batch]).backward()
        parameters = list(model.parameters())
        with errors_of_answer(), collectives() as calls:
            for parameter in reversed(parameters) if number else parameters:
                bucket.take(parameter)
            flat = getattr(bucket, "flat", None)
            flat = flat.detach().clone() if isinstance(flat, torch.Tensor) else plain(flat)
            if not _fits(flat, model):
                return [*steps, BucketStep(flat, calls, [])]
            if rank:
                time.sleep(_SECONDS_AHEAD)  # rank 0 must wait in `finish`, or it finds only its own gradients
            bucket.launch()
            bucket.finish()
            gradients = [None if p.grad is None else p.grad.detach().clone() for p in parameters]
        steps.append(BucketStep(flat, calls, gradients))
    return steps


@exercise
def mean_over_tokens(exam):
    """Check `mean_over_tokens(model, micro_batches)`: the gradients of the mean over the tokens of all ranks."""
    rank, n = exam.rank, exam.n
    for case, tokens in (
        (_EACH_HAS_4, [[4, 4, 4]] * n),
        (_EACH_RANK_HAS_12, [[1, 3, 8]] * n),
        (_RANKS_DIFFER, [[other % _TOKENS + 1, 3, 8] for other in range(n)]),
    ):
        batches = [_micro_batches(other, tokens[other]) for other in range(n)]
        model, reference = new_model().double(), new_model().double()
        exam.call(model, batches[rank])
        counted = [(inputs[mask], labels[mask]) for of_rank in batches for inputs, labels, mask in of_rank]
        loss(reference, counted).backward()
        difference = compare_gradients(model, reference, tolerance=1e-6)
        exam.require(not difference, f"{case} rank {rank} {difference} the gradients of one process.")
    return "Every rank has the gradients of one process, whatever the lengths of the masks."


def _micro_batches(rank, tokens):
    """Return inputs, labels and mask of each micro-batch of a rank; `tokens` says how many tokens each mask keeps."""
    batches = []
    for number, kept in enumerate(tokens):
        inputs, labels = new_data(100 * rank + number, _TOKENS)
        batches.append((inputs.double(), labels, torch.arange(_TOKENS) < kept))
    return batches


@exercise
def average_what_is_there(exam):
    """Check `average_what_is_there(model)`: the mean over all ranks, where some parameters have no gradient.

    The first layer is frozen on every rank, and only rank 0 uses the last layer.
    """
    rank, data = exam.rank, [new_data(other, _IMAGES) for other in range(exam.n)]
    model, reference = _frozen_model(), _frozen_model()
    _loss_of_some(model, data[rank], use_last=rank == 0).backward()
    exam.call(model)
    torch.stack([_loss_of_some(reference, part, other == 0) for other, part in enumerate(data)]).mean().backward()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad and parameter.grad is not None:
            exam.refuse(f"Rank {rank} has a gradient for {name}, which is frozen, expected None.")
    difference = compare_gradients(model[1:], reference[1:], tolerance=1e-6)  # without the frozen layer
    exam.require(
        not difference,
        f"Only rank 0 used the last layer, and on rank {rank} {difference} the gradients of one process.",
    )
    return "Every rank has the gradients of one process, and the frozen parameters have none."


def _frozen_model():
    """Return the small network with a frozen first layer."""
    model = new_model().double()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    return model


def _loss_of_some(model, data, use_last):
    """Return the loss of a network with its last layer, or of a network that ends before it."""
    inputs, labels = data
    hidden = model[:3](inputs.double())
    return nn.functional.cross_entropy(model[4](model[3](hidden)) if use_last else hidden, labels)
