"""Exercises of 01_when_ranks_fail."""

import os
import re
import time
from datetime import timedelta

import torch.distributed as dist

from helpers.checks.exam import AnswerError, answer, exercise, near, show
from helpers.checks.judging import CUT_OFF

_SECONDS_TO_NAME = 3
_SECONDS_OF_A_BUSY_MACHINE = 0.9  # by which it may wake a rank late, which is not the answer's fault
_NUMBER = re.compile(r"\d+")
_LIST = re.compile(r"\d+(?:(?:\s|,|;|and|or|ranks?)+\d+)*", re.IGNORECASE)  # "1, 3", "1 and 3", "rank 1, rank 3"


@exercise(own_group=True)
def total(exam):
    """Check `total()`: every rank gets the sum of 0 to 3n, of which rank r of n holds every n-th number, from r on."""
    expected = float(sum(range(3 * exam.n + 1)))
    result = exam.call()
    exam.require(near(result, expected), f"Rank {exam.rank} returned {show(result)}, expected {expected}.")
    exam.require(
        exam.collectives or exam.messages,
        f"The sum is right, but rank {exam.rank} did not get it from the others.",
    )
    return f"Every rank returned {expected}."


@exercise(own_group=True)
def roll_call(exam):
    """Check `roll_call(group)`: within 3 s it raises on rank 0 an error that names every rank that has not called it.

    When every rank has called it, it raises nothing.
    """
    rank = exam.rank
    absent = sorted({1, exam.n - 1})
    who = f"Rank {absent[0]} was" if len(absent) == 1 else f"Ranks {', '.join(map(str, absent))} were"
    all_there, some_absent, seconds = exam.on_rank(_call_roll, absent)
    exam.runs.clear()  # messages to and from the absent ranks have no other end, and none is expected
    exam.require(not all_there, f"All ranks were there, and rank {rank} raised {_first_line(all_there)}")
    # From here on rank 0 alone is judged.
    exam.require(rank > 0 or some_absent, f"{who} absent, and rank {rank} raised no error.")
    exam.require(
        rank > 0 or seconds <= _SECONDS_TO_NAME + _SECONDS_OF_A_BUSY_MACHINE,
        f"Rank {rank} raised its error later than after {_SECONDS_TO_NAME} s.",
    )
    named = _lists(some_absent)
    exam.require(
        rank > 0 or absent in named,
        f"{who} absent, and the error on rank {rank} names {', '.join(map(str, named)) or 'none'}.",
    )
    return f"{who} absent, and rank 0 named {absent} within {_SECONDS_TO_NAME} s."


def _call_roll(absent):
    """Return the error of `roll_call` called by all ranks, "" if there is none; that without some, and its seconds."""
    timeout = timedelta(seconds=5)
    groups = [dist.new_group(timeout=timeout), dist.new_group(timeout=timeout)]
    all_there = _error_of_roll_call(groups[0])
    if all_there and not all_there.startswith("RuntimeError"):
        raise AnswerError(all_there)  # a mistake in the answer, not a verdict on who is there
    begin = time.monotonic()
    some_absent = "" if int(os.environ["RANK"]) in absent else _error_of_roll_call(groups[1])
    return all_there, some_absent, time.monotonic() - begin


def _error_of_roll_call(group):
    try:
        answer("roll_call", [group])
    except AnswerError as error:
        return str(error)
    return ""


def _lists(error):
    """Return the lists of numbers in an error, each in order: those of ranks, and what else is said, as "2 of 4"."""
    text = _first_line(error).partition(": ")[2]
    if named := re.search(r"Ranks? ([\d, ]+) failed to pass", text):  # by monitored_barrier
        text = named[1]
    elif CUT_OFF.search(error):
        text = ""  # gloo's own numbers are no ranks
    return [sorted(map(int, _NUMBER.findall(numbers))) for numbers in _LIST.findall(text)]


def _first_line(error):
    return error.partition("\n")[0]
