"""Exercises of 39_in_your_own_job: records compared, an alarm round a block, and the cause among the echoes."""

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
from helpers.checks.judging import CUT_OFF
from helpers.torch_parts import flight_records, without_compiler

_SECONDS_OF_ALARM = 0.8
_SECONDS_TO_WAIT = 2.5  # of a rank for one that is late
_SECONDS_OF_A_GROUP = 1


def _results(exam, name, case, argument):
    """Call the learner's function, and return a list of its result; of none if it raised an error, which is noted."""
    try:
        return [exam.call(argument)]
    except AnswerError as error:
        if str(error) == missing(name):
            raise
        first_line = str(error).splitlines()[0]
        exam.refuse(f"{case}: {name} raised {first_line}")
        return []


# ---------------------------------------------------------------- records compared


@exercise
def my_difference(exam):
    """Check `my_difference(calls)`: where the calls of all ranks differ first, and which rank made which of them.

    The calls are those that the flight recorders of the ranks have recorded, in several cases.
    """
    for case, calls in exam.on_rank(_recorded_calls).items():
        for found in _results(exam, "my_difference", case, calls):
            _require_difference(exam, f"{case}: on rank {exam.rank}", _first_difference(calls), found)
    return "Wherever the records part, it names the place and, for each call, the ranks that made it."


def _require_difference(exam, where, expected, found):
    if expected is None:
        exam.require(found is None, f"{where} my_difference returned {found}, expected None.")
        return
    try:
        place, ranks_of = found
        ranks_of = {call: list(ranks) for call, ranks in ranks_of.items()}
    except (TypeError, ValueError, AttributeError):
        exam.refuse(f"{where} my_difference returned {found}, expected a number and a dictionary.")
        return
    exam.require(
        number(place) == expected[0], f"{where} my_difference found call {place}, expected call {expected[0]}."
    )
    for call, ranks in expected[1].items():
        made = f"made {call!r}" if call else "had no call left"
        named = ranks_of.get(call)
        exam.require(
            named == ranks, f"{where} ranks {ranks} {made} at call {expected[0]}, and my_difference names {named}."
        )
    exam.require(
        len(ranks_of) <= len(expected[1]),
        f"{where} my_difference has a call that nobody made at call {expected[0]}: {list(ranks_of)}.",
    )


def _first_difference(calls):
    """Return the number of the first call that differs, and the ranks of each call there; None if none does."""
    for place in range(max(map(len, calls))):
        made = [rank_calls[place] if place < len(rank_calls) else None for rank_calls in calls]
        if len(set(made)) > 1:
            return place + 1, {call: [r for r, other in enumerate(made) if other == call] for call in made}
    return None


def _recorded_calls():
    """Return by the name of each case what the flight recorder of each rank has recorded of the calls that it made."""
    rank, last, one = dist.get_rank(), dist.get_world_size() - 1, torch.ones(1)
    # A group for each rank alone, in which no difference keeps anybody waiting.
    alone = [dist.new_group([other]) for other in range(last + 1)][rank]
    cases = {
        "All ranks alike": [one, one],
        "A rank with another shape": [one, torch.ones(2) if rank == last else one, one],
        "A rank with one call less": [one, one] if rank == 0 else [one, one, one],
        "A rank without any call": [] if rank == last else [one],
        "All ranks different": [one, one, one, torch.ones(rank + 1)],
        "A rank with a call too many": [one, torch.ones(3), one] if rank == last else [one, one],
    }
    calls = {}
    for case, tensors in cases.items():
        before = len(_recorded(alone))
        for tensor in tensors:
            dist.all_reduce(tensor.clone(), group=alone)
        own = [f"all_reduce of {entry['input_sizes'][0]}" for entry in _recorded(alone)[before:]]
        calls[case] = [None] * (last + 1)
        dist.all_gather_object(calls[case], own)
    return calls


def _recorded(group):
    return [entry for entry in flight_records() if entry["process_group"][0] == group.group_name]


# ---------------------------------------------------------------- an alarm


