"""List all mutants that the operators make of a notebook, and draw some of them by a seed.

Every mutant compiles and differs from its cell.
"""

import ast
import copy
import hashlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from mutation.cells import asserting_functions, code_cells, parse, statements_to_change
from mutation.names import Names
from mutation.operators import OPERATORS, SPECIAL, places, takes_string


@dataclass(frozen=True)
class Mutant:
    """A notebook's cell with one replacement. `line` is where it begins, in the cell, from 1."""

    topic: str
    cell: int
    cell_id: str
    operator: str
    line: int
    source: str = field(repr=False)
    old_source: str = field(repr=False)

    @property
    def id(self) -> str:
        """The name of the mutant in reports and in equivalent.py. It changes when the cell is edited."""
        text = "\0".join([self.topic, self.cell_id, self.old_source, self.source])
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def change(self) -> tuple[str, str]:
        """The lines that differ, before and after."""
        old, new = self.old_source.splitlines(), self.source.splitlines()
        while old and new and old[0] == new[0]:
            old, new = old[1:], new[1:]
        while old and new and old[-1] == new[-1]:
            old, new = old[:-1], new[:-1]
        return "\n".join(old), "\n".join(new)

    def __str__(self):
        return f"{self.topic}: {self.id} {self.operator} in cell {self.cell}"


@dataclass
class Lesson:
    """Facts about a lesson: the names bound by the cells read so far, and the strings and asserts of all cells."""

    names: Names = field(default_factory=Names)
    strings: dict = field(default_factory=dict)  # function or subscript -> its strings
    asserting: set = field(default_factory=set)  # names of functions that only assert


def all_mutants(path: Path, notebook=None) -> list[Mutant]:
    """Return every mutant that the operators make of a notebook, in the order of its cells."""
    cells = code_cells(notebook or nbformat.read(path, as_version=4))
    lesson, topic = Lesson(), path.stem.partition("_")[2]
    lesson.asserting = {name for cell in cells for name in asserting_functions(cell.tree)}
    for place in (place for cell in cells for place in places_of(cell, lesson)):
        if isinstance(getattr(place.node, "value", None), str) and (taker := takes_string(place)):
            lesson.strings.setdefault(taker, set()).add(place.node.value)
    mutants = {}
    for cell in cells:
        for mutant in mutants_of(cell, lesson, topic):
            if mutant.id not in mutants or mutant.operator in SPECIAL:  # two operators may agree
                mutants[mutant.id] = mutant
        lesson.names.read(cell)
    return list(mutants.values())


def places_of(cell, lesson):
    """Yield the places of a cell that may be mutated."""
    chosen = statements_to_change(cell)
    for index, statement in enumerate(cell.tree.body):
        if statement in chosen:
            yield from places(cell, statement, index, lesson)


def mutants_of(cell, lesson, topic):
    """Yield the mutants of a cell."""
    before = ast.dump(cell.tree)
    for place in places_of(cell, lesson):
        for name, operator in OPERATORS.items():
            for node in operator(place):
                source = replaced(cell, place, node)
                if source is not None and ast.dump(parse(source)) != before:
                    line = statement_line(place)
                    yield Mutant(topic, cell.number, cell.id, name, line, source, cell.source)


def statement_line(place) -> int:
    return getattr(place.node, "lineno", getattr(place.parent, "lineno", 1))


def replaced(cell, place, node) -> str | None:
    """Return the source of the cell with another node in this place, or None if no text parses to that tree."""
    original = place.node
    node = copy.deepcopy(node)
    place.put(node)
    try:
        wanted = ast.dump(ast.fix_missing_locations(cell.tree))
        outer = enclosing_string(cell.tree, node)
        text = code_of(outer or node)
    finally:
        place.put(original)
    start, end = span(cell.source, original if outer is None else enclosing_string(cell.tree, original))
    for candidate in (text, f"({text})"):
        source = cell.source[:start] + candidate + cell.source[end:]
        try:
            if ast.dump(parse(source)) == wanted:
                return source
        except SyntaxError:
            pass
    return None


def enclosing_string(tree, node):
    """Return the outermost f-string around a node, or None. Before Python 3.12 nodes in it have no right position."""
    for outer in ast.walk(tree):  # from the outside in
        if isinstance(outer, ast.JoinedStr) and any(inner is node for inner in ast.walk(outer)):
            return outer
    return None


def code_of(node) -> str:
    """Return the code of a node, with double quotes where possible."""
    text = ast.unparse(node)
    return text if '"' in text or "\\" in text else text.replace("'", '"')


def span(source: str, node) -> tuple[int, int]:
    """Return the start and end of a node in a text, in characters; ast counts columns in bytes."""
    lines = source.splitlines(keepends=True)

    def offset(line, column):
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)


def draw(path: Path, count: int, seed: int, notebook=None) -> list[Mutant]:
    """Return `count` mutants of a notebook, at most one per line. The same seed gives the same mutants.

    Each draw first chooses an operator, so that rare mistakes are not lost among changed constants.
    """
    choose = random.Random(f"{path.stem} {seed}")
    by_operator = {name: [] for name in OPERATORS}
    for mutant in all_mutants(path, notebook):
        by_operator[mutant.operator].append(mutant)
    drawn = {}
    while len(drawn) < count and any(by_operator.values()):
        mutants = by_operator[choose.choice([name for name, mutants in by_operator.items() if mutants])]
        mutant = mutants.pop(choose.randrange(len(mutants)))
        drawn.setdefault((mutant.cell, mutant.line), mutant)
    return list(drawn.values())
