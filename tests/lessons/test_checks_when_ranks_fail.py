"""The checks of notebook 01 accept the solutions, and refuse the skeletons and plausible wrong answers, saying why."""

import os
import signal

import pytest
from live import wait_until

from helpers import checks
from helpers.checks import judging
from helpers.checks.judging import RESTART

SETUP = """
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, world_size = dist.get_rank(), dist.get_world_size()
"""

TOTAL = """
group = dist.new_group(timeout=timedelta(seconds=2))

def total():
    share = torch.arange(3.0 * world_size + 1)[rank::world_size]
    {}
    return result
"""
ONE_CALL_FOR_EACH_NUMBER = """
    result = 0.0
    for number in share:
        dist.all_reduce(number, group=group)
        result += number.item()
"""
ONE_CALL = "result = share.sum(); dist.all_reduce(result, group=group); result = result.item()"

ROLL_CALL = """
def roll_call(group):
    {}
"""
MONITORED = "dist.monitored_barrier(group, timeout=timedelta(seconds={}), wait_all_ranks={})"
RAISE_WHAT_IT_SAYS = """
    try:
        dist.monitored_barrier(group, timeout=timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        {}
"""

DEADLOCK = "Not yet. Deadlock: the group's timeout ended the wait on these ranks: "


def check_total(world, lines):
    world.view.execute(TOTAL.format(lines))
    return checks.when_ranks_fail.total(world)


def check_roll_call(world, lines):
    world.view.execute(ROLL_CALL.format(lines))
    return checks.when_ranks_fail.roll_call(world)


def test_total_is_solved_by_one_call(world):
    verdict = check_total(world, ONE_CALL)
    assert verdict
    assert repr(verdict) == "Solved. Every rank returned 78.0."


def test_total_is_solved_by_as_many_calls_on_every_rank(world):
    padded = "share = torch.cat([share, torch.zeros(4 - len(share))])"
    assert check_total(world, padded + ONE_CALL_FOR_EACH_NUMBER)


def test_total_may_be_a_tensor(world):
    assert check_total(world, "result = share.sum(); dist.all_reduce(result, group=group)")


def test_skeleton_of_total_is_a_deadlock_of_rank_0(world):
    verdict = check_total(world, ONE_CALL_FOR_EACH_NUMBER)
    assert not verdict
    assert repr(verdict) == f"{DEADLOCK}0. {RESTART}"
    # Another run of the cell of the answer makes a new group, and that is enough.
    assert check_total(world, ONE_CALL)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("share = share[:3]" + ONE_CALL_FOR_EACH_NUMBER, "Rank 0 returned 66.0, expected 78.0."),
        ("result = share.sum().item()", "Rank 0 returned 24.0, expected 78.0."),
        (
            "result = share.sum(); dist.reduce(result, dst=0, group=group); "
            "result = result.item() if rank == 0 else share.sum().item()",
            "Rank 1 returned 15.0, expected 78.0.",
        ),
        ("result = None", "Rank 0 returned None, expected 78.0."),
        ("result = 78.0", "The sum is right, but rank 0 did not get it from the others."),
        ("result = shares.sum()", "Rank 0 raised NameError: name 'shares' is not defined"),
    ],
    ids=[
        "drops the last number",
        "never speaks to the others",
        "reduces to rank 0",
        "returns nothing",
        "knows the sum",
        "misspelt",
    ],
)
def test_wrong_total(world, lines, message):
    assert repr(check_total(world, lines)) == f"Not yet. {message}"


def test_total_that_hides_the_error_is_refused(world):
    lines = ONE_CALL_FOR_EACH_NUMBER.replace("\n", "\n    ").replace("    \n", "\n", 1)
    verdict = check_total(world, f"try:{lines}\n    except RuntimeError: pass")
    assert repr(verdict) == "Not yet. Rank 0 returned 66.0, expected 78.0."


