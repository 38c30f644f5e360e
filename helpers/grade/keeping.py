"""Keep verdicts, so that grading continues where it stopped, and judges again only notebooks that have changed."""

import functools
import hashlib
import importlib.metadata
import json
import os
from pathlib import Path

from helpers.course import NOTEBOOKS
from helpers.grade.sandbox import ROOT

_OF_NOTEBOOKS = ["course.toml", "*.py", "faulty/*.py"]
_PACKAGES = ["ipyparallel", "torch"]


def kept(grades: Path, learner: str, notebook: str, content: bytes) -> list | None:
    """Return the rows that are kept for this content of a notebook and this version of the course; None if none are."""
    try:
        version, rows = json.loads(_path(grades, learner, notebook).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):  # there is no file, or it is incomplete
        return None
    is_complete = isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == 5 and all(isinstance(value, str) for value in row) for row in rows
    )
    return rows if is_complete and version == _version(notebook, content) else None


def keep(grades: Path, learner: str, notebook: str, content: bytes, rows: list) -> None:
    """Keep the rows of a notebook with this content."""
    path = _path(grades, learner, notebook)
    path.parent.mkdir(exist_ok=True)
    write(path, json.dumps([_version(notebook, content), rows]))


def write(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    unfinished = path.with_name(".unfinished")
    with open(unfinished, "w", newline="", encoding="utf-8") as file:
        file.write(text)
    os.replace(unfinished, path)


def _path(grades, learner, notebook):
    # A hash, because a learner's name may be too long with this ending, or give the name of another file.
    return grades / ".kept" / (hashlib.sha256(os.fsencode(f"{learner}/{notebook}")).hexdigest() + ".json")


def _version(notebook, content):
    return hashlib.sha256(_version_of_the_course(notebook) + content).hexdigest()


@functools.cache
def _version_of_the_course(notebook):
    version = hashlib.sha256()
    patterns = [*_OF_NOTEBOOKS, notebook, f"solutions/{notebook}"]
    of_notebooks = {path for pattern in patterns for path in NOTEBOOKS.glob(pattern)}
    for path in sorted(of_notebooks.union(ROOT.glob("helpers/**/*.py"))):
        version.update(hashlib.sha256(str(path).encode() + path.read_bytes()).digest())
    for package in _PACKAGES:
        version.update(importlib.metadata.version(package).encode())
    return version.digest()
