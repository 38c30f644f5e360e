"""Exercises of 14_ddp_in_practice."""

import builtins
import os
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import TensorDataset

from helpers.checks.exam import Wrong, answer, exercise, number, show
from helpers.checks.judging import CUT_OFF
from helpers.checks.learner import learners_module
from helpers.measure.traffic import handed_over
from helpers.torch_parts import load_dynamo

_FEATURES, _CLASSES = 4, 2
_DARK, _BRIGHT = torch.full((3, _FEATURES), 0.1), torch.full((3, _FEATURES), 0.9)
_BATCHES = {
    "dark images": _DARK,
    "bright images": _BRIGHT,
    "dark and bright images in one batch": torch.cat([_DARK[:1], _BRIGHT]),  # its mean is bright
}


@exercise
def my_same(exam):
    """Check `my_same(tensor)`: every rank says whether the tensor is the same on all ranks, sending a few numbers.

    It is called with equal tensors, with one bit changed or two elements swapped on one rank, and with another tensor
    on each rank.
    """
    rank, n = exam.rank, exam.n
    for case, changed, how in (
        ("all ranks hold the same", None, ""),
        ("one bit has changed on the last rank", n - 1, "bit"),
        ("two numbers have swapped places on rank 1", 1, "swap"),
        ("one bit has changed on rank 0", 0, "bit"),
        ("each rank holds another tensor", rank, "own"),
    ):
        tensor = torch.arange(1.0, 257.0)
        size = tensor.nbytes
        if rank == changed:
            _change(tensor, how, rank)
        result, sent, _ = exam.on_rank(_call_and_count, "my_same", tensor)
        exam.require(
            sent < size / 2, f"Rank {rank} sent {sent} bytes, expected fewer than {size // 2}, half of the tensor."
        )
        verdict, expected = _as_bool(result), not how
        exam.require(verdict is expected, f"When {case}, rank {rank} returned {show(verdict)}, expected {expected}.")
    return "Every rank knows whether all hold the same, and only a few numbers were sent."


@exercise(own_group=True)
def forward(exam):
    """Check `forward(self, x)` of a model with a branch: same outputs and gradients, under DDP with no option."""
    rank, n, original = exam.rank, exam.n, _model(_forward)
    outputs, error, gradients = exam.on_rank(_outputs_and_gradients, rank)
    for (name, images), output in zip(_BATCHES.items(), outputs, strict=True):
        exam.require(
            _close(output, original(images)), f"On rank {rank} the output for {name} differs from the original output."
        )
    together = f"With a dark batch on rank 0 and bright ones elsewhere, on rank {rank}"
    exam.require(not error or CUT_OFF.search(error), f"{together} {error}")
    exam.require(not error, f"Under DDP, rank {rank} waited in vain for a gradient of another rank.")
    for other in range(n):  # two steps, and their mean over the ranks
        (2 / n * original(_BRIGHT if other else _DARK).sum()).backward()
    for (name, parameter), gradient in zip(original.named_parameters(), gradients, strict=True):
        exam.require(
            _close(gradient, parameter.grad, rtol=1e-3, atol=1e-5),
            f"{together} the gradient of {name} is not the mean over the ranks' batches.",
        )
    return "Outputs and gradients are the same, and every parameter takes part on every rank."


class Counting(nn.Module):
    """A model that predicts the class by the only feature of an image, and counts the images."""

    def __init__(self):
        super().__init__()
        self.register_buffer("evaluated", torch.zeros((), dtype=torch.long))

    def forward(self, images):
        """Return the scores of images, of shape (images, classes)."""
        self.evaluated += len(images)
        return nn.functional.one_hot(images[:, 0].long(), _CLASSES).double()


def _judge_together(returned):
    for images, case in _numbers_of_images(len(returned)):
        evaluated = sum(of_rank[images] for of_rank in returned)
        if evaluated < images:
            raise Wrong(f"{case} the ranks evaluated only {evaluated} of them, expected all.")
    return "Every rank returned the exact share, and evaluated no more than its own images."


