"""Each check says of each answer of tests/lessons/answers what the answer's cell expects."""

import pytest
from answer_files import BROKEN, read_all
from answers import begin, forget_answers, says

from helpers import checks

ANSWERS = [answer for file in read_all() for answer in file.answers]
OTHER_SIZES = [size for file in read_all() for size in file.other_sizes]


def check_of(answer):
    """Return the check that an answer is for."""
    topic, _, name = answer.check.partition(".")
    return getattr(getattr(checks, topic), name)


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_answer(answer, world):
    forget_answers(world)
    said = says(check_of(answer), world, answer.code)
    if BROKEN.search(said) or any(rank.state != "idle" for rank in world.where()):
        world.restart()  # for the next answer
        begin(world, answer.setup.code)
    assert answer.agrees(said), f"{said}\n\nexpected in line {answer.line}:\n\n{answer.sentence}"


@pytest.mark.nightly
@pytest.mark.parametrize("others", OTHER_SIZES, ids=str)
def test_answers_with_another_number_of_ranks(others, world):
    for answer in others.answers:
        begin = "Not yet. " if answer.title == "skeleton" else "Solved. "
        assert says(check_of(answer), world, answer.code).startswith(begin), f"the {answer.title} of {answer.check}"
