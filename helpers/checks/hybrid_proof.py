"""Exercises of 29_hybrid_proof: the trainers take turns, and one rate for both parts of a hybrid model."""

import time

import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.nn.functional import cross_entropy

from helpers.checks.exam import AnswerError, Wrong, answer, errors_of_answer, exercise, near
from helpers.checks.hybrid_ddp_rpc import (
    NUMBERS,
    Weights,
    batch,
    gradients_of_one_process,
    kept,
    takes_part,
    weights_of,
)
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import one_line_errors

_RATE = 0.5
_SECONDS = 0.05  # for a step of the last trainer; the trainers before it take longer


def _judge_turns(returned):
    if fault := fault_of_turns(returned[:-2]):  # the last two are master and server
        raise Wrong(fault)
    return "The trainers step in the order of their ranks, and no trainer goes on before the last trainer has stepped."


@exercise(together=_judge_turns)
def my_turns(exam):
    """Check `my_turns(optimizer, context)`: the trainers step one after another, and return when all have stepped."""
    return exam.on_rank(_turns_of_the_answer) if takes_part(exam) else None


@exercise
def one_rate(exam):
    """Check `one_rate(model, rate)`: an optimizer that trains both parts of a hybrid model at one rate.

    The trainers share one table and step one after another.
    """
    if takes_part(exam):
        before = exam.on_rank(_make_with_one_table)
        after = exam.on_rank(_steps_in_turn, NUMBERS[exam.rank :: exam.n - 2])
        expected = gradients_of_one_process(before, exam.on_rank(batch, NUMBERS))
        for name, part in (("dense layer", "dense"), ("table", "table")):
            gradient = getattr(expected, part)
            move = (getattr(before, part) - getattr(after, part)) / _RATE
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


# On a trainer, the functions below run in the process of the learner's code.


class _SlowOptimizer:
    """Record when each step begins and ends; the lower the rank, the slower the step."""

    def __init__(self):
        self.noted = []

    def step(self, context):
        begin = time.monotonic()
        time.sleep(_SECONDS * (dist.get_world_size() - dist.get_rank()))
        self.noted.append((begin, time.monotonic()))


def _turns_of_the_answer():
    optimizer = _SlowOptimizer()
    answer("my_turns", [optimizer, None])
    return optimizer.noted, time.monotonic()


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


def _steps_in_turn(numbers) -> Weights:
    """Have each trainer step with the learner's optimizer in its turn, and return the weights after all steps."""
    model = kept["model"]
    optimizer = answer("one_rate", [model, _RATE])
    raised = None
    with dist_autograd.context() as context:
        words, offsets, label = batch(numbers)
        loss = cross_entropy(model(words, offsets), label.to(model.device))
        dist_autograd.backward(context, [loss])
        for turn in range(dist.get_world_size()):
            dist.barrier()
            if turn == dist.get_rank():
                try:
                    with errors_of_answer():
                        optimizer.step(context)
                except AnswerError as error:
                    raised = error
        dist.barrier()
    if raised:
        raise raised
    return weights_of(model)
