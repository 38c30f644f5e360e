"""What the checks of 08_data_parallel say of an answer after another one has broken the group."""

import pytest
from answer_files import code_of, setup_of
from answers import says

from helpers import checks
from helpers.checks.judging import RESTART

SETUP = setup_of("data_parallel")


@pytest.mark.nightly
def test_a_group_that_an_answer_has_broken_is_not_blamed_on_the_next(broken_world):
    answer = code_of("data_parallel.average_gradients", "on one rank only")
    assert says(checks.data_parallel.average_gradients, broken_world, answer).startswith("Not yet. Deadlock: ")
    answer = code_of("data_parallel.average_what_is_there", "solution")
    assert says(checks.data_parallel.average_what_is_there, broken_world, answer) == (
        f"Not yet. An earlier attempt has broken the process group. {RESTART}"
    )
