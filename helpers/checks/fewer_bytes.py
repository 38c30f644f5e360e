"""Exercises of 12_fewer_bytes."""

from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from helpers import tap
from helpers.checks.exam import AnswerError, answer, errors_of_answer, exercise
from helpers.checks.small_model import compare_gradients, loss, new_data, new_model
from helpers.torch_parts import Future

_SAMPLES, _STEPS = 3, 50
_EXACT = 1e-3  # what rounding to 1/64 in one step cannot reach
_FACTORS = (1e-7, 1.0, 1e7, 0.0)  # of the loss, and so of the gradients
_NEGATIVE, _UNLIKE = "one gradient that is not 0, and negative", "a loss multiplied by 1e+06 on the last rank alone"


class Step(NamedTuple):
    """What a step with the learner's hook did: the tensors that it gave to all-reduce, its buckets, its gradients."""

    sent: list[torch.Tensor]
    buckets: int
    gradients: list[torch.Tensor]


@exercise
def my_round(exam):
    """Check `my_round(matrix, right)`: one round of power iteration, which gives back a matrix of that rank."""
    rank, generator = exam.rank, torch.Generator().manual_seed(1)
    thin, flat, right = (torch.randn(*shape, generator=generator) for shape in ((12, 2), (2, 9), (9, 2)))
    matrix = thin @ flat
    result = exam.call(matrix.clone(), right)
    pair = result if isinstance(result, tuple | list) else [result]
    shapes = tuple(tuple(part.shape) if isinstance(part, torch.Tensor) else _type_of(part) for part in pair)
    if exam.require(
        shapes == ((12, 2), (9, 2)),
        f"On rank {rank} P and Q have the shapes {shapes}, expected ((12, 2), (9, 2)).",
    ):
        left, right = (part.float() for part in pair)
        exam.require(
            torch.allclose(left.T @ left, torch.eye(2), atol=1e-4),
            f"On rank {rank} the columns of P are not orthonormal.",
        )
        off = ((matrix - left @ right.T).norm() / matrix.norm()).item()
        exam.require(off < 1e-4, f"On rank {rank} the product of P and Q is off by {off:.0%} for a matrix of rank 2.")
    return "The columns of P are orthonormal, and for a matrix of rank 2 the product is the matrix."


@exercise
def scaled(exam):
    """Check `scaled(state, bucket)`, a hook that sends fp16 without leaving its range.

    The gradients that it gets are of four magnitudes, one of them 0; all 0 but for a negative one; and of another
    magnitude on the last rank.
    """
    rank, n = exam.rank, exam.n
    cases = {f"a loss multiplied by {factor:g}": [factor] * n for factor in _FACTORS}
    cases |= {_NEGATIVE: [0.0] * n, _UNLIKE: [1.0] * (n - 1) + [1e6]}
    bytes_of_cases = []
    for case, factors in cases.items():
        step = exam.on_rank(_scaled_step, rank, factors[rank], case == _NEGATIVE)
        whole = new_model()
        losses = [_scaled_loss(whole, other, factors[other], case == _NEGATIVE) for other in range(n)]
        (sum(losses) / n).backward()
        exam.require(
            all(tensor.dtype != torch.bfloat16 for tensor in step.sent),
            f"Rank {rank} sent numbers of torch.bfloat16, expected torch.float16.",
        )
        difference = compare_gradients(_model_with(step.gradients), whole, tolerance=5e-3)
        exam.require(not difference, f"With {case}, on rank {rank} {difference} those of one process.")
        numbers = sum(parameter.numel() for parameter in whole.parameters())
        bytes_of_cases.append(sum(tensor.nbytes for tensor in step.sent))
        most = 2 * numbers + 4 * step.buckets
        exam.require(
            bytes_of_cases[-1] <= most,
            f"Rank {rank} gave {bytes_of_cases[-1]} bytes to all-reduce for {numbers} numbers in {step.buckets} "
            f"buckets, expected at most {most}.",
        )
    return f"The gradients are right at every magnitude, and {numbers} numbers took {bytes_of_cases[0]} bytes."


