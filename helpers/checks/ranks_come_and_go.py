"""Exercises of 32_ranks_come_and_go."""

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
_SECONDS_BETWEEN = 0.2  # by which one rank signs later than the others, and in time
_SECONDS_TO_MEET = 30
_NUMBERS = 256  # in the state of a training
_attempt = {}  # on a rank: the name under which all meet in the store, which keeps what earlier attempts have written


def _begin_attempt(world):
    """Name this attempt on all ranks; if some are busy, none is named, and the verdict says so."""
    if all(state.state == "idle" for state in world.where()):
        world.view.apply_async(_name_attempt, uuid.uuid4().hex).get(SECONDS_TO_ANSWER)


def _name_attempt(name):
    _attempt["name"] = name


def _judge_quorum(returned):
    """Return the sentence when all ranks got the same list, of those who signed in time; raise `Wrong` otherwise."""
    last = len(returned) - 1
    for late, what in enumerate([f"Rank {last} never came", f"Rank {last} signed when the others had their list"]):
        results = [of_rank[late] for of_rank in returned if of_rank[late] is not None]
        for rank, (result, _) in enumerate(results[:last]):
            if last in result:
                raise Wrong(f"{what}, and rank {rank} has it on its list, {result}.")
        first = min(signed for _, signed in results[:last])
        for rank, (_, signed) in enumerate(results[:last]):
            # How long a busy machine lets a rank wait is not the answer's fault.
            if signed - first < _GRACE * 2 / 3 and rank not in results[0][0]:
                raise Wrong(
                    f"Rank {rank} signed {signed - first:.1f} s after the first one, the grace is {_GRACE} s, and "
                    f"the list of rank 0 is {results[0][0]}."
                )
        for rank, (result, _) in enumerate(results):
            if result != results[0][0]:
                raise Wrong(f"{what}; rank 0 returned {results[0][0]}, and rank {rank} {result}.")
    return "All ranks have the same list, of those who signed in time, and nobody waited for who never came."


@exercise(before=_begin_attempt, together=_judge_quorum, own_group=True)
def my_quorum(exam):
    """Check `my_quorum(store, name, grace)`: all get one list, of those who have signed within the grace.

    It is called twice: first the last rank never comes, then it comes when the others have their list.
    """
    returned = exam.on_rank(_quorum, exam.rank, exam.n)
    for result, _ in filter(None, returned):
        exam.require(
            isinstance(result, list) and all(isinstance(name, int) for name in result),
            f"Rank {exam.rank} returned {show(result)}, expected a list of names, as in [0, 2].",
        )
    return returned


def _judge_gradients(returned):
    """Return the sentence when the mean of the gradients over all ranks is right; raise `Wrong` otherwise."""
    n = len(returned)
    for batch, gradients in zip(_batches(n), zip(*returned, strict=True), strict=True):
        parts = [len(_examples(batch)[part::n]) for part in range(n)]
        mean, expected = sum(gradients) / n, _examples(batch).mean().item()
        if not abs(mean - expected) < 1e-9:
            raise Wrong(
                f"With {batch} examples, dealt out as {parts}, the gradient after DDP's average is {mean:.4f}, "
                f"expected {expected:.4f}."
            )
    return "However the batch is dealt out, DDP's average is the gradient of the mean over the batch."


@exercise(together=_judge_gradients)
def my_loss(exam):
    """Check `my_loss(losses, batch, n)`: under DDP, its gradient is that of the mean over the batch.

    It is called with 4n, 4n + 1 and n - 1 examples.
    """
    gradients = []
    for batch in _batches(exam.n):
        result, gradient = exam.on_rank(_gradient_of_loss, exam.rank, exam.n, batch)
        exam.require(
            gradient is not None,
            f"With {batch} examples rank {exam.rank} returned {show(result)}, expected a tensor with one element.",
        )
        gradients.append(gradient)
    return gradients


@exercise
def catch_up(exam):
    """Check `catch_up(step, state)`: all return the state of the furthest; when all are level, none is sent."""
    rank, n = exam.rank, exam.n
    cases = {
        "rank 1 is new": [7, 0] + [7] * (n - 2),
        "all but the last rank are behind": [7] * (n - 1) + [8],
        "all are level": [7] * n,
        "each rank has got to another step": [3 + (other + 2) % n for other in range(n)],
    }
    for case, steps in cases.items():
        result, sent = exam.on_rank(_caught_up, steps[rank])
        returned, expected = _in_words(result), f"the state of step {max(steps)}"
        exam.require(returned == expected, f"When {case}, rank {rank} returned {returned}, expected {expected}.")
        if case == "all are level":
            exam.require(
                sent < _state(0).nbytes / 2,
                f"When {case}, rank {rank} handed over {sent} bytes, and nobody needs a state.",
            )
    return "Every rank has the state of the furthest, and none is sent when nobody needs one."


@exercise
def majority(exam):
    """Check `majority(store, name, grace, last)`: the members, or None when not more than half of `last` are there.

    The `quorum` that it calls is one of this check, which returns a list of its own.
    """
    rank, n = exam.rank, exam.n
    newcomers = [*range((n - 1) // 2), n - 1]
    cases = [
        ("all have signed", list(range(n)), list(range(n)), True),
        ("only rank 0 has signed", [0], list(range(n)), n == 1),
        ("all but the last rank have signed", list(range(n - 1)), list(range(n)), 2 * (n - 1) > n),
        ("half have signed", list(range(n // 2)), list(range(n // 2 * 2)), False),
        (f"{newcomers} have signed, of which {n - 1} is new", newcomers, list(range(n - 1)), False),
        (f"all have signed, of which {n - 1} is new", list(range(n)), list(range(n - 1)), True),
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
    return "Nobody goes on without more than half of the last group, so no two groups ever do."


class _NotedStore(dist.PrefixStore):
    """A store that notes when this rank has written to it."""

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
    """For each of two cases, return what this rank got and when it signed; None where it did not come.

    In the first case the last rank does not come; in the second it comes when the others are done.
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
                raise AnswerError("TimeoutError: it waited for what nobody writes") from error
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
    """Return what `my_loss` makes of this rank's losses, and its gradient; None where that is no tensor of one element.

    The losses hang on a graph.
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
    return torch.full((_NUMBERS,), float(step))


def _caught_up(step):
    """Return what `catch_up` returns, and the bytes of tensors that this rank has handed over."""
    with handed_over() as sizes:
        result = answer("catch_up", [step, _state(step)])
    return result, sum(sizes)


def _in_words(result):
    """Return which state an answer has returned."""
    if not isinstance(result, torch.Tensor) or result.shape != _state(0).shape:
        return show(result)
    return f"the state of step {result[0].item():g}" if (result == result[0]).all() else "a mixture of states"


def _majority(name, signed, last):
    """Return what `majority` makes of a `quorum` that returns `signed`, and whether it has called that."""
    calls, own = [], vars(learners_module()).get("quorum")

    def quorum(store, name, grace):
        calls.append(name)
        return list(signed)

    learners_module().quorum = quorum
    try:
        return answer("majority", [dist.HashStore(), name, 0.0, list(last)]), bool(calls)
    finally:
        learners_module().quorum = own
