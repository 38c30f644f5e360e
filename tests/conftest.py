"""How all tests run: in which order, beside what, in which environment; and worlds for the tests of the checks."""

import os
from collections import Counter
from pathlib import Path

import _pytest.runner
import lesson_files
import pytest
from answer_files import Answer, Setup, answer_of
from answers import begin, preloaded
from chromium import browser  # noqa: F401  # a fixture
from live import Notebook
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
        config.option.nbval_cell_timeout = 600  # a cell that starts nine processes under torchrun, on a slow machine
        config.option.nbval_kernel_startup_timeout = 120


def pytest_collection_modifyitems(config, items):
    """Leave out what is not asked for, and run the long tests first."""
    if lesson_files.CHOSEN:
        keep(config, items, lesson_files.belongs)
    for item in further_answers(items):
        item.add_marker(pytest.mark.nightly)
    if not lesson_files.ALL:
        keep(config, items, lambda item: not item.get_closest_marker("nightly"))
    items.sort(key=lambda item: (place_of(item), preloaded_for(item)))


def place_of(item):
    """Return the place of a test's module among those that run first, or the place behind them."""
    return FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST)


def preloaded_for(item):
    """Return the modules that the notebook of a lesson imports before its ranks are forked."""
    answer = answer_of(item)
    topic = answer.lesson.partition("_")[2] if answer else item.path.stem.removeprefix("test_checks_")
    return preloaded(topic)


def further_answers(items):
    """Yield the items of test_answers.py that try more answers than belong to every run.

    To every run belong the skeleton, and the first wrong answers to each exercise that leave their world in order. The
    solution belongs to it as well, but test_notebooks.py has it checked.
    """
    tried = Counter()
    for item in items:
        answer = answer_of(item)
        if not isinstance(answer, Answer) or answer.title == "skeleton":
            continue
        counts = answer.is_refused and not answer.breaks_the_ranks
        tried[answer.lesson, answer.check] += counts
        if not counts or tried[answer.lesson, answer.check] > WRONG_ANSWERS_OF_EVERY_RUN:
            yield item


def keep(config, items, condition):
    """Deselect the items for which the condition does not hold."""
    config.hook.pytest_deselected(items=[item for item in items if not condition(item)])
    items[:] = [item for item in items if condition(item)]


class ByModule(LoadScopeScheduling):
    """The tests of a module run in one process, where they share a world, except for those of the modules in SPREAD.

    The answers of each lesson in test_answers.py count as a module of their own.
    xdist's groups would say the same, but xdist 3.8 does not see them with pytest 9.2.
    """

    def _split_scope(self, nodeid):
        module, _, test = nodeid.partition("::")
        if Path(module).name == "test_answers.py":
            return f"{module}::{test.partition('[')[2].partition('-')[0]}"
        return nodeid if Path(module).name in SPREAD else module


@pytest.hookimpl(optionalhook=True)  # without `-n` there is no xdist that asks
def pytest_xdist_make_scheduler(config, log):
    return ByModule(config, log)


@pytest.fixture(scope="session")
def bubblewrap():
    """Skip a test that needs the sandbox where there is none."""
    if reason := sandbox.why_not():
        pytest.skip(reason)


@pytest.fixture
def notebook():
    """A real kernel, in which a test runs cells."""
    notebook = Notebook()
    yield notebook
    notebook.close()


@pytest.fixture(scope="module")
def worlds(request):
    """The worlds that the tests of a module have been given; the last of them may still be running."""
    fork_with(preloaded_for(request.node))
    worlds = []
    yield worlds
    for world in worlds:
        world.stop()


@pytest.fixture
def world(worlds, request):
    """Ranks that have run the SETUP of the test module or of the answer, the same for all tests that begin so.

    They are new ones after a test that has started a world of its own, because that stops the one before.
    """
    setup = setup_of(request)
    if not worlds or helpers.world._current is not worlds[-1] or worlds[-1].setup != setup:
        fork_with(preloaded_for(request.node))
        worlds.append(World(setup.size, hosts=setup.hosts, preload=_preloaded))
        begin(worlds[-1], setup.code)
        worlds[-1].setup = setup
    if setup.with_cables and not worlds[-1].has_cables:
        pytest.skip(repr(worlds[-1]).splitlines()[0])
    return worlds[-1]


def setup_of(request):
    """Return how the ranks of a test begin."""
    answer = answer_of(request.node)
    setup = answer.setup if answer else request.module.SETUP
    return setup if isinstance(setup, Setup) else Setup(setup)


def fork_with(preload):
    """Have the next world forked from a process that has imported these modules; only its first world says which."""
    global _preloaded
    if preload != _preloaded:
        if world := helpers.world.current():
            world.stop()
        prefork.end_fork_server()
        _preloaded = preload


@pytest.fixture
def broken_world(world, request):
    """A world that the test leaves with ranks or a group that are good for nothing."""
    yield world
    world.restart()
    begin(world, setup_of(request).code)
