"""Checks of the exercises of notebook 01."""

import re
import time
from datetime import timedelta

from helpers.checks.judging import CUT_OFF, Run, Verdict, Wrong, call_answer, judge

_SECONDS_TO_NAME = 3
_SECONDS_OF_A_BUSY_MACHINE = 0.9  # by which it may wake a rank late, which is not the answer's fault
_NUMBER = re.compile(r"\d+")
_LIST = re.compile(r"\d+(?:(?:\s|,|;|and|or|ranks?)+\d+)*", re.IGNORECASE)  # "1, 3", "1 and 3", "rank 1, rank 3"


def total(world) -> Verdict:
    """Check `total()`: every rank gets the sum of 0 to 3n, of which rank r of n holds every n-th number, from r on."""
    target = float(sum(range(3 * world.size + 1)))

    def check(runs):
        for rank, run in enumerate(runs):
            if run.result != target:
                raise Wrong(f"Rank {rank} returned {run.result}, and the target is {target}.")
            if not run.collectives and not run.messages:
                raise Wrong(f"The sum is right, but rank {rank} did not get it from the others.")
        return f"Every rank returned {target}."

    return judge(world, "total", check, _run_total, group_of_its_own=True)


def roll_call(world) -> Verdict:
    """Check `roll_call(group)`: within 3 s it raises on rank 0 an error that names every rank that has not called it.

    When every rank has called it, it raises nothing.
    """
    absent = sorted({1, world.size - 1})

    def check(runs):
        for rank, (all_there, _) in enumerate(run.result for run in runs):
            if all_there.error:
                raise Wrong(f"All ranks were there, and rank {rank} raised {all_there.error.splitlines()[0]}")
        rank_0 = runs[0].result[1]
        if not rank_0.error:
            raise Wrong(f"{_ranks(absent)} absent, and rank 0 raised no error.")
        if rank_0.result > _SECONDS_TO_NAME + _SECONDS_OF_A_BUSY_MACHINE:
            raise Wrong(f"Rank 0 raised its error later than after {_SECONDS_TO_NAME} s.")
        lists = _lists(rank_0.error)
        if absent not in lists:
            named = ", ".join(map(str, lists)) or "none"
            raise Wrong(f"{_ranks(absent)} absent, and the error on rank 0 names {named}.")
        return f"{_ranks(absent)} absent, and rank 0 named {absent} within {_SECONDS_TO_NAME} s."

    return judge(world, "roll_call", check, _call_roll, absent, group_of_its_own=True)


def _run_total():
    run = call_answer("total", [])
    return run._replace(result=run.result.tolist() if hasattr(run.result, "tolist") else run.result)


def _call_roll(absent):
    import torch.distributed as dist

    timeout = timedelta(seconds=5)
    groups = [dist.new_group(timeout=timeout), dist.new_group(timeout=timeout)]
    all_there = call_answer("roll_call", [groups[0]])
    if all_there.error and not all_there.error.startswith("RuntimeError"):
        return all_there  # its own mistake, not a verdict on who is there
    begin = time.monotonic()
    some_absent = Run(None, [], "") if dist.get_rank() in absent else call_answer("roll_call", [groups[1]])
    return Run([all_there, some_absent._replace(result=time.monotonic() - begin)], [], "")


def _lists(error):
    """Return the lists of numbers in an error, each in order: those of ranks, and what else is said, as "2 of 4"."""
    text = error.splitlines()[0].partition(": ")[2]
    if named := re.search(r"Ranks? ([\d, ]+) failed to pass", text):  # by monitored_barrier
        text = named[1]
    elif CUT_OFF.search(error):
        text = ""  # gloo's own numbers are no ranks
    return [sorted(map(int, _NUMBER.findall(numbers))) for numbers in _LIST.findall(text)]


def _ranks(ranks):
    return f"Rank {ranks[0]} was" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))} were"
