"""What the tests of notebooks share: which lessons there are, which tests are asked for, and nbval in this process."""

import ast
import os
import re
import shutil
import time
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbval.plugin import IPyNbFile, NbCellError

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/[0-9]*.ipynb"))
SOLUTIONS = sorted(ROOT.glob("notebooks/solutions/*.ipynb"))

# `make test ALL=1` also runs what is marked `nightly`; without it every run of a commit runs the same tests.
ALL = bool(os.environ.get("ALL"))

# `make test NOTEBOOKS=notebooks/05*` runs what belongs to one lesson, whose topic is the name without the number.
CHOSEN = [Path(name).stem.partition("_")[2] for name in os.environ.get("LESSONS", "").split()]

# The tag of a cell that looks at what an earlier cell started on the ranks: a reader takes time between the two.
PAUSE = "reader-pauses"
SECONDS_OF_A_PAUSE = 15


def at_night(value):
    """Return a value of a parameter with which a test runs in `make test ALL=1` only."""
    return pytest.param(value, marks=pytest.mark.nightly)


def belongs(item) -> bool:
    """Return whether a test is about one of the chosen lessons.

    Its module or its parameter has the topic of the lesson, or its module tests a check that the notebook calls.
    """
    names = "|".join(CHOSEN)
    if re.fullmatch(f"test_(checks_)?({names})", item.path.stem):
        return True
    if re.search(rf"(\d\d_|[/[])({names})\b", item.name):
        return True
    return any(checks_called(path) & checks_tested(item.path) for path in NOTEBOOKS if topic_of(path) in CHOSEN)


def topic_of(notebook: Path) -> str:
    """Return the name of a notebook without its number."""
    return notebook.stem.partition("_")[2]


@cache
def checks_called(notebook: Path) -> set[str]:
    """Return the checks that the code of a notebook calls as `checks.TOPIC.NAME(...)`, each as "TOPIC.NAME"."""
    code = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    return set(re.findall(r"\bchecks\.(\w+\.\w+)\(", "\n".join(code)))


@cache
def checks_tested(module: Path) -> set[str]:
    """Return what a test module uses as `checks.TOPIC.NAME`, or imports from `helpers.checks.TOPIC`: "TOPIC.NAME"."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith("checks."):
            names.add(f"{node.value.attr}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers.checks."):
            names.update(f"{node.module.rpartition('.')[2]}.{alias.name}" for alias in node.names)
    return names


def run(notebook, path: Path, request, until_refused: bool = False) -> None:
    """Write the notebook to `path` and run it as nbval does; fail with what nbval says of the cells that it refuses."""
    nbformat.write(notebook, path)
    for module in ROOT.glob("notebooks/*.py"):  # which notebooks import
        shutil.copy(module, path.parent)
    file = IPyNbFile.from_parent(request.session, path=path)
    cells = list(file.collect())
    refused = []
    file.setup()
    try:
        for cell in cells:
            cell.output_timeout = 60  # seconds until what a cell has shown arrives; nbval has 5, a busy machine may not
            if PAUSE in cell.cell.metadata.get("tags", []):
                time.sleep(SECONDS_OF_A_PAUSE)
            try:
                cell.runtest()
            except NbCellError:
                words = cell.repr_failure(pytest.ExceptionInfo.from_current())
                refused.append(re.sub(r"\x1b\[[0-9;]*m", "", words))
                if until_refused or file.timed_out:
                    break
    finally:
        file.teardown()
    if refused:
        pytest.fail("\n".join(refused[:5]), pytrace=False)
