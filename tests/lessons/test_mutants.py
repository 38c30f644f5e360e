"""Lessons broken on purpose: a mutant makes a claim of its notebook false, and the notebook has to refuse it.

tests/lessons/mutants/TOPIC.py holds those of notebooks/NN_TOPIC.ipynb, as `MUTANTS = {what is false now: (old, new)}`.
`old` is text that stands once in the code of the notebook, and `new` takes its place. `make mutants` runs them, and
`make test ALL=1`.
"""

import re
import runpy

import nbformat
import pytest
from lesson_files import ROOT, run

# A mutant that is not a program any more proves nothing.
NO_PROGRAM = re.compile(r"\b(SyntaxError|IndentationError|NameError|ModuleNotFoundError|ImportError)\b")
MUTANTS = [
    (path.stem, name, *change)
    for path in sorted(ROOT.glob("tests/lessons/mutants/*.py"))
    for name, change in runpy.run_path(str(path))["MUTANTS"].items()
]


def break_on_purpose(notebook, old, new):
    """Replace the text in the only code cell that has it."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and old in cell.source]
    assert cell.source.count(old) == 1 and new != old
    cell.source = cell.source.replace(old, new)


@pytest.mark.nightly
@pytest.mark.parametrize(("topic", "name", "old", "new"), MUTANTS, ids=[f"{m[0]}: {m[1]}" for m in MUTANTS])
def test_the_notebook_refuses(topic, name, old, new, tmp_path, request):
    (path,) = ROOT.glob(f"notebooks/[0-9][0-9]_{topic}.ipynb")
    notebook = nbformat.read(path, as_version=4)
    break_on_purpose(notebook, old, new)
    with pytest.raises(pytest.fail.Exception) as refusal:
        run(notebook, tmp_path / path.name, request, until_refused=True)
        raise AssertionError(f"the notebook believes that {name}")
    reason = str(refusal.value)
    assert not NO_PROGRAM.search(reason), reason
