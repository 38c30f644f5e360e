"""Exercises of 46_sequence_parallel: gradients through split tokens, partial gradients, a plan, and a norm over all."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from helpers.checks.exam import (
    AnswerError,
    answer,
    called,
    close,
    compared,
    errors_of_answer,
    exercise,
    missing,
    number,
    show,
    times_in_words,
)
from helpers.checks.learner import learners_module
from helpers.measure.traffic import collectives

_INPUTS, _HIDDEN = 3, 4  # of two layers; _HIDDEN for each rank
_TOKENS = 2  # for each rank
_LAYERS = ("attention.q", "attention.k", "attention.v", "attention.out", "mlp.up", "mlp.down")


@exercise(also=["MyScatter"])
def MyGather(exam):
    """Check `my_mlp(x, up, down)`, which calls `MyGather` and `MyScatter`: the output and all gradients of one process.

    Each rank has its own parts of `up` and `down`, its own tokens of x, and the loss of its own tokens.
    """
    rank, n = exam.rank, exam.n
    torch.manual_seed(7)
    x = torch.randn(2, _TOKENS * n, _INPUTS, dtype=torch.float64, requires_grad=True)
    up = torch.randn(_HIDDEN * n, _INPUTS, dtype=torch.float64, requires_grad=True)
    down = torch.randn(_INPUTS, _HIDDEN * n, dtype=torch.float64, requires_grad=True)
    output = linear(gelu(linear(x, up)), down)
    of_x, of_up, of_down = torch.autograd.grad(output.square().sum(), [x, up, down])
    output = output.detach().chunk(n, 1)[rank]
    expected = {"down": of_down.chunk(n, 1)[rank], "up": of_up.chunk(n)[rank], "x": of_x.chunk(n, 1)[rank]}
    own = [x.detach().chunk(n, 1)[rank], up.detach().chunk(n)[rank], down.detach().chunk(n, 1)[rank]]

    result, *gradients, calls = exam.on_rank(_backward_of_my_mlp, *(tensor.clone() for tensor in own))
    shape = list(output.shape)
    exam.require(
        getattr(result, "shape", None) == output.shape,
        f"Rank {rank} returned {show(result)}, expected a tensor of the shape {shape}: the sums for its own tokens.",
    )
    exam.require(
        close(result, output),
        f"On rank {rank} the output for the rank's own tokens is wrong, expected the sum of the partial sums of all "
        "ranks. Each rank needs all tokens for its partial sum.",
    )
    for name, gradient in zip(("down", "up", "x"), reversed(gradients), strict=True):
        difference = compared(gradient, expected[name], f"gradient of {name}")
        exam.require(
            close(gradient, expected[name]),
            f"The output is right. Rank {rank} got {difference}, expected the gradient of one process.",
        )
    for name in ("joined", "scattered"):
        exam.require(
            calls.get(name) == 2,
            f"The gradients are right. Rank {rank} called `{name}` {times_in_words(calls.get(name, 0))}, expected "
            "twice: once forward and once backward.",
        )
    return "Each rank has the output and the gradients of one process for its own tokens and its weights."


def _backward_of_my_mlp(x, up, down):
    """Return the output of `my_mlp`, the gradients of x, up and down, and how often it called the lesson's functions.

    The gradients are None if the output does not have the shape of x.
    """
    inputs = [tensor.requires_grad_() for tensor in (x, up, down)]
    with _calls_of("joined", "scattered") as calls:
        output = answer("my_mlp", inputs)
        if getattr(output, "shape", None) == x.shape:
            with errors_of_answer():
                output.square().sum().backward()
    result = output.detach() if isinstance(output, torch.Tensor) else output
    return result, *(tensor.grad for tensor in inputs), dict(calls)


@contextmanager
def _calls_of(*names: str) -> Iterator[Counter]:
    """Count the calls of functions of the lesson inside the block."""
    lesson, calls = vars(learners_module()), Counter()
    originals = {name: lesson[name] for name in names if name in lesson}
    if len(originals) < len(names):
        raise AnswerError(missing(next(name for name in names if name not in lesson)))

    def counted(name):
        def function(*arguments, **keywords):
            calls[name] += 1
            return originals[name](*arguments, **keywords)

        return function

    lesson |= {name: counted(name) for name in names}
    try:
        yield calls
    finally:
        lesson |= originals


@exercise
def my_sums(exam):
    """Check `my_sums(parameters)`: each gradient is the sum over the ranks, after one all-reduce."""
    rank, n = exam.rank, exam.n
    shapes = [(3,), (2, 2), (1,)]
    gradients, calls = exam.on_rank(_gradients_after_my_sums, shapes, rank)
    for index, (shape, gradient) in enumerate(zip(shapes, gradients, strict=True)):
        expected = sum(_partial_gradient(shape, index, other) for other in range(n))
        exam.require(
            close(gradient, expected),
            f"Rank {rank} has {compared(gradient, expected, f'gradient of parameter {index}')}, expected the sum over "
            "the ranks.",
        )
    exam.require(
        sum(calls.values()) == 1,
        f"The gradients are right. Rank {rank} called {called(Counter(calls))} for {len(shapes)} parameters, expected "
        "1 collective.",
    )
    exam.require(
        calls == {"all_reduce": 1},
        f"The gradients are right. Rank {rank} called {called(Counter(calls))}, expected 1 all_reduce.",
    )
    return "One collective adds up all gradients."


def _partial_gradient(shape, index, rank):
    """Return the part of a rank in the gradient of a parameter."""
    return torch.full(shape, 10.0**index * (rank + 1), dtype=torch.float64)


def _gradients_after_my_sums(shapes, rank):
    """Return the gradients of parameters after `my_sums`, and the collectives that it called."""
    parameters = [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in shapes]
    for index, parameter in enumerate(parameters):
        parameter.grad = _partial_gradient(shapes[index], index, rank)
    with collectives() as calls:
        answer("my_sums", [parameters])
    return [parameter.grad for parameter in parameters], dict(calls)


@exercise
def my_plan(exam):
    """Check `my_plan()`: under its plan a block has the results of one process, and a rank keeps 1/n of each matrix."""
    rank = exam.rank
    by_plan = exam.on_rank(_step_by_plan, exam.n)
    if isinstance(by_plan, str):
        exam.refuse(f"Rank {rank}: {by_plan}")
        return None
    kept, output, gradient = by_plan
    for name, fraction in kept.items():
        exam.require(
            abs(fraction - 1 / exam.n) < 1e-9,
            f"Rank {rank} keeps {fraction:.3g} of the weight of `{name}`, expected 1/{exam.n}.",
        )
    exam.require(
        output < 1e-10,
        f"The output on rank {rank} differs from the output of one process by up to {output:.2g}, expected less than "
        "1e-10.",
    )
    exam.require(
        gradient < 1e-10,
        f"The output is right. On rank {rank} the gradient of the input differs from the gradient of one process by up "
        f"to {gradient:.2g}, expected less than 1e-10.",
    )
    return "Each rank keeps 1/n of all six matrices, and the results are the results of one process."


def _step_by_plan(n):
    """Return which fraction of each weight this rank keeps, and the differences of the output and of x's gradient.

    Return a sentence instead if the plan is not a plan for the six layers.
    """
    plan = answer("my_plan", [])
    if not isinstance(plan, dict):
        return f"`my_plan` returned {show(plan)}, expected a dict."
    if unknown := [name for name in plan if name not in _LAYERS]:
        return f"The plan names `{unknown[0]}`, expected only {', '.join(f'`{name}`' for name in _LAYERS)}."
    width = 4 * n
    torch.manual_seed(7)
    x = torch.randn(2, 3, width, dtype=torch.float64)
    x, of_x = x.clone().requires_grad_(), x.clone().requires_grad_()
    whole, block = _Block(width), _Block(width)
    block.load_state_dict(whole.state_dict())
    with errors_of_answer():
        parallelize_module(block, init_device_mesh("cpu", (n,)), plan)
        output = block(x)
        output.square().sum().backward()
    expected = whole(of_x)
    expected.square().sum().backward()
    weights = {name: block.get_submodule(name).weight for name in _LAYERS}
    local = {name: getattr(weight, "to_local", lambda weight=weight: weight)() for name, weight in weights.items()}
    kept = {name: local[name].numel() / whole.get_submodule(name).weight.numel() for name in _LAYERS}
    return kept, _difference(output, expected), _difference(x.grad, of_x.grad)


def _difference(result, expected):
    if getattr(result, "shape", None) != expected.shape:
        return math.inf
    return (result - expected).detach().abs().max().item()


class _Block(nn.Module):
    """A small block whose layers have the names of the lesson's block; its heads have a width of 4."""

    def __init__(self, width):
        super().__init__()
        self.attention, self.mlp, self.head_width = nn.Module(), nn.Module(), 4
        for name in ("q", "k", "v", "out"):
            self.attention.add_module(name, nn.Linear(width, width, dtype=torch.float64))
        self.mlp.up = nn.Linear(width, 4 * width, dtype=torch.float64)
        self.mlp.down = nn.Linear(4 * width, width, dtype=torch.float64)

    def forward(self, x):
        parts = (layer(x) for layer in (self.attention.q, self.attention.k, self.attention.v))
        heads = [part.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in parts]
        mixed = scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.attention.out(mixed)
        return x + self.mlp.down(gelu(self.mlp.up(x)))


