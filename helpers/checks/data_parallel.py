"""Exercises of 08_data_parallel."""

import torch
from torch import nn

from helpers.checks.exam import exercise
from helpers.checks.small_model import compare_gradients, loss, new_data, new_model

_IMAGES = 3


@exercise
def my_synchronise(exam):
    """Check `my_synchronise(model)`, which turns the gradients of each rank into their mean over all ranks."""
    rank, data = exam.rank, [new_data(other, _IMAGES) for other in range(exam.n)]
    model, whole = new_model().double(), new_model().double()
    loss(model, [data[rank]]).backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    exam.call(model)
    loss(whole, data).backward()
    after = [parameter.grad for parameter in model.parameters()]
    own = all(new is not None and torch.equal(old, new) for old, new in zip(before, after, strict=True))
    exam.require(not own, f"Rank {rank} still has the gradients of its own share.")
    difference = compare_gradients(model, whole, tolerance=1e-6)
    exam.require(not difference, f"On rank {rank} {difference} the mean over all ranks.")
    return "Every rank holds the mean gradients of all ranks, which are those of one process."


@exercise
def average_gradients(exam):
    """Check `average_gradients(model, images)`, which turns gradients of summed losses into that of the global mean."""
    rank, n = exam.rank, exam.n
    for shares, case in (
        ([_IMAGES] * n, "On"),
        (
            [other + 1 for other in range(n)],
            "With as many images on every rank it is right. With r + 1 images on rank r, on",
        ),
    ):
        data = [new_data(other, number) for other, number in enumerate(shares)]
        model, whole = new_model().double(), new_model().double()
        loss(model, [data[rank]], "sum").backward()
        exam.call(model, data[rank][0])
        loss(whole, data).backward()
        difference = compare_gradients(model, whole, tolerance=1e-6)
        exam.require(not difference, f"{case} rank {rank} {difference} those of one process on all images.")
    return "On every rank the gradients are those of one process, with equal shares and with unequal ones."


@exercise
def average_what_is_there(exam):
    """Check `average_what_is_there(model)`: the mean over all ranks, where some parameters have no gradient.

    The first layer is frozen everywhere, and the last one has taken part on rank 0 only.
    """
    rank, data = exam.rank, [new_data(other, _IMAGES) for other in range(exam.n)]
    model, whole = _frozen_model(), _frozen_model()
    _loss_of_some(model, data[rank], use_last=rank == 0).backward()
    exam.call(model)
    torch.stack([_loss_of_some(whole, part, other == 0) for other, part in enumerate(data)]).mean().backward()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad and parameter.grad is not None:
            exam.refuse(f"Rank {rank} gave a gradient to {name}, which is frozen.")
    difference = compare_gradients(model[1:], whole[1:], tolerance=1e-6)  # without the frozen layer
    exam.require(
        not difference, f"With the last layer used on rank 0 only, on rank {rank} {difference} those of one process."
    )
    return "Every rank has the gradients of one process, and the frozen parameters have none."


def _frozen_model():
    """Return the small network with a first layer that is frozen."""
    model = new_model().double()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    return model


def _loss_of_some(model, data, use_last):
    """Return the loss of a network with its last layer, or of one that ends before it."""
    inputs, labels = data
    hidden = model[:3](inputs.double())
    return nn.functional.cross_entropy(model[4](model[3](hidden)) if use_last else hidden, labels)
