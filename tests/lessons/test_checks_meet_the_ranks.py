"""What the checks of 00_meet_the_ranks say after something else has happened to the ranks."""

import os
import signal

from answer_files import code_of, setup_of
from answers import says
from live import wait_until

from helpers import checks
from helpers.checks.judging import RESTART

SETUP = setup_of("meet_the_ranks")


def test_a_group_that_was_broken_before_is_not_blamed_on_the_answer(broken_world):
    says(checks.meet_the_ranks.collect, broken_world, code_of("meet_the_ranks.collect", "that deadlocks"))
    said = says(checks.meet_the_ranks.collect, broken_world, code_of("meet_the_ranks.collect", "solution"))
    assert said == f"Not yet. An earlier attempt broke the process group. {RESTART}"


def test_a_dead_rank_is_named(broken_world):
    os.kill(broken_world.pids[2], signal.SIGKILL)
    assert wait_until(lambda: broken_world.where()[2].state == "dead", 20)
    assert repr(checks.meet_the_ranks.collect(broken_world)) == f"Not yet. Rank 2 is dead. {RESTART}"
