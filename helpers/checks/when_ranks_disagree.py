"""Exercises of 02_when_ranks_disagree: calls in different orders, calls that differ, and messages of any length."""

import math
from datetime import timedelta

import torch
import torch.distributed as dist

from helpers import tap
from helpers.checks.exam import AnswerError, answer, exercise, near, show
from helpers.checks.judging import FRESH_RANKS
from helpers.checks.when_ranks_fail import (
    answer_in_new_group,
    in_default_group,
    require_communication,
    require_group,
)
from helpers.table import shortened

_TIMEOUT = timedelta(seconds=3)
_TIME_TO_MEET = timedelta(seconds=35)  # longer than an answer that hangs in the default group by mistake
_LONG = 10_000  # elements of the last message to `deliver`, more than anybody reserves without knowing
# The calls to `checked_all_reduce`: what rank 1 passes, and in what it differs from the other ranks. A mismatch has as
# many bytes on each rank, so that an answer that does not notice it neither hangs nor aborts a rank.
_USUAL = ("loss", (2,), torch.float32)
_OF_RANK_1 = {
    "": _USUAL,
    "name": ("count", (2,), torch.float32),
    "shape": ("loss", (1, 2), torch.float32),
    "dtype": ("loss", (2,), torch.int32),
}


@exercise(own_group=True, restart=FRESH_RANKS)
def checked_all_reduce(exam):
    """Check `checked_all_reduce(name, tensor, group)`: it sums, or every rank raises a ValueError if the calls differ.

    Calls differ if their names, shapes or dtypes do. Then no tensor changes.
    """
    rank, total = exam.rank, float(exam.n * (exam.n + 1) / 2)
    outcomes, outside = exam.on_rank(_try_calls)
    for difference, (error, before, after) in outcomes.items():
        if not difference:
            ranks = "All ranks passed the same name, shape and dtype"
            exam.require(not error, f"{ranks}, but rank {rank} raised {error}, expected no error.")
            wrong = f"the tensor of rank {rank} contains {after}, expected {[total] * 2}"
            exam.require(after == [total] * 2, f"{ranks}, and {wrong}.")
            continue
        ranks = f"Rank 1 passed a different {difference} from the other ranks"
        exam.require(
            error.startswith("ValueError"),
            f"{ranks}, but rank {rank} {_raised(error)}, expected a ValueError on every rank.",
        )
        exam.require(
            after == before,
            f"{ranks}, and the tensor of rank {rank} changed, expected it unchanged: compare before you add.",
        )
    require_group(exam, outside)
    return "Every rank added up equal calls, and raised a ValueError if the name, the shape or the dtype differed."


@exercise(own_group=True, restart=FRESH_RANKS)
def my_metrics(exam):
    """Check `my_metrics(metrics, group)`: every rank returns the sum or the largest value of each metric."""
    rank, n = exam.rank, exam.n
    own = {"correct": torch.tensor(rank + 1.0), "max_tokens": torch.tensor(10.0 * (rank + 1))}
    expected = {"correct": n * (n + 1) / 2, "max_tokens": 10.0 * n}
    # With the same operator for both metrics, names that an answer cannot know from the lesson.
    others = {"max_loss": torch.tensor(rank + 1.0), "max_length": torch.tensor(10.0 * (rank + 1))}
    expected_of_others = {"max_loss": float(n), "max_length": 10.0 * n}
    # Rank 1 has its metrics in the opposite order.
    in_order = [dict(reversed(metrics.items())) if rank == 1 else metrics for metrics in (others, own)]
    result_of_others, error, result, outside = exam.on_rank(_metrics_of_two_calls, *in_order)
    _require_metrics(exam, result, expected, "Look at world.history().")
    require_communication(exam, "result")
    require_group(exam, outside)
    names = " and ".join(others)
    exam.require(not error, f"With the metrics {names}, rank {rank} raised {error}, expected no error.")
    _require_metrics(exam, result_of_others, expected_of_others, "Do all ranks combine them in the same order?")
    return f"Every rank returned {', '.join(f'{name} {value}' for name, value in expected.items())}."


def _require_metrics(exam, result, expected, hint):
    """Require that an answer returned a dict with these values; the hint says what to do about a wrong value."""
    is_dict = exam.require(
        isinstance(result, dict) and result.keys() == expected.keys(),
        f"Rank {exam.rank} returned {show(result)}, expected a dict with the keys {', '.join(expected)}.",
    )
    for name in expected if is_dict else ():
        exam.require(
            near(result[name], expected[name]),
            f"Rank {exam.rank} returned {name} {show(result[name])}, expected {expected[name]}. {hint}",
        )


@exercise(own_group=True, restart=FRESH_RANKS)
def deliver(exam):
    """Check `deliver(message, group)`: rank 1 returns the message of rank 0, whatever its length."""
    # The last message has the numbers by which an answer may mark the end of a message, or the rest of a large box.
    messages = [1.0, 2.0], [9.0, 9.0, 9.0], [-1.0, math.nan, math.inf, 0.0, *map(float, range(4, _LONG))]
    results, outside = exam.on_rank(_deliver, messages)
    for message, result in zip(messages, results, strict=False):  # the first wrong result is the last
        exam.require(
            exam.rank != 1 or _is_message(result, message),
            f"Rank 1 returned {shortened(str(result), 80)}, expected {shortened(str(message), 80)}, "
            "the message of rank 0.",
        )
    require_group(exam, outside)
    return f"Rank 1 returned messages of 2, 3 and {_LONG:,} elements."


