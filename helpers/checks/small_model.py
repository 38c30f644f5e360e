"""A small network and data for checks of training, and a comparison of its gradients with one process."""

import torch
from torch import nn

from helpers.checks.exam import relatively_close

FEATURES, CLASSES = 8, 4


def new_model():
    """Return a small network, the same at every call and on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, CLASSES))


def new_data(seed, samples):
    """Return `samples` inputs and labels, the same at every call with this seed."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, FEATURES, generator=generator)
    return inputs, torch.randint(CLASSES, (samples,), generator=generator)


def loss(model, data, reduction="mean"):
    """Return the cross-entropy of a model over all samples of a list of pairs of inputs and labels."""
    inputs, labels = (torch.cat(parts) for parts in zip(*data, strict=True))
    inputs = inputs.to(next(model.parameters()).dtype)
    return nn.functional.cross_entropy(model(inputs), labels, reduction=reduction)


def model_with_gradients(gradients):
    """Return the small network with these gradients, one for each parameter."""
    model = new_model()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    return model


def compare_gradients(model, whole, tolerance=1e-4):
    """Return how the gradients of a model differ from the gradients of another model, in words, or None.

    The tolerance is relative to the largest gradient of a parameter.
    """
    pairs = [(name, mine, true.grad) for (name, mine), true in _pairs(model, whole)]
    for name, mine, _ in pairs:
        if mine.grad is None:
            return f"the gradient of {name} is None, unlike"
    if all(relatively_close(mine.grad, true, tolerance) for _, mine, true in pairs):
        return None
    factor = (pairs[-1][1].grad.double().norm() / pairs[-1][2].double().norm()).item()
    if all(relatively_close(mine.grad, factor * true, tolerance) for _, mine, true in pairs):
        return f"the gradients are {factor:.2f} times"
    name = next(name for name, mine, true in pairs if not relatively_close(mine.grad, true, tolerance))
    return f"the gradient of {name} differs from"


def _pairs(model, whole):
    return zip(model.named_parameters(), whole.parameters(), strict=True)