@exercise(together=_judge_together)
def accuracy(exam):
    """Check `accuracy(model, data)`: every rank returns the exact accuracy, with each image evaluated once.

    It is called with a number of images that is a multiple of the number of ranks, and with one image more.
    """
    rank, n, evaluated = exam.rank, exam.n, {}
    for images, case in _numbers_of_images(n):
        # The model is right on the first half only, so that an image that counts twice changes the accuracy.
        right = torch.arange(images) < images // 2
        data = TensorDataset(right.double()[:, None], torch.ones(images, dtype=torch.long))
        model = Counting()
        result = exam.call(model, data)
        evaluated[images] = model.evaluated.item()
        share, expected, most = number(result), (images // 2) / images, -(-images // n)
        exam.require(share is not None, f"Rank {rank} returned {show(result)}, expected a number.")
        exam.require(
            evaluated[images] <= most,
            f"{case} rank {rank} evaluated {evaluated[images]} of them, expected at most {most}.",
        )
        if share is not None:
            exam.require(
                abs(share - expected) <= 1e-6, f"{case} rank {rank} returned {share:.4f}, expected {expected:.4f}."
            )
    return evaluated


@exercise
def out_of_step(exam):
    """Check `out_of_step(model)`: every rank lists the ranks whose weights differ from rank 0's.

    It is called with equal weights, and with one bit changed or two weights swapped on one rank.
    """
    rank, n = exam.rank, exam.n
    for case, changed, how, expected in (
        ("no rank has changed", None, "", []),
        ("one bit has changed on the last rank", n - 1, "bit", [n - 1]),
        ("two weights have swapped places on rank 1", 1, "swap", [1]),
        ("a bit has changed on rank 0", 0, "bit", list(range(1, n))),
        ("the last bit of all has changed on the last rank", n - 1, "last bit", [n - 1]),
    ):
        model = _layers()
        size = sum(parameter.nbytes for parameter in model.parameters())
        if rank == changed:
            _change(model[2].bias.data if how == "last bit" else model[0].weight.data.view(-1), how, rank)
        result, sent, hashed = exam.on_rank(_call_and_count, "out_of_step", model)
        exam.require(sent < size / 4, f"Rank {rank} sent {sent} bytes, expected fewer than {size // 4}.")
        ranks = _listed(result)
        hint = " (`hash` of text and bytes differs between processes that start separately.)"
        exam.require(
            ranks == expected,
            f"When {case}, rank {rank} returned {ranks}, expected {expected}." + hint * hashed,
        )
    return "Every rank names the ranks that have drifted, and no weights were sent."


def _change(numbers, how, rank):
    """Change a tensor of one dimension in place."""
    if how == "swap":
        numbers[[0, _FEATURES + 1]] = numbers[[_FEATURES + 1, 0]]  # weights in different rows and columns
    elif how == "own":
        numbers += rank
    else:
        numbers[-1 if how == "last bit" else 0].nextafter_(torch.tensor(9.0))


def _as_bool(result):
    """Return a bool for True, False, 1 and 0, even in a tensor with one element, and anything else as it is."""
    if isinstance(result, torch.Tensor | np.ndarray) and len(result.reshape(-1)) == 1:
        result = result.item()
    return bool(result) if isinstance(result, int | float) and result in (0, 1) else result


def _listed(result):
    """Return as a list the ranks that an answer returned, and anything else as it is."""
    if isinstance(result, torch.Tensor | np.ndarray):
        return result.tolist()
    if isinstance(result, list | tuple | set):
        return [show(part) if number(part) is None else number(part) for part in result]
    return result


def _close(tensor, expected, **tolerances):
    """Return whether a value is a tensor that has the expected shape, dtype and, except for rounding, elements."""
    if not isinstance(tensor, torch.Tensor) or (tensor.shape, tensor.dtype) != (expected.shape, expected.dtype):
        return False
    return torch.allclose(tensor, expected, **tolerances)


def _numbers_of_images(n):
    """Return two numbers of images for n ranks, each with the first words of its messages."""
    return [
        (images, f"With {words} number of images, {images},")
        for images, words in ((4 * n, "an even"), (4 * n + 1, "an uneven"))
    ]


def _layers():
    """Return a model for `out_of_step`, identical in every call and on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(_FEATURES, 64), nn.ReLU(), nn.Linear(64, _CLASSES))


def _model(forward):
    """Return a model with the layers of the exercise, identical in every call and on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = type("Gated", (nn.Module,), {"forward": forward})()
        model.body, model.extra = nn.Linear(_FEATURES, _FEATURES), nn.Linear(_FEATURES, _FEATURES)
        return model


def _forward(self, x):
    """Compute what the exercise computes on one device."""
    hidden = self.body(x)
    return self.extra(hidden) if x.mean() > 0.5 else hidden


# The functions below run next to the learner's code.


def _call_and_count(name, argument):
    """Return the result of a function, the bytes that it sent, and whether it hashed text or bytes."""
    with handed_over() as sizes, _hash_of_its_own() as hashed:
        result = answer(name, [argument])
    return result, sum(sizes), bool(hashed)


def _outputs_and_gradients(rank):
    """Return the outputs of the learner's `forward`, and the error and the gradients of two steps under DDP."""
    load_dynamo()
    dist.barrier()
    # A rank that waits in vain ends soon, and a right answer has enough time even on a busy machine.
    brief = dist.new_group(timeout=timedelta(seconds=8))
    model = _model(lambda layers, images: vars(learners_module())["forward"](layers, images))
    with torch.no_grad():
        outputs = [answer("forward", [model, images.clone()]) for images in _BATCHES.values()]
    error = ""
    try:
        wrapped = DDP(model, process_group=brief)
        for _ in range(2):
            wrapped(_BRIGHT if rank else _DARK).sum().backward()
    except Exception as raised:
        unused = "finished reduction" in str(raised)
        error = (
            "a parameter had no part in the loss, expected all to take part."
            if unused
            else f"{type(raised).__name__}: {raised}"
        )
    return outputs, error, [parameter.grad for parameter in model.parameters()]


@contextmanager
def _hash_of_its_own():
    """Give cells the `hash` that ranks would have under torchrun, and list the text and bytes that they hash.

    Python salts it for each process, but ranks that are forked share the salt.
    """
    hashed = []

    def salted(value):
        if not isinstance(value, str | bytes):
            return builtins.hash(value)
        hashed.append(value)
        return builtins.hash((os.getpid(), value))

    learners_module().hash = salted
    try:
        yield hashed
    finally:
        del learners_module().hash
