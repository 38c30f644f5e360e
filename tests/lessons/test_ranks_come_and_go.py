"""A few moments of the drill in benchmarks/ranks_come_and_go.py, and the modules with the cells of the lesson."""

import random
import re

import pytest
from lesson_files import ROOT, at_night

from benchmarks import ranks_come_and_go
from helpers import World
from helpers.measure import interruption


@pytest.fixture(scope="module")
def world():
    world = World(4)
    interruption.run_cells(world, range(4), ranks_come_and_go.cells_of_ranks(), SEED=0)
    yield world
    world.stop()


# About when the ranks meet, in the middle of the training, and at night from before they meet to the end.
DICE = random.Random(40)
MOMENTS = [round(DICE.uniform(0, 2.5), 2) for _ in range(20)]


@pytest.mark.parametrize("seconds", [0.5, 1.5, *map(at_night, [0, 1, *MOMENTS])])
def test_the_others_go_on_to_the_right_weights(world, seconds):
    cells = ranks_come_and_go.cells_of_ranks()
    random.seed(seconds)  # chooses the rank that is killed
    went_on, _ = ranks_come_and_go.kill_once(world, f"killed after {seconds}", cells, seconds)
    assert went_on


def test_the_modules_have_the_cells_of_the_lesson_in_their_order():
    cells = [cell for cell in ranks_come_and_go.cells_of_ranks() if "def my_" not in cell]
    modules = [(ROOT / f"notebooks/{name}.py").read_text() for name in ("small_training", "elastic_training")]
    places = []
    for cell in cells:
        text = cell.removeprefix("# every new rank runs this cell\n").replace(
            "from helpers.checks import accepted\n\n", ""
        )
        text = re.sub(r'accepted\("\w+", or_else=(\w+)\)', r"\1", text).strip()
        places.append("".join(modules).find(f"\n\n\n{text}\n"))
    assert -1 not in places and places == sorted(places)
