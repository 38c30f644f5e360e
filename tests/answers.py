"""What the tests of the checks share: the code of a notebook's cell, and what a check says of an answer."""

import ast
import re
import textwrap
from functools import cache, lru_cache
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
_FORGET = """
for _name in set(globals()) - {"_begun", "_name", *_begun}:
    del globals()[_name]
globals().update(_begun)
"""


@lru_cache
def code_cells(path):
    """Return the sources of a notebook's code cells."""
    return [cell.source for cell in nbformat.read(NOTEBOOKS / path, as_version=4).cells if cell.cell_type == "code"]


def cell(path, contains):
    """Return the `%%px` cell of a notebook that contains a text, without its first line."""
    (found,) = [source for source in code_cells(path) if source.startswith("%%px") and contains in source]
    return found.partition("\n")[2]


@cache
def preloaded(topic):
    """Return the modules that the notebook of a topic has imported before its ranks are forked; [] without a notebook.

    The ranks of a test are then those of the lesson.
    """
    for path in NOTEBOOKS.glob(f"[0-9][0-9]_{topic}.ipynb"):
        source = next(source for source in code_cells(path) if "World(WORLD_SIZE" in source)
        tree = ast.parse(re.sub(r"(?m)^[%!].*", "", source))
        values = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "preload":
                return ast.literal_eval(values.get(ast.unparse(node.value), node.value))
    return []


def begin(world, code):
    """Run the setup of answers on every rank, and keep what it has defined for `forget_answers`."""
    world.view.execute(code, silent=True)
    world.view.execute("_begun = dict(globals())", silent=True)


def forget_answers(world):
    """Give the names on every rank the values that they had after `begin`, so that no answer needs an earlier one."""
    world.view.execute(_FORGET, silent=True)


def says(check, world, answer):
    """Define an answer on every rank, and return what the check says."""
    world.view.execute(textwrap.dedent(answer))
    return repr(check(world))
