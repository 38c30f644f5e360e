"""Grading reads whatever a class hands in, says what is wrong with it, and grades the others.

What answers do is in test_grade_sandbox.py.
"""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from handed_in import answers_of, cell, hand_in
from lesson_files import NOTEBOOKS, ROOT

from helpers.grade import __main__ as grading
from helpers.grade import exercises, judging, keeping, report, sandbox, submissions

RING = ROOT / "notebooks" / "06_ring_all_reduce.ipynb"
NAMES = ["my_ring", "reduce_scatter", "two_way_ring", "ordered_exchange"]
RIGHT = answers_of(RING)
NO_ANSWERS = dict.fromkeys(NAMES)
ATTACKED = "The answer attacked the process that judges it, and was ended."

needs_sandbox = pytest.mark.usefixtures("bubblewrap")


def without_ids(path, *, in_metadata=False):
    """Save a notebook again as older programs do, and as Colab does."""
    notebook = json.loads(path.read_text())
    notebook["nbformat_minor"] = 0 if in_metadata else 4
    for saved in notebook["cells"]:
        number = saved.pop("id")
        if in_metadata:
            saved["metadata"]["id"] = number
    path.write_text(json.dumps(notebook))


def replace(path, old, new):
    path.write_text(path.read_text().replace(old, new))


