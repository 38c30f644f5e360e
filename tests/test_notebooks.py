"""Every notebook runs with other numbers of ranks than its own, and a second time in one kernel.

The sizes take turns, because all of them with all notebooks would take longer than everything else together.
"""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).parent.parent.glob("notebooks/[0-9]*.ipynb"))


def sizes_for(notebook, number):
    """Return two of the world sizes that the notebook says it works for, in turn the lower ones and the upper ones."""
    opening = "".join(cell.source for cell in notebook.cells[:3])
    if "No other `WORLD_SIZE` works." in opening:
        return [int(re.search(r"\*\*Ranks\*\*: (\d)", opening)[1])] * 2
    low, high = map(int, re.search(r"(?i)any `WORLD_SIZE` from (\d) to (\d) works", opening).groups())
    return [(low, (low + high) // 2), (low + 1, high)][number % 2]


def with_world_size(notebook, size):
    """Return copies of the notebook's cells, with the parameter set."""
    copies = [cell.copy() for cell in notebook.cells if cell.cell_type == "code"]
    copies[0].source += f"\nWORLD_SIZE = {size}"
    return copies


@pytest.mark.parametrize("number, path", enumerate(NOTEBOOKS), ids=lambda value: getattr(value, "stem", ""))
def test_runs_twice_in_one_kernel_with_other_world_sizes(number, path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for size in sizes_for(notebook, number) for cell in with_world_size(notebook, size)]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