@exercise
def my_alarm(exam):
    """Check `my_alarm(seconds, path)`: a block that takes longer has its record written meanwhile, and no other one.

    Under an alarm the ranks wait for one that is late, end a block in time, and leave one with an error.
    """
    rank, late = exam.rank, exam.n - 1
    written, ended, shapes, quick, fails, let_out = exam.on_rank(_under_alarms, late)
    exam.require(
        let_out.startswith("ZeroDivisionError"),
        f"On rank {rank} the block raised a ZeroDivisionError, and my_alarm let out {let_out}.",
    )
    exam.require(not quick, f"On rank {rank} a block ended in time, and a record was written.")
    exam.require(not fails, f"On rank {rank} a block ended with an error, in time, and a record was written.")
    if rank != late:
        exam.require(
            written is not None,
            f"Rank {rank} waited for {_SECONDS_TO_WAIT} s, the alarm was set to {_SECONDS_OF_ALARM} s, and no record "
            "was written.",
        )
        exam.require(
            written is not None and written <= ended,
            f"Rank {rank} wrote its record after the block had ended. Who hangs for ever would write none.",
        )
        exam.require(shapes is not None, f"What rank {rank} wrote is no flight record: pickle.loads does not read it.")
        exam.require(
            shapes is not None and [13] in shapes,
            f"The record of rank {rank} has no all_reduce of 13 numbers, for which it was waiting.",
        )
    return "Whoever waited has left its record while it waited, and nobody else."


def _under_alarms(late):
    """Run three blocks, each under an alarm: one waits for the rank that is late, one is quick, one fails.

    Return when the record of the block that waits was written, when the block ended, and the shapes in that record;
    whether the quick block, and the one that fails, have left a record; and what my_alarm let out of the last one.
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
        record = _written(waits), ended, _shapes(waits)
        with errors_of_answer(), answer("my_alarm", [_SECONDS_OF_ALARM, str(quick)]):
            pass
        let_out = _let_out(str(fails))
        time.sleep(_SECONDS_OF_ALARM + 0.5)
        return *record, quick.exists(), fails.exists(), let_out


def _let_out(path):
    """Return the error that my_alarm lets out of a block that divides by 0, or "nothing"."""
    try:
        with answer("my_alarm", [_SECONDS_OF_ALARM, path]):
            _divide()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def _written(path):
    return os.path.getmtime(path) if path.exists() else None


def _shapes(path):
    try:
        return [shape for entry in pickle.loads(path.read_bytes())["entries"] for shape in entry["input_sizes"]]
    except Exception:
        return None


# ---------------------------------------------------------------- the cause among the echoes


@exercise
def my_suspects(exam):
    """Check `my_suspects(errors)`: ranks with an error of their own; if all are echoes, those without a file.

    The errors are those with which the ranks end, one after another, in a step in which the last rank has a fault.
    """
    last = exam.n - 1
    errors_in = exam.on_rank(_errors_by_case)
    suspects = {case: [] if case == _NO_FAULT else [last] for case in errors_in}
    if last > 1:
        case = "Two ranks fail by themselves"
        errors_in[case] = ["ValueError: the batch is empty", *errors_in[_OWN_ERROR][1:]]
        suspects[case] = [0, last]
    for case, errors in errors_in.items():
        for found in _results(exam, "my_suspects", case, list(errors)):
            said = "; ".join(f"rank {rank}: {_short(text)}" for rank, text in enumerate(errors))
            exam.require(
                isinstance(found, list | tuple | set) and list(found) == suspects[case],
                f"{case}: on rank {exam.rank} my_suspects returned {found}, expected {suspects[case]}. The errors "
                f"were: {said}.",
            )
    return "An error of one's own comes before an echo, and silence before nothing at all."


def _errors_by_case():
    """Return by the name of each case with what error each rank ends, None for a rank that comes to no error."""
    errors_in = {}
    for case, fault in _FAULTS.items():
        errors_in[case] = [None] * dist.get_world_size()
        dist.all_gather_object(errors_in[case], _error_of_this_rank(fault))
    return errors_in


def _error_of_this_rank(fault):
    """Return what ends this rank in a step in which the last rank has this fault, None if nothing does."""
    group = dist.new_group(timeout=timedelta(seconds=10 if fault is None else _SECONDS_OF_A_GROUP))
    is_faulty = fault is not None and dist.get_rank() == dist.get_world_size() - 1
    try:
        if is_faulty:
            fault()
            return None  # it slept until it was ended
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


_OWN_ERROR, _NO_FAULT = "A rank fails by itself", "Nobody fails"
_FAULTS = {
    _OWN_ERROR: _divide,
    "A rank sleeps": _sleep,
    "The disk of a rank does not answer": _time_out,
    _NO_FAULT: None,
}


def _short(text):
    if text is None:
        return "no file"
    return "an echo" if CUT_OFF.search(text) else text
