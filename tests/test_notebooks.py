"""Every notebook runs with other numbers of ranks than its own, and a second time in one kernel."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).parent.parent.glob("notebooks/[0-9]*.ipynb"))


def with_world_size(notebook, size):
    """Return copies of the notebook's cells, with the parameter set."""
    copies = [cell.copy() for cell in notebook.cells if cell.cell_type == "code"]
    copies[0].source += f"\nWORLD_SIZE = {size}"
    return copies


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("sizes", [(2, 8), (5, 3)], ids=str)
def test_runs_twice_in_one_kernel_with_other_world_sizes(path, sizes):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for size in sizes for cell in with_world_size(notebook, size)]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
