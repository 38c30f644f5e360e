"""Exercises, checks and tests fit together: each check that a lesson calls is there, and has tests that run with it."""

import os
import re
import subprocess
import sys

import pytest
from lesson_files import NO_EXERCISES, NOTEBOOKS, ROOT, SOLUTIONS, checks_called, checks_tested

from helpers import checks

CHECKS = sorted(set(checks.__all__) - NO_EXERCISES)
MODULES = sorted(ROOT.glob("tests/lessons/test_*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_notebook_calls_only_checks_that_there_are(path):
    unknown = checks_called(path) - set(CHECKS)
    assert not unknown, f"helpers/checks/__init__.py does not have {unknown}: import each, and add it to __all__"


def test_every_check_has_tests():
    untested = set(CHECKS) - set().union(*map(checks_tested, MODULES))
    assert not untested, f"no module of tests/lessons names {untested}: test each as checks.NAME"


def test_every_check_is_called_by_a_lesson():
    assert set(CHECKS) == set().union(*map(checks_called, NOTEBOOKS))


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