@exercise
def my_total_norm(exam):
    """Check `my_total_norm(gradients)`: the norm of plain tensors and of DTensors on two meshes, equal on all ranks."""
    rank = exam.rank
    result, of_parts, expected = exam.on_rank(_norm_of_gradients, exam.n)
    norm = number(result)
    exam.require(norm is not None, f"Rank {rank} returned {show(result)}, expected a number.")
    what = "the norm of its own parts" if norm is not None and abs(norm - of_parts) < 1e-9 else "another norm"
    exam.require(
        norm is None or abs(norm - expected) < 1e-9,
        f"Rank {rank} returned {show(result)}, {what}, expected {show(expected)}, the norm of all elements.",
    )
    return "Every rank has the norm of all elements of all gradients."


def _norm_of_gradients(n):
    """Return the learner's norm of some gradients, the norm of this rank's own parts, and the norm of all elements."""
    torch.manual_seed(7)
    line, grid = init_device_mesh("cpu", (n,)), init_device_mesh("cpu", (1, n))
    whole = [torch.randn(2 * n, 3, dtype=torch.float64) for _ in range(4)]
    gradients = [
        whole[0].clone(),
        distribute_tensor(whole[1], line, [Shard(0)]),
        distribute_tensor(whole[2], grid, [Replicate(), Shard(0)]),
        DTensor.from_local(whole[3] / n, line, [Partial()]),
    ]
    parts = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
    result = answer("my_total_norm", [gradients])
    if isinstance(result, DTensor):
        result = result.full_tensor()
    return result, *(torch.cat([t.flatten() for t in tensors]).norm().item() for tensors in (parts, whole))
