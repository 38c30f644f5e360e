"""Grading: solutions get full marks, skeletons none, and whoever does harm or cheats is stopped or seen through.

Every submission is judged as `make grade` does it, in the real sandbox, on ranks of its own. At night the notebook of
every lesson is submitted as it is, and with its solutions.
"""

import csv
import signal
import subprocess
import sys
import textwrap
import time

import nbformat
import psutil
import pytest
from lesson_files import NOTEBOOKS, ROOT

from helpers.grade import __main__ as grading
from helpers.grade import exercises, sandbox

RING = ROOT / "notebooks" / "05_ring_all_reduce.ipynb"
NAMES = ["ring_indices", "reduce_scatter", "two_way_ring"]

pytestmark = pytest.mark.skipif(bool(reason := sandbox.why_not()), reason=reason)


def answers_of(lesson):
    """Return the solution of each exercise, by the name of its check."""
    cells = nbformat.read(lesson.parent / "solutions" / lesson.name, as_version=4).cells
    cells = [cell.source for cell in cells if cell.cell_type == "code"]
    found = {}
    for answer, check in zip(cells, cells[1:], strict=False):
        if check.startswith("assert checks."):
            found[check.partition(".")[2].partition("(")[0]] = answer
    return found


def submitted(path, lesson, answers):
    """Write a learner's notebook: the lesson, with these cells in place of the skeletons; None takes a cell away."""
    notebook = nbformat.read(lesson, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, check in zip(code, code[1:], strict=False):
        for name, source in answers.items():
            if check.source.startswith(f"checks.{name}("):
                cell.source = source or ""
                if source is None:
                    notebook.cells.remove(cell)
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)


def cell(body):
    return "%%px\n" + textwrap.dedent(body).strip()


