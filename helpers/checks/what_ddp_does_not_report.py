"""Exercises of 14_what_ddp_does_not_report."""

import builtins
import os
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from helpers.checks.exam import answer, exercise, number, show
from helpers.checks.judging import TIMEOUT_ERROR
from helpers.checks.learner import learners_module
from helpers.measure.traffic import handed_over
from helpers.torch_parts import load_dynamo

_FEATURES, _WIDTH = 4, 16
_DARK, _BRIGHT = torch.full((3, _FEATURES), 0.1), torch.full((3, _FEATURES), 0.9)
_BATCHES = {
    "dark images": _DARK,
    "bright images": _BRIGHT,
    "dark and bright images in one batch": torch.cat([_DARK[:1], _BRIGHT]),  # its mean is bright
}


@exercise
def my_same(exam):
    """Check `my_same(tensor)`: every rank says whether the tensor is the same on all ranks, sending a few numbers.

    It is called with equal tensors, with one bit changed or two elements swapped on one rank, with another tensor on
    each rank, with a bf16 tensor and a transposed one, and with integers that differ less than floating-point numbers
    of their size can.
    """
    rank, n = exam.rank, exam.n
    for case, changed, how in (
        ("all ranks hold the same", None, ""),
        ("one bit has changed on the last rank", n - 1, "last bit"),
        ("two numbers have swapped places on rank 1", 1, "swap"),
        ("one bit has changed on rank 0", 0, "bit"),
        ("each rank holds another tensor", rank, "own"),
        ("all ranks hold the same bf16 tensor", None, "bf16"),
        ("all ranks hold the same transposed tensor", None, "transposed"),
        ("the last rank holds 2**60 + 1 and the others 2**60, as int64 scalars", n - 1, "integer"),
    ):
        tensor = torch.arange(1.0, 257.0)
        if how == "bf16":
            tensor = tensor.bfloat16()
        elif how == "transposed":
            tensor = tensor.view(8, 32).T
        elif how == "integer":
            tensor = torch.tensor(2**60 + (rank == changed))
        elif rank == changed:
            _change(tensor, how, rank)
        result, sent, _ = exam.on_rank(_call_and_count, "my_same", tensor)
        exam.require(
            sent < 512,
            f"Rank {rank} sent {sent} bytes, expected fewer than 512, half of a tensor of 256 float32 values.",
        )
        verdict, expected = _as_bool(result), changed is None
        exam.require(verdict is expected, f"When {case}, rank {rank} returned {show(verdict)}, expected {expected}.")
    return "Every rank knows whether all ranks hold the same tensor, and sent only a few numbers."


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
    exam.require(not error or TIMEOUT_ERROR.search(error), f"{together} {error}")
    exam.require(not error, f"Under DDP, rank {rank} waited in vain for a gradient of another rank.")
    for other in range(n):  # two steps, and their mean over the ranks
        (2 / n * original(_BRIGHT if other else _DARK).sum()).backward()
    for (name, parameter), gradient in zip(original.named_parameters(), gradients, strict=True):
        exam.require(
            _close(gradient, parameter.grad, rtol=1e-3, atol=1e-5),
            f"{together} the gradient of {name} is not the mean over the ranks' batches.",
        )
    return "Outputs and gradients are the same, and every parameter takes part on every rank."


@exercise
def out_of_step(exam):
    """Check `out_of_step(model)`: every rank lists the ranks whose weights differ from rank 0's.

    It is called with equal weights, and with one bit changed, or two weights or the weights of two layers swapped, on
    one rank.
    """
    rank, n = exam.rank, exam.n
    for case, changed, how, expected in (
        ("no rank has changed", None, "", []),
        ("one bit has changed on the last rank", n - 1, "bit", [n - 1]),
        ("two weights have swapped places on rank 1", 1, "swap", [1]),
        ("a bit has changed on rank 0", 0, "bit", list(range(1, n))),
        ("the last bit of all has changed on the last rank", n - 1, "last bit", [n - 1]),
        ("the weights of two layers have swapped places on rank 1", 1, "layers", [1]),
    ):
        model = _layers()
        size = sum(parameter.nbytes for parameter in model.parameters())
        if rank == changed and how == "layers":
            model[0].weight.data, model[2].weight.data = model[2].weight.data, model[0].weight.data
        elif rank == changed:
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
        numbers[[0, _WIDTH + 1]] = numbers[[_WIDTH + 1, 0]]  # weights in different rows and columns
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


def _layers():
    """Return a model for `out_of_step`, identical in every call and on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH))


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
