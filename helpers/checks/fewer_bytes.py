"""Exercises of 12_fewer_bytes."""

from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from helpers import tap
from helpers.checks.exam import AnswerError, answer, errors_of_answer, exercise
from helpers.checks.small_model import compare_gradients, loss, model_with_gradients, new_data, new_model
from helpers.torch_parts import Future

_SAMPLES, _STEPS = 3, 50
_EXACT = 1e-3  # what rounding to 1/64 in one step cannot reach
_FACTORS = (1e-7, 1e-20, 1.0, 1e7, 0.0)  # of the loss, and so of the gradients
_NEGATIVE, _UNLIKE = (
    "one negative gradient and all others 0",
    "a loss multiplied by 1e+06 on the last rank only",
)


class HookedStep(NamedTuple):
    """What a step with the learner's hook did: the tensors that it gave to all-reduce, its buckets, its gradients."""

    sent: list[torch.Tensor]
    buckets: int
    gradients: list[torch.Tensor]


@exercise
def my_compress(exam):
    """Check `my_compress(dtype, bucket)`, a hook that sends 16 bits, without leaving the range on the way."""
    rank, n = exam.rank, exam.n
    whole = new_model()
    (sum(loss(whole, [new_data(other, _SAMPLES)]) for other in range(n)) / n).backward()
    for dtype, tolerance in ((torch.float16, 5e-3), (torch.bfloat16, 0.05)):
        step = exam.on_rank(_compressed_step, rank, dtype)
        sent = sorted({str(tensor.dtype) for tensor in step.sent})
        exam.require(
            sent == [str(dtype)],
            f"With {dtype}, rank {rank} passed {', '.join(sent) or 'nothing'} to `all_reduce`, expected {dtype}.",
        )
        difference = compare_gradients(model_with_gradients(step.gradients), whole, tolerance)
        exam.require(not difference, f"With {dtype}, on rank {rank} {difference} the mean over the ranks.")
    for entry, hint in ((-40_000.0, "The sum leaves the range"), (-100_000.0, "Rounding leaves the range")):
        everywhere = entry == -40_000.0
        average = entry if everywhere else entry / n
        where = "every rank" if everywhere else f"rank {n - 1} and 0 elsewhere"
        result = exam.on_rank(_compressed_entry, entry if everywhere or rank == n - 1 else 0.0)
        exam.require(
            abs(result / average - 1) < 5e-3,
            f"With an entry of {entry:.0f} on {where}, rank {rank} got {result:.0f} by fp16, expected {average:.0f}. "
            f"{hint} of fp16.",
        )
    return "The hook sends 16 bits, and its averages stay within their range."


@exercise
def my_low_rank(exam):
    """Check `my_low_rank(gradient, right, missed)`: a step of PowerSGD with error feedback, for one matrix.

    The mean over the ranks of gradient and `missed` has rank 2, so that one round finds it.
    """
    rank, n = exam.rank, exam.n
    generator = torch.Generator().manual_seed(1)
    right, flat = torch.randn(9, 2, generator=generator), torch.randn(2, 9, generator=generator)
    gradients, missed = ((torch.randn(n, 12, 2, generator=generator) @ flat) for _ in range(2))
    own, gradient_mean = gradients[rank] + missed[rank], gradients.mean(dim=0)
    expected = gradient_mean + missed.mean(dim=0)
    result, sizes = exam.on_rank(_low_rank_step, gradients[rank].clone(), right.clone(), missed[rank].clone())
    parts = result if isinstance(result, tuple | list) else [result]
    shapes = tuple(tuple(part.shape) if isinstance(part, torch.Tensor) else _type_of(part) for part in parts)
    wanted = ((12, 2), (9, 2), (12, 9))
    if not exam.require(shapes == wanted, f"Rank {rank} returned tensors of shapes {shapes}, expected {wanted}."):
        return None
    left, new_right, rest = (part.float() for part in parts)
    product = left @ new_right.T
    exam.require(
        torch.allclose(left.T @ left, torch.eye(2), atol=1e-4),
        f"On rank {rank} the columns of P are not orthonormal, expected orthonormal columns.",
    )
    exam.require(
        not _near(product, gradient_mean),
        f"On rank {rank} the product of P and Q is the mean gradient, expected the mean of gradient + `missed`.",
    )
    off = _distance(product, expected)
    exam.require(
        off < 1e-4,
        f"On rank {rank} the product of P and Q is off by {off:.0%}, expected the mean of all ranks' matrices.",
    )
    exam.require(
        not _near(rest + product, expected) and not _near(rest + product, gradients[rank]),
        f"On rank {rank} the third result is not this rank's compression error, expected gradient + `missed` - "
        "product.",
    )
    off = _distance(rest, own - product)
    exam.require(
        off < 1e-4, f"On rank {rank} the third result is off by {off:.0%}, expected gradient + `missed` - product."
    )
    exam.require(
        sorted(sizes) == [9 * 2, 12 * 2],
        f"Rank {rank} passed tensors of {sizes} elements to `all_reduce`, expected {[12 * 2, 9 * 2]}: P and Q.",
    )
    return (
        "P and Q are averaged, their product is the mean of all ranks, and each rank keeps its own compression error."
    )


