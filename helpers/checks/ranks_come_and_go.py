"""Exercises of 36_ranks_come_and_go."""

import os
import time
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist

from helpers.checks.exam import AnswerError, Wrong, answer, errors_of_answer, exercise, number, show
from helpers.checks.judging import SECONDS_TO_ANSWER
from helpers.checks.learner import learners_module
from helpers.measure.traffic import handed_over

_GRACE = 0.6
_SECONDS_BETWEEN = 0.2  # the delay with which rank 1 signs, still within the grace
_SECONDS_TO_MEET = 30
_ELEMENTS = 256  # in the state of a training
_attempt = {}  # on a rank: the prefix of this attempt, because the store keeps the keys of earlier attempts


def _begin_attempt(world):
    """Give all ranks a prefix for this attempt, unless a rank is busy, which the verdict reports."""
    if all(state.state == "idle" for state in world.where()):
        world.view.apply_async(_name_attempt, uuid.uuid4().hex).get(SECONDS_TO_ANSWER)


def _name_attempt(name):
    _attempt["name"] = name


def _judge_quorum(returned):
    """Return the sentence of success if all lists hold the ranks that signed in time, or raise `Wrong`."""
    last = len(returned) - 1
    for late, what in enumerate([f"Rank {last} never signed", f"Rank {last} signed after the others returned"]):
        results = [of_rank[late] for of_rank in returned if of_rank[late] is not None]
        for rank, (result, _) in enumerate(results[:last]):
            if last in result:
                raise Wrong(f"{what}, but rank {rank} returned {result}, expected a list without {last}.")
        first = min(signed for _, signed in results[:last])
        for rank, (_, signed) in enumerate(results[:last]):
            # On a busy machine a rank may sign late, which is not the answer's fault.
            if signed - first < _GRACE * 2 / 3 and rank not in results[0][0]:
                raise Wrong(
                    f"Rank {rank} signed {signed - first:.1f} s after the first rank, within the grace of {_GRACE} s, "
                    f"but rank 0 returned {results[0][0]}, expected a list with {rank}."
                )
        for rank, (result, _) in enumerate(results):
            if result != results[0][0]:
                raise Wrong(
                    f"{what}: rank 0 returned {results[0][0]}, rank {rank} returned {result}, expected the same."
                )
    return (
        "All ranks returned the list of the ranks that signed in time, and no rank waited for a rank that never signed."
    )


@exercise(before=_begin_attempt, together=_judge_quorum, own_group=True)
def my_quorum(exam):
    """Check `my_quorum(store, name, grace)`: all ranks return one list, of the ranks that signed in time.

    The answer is called twice: first the last rank never signs, then it signs after the others have returned.
    """
    returned = exam.on_rank(_quorum, exam.rank, exam.n)
    for result, _ in filter(None, returned):
        exam.require(
            isinstance(result, list) and all(isinstance(name, int) for name in result),
            f"Rank {exam.rank} returned {show(result)}, expected a list of names, as in [0, 2].",
        )
    return returned


def _judge_gradients(returned):
    """Return the sentence of success if the mean of the gradients over all ranks is right, or raise `Wrong`."""
    n = len(returned)
    for batch, gradients in zip(_batches(n), zip(*returned, strict=True), strict=True):
        parts = [len(_examples(batch)[part::n]) for part in range(n)]
        mean, expected = sum(gradients) / n, _examples(batch).mean().item()
        if not abs(mean - expected) < 1e-9:
            raise Wrong(
                f"With {batch} examples, split as {parts}, the gradient after DDP's average is {mean:.4f}, "
                f"expected {expected:.4f}."
            )
    return "For every split of the batch, DDP's average is the gradient of the mean over the batch."


@exercise(together=_judge_gradients)
def my_loss(exam):
    """Check `my_loss(losses, batch, n)`: under DDP, its averaged gradient is the gradient of the batch's mean loss.

    The answer is called with 4n, 4n + 1 and n - 1 examples.
    """
    gradients = []
    for batch in _batches(exam.n):
        result, gradient = exam.on_rank(_gradient_of_loss, exam.rank, exam.n, batch)
        exam.require(
            gradient is not None,
            f"With {batch} examples, rank {exam.rank} returned {show(result)}, expected a tensor with one element.",
        )
        gradients.append(gradient)
    return gradients


@exercise
def catch_up(exam):
    """Check `catch_up(step, state)`: all ranks return the newest state, which is sent only if needed."""
    rank, n = exam.rank, exam.n
    cases = {
        "rank 1 is new": [7, 0] + [7] * (n - 2),
        "the last rank is a step ahead": [7] * (n - 1) + [8],
        "all ranks are at the same step": [7] * n,
        "each rank is at another step": [3 + (other + 2) % n for other in range(n)],
    }
    for case, steps in cases.items():
        result, sent = exam.on_rank(_caught_up, steps[rank])
        returned, expected = _in_words(result), f"the state of step {max(steps)}"
        exam.require(returned == expected, f"When {case}, rank {rank} returned {returned}, expected {expected}.")
        if case == "all ranks are at the same step":
            exam.require(
                sent < _state(0).nbytes / 2,
                f"When {case}, rank {rank} sent {sent} bytes, expected no state.",
            )
    return "Every rank returned the state of the most steps, and no rank sent a state that no other needed."


