"""The code of the lessons, taken from the notebooks, so that what is measured is what the learner reads."""

import ast
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def setup(notebook: str) -> str:
    """Return the code of the cells that `beginning` returns, as one text."""
    return "\n".join(beginning(notebook))


def beginning(notebook: str) -> list[str]:
    """Return the sources of the cells of a notebook, down to the cell that makes the first group or starts RPC."""
    sources = list(_cells(notebook))
    last = next(n for n, source in enumerate(sources) if "init_process_group(" in source or "init_rpc(" in source)
    return sources[: last + 1]


def marked(notebook: str, mark: str) -> list[str]:
    """Return the sources of the cells of a notebook that begin with this comment."""
    return [source for source in _cells(notebook) if source.startswith(mark)]


def definitions(notebook: str, *names: str) -> str:
    """Return the source of these functions and classes of a notebook, in the order in which the notebook has them.

    Raises KeyError when it has no cell for the ranks that defines one of them.
    """
    found = {}
    for source in _cells(notebook):
        for statement in ast.parse(source).body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.name in names:
                found[statement.name] = ast.get_source_segment(source, statement)
    if missing := set(names) - found.keys():
        raise KeyError(f"{notebook} does not define {', '.join(sorted(missing))}")
    return "\n\n".join(found.values()) + "\n"


def _cells(notebook):
    """Return the sources of the cells for the ranks, without their first line."""
    cells = nbformat.read(NOTEBOOKS / notebook, as_version=4).cells
    return [cell.source.partition("\n")[2] for cell in cells if cell.source.startswith("%%px")]
