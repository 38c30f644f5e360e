"""Exercises of 29_hybrid_proof: the one process, the trainers' turns, the order of events, and one rate for both parts.

The first ranks are the trainers, and the last two are master and server.
"""

import time

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.nn.functional import cross_entropy

from helpers.checks.exam import AnswerError, Wrong, answer, errors_of_answer, exercise, near, number, plain, show
from helpers.checks.hybrid_ddp_rpc import (
    Weights,
    batch,
    gradients_of_one_process,
    kept,
    loss_of_one_process,
    takes_part,
    weights_of,
)
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import one_line_errors

_NUMBERS = list(range(48))  # of passages, which two to four trainers can share evenly
_RATE = 0.5  # of the lesson
_RATE_OF_BOTH = 0.3  # for `one_rate`
_BATCHES = [_NUMBERS[start : start + 12] for start in (0, 12, 24, 36)]
_SECONDS = 0.05  # for a step of the last trainer; the trainers before it take longer
_SECONDS_LATE = 1  # longer than an answer sleeps that gives each trainer its own time instead of waiting


@exercise
def my_one_process(exam):
    """Check `my_one_process(model, batches)`: a local model takes the steps of a hybrid training with all trainers."""
    if takes_part(exam):
        returned, before, after = exam.on_rank(_train_in_one_process)
        expected = _expected_of_one_process(before, exam)
        fault = (
            _fault_of_type(returned)
            or _fault_of_first_step(before, after[0], expected[1][0], exam.n - 2)
            or _fault_of_later_steps(after[1], expected[1][-1])
            or _fault_of_records(returned, before, expected)
        )
        exam.require(not fault, f"On trainer {exam.rank} {fault}")
    return "Both parts of the model take the steps of the hybrid training, and both lists are right."


@exercise
def my_order(exam):
    """Check `my_order(passes, first, second)`: the order of two events in recorded passes."""
    for expected, passes in (
        ("always", [{"b": 3.0, "a": 1.0}, {"b": 9.0, "a": 8.0}]),
        ("never", [{"a": 3.0, "b": 1.0}, {"a": 9.0, "b": 8.0}]),
        ("varies", [{"a": 1.0, "b": 3.0}, {"a": 9.0, "b": 8.0}, {"a": 10.0, "b": 12.0}]),
        ("varies", [{"a": 3.0, "b": 1.0}, {"a": 8.0, "b": 9.0}, {"a": 12.0, "b": 10.0}]),
    ):
        result = exam.call(passes, "a", "b")
        times = ", ".join(f"({events['a']:.0f}, {events['b']:.0f})" for events in passes)
        exam.require(
            isinstance(result, str) and result == expected,
            f'For passes with a and b at the times {times}, `my_order(passes, "a", "b")` returned {result!r}, '
            f"expected {expected!r}.",
        )
    return "Passes with each of the three orders are recognised."


def _judge_turns(returned):
    in_time, late = zip(*returned[:-2], strict=True)  # the last two are master and server
    if fault := fault_of_turns(in_time):
        raise Wrong(fault)
    if fault := fault_of_turns(late):
        raise Wrong(f"Trainer 0 called `my_turns` {_SECONDS_LATE} s after the others. {fault}")
    return "The trainers step in the order of their ranks, and no trainer goes on before the last trainer has stepped."


@exercise(together=_judge_turns)
def my_turns(exam):
    """Check `my_turns(optimizer, context)`: the trainers step one after another, and return when all have stepped.

    The second time, trainer 0 is late, so an answer that only sleeps is refused.
    """
    return exam.on_rank(_turns_of_the_answer) if takes_part(exam) else None


@exercise
def one_rate(exam):
    """Check `one_rate(model, rate)`: an optimizer that trains both parts of a hybrid model at one rate.

    The trainers share one table and step one after another.
    """
    if takes_part(exam):
        before = exam.on_rank(_make_with_one_table)
        after, no_optimizer = exam.on_rank(_steps_in_turn, _NUMBERS[exam.rank :: exam.n - 2])
        exam.require(
            not no_optimizer,
            f"On trainer {exam.rank} `one_rate` returned {no_optimizer}, expected an object with a method `step`.",
        )
        expected = gradients_of_one_process(before, exam.on_rank(batch, _NUMBERS))
        for name, part in (("dense layer", "dense"), ("table", "table")):
            gradient = getattr(expected, part)
            move = (getattr(before, part) - getattr(after, part)) / _RATE_OF_BOTH
            times = ((move * gradient).sum() / (gradient * gradient).sum()).item()
            exam.require(
                near(times, 1, 1e-6),
                f"On trainer {exam.rank} the {name} moves {times:.2f} times as far as in one process, expected 1.00 "
                "times.",
            )
    return "Both parts move as in one process."


