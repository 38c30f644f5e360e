"""notebooks/course.toml says what the notebooks say, and each lesson, plan and page comes after what it needs."""

import json
import re
from itertools import groupby, pairwise

import pytest
from lesson_files import NOTEBOOKS, ROOT

from helpers import course
from tests import minutes

LESSONS = course.lessons()
EACH = pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)


def test_each_notebook_has_its_row_in_order():
    assert list(LESSONS) == [path.stem for path in NOTEBOOKS]


def cells(lesson):
    notebook = json.loads((course.NOTEBOOKS / f"{lesson.name}.ipynb").read_text("utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"]]


def of_opening(lesson, field):
    return re.search(rf"\*\*{field}\*\*: (.*)", cells(lesson)[0])[1]


@EACH
def test_a_lesson_works_with_the_ranks_that_it_says(lesson):
    said = of_opening(lesson, "Ranks")
    even, low, high = re.search(r"[Aa]ny (even )?`WORLD_SIZE` from (\d) to (\d) works", said).groups()
    sizes = range(int(low), int(high) + 1, 2 if even else 1)
    assert sorted([lesson.ranks, *lesson.others]) == list(sizes)
    assert said.startswith(str(lesson.ranks)) and f"WORLD_SIZE = {lesson.ranks}" in cells(lesson)[1]
    assert ("Your answers hold only for these parameters." in said) == lesson.of_its_parameters
    assert (f"on {lesson.hosts} hosts" in said) == (lesson.hosts > 1)


@EACH
def test_a_lesson_links_what_it_needs(lesson):
    said = of_opening(lesson, "Prerequisites")
    linked = re.findall(r"\((\w+)\.ipynb\)", said)
    if " to [" in said:  # "01 to 04"
        assert set(linked) <= set(lesson.needs)
    else:
        assert linked == lesson.needs


@EACH
def test_what_a_lesson_needs_comes_before_it(lesson):
    before = list(LESSONS)[: list(LESSONS).index(lesson.name)]
    assert set(lesson.needs) <= set(before)


SHORT_COURSE = [lesson for lesson in LESSONS.values() if lesson.in_short_course]


@pytest.mark.parametrize("lesson, following", list(pairwise(SHORT_COURSE)), ids=lambda lesson: lesson.name)
def test_the_last_line_of_a_lesson_of_the_short_course_links_the_next(lesson, following):
    notebook = json.loads((course.NOTEBOOKS / f"{lesson.name}.ipynb").read_text("utf-8"))
    texts = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    last = texts[-1].splitlines()[-1]
    assert re.match("Next[:,]", last)
    assert "in the short course" in last.lower() and f"({following.name}.ipynb)" in last


def test_the_lessons_of_a_part_stand_together():
    assert [part for part, _ in groupby(lesson.part for lesson in LESSONS.values())] == list(course.parts())


PLANS = {plan.name: plan for plan in minutes.plans()}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_has_what_its_lessons_need_or_says_what_it_leaves_out(plan):
    held, missing = list(PLANS[plan.after].lessons) if plan.after else [], set()
    for name in plan.lessons:
        missing |= set(LESSONS[name].needs) - set(held)
        held.append(name)
    assert missing == set(plan.told)
    text = (ROOT / "docs/teaching.md").read_text("utf-8")
    (around,) = [part for part in text.split("\n### ") if f"<!-- plan: {plan.name} -->" in part]
    prose = "\n".join(line for line in around.splitlines() if not line.startswith("|"))
    assert [name for name in plan.told if f"notebooks/{name}.ipynb" not in prose] == []


def test_one_module_chooses_the_parser_of_toml():
    importing = re.compile(r"^\s*import tom(llib|li)\b", re.MULTILINE)
    modules = [path for folder in ("helpers", "tests", "benchmarks", "docs") for path in ROOT.glob(f"{folder}/**/*.py")]
    assert [path.name for path in modules if importing.search(path.read_text("utf-8"))] == ["course.py"]
