"""The checks of 22_several_trainers: each accepts right answers of two styles, and says what is wrong with others."""

import textwrap

import pytest
from answers import cell, says

import helpers.world
from helpers import World, checks

NAME = "22_several_trainers.ipynb"


def skeleton(name):
    return cell(NAME, f"class {name}:")


def solution(name):
    return cell(f"solutions/{NAME}", f"class {name}:")


SETUP = cell(NAME, "init_rpc(")


@pytest.fixture
def world(worlds):
    """Two trainers and a server, the same for all tests of this module."""
    if not worlds or helpers.world._current is not worlds[-1]:
        worlds.append(World(3))
        worlds[-1].view.execute(SETUP, silent=True)
    return worlds[-1]


# ---------------------------------------------------------------- my_step_in_turn


def in_turn_says(world, step):
    """Return what the check says of `my_step_in_turn` with these lines."""
    world.view.execute("turn = threading.Lock()", silent=True)
    lines = textwrap.indent(textwrap.dedent(step), "    ")
    answer = cell(NAME, "def my_step_in_turn(").replace("    return gradient  # your lines instead", lines)
    return says(checks.several_trainers.my_step_in_turn, world, answer)


@pytest.mark.parametrize(
    "step",
    [
        "with turn, torch.no_grad():\n    values.sub_(gradient)",
        "with turn:\n    values.detach().sub_(gradient)",
        "turn.acquire()\nwith torch.no_grad():\n    values.copy_(values - gradient)\nturn.release()",
        "with torch.no_grad():\n    with turn:\n        values -= gradient",
    ],
)
def test_my_step_in_turn_that_is_right(world, step):
    assert in_turn_says(world, step) == "Solved. The step waits for its turn, and loses nothing that came before."


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("pass", "The step has subtracted nothing: the value is 10, expected 9."),
        ("with torch.no_grad():\n    values.sub_(gradient)", "The step changed the values while another thread held "),
        (
            "new = values.detach() - gradient\nwith turn:\n    values.detach().copy_(new)",
            "The step read the values before its turn, and has overwritten what came meanwhile: -1, expected 9.",
        ),
        ("turn.acquire()\nvalues.detach().sub_(gradient)", "The step still holds `turn`, expected it to let go"),
        ("with turn:\n    values.detach().add_(gradient)", "The value is 11, expected 9: the 10 that came meanwhile"),
        ("with turn:\n    values.sub_(gradient)", "Rank 0 raised RuntimeError('a leaf Variable that requires grad"),
    ],
)
def test_my_step_in_turn_that_is_wrong(world, step, message):
    assert in_turn_says(world, step).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- shared_optimizer


SHARED = "Solved. Each step took the gradients of its own context, and no two were under way at the same time."


def test_shared_optimizer_solution(world):
    assert says(checks.several_trainers.SharedOptimizer, world, solution("SharedOptimizer")) == SHARED


def test_shared_optimizer_skeleton(world):
    assert says(checks.several_trainers.SharedOptimizer, world, skeleton("SharedOptimizer")) == (
        "Not yet. Two steps of the optimizer were under way at the same time."
    )


def test_shared_optimizer_with_a_lock_of_the_module(world):
    answer = """
        only_one = threading.RLock()

        class SharedOptimizer:
            def __init__(self, parameters, optimizer):
                self.parameters, self.optimizer = parameters, optimizer

            def step(self, context):
                only_one.acquire()
                try:
                    self.optimizer.zero_grad()
                    for parameter, gradient in dist_autograd.get_gradients(context).items():
                        parameter.grad = gradient
                    self.optimizer.step()
                finally:
                    only_one.release()
    """
    assert says(checks.several_trainers.SharedOptimizer, world, answer) == SHARED


@pytest.mark.parametrize(
    "changes",
    [
        [
            (
                "gradients = dist_autograd.get_gradients(context)\n        with self.turn:",
                "with self.turn:\n            gradients = dist_autograd.get_gradients(context)",
            )
        ],
        [
            ("self.turn = threading.Lock()", "self.turn = threading.Semaphore(1)"),
            ("gradients.get(parameter)", "gradients[parameter] if parameter in gradients else None"),
        ],
    ],
    ids=["asks under the lock", "a semaphore"],
)
def test_shared_optimizer_in_other_styles(world, changes):
    answer = solution("SharedOptimizer")
    for change in changes:
        assert change[0] in answer
        answer = answer.replace(*change)
    assert says(checks.several_trainers.SharedOptimizer, world, answer) == SHARED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("        with self.turn:\n", "        if True:\n"),
            "Two steps of the optimizer were under way at the same time.",
        ),
        (
            ("parameter.grad = gradients.get(parameter)", "parameter.grad = gradients.get(parameter, parameter.grad)"),
            "After two steps parameter 1 is -2, expected -1. It had no gradient in the second context.",
        ),
        (
            (
                "        with self.turn:\n            for parameter in self.parameters:\n"
                "                parameter.grad = gradients.get(parameter)\n            self.optimizer.step()",
                "        for parameter in self.parameters:\n            parameter.grad = gradients.get(parameter)\n"
                "        with self.turn:\n            self.optimizer.step()",
            ),
            "While the optimizer made one trainer's step, another one's gradients were put in their place.",
        ),
        (
            ("            self.optimizer.step()", "            pass"),
            "For two calls of `step` the optimizer made 0 steps, expected 2.",
        ),
        (("gradients.get(parameter)", "gradients[parameter]"), "Rank 0 raised KeyError"),
        (("self.optimizer.step()", "self.optimiser.step()"), "Rank 0 raised AttributeError"),
    ],
)
def test_shared_optimizer_that_is_wrong(world, change, message):
    answer = solution("SharedOptimizer").replace(*change)
    assert answer != solution("SharedOptimizer")
    assert says(checks.several_trainers.SharedOptimizer, world, answer).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- bounded


