"""How all tests run: in which order, beside what, in which environment; and worlds for the tests of the checks."""

import inspect
import os
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

import _pytest.runner
import answers
import lesson_files
import pytest
from chromium import browser  # noqa: F401  # a fixture
from xdist.scheduler import LoadScopeScheduling

import helpers.world
from helpers import World
from helpers.grade import sandbox
from helpers.kernels import KERNEL
from helpers.ranks import prefork

# Kernels and ranks start as a user starts them. ipykernel forwards what C++ code prints, but not where it finds the
# name of a test in the environment. pytest has no option that leaves it out; test_kernels.py looks whether it is there.
_pytest.runner._update_current_test_var = lambda item, when: None
for name in [name for name in os.environ if name.startswith("PYTEST")]:
    del os.environ[name]

_preloaded = None  # what the fork server of this process has imported for a lesson

# Of the wrong answers to an exercise so many belong to every run; the others have their turn at night.
WRONG_ANSWERS_OF_EVERY_RUN = 2

# Each test of these modules runs in the next process that is free, because it takes long.
SPREAD = [
    "test_clusters.py",
    "test_notebooks.py",
    "test_two_hosts.py",
    "test_mutants.py",
    "test_random_mutants.py",
    "test_script.py",
]
# What takes longest runs first, in this order. The first of these share what takes long to start: a class that has been
# graded, a JupyterLab, a kernel.
FIRST = ["test_grade_sandbox.py", "test_browser.py", "test_faults.py", *SPREAD]


def pytest_configure(config):
    if config.pluginmanager.hasplugin("nbval"):
        config.option.nbval_kernel_name = KERNEL
        config.option.nbval_cell_timeout = 120
        config.option.nbval_kernel_startup_timeout = 120


def pytest_collection_modifyitems(config, items):
    """Leave out what is not asked for, and run the long tests first."""
    if lesson_files.CHOSEN:
        keep(config, items, lesson_files.belongs)
    for item in further_answers(items):
        item.add_marker(pytest.mark.nightly)
    if not lesson_files.ALL:
        keep(config, items, lambda item: not item.get_closest_marker("nightly"))
    items.sort(key=lambda item: (place_of(item), preloaded_for(item.path)))


def place_of(item):
    """Return the place of a test's module among those that run first, or the place behind them."""
    return FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST)


@lru_cache
def preloaded_for(path):
    """Return the modules that the lesson of a test module has imported before its ranks are forked."""
    return answers.preloaded(path.stem.removeprefix("test_checks_"))


def further_answers(items):
    """Yield the items of the tests of checks that try more answers than belong to every run.

    To every run belong the solution, the skeleton, and the first wrong answers to each exercise that leave its world in
    order. Of a test that asks a check in a way of its own, as many belong to it.
    """
    tried = Counter()
    for item in items:
        if not item.path.name.startswith("test_checks_"):
            continue
        check = check_of(item)
        if check and ("solution" in item.name or "skeleton" in item.name) and "other" not in item.name:
            continue
        key = item.path.name, check or item.originalname
        counts = not check or (is_refused(item) and "broken_world" not in item.fixturenames)
        tried[key] += counts
        if not counts or tried[key] > WRONG_ANSWERS_OF_EVERY_RUN:
            yield item


def check_of(item):
    """Return the check that a test asks what it says of an answer; "" where its source does not show that."""
    asked = re.search(r"\bsays\((?:checks\.)?([\w.]+)|\b(\w+_says)\(", inspect.getsource(item.function))
    return asked[1] or asked[2] if asked else ""


def is_refused(item):
    """Return whether a test expects that its answer is refused."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "Solved" not in inspect.getsource(item.function) + "".join(map(str, params))


def keep(config, items, condition):
    """Deselect the items for which the condition does not hold."""
    config.hook.pytest_deselected(items=[item for item in items if not condition(item)])
    items[:] = [item for item in items if condition(item)]


class ByModule(LoadScopeScheduling):
    """The tests of a module run in one process, where they share a world, except for those of the modules in SPREAD.

    xdist's groups would say the same, but xdist 3.8 does not see them with pytest 9.2.
    """

    def _split_scope(self, nodeid):
        module = nodeid.partition("::")[0]
        return nodeid if Path(module).name in SPREAD else module


@pytest.hookimpl(optionalhook=True)  # without `-n` there is no xdist that asks
def pytest_xdist_make_scheduler(config, log):
    return ByModule(config, log)


@pytest.fixture(scope="session")
def bubblewrap():
    """Skip a test that needs the sandbox where there is none."""
    if reason := sandbox.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def worlds(request):
    """The worlds that the tests of a module have been given; the last of them may still be running.

    They are forked as those of the module's lesson are: only the first world of a process says what is preloaded.
    """
    global _preloaded
    preloaded = preloaded_for(request.path)
    if preloaded != _preloaded:
        prefork.end_fork_server()
        _preloaded = preloaded
    worlds = []
    yield worlds
    for world in worlds:
        world.stop()


@pytest.fixture
def world(worlds, request):
    """Four ranks that have run the SETUP of the test module, the same for all its tests.

    They are new ones after a test that has started a world of its own, because that stops the one before.
    """
    if not worlds or helpers.world._current is not worlds[-1]:
        worlds.append(World(4, preload=preloaded_for(request.path)))
        worlds[-1].view.execute(request.module.SETUP, silent=True)
    return worlds[-1]


@pytest.fixture
def broken_world(world, request):
    """A world that the test leaves with ranks or a group that are good for nothing."""
    yield world
    world.restart()
    world.view.execute(request.module.SETUP, silent=True)
