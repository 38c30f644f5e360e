"""Exercises of 51_in_your_own_job: compare flight records, set an alarm for a block, and find the cause of echoes."""

import copy
import math
import os
import pickle
import tempfile
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from helpers.checks.exam import AnswerError, answer, errors_of_answer, exercise, missing, number
from helpers.checks.judging import TIMEOUT_ERROR
from helpers.torch_parts import flight_records, without_compiler

_SECONDS_OF_ALARM = 0.8
_SECONDS_TO_WAIT = 2.5  # the time by which the last rank is late
_SECONDS_OF_LONG_ALARM = _SECONDS_TO_WAIT + _SECONDS_OF_ALARM
_SECONDS_OF_A_GROUP = 1


def _results(exam, name, case, argument):
    """Call the learner's function, and return a list with its result; an error is noted, and gives an empty list."""
    try:
        result, is_unchanged = exam.on_rank(_called, name, argument)
        exam.require(is_unchanged, f"{case}: on rank {exam.rank} {name} changed its argument, expected it unchanged.")
        return [result]
    except AnswerError as error:
        if str(error) == missing(name):
            raise
        first_line = str(error).splitlines()[0]
        exam.refuse(f"{case}: {name} raised {first_line}")
        return []


def _called(name, argument):
    """Return the result of the learner's function, and whether it left its argument unchanged."""
    before = copy.deepcopy(argument)
    return answer(name, [argument]), argument == before


# ---------------------------------------------------------------- compare flight records


@exercise
def my_difference(exam):
    """Check `my_difference(calls)`: the first place at which the calls differ, and the ranks of each call there.

    The calls come from the flight recorders of the ranks, in several cases.
    """
    cases = exam.on_rank(_recorded_calls)
    cases["A job with twice as many ranks as this world"] = 2 * cases["A rank with another shape"]
    for case, calls in cases.items():
        expected = _first_difference(calls)
        for result in _results(exam, "my_difference", case, calls):
            _require_difference(exam, f"{case}: on rank {exam.rank}", expected, result)
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

    The ranks run blocks under an alarm: one waits for a late rank, one ends in time, one raises an error, and one has
    another block inside. The rank that is late sleeps under an alarm with a longer time.
    """
    rank, late = exam.rank, exam.n - 1
    written, ended, shapes, names, raised = exam.on_rank(_under_alarms, late)
    exam.require(
        raised.startswith("ZeroDivisionError"),
        f"On rank {rank} the block raised a ZeroDivisionError, and my_alarm raised {raised}, expected the same error.",
    )
    exam.require(
        "quick" not in names, f"On rank {rank} a block ended in time, but a record was written, expected none."
    )
    exam.require(
        "fails" not in names,
        f"On rank {rank} a block ended in time with an error, but a record was written, expected none.",
    )
    exam.require(
        {"outer", "inner"}.isdisjoint(names),
        f"On rank {rank} a block with an alarm inside a block with an alarm ended in time, but a record was written, "
        "expected none: each alarm needs a timer of its own.",
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
    exam.require(
        "late" not in names,
        f"On rank {rank} a block took {_SECONDS_TO_WAIT} s, and a record was written, expected none before "
        f"{_SECONDS_OF_LONG_ALARM} s: `seconds` says when.",
    )
    return "Each rank that waited wrote its record while it waited, and no other record was written."


def _under_alarms(late):
    """Run blocks under alarms: one waits for the rank that is late, one is quick, one fails, one is around another.

    Return the time of the waiting block's record, the time at which the block ended, and the shapes in the record; the
    names of the blocks with a record; and the error that the failing block raised.
    """
    group = dist.new_group(timeout=timedelta(seconds=10))
    with tempfile.TemporaryDirectory() as folder, without_compiler():
        waits = Path(folder, "waits")
        if dist.get_rank() == late:
            with _alarm(folder, "late", _SECONDS_OF_LONG_ALARM):
                time.sleep(_SECONDS_TO_WAIT)
        ended = math.inf
        with _alarm(folder, "waits"):
            dist.all_reduce(torch.ones(13), group=group)
            ended = time.time()
        record = _written(waits), ended, _shapes(waits, group.group_name)
        with _alarm(folder, "quick"):
            pass
        with _alarm(folder, "outer"), _alarm(folder, "inner"):
            pass
        raised = _raised(str(Path(folder, "fails")))
        time.sleep(_SECONDS_OF_ALARM + 0.5)
        return *record, os.listdir(folder), raised


@contextmanager
def _alarm(folder, name, seconds=_SECONDS_OF_ALARM):
    """Run a block under an alarm whose record is the file of this name."""
    with errors_of_answer(), answer("my_alarm", [seconds, str(Path(folder, name))]):
        yield


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

    Most errors are real: the last rank has a fault, and the other ranks wait for it in an all_reduce.
    """
    n, last = exam.n, exam.n - 1
    errors_in = exam.on_rank(_errors_by_case)
    suspects = {case: [] if case == _NO_FAULT else [last] for case in errors_in}
    own, echoes = "RuntimeError: the batch is empty", errors_in[_SLEEPS][1:last]
    if last > 1:
        case = "Two ranks have errors of their own"
        errors_in[case], suspects[case] = [own, *errors_in[_OWN_ERROR][1:]], [0, last]
    case = "A rank has an error of its own, and another rank has no file"
    errors_in[case], suspects[case] = [own, *echoes, None], [0]
    for echo in _ECHOES:
        case = f"A rank ends without a file, and the other ranks have `{echo}`"
        errors_in[case], suspects[case] = last * [f"{_ECHO_BEGINS} {echo}"] + [None], [last]
    case = "A job with twice as many ranks as this world"
    errors_in[case], suspects[case] = 2 * errors_in[_OWN_ERROR], [last, last + n]
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


_OWN_ERROR, _SLEEPS, _NO_FAULT = "A rank has an error of its own", "A rank sleeps", "No rank fails"
_ECHOES = "Connection closed by peer", "Connection reset by peer"
_ECHO_BEGINS = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error [10.0.0.2]:29500:"
_FAULTS = {
    _OWN_ERROR: _divide,
    _SLEEPS: _sleep,
    "The disk of a rank does not answer": _time_out,
    _NO_FAULT: None,
}


def _short(text):
    if text is None:
        return "no file"
    return "an echo" if TIMEOUT_ERROR.search(text) else text
