"""Exercises of 36_replicated_pipelines: a step of a replicated pipeline, and how to split ranks into pipelines."""

import time
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
from torch import nn
from torch.nn.functional import mse_loss

from helpers.checks.exam import AnswerError, exercise, missing, near, number, show, times_in_words
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import answer_with_rpc

_MIB = 2**20
# Ranks, bytes of all weights, and bytes of the activations that a stage sends.
_CUTS = [
    (8, 400 * _MIB, _MIB),
    (8, _MIB, 400 * _MIB),
    (8, 8 * _MIB, 12 * _MIB),
    (6, 3 * _MIB, 4 * _MIB),
    (12, 10 * _MIB, 6 * _MIB),
    (4, 10 * _MIB, 4 * _MIB),
    (4, _MIB, 0),
    (1, _MIB, _MIB),
    (9, 9 * _MIB, 9 * _MIB),
    (2, _MIB, _MIB),  # both cuts are equally good
]
_NUMBERS_OF_MICRO_BATCHES = (4, 2)  # the lesson has 4
_SECONDS_BUSY = 0.5  # in which the last stage computes nothing
_SOLVED = "Every stage has the gradients of one process, and all micro-batches were under way at once."


class _Step(NamedTuple):
    """What a step of the learner did on the rank of a first stage, and what one process does.

    `waited` says whether calls of `last_stage` had ended before the last one began, and `forwards_first` whether all
    forwards of the rank's own stage had begun before the first call.
    """

    all_reduces: int
    calls: int
    waited: bool
    forwards_first: bool
    result: object
    gradient: torch.Tensor | None
    expected_loss: float
    expected_gradient: torch.Tensor


@exercise
def my_step(exam):
    """Check `my_step(context, m)`: all forwards under way at once, and one backward for the mean of the losses."""
    for m in _NUMBERS_OF_MICRO_BATCHES:
        step, all_ended = exam.on_rank(_step, m)
        if step is not None:
            _judge(exam, step, m)
        if not all_ended:  # a rank whose answer raised an error takes no further step
            break
    return _SOLVED


@exercise
def best_cut(exam):
    """Check `best_cut(ranks, weights, activations)`: the number of stages with which the busiest rank sends least."""
    for ranks, weights, activations in _CUTS:
        sent = {stages: _most_sent(ranks, stages, weights, activations) for stages in _divisors(ranks)}
        expected = min(sent, key=sent.get)
        result = exam.call(ranks, weights, activations)
        stages = number(result)
        than = f", where a rank sends {sent[stages] / _MIB:.1f} MiB" if stages in sent else ""
        exam.require(
            stages == expected,
            f"For {ranks} ranks, {weights / _MIB:.0f} MiB of weights and {activations / _MIB:.0f} MiB of activations "
            f"rank {exam.rank} returned {show(result)}{than}, expected {expected}, where the busiest rank sends "
            f"{sent[expected] / _MIB:.1f} MiB.",
        )
    return "Every cut is the one in which the busiest rank sends the fewest bytes."


def _judge(exam, step, m):
    """Require that a step with m micro-batches is right."""
    who = f"Rank {exam.rank}"
    exam.require(
        step.calls == m,
        f"{who} called `last_stage` {times_in_words(step.calls)}, expected {m} times, once for each micro-batch.",
    )
    exam.require(
        not step.waited,
        f"{who} waited for each micro-batch before it began the next micro-batch, expected all of them to be under "
        "way at once.",
    )
    exam.require(
        not step.forwards_first,
        f"{who} began its last forward before it called `last_stage` for the first time, expected a call after each "
        "forward: otherwise the last stage is idle during all these forwards.",
    )
    if exam.require(
        step.gradient is not None,
        f"All calls are right, but after the step of rank {exam.rank} its stage has no gradient, expected the gradient "
        "of one process: call `dist_autograd.backward` in the context.",
    ):
        exam.require(
            step.all_reduces == 1,
            f"DDP all-reduced {times_in_words(step.all_reduces)} on rank {exam.rank}, expected as often as in one "
            "call of `dist_autograd.backward` through `stage`.",
        )
        fault = _fault_of_gradient(step.gradient, step.expected_gradient)
        exam.require(not fault, f"The gradient of rank {exam.rank} {fault}")
    exam.require(
        near(step.result, step.expected_loss, 1e-6),
        f"The gradients are right, but rank {exam.rank} returned {show(step.result)}, expected "
        f"{step.expected_loss:.4f}, the mean of the losses.",
    )


def _step(m):
    """Let the first stages do a step with m micro-batches; for a moment, the last stages are busy.

    Return what a first stage did, or None, and whether no rank raised an error.
    """
    lesson = vars(learners_module())
    for name in ("new_stage", "last_stage", "takes_part", "drives", "reduced", "lock"):
        if name not in lesson:
            raise AnswerError(missing(name))
    lesson["new_stage"]()
    step, errors = None, torch.ones(())
    try:
        if lesson["drives"]:
            dist.barrier()
            step = _driven(lesson, m)
        else:
            with lesson["lock"]:
                dist.barrier()
                time.sleep(_SECONDS_BUSY)
        errors.zero_()
    finally:
        dist.all_reduce(errors)
    return step, not errors


def _driven(lesson, m):
    forwards = []  # when each forward of the own stage began
    lesson["stage"].register_forward_pre_hook(lambda *_: forwards.append(time.monotonic()))
    with dist_autograd.context() as context:
        result, made = answer_with_rpc("my_step", [context, m])
        gradient = dist_autograd.get_gradients(context).get(lesson["stage"].module.linear.weight)
        gradient = None if gradient is None else gradient.clone()
    calls = [call for call in made if call.function == "last_stage"]
    # The first call cannot end before the last stage is free again, and its end is noted by another thread.
    waited = len(calls) > 1 and (
        calls[0].kind == "sync" or calls[0].end is not None and calls[-1].begin > calls[0].end - _SECONDS_BUSY / 5
    )
    loss, expected_loss, expected = _one_process(lesson)
    loss.backward()
    return _Step(
        all_reduces=len(lesson["reduced"]),
        calls=len(calls),
        waited=waited,
        forwards_first=bool(calls and forwards) and forwards[-1] < calls[0].begin,
        result=result,
        gradient=gradient,
        expected_loss=expected_loss.item(),
        expected_gradient=expected.weight.grad,
    )


def _one_process(lesson):
    """Return the loss of all samples, the loss of this pipeline's shard, and the layer of the first stage."""
    first, second = (lesson["Layer"](lesson["SEED"] + stage) for stage in range(2))
    model = nn.Sequential(first, second)
    shard_loss = mse_loss(model(lesson["my_inputs"]), lesson["my_targets"])
    return mse_loss(model(lesson["inputs"]), lesson["targets"]), shard_loss, first.linear


def _fault_of_gradient(gradient, expected):
    """Return the end of a sentence about a gradient that is not the expected gradient, or ""."""
    if torch.allclose(gradient, expected, rtol=1e-9):
        return ""
    factor = (gradient.norm() / expected.norm()).item()
    if torch.allclose(gradient, factor * expected, rtol=1e-9):
        return f"is {factor:.2f} times the gradient of one process, expected 1.00 times."
    return "differs, expected the gradient of one process."


def _divisors(ranks):
    return [stages for stages in range(1, ranks + 1) if ranks % stages == 0]


def _most_sent(ranks, stages, weights, activations):
    replicas = ranks // stages
    neighbours = min(stages - 1, 2)
    return neighbours * activations / replicas + 2 * (replicas - 1) / replicas * weights / stages