def table(folder):
    with open(folder / "grades.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------- files


ODD = {
    "empty": (lambda path: path.write_text(""), "cannot be read as a notebook"),
    "no_json": (lambda path: path.write_text("no notebook"), "cannot be read as a notebook"),
    "a_number": (lambda path: path.write_text("5"), "cannot be read as a notebook"),
    "deep_json": (lambda path: path.write_text("[" * 200_000), "cannot be read as a notebook"),
    "source_5": (lambda path: replace(path, '"source": "%%px', '"source": 5, "x": "'), "cannot be read as a notebook"),
    "format_3": (lambda path: path.write_text('{"nbformat": 3, "metadata": {}}'), "cannot be read as a notebook"),
    "other_text": (lambda path: path.write_bytes(b"\xff\xfe{}"), "cannot be read as a notebook"),
    "large": (lambda path: path.write_bytes(b" " * (submissions.MOST_BYTES + 1)), "more than 20 MiB"),
    "much_code": (lambda path: hand_in(path, RING, {"two_way_ring": "x" * 2**20}), "more than 1 MiB of code"),
    "fifo": (lambda path: (path.unlink(), os.mkfifo(path)), "not a file"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "not a file"),
    "broken_link": (lambda path: (path.unlink(), path.symlink_to("nowhere")), "it is a link"),
    "loop": (lambda path: (path.unlink(), path.symlink_to(path.name)), "it is a link"),
    "link": (lambda path: (path.unlink(), path.symlink_to(f"../zed/{path.name}")), "it is a link"),
    "no_ids": (without_ids, "no cell with an answer"),
    "colab": (lambda path: without_ids(path, in_metadata=True), "no cell with an answer"),
    "unknown": (lambda path: path.rename(path.with_name("99_mine.ipynb")), "no notebook 99_mine.ipynb"),
    "formula": (lambda path: path.rename(path.with_name("=1+cmd|calc.ipynb")), "no notebook =1+cmd"),
    "<script>alert(1)<": (lambda path: path.rename(path.with_name("<b onload=x>.ipynb")), "no notebook <b onload=x>"),
    "=1+1": (lambda path: None, "no cell with an answer"),
    "ann": (lambda path: None, "no cell with an answer"),
    "ann.html": (lambda path: None, "no cell with an answer"),
    "n" * 254: (lambda path: None, "no cell with an answer"),
    "\udcff\udcfe": (lambda path: None, "no cell with an answer"),
    "grades": (lambda path: None, "Grades are written to this folder"),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """The folder of a class with odd files, graded, and the rows of its table by the names of the learners."""
    folder = tmp_path_factory.mktemp("odd")
    for learner, (spoil, _) in ODD.items():
        hand_in(folder / learner / RING.name, RING, NO_ANSWERS)
        spoil(folder / learner / RING.name)
    hand_in(folder / ".ipynb_checkpoints" / RING.name, RING, NO_ANSWERS)
    hand_in(folder / "zed" / RING.name, RING, {**NO_ANSWERS, "my_ring": RIGHT["my_ring"]})
    grading.grade(folder)
    rows = {}
    for row in table(folder):
        rows.setdefault(row["learner"], []).append(row)
    return folder, rows


@needs_sandbox
@pytest.mark.parametrize("learner", ODD, ids=lambda learner: ascii(learner)[1:21])
def test_an_odd_file_has_a_row_that_says_what_is_wrong(odd, learner):
    shown = {"\udcff\udcfe": "\\udcff\\udcfe", "=1+1": "'=1+1"}.get(learner, learner)
    assert odd[1][shown]
    for row in odd[1][shown]:
        assert row["solved"] == "no" and ODD[learner][1] in row["sentence"], row


@needs_sandbox
def test_the_others_are_graded_and_each_learner_has_a_page(odd):
    folder, rows = odd
    assert {row["exercise"]: row["solved"] for row in rows["zed"]} == {name: "no" for name in NAMES} | {
        "my_ring": "yes"
    }
    assert ".ipynb_checkpoints" not in rows and len(rows) == len(ODD) + 1
    pages = list((folder / "grades").glob("*.html"))
    assert len(pages) == len(rows)
    assert not any(tag in page.read_text() for page in pages for tag in ("<script", "<b "))


@needs_sandbox
def test_no_cell_of_the_table_is_a_formula(odd):
    for rows in odd[1].values():
        for value in (value for row in rows for value in row.values()):
            assert not value.startswith(("=", "+", "-", "@", "\t", "\r")), value


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_or_folder_that_cannot_be_read_is_said(tmp_path):
    for learner in ("file", "folder"):
        hand_in(tmp_path / learner / RING.name, RING, NO_ANSWERS)
    (tmp_path / "file" / RING.name).chmod(0)
    (tmp_path / "folder").chmod(0)
    grading.grade(tmp_path)
    (tmp_path / "folder").chmod(0o700)
    assert [row["learner"] for row in table(tmp_path)] == ["file", "folder"]
    assert all("Permission denied" in row["sentence"] for row in table(tmp_path))


@pytest.mark.parametrize("lesson", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("in_metadata", [False, True], ids=["no ids", "colab"])
def test_answers_are_found_in_a_notebook_whose_cells_have_lost_their_ids(lesson, in_metadata, tmp_path):
    path = tmp_path / lesson.name
    hand_in(path, lesson, answers_of(lesson))
    before = exercises.exercises(lesson, path.read_bytes())
    without_ids(path, in_metadata=in_metadata)
    assert exercises.exercises(lesson, path.read_bytes()) == before
    assert all(exercise.answer for exercise in before)


@pytest.mark.parametrize(
    "source",
    [f"x = {200_000 * '-'}1", "x = 1" + 100_000 * "+1", "a" + 100_000 * ".b", "\ud800", "\0"],
    ids=["signs", "sum", "attributes", "no text", "zero"],
)
def test_an_answer_that_cannot_be_parsed_leaves_the_other_exercises_alone(source, tmp_path):
    hand_in(tmp_path / RING.name, RING, {**RIGHT, "reduce_scatter": f"%%px\n{source}"})
    found = exercises.exercises(RING, (tmp_path / RING.name).read_bytes())
    assert [exercise.name for exercise in found] == NAMES
    assert found[2].answer == [RIGHT["two_way_ring"]]


def test_no_answer_runs_in_the_process_that_judges():
    for lesson in NOTEBOOKS:
        for exercise in exercises.exercises(lesson, lesson.read_bytes()):
            assert all(cell.startswith("%%px") and "--local" not in cell.partition("\n")[0] for cell in exercise.answer)


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@A1", "\t=1", "\r=1", "\u202e=1", " =1", "＝1"])
def test_a_cell_that_a_spreadsheet_would_evaluate_gets_an_apostrophe(text, tmp_path):
    report.write_table(tmp_path / "grades.csv", [["ann", "00", "x", "no", text]])
    assert table(tmp_path)[0]["sentence"].startswith("'")


def test_a_text_has_no_control_characters_and_does_not_turn():
    assert report.plain("a\x1b[31m\u202eb\u200fc\x00\td\ne\ud800") == "a[31mbcd\ne\\ud800"


def test_a_table_is_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    report.write_table(tmp_path / "grades.csv", [["ann", "00", "x", "yes", "Solved."]])
    before = (tmp_path / "grades.csv").read_bytes()
    with pytest.raises(UnicodeEncodeError):
        keeping.write(tmp_path / "grades.csv", "\ud800")
    assert (tmp_path / "grades.csv").read_bytes() == before


# ---------------------------------------------------------------- what is kept


@pytest.fixture
def judged_before(tmp_path):
    """The folder of a class that has been graded, without any answer, and the file of what is kept of it."""
    hand_in(tmp_path / "ann" / RING.name, RING, NO_ANSWERS)
    grading.grade(tmp_path)
    (kept,) = (tmp_path / "grades" / ".kept").iterdir()
    version, rows = json.loads(kept.read_text())
    rows[0][4] = "kept"
    kept.write_text(json.dumps([version, rows]))
    return tmp_path, kept


def sentences(folder):
    return [row["sentence"] for row in table(folder)]


def test_what_is_judged_is_kept_until_the_notebook_changes(judged_before):
    folder, _ = judged_before
    grading.grade(folder)
    assert "kept" in sentences(folder)
    (folder / "ann" / RING.name).write_text((folder / "ann" / RING.name).read_text() + " ")
    grading.grade(folder)
    assert "kept" not in sentences(folder)


def test_what_is_judged_is_judged_again_when_somebody_asks(judged_before):
    grading.grade(judged_before[0], again=True)
    assert "kept" not in sentences(judged_before[0])


def test_what_another_version_of_the_course_has_judged_counts_for_nothing(judged_before):
    folder, kept = judged_before
    version, rows = json.loads(kept.read_text())
    kept.write_text(json.dumps([version[::-1], rows]))
    grading.grade(folder)
    assert "kept" not in sentences(folder)


def test_the_version_is_that_of_the_lesson_and_of_the_helpers():
    of_two = {keeping._version(lesson, b"") for lesson in (RING.name, NOTEBOOKS[0].name)}
    assert len({*of_two, keeping._version(RING.name, b" ")}) == 3


@pytest.mark.parametrize(
    "half", ["", '["a', "[]", "5", '["{version}", 5]', '["{version}", [[1, 2]]]', '["{version}", [5]]']
)
def test_what_is_kept_half_written_counts_for_nothing(judged_before, half):
    folder, kept = judged_before
    kept.write_text(half.replace("{version}", json.loads(kept.read_text())[0]))
    grading.grade(folder)
    assert "kept" not in sentences(folder) and len(sentences(folder)) == len(NAMES)


# ---------------------------------------------------------------- what a sandbox says


def signed(key, number, solved, sentence):
    return json.dumps([sandbox.signature(key, number, solved, sentence), solved, sentence])


def first_verdict(code):
    """Return the verdict that the grader takes from a process that runs this code instead of a sandbox."""
    with judging._process([sys.executable, "-c", code]) as process:
        process.stdin.close()
        return judging._verdict(judging._Lines(process).next(time.monotonic() + judging.SECONDS), "key", 0)


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[" * 10_000,
        "5",
        "null",
        '["key", true]',
        '["key", true, "Solved."]',
        '["key", true, "\\ud800"]',
        '[["key"], true, "Solved."]',
        signed("other key", 0, True, "Solved."),
        signed("key", 1, True, "Solved."),
        signed("key", 0, "true", "Solved."),
        signed("key", 0, 1, "Solved."),
        signed("key", 0, True, 5),
        "\\xff\\xfe",
    ],
)
def test_a_line_that_is_no_verdict_is_an_attack(line):
    with pytest.raises(judging._Ended, match=ATTACKED):
        first_verdict(f"import sys; sys.stdout.buffer.write(b'{line}\\n')")


def test_a_line_without_an_end_takes_no_memory():
    before = psutil.Process().memory_info().rss
    with pytest.raises(judging._Ended, match=ATTACKED):
        first_verdict("import sys\nwhile True: sys.stdout.write('x' * 2**20)")
    assert psutil.Process().memory_info().rss < before + 2**26


def test_no_line_moves_the_deadline(monkeypatch):
    monkeypatch.setattr(judging, "SECONDS", 2)
    with pytest.raises(judging._Ended, match="more than 2 s"):
        first_verdict("import time\nwhile True: print('x', end='', flush=True); time.sleep(0.1)")


def test_a_sandbox_that_ends_without_a_word_is_said():
    with pytest.raises(judging._Ended, match="ended the process that judges it"):
        first_verdict("")


def test_a_verdict_is_taken_and_its_sentence_cut():
    verdict = first_verdict(f"print({signed('key', 0, False, 'x' * 10_000)!r})")
    assert verdict == (False, "x" * sandbox.LETTERS, True)


# ---------------------------------------------------------------- the command


@needs_sandbox
def test_an_interrupt_ends_the_sandbox_and_loses_nothing(tmp_path):
    hand_in(tmp_path / "first" / RING.name, RING, NO_ANSWERS)
    hand_in(tmp_path / "second" / RING.name, RING, {"my_ring": cell("while True: pass")})
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers.grade", str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell has background jobs ignore it
    )
    kept = tmp_path / "grades" / ".kept"
    deadline = time.monotonic() + 120
    while not kept.exists() or not psutil.Process(process.pid).children():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    inside = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 1 and "goes on from here" in told
    _, alive = psutil.wait_procs(inside, timeout=10)
    assert not alive
    assert len(list(kept.iterdir())) == 1


def test_without_a_folder_it_says_how_to_call_it():
    told = subprocess.run([sys.executable, "-m", "helpers.grade"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 1 and "make grade SUBMISSIONS=folder" in told.stderr


@pytest.fixture
def installed(tmp_path):
    """Return a function that grades a folder with the course as pip installs it, outside of a checkout."""
    folder = tmp_path / "site-packages"
    unneeded = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    shutil.copytree(ROOT / "helpers", folder / "helpers", ignore=unneeded)
    shutil.copytree(ROOT / "notebooks", folder / "helpers/notebooks", ignore=unneeded)

    def grade(*arguments):
        command = [sys.executable, "-m", "helpers.grade", *arguments]
        environment = os.environ | {"PYTHONPATH": str(folder)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return grade


@needs_sandbox
def test_an_installed_course_grades_as_a_checkout_does(installed, tmp_path):
    spying = cell("""
        def reduce_scatter(chunks):
            import pathlib
            solutions = pathlib.Path(__import__("helpers").__file__).parent / "notebooks/solutions"
            raise RuntimeError(f"solutions: {solutions.exists()}")
    """)
    (tmp_path / "class").mkdir()
    hand_in(tmp_path / "class/ada" / RING.name, RING, {"my_ring": RIGHT["my_ring"], "reduce_scatter": spying})
    told = installed("class")
    assert told.returncode == 0, told.stderr
    rows = {row["exercise"]: row for row in table(tmp_path / "class")}
    assert rows["my_ring"]["solved"] == "yes", rows
    assert "solutions: False" in rows["reduce_scatter"]["sentence"], rows


def test_an_installed_course_without_lessons_says_what_to_do(installed, tmp_path):
    shutil.rmtree(tmp_path / "site-packages/helpers/notebooks/solutions")
    for lesson in (tmp_path / "site-packages/helpers/notebooks").glob("*.ipynb"):
        lesson.unlink()
    told = installed(".")
    assert told.returncode == 1
    assert told.stderr.startswith("Grading needs the lessons of the course and course.toml, expected in ")
    assert "Install the course again" in told.stderr
    assert "python -m helpers.grade folder" in installed().stderr