def turns_noted(function: str):
    """Call a function of the lesson on a trainer; return when its steps began and ended, and when it returned."""
    optimizer = _SlowOptimizer()
    vars(learners_module())[function](optimizer, None)
    return optimizer.noted, time.monotonic()


def fault_of_turns(noted: list) -> str:
    """Return a sentence that says what is wrong with the trainers' turns, or "" if nothing is.

    `noted` holds the result of `turns_noted` for each trainer. All ranks are on one machine and read one clock.
    """
    for trainer, (steps, _) in enumerate(noted):
        if len(steps) != 1:
            return f"Trainer {trainer} took {len(steps)} steps, expected 1."
    steps = [steps[0] for steps, _ in noted]
    for trainer, ((_, end), (begin, _)) in enumerate(zip(steps, steps[1:], strict=False)):
        if begin < end:
            later = trainer + 1
            return f"Trainer {later} stepped before trainer {trainer} had stepped, expected trainer {later} to wait."
    for trainer, (_, returned) in enumerate(noted):
        if returned < steps[-1][1]:
            return f"Trainer {trainer} returned before the last trainer had stepped, expected every trainer to wait."
    return ""


def _expected_of_one_process(weights, exam):
    """Return the loss of each batch, and the weights after each step, of a right answer."""
    losses, after = [], []
    for numbers in _BATCHES:
        data = exam.on_rank(batch, numbers)
        losses.append(loss_of_one_process(weights, data).item())
        gradient = gradients_of_one_process(weights, data)
        weights = Weights(
            weights.dense - _RATE * gradient.dense,
            weights.bias - _RATE * gradient.bias,
            weights.table - (exam.n - 2) * _RATE * gradient.table,
        )
        after.append(weights)
    return losses, after


def _fault_of_type(returned):
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        return f"`my_one_process` returned {show(returned)}, expected two lists: the losses and the dense weights."
    for values, name in zip(returned, ("losses", "dense weights"), strict=True):
        if not hasattr(values, "__len__") or isinstance(values, str) or len(values) != len(_BATCHES):
            return (
                f"`my_one_process` returned {show(values)} as the {name} of {len(_BATCHES)} batches, expected a list "
                f"of {len(_BATCHES)}."
            )
    return ""


def _fault_of_first_step(before, after, expected, trainers):
    """Compare the step on the first batch, part by part, as a multiple of the expected step."""
    for name, part in (("dense layer", "dense"), ("bias of the dense layer", "bias"), ("table", "table")):
        step = getattr(expected, part) - getattr(before, part)
        move = getattr(after, part) - getattr(before, part)
        times = ((move * step).sum() / (step * step).sum()).item()
        if not torch.allclose(move, step, rtol=1e-6, atol=1e-9):
            return (
                f"the first step moved the {name} {times:.2f} times as far as the hybrid training with {trainers} "
                "trainers, expected 1.00 times."
            )
    return ""


def _fault_of_later_steps(after, expected):
    for name, part in (("dense layer", "dense"), ("table", "table")):
        if not torch.allclose(getattr(after, part), getattr(expected, part), rtol=1e-6, atol=1e-9):
            return (
                f"the first step is right, but after {len(_BATCHES)} batches the {name} differs, expected steps along "
                "the gradient of one batch each. Are old gradients left over?"
            )
    return ""


