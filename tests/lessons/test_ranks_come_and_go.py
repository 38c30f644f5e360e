"""A few moments of the drill in benchmarks/ranks_come_and_go.py: a rank is killed, and the others go on."""

import pytest
from lesson_files import at_night

from benchmarks import ranks_come_and_go
from helpers import World


@pytest.fixture(scope="module")
def world():
    world = World(4)
    ranks_come_and_go.run_cells(world, range(4), ranks_come_and_go.cells_of_ranks())
    yield world
    world.stop()


# Before the ranks meet, about then, and in the middle.
@pytest.mark.parametrize("seconds", [at_night(0), 0.5, at_night(1), 1.5])
def test_the_others_go_on_to_the_right_weights(world, seconds):
    cells = ranks_come_and_go.cells_of_ranks()
    went_on, _ = ranks_come_and_go.kill_once(world, f"killed after {seconds}", cells, seconds)
    assert went_on
