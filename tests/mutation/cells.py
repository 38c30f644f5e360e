"""Parse the code cells of a notebook, and say which of their statements may be mutated.

Magics are masked so that every line and column of the parsed text is the same as in the cell.
"""

import ast
import re
from dataclasses import dataclass

# Code of the learner: `my_total`, `checks.ring_all_reduce.my_ring(world)`, and a line with the comment "your line".
OF_THE_LEARNER = re.compile(r"\bmy_\w+|\bchecks\.|#.*\byour\b|# TODO")
ONLY_A_CHECK = re.compile(r"\s*checks\.[\w.]+\([^\n]*\)\s*")
MAGIC = re.compile(r"(?m)^(\s*)[%!].*$")
PX_LINE = re.compile(r"(?m)^(\s*)%px (?!-)")


@dataclass(frozen=True)
class Cell:
    """A code cell, with its number as Jupyter shows it, its syntax tree, and the lines that `%px` runs on the ranks."""

    number: int
    id: str
    source: str
    tree: ast.Module
    free: bool  # may be mutated: neither parameters, proof, exercise nor optional
    px_lines: frozenset

    def on_ranks(self, line: int) -> bool:
        """Return whether the ranks run this line."""
        return self.source.startswith("%%px") or line in self.px_lines


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a cell; magics that hold no code of the ranks count as `pass`.

    Raises SyntaxError if the cell is no Python even without its magics.
    """
    if source.startswith("%%"):
        magic, _, body = source.partition("\n")
        return ast.parse("\n" + body if magic.startswith("%%px") else "")
    try:
        return ast.parse(MAGIC.sub(r"\1pass", PX_LINE.sub(r"\1(); ", source)))
    except SyntaxError:  # a `%px` line with a statement that cannot follow a semicolon
        return ast.parse(MAGIC.sub(r"\1pass", source))


def px_lines(source: str) -> frozenset:
    """Return the numbers of the lines, from 1, that a line magic runs on the ranks."""
    return frozenset(number for number, line in enumerate(source.splitlines(), 1) if PX_LINE.match(line))


def code_cells(notebook) -> list[Cell]:
    """Return the code cells of a notebook in order."""
    cells, exercises = [], False
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    following = dict(zip((cell.id for cell in code), [*code[1:], None], strict=True))
    for cell in notebook.cells:
        if cell.cell_type != "code":
            exercises = exercises or re.search(r"(?m)^## Exercises$", cell.source) is not None
            continue
        after = following[cell.id]
        skeleton = after is not None and ONLY_A_CHECK.fullmatch(after.source) is not None
        fixed = {"parameters", "proof", "optional"} & set(cell.metadata.get("tags", []))
        free = not (exercises or skeleton or fixed)
        tree, lines = parse(cell.source), px_lines(cell.source)
        cells.append(Cell(len(cells) + 1, cell.id, cell.source, tree, free, lines))
    return cells


def statements_to_change(cell: Cell) -> list[ast.stmt]:
    """Return the top-level statements of a cell that may be mutated: none of an exercise or a verdict."""
    if not cell.free:
        return []
    lines = cell.source.splitlines()
    return [
        statement
        for statement in cell.tree.body
        if not OF_THE_LEARNER.search("\n".join(lines[statement.lineno - 1 : statement.end_lineno]))
    ]


def asserts(node: ast.AST, asserting=frozenset()) -> bool:
    """Return whether a statement is an assert, or only calls `assert_close` or a function of these names."""
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    name = ast.unparse(node.value.func).rpartition(".")[2]
    return name.startswith("assert") or name in asserting


def asserting_functions(tree: ast.Module) -> set[str]:
    """Return the names of the functions of a cell that assert and return nothing."""
    return {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and any(asserts(node) for node in ast.walk(function))
        and not any(isinstance(node, ast.Return) and node.value for node in ast.walk(function))
    }
