"""notebooks/course.toml says what the notebooks say, and each lesson, plan and page comes after what it needs."""

import json
import re
from itertools import groupby

import pytest
from lesson_files import NOTEBOOKS, ROOT

from helpers import course

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
    assert ("Your answers belong to these parameters." in said) == lesson.of_its_parameters
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


def test_the_lessons_of_a_part_stand_together():
    assert [part for part, _ in groupby(lesson.part for lesson in LESSONS.values())] == list(course.parts())


def plans():
    """Return the lessons of each plan of docs/teaching.md, by the plan's heading."""
    text = (ROOT / "docs/teaching.md").read_text("utf-8").partition("\n## Plans\n")[2].partition("\n## ")[0]
    found = {}
    for part in text.split("\n### ")[1:]:
        rows = [line for line in part.splitlines() if line.startswith("|")]
        found[part.partition("\n")[0]] = re.findall(r"notebooks/(\w+)\.ipynb", "\n".join(rows))
    return found


@pytest.mark.parametrize("plan", plans())
def test_a_plan_has_what_its_lessons_need_or_says_what_it_leaves_out(plan):
    text = (ROOT / "docs/teaching.md").read_text("utf-8")
    below = text.partition(f"\n### {plan}\n")[2].partition("\n### ")[0]
    prose = "\n".join(line for line in below.splitlines() if not line.startswith("|"))
    held = plans()["A day: why it is fast or slow"] if plan == "Two days" else []
    for name in plans()[plan]:
        missing = [need for need in LESSONS[name].needs if need not in held and need not in prose]
        assert not missing, f"{name} needs {missing}, which the plan neither has before nor names"
        held = [*held, name]
