"""Modules of the helpers import only modules of their own room, or of rooms that come later in ARCHITECTURE.md.

This is about imports at the top of a module. Imports inside functions are few, and each of them saves time or breaks a
circle.
"""

import ast
import re
from graphlib import TopologicalSorter

from lesson_files import ROOT

PATHS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.glob("helpers/**/*.py"))
}
MOST_INSIDE_FUNCTIONS = 35


def rooms():
    """Return the rooms of ARCHITECTURE.md, in their order, each as the set of its modules and packages."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rows = text.partition("## How the rooms import each other\n")[2].partition("\n## ")[0].splitlines()
    names = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in rows if row.startswith("| `")]
    return [set(row) for row in names]


def imported(module):
    """Return the modules of the course that a module imports at its top."""
    modules = set()
    for statement in ast.parse(PATHS[module].read_text("utf-8")).body:
        if isinstance(statement, ast.Import):
            modules |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names = {f"{statement.module}.{alias.name}" for alias in statement.names}
            modules |= names & PATHS.keys() or {statement.module}
    return modules & PATHS.keys() - {"helpers"}


def test_no_import_is_circular():
    TopologicalSorter({module: imported(module) for module in PATHS}).prepare()  # raises CycleError


def test_rooms_import_only_later_rooms():
    place = {name: number for number, room in enumerate(rooms()) for name in room}
    loose = {module.split(".")[1] for module in PATHS if module != "helpers"}
    assert place.keys() == loose
    backwards = [
        f"{module} imports {other}"
        for module in PATHS.keys() - {"helpers"}
        for other in imported(module)
        if place[other.split(".")[1]] < place[module.split(".")[1]]
    ]
    assert backwards == []


def test_few_imports_are_inside_functions():
    inside = {
        (module, statement.lineno)
        for module, path in PATHS.items()
        for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef)
        for statement in ast.walk(function)
        if isinstance(statement, ast.Import | ast.ImportFrom)
    }
    assert len(inside) <= MOST_INSIDE_FUNCTIONS, sorted(inside)