@exercise
def scaled(exam):
    """Check `scaled(state, bucket)`, a hook that sends fp16 without leaving its range.

    It gets gradients of five magnitudes, including 0; gradients that are all 0 except for a negative one; and gradients
    that are much larger on the last rank than on the others.
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
            f"Rank {rank} sent torch.bfloat16, expected torch.float16.",
        )
        difference = compare_gradients(model_with_gradients(step.gradients), whole, tolerance=5e-3)
        exam.require(not difference, f"With {case}, on rank {rank} {difference} those of one process.")
        numbers = sum(parameter.numel() for parameter in whole.parameters())
        bytes_of_cases.append(sum(tensor.nbytes for tensor in step.sent))
        most = 2 * numbers + 4 * step.buckets
        exam.require(
            bytes_of_cases[-1] <= most,
            f"Rank {rank} passed {bytes_of_cases[-1]} bytes to `all_reduce` for {numbers} entries in {step.buckets} "
            f"buckets, expected at most {most}.",
        )
    return f"The gradients are right at every magnitude, and {numbers} entries took {bytes_of_cases[0]} bytes."


@exercise
def coarse(exam):
    """Check `coarse(missed, bucket)`, a hook that rounds to multiples of 1/64, and sends what it missed later."""
    rank, n = exam.rank, exam.n
    data, most = [new_data(other, _SAMPLES) for other in range(n)], n / 64
    steps = exam.on_rank(_coarse_steps, data[rank])
    whole = new_model()
    loss(whole, data).backward()
    exam.require(
        all(_is_rounded(tensor, n) for step in steps for tensor in step.sent),
        f"Rank {rank} sent values that are not rounded to multiples of 1/64.",
    )
    after_one, after_all = _errors(steps[:1], whole), _errors(steps, whole)
    exam.require(
        not max(after_one.values()) < _EXACT,  # NaN is refused below
        f"After one step the gradients of rank {rank} are exact, expected the rounding errors of multiples of 1/64.",
    )
    worst = max(after_all, key=after_all.get)
    exam.require(
        all(error <= most * 1.01 for error in after_all.values()),
        f"On rank {rank} the sum of the averages of {_STEPS} steps for {worst} is off by {after_all[worst]:.2f}, "
        f"expected at most {most:.2f}.",
    )
    return f"Every value was rounded, and after {_STEPS} steps the sums are off by at most {most:.2f}."


def _type_of(value):
    return getattr(value, "type_name", type(value).__name__)


def _is_rounded(tensor, n):
    """Return whether a tensor holds multiples of 1/64, or of 1/64n: ranks may average after they round or before."""
    scaled_up = [factor * 64 * tensor for factor in (1, n)]
    return any(bool(((numbers - numbers.round()).abs() <= 0.02).all()) for numbers in scaled_up)


def _errors(steps, whole):
    """Return the largest error in the summed gradients of each parameter, by the name of the parameter."""
    errors = {}
    for place, (name, parameter) in enumerate(whole.named_parameters()):
        gradients = [step.gradients[place] for step in steps]
        errors[name] = (sum(gradients) - len(steps) * parameter.grad).abs().max().item()
    return errors


def _distance(result, expected):
    return ((result - expected).norm() / expected.norm()).item()


def _near(result, expected):
    return _distance(result, expected) < 1e-4


# The functions below run next to the learner's code.


def _compressed_step(rank, dtype):
    model, hook = _hooked("my_compress", dtype)
    return [_step(model, hook, loss(model, [new_data(rank, _SAMPLES)])) for _ in range(2)][-1]


def _compressed_entry(entry):
    """Return the average of a gradient that is `entry` on this rank, and sent in fp16."""
    model, hook = _hooked("my_compress", torch.float16)
    bias = model.module[-1].bias
    step = _step(model, hook, entry * bias[0] + 0 * _scaled_loss(model, 0, 1.0, False))
    return step.gradients[-1][0].item()


def _low_rank_step(gradient, right, missed):
    with _all_reduced() as tensors:
        result = answer("my_low_rank", [gradient, right, missed])
    return result, [tensor.numel() for tensor in tensors]


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
        """Return the learner's future, or after an error the unchanged bucket, because DDP would hide the error."""
        self.calls += 1
        try:
            future = answer(self.name, [state, bucket])
            if isinstance(future, Future):
                return future
            raise AnswerError(f"TypeError: a hook returns a future, and this hook returned a {type(future).__name__}")
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
    return HookedStep(tensors, hook.calls - before, [parameter.grad.clone() for parameter in model.parameters()])


@contextmanager
def _all_reduced():
    """List copies of the tensors that this process gives to all-reduce from Python inside the block."""
    tensors = []

    def copy(event):
        if event.name == "all_reduce":
            tensors.extend(tensor.clone() for tensor in event.inputs)

    with tap.subscribed(tap.Collective, begin=copy):
        yield tensors
