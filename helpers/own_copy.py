"""Keep a learner's own copy of the notebooks, without visible answers, and up to date where the learner wrote nothing.

A record in the folder says what was copied. A lesson belongs to the course as long as the sources of its cells are as
they were copied; outputs, execution counts and empty cells do not matter. All other files in the folder belong to the
learner, and are never changed.
"""

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path

_RECORD = ".copied.json"
_NOT_COPIED = ("", "")
# Lessons that run in the checkout write the two modules: 00_meet_the_ranks and 28_hybrid_ddp_rpc.
_NOT_FOR_LEARNERS = {"course.toml", "hello.py", "my_hybrid_model.py"}


def bring_up_to_date(notebooks: Path, folder: Path) -> list[str]:
    """Copy into `folder` each file of `notebooks` that is new or newer, and return sentences about what changed.

    A file that the learner has written in stays as it is, and a sentence says how to get the newer version. A file that
    the course has dropped is removed unless the learner has written in it. Raises `OSError` if `folder` cannot be read
    or written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)  # on many systems every user can read a home folder, and the answers in it
    record = _read_record(folder)
    is_first = not record
    copies = {name: _copy_of(notebooks.parent / name) for name in _names(notebooks)}
    done = {kind: [] for kind in ("same", "new", "newer", "kept", "removed", "left")}
    try:
        for name, copy in copies.items():
            done[_update(folder / name, copy, name, record)].append(name)
        for name in sorted(record.keys() - copies):
            done[_drop(folder / name, name, record)].append(name)
    finally:  # record an interrupted update as far as it went
        _replace(folder / _RECORD, json.dumps(record, indent=1).encode())
    return _sentences(done, is_first)


def without_answers(notebook: dict) -> dict:
    """Remove execution counts and outputs from a notebook, except figures that precede its first question."""
    asked = False
    for cell in notebook["cells"]:
        asked = asked or (cell["cell_type"] == "markdown" and _asks(_text(cell)))
        if cell["cell_type"] == "code":
            cell["outputs"] = [] if asked else [output for output in cell["outputs"] if _is_figure(output)]
            cell["execution_count"] = None
            for output in cell["outputs"]:
                output.pop("execution_count", None)
    return notebook


def _asks(text):
    """Return whether a Markdown cell has a question in bold, or begins an exercise."""
    bold = re.findall(r"\*\*(.+?)\*\*", text, re.DOTALL)
    return any("?" in part for part in bold) or re.search(r"^#+ Exercise", text, re.MULTILINE) is not None


# ---------------------------------------------------------------- one file


def _update(path, copy, name, record):
    """Write the copy to the path unless the learner's file has to stay; return the outcome, see `_sentences`."""
    copied = record.get(name, _NOT_COPIED)
    newest = (_written(copy, name), _edition(copy, name))
    if not os.path.lexists(path):
        kind = "new"
    elif (current := _written_at(path, name)) == newest[0] and copied == newest:
        return "same"
    elif current in (copied[0], newest[0]):
        kind = "newer"
    else:
        return "same" if copied == newest else "kept"
    _replace(path, copy)
    record[name] = newest
    return kind


def _drop(path, name, record):
    """Remove a file that the course has dropped, if the learner has not written in it."""
    written, _ = record.pop(name)
    if not os.path.lexists(path):
        return "same"
    if _written_at(path, name) != written:
        return "left"
    path.unlink()
    return "removed"


def _replace(path, data):
    """Write a file such that an interruption leaves the old file or the new file, never an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".unfinished-", delete=False) as file:
        try:
            file.write(data)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


# ---------------------------------------------------------------- copies and fingerprints


def _copy_of(path):
    """Return the content of the learner's copy of a file of the course."""
    data = path.read_bytes()
    if path.suffix != ".ipynb":
        return data
    return (json.dumps(without_answers(json.loads(data)), indent=1, ensure_ascii=False) + "\n").encode()


def _written(data, name):
    """Return a fingerprint of the parts that a learner may write: the cells' sources of a notebook, or all bytes."""
    if name.endswith(".ipynb"):
        cells = [[cell["cell_type"], _text(cell)] for cell in json.loads(data)["cells"]]
        data = json.dumps([cell for cell in cells if cell[1].strip()]).encode()
    return hashlib.sha256(data).hexdigest()


def _written_at(path, name):
    """Return the fingerprint of a file in the learner's folder, or None if the file is unreadable or not valid."""
    try:
        return _written(path.read_bytes(), name)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _edition(copy, name):
    """Return a fingerprint of a copy without its outputs, which also depends on tags and folded cells."""
    if name.endswith(".ipynb"):
        notebook = json.loads(copy)
        for cell in notebook["cells"]:
            cell.pop("outputs", None)
        copy = json.dumps(notebook, sort_keys=True).encode()
    return hashlib.sha256(copy).hexdigest()


def _text(cell):
    return "".join(cell["source"])  # a string, or a list of lines


def _is_figure(output):
    return "image/png" in output.get("data", {})


def _names(notebooks):
    """Return the names of all files that a learner gets, each with the folder `notebooks` in front."""
    files = [path for path in notebooks.rglob("*") if path.is_file() and path.name not in _NOT_FOR_LEARNERS]
    paths = [path.relative_to(notebooks.parent) for path in files]
    return sorted(
        path.as_posix() for path in paths if not any(re.match(r"\.|__pycache__", part) for part in path.parts)
    )


def _read_record(folder):
    """Return the record of the copies: for each name the fingerprints from `_written` and `_edition`."""
    try:
        record = json.loads((folder / _RECORD).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: tuple(fingerprints) for name, fingerprints in record.items()}


# ---------------------------------------------------------------- sentences


def _sentences(done, is_first):
    sentences = {
        "new": "" if is_first else "New: {}.",
        "newer": "Replaced by newer versions, because you had not changed them: {}.",
        "kept": "The course has newer versions of {}. Yours stay, because you have written in them. To get the newer "
        "versions as well, rename your files and run the same command again.",
        "removed": "Removed, because the course has dropped them and you had not changed them: {}.",
        "left": "The course has dropped {}. Yours stay, because you have written in them.",
    }
    return [text.format(", ".join(done[kind])) for kind, text in sentences.items() if done[kind] and text]
