"""`python -m helpers.grade FOLDER`: grade the notebooks `FOLDER/NAME/NN_topic.ipynb` of every learner NAME.

The command writes `FOLDER/grades.csv` and a page for each learner in `FOLDER/grades`. It also keeps its verdicts there,
so the next run continues where the last run stopped, and judges a notebook again only when the notebook or the course
has changed.
"""

import argparse
import sys
import traceback
from collections import defaultdict
from pathlib import Path

from tqdm import tqdm

from helpers.course import IS_CHECKOUT, NOTEBOOKS, TABLE
from helpers.grade import judging, report, sandbox
from helpers.grade.exercises import exercises, variants
from helpers.grade.keeping import keep, kept
from helpers.grade.submissions import GRADES, content, submissions

_LESSONS = {path.name: path for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))}


def grade(folder: Path, again: bool = False) -> None:
    """Grade all notebooks in a folder that has a folder for each learner.

    An exercise is solved when it passes its check with the lesson's own parameters and with other parameters. A
    notebook that cannot be graded gets a row with the reason, and the other notebooks are still graded. With `again`,
    ignore kept verdicts.
    """
    grades = folder / GRADES
    grades.mkdir(exist_ok=True)
    rows = []
    rows_by_learner = defaultdict(list)
    for learner, path in tqdm(list(submissions(folder)), "grading", unit="notebook"):
        notebook_rows = _rows(learner, path, grades, again)
        rows += notebook_rows
        rows_by_learner[learner] += notebook_rows
        report.write_table(folder / "grades.csv", rows)
    for learner in rows_by_learner:
        report.write_page(grades, learner, rows_by_learner[learner])


def _rows(learner, path, grades, again):
    """Return the rows of the table for one notebook, the kept rows if nothing has changed."""
    if path.parent == grades:
        return [_row(learner, path, "", False, "Grades are written to this folder. Give the learner another one.")]
    try:
        submission = content(path)
        rows = None if again else kept(grades, learner, path.name, submission)
        if rows is None:
            verdicts = _verdicts(path.name, submission)
            rows = [_row(learner, path, name, *verdict[:2]) for name, verdict in verdicts.items()]
            if all(verdict.finished for verdict in verdicts.values()):
                keep(grades, learner, path.name, submission, rows)
        return rows
    except ValueError as error:
        return [_row(learner, path, "", False, f"{error}.")]
    except Exception as error:
        traceback.print_exc()
        return [_row(learner, path, "", False, f"This notebook could not be graded: {type(error).__name__}.")]


def _row(learner, path, exercise, solved, sentence):
    return [learner, path.name.removesuffix(".ipynb"), exercise, "yes" if solved else "no", sentence]


def _verdicts(notebook, submission):
    """Return the verdict on each exercise, by name."""
    if notebook not in _LESSONS:
        raise ValueError(f"The course has no notebook {notebook}")
    lesson = _LESSONS[notebook]
    asked = exercises(lesson, submission)
    nothing = judging.Grade(False, "There is no cell with an answer before the check.")
    verdicts = {exercise.name: nothing for exercise in asked}
    remaining = [exercise for exercise in asked if exercise.answer]
    for parameters in variants(lesson):
        for name, verdict in judging.judged(parameters, remaining).items():
            sentence = verdict.sentence if verdict.solved else f"{_say(parameters)}: {verdict.sentence}"
            verdicts[name] = verdict._replace(sentence=sentence)
        remaining = [exercise for exercise in remaining if verdicts[exercise.name].solved]
    return verdicts


def _say(parameters):
    return ", ".join(line.partition("#")[0].strip() for line in parameters.splitlines() if "=" in line)


def main() -> None:
    """Grade the folder that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m helpers.grade")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--again", action="store_true", help="judge again what has been judged before")
    arguments = parser.parse_args()
    if arguments.folder is None or not arguments.folder.is_dir():
        command = "make grade SUBMISSIONS=folder" if IS_CHECKOUT else "python -m helpers.grade folder"
        sys.exit(f"Name the folder that has a folder of notebooks for each learner: {command}")
    if not _LESSONS or not TABLE.is_file():
        sys.exit(
            f"Grading needs the lessons of the course and course.toml, expected in {NOTEBOOKS}. Install the course "
            "again, or grade in a checkout of the course: make grade SUBMISSIONS=folder"
        )
    if reason := sandbox.why_not():
        sys.exit(f"Grading cannot run here: {reason}.")
    try:
        grade(arguments.folder.resolve(), arguments.again)
    except KeyboardInterrupt:
        sys.exit("Interrupted. Run the same command again, and it goes on from here.")


if __name__ == "__main__":
    main()
