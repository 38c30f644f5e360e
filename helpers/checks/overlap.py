"""Exercises of 09_overlap."""

from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from helpers import tap
from helpers.checks.exam import answer, errors_of_answer, exercise, plain, show
from helpers.checks.judging import RESTART
from helpers.checks.small_model import loss, new_data, new_model
from helpers.measure import timeline

_IMAGES, _STEPS = 3, 3
_BUCKETS = "the bucket of the last layers", "the bucket of the first layer"
_LAST_GRADIENT, _END_OF_BACKWARD = "last gradient", "end of backward"
_LIMITS = (torch.float32, 1200), (torch.float64, 1200), (torch.float32, 512), (torch.float32, 8)
_SIZES = 32, 4, 300, 64, 64, 128, 16, 20, 4  # of parameters, in elements


class Launch(NamedTuple):
    """A bucket that was launched, whether it held all of its gradients, and whether backward still had work to do."""

    bucket: str
    full: bool
    early: bool


class Step(NamedTuple):
    """What a step did: its calls, as pairs of a name and bytes; its all-reduces, DDP's included; its weights."""

    calls: list
    all_reduces: int
    weights: list[torch.Tensor]


@exercise
def my_hooks(exam):
    """Check `my_hooks(bucket, launch)`: its hooks launch a bucket once a step, as soon as it has all gradients.

    The model has two buckets, with hooks of their own.
    """
    steps = exam.on_rank(_steps_with_hooks, exam.rank, exam.n)
    for step, launches in enumerate(steps, start=1):
        for bucket in _BUCKETS:
            _require_launch(exam, f"In step {step}, rank {exam.rank}", bucket, launches)
    return "In each step, every rank launched each bucket once, as soon as all gradients were in the bucket."


@exercise
def buckets_by_size(exam):
    """Check `buckets_by_size(parameters, limit)`: a bucket is full when it has reached the limit, as with DDP."""
    for dtype, limit in _LIMITS:
        # Each parameter holds its own number.
        parameters = [nn.Parameter(torch.full((size,), place, dtype=dtype)) for place, size in enumerate(_SIZES)]
        sizes = [parameter.nbytes for parameter in parameters]
        result = exam.call(list(parameters), limit)
        buckets = _numbers_in(result, parameters)
        if exam.require(
            buckets is not None, f"Rank {exam.rank} returned {show(result)}, expected a list of lists of parameters."
        ):
            _require_buckets(exam, limit, sizes, buckets)
    return "Every rank has filled its buckets as DDP does, from the last parameter to the first."


@exercise
def two_buckets(exam):
    """Check `two_buckets(model)`: a variant with two buckets, of which the first travels while backward still runs.

    The first step may have other buckets, as that of DDP has. Which all-reduces a step makes is seen by the profiler,
    because those of DDP do not come from Python; what is sent and waited for is seen only where they do.
    """
    rank = exam.rank
    steps = exam.on_rank(_steps_of_two_buckets, rank, exam.n)
    if exam.require(isinstance(steps, list), f"Rank {rank} returned {steps}, expected a model and a function."):
        whole = new_model().double()
        optimizer = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
        size = sum(parameter.nbytes for parameter in whole.parameters())
        for number, step in enumerate(steps):
            if number > 0 or any(call == "all_reduce" for call, _ in step.calls):
                _require_two_buckets(exam, step, size)
            optimizer.zero_grad()
            loss(whole, _data(number, exam.n)).backward()
            optimizer.step()
            exam.require(
                _close(step.weights, list(whole.parameters())),
                f"After step {number}, the weights of rank {rank} are not those of one process.",
            )
    return "Every rank has the weights of one process, and its first bucket travelled while backward still ran."