@exercise
def majority(exam):
    """Check `majority(store, name, grace, last)`: the members, or None without more than half of `last`.

    The check replaces `quorum` by a function that returns a given list.
    """
    rank, n = exam.rank, exam.n
    newcomers = [*range((n - 1) // 2), n - 1]
    cases = [
        ("all have signed", list(range(n)), list(range(n)), True),
        ("only rank 0 has signed", [0], list(range(n)), n == 1),
        ("all but the last rank have signed", list(range(n - 1)), list(range(n)), 2 * (n - 1) > n),
        ("half have signed", list(range(n // 2)), list(range(n // 2 * 2)), False),
        (f"{newcomers} have signed, and {n - 1} is new", newcomers, list(range(n - 1)), False),
        (f"all have signed, and {n - 1} is new", list(range(n)), list(range(n - 1)), True),
    ]
    for what, signed, last, goes_on in cases:
        result, called = exam.on_rank(_majority, rank, signed, last)
        members = list(map(number, result)) if isinstance(result, list) else result
        expected = signed if goes_on else None
        exam.require(called, f"Rank {rank} did not call `quorum(store, name, grace)`.")
        exam.require(
            type(members) is type(expected) and members == expected,
            f"When {what}, and the last group was {last}, rank {rank} returned "
            f"{members if isinstance(members, list) else show(members)}, expected {expected}.",
        )
    return "Only a list with more than half of the last group continues, so two disjoint lists cannot both continue."


class _NotedStore(dist.PrefixStore):
    """A store that notes when this rank writes to it."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.written = []

    def set(self, *arguments):
        self.written.append(time.monotonic())
        return super().set(*arguments)

    def add(self, *arguments):
        self.written.append(time.monotonic())
        return super().add(*arguments)

    def compare_set(self, *arguments):
        self.written.append(time.monotonic())
        return super().compare_set(*arguments)


def _quorum(name, n):
    """Return, for each of two cases, the answer's result and the time at which this rank signed, or None.

    In the first case the last rank never signs; in the second it signs after the others have returned.
    """
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    base = dist.TCPStore(*address, is_master=False, timeout=timedelta(seconds=_SECONDS_TO_MEET))
    meetings = [dist.PrefixStore(f"{_attempt['name']} {late}", base) for late in (False, True)]
    others = [other for other in range(n - 1) if other != name]
    results = []
    for late, meeting in enumerate(meetings):
        if name == n - 1:
            if not late:
                results.append(None)
                continue
            meeting.wait([f"done {other}" for other in others])
        else:
            meeting.set(f"there {name}", "")
            meeting.wait([f"there {other}" for other in others])
        if name == 1:
            time.sleep(_SECONDS_BETWEEN)
        store = _NotedStore("quorum", meeting)
        try:
            result = answer("my_quorum", [store, name, _GRACE])
        except AnswerError as error:
            meeting.set(f"done {name}", "")
            for what in ("there", "done"):  # no rank waits for this one in the other case
                meetings[-1].set(f"{what} {name}", "")
            if "wait timeout" in str(error):
                raise AnswerError("TimeoutError: it waited for a key that no rank sets") from error
            raise
        meeting.set(f"done {name}", "")
        results.append(
            (repr(result) if isinstance(result, bytes) else result, min(store.written, default=float("inf")))
        )
    return results


def _batches(n):
    return 4 * n, 4 * n + 1, n - 1


def _examples(batch):
    return torch.arange(1.0, batch + 1).double() ** 2


def _gradient_of_loss(rank, n, batch):
    """Return the result of `my_loss` and its gradient, or None as the gradient of anything but one element.

    The losses have an autograd graph.
    """
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    result = answer("my_loss", [weight * _examples(batch)[rank::n], batch, n])
    if not isinstance(result, torch.Tensor) or result.numel() != 1:
        return result, None
    with errors_of_answer():
        (gradient,) = torch.autograd.grad(result.sum(), weight, allow_unused=True)
    return result.detach(), 0.0 if gradient is None else gradient.item()


def _state(step):
    """Return the state of a training after so many steps."""
    return torch.full((_ELEMENTS,), float(step))


def _caught_up(step):
    """Return the result of `catch_up`, and the bytes of tensors that this rank sent."""
    with handed_over() as sizes:
        result = answer("catch_up", [step, _state(step)])
    return result, sum(sizes)


def _in_words(result):
    """Describe the state that an answer returned."""
    if not isinstance(result, torch.Tensor) or result.shape != _state(0).shape:
        return show(result)
    return f"the state of step {result[0].item():g}" if (result == result[0]).all() else "a mixture of states"


def _majority(name, signed, last):
    """Return the result of `majority` with a `quorum` that returns `signed`, and whether it called `quorum`."""
    calls, own = [], vars(learners_module()).get("quorum")

    def quorum(store, name, grace):
        calls.append(name)
        return list(signed)

    learners_module().quorum = quorum
    try:
        return answer("majority", [dist.HashStore(), name, 0.0, list(last)]), bool(calls)
    finally:
        learners_module().quorum = own
