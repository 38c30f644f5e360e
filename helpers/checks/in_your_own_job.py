"""Exercises of 51_in_your_own_job: compare flight records, set an alarm for a block, and find the cause of echoes."""

import math
import os
import pickle
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from helpers.checks.exam import AnswerError, answer, errors_of_answer, exercise, missing, number
from helpers.checks.judging import TIMEOUT_ERROR
from helpers.torch_parts import flight_records, without_compiler

_SECONDS_OF_ALARM = 0.8
_SECONDS_TO_WAIT = 2.5  # the time by which the last rank is late
_SECONDS_OF_A_GROUP = 1


def _results(exam, name, case, argument):
    """Call the learner's function, and return a list with its result; an error is noted, and gives an empty list."""
    try:
        return [exam.call(argument)]
    except AnswerError as error:
        if str(error) == missing(name):
            raise
        first_line = str(error).splitlines()[0]
        exam.refuse(f"{case}: {name} raised {first_line}")
        return []


# ---------------------------------------------------------------- compare flight records


@exercise
def my_difference(exam):
    """Check `my_difference(calls)`: the first place at which the calls differ, and the ranks of each call there.

    The calls come from the flight recorders of the ranks, in several cases.
    """
    for case, calls in exam.on_rank(_recorded_calls).items():
        for result in _results(exam, "my_difference", case, calls):
            _require_difference(exam, f"{case}: on rank {exam.rank}", _first_difference(calls), result)
    return "For every difference, it returned the number of the call and the ranks that made each call."


def _require_difference(exam, where, expected, result):
    if expected is None:
        exam.require(result is None, f"{where} my_difference returned {result}, expected None.")
        return
    try:
        place, ranks_of = result
        ranks_of = {call: list(ranks) for call, ranks in ranks_of.items()}
    except (TypeError, ValueError, AttributeError):
        exam.refuse(f"{where} my_difference returned {result}, expected a number and a dictionary.")
        return
    exam.require(
        number(place) == expected[0], f"{where} my_difference returned call {place}, expected call {expected[0]}."
    )
    for call, ranks in expected[1].items():
        named = ranks_of.get(call)
        exam.require(
            named == ranks, f"{where} my_difference returned {named} for {call!r} at call {place}, expected {ranks}."
        )
    exam.require(
        len(ranks_of) <= len(expected[1]),
        f"{where} my_difference returned the calls {list(ranks_of)} at call {place}, expected {list(expected[1])}.",
    )


def _first_difference(calls):
    """Return the number of the first call that differs, and the ranks of each call there, or None."""
    for place in range(max(map(len, calls))):
        made = [rank_calls[place] if place < len(rank_calls) else None for rank_calls in calls]
        if len(set(made)) > 1:
            return place + 1, {call: [r for r, other in enumerate(made) if other == call] for call in made}
    return None


def _recorded_calls():
    """Return, for each case, the calls that the flight recorder of each rank recorded."""
    rank, last, one = dist.get_rank(), dist.get_world_size() - 1, torch.ones(1)
    # Each rank has a group of its own, so a difference makes no rank wait.
    alone = [dist.new_group([other]) for other in range(last + 1)][rank]
    cases = {
        "All ranks make the same calls": [one, one],
        "A rank with another shape": [one, torch.ones(2) if rank == last else one, one],
        "A rank with one call fewer": [one, one] if rank == 0 else [one, one, one],
        "A rank without any call": [] if rank == last else [one],
        "Every rank with another shape": [one, one, one, torch.ones(rank + 1)],
        "A rank with an additional call": [one, torch.ones(3), one] if rank == last else [one, one],
    }
    calls = {}
    for case, tensors in cases.items():
        before = len(_recorded(alone))
        for tensor in tensors:
            dist.all_reduce(tensor.clone(), group=alone)
        own = [f"all_reduce({entry['input_sizes'][0]})" for entry in _recorded(alone)[before:]]
        calls[case] = [None] * (last + 1)
        dist.all_gather_object(calls[case], own)
    return calls


def _recorded(group):
    return [entry for entry in flight_records() if entry["process_group"][0] == group.group_name]


# ---------------------------------------------------------------- an alarm


@exercise
def my_alarm(exam):
    """Check `my_alarm(seconds, path)`: only a block that takes longer has its record written, while it runs.

    The ranks run three blocks under an alarm: one waits for a late rank, one ends in time, and one raises an error.
    """
    rank, late = exam.rank, exam.n - 1
    written, ended, shapes, quick, fails, raised = exam.on_rank(_under_alarms, late)
    exam.require(
        raised.startswith("ZeroDivisionError"),
        f"On rank {rank} the block raised a ZeroDivisionError, and my_alarm raised {raised}, expected the same error.",
    )
    exam.require(not quick, f"On rank {rank} a block ended in time, but a record was written, expected none.")
    exam.require(
        not fails, f"On rank {rank} a block ended in time with an error, but a record was written, expected none."
    )
    if rank != late:
        exam.require(
            written is not None,
            f"Rank {rank} waited for {_SECONDS_TO_WAIT} s, but no record was written, expected a record after "
            f"{_SECONDS_OF_ALARM} s.",
        )
        exam.require(
            written is not None and written <= ended,
            f"Rank {rank} wrote its record after the block, expected it during the block: a hang never ends.",
        )
        exam.require(
            shapes is not None,
            f"The file of rank {rank} is not a flight record, expected a file that `pickle.loads` reads.",
        )
        exam.require(
            shapes is not None and [13] in shapes,
            f"The record of rank {rank} has no all_reduce of 13 elements, expected the call in which the rank waited.",
        )
    return "Each rank that waited wrote its record while it waited, and no other record was written."


