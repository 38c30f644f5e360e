"""The learner's own copy: no answers in sight, brought up to date, and nothing of the learner's is lost."""

import json
import random
import subprocess
import sys

import nbformat
import pytest
from lesson_files import NOTEBOOKS, ROOT
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.own_copy import bring_up_to_date, without_answers

LESSON, OTHER = "00_first.ipynb", "01_second.ipynb"


def figure():
    return new_output("display_data", {"image/png": "aGVsbG8=", "text/plain": "<Figure>"}, metadata={"image/png": {}})


def result(text):
    return new_output("execute_result", {"text/plain": text}, execution_count=7)


def lesson(*sources, tags=()):
    cells = [new_code_cell(source, execution_count=1, outputs=[result("3")]) for source in sources]
    cells[0].metadata["tags"] = list(tags)
    return new_notebook(cells=cells)


@pytest.fixture
def course(tmp_path):
    """A course of two lessons, a solution and a module that a lesson imports."""
    folder = tmp_path / "course/notebooks"
    (folder / "solutions").mkdir(parents=True)
    for name in (LESSON, OTHER, f"solutions/{LESSON}"):
        nbformat.write(lesson(f"source = {name!r}", "1 + 2"), folder / name)
    (folder / "model.py").write_text("layers = 2\n")
    return folder


@pytest.fixture
def mine(course, tmp_path):
    """A learner's copy of this course."""
    assert bring_up_to_date(course, tmp_path / "mine") == []
    return tmp_path / "mine"


def write(path, *sources, **options):
    nbformat.write(lesson(*sources, **options), path)


