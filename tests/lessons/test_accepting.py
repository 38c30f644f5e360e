"""`checks.accepted`: the lesson goes on with an answer that has passed its check, and with no other."""

import pytest
from answers import cell
from live import Notebook

LESSON, SOLUTIONS = "06_ring_all_reduce.ipynb", "solutions/06_ring_all_reduce.ipynb"
START = "from helpers import World, checks\nworld = World(2)"
SETUP = "%%px\n" + cell(SOLUTIONS, "init_process_group(")
ANSWER = "%%px\n" + cell(SOLUTIONS, "def reduce_scatter(")
SKELETON = "%%px\n" + cell(LESSON, "def reduce_scatter(")
CHECK = "checks.ring_all_reduce.reduce_scatter(world)"
CHOICE = """%%px
from helpers.checks import accepted
def its_own(tensor): ...
chosen = accepted("reduce_scatter", or_else=its_own)
"""
CHOSEN = 'world.view["chosen.__name__"]'
YOURS = "[stdout:0] \nThe lesson goes on with your `reduce_scatter`.\n"
NOT_PASSED = "The lesson goes on with its own implementation, because your `reduce_scatter` has not passed its check.\n"
CHANGED = NOT_PASSED.replace("not passed", "changed since it passed")
NOT_THERE = NOT_PASSED.replace("has not passed its check", "is not on this rank: run its cell again")


@pytest.fixture(scope="module")
def kernel():
    notebook = Notebook()
    yield notebook
    notebook.close()


@pytest.fixture
def lesson(kernel):
    """A notebook in which the answer has just passed its check."""
    kernel.run(START)
    for source in (SETUP, ANSWER):
        kernel.run(source)
    assert "Solved" in kernel.run(CHECK)
    return kernel


def test_only_what_has_passed_its_check(lesson):
    for source in (START, SETUP, SKELETON):
        lesson.run(source)
    assert lesson.run(CHOICE).endswith(NOT_PASSED)
    assert "Not yet" in lesson.run(CHECK)
    assert lesson.run(CHOICE).endswith(NOT_PASSED)
    assert lesson.run(CHOSEN) == "['its_own', 'its_own']"


def test_the_answer_on_every_rank_and_said_once(lesson):
    assert lesson.run(CHOICE) == YOURS
    assert lesson.run(CHOSEN) == "['reduce_scatter', 'reduce_scatter']"


def test_the_same_cell_run_again_is_the_same_answer(lesson):
    lesson.run(ANSWER)
    assert lesson.run(CHOICE) == YOURS


def test_newlines_at_the_end_of_the_cell_do_not_count(lesson):
    lesson.run(ANSWER + "\n\n")
    assert lesson.run(CHOICE) == YOURS


def test_a_changed_answer_has_to_pass_again(lesson):
    lesson.run(ANSWER + "\n# changed")
    assert lesson.run(CHOICE).endswith(CHANGED)
    assert lesson.run(CHOSEN) == "['its_own', 'its_own']"
    assert "Solved" in lesson.run(CHECK)
    assert lesson.run(CHOICE) == YOURS


def test_an_answer_that_a_restart_has_ended_is_run_again(lesson):
    lesson.run("world.restart()")
    assert lesson.run(CHOICE).endswith(NOT_THERE)
    lesson.run(ANSWER)
    assert lesson.run(CHOICE) == YOURS


@pytest.mark.parametrize("restart", ["world.restart()", "world.restart(rank=1)"])
def test_an_answer_outlives_a_restart(lesson, restart):
    lesson.run(restart)
    lesson.run(ANSWER)
    assert lesson.run(CHOICE) == YOURS
    assert lesson.run(CHOSEN) == "['reduce_scatter', 'reduce_scatter']"


def test_a_new_world_begins_anew(lesson):
    for source in (START, SETUP, ANSWER):
        lesson.run(source)
    assert lesson.run(CHOICE).endswith(NOT_PASSED)


def test_a_cell_that_fails_later_names_the_answer_in_use(lesson):
    assert "goes on" not in lesson.run("1 / 0")
    lesson.run(CHOICE)
    for failing in ("1 / 0", "%%px\n1 / 0"):
        assert "This lesson goes on with your `reduce_scatter`. If your code may be why" in lesson.run(failing)


def test_a_class_is_an_answer_too(lesson):
    lesson.run("%%px\nclass Answer:\n    kind = 1\n    def method(self): ...")
    lesson.run("from helpers.checks.accepting import accept\naccept(world, 'Answer')")
    choice = CHOICE.replace("reduce_scatter", "Answer")
    assert lesson.run(choice) == YOURS.replace("reduce_scatter", "Answer")
    lesson.run("%%px\nclass Answer:\n    kind = 2\n    def method(self): ...")
    assert lesson.run(choice).endswith(CHANGED.replace("reduce_scatter", "Answer"))