def _require_launch(exam, who, bucket, launches):
    """Require that a step has one launch of a bucket, with all of its gradients and before backward has ended."""
    of_bucket = [launch for launch in launches if launch.bucket == bucket]
    times = f"launched {bucket} {len(of_bucket)} times" if of_bucket else f"did not launch {bucket}"
    if exam.require(len(of_bucket) == 1, f"{who} {times}, expected one launch in every step."):
        exam.require(
            of_bucket[0].full,
            f"{who} launched {bucket} before all of its gradients were taken, expected a full bucket.",
        )
        exam.require(
            bucket == _BUCKETS[1] or of_bucket[0].early,
            f"{who} launched {bucket} after backward had computed the gradients of the first layer, "
            "expected a launch as soon as the bucket is full.",
        )


def _numbers_in(buckets, parameters):
    """Return buckets of these parameters as lists of the parameters' numbers, or None for anything else."""
    if not isinstance(buckets, list | tuple) or not all(isinstance(bucket, list | tuple) for bucket in buckets):
        return None
    numbers = [[_number_of(parameter, parameters) for parameter in bucket] for bucket in buckets]
    return None if any(None in bucket for bucket in numbers) else numbers


def _number_of(value, parameters):
    for number, parameter in enumerate(parameters):
        if isinstance(value, nn.Parameter) and _close([value], [parameter]):
            return number
    return None


def _require_buckets(exam, limit, sizes, buckets):
    """Require the right buckets; they and `sizes` are given by the numbers of the parameters."""
    rank = exam.rank
    for number, bucket in enumerate(buckets):
        exam.require(bucket, f"Bucket {number} of rank {rank} is empty.")
        # Without its last parameter a bucket is not full yet.
        full = next((size for size in _running_sums(bucket[:-1], sizes) if size >= limit), None)
        exam.require(
            full is None,
            f"Bucket {number} of rank {rank} goes on after it has reached {full} bytes, and the limit is {limit}.",
        )
    shared_out = sum(buckets, [])
    for parameter in range(len(sizes)):
        count = shared_out.count(parameter)
        exam.require(
            count == 1, f"On rank {rank} parameter {parameter} of {len(sizes)} is in {count} buckets, expected 1."
        )
    exam.require(
        shared_out == sorted(shared_out, reverse=True),
        f"The buckets of rank {rank} hold the parameters {buckets}, expected from last to first.",
    )
    for number, bucket in enumerate(buckets[:-1]):
        size = sum(sizes[parameter] for parameter in bucket)
        exam.require(
            size >= limit,
            f"Bucket {number} of rank {rank} ends with {size} bytes, before it has reached the limit of {limit}.",
        )


def _running_sums(bucket, sizes):
    total = 0
    for parameter in bucket:
        total += sizes[parameter]
        yield total


def _require_two_buckets(exam, step, size):
    """Require that a step has made the right calls in the right order; `size` is that of all gradients, in bytes."""
    rank, calls = exam.rank, [call for call, _ in step.calls]
    times = {0: "did not call all_reduce", 1: "called all_reduce once"}
    done = times.get(step.all_reduces, f"called all_reduce {step.all_reduces} times")
    exam.require(step.all_reduces == 2, f"Rank {rank} {done} in a step, expected twice.")
    if "all_reduce" not in calls:  # DDP's, which launches in backward and waits at its end
        return
    sent = sum(nbytes for call, nbytes in step.calls if call == "all_reduce")
    exam.require(sent == size, f"The buckets of rank {rank} hold {sent} bytes, and the gradients {size}.")
    exam.require(
        "all_reduce" in _before(_LAST_GRADIENT, calls),
        f"Rank {rank} launched its first bucket after backward had computed the last gradient.",
    )
    exam.require(
        "wait" not in _before(_END_OF_BACKWARD, calls),
        f"Rank {rank} waited for a bucket before backward had ended.",
    )
    waited = "waited for only one of its buckets" if "wait" in calls else "never waited for a bucket"
    exam.require(calls.count("wait") >= 2, f"Rank {rank} {waited}. {RESTART}")