BOUNDED = "Solved. What is too old is refused, one update at a time, and what `read` returns belongs together."


def test_bounded_solution(world):
    assert says(checks.several_trainers.Bounded, world, solution("Bounded")) == BOUNDED


def test_bounded_skeleton(world):
    assert says(checks.several_trainers.Bounded, world, skeleton("Bounded")) == (
        "Not yet. With a limit of 1, an update that was 2 updates old returned True, expected False."
    )


def test_bounded_that_makes_new_values(world):
    answer = """
        class Bounded:
            def __init__(self, values, limit):
                self.values, self.limit, self.version, self.turn = values, limit, 0, threading.Condition()

            def read(self):
                with self.turn:
                    return self.values, self.version

            def update(self, gradient, version):
                with self.turn:
                    fresh = self.version <= version + self.limit
                    if fresh:
                        self.values = self.values - gradient
                        self.version += 1
                return fresh
    """
    assert says(checks.several_trainers.Bounded, world, answer) == BOUNDED


@pytest.mark.parametrize(
    "changes",
    [
        [("self.values -= gradient", "self.values = self.values - gradient"), ("self.values.clone()", "self.values")],
        [
            ("threading.Lock()", "threading.RLock()"),
            ("self.version - version > self.limit", "version < self.version - self.limit"),
        ],
    ],
    ids=["a new tensor", "the oldest that is taken"],
)
def test_bounded_in_other_styles(world, changes):
    answer = solution("Bounded")
    for change in changes:
        assert change[0] in answer
        answer = answer.replace(*change)
    assert says(checks.several_trainers.Bounded, world, answer) == BOUNDED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            (
                "    def update(self, gradient, version):\n        with self.turn:",
                "    def update(self, gradient, version):\n        if True:",
            ),
            "With a limit of 0, two updates came at the same time with gradients of the same version, and both were",
        ),
        (
            (
                "        with self.turn:\n            return self.values.clone()",
                "        if True:\n            return self.values.clone()",
            ),
            "`read` returned -1 as the value of version 0, while an update was under way, expected 0.",
        ),
        (("self.values.clone()", "self.values"), "What `read` has returned changes with later updates"),
        (
            ("> self.limit", ">= self.limit"),
            "With a limit of 1, an update that was one update old returned False, expected",
        ),
        (
            ("                return False", "                self.version += 1\n                return False"),
            "With a limit of 1, an update that was 2 updates old left version 3, expected 2.",
        ),
        (
            ("return self.values.clone(), self.version", "return self.values.clone()"),
            "`read` returned 0.0, expected a pair",
        ),
        (("self.version += 1", "self.versions += 1"), "Rank 2 raised AttributeError"),
    ],
)
def test_bounded_that_is_wrong(world, change, message):
    answer = solution("Bounded").replace(*change)
    assert answer != solution("Bounded")
    assert says(checks.several_trainers.Bounded, world, answer).startswith(f"Not yet. {message}")


def test_an_answer_that_is_not_there(world):
    for name, check in (
        ("SharedOptimizer", checks.several_trainers.SharedOptimizer),
        ("Bounded", checks.several_trainers.Bounded),
    ):
        world.view.execute(f"globals().pop('{name}', None)")
        assert f"has no function `{name}`: run the cell that defines it" in repr(check(world))


def test_before_rpc_has_been_started():
    world = World(4)
    try:
        for check in (checks.several_trainers.SharedOptimizer, checks.several_trainers.Bounded):
            assert "RPC has not been initialized" in repr(check(world))
        world.view.execute(SETUP)
        assert says(checks.several_trainers.SharedOptimizer, world, solution("SharedOptimizer")) == SHARED
        assert says(checks.several_trainers.Bounded, world, solution("Bounded")) == BOUNDED
    finally:
        world.stop()
