"""The check of `once` in 33_hybrid_recovery accepts an answer again, with what the answer has kept."""

import pytest
from answer_files import code_of, setup_of
from answers import says

from helpers import checks

SETUP = setup_of("hybrid_recovery")


@pytest.mark.parametrize("title", ["solution", "futures", "a lock for each request"])
def test_once_is_accepted_again(world, title):
    said = says(checks.hybrid_recovery.once, world, code_of("hybrid_recovery.once", title))
    assert said.startswith("Solved. ")
    assert repr(checks.hybrid_recovery.once(world)) == said
