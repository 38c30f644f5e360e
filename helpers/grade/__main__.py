"""`python -m helpers.grade FOLDER`: grade the notebooks `FOLDER/NAME/NN_topic.ipynb` of every learner NAME.

It writes `FOLDER/grades.csv` and a page for each learner in `FOLDER/grades`. There it also keeps what it has judged, so
that it goes on where it was when it is run again, and judges a notebook again only when it has changed.
"""

import hashlib
import json
import sys
from pathlib import Path

from tqdm import tqdm

from helpers.grade import report, sandbox
from helpers.grade.exercises import exercises, variants

_LESSONS = {path.name: path for path in sorted(sandbox.ROOT.glob("notebooks/[0-9]*.ipynb"))}


def grade(folder: Path) -> None:
    """Grade all notebooks in a folder that has a folder for each learner.

    An exercise is solved when its check says so with the lesson's own parameters and with others.
    """
    grades = folder / "grades"
    grades.mkdir(exist_ok=True)
    submissions = sorted(path for path in folder.glob("*/*.ipynb") if path.parent != grades)
    rows = []
    for submission in tqdm(submissions, "grading", unit="notebook"):
        rows += _rows(submission, grades)
        report.write_table(folder / "grades.csv", rows)
    for learner in sorted({row[0] for row in rows}):
        report.write_page(grades / f"{learner}.html", learner, [row for row in rows if row[0] == learner])


def _rows(submission, grades):
    """Return the rows of the table for one notebook: those that are kept, when the notebook is still the same."""
    kept = grades / submission.parent.name / f"{submission.stem}.json"
    version = hashlib.sha256(submission.read_bytes()).hexdigest()
    if kept.exists():
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before["version"] == version:
            return before["rows"]
    verdicts = _verdicts(submission, grades.parent)
    rows = []
    for name, (solved, sentence) in verdicts.items():
        rows.append([submission.parent.name, submission.stem, name, "yes" if solved else "no", sentence])
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({"version": version, "rows": rows}), encoding="utf-8")
    return rows


def _verdicts(submission, folder):
    lesson = _LESSONS.get(submission.name)
    if lesson is None:
        return {"": (False, f"The course has no notebook {submission.name}.")}
    try:
        asked = exercises(lesson, submission)
    except ValueError as error:
        return {"": (False, f"{error}.")}
    verdicts = {}
    for exercise in asked:
        verdicts[exercise.name] = bool(exercise.answer), "There is no cell with an answer before the check."
    for parameters in variants(lesson):
        left = [exercise for exercise in asked if verdicts[exercise.name][0]]
        for name, (solved, sentence) in sandbox.judged(parameters, left, [folder]).items():
            verdicts[name] = solved, sentence if solved else f"{_say(parameters)}: {sentence}"
    return verdicts


def _say(parameters):
    return ", ".join(line.partition("#")[0].strip() for line in parameters.splitlines() if "=" in line)


def main() -> None:
    """Grade the folder that is named on the command line."""
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 else None
    if folder is None or not folder.is_dir():
        sys.exit("Name the folder that has a folder of notebooks for each learner: make grade SUBMISSIONS=folder")
    if reason := sandbox.why_not():
        sys.exit(f"This cannot be done here: {reason}.")
    try:
        grade(folder.resolve())
    except KeyboardInterrupt:
        sys.exit("Interrupted. Run the same command again, and it goes on from here.")


if __name__ == "__main__":
    main()
