"""Exercises of 09_overlap."""

from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from helpers import tap
from helpers.checks.exam import answer, errors_of_answer, exercise, near, plain, show, times_in_words
from helpers.checks.judging import RESTART
from helpers.checks.small_model import compare_gradients, loss, new_data, new_model
from helpers.measure import timeline

_IMAGES, _STEPS = 3, 3
_GRADIENT, _END_OF_BACKWARD = "gradient", "end of backward"
_LIMITS = (torch.float32, 1200), (torch.float64, 1200), (torch.float32, 512), (torch.float32, 8)
_SIZES = 32, 4, 300, 64, 64, 128, 16, 20, 4  # of parameters, in elements
# Times at which a rank computed, times at which its all-reduces ran, and the exposed seconds.
_TIMES = (
    ([(0, 3)], [(3, 5)], 2),
    ([(0, 3)], [(1, 2)], 0),
    ([(0, 3)], [(1, 2), (2, 5)], 2),
    ([(0, 1), (1, 3), (6, 7)], [(3, 5)], 2),  # the optimizer computes last
    ([(0, 2), (4, 5)], [(1, 3)], 1),
    ([(0, 2), (3, 4)], [(1, 6)], 3),
    ([(0, 3)], [(2, 6), (4, 5)], 3),  # one all-reduce within another
    ([(0, 3)], [(2, 5), (4, 7)], 4),
    ([(5, 6), (0, 4), (1, 2)], [(6, 8), (1, 3), (4, 5.5)], 3),
    ([(0, 10), (2, 3)], [(4, 5), (9, 11)], 1),
)


class Launch(NamedTuple):
    """An all-reduce: its bytes, and the numbers of the parameters whose gradients were complete before it."""

    nbytes: int
    complete: list[int]


class OverlappedStep(NamedTuple):
    """What a step did: its calls, as pairs of a name and bytes; its all-reduces, DDP's included; its gradients."""

    calls: list
    all_reduces: int
    gradients: list


@exercise
def MyEarlyBucket(exam):
    """Check `MyEarlyBucket(parameters)`: its hooks launch it in each backward pass, and `finish` leaves the averages.

    The model has two buckets. In a step that lacks a launch, `finish` is not called, because it would wait in vain.
    """
    rank, n = exam.rank, exam.n
    model = new_model().double()
    sizes = [parameter.nbytes for parameter in model.parameters()]
    for number, step in enumerate(exam.on_rank(_steps_of_early_buckets, rank, n)):
        who = f"In step {number + 1}, rank {rank}"
        launches = _launches(step.calls)
        for name, members in (
            ("the bucket of the last layers", [2, 3, 4, 5]),
            ("the bucket of the first layer", [0, 1]),
        ):
            _require_launch(exam, who, name, members, sum(sizes[member] for member in members), launches)
        exam.require(
            len(launches) <= 2,
            f"{who} called all_reduce {times_in_words(len(launches))}, expected twice, once for each bucket.",
        )
        exam.require(
            "wait" not in _before(_END_OF_BACKWARD, [call for call, _ in step.calls]),
            f"{who} waited for a bucket before the backward pass had ended, expected a wait in `finish` only.",
        )
        if len(launches) == 2:
            _require_averages(exam, f"After `finish` in step {number + 1}", step.gradients, number)
            waits = sum(call == "wait" for call, _ in step.calls)
            exam.require(
                waits >= 2,
                f"{who} waited for {waits} of its 2 buckets in `finish`, expected a wait for both. {RESTART}",
            )
    return "In each step, both buckets were launched as soon as they were full, and the gradients are the averages."


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
    """Check `two_buckets(model)`: a variant with two buckets, of which the first travels during the backward pass.

    The first step may have other buckets, as DDP's first step has. The profiler counts the all-reduces, because DDP's
    do not come from Python; what a rank sends and waits for is seen only if the calls come from Python.
    """
    steps = exam.on_rank(_steps_of_two_buckets, exam.rank, exam.n)
    if exam.require(
        isinstance(steps, list), f"Rank {exam.rank} returned {steps}, expected a model and a function `finish`."
    ):
        size = sum(parameter.nbytes for parameter in new_model().double().parameters())
        for number, step in enumerate(steps):
            if number > 0 or any(call == "all_reduce" for call, _ in step.calls):
                _require_two_buckets(exam, step, size)
            _require_averages(exam, f"After `finish` in step {number + 1}", step.gradients, number)
    return "Every rank has the averages, and its first bucket travelled while the backward pass still ran."


@exercise
def exposed_seconds(exam):
    """Check `exposed_seconds(computing, communicating)`: the seconds of communication without computation."""
    for computing, communicating, expected in _TIMES:
        result = exam.call(list(computing), list(communicating))
        exam.require(
            near(result, float(expected)),
            f"With computing = {computing} and communicating = {communicating}, rank {exam.rank} returned "
            f"{show(result)}, expected {expected}.",
        )
    return f"The exposed seconds are right in all {len(_TIMES)} cases."


def _launches(calls):
    """Return a `Launch` for each all-reduce."""
    launches, complete = [], []
    for call, value in calls:
        if call == _GRADIENT:
            complete.append(value)
        elif call == "all_reduce":
            launches.append(Launch(value, list(complete)))
        elif call == _END_OF_BACKWARD:
            complete.append(call)
    return launches


