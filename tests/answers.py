"""What the tests of the checks share: the code of a notebook's cell, and what a check says of an answer."""

import textwrap
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def cell(path, contains):
    """Return the `%%px` cell of a notebook that contains a text, without its first line."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / path, as_version=4).cells if cell.cell_type == "code"]
    (found,) = [source for source in cells if source.startswith("%%px") and contains in source]
    return found.partition("\n")[2]


def says(check, world, answer):
    """Define an answer on every rank, and return what the check says."""
    world.view.execute(textwrap.dedent(answer))
    return repr(check(world))
