"""Exercises, checks and tests fit together: each check that a lesson calls is there, and has tests that run with it."""

import os
import re
import subprocess
import sys

import pytest
from lesson_files import NOTEBOOKS, ROOT, SOLUTIONS, checks_called, checks_tested, topic_of

from helpers import checks
from helpers.checks.exam import Exercise
from helpers.checks.judging import Verdict


def of_lesson(topic):
    """Return the checks of a lesson by their names, each "TOPIC.NAME"."""
    names = vars(getattr(checks, topic)).items() if topic in dir(checks) else ()
    return {f"{topic}.{name}": value for name, value in names if is_check(value)}


def is_check(value):
    if isinstance(value, Exercise):
        return True
    return getattr(value, "__annotations__", {}).get("return") in (Verdict, "Verdict")


CHECKS = {name: check for path in NOTEBOOKS for name, check in of_lesson(topic_of(path)).items()}
MODULES = sorted(ROOT.glob("tests/lessons/test_*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_notebook_calls_only_checks_that_there_are(path):
    unknown = checks_called(path) - CHECKS.keys()
    assert not unknown, f"helpers/checks does not have {unknown}"


def without(names):
    """Return the checks without those of these names; a check may have the names of two lessons."""
    found = [CHECKS[name] for name in names if name in CHECKS]
    return [name for name, check in CHECKS.items() if check not in found]


def test_every_check_has_tests():
    untested = without(set().union(*map(checks_tested, MODULES)))
    assert not untested, f"no module of tests/lessons names {untested}: test each as checks.TOPIC.NAME"


def test_every_check_is_called_by_a_lesson():
    assert not without(set().union(*map(checks_called, NOTEBOOKS)))


def collected(notebook, module):
    """Return the names of the tests of a module that belong to a notebook."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"tests/lessons/{module}.py"]
    environment = {**os.environ, "LESSONS": f"notebooks/{notebook}.ipynb", "ALL": "1"}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout
    return set(re.findall(r"::(\w+)", said))


def test_the_tests_of_a_check_belong_to_each_lesson_that_calls_it():
    of_the_proof = collected("24_hybrid_proof", "test_checks_hybrid_ddp_rpc")
    assert {"test_one_rate_solution", "test_one_rate_skeleton"} <= of_the_proof
    assert collected("25_hybrid_costs", "test_checks_hybrid_ddp_rpc") == set()