def _under_alarms(late):
    """Run three blocks, each under an alarm: one waits for the rank that is late, one is quick, one fails.

    Return the time of the waiting block's record, the time at which the block ended, and the shapes in the record;
    whether the quick and the failing block wrote a record; and the error that the failing block raised.
    """
    group = dist.new_group(timeout=timedelta(seconds=10))
    with tempfile.TemporaryDirectory() as folder, without_compiler():
        waits, quick, fails = (Path(folder, name) for name in ("waits", "quick", "fails"))
        if dist.get_rank() == late:
            time.sleep(_SECONDS_TO_WAIT)
        ended = math.inf
        with errors_of_answer(), answer("my_alarm", [_SECONDS_OF_ALARM, str(waits)]):
            dist.all_reduce(torch.ones(13), group=group)
            ended = time.time()
        record = _written(waits), ended, _shapes(waits, group.group_name)
        with errors_of_answer(), answer("my_alarm", [_SECONDS_OF_ALARM, str(quick)]):
            pass
        raised = _raised(str(fails))
        time.sleep(_SECONDS_OF_ALARM + 0.5)
        return *record, quick.exists(), fails.exists(), raised


def _raised(path):
    """Return the error that a block under my_alarm raises when it divides by 0, or "nothing"."""
    try:
        with answer("my_alarm", [_SECONDS_OF_ALARM, path]):
            _divide()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def _written(path):
    return os.path.getmtime(path) if path.exists() else None


def _shapes(path, group):
    """Return the shapes in the file of a flight record, without the calls of other groups than this one."""
    try:
        entries = pickle.loads(path.read_bytes())["entries"]
        return [shape for entry in entries if entry["process_group"][0] == group for shape in entry["input_sizes"]]
    except Exception:
        return None


# ---------------------------------------------------------------- the cause among the echoes


@exercise
def my_suspects(exam):
    """Check `my_suspects(errors)`: the ranks with an error of their own, or otherwise the ranks without a file.

    The errors are real: the last rank has a fault, and the other ranks wait for it in an all_reduce.
    """
    last = exam.n - 1
    errors_in = exam.on_rank(_errors_by_case)
    suspects = {case: [] if case == _NO_FAULT else [last] for case in errors_in}
    if last > 1:
        case = "Two ranks have errors of their own"
        errors_in[case] = ["ValueError: the batch is empty", *errors_in[_OWN_ERROR][1:]]
        suspects[case] = [0, last]
    for case, errors in errors_in.items():
        for result in _results(exam, "my_suspects", case, list(errors)):
            shown = "; ".join(f"rank {rank}: {_short(text)}" for rank, text in enumerate(errors))
            exam.require(
                isinstance(result, list | tuple | set) and list(result) == suspects[case],
                f"{case}: on rank {exam.rank} my_suspects returned {result}, expected {suspects[case]}. The errors "
                f"were: {shown}.",
            )
    return (
        "It returned ranks with errors of their own first, otherwise ranks without a file, and none without any error."
    )


def _errors_by_case():
    """Return, for each case, the error with which each rank ends, or None."""
    errors_in = {}
    for case, fault in _FAULTS.items():
        errors_in[case] = [None] * dist.get_world_size()
        dist.all_gather_object(errors_in[case], _error_of_this_rank(fault))
    return errors_in


def _error_of_this_rank(fault):
    """Return the error of this rank in a step in which the last rank has this fault, or None."""
    group = dist.new_group(timeout=timedelta(seconds=10 if fault is None else _SECONDS_OF_A_GROUP))
    is_faulty = fault is not None and dist.get_rank() == dist.get_world_size() - 1
    try:
        if is_faulty:
            fault()
            return None  # a sleeping rank raises no error
        dist.all_reduce(torch.ones(1), group=group)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _divide():
    return 1 / 0


def _sleep():
    time.sleep(1.5 * _SECONDS_OF_A_GROUP)


def _time_out():
    raise OSError("Timed out reading the next batch")


_OWN_ERROR, _NO_FAULT = "A rank has an error of its own", "No rank fails"
_FAULTS = {
    _OWN_ERROR: _divide,
    "A rank sleeps": _sleep,
    "The disk of a rank does not answer": _time_out,
    _NO_FAULT: None,
}


def _short(text):
    if text is None:
        return "no file"
    return "an echo" if TIMEOUT_ERROR.search(text) else text
