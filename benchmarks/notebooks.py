"""How long the machine takes for every notebook: a kernel starts, runs the stored cells one after the other, and ends.

`NOTEBOOKS="notebooks/04* notebooks/13*" python -m benchmarks notebooks` runs only these. What this prints,
`python -m tests.minutes --write --machine FILE` puts into docs/teaching.md.
"""

import os
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from tqdm import tqdm

from benchmarks.lesson import NOTEBOOKS

SECONDS_FOR_A_CELL = 600


def rows() -> list[list]:
    """Run them, and return the rows of the table."""
    return [[notebook.name, f"{_seconds(notebook):.0f} s", "", ""] for notebook in tqdm(_chosen(), desc="notebooks")]


def _chosen() -> list[Path]:
    """Return the notebooks that the environment names, or all."""
    patterns = os.environ.get("NOTEBOOKS", "notebooks/[0-9]*.ipynb").split()
    return sorted(path for pattern in patterns for path in NOTEBOOKS.parent.glob(pattern))


def _seconds(notebook: Path) -> float:
    """Return how long a notebook runs; a cell that fails ends the benchmark with its error."""
    cells = nbformat.read(notebook, as_version=4)
    before = time.perf_counter()
    NotebookClient(cells, timeout=SECONDS_FOR_A_CELL, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    return time.perf_counter() - before