def _require_launch(exam, who, name, members, nbytes, launches):
    """Require one launch of a bucket, when its gradients are complete and before others are."""
    of_bucket = [launch for launch in launches if launch.nbytes == nbytes]
    times = f"launched {name} {len(of_bucket)} times" if of_bucket else f"did not launch {name}"
    if exam.require(len(of_bucket) == 1, f"{who} {times}, expected one launch in every step."):
        complete = of_bucket[0].complete
        exam.require(
            set(members) <= set(complete),
            f"{who} launched {name} before all of its gradients were complete, expected a launch of the full bucket.",
        )
        exam.require(
            _END_OF_BACKWARD not in complete and (0 in members or not {0, 1} & set(complete)),
            f"{who} launched {name} too late, expected a launch as soon as the bucket is full.",
        )


def _require_averages(exam, when, gradients, number):
    """Require the gradients of one process on the data of all ranks in step `number`."""
    result, reference = new_model().double(), new_model().double()
    for parameter, gradient in zip(result.parameters(), gradients, strict=True):
        parameter.grad = gradient
    loss(reference, _data(number, exam.n)).backward()
    difference = compare_gradients(result, reference, tolerance=1e-6)
    exam.require(not difference, f"{when}, on rank {exam.rank} {difference} the mean over all ranks.")


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
    """Require the right buckets; `buckets` and `sizes` give each parameter by its number."""
    rank = exam.rank
    for number, bucket in enumerate(buckets):
        exam.require(bucket, f"Bucket {number} of rank {rank} is empty, expected at least one parameter.")
        # Without its last parameter a bucket is not full yet.
        full = next((size for size in _running_sums(bucket[:-1], sizes) if size >= limit), None)
        exam.require(
            full is None,
            f"Bucket {number} of rank {rank} continues after {full} bytes, expected it to close at the limit of "
            f"{limit}.",
        )
    shared_out = sum(buckets, [])
    for parameter in range(len(sizes)):
        count = shared_out.count(parameter)
        exam.require(
            count == 1, f"On rank {rank} parameter {parameter} of {len(sizes)} is in {count} buckets, expected 1."
        )
    exam.require(
        shared_out == sorted(shared_out, reverse=True),
        f"The buckets of rank {rank} hold the parameters {buckets}, expected the order from last to first.",
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
    """Require the right calls of a step, in the right order; `size` is the size of all gradients in bytes."""
    rank, calls = exam.rank, [call for call, _ in step.calls]
    times = {0: "did not call all_reduce", 1: "called all_reduce once"}
    done = times.get(step.all_reduces, f"called all_reduce {step.all_reduces} times")
    exam.require(step.all_reduces == 2, f"Rank {rank} {done} in a step, expected twice.")
    if "all_reduce" not in calls:  # DDP's, which launches in backward and waits at its end
        return
    sent = sum(nbytes for call, nbytes in step.calls if call == "all_reduce")
    exam.require(
        sent == size, f"Rank {rank} sent {sent} bytes in its buckets, expected {size}, the size of the gradients."
    )
    exam.require(
        "all_reduce" in _before(_GRADIENT, calls),
        f"Rank {rank} launched its first bucket after the last gradient was complete, expected an earlier launch.",
    )
    exam.require(
        "wait" not in _before(_END_OF_BACKWARD, calls),
        f"Rank {rank} waited for a bucket before the backward pass had ended, expected a wait in `finish` only.",
    )
    waited = "waited for only one of its buckets" if "wait" in calls else "never waited for a bucket"
    exam.require(calls.count("wait") >= 2, f"Rank {rank} {waited}, expected a wait for both. {RESTART}")


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


# The functions below run next to the learner's code.


def _steps_of_early_buckets(rank, n):
    """Return the `OverlappedStep`s that a model makes with two buckets of the learner's class."""
    model, calls = new_model().double(), []
    for number, parameter in enumerate(model.parameters()):
        # The first hook of a parameter is called first.
        parameter.register_post_accumulate_grad_hook(lambda _, number=number: calls.append((_GRADIENT, number)))
    parameters = list(model.parameters())
    # A bucket gets its parameters in either order: the gradient that is complete last can be the first or the last.
    buckets = [answer("MyEarlyBucket", [part]) for part in (parameters[:2], parameters[:1:-1])]
    steps = []
    with errors_of_answer():
        for number in range(_STEPS):
            calls.clear()
            with _recorded(calls):
                model.zero_grad()
                loss(model, [_data(number, n)[rank]]).backward()
                calls.append((_END_OF_BACKWARD, 0))
                all_launched = sum(call == "all_reduce" for call, _ in calls) == 2
                if all_launched:
                    for bucket in buckets:
                        bucket.finish()
            steps.append(OverlappedStep(list(calls), 2, _gradients(model)))
            if not all_launched:
                break
    return steps


def _gradients(model):
    return [None if p.grad is None else p.grad.detach().clone() for p in model.parameters()]


def _steps_of_two_buckets(rank, n):
    """Return the steps that the answer's model and function make, or what the answer has returned instead."""
    model, calls = new_model().double(), []
    # The first hook of a parameter is called first. Which of a layer's two gradients is the last is left open.
    model[0].weight.register_post_accumulate_grad_hook(lambda _: calls.append((_GRADIENT, 0)))
    pair = answer("two_buckets", [model])
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(callable, pair)):
        return show(plain(pair))
    wrapped, finish = pair
    steps = []
    with errors_of_answer():
        for number in range(_STEPS):
            calls.clear()
            with timeline.recorded() as intervals, _recorded(calls):
                wrapped.zero_grad()
                loss(wrapped, [_data(number, n)[rank]]).backward()
                calls.append((_END_OF_BACKWARD, 0))
                finish()
            all_reduces = sum(interval.name.endswith(":all_reduce") for interval in intervals)
            steps.append(OverlappedStep(list(calls), all_reduces, _gradients(model)))
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
