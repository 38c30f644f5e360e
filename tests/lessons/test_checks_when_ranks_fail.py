"""What the checks of 01_when_ranks_fail say of ranks that are stuck or dead, and of an answer after a deadlock."""

import os
import signal

from answer_files import code_of, setup_of
from answers import says
from live import wait_until

from helpers import checks
from helpers.checks import judging
from helpers.checks.judging import RESTART

SETUP = setup_of("when_ranks_fail")


def test_another_run_of_the_cell_makes_a_new_group_and_that_is_enough(world):
    said = says(checks.when_ranks_fail.total, world, code_of("when_ranks_fail.total", "skeleton"))
    assert said.startswith("Not yet. Deadlock: ")
    said = says(checks.when_ranks_fail.total, world, code_of("when_ranks_fail.total", "solution"))
    assert said.startswith("Solved. ")


def test_total_on_a_stuck_or_dead_rank(broken_world):
    broken_world.view.execute(code_of("when_ranks_fail.total", "solution"))
    broken_world.view.client[1].execute("import time; time.sleep(1000)", block=False)
    assert wait_until(lambda: broken_world.where()[1].state == "busy", 20)
    assert repr(checks.when_ranks_fail.total(broken_world)) == f"Not yet. Rank 1 is busy. {RESTART}"
    os.kill(broken_world.pids[1], signal.SIGKILL)
    assert wait_until(lambda: broken_world.where()[1].state == "dead", 20)
    assert repr(checks.when_ranks_fail.total(broken_world)) == f"Not yet. Rank 1 is dead. {RESTART}"


def test_roll_call_that_waits_for_half_an_hour(broken_world, monkeypatch):
    monkeypatch.setattr(judging, "SECONDS_TO_ANSWER", 6)
    # Without a timeout, monitored_barrier does not take that of the group.
    answer = "def roll_call(group):\n    dist.monitored_barrier(group)"
    said = says(checks.when_ranks_fail.roll_call, broken_world, answer)
    assert said.startswith("Not yet. roll_call has not ended within 6 s on all ranks; world.where() shows")
    assert "busy" in said and said.endswith(RESTART)
