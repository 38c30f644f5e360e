"""The check of `once` in 32_hybrid_failures accepts an answer again, with what the answer has kept."""

import pytest
from answer_files import code_of, setup_of
from answers import says

from helpers import checks

SETUP = setup_of("hybrid_failures")


@pytest.mark.parametrize("title", ["solution", "futures", "a lock for each request"])
def test_once_is_accepted_again(world, title):
    said = says(checks.hybrid_failures.once, world, code_of("hybrid_failures.once", title))
    assert said.startswith("Solved. ")
    assert repr(checks.hybrid_failures.once(world)) == said
