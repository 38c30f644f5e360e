"""Count which part of a lesson's code in view is asserts, verdicts and harness instead of the lesson itself.

`make claims` prints the table; `.venv/bin/python -m tests.code_in_view notebooks/*.ipynb` prints the table alone.

Code in view are the lines of statements in cells that are not folded. Blank lines, comments and `%%px` do not count. A
line counts as the statement that it belongs to; a compound statement, such as `for`, has only the lines of its head.
The first of these kinds that fits a statement is counted:

- assert: it is an assert, or calls `assert_close`.
- verdict: it calls a check or `checks.predicted`, or takes the learner's code with `accepted`.
- harness: it imports from helpers, reads a clock, or moves values between the notebook and the ranks, such as
  `world.view["losses"]` and `world.call(eval, "losses")`.
- call: it runs code on the ranks without `%%px`, such as `world.call("train", 3)`.

The share is that of asserts, verdicts and harness. A call runs the code of the lesson, so only the last column counts
it. Starting and stopping ranks, asking where they are, counting bytes and drawing are what a lesson is about. The
syntax does not show which lines compare with one process by hand.
"""

import ast
import sys
from collections import Counter
from pathlib import Path

import nbformat

from helpers.table import table
from tests.mutation.cells import asserts, parse

CLOCKS = {"monotonic", "perf_counter", "time.monotonic", "time.perf_counter"}
KINDS = ("assert", "verdict", "harness", "call")


def head(statement: ast.stmt) -> list[ast.AST]:
    """Return the parts of a statement that are not in its body."""
    body = ast.stmt | ast.ExceptHandler | ast.match_case
    return [part for part in ast.iter_child_nodes(statement) if not isinstance(part, body)]


def lines(statement: ast.stmt) -> range:
    """Return the numbers of the lines of a statement; of a compound statement, those of its head."""
    if not hasattr(statement, "body"):
        return range(statement.lineno, statement.end_lineno + 1)
    nodes = [node for part in head(statement) for node in ast.walk(part) if hasattr(node, "lineno")]
    first = min([statement.lineno, *(node.lineno for node in nodes)])  # a decorator is above
    return range(first, max([statement.lineno, *(node.end_lineno for node in nodes)]) + 1)


def kind(statement: ast.stmt) -> str | None:
    """Return what a statement counts as: one of KINDS, or None for the lesson itself."""
    parts = head(statement) if hasattr(statement, "body") else [statement]
    nodes = [node for part in parts for node in ast.walk(part)]
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    if asserts(statement):
        return "assert"
    if "accepted" in called or any(name.startswith("checks.") for name in called):
        return "verdict"
    if called & CLOCKS or any(imports_helpers(node) or moves_values(node) for node in nodes):
        return "harness"
    if any(name == "world.call" or name.startswith("world.view.") for name in called):
        return "call"
    return None


def imports_helpers(node: ast.AST) -> bool:
    """Return whether a node imports from helpers."""
    return isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "helpers"


def moves_values(node: ast.AST) -> bool:
    """Return whether a node reads or sets variables of the ranks."""
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value) == "world.view"
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    evaluates = name == "world.call" and ast.unparse(node.args[0]) == "eval"
    return evaluates or name in {f"world.view.{method}" for method in ("gather", "pull", "push", "scatter")}


def counted(source: str) -> Counter:
    """Return how many lines of a cell are "code", and how many of these are of each kind."""
    kinds = {}
    for statement in ast.walk(parse(source)):
        if isinstance(statement, ast.stmt):
            kinds |= dict.fromkeys(lines(statement), kind(statement))
    return Counter(filter(None, kinds.values()), code=len(kinds))


def in_view(notebook) -> Counter:
    """Return the counts of all cells of a notebook that are not folded."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    open_cells = [cell.source for cell in cells if not cell.metadata.get("jupyter", {}).get("source_hidden")]
    return sum(map(counted, open_cells), Counter())


def report(paths: list[Path]) -> str:
    """Return the table of the lessons."""
    rows = []
    for path in paths:
        counts = in_view(nbformat.read(path, as_version=4))
        numbers = [counts[name] for name in KINDS]
        shares = [f"{sum(part) / counts['code']:.1%}" for part in (numbers[:-1], numbers)]
        rows.append([path.stem, counts["code"], *numbers, *shares])
    return table(["code in view", "lines", *KINDS, "share", "with calls"], rows)


if __name__ == "__main__":
    print(report([Path(name) for name in sys.argv[1:]]))
