"""The submissions of a class: a folder for each learner, with notebooks whose content is not trusted."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import nbformat

MOST_BYTES = 20 * 2**20  # for a notebook with its outputs
MOST_BYTES_OF_CODE = 2**20
GRADES = "grades"  # the folder of the results, next to the folders of the learners


def submissions(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the learner and the path of every notebook `folder/LEARNER/*.ipynb`, in the order of their names.

    Hidden folders do not count as learners, nor does the folder `grades` unless it holds notebooks. If a learner's
    folder cannot be read, yield the folder itself; `content` then says why.
    """
    for place in sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        try:
            names = sorted(name for name in os.listdir(place) if name.endswith(".ipynb"))
        except OSError:
            yield place.name, place
            continue
        for name in names:
            yield place.name, place / name


def content(path: Path) -> bytes:
    """Return the bytes of a notebook; raise `ValueError` when it is not a regular file, is unreadable or is too large.

    Do not follow links, because they may lead to another learner's notebook.
    """
    try:
        # O_NONBLOCK, because a FIFO without a writer would block the reader.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        reason = "it is a link; hand in the notebook itself" if path.is_symlink() else error.strerror
        raise ValueError(f"{path.name} cannot be read: {reason}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path.name} is not a file. Expected: a notebook")
    with open(descriptor, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"{path.name} has more than {MOST_BYTES // 2**20} MiB. Clear its outputs and hand it in again")
    return data


def code_cells(content: bytes) -> list:
    """Return the code cells of a notebook; raise `ValueError` if the bytes are not a notebook or have too much code."""
    try:
        notebook = nbformat.reads(content.decode("utf-8"), as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        bytes_of_code = sum(len(cell.source.encode("utf-8", "surrogatepass")) for cell in cells)
    except Exception as error:  # nbformat passes on errors of json and jsonschema; bad cells raise other errors
        raise ValueError(f"This file cannot be read as a notebook: {type(error).__name__}") from None
    if bytes_of_code > MOST_BYTES_OF_CODE:
        raise ValueError(f"This notebook has more than {MOST_BYTES_OF_CODE // 2**20} MiB of code")
    return cells
