"""15_ddp_in_practice's own asserts refuse a training that is not continued rightly from its checkpoint."""

import pytest
from answer_files import setup_of
from answers import cell

NAME = "15_ddp_in_practice.ipynb"
SETUP = setup_of("ddp_in_practice")

_COURSES_OWN = """
remaining = remaining_of_the_lesson
save, resume = save_of_the_lesson, resume_of_the_lesson
"""


@pytest.mark.parametrize(
    ("original", "changed", "is_right"),
    [
        ("run.batch * run.size", "run.batch * run.size", True),
        ('run.optimizer.load_state_dict(state["optimizer"])', "pass", False),
        ('torch.set_rng_state(state["generators"][rank])', "pass", False),
        ("[run.batch * run.size :]", "[:]", False),
    ],
)
def test_a_training_that_is_resumed(world, original, changed, is_right):
    functions = cell(NAME, "def save_of_the_lesson(")
    assert functions.count(original) == 1
    world.view.update({"SEED": 0})
    for code in (
        cell(NAME, "class Run"),
        functions.replace(original, changed),
        _COURSES_OWN,
        cell(NAME, "def train(run, steps)"),
        cell(NAME, "train(unbroken, 40)"),
        cell(NAME, "def distance(forgotten)"),
    ):
        world.view.execute(code)
    off = world.call("distance", "nothing")[0]
    assert (off < 1e-9) == is_right, off