@exercise(own_group=True, restart=FRESH_RANKS)
def detail_group(exam):
    """Check `detail_group()`: it returns a group of all ranks that compares its collectives; later groups do not."""
    rank = exam.rank
    mismatch, equal, later, seconds = exam.on_rank(_use_detail_group)
    exam.require(
        "Detected mismatch" in mismatch,
        f"Rank 1 passed a different shape to a collective in the group, but rank {rank} {_raised(mismatch)}, expected "
        "an error that begins with `Detected mismatch`.",
    )
    exam.require(not equal, f"All calls in the group were equal, but rank {rank} {_raised(equal)}, expected no error.")
    exam.require(
        not later,
        f"A group that rank {rank} made after `detail_group` also compares its collectives, expected no comparison: "
        "set the debug level back.",
    )
    exam.require(
        seconds in (None, 3),
        f"The group of rank {rank} has a timeout of {seconds} s, expected 3 s: keep the argument of `new_group`.",
    )
    return "The group compares its collectives, and a group that was made later does not."


def _try_calls():
    """Call `checked_all_reduce` once for each case of `_OF_RANK_1`, each in a new group.

    Return, for each case, the error of the call, "" for no error, and the elements of the tensor before and after; and
    the names of all calls in the default group.
    """
    rank, outcomes, outside = dist.get_rank(), {}, []
    meeting = dist.new_group(timeout=_TIME_TO_MEET)
    groups = {difference: dist.new_group(timeout=_TIMEOUT) for difference in _OF_RANK_1}
    for difference, of_rank_1 in _OF_RANK_1.items():
        name, shape, dtype = of_rank_1 if rank == 1 else _USUAL
        tensor = torch.full(shape, rank + 1, dtype=dtype)
        before = tensor.flatten().tolist()
        error = ""
        with in_default_group() as names:
            try:
                answer("checked_all_reduce", [name, tensor, groups[difference]])
            except AnswerError as raised:
                error = str(raised).partition("\n")[0]
        outside += names
        outcomes[difference] = error, before, tensor.flatten().tolist()
        dist.barrier(meeting)  # a rank that raised an error at once waits for the ranks that hang until the timeout
    if outcomes[""][0] and not outcomes[""][0].startswith("ValueError"):
        raise AnswerError(outcomes[""][0])  # a mistake in the answer, not an error about the calls
    return outcomes, outside


def _metrics_of_two_calls(others, metrics):
    """Call `my_metrics` with two dicts, each in a new group; the call with `metrics` is the last in the history.

    Return the result of the first call and its error, "" for none; the result of the second call; and the names of all
    calls in the default group.
    """
    result_of_others, error, outside = None, "", []
    try:
        result_of_others, outside = answer_in_new_group("my_metrics", others)
    except AnswerError as raised:
        error = str(raised).partition("\n")[0]
    result, outside_too = answer_in_new_group("my_metrics", metrics)
    return result_of_others, error, result, outside + outside_too


def _deliver(messages):
    """Call `deliver` once for each message, each in a new group, until rank 1 returns a different message.

    A long message would abort rank 1 in an answer that fails with short messages. Return the results, tensors as lists,
    and the names of all calls in the default group.
    """
    rank, results, outside = dist.get_rank(), [], []
    meeting = dist.new_group(timeout=_TIME_TO_MEET)
    groups = [dist.new_group(timeout=_TIMEOUT) for _ in messages]
    for message, group in zip(messages, groups, strict=True):
        result, error = None, None
        with in_default_group() as names:
            try:
                result = answer("deliver", [torch.tensor(message) if rank == 0 else None, group])
            except AnswerError as raised:
                error = raised
        outside += names
        results.append(result.tolist() if isinstance(result, torch.Tensor) else result)
        is_right = error is None and (rank != 1 or _is_message(results[-1], message))
        is_wrong = torch.tensor(not is_right, dtype=torch.int32)
        dist.all_reduce(is_wrong, group=meeting)
        if error:
            raise error
        if is_wrong:
            break
    return results, outside


def _is_message(result, message):
    """Return whether a result is a list with the elements of a message, which may include NaN."""
    return repr(result) == repr(message)


def _use_detail_group():
    """Make a group by `detail_group`, then a usual group.

    Return the errors of a mismatch and of equal calls in the first group, and of a mismatch in the second, "" for none;
    and the timeout of the first group in seconds, None if it is unknown.
    """
    level, made = dist.get_debug_level(), []
    try:
        with tap.subscribed(tap.NewGroup, end=made.append):
            group = answer("detail_group", [])
    finally:
        later = dist.new_group(timeout=_TIMEOUT)  # on every rank, even if the answer failed on this rank
        dist.set_debug_level(level)
    if not isinstance(group, dist.ProcessGroup):
        raise AnswerError(f"TypeError: `detail_group` returned {show(group)}, expected a group of all ranks")
    timeouts = [event.timeout.total_seconds() for event in made if event.group is group and event.timeout]
    mismatched = torch.ones((1, 2) if dist.get_rank() == 1 else 2)  # as many bytes on each rank, so that none hangs
    errors = _error_of_sum(mismatched, group), _error_of_sum(torch.ones(2), group), _error_of_sum(mismatched, later)
    return *errors, timeouts[0] if timeouts else None


def _error_of_sum(tensor, group):
    try:
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).partition('.')[0]}"
    return ""


def _raised(error):
    return f"raised {error}" if error else "raised no error"
