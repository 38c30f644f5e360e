"""The mutants of tests/lessons/mutants, and how a lesson is broken by one of them.

tests/lessons/mutants/TOPIC.py holds those of notebooks/NN_TOPIC.ipynb, as `MUTANTS = {what is false now: (old, new)}`.
The code of the notebook has the text `old` once, and `new` takes its place.
"""

import runpy
from typing import NamedTuple

import nbformat
from lesson_files import ROOT


class Mutant(NamedTuple):
    """One claim of a lesson, and the change of its code that makes the claim false."""

    topic: str
    name: str
    old: str
    new: str


MUTANTS = [
    Mutant(path.stem, name, old, new)
    for path in sorted(ROOT.glob("tests/lessons/mutants/*.py"))
    for name, (old, new) in runpy.run_path(str(path))["MUTANTS"].items()
]


def path_of(topic):
    """Return the path of the notebook that has this topic."""
    (path,) = ROOT.glob(f"notebooks/[0-9][0-9]_{topic}.ipynb")
    return path


def break_on_purpose(notebook: nbformat.NotebookNode, old: str, new: str) -> None:
    """Replace a text in the code of a notebook.

    Raises `ValueError` when the code does not have the text exactly once, or when nothing would change.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and old in cell.source]
    count = sum(cell.source.count(old) for cell in cells)
    if count != 1:
        remedy = "Copy the line from the notebook as it is now" if count == 0 else "Add the line before or after it"
        raise ValueError(f"The code of the notebook has the text {old!r} {count} times, expected once. {remedy}.")
    if new == old:
        raise ValueError(f"The mutant replaces {old!r} by the same text, expected a text that makes the claim false.")
    cells[0].source = cells[0].source.replace(old, new)
