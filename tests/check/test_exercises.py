"""Exercises, checks and tests fit together: each check that a lesson calls is there, and has tests that run with it."""

import os
import re
import subprocess
import sys

import pytest
from answer_files import read, read_all
from lesson_files import NOTEBOOKS, ROOT, SOLUTIONS, checks_called, checks_tested, topic_of

from helpers import WorldError, checks
from helpers.checks.exam import Exercise
from helpers.checks.judging import Verdict
from helpers.grade.exercises import exercises


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
ANSWERS = [answer for file in read_all() for answer in file.answers]


@pytest.mark.parametrize("path", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_notebook_calls_only_checks_that_there_are(path):
    unknown = checks_called(path) - CHECKS.keys()
    assert not unknown, f"helpers/checks does not have {unknown}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_grader_finds_every_exercise_that_has_a_solution(path):
    found = {f"{exercise.topic}.{exercise.name}" for exercise in exercises(path, path.read_bytes())}
    assert found and found == checks_called(path.parent / "solutions" / path.name)


def without(names):
    """Return the checks without those of these names; a check may have the names of two lessons."""
    found = [CHECKS[name] for name in names if name in CHECKS]
    return [name for name, check in CHECKS.items() if check not in found]


def test_every_check_has_answers():
    untested = without({answer.check for answer in ANSWERS}.union(*map(checks_tested, MODULES)))
    assert not untested, f"tests/lessons/answers has no answers for {untested}"


@pytest.mark.parametrize("check", sorted({answer.check for answer in ANSWERS}))
def test_a_check_accepts_the_solution_and_refuses_the_skeleton(check):
    is_refused = {answer.title: answer.is_refused for answer in ANSWERS if answer.check == check}
    assert (is_refused.get("solution"), is_refused.get("skeleton")) == (False, True)


def test_an_answer_is_for_a_check_that_there_is():
    unknown = {str(answer) for answer in ANSWERS if answer.check not in CHECKS}
    assert not unknown, f"helpers/checks has no check for {unknown}"


def test_every_check_is_called_by_a_lesson():
    assert not without(set().union(*map(checks_called, NOTEBOOKS)))


@pytest.mark.parametrize("thing", [None, "world", 4])
def test_a_check_of_something_that_is_no_world_says_what_to_give(thing):
    call = re.escape("checks.collectives.mean(")
    with pytest.raises(WorldError, match=rf"^{call}{thing!r}\): give the world, as in {call}world\).$"):
        checks.collectives.mean(thing)


def collected(notebook):
    """Return the ids of the answers that are tried for a notebook."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/lessons/test_answers.py"]
    environment = {**os.environ, "LESSONS": f"notebooks/{notebook}.ipynb", "ALL": "1"}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout
    return set(re.findall(r"test_answer\[(.+)\]", said))


def test_the_answers_of_a_lesson_belong_to_it():
    assert collected("29_hybrid_proof") == {str(answer) for answer in read("29_hybrid_proof").answers}
