"""Worlds for the tests of the checks."""

import pytest

from helpers import World


@pytest.fixture(scope="module")
def world(request):
    """Four ranks that have run the SETUP of the test module."""
    world = World(4)
    world.view.execute(request.module.SETUP)
    yield world
    world.stop()


@pytest.fixture
def broken_world(world, request):
    """A world that the test leaves with ranks or a group that are good for nothing."""
    yield world
    world.restart()
    world.view.execute(request.module.SETUP)
