"""Errors that explain a misplaced `%px` or `%%px`, where IPython alone would say that there is no such magic.

This is an IPython extension. The course's kernel loads it at its start; any other kernel loads it with its first
world.
"""

import re

from helpers.errors import WorldError

_MAGIC = re.compile(r"\s*%%px\b")
_COMMENT = re.compile(r"\s*(#|$)")


def load_ipython_extension(shell) -> None:
    """Explain `%px` and `%%px` until a world defines them, and any `%%px` that is not the first line of its cell."""
    for kind in ("line", "cell"):
        shell.register_magic_function(_without_world, kind, "px")
    shell.register_magic_function(
        _below_first_line, "line", "%px"
    )  # IPython takes such a line for the magic `%` + `%px`
    shell.input_transformers_cleanup.append(_without_body)


def _without_world(line, cell=None):
    raise WorldError(
        "There is no world yet, so `%%px` has no ranks to run on. Run the cell with `world = World(...)` first, then "
        "this cell."
    )


def _below_first_line(line):
    raise WorldError("`%%px` is not in the first line of this cell. Move it up there, and run the cell again.")


def _without_body(lines):
    """Return the lines of a cell, only up to its `%%px` line when comments precede it.

    Otherwise the notebook would raise a `SyntaxError` for a body that is not valid in the notebook.
    """
    for number, line in enumerate(lines):
        if _MAGIC.match(line):
            return lines[: number + 1] if number else lines
        if not _COMMENT.match(line):
            break
    return lines