@exercise
def coarse(exam):
    """Check `coarse(missed, bucket)`, a hook that rounds to multiples of 1/64 and loses nothing in the long run."""
    rank, n = exam.rank, exam.n
    data, most = [new_data(other, _SAMPLES) for other in range(n)], n / 64
    steps = exam.on_rank(_coarse_steps, data[rank])
    whole = new_model()
    loss(whole, data).backward()
    exam.require(
        all(_is_rounded(tensor, n) for step in steps for tensor in step.sent),
        f"Rank {rank} sent numbers that have not been rounded.",
    )
    after_one, after_all = _errors(steps[:1], whole), _errors(steps, whole)
    exam.require(
        not max(after_one.values()) < _EXACT,  # NaN is refused below
        f"After one step rank {rank} has finer gradients than rounding them to 1/64 can give.",
    )
    worst = max(after_all, key=after_all.get)
    exam.require(
        all(error <= most * 1.01 for error in after_all.values()),
        f"What arrived on rank {rank} in {_STEPS} steps for {worst} is off by up to {after_all[worst]:.2f}, "
        f"expected at most {most:.2f}.",
    )
    return f"Every number was rounded, and after {_STEPS} steps the sums are off by at most {most:.2f}."


def _type_of(value):
    return getattr(value, "type_name", type(value).__name__)


def _model_with(gradients):
    model = new_model()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    return model


def _is_rounded(tensor, n):
    """Return whether a tensor holds multiples of 1/64, or of 1/64n: ranks may average after they round or before."""
    scaled_up = [factor * 64 * tensor for factor in (1, n)]
    return any(bool(((numbers - numbers.round()).abs() <= 0.02).all()) for numbers in scaled_up)


def _errors(steps, whole):
    """Return by how much the sums of the gradients of steps are off at most, by the names of the parameters."""
    errors = {}
    for place, (name, parameter) in enumerate(whole.named_parameters()):
        gradients = [step.gradients[place] for step in steps]
        errors[name] = (sum(gradients) - len(steps) * parameter.grad).abs().max().item()
    return errors


# What follows runs beside the learner's code.


def _scaled_step(rank, factor, negative):
    """Return the second step of two with the hook `scaled`: from that on, DDP has several buckets."""
    model, hook = _hooked("scaled", None)
    return [_step(model, hook, _scaled_loss(model, rank, factor, negative)) for _ in range(2)][-1]


def _coarse_steps(data):
    model, hook = _hooked("coarse", {})
    return [_step(model, hook, loss(model, [data])) for _ in range(_STEPS)]


def _scaled_loss(model, rank, factor, negative):
    layers = getattr(model, "module", model)
    return factor * loss(model, [new_data(rank, _SAMPLES)]) - negative * layers[-1].bias[0]


class Hook:
    """A communication hook that calls the learner's: `calls` counts them, and `errors` are what they raised."""

    def __init__(self, name):
        self.name = name
        self.calls = 0
        self.errors = []

    def run(self, state, bucket):
        """Return the learner's future, or the bucket as it is after an error, which would not get through DDP."""
        self.calls += 1
        try:
            future = answer(self.name, [state, bucket])
            if isinstance(future, Future):
                return future
            raise AnswerError(f"TypeError: a hook returns a future, and this one a {type(future).__name__}")
        except AnswerError as error:
            self.errors.append(error)
        unchanged = torch.futures.Future()
        unchanged.set_result(bucket.buffer())
        return unchanged


def _hooked(name, state):
    """Return a model in DDP, and the hook that calls the learner's."""
    model, hook = DDP(new_model(), bucket_cap_mb=0.0001), Hook(name)
    model.register_comm_hook(state, hook.run)
    return model, hook


def _step(model, hook, total):
    """Compute gradients, and return what the step did."""
    model.zero_grad()
    before = hook.calls
    with errors_of_answer(), _all_reduced() as tensors:
        total.backward()
    if hook.errors:
        raise hook.errors[0]
    return Step(tensors, hook.calls - before, [parameter.grad.clone() for parameter in model.parameters()])


@contextmanager
def _all_reduced():
    """List copies of the tensors that this process gives to all-reduce from Python inside the block."""
    tensors = []

    def copy(event):
        if event.name == "all_reduce":
            tensors.extend(tensor.clone() for tensor in event.inputs)

    with tap.subscribed(tap.Collective, begin=copy):
        yield tensors
