"""Exercises of 01_when_ranks_fail: a deadlock, absent ranks, bad data, and a dead rank."""

import itertools
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from helpers import tap
from helpers.checks.exam import AnswerError, answer, exercise, near, show
from helpers.checks.judging import FRESH_RANKS, TIMEOUT_ERROR, kill_last

_SECONDS_TO_NAME = 3
_SECONDS_OF_A_BUSY_MACHINE = 0.9  # a busy machine may wake a rank this late; the answer is not at fault
_SECONDS_OF_A_GROUP = 3
_SECONDS_TO_SIGN = 5
_SECONDS_APART = 0.4  # between the first call of a survivor and the last call
_NUMBER = re.compile(r"\d+")
_LIST = re.compile(r"\d+(?:(?:\s|,|;|and|or|ranks?)+\d+)*", re.IGNORECASE)  # "1, 3", "1 and 3", "rank 1, rank 3"
_attempts = itertools.count()  # each attempt of `my_survivors` has its own keys in the store


@exercise(own_group=True, restart=FRESH_RANKS)
def my_total(exam):
    """Check `my_total(group)`: every rank returns the sum of 0 to 3n; rank r of n has every n-th number, from r on."""
    expected = float(sum(range(3 * exam.n + 1)))
    result, outside = exam.on_rank(answer_in_new_group, "my_total")
    exam.require(near(result, expected), f"Rank {exam.rank} returned {show(result)}, expected {expected}.")
    require_communication(exam, "sum")
    require_group(exam, outside)
    return f"Every rank returned {expected}."


@exercise(own_group=True, restart=FRESH_RANKS)
def roll_call(exam):
    """Check `roll_call(group)`: on rank 0 it raises an error that names every absent rank, within 3 s.

    If every rank calls `roll_call`, it raises no error.
    """
    rank = exam.rank
    absent = sorted({1, exam.n - 1})
    who = f"Rank {absent[0]} was" if len(absent) == 1 else f"Ranks {', '.join(map(str, absent))} were"
    all_there, some_absent, is_runtime_error, seconds, outside = exam.on_rank(_call_roll, absent)
    exam.runs.clear()  # Messages to and from absent ranks have no partner, so do not compare messages.
    exam.require(
        not all_there,
        f"All ranks had called `roll_call`, but rank {rank} raised {_first_line(all_there)}, expected no error.",
    )
    require_group(exam, outside)
    # The following requirements are for rank 0 only.
    exam.require(rank > 0 or some_absent, f"{who} absent, but rank {rank} raised no error, expected a RuntimeError.")
    exam.require(
        rank > 0 or is_runtime_error,
        f"{who} absent, but rank {rank} raised {_first_line(some_absent)}, expected a RuntimeError.",
    )
    exam.require(
        rank > 0 or seconds <= _SECONDS_TO_NAME + _SECONDS_OF_A_BUSY_MACHINE,
        f"Rank {rank} raised its error too late, expected it within {_SECONDS_TO_NAME} s: how long does it wait?",
    )
    named = _lists(some_absent)
    naming = f"names {', '.join(map(str, named)) or 'no rank'}, expected {absent}"
    exam.require(rank > 0 or absent in named, f"{who} absent, but the error on rank {rank} {naming}.")
    return f"{who} absent, and rank 0 named {absent} within {_SECONDS_TO_NAME} s."


@exercise(own_group=True, restart=FRESH_RANKS)
def my_score(exam):
    """Check `my_score(tokens, group)`: every rank returns the sum of the weights of all tokens that have a weight.

    The weight of token t is t, for the tokens 0 to 9.
    """
    rank, expected = exam.rank, float(sum(rank % 10 + 3 for rank in range(exam.n)))
    without_weight = ([10], [12, 10]) if rank == 1 else ([], [])
    first, second = (torch.tensor([rank % 10, *tokens, 3]) for tokens in without_weight)
    given = [*first.tolist(), *second.tolist()]
    (result, result_of_second), outside = exam.on_rank(_scores, [first, second])
    exam.require(near(result, expected), f"Rank {rank} returned {show(result)}, expected {expected}.")
    exam.require(
        near(result_of_second, expected),
        f"Rank {rank} returned {show(result_of_second)} when rank 1 also had token 12, expected {expected}.",
    )
    exam.require(
        [*first.tolist(), *second.tolist()] == given,
        f"Rank {rank} changed its tokens to {first.tolist()}, expected no change.",
    )
    require_communication(exam, "score")
    require_group(exam, outside)
    return f"Every rank returned {expected}."