def _close(tensors, expected):
    """Return whether tensors have the expected shapes, dtypes and, except for rounding, values."""
    forms = [[(tensor.shape, tensor.dtype) for tensor in several] for several in (tensors, expected)]
    if forms[0] != forms[1]:
        return False
    return all(torch.allclose(mine, right, rtol=1e-6) for mine, right in zip(tensors, expected, strict=True))


def _before(name, calls):
    return calls[: calls.index(name)] if name in calls else calls


def _data(step, n):
    """Return the images of all ranks in a step."""
    return [new_data(step * n + rank, _IMAGES) for rank in range(n)]


# What follows runs beside the learner's code.


class Bucket:
    """A bucket as the lesson has it, without a group: it is never sent."""

    def __init__(self, parameters, ranks):
        sizes = [parameter.numel() for parameter in parameters]
        self.ranks = ranks
        self.flat = torch.zeros(sum(sizes))
        parts = self.flat.split(sizes)
        self.views = {parameter: part.view_as(parameter) for parameter, part in zip(parameters, parts, strict=True)}

    def take(self, parameter):
        """Copy the gradient of a parameter to its place, divided by the number of ranks."""
        self.views[parameter].copy_(parameter.grad / self.ranks)

    def full(self):
        """Return whether the bucket holds the gradients of all its parameters."""
        pairs = self.views.items()
        return all(p.grad is not None and view.equal(p.grad / self.ranks) for p, view in pairs)


def _steps_with_hooks(rank, n):
    """Return the launches of each step, by the hooks that the learner's function has registered."""
    model = new_model()
    first, last = list(model[0].parameters()), list(model[1:].parameters())
    buckets = [Bucket(last, n), Bucket(first, n)]
    steps = []

    def launch(bucket):
        if bucket not in buckets:
            raise TypeError(f"launch got a {type(bucket).__name__}, expected the bucket of `my_hooks`")
        early = all(parameter.grad is None for parameter in first)
        steps[-1].append(Launch(_BUCKETS[buckets.index(bucket)], bucket.full(), early))

    for bucket in buckets:
        answer("my_hooks", [bucket, launch])
    with errors_of_answer():
        for number in range(_STEPS):
            steps.append([])
            for bucket in buckets:
                bucket.flat.zero_()
            model.zero_grad()
            loss(model, [_data(number, n)[rank]]).backward()
    return steps


def _steps_of_two_buckets(rank, n):
    """Return the steps that the answer's model and function make, or what the answer has returned instead."""
    model, calls = new_model().double(), []
    # The first hook of a parameter is called first. Which of a layer's two gradients is the last is left open.
    model[0].weight.register_post_accumulate_grad_hook(lambda _: calls.append((_LAST_GRADIENT, 0)))
    pair = answer("two_buckets", [model])
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(callable, pair)):
        return show(plain(pair))
    called, update = pair
    steps = []
    with errors_of_answer():
        for number in range(_STEPS):
            calls.clear()
            with timeline.recorded() as intervals, _recorded(calls):
                called.zero_grad()
                loss(called, [_data(number, n)[rank]]).backward()
                calls.append((_END_OF_BACKWARD, 0))
                update()
            all_reduces = sum(interval.name.endswith(":all_reduce") for interval in intervals)
            steps.append(Step(list(calls), all_reduces, [weight.detach().clone() for weight in model.parameters()]))
    return steps


@contextmanager
def _recorded(calls):
    """Append every all_reduce of this process, with its bytes, and every wait to `calls`."""

    def note_all_reduce(event):
        if event.name == "all_reduce":
            calls.append(("all_reduce", sum(tensor.nbytes for tensor in event.inputs)))

    def note_wait(event):
        calls.append(("wait", 0))

    with tap.subscribed(tap.Collective, begin=note_all_reduce), tap.subscribed(tap.Wait, begin=note_wait):
        yield
