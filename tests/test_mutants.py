"""Lessons broken on purpose: a mutant makes a claim of its notebook false, and the notebook has to refuse it.

tests/mutants/TOPIC.py holds those of notebooks/NN_TOPIC.ipynb, as `MUTANTS = {what is false now: (old, new)}`. `old` is
text that stands once in the code of the notebook, and `new` takes its place.
"""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=120", "-p", "no:cacheprovider", "-p", "no:xdist"]
# A mutant that is not a program any more proves nothing.
NO_PROGRAM = re.compile(r"\b(SyntaxError|IndentationError|NameError|ModuleNotFoundError|ImportError)\b")
MUTANTS = [
    (path.stem, name, *change)
    for path in sorted(ROOT.glob("tests/mutants/*.py"))
    for name, change in runpy.run_path(str(path))["MUTANTS"].items()
]


def break_on_purpose(notebook, old, new):
    """Replace the text in the only code cell that has it."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and old in cell.source]
    assert cell.source.count(old) == 1 and new != old
    cell.source = cell.source.replace(old, new)


@pytest.mark.mutant
@pytest.mark.parametrize(("topic", "name", "old", "new"), MUTANTS, ids=[f"{m[0]}: {m[1]}" for m in MUTANTS])
def test_the_notebook_refuses(topic, name, old, new, tmp_path):
    (path,) = ROOT.glob(f"notebooks/[0-9][0-9]_{topic}.ipynb")
    notebook = nbformat.read(path, as_version=4)
    break_on_purpose(notebook, old, new)
    nbformat.write(notebook, tmp_path / path.name)
    run = subprocess.run([sys.executable, "-m", "pytest", "-x", *NBVAL, tmp_path], capture_output=True, text=True)
    assert run.returncode == 1, f"the notebook believes that {name}"
    reason = run.stdout.split("= FAILURES =")[-1]
    assert not NO_PROGRAM.search(reason), reason