RIGHT = answers_of(RING)
WAITS = cell(
    """
    import time
    while True:
        time.sleep(1)
    """
)
FORKS = cell(
    """
    import os, time
    while True:
        os.fork()
        time.sleep(0.5)
    """
)
EATS = cell(
    """
    import time
    eaten = []
    while True:
        eaten.append(b"x" * 2**26)
        time.sleep(0.2)
    """
)
DELETES = cell(
    f"""
    import os, shutil
    for folder in ({str(ROOT)!r}, os.path.expanduser("~"), os.getcwd()):
        shutil.rmtree(folder, ignore_errors=True)
    """
)
FORGES = cell(
    """
    def reduce_scatter(tensor):
        print("Solved. Rank r holds chunk r of the sum.")
        return "Solved."
    print('["reduce_scatter", true, "Solved."]')
    """
)
REDEFINES = cell(
    """
    import helpers.checks.judging
    import helpers.checks.ring_all_reduce as ring

    def judged_right(name, arguments):
        return helpers.checks.judging.Run(None, [], "")

    helpers.checks.judging.call_answer = judged_right
    ring.call_answer = judged_right

    def two_way_ring(tensor):
        pass
    """
)
KILLS = cell(
    """
    import os
    os.kill(-1, 9)
    """
)
COPIES = cell(f"exec(open({str(ROOT / 'notebooks' / 'solutions' / RING.name)!r}).read())")
SHOWS = cell(
    """
    def reduce_scatter(tensor):
        raise ValueError("<script>alert(1)</script>")
    """
)
LOCAL = "from helpers import checks\ndef two_way_ring(world):\n    return 'Solved.'\nchecks.two_way_ring = two_way_ring"


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The folder of a class, graded, and the rows of its table as {(learner, exercise): row}."""
    folder = tmp_path_factory.mktemp("class")
    submitted(folder / "right" / RING.name, RING, RIGHT)
    submitted(folder / "untouched" / RING.name, RING, {})
    submitted(folder / "harm" / RING.name, RING, dict(zip(NAMES, [DELETES, WAITS, RIGHT[NAMES[2]]], strict=True)))
    submitted(folder / "greed" / RING.name, RING, dict(zip(NAMES, [FORKS, EATS, KILLS], strict=True)))
    submitted(folder / "deceit" / RING.name, RING, dict(zip(NAMES, [COPIES, FORGES, REDEFINES], strict=True)))
    submitted(folder / "others" / RING.name, RING, dict(zip(NAMES, [None, SHOWS, LOCAL], strict=True)))
    (folder / "others" / "04_groups_and_order.ipynb").write_text("no notebook")
    (folder / "others" / "99_mine.ipynb").write_text("{}")
    limits = pytest.MonkeyPatch()
    limits.setattr(sandbox, "SECONDS", 60)
    limits.setattr(sandbox, "MEMORY", 2**32)
    limits.setattr(sandbox, "PROCESSES", 20)
    try:
        grading.grade(folder)
    finally:
        limits.undo()
    with open(folder / "grades.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return folder, {(row["learner"], row["exercise"]): row for row in rows}


def sentence(graded, learner, exercise):
    """Return what the table says of an exercise that is not solved."""
    row = graded[1][learner, exercise]
    assert row["solved"] == "no"
    return row["sentence"]


def test_solutions_get_full_marks_and_skeletons_none(graded):
    _, rows = graded
    assert [rows["right", name]["solved"] for name in NAMES] == 3 * ["yes"]
    assert [rows["untouched", name]["solved"] for name in NAMES] == 3 * ["no"]
    assert "returned None" in sentence(graded, "untouched", "ring_indices")


def test_an_answer_that_deletes_folders_finds_none_that_it_can_delete(graded):
    folder, _ = graded
    assert sentence(graded, "harm", "ring_indices")
    assert RING.exists() and (folder / "harm" / RING.name).exists()


def test_an_answer_without_end_is_ended_and_the_next_is_judged(graded):
    assert "more than 60 s" in sentence(graded, "harm", "reduce_scatter")
    assert graded[1]["harm", "two_way_ring"]["solved"] == "yes"


def test_an_answer_that_forks_eats_or_kills_is_ended(graded):
    assert "processes" in sentence(graded, "greed", "ring_indices")
    assert "memory" in sentence(graded, "greed", "reduce_scatter")
    assert "ended" in sentence(graded, "greed", "two_way_ring")


def test_a_forged_verdict_is_none(graded):
    assert "returned" in sentence(graded, "deceit", "reduce_scatter")


def test_an_answer_that_redefines_the_check_is_seen_through(graded):
    assert "changes what judges it: helpers.checks" in sentence(graded, "deceit", "two_way_ring")
    assert "Rank 0 holds" in sentence(graded, "others", "two_way_ring")  # its cell ran on the ranks


def test_an_answer_cannot_read_the_solutions(graded):
    assert "FileNotFoundError" in sentence(graded, "deceit", "ring_indices")


def test_what_is_missing_or_no_notebook_is_said(graded):
    assert "no cell with an answer" in sentence(graded, "others", "ring_indices")
    sentences = [row["sentence"] for (learner, exercise), row in graded[1].items() if learner == "others"]
    assert any("99_mine.ipynb" in said for said in sentences)


def test_a_page_shows_what_the_answer_says_as_text(graded):
    folder, _ = graded
    page = (folder / "grades" / "others.html").read_text()
    assert "alert(1)" in page and "<script>" not in page
    assert "3 of 3 exercises solved" in (folder / "grades" / "right.html").read_text()


def test_what_is_judged_is_kept_until_the_notebook_changes(graded, monkeypatch):
    folder, _ = graded
    judged = []
    monkeypatch.setattr(sandbox, "judged", lambda *arguments: judged.append(arguments) or {})
    before = (folder / "grades.csv").read_text()
    grading.grade(folder)
    assert not judged and (folder / "grades.csv").read_text() == before


def test_an_interrupt_ends_the_sandbox_and_loses_nothing(tmp_path):
    submitted(tmp_path / "first" / RING.name, RING, {"reduce_scatter": None, "two_way_ring": None})
    submitted(tmp_path / "second" / RING.name, RING, {"ring_indices": WAITS})
    command = [sys.executable, "-m", "helpers.grade", str(tmp_path)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell has background jobs ignore it
    )
    kept = tmp_path / "grades" / "first" / "05_ring_all_reduce.json"
    deadline = time.monotonic() + 120
    while not kept.exists() or not psutil.Process(process.pid).children():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    inside = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 1 and "goes on from here" in told
    _, alive = psutil.wait_procs(inside, timeout=10)
    assert not alive
    assert kept.exists() and not (tmp_path / "grades" / "second").exists()


def test_without_a_folder_it_says_how_to_call_it():
    told = subprocess.run([sys.executable, "-m", "helpers.grade"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 1 and "make grade SUBMISSIONS=folder" in told.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("lesson", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_is_graded_as_it_is_and_with_its_solutions(lesson, tmp_path):
    submitted(tmp_path / "right.ipynb", lesson, answers_of(lesson))
    first, *others = exercises.variants(lesson)
    runs = [(lesson, first, False), *((tmp_path / "right.ipynb", parameters, True) for parameters in (first, *others))]
    for submission, parameters, solved in runs:
        verdicts = sandbox.judged(parameters, exercises.exercises(lesson, submission), [])
        assert {name: verdict[0] for name, verdict in verdicts.items()} == dict.fromkeys(verdicts, solved), verdicts
        assert not any("NameError" in verdict[1] for verdict in verdicts.values()), verdicts
