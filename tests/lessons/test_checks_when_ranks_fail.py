"""What the checks of 01_when_ranks_fail say of ranks that are stuck or dead, after a deadlock, and in other worlds."""

import os
import signal

import pytest
from answer_files import code_of, setup_of
from answers import says
from live import wait_until

from helpers import World, checks
from helpers.checks import judging
from helpers.checks.judging import FRESH_RANKS

SETUP = setup_of("when_ranks_fail")


def test_the_next_attempt_after_a_deadlock_gets_a_new_group(world):
    said = says(checks.when_ranks_fail.my_total, world, code_of("when_ranks_fail.my_total", "skeleton"))
    assert said.startswith("Not yet. Deadlock: ")
    said = says(checks.when_ranks_fail.my_total, world, code_of("when_ranks_fail.my_total", "solution"))
    assert said.startswith("Solved. ")


def test_my_total_on_a_stuck_or_dead_rank(broken_world):
    broken_world.view.execute(code_of("when_ranks_fail.my_total", "solution"))
    broken_world.view.client[1].execute("import time; time.sleep(1000)", block=False)
    assert wait_until(lambda: broken_world.where()[1].state == "busy", 20)
    assert repr(checks.when_ranks_fail.my_total(broken_world)) == f"Not yet. Rank 1 is busy. {FRESH_RANKS}"
    os.kill(broken_world.pids[1], signal.SIGKILL)
    assert wait_until(lambda: broken_world.where()[1].state == "dead", 20)
    assert repr(checks.when_ranks_fail.my_total(broken_world)) == f"Not yet. Rank 1 is dead. {FRESH_RANKS}"


def test_roll_call_that_waits_for_half_an_hour(broken_world, monkeypatch):
    monkeypatch.setattr(judging, "SECONDS_TO_ANSWER", 6)
    # Without a timeout, monitored_barrier does not take that of the group.
    answer = "def roll_call(group):\n    dist.monitored_barrier(group)"
    said = says(checks.when_ranks_fail.roll_call, broken_world, answer)
    assert said.startswith("Not yet. `roll_call` did not end on all ranks within 6 s; world.where() shows")
    assert "busy" in said and said.endswith(FRESH_RANKS)


@pytest.mark.parametrize("size", [2, 3])
def test_the_survivors_of_other_worlds_and_when_the_check_is_run_again(size):
    world = World(size)
    try:
        world.view.execute(SETUP.code)
        said = says(checks.when_ranks_fail.my_survivors, world, code_of("when_ranks_fail.my_survivors", "solution"))
        assert said == f"Solved. Rank {size - 1} is dead, and every other rank returned {list(range(size - 1))}."
        assert checks.when_ranks_fail.my_survivors(world)  # the rank is dead already
    finally:
        world.stop()
