"""How long every notebook takes under nbval."""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from tqdm import tqdm

from benchmarks.lesson import NOTEBOOKS

REPEATS = 3
# With the settings of the tests a kernel starts as a user's does.
COMMAND = [sys.executable, "-m", "pytest", "-q", "--nbval", "-p", "conftest", "-p", "no:cacheprovider"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(NOTEBOOKS.parent / "tests")}


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    return [
        [f"{notebook.name} under nbval", f"{median(_seconds(notebook) for _ in range(REPEATS)):.0f} s", "", ""]
        for notebook in tqdm(sorted(NOTEBOOKS.glob("*.ipynb")), desc="notebooks")
    ]


def _seconds(notebook: Path) -> float:
    """Return how long nbval takes for a notebook, and stop if the notebook does not pass."""
    before = time.perf_counter()
    result = subprocess.run([*COMMAND, str(notebook)], env=ENVIRONMENT, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{notebook.name} has failed:\n{result.stdout}")
    return time.perf_counter() - before