def _fault_of_records(returned, before, expected):
    losses, dense_weights = returned
    for place, (loss, right) in enumerate(zip(losses, expected[0], strict=True)):
        if not near(loss, right, 1e-6):
            shown = show(loss) if number(loss) is not None else f"a {type(loss).__name__}"
            return f"the model is right, but the loss of batch {place} is {shown}, expected {right:.4f}."
    for place, (weights, right) in enumerate(zip(dense_weights, expected[1], strict=True)):
        if not hasattr(weights, "shape") or tuple(weights.shape) != tuple(right.dense.shape):
            return f"the model is right, but the dense weights of batch {place} are {show(weights)}, expected a tensor."
        if torch.allclose(weights, right.dense):
            continue
        if torch.allclose(weights, expected[1][-1].dense):
            return (
                f"the model is right, but the dense weights of batch {place} equal those of the last batch, expected a "
                "copy after each step: `detach` without `clone` shares the memory."
            )
        if torch.allclose(weights, before.dense):
            return (
                "the model is right, but the dense weights of batch 0 were copied before the step, expected after it."
            )
        return f"the model is right, but the dense weights of batch {place} differ, expected those after its step."
    return ""


# On a trainer, the functions below run in the process of the learner's code.


class _Local(nn.Module):
    """A small hybrid model in one process, with weights from a seed of its own."""

    def __init__(self):
        super().__init__()
        lesson = vars(learners_module())
        seeded = torch.Generator().manual_seed(7)
        self.dense = nn.Linear(16, 6)
        self.table = nn.EmbeddingBag(len(lesson["words"]), 16, mode="sum", sparse=True)
        with torch.no_grad():
            for weights in self.parameters():
                weights.copy_(torch.randn(weights.shape, generator=seeded))

    def forward(self, rows, offsets):
        return self.dense(self.table(rows, offsets))

    def weights(self):
        return Weights(*[values.detach().clone() for values in (self.dense.weight, self.dense.bias, self.table.weight)])


def _train_in_one_process():
    """Train a model with the answer: first on one batch, then another model on all batches."""
    model, twin = _Local(), _Local()
    before = model.weights()
    answer("my_one_process", [twin, _BATCHES[:1]])
    returned = answer("my_one_process", [model, [list(numbers) for numbers in _BATCHES]])
    return returned, before, (twin.weights(), model.weights())


class _SlowOptimizer:
    """Record when each step begins and ends; the lower the rank, the slower the step."""

    def __init__(self):
        self.noted = []

    def step(self, context):
        begin = time.monotonic()
        time.sleep(_SECONDS * (dist.get_world_size() - dist.get_rank()))
        self.noted.append((begin, time.monotonic()))


def _turns_of_the_answer():
    """Call the answer twice, the second time with trainer 0 late; return what `turns_noted` returns, for each call."""
    noted = []
    for seconds_late in (0, _SECONDS_LATE):
        if dist.get_rank() == 0:
            time.sleep(seconds_late)
        optimizer = _SlowOptimizer()
        answer("my_turns", [optimizer, None])
        noted.append((optimizer.noted, time.monotonic()))
    return noted


def _make_with_one_table() -> Weights:
    """Make a hybrid model with a table that all trainers share; return its weights."""
    lesson = vars(learners_module())
    with one_line_errors():
        if dist.get_rank() == 0:
            keep_table(lesson["new_table"]())
            for trainer in range(1, dist.get_world_size()):
                rpc.rpc_sync(f"trainer{trainer}", keep_table, (kept["table"],))
        dist.barrier()
        kept["model"] = lesson["HybridModel"](kept["table"])
        return weights_of(kept["model"])


def keep_table(table):
    """Keep the table that trainer 0 made for all."""
    kept["table"] = table


def _steps_in_turn(numbers) -> tuple[Weights, str]:
    """Have each trainer step with the learner's optimizer in its turn; return the weights after all steps.

    Also return a description of the learner's result if it has no method `step`, otherwise an empty string.
    """
    model = kept["model"]
    optimizer = answer("one_rate", [model, _RATE_OF_BOTH])
    no_optimizer = "" if hasattr(optimizer, "step") else show(plain(optimizer))
    raised = None
    with dist_autograd.context() as context:
        words, offsets, label = batch(numbers)
        loss = cross_entropy(model(words, offsets), label.to(model.device))
        dist_autograd.backward(context, [loss])
        for turn in range(dist.get_world_size()):
            dist.barrier()
            if turn == dist.get_rank() and not no_optimizer:
                try:
                    with errors_of_answer():
                        optimizer.step(context)
                except AnswerError as error:
                    raised = error
        dist.barrier()
    if raised:
        raise raised
    return weights_of(model), no_optimizer
