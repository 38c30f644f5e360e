"""What 49_three_dimensions takes: the memory of its eight ranks, which a world knows before it starts them."""

import pytest
from answer_files import code_of, setup_of

from helpers import World
from helpers.errors import WorldError
from helpers.ranks import memory, prefork


def test_the_memory_of_eight_ranks_is_what_a_world_asks_for():
    world = World(8, hosts=2)
    try:
        world.view.execute(setup_of("three_dimensions").code, silent=True)
        world.view.execute(code_of("three_dimensions.my_step", "solution"), silent=True)
        world.view.execute("for layout in layouts:\n    my_step(own_part(layout), layout)", silent=True)
        taken = sum(memory.share(pid) for pid in world.pids)
    finally:
        world.stop()
    asked_for = 8 * memory.RANK[prefork.START_METHOD]
    assert asked_for / 4 < taken < asked_for


def test_eight_ranks_without_room_are_refused_with_the_numbers(monkeypatch):
    room = 6.5 * memory.RANK[prefork.START_METHOD]
    monkeypatch.setattr(memory, "free", lambda: int(room))
    with pytest.raises(WorldError, match=r"so 8 of them take .* The largest world that fits has 6 ranks"):
        World(8, hosts=2)
