"""The files of answers: what their cells become, and which mistakes in them are refused."""

import re

import pytest
from answer_files import definitions, parsed

SETUP = "# %% World(4, hosts=2) with cables\n# cell `init_process_group(`, with `seconds=10` as `seconds=4`\nx = 1\n\n"
ANSWER = "# %% mean: of one rank\n# Solved. ...\ndef mean(numbers):\n    return numbers[0]\n\n"


def code_of(cell):
    """Return the code of an answer to the exercise `mean` of 04_collectives, the last in a file."""
    return parsed(SETUP + ANSWER + cell, "04_collectives").answers[-1].code


def test_the_setup_has_the_code_of_the_lesson_and_the_options_of_the_world():
    (answer,) = parsed(SETUP + ANSWER, "04_collectives").answers
    assert answer.setup[1:] == (4, 2, True)
    assert "seconds=4" in answer.setup.code and answer.setup.code.endswith("\nx = 1")


def test_solution_and_skeleton_are_those_of_the_notebooks():
    (solution,) = definitions("solutions/04_collectives.ipynb", "mean")
    (skeleton,) = definitions("04_collectives.ipynb", "mean")
    assert code_of("# %% mean: solution\n# Solved. ...\n") == solution != skeleton
    assert code_of("# %% transpose\n# Not yet. ...\n# skeleton of mean\n") == skeleton


def test_a_change_may_go_on_in_the_next_line():
    change = '# answer "of one rank", with `numbers`\n# as `rows` and `[0]` as `[1]`,\n# without `def `'
    cell = f"# %% mean\n# Not yet. ...\n{change}"
    assert code_of(cell) == "mean(rows):\n    return rows[1]"


def test_code_may_follow_what_is_taken_from_elsewhere():
    assert code_of('# %% transpose\n# Not yet. ...\n# answer "of one rank" to mean\ntranspose = mean').endswith(
        "return numbers[0]\ntranspose = mean"
    )


def test_other_sizes_try_the_solution_and_the_skeleton():
    cells = (
        "# %% mean: solution\n# Solved. ...\n\n# %% mean: skeleton\n# Not yet. ...\n\n# %% World(2), World(5): mean\n"
    )
    two, five = parsed(SETUP + ANSWER + cells, "04_collectives").other_sizes
    assert (two.setup.size, five.setup.size) == (2, 5)
    assert [answer.title for answer in two.answers] == ["solution", "skeleton"]


def test_other_sizes_above_the_answers_try_nothing_and_are_refused():
    with pytest.raises(ValueError, match=r"line 10: above this cell is no solution or skeleton of collectives\.mean"):
        parsed(f"{SETUP}{ANSWER}# %% World(2): mean\n", "04_collectives")


@pytest.mark.parametrize(
    ("sentence", "said", "agrees"),
    [
        ("Not yet. Rank 0 holds 1.", "Not yet. Rank 0 holds 1.", True),
        ("Not yet. Rank 0 holds 1.", "Not yet. Rank 0 holds 1. Call world.restart().", False),
        ("Not yet. Rank 0 holds 1. ...", "Not yet. Rank 0 holds 1.\nCall world.restart().", True),
        ("Not yet. ... holds [...", "Not yet. Rank 0 holds [1, 2].", True),
        ("Not yet. ... holds 2 ...", "Not yet. Rank 0 holds 1.", False),
        ("Solved. ...", "Not yet. Rank 0 holds 1.", False),
    ],
)
def test_dots_stand_for_any_text(sentence, said, agrees):
    (answer,) = parsed(f"# %% mean\n# {sentence}\npass\n", "04_collectives").answers
    assert answer.agrees(said) == agrees


@pytest.mark.parametrize(
    ("cell", "mistake"),
    [
        ("# Solved. ...\n# solution, with `no such text` as `x`", "`no such text` does not occur in"),
        ("# Solved. ...\n# solution, `x` instead of `y`", "expected a change of the code, found ', `x` instead"),
        ("# Solved. ...\n# solution of no_such_name", "'solution of no_such_name' is there 0 times, expected once"),
        ('# Solved. ...\n# answer "of two ranks"', "'answer \"of two ranks\"' is there 0 times, expected once"),
        ("# Right.\npass", "expected what the check says, Solved. or Not yet., found 'Right.'"),
        ("# Solved. ...", "the cell has no code"),
    ],
)
def test_a_mistake_in_a_cell_is_refused_with_its_line(cell, mistake):
    with pytest.raises(ValueError, match=r"04_collectives\.py, line 10: .*" + re.escape(mistake)):
        parsed(f"{SETUP}{ANSWER}# %% mean\n{cell}\n", "04_collectives")
