"""Every notebook runs as it is stored, and once more in the same kernel with another number of ranks.

nbval runs both: the first time its outputs have to be the stored ones, the second time only its asserts have to hold.
The other sizes take turns, because all of them with all notebooks would take longer than everything else together.
"""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell

NOTEBOOKS = sorted(Path(__file__).parent.parent.glob("notebooks/[0-9]*.ipynb"))
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=120", "-p", "no:cacheprovider", "-p", "no:xdist"]


def another_size(notebook, number):
    """Return one of the world sizes that the notebook says it works for, in turn low ones and high ones."""
    opening = "".join(cell.source for cell in notebook.cells[:3])
    stored = int(re.search(r"\*\*Ranks\*\*: (\d)", opening)[1])
    if "No other `WORLD_SIZE` works." in opening:
        return stored
    low, high = map(int, re.search(r"(?i)any `WORLD_SIZE` from (\d) to (\d) works", opening).groups())
    others = [size for size in sorted({low, low + 1, (low + high) // 2, high}) if size != stored]
    return others[number % len(others)]


def with_world_size(notebook, size):
    """Return copies of the notebook's code cells, with the parameter set and no outputs to compare."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    sources[0] += f"\nWORLD_SIZE = {size}"
    return [new_code_cell(source, metadata={"tags": ["nbval-ignore-output"]}) for source in sources]


@pytest.mark.parametrize("number", range(len(NOTEBOOKS)), ids=[path.stem for path in NOTEBOOKS])
def test_runs_as_stored_and_again_with_another_number_of_ranks(number, tmp_path):
    notebook = nbformat.read(NOTEBOOKS[number], as_version=4)
    notebook.cells += with_world_size(notebook, another_size(notebook, number))
    nbformat.write(notebook, tmp_path / NOTEBOOKS[number].name)
    run = subprocess.run([sys.executable, "-m", "pytest", *NBVAL, tmp_path], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    assert f"{cells} passed" in run.stdout