def test_total_on_a_stuck_or_dead_rank(broken_world):
    broken_world.view.execute(TOTAL.format(ONE_CALL))
    broken_world.view.client[1].execute("import time; time.sleep(1000)", block=False)
    assert wait_until(lambda: broken_world.where()[1].state == "busy", 20)
    assert repr(checks.when_ranks_fail.total(broken_world)) == f"Not yet. Rank 1 is busy. {RESTART}"
    os.kill(broken_world.pids[1], signal.SIGKILL)
    assert wait_until(lambda: broken_world.where()[1].state == "dead", 20)
    assert repr(checks.when_ranks_fail.total(broken_world)) == f"Not yet. Rank 1 is dead. {RESTART}"


def test_roll_call_is_solved(world):
    verdict = check_roll_call(world, MONITORED.format(2, True))
    assert verdict
    assert repr(verdict) == "Solved. Ranks 1, 3 were absent, and rank 0 named [1, 3] within 3 s."


@pytest.mark.parametrize(
    "words",
    [
        "absent: 1 and 3",
        "2 of 4 ranks have not come within 1 s: [1, 3]",
        "rank 1, rank 3 are missing (2 of 4)",
        "{1, 3}",
    ],
)
def test_roll_call_in_own_words_is_solved(world, words):
    say = f'raise RuntimeError("{words}" if rank == 0 else "see rank 0")'
    assert check_roll_call(world, RAISE_WHAT_IT_SAYS.format(say))


def test_skeleton_of_roll_call_is_too_late(world):
    verdict = check_roll_call(world, "dist.barrier(group)")
    assert not verdict
    assert repr(verdict) == "Not yet. Rank 0 raised its error later than after 3 s."


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (MONITORED.format(4, True), "Rank 0 raised its error later than after 3 s."),
        (MONITORED.format(1, False), "Ranks 1, 3 were absent, and the error on rank 0 names [1]."),
        (
            "dist.barrier(group, async_op=True).wait(timedelta(seconds=1))",
            "Ranks 1, 3 were absent, and the error on rank 0 names none.",
        ),
        (
            RAISE_WHAT_IT_SAYS.format('raise RuntimeError("ranks 0, 1, 2, 3 are to come")'),
            "Ranks 1, 3 were absent, and the error on rank 0 names [0, 1, 2, 3].",
        ),
        (
            RAISE_WHAT_IT_SAYS.format('raise RuntimeError("2 ranks are absent: 1 is the first")'),
            "Ranks 1, 3 were absent, and the error on rank 0 names [2], [1].",
        ),
        (RAISE_WHAT_IT_SAYS.format("pass"), "Ranks 1, 3 were absent, and rank 0 raised no error."),
        ('raise RuntimeError("1, 3")', "All ranks were there, and rank 0 raised RuntimeError: 1, 3"),
        ("dist.roll(group)", "Rank 0 raised AttributeError: module 'torch.distributed' has no attribute 'roll'"),
    ],
    ids=[
        "4 s",
        "the first only",
        "a quick barrier",
        "everybody",
        "a count",
        "hides the error",
        "always",
        "no such function",
    ],
)
def test_wrong_roll_call(world, lines, message):
    assert repr(check_roll_call(world, lines)) == f"Not yet. {message}"


def test_roll_call_that_waits_for_half_an_hour(broken_world, monkeypatch):
    monkeypatch.setattr(judging, "SECONDS_TO_ANSWER", 6)
    # Without a timeout, monitored_barrier does not take that of the group.
    verdict = check_roll_call(broken_world, "dist.monitored_barrier(group)")
    said = repr(verdict)
    assert said.startswith("Not yet. roll_call has not ended within 6 s on all ranks; world.where() shows")
    assert "busy" in said and said.endswith(RESTART)


def test_roll_call_that_nobody_has_defined(broken_world):
    broken_world.restart()
    broken_world.view.execute(SETUP)
    assert repr(checks.when_ranks_fail.roll_call(broken_world)) == (
        "Not yet. Rank 0 has no function `roll_call`: run the cell that defines it, then this check."
    )