def sources(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def outputs(path):
    return [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", [])]


def files(folder):
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return names - {".copied.json"}


# ---------------------------------------------------------------- what a copy shows


@pytest.mark.parametrize(
    "question", ["**How many bytes?**", "Now.\n\n**Which one? Decide.** Then run.", "### Exercise 1"]
)
def test_only_figures_before_the_first_question_are_kept(question):
    def drawn():
        return new_code_cell("draw()", outputs=[result("3"), figure()], execution_count=5)

    notebook = new_notebook(cells=[new_markdown_cell("**Time**: long?"), drawn(), new_markdown_cell(question), drawn()])
    notebook = without_answers(notebook)
    assert notebook.cells[1].outputs == [figure()] and notebook.cells[3].outputs == []
    assert [cell.get("execution_count") for cell in notebook.cells] == [None] * 4


def test_a_copy_of_the_course_has_every_lesson_and_no_answers(tmp_path):
    assert bring_up_to_date(ROOT / "notebooks", tmp_path / "mine") == []
    for original in ROOT.glob("notebooks/**/*.ipynb"):
        if ".ipynb_checkpoints" not in original.parts:
            copy = tmp_path / "mine" / original.relative_to(ROOT)
            notebook = nbformat.read(copy, as_version=4)
            nbformat.validate(notebook)
            assert sources(copy) == sources(original)
            assert {cell.execution_count for cell in notebook.cells if cell.cell_type == "code"} == {None}
            assert all("image/png" in output.get("data", {}) for output in outputs(copy))
    pipelines = tmp_path / "mine/notebooks/34_pipelines.ipynb"
    assert len(outputs(pipelines)) == 2, "a figure that precedes the first question is missing"
    assert max(len(outputs(path)) for path in (tmp_path / "mine/notebooks").glob("*.ipynb")) == 2, "answers are kept"


def test_the_copy_belongs_to_its_owner_only(mine):
    assert mine.stat().st_mode & 0o077 == 0


def test_links_between_lessons_do_not_leave_the_copy():
    for path in NOTEBOOKS:
        assert "](../" not in "\n".join(sources(path)), f"{path.name} has a link that leads out of the learner's copy"


def test_the_script_of_a_lesson_is_made_from_the_copy(tmp_path):
    def make_script(folder):
        command = [sys.executable, "-m", "helpers.script", "00_first"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()

    (tmp_path / "my-course/notebooks").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    write(tmp_path / "notebooks" / LESSON, "WORLD_SIZE = 2", "%%px\nprint('original')", tags=["parameters"])
    (said,) = make_script(tmp_path)
    assert said.endswith("torchrun --nproc-per-node 2 00_first.py")
    write(tmp_path / "my-course/notebooks" / LESSON, "WORLD_SIZE = 2", "%%px\nprint('mine')", tags=["parameters"])
    assert make_script(tmp_path) == ["From my-course/notebooks/00_first.ipynb:", said]
    assert (tmp_path / "00_first.py").read_text().strip() == "print('mine')"
    (said,) = make_script(tmp_path / "my-course")
    assert said.endswith("torchrun --nproc-per-node 2 00_first.py")


# ---------------------------------------------------------------- a newer course


def test_a_lesson_that_was_only_run_is_replaced(course, mine):
    write(mine / "notebooks" / LESSON, f"source = {LESSON!r}", "1 + 2", "")  # Shift-Enter in the last cell adds a cell
    write(course / LESSON, "better")
    (said,) = bring_up_to_date(course, mine)
    assert said == f"Replaced by newer versions, because you had not changed them: notebooks/{LESSON}."
    assert sources(mine / "notebooks" / LESSON) == ["better"] and outputs(mine / "notebooks" / LESSON) == []
    assert bring_up_to_date(course, mine) == []


def test_outputs_stay_while_the_lesson_is_the_same(course, mine):
    write(mine / "notebooks" / LESSON, f"source = {LESSON!r}", "1 + 2")
    write(course / OTHER, "better")
    bring_up_to_date(course, mine)
    assert outputs(mine / "notebooks" / LESSON) == [result("3")] * 2


def test_a_lesson_stored_again_is_no_newer_version(course, mine):
    changed = nbformat.read(course / LESSON, as_version=4)
    changed.cells[0].outputs = [figure()]
    nbformat.write(changed, course / LESSON)
    assert bring_up_to_date(course, mine) == []


def test_folded_cells_are_a_newer_version(course, mine):
    write(course / LESSON, f"source = {LESSON!r}", "1 + 2", tags=["solution"])
    (said,) = bring_up_to_date(course, mine)
    assert said.startswith("Replaced")
    assert nbformat.read(mine / "notebooks" / LESSON, as_version=4).cells[0].metadata.tags == ["solution"]


def test_a_lesson_in_which_the_learner_has_written_is_kept_until_it_is_renamed(course, mine):
    own, renamed = mine / "notebooks" / LESSON, mine / "notebooks/mine.ipynb"
    write(own, "my answer")
    assert bring_up_to_date(course, mine) == []  # no newer version
    write(course / LESSON, "better")
    for _ in range(2):
        (said,) = bring_up_to_date(course, mine)
        assert f"newer versions of notebooks/{LESSON}" in said and "rename your files and run the same command" in said
        assert sources(own) == ["my answer"]
    own.rename(renamed)
    assert bring_up_to_date(course, mine) == [f"New: notebooks/{LESSON}."]
    assert sources(own) == ["better"] and sources(renamed) == ["my answer"]


def test_a_lesson_that_the_learner_has_brought_up_to_date_by_hand_belongs_to_the_course_again(course, mine):
    for _ in range(2):
        write(course / LESSON, "better")
        write(mine / "notebooks" / LESSON, "better")
        bring_up_to_date(course, mine)
    write(course / LESSON, "best")
    assert bring_up_to_date(course, mine)[0].startswith("Replaced")


def test_a_new_lesson_is_added_and_a_dropped_one_is_removed_unless_changed(course, mine):
    write(mine / "notebooks" / OTHER, "my answer")
    for name in (LESSON, OTHER):
        (course / name).rename(course / f"1{name}")
    assert bring_up_to_date(course, mine) == [
        f"New: notebooks/1{LESSON}, notebooks/1{OTHER}.",
        f"Removed, because the course has dropped them and you had not changed them: notebooks/{LESSON}.",
        f"The course has dropped notebooks/{OTHER}. Yours stay, because you have written in them.",
    ]
    assert not (mine / "notebooks" / LESSON).exists()
    assert bring_up_to_date(course, mine) == []
    assert sources(mine / "notebooks" / OTHER) == ["my answer"]


def test_a_copy_from_before_there_was_a_record_is_kept_where_it_differs(course, tmp_path):
    folder = tmp_path / "mine"
    (folder / "notebooks").mkdir(parents=True)
    write(folder / "notebooks" / LESSON, f"source = {LESSON!r}", "1 + 2")
    (folder / "notebooks" / OTHER).write_text("no notebook")
    (said,) = [sentence for sentence in bring_up_to_date(course, folder) if "newer versions of" in sentence]
    assert OTHER in said and LESSON not in said
    assert (folder / "notebooks" / OTHER).read_text() == "no notebook"
    assert outputs(folder / "notebooks" / LESSON) == []


def test_a_folder_in_the_place_of_a_lesson_is_kept(course, mine):
    (mine / "notebooks" / LESSON).unlink()
    (mine / "notebooks" / LESSON).mkdir()
    (mine / "notebooks" / LESSON / "notes").write_text("mine")
    write(course / LESSON, "better")
    (said,) = bring_up_to_date(course, mine)
    assert LESSON in said and (mine / "notebooks" / LESSON / "notes").read_text() == "mine"


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_the_learner_has_written_is_lost(course, mine, seed):
    chance, written = random.Random(seed), set()
    names = [f"0{number}_lesson.ipynb" for number in range(4)]
    for step in range(40):
        name, text = chance.choice(names), f"step {step}"
        own, original = mine / "notebooks" / name, course / name
        action = chance.choice(["write", "rename", "edit", "drop", "update", "update"])
        if action == "write":
            written -= set(sources(own)) if own.exists() else set()  # the learner replaces their own text
            written.add(text)
            write(own, text)
        elif action == "rename" and own.exists():
            own.rename(own.with_name(f"mine_{step}.ipynb"))
        elif action == "edit":
            write(original, f"course {step}")
        elif action == "drop":
            original.unlink(missing_ok=True)
        elif action == "update":
            bring_up_to_date(course, mine)
            there = {source for path in mine.rglob("*.ipynb") for source in sources(path)}
            assert written <= there
    assert written


# ---------------------------------------------------------------- interruptions

INTERRUPTED = """\
import os, sys
from pathlib import Path
from helpers import own_copy

count, how, replace = int(sys.argv[3]), sys.argv[4], os.replace

def stop(source, target):
    global count
    if not count:
        if how == "killed":
            os._exit(9)
        raise KeyboardInterrupt
    count -= 1
    replace(source, target)

os.replace = stop
own_copy.bring_up_to_date(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.parametrize("how", ["killed", "interrupted"])
@pytest.mark.parametrize("count", range(4))
def test_an_interrupted_copy_is_finished_by_the_next_one(course, tmp_path, count, how):
    folder = tmp_path / "mine"
    command = [sys.executable, "-c", INTERRUPTED, str(course), str(folder), str(count), how]
    assert subprocess.run(command, capture_output=True).returncode != 0
    bring_up_to_date(course, folder)
    assert {name for name in files(folder) if ".unfinished-" not in name} == files(course.parent)
    assert bring_up_to_date(course, folder) == []
    write(course / LESSON, "better")
    assert bring_up_to_date(course, folder)[0].startswith("Replaced")


def test_a_broken_record_loses_nothing(course, mine):
    write(mine / "notebooks" / LESSON, "my answer")
    (mine / ".copied.json").write_text('{"notebooks')
    bring_up_to_date(course, mine)
    assert sources(mine / "notebooks" / LESSON) == ["my answer"]
    assert json.loads((mine / ".copied.json").read_text())