@exercise(ranks=slice(-1), before=kill_last, restart=FRESH_RANKS)
def my_survivors(exam):
    """Check `my_survivors(store)`: every live rank returns the list of all live ranks, within 3 s.

    Kill the last rank first.
    """
    expected = list(range(exam.n - 1))
    result, seconds, new_keys = exam.on_rank(_find_survivors)
    returned = list(result) if isinstance(result, list | tuple | set | range) else result
    exam.require(
        returned == expected,
        f"Rank {exam.n - 1} is dead, and rank {exam.rank} returned {returned}, expected {expected}. {FRESH_RANKS}",
    )
    exam.require(
        seconds <= _SECONDS_TO_NAME + _SECONDS_OF_A_BUSY_MACHINE,
        f"Rank {exam.rank} returned too late, expected a list within {_SECONDS_TO_NAME} s: how long does it wait? "
        f"{FRESH_RANKS}",
    )
    exam.require(
        new_keys,
        f"The list is right, but no rank set a key in the store, expected each rank to set a key. {FRESH_RANKS}",
    )
    return f"Rank {exam.n - 1} is dead, and every other rank returned {expected}."


def require_communication(exam, what):
    """Require that the learner's function called a collective or sent a message for its result."""
    exam.require(
        exam.collectives or exam.messages,
        f"The {what} is right, but rank {exam.rank} did not get it from the other ranks, expected a collective or "
        "messages.",
    )


def require_group(exam, outside):
    """Require that the learner's function called nothing in the default group; see `in_default_group`."""
    exam.require(
        not outside,
        f"Rank {exam.rank} called {' and '.join(sorted(set(outside)))} in the default group, expected `group`: "
        "pass `group=group` to every call.",
    )


@contextmanager
def in_default_group() -> Iterator[list[str]]:
    """List the names of the collectives and messages that this rank calls in the default group inside the block."""
    names = []

    def note(event):
        if event.group.group_name == dist.group.WORLD.group_name:
            names.append(event.name)

    with tap.subscribed(tap.Operation, begin=note):
        yield names


def answer_in_new_group(name, *arguments):
    """Call the learner's function with a new group of all ranks as its last argument.

    Return its result, and the names of its calls in the default group.
    """
    group = dist.new_group(timeout=timedelta(seconds=_SECONDS_OF_A_GROUP))
    with in_default_group() as outside:
        return answer(name, [*arguments, group]), outside


def _scores(both):
    """Call `my_score` with each of two tensors of tokens, each in a new group.

    Return the results, and the names of the calls in the default group. All ranks make both groups before the first
    call, because a rank that raises an error makes no second call.
    """
    groups = [dist.new_group(timeout=timedelta(seconds=_SECONDS_OF_A_GROUP)) for _ in both]
    results, outside = [], []
    for tokens, group in zip(both, groups, strict=True):
        given = tokens.tolist()
        try:
            with in_default_group() as names:
                results.append(answer("my_score", [tokens, group]))
        except AnswerError as error:
            if not results or TIMEOUT_ERROR.search(str(error)):
                raise
            raise AnswerError(f"{_first_line(str(error))}. This happened with the tokens {given}.") from error
        outside += names
    return results, outside


def _call_roll(absent):
    """Call `roll_call` on all ranks, then without the absent ranks.

    Return the error of each call, "" for no error, whether the second error is a RuntimeError, the seconds that the
    second call took, and the names of the calls in the default group while all ranks were there.
    """
    timeout = timedelta(seconds=5)
    groups = [dist.new_group(timeout=timeout), dist.new_group(timeout=timeout)]
    with in_default_group() as outside:
        all_there, _ = _error_of_roll_call(groups[0])
    if all_there and not all_there.startswith("RuntimeError"):
        raise AnswerError(all_there)  # a mistake in the answer, not an error about absent ranks
    begin = time.monotonic()
    stays_away = outside or int(os.environ["RANK"]) in absent  # absent ranks would break the default group
    some_absent, is_runtime_error = ("", False) if stays_away else _error_of_roll_call(groups[1])
    return all_there, some_absent, is_runtime_error, time.monotonic() - begin, outside


def _error_of_roll_call(group):
    """Return the error of a call of `roll_call`, "" for no error, and whether it is a RuntimeError."""
    try:
        answer("roll_call", [group])
    except AnswerError as error:
        return str(error), isinstance(error.__cause__, RuntimeError)
    return "", False


def _lists(error):
    """Return every list of numbers in an error, sorted, including numbers that are not ranks, as in "2 of 4"."""
    text = _first_line(error).partition(": ")[2]
    if named := re.search(r"Ranks? ([\d, ]+) failed to pass", text):  # by monitored_barrier
        text = named[1]
    elif TIMEOUT_ERROR.search(error):
        text = ""  # the numbers in gloo's own errors are not ranks
    return [sorted(map(int, _NUMBER.findall(numbers))) for numbers in _LIST.findall(text)]


def _first_line(error):
    return error.partition("\n")[0]


def _find_survivors():
    """Call `my_survivors` on this rank, a little later on the last survivor.

    Return its result, its seconds, and how many keys the store got meanwhile.
    """
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    server = dist.TCPStore(*address, is_master=False, timeout=timedelta(seconds=_SECONDS_TO_SIGN))
    store = dist.PrefixStore(f"survivors {next(_attempts)}", server)
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 2:
        time.sleep(_SECONDS_APART)
    begin, keys = time.monotonic(), server.num_keys()
    result = answer("my_survivors", [store])
    return result, time.monotonic() - begin, server.num_keys() - keys
