"""The exercises of a lesson, and a learner's answers to them.

A solution's notebook is the frame of a lesson's exercises: it has what they need and nothing else, so it runs in
seconds. The learner's answer takes the place of the solution. Everything else that a notebook of a learner holds is
left aside, and so it can neither break nor replace a check.
"""

import ast
import builtins
import re
import symtable
from pathlib import Path
from typing import NamedTuple

import nbformat

from helpers import course
from helpers.grade.submissions import code_cells

CHECK = re.compile(r"^(?:assert )?checks\.(?P<topic>\w+)\.(?P<name>\w+)\(world\)", re.MULTILINE)


class Exercise(NamedTuple):
    """One exercise: what the learner writes, the cells to run before the answer, the cells of the answer, its lesson.

    Cells are the sources of code cells. The first line of each cell of an answer is its magic, as the lesson has it.
    """

    name: str
    setup: list[str]
    answer: list[str]
    topic: str


def variants(lesson: Path) -> list[str]:
    """Return the parameters that a lesson is graded with, as code: the stored ones, and others that it works for.

    A lesson whose answers belong to its parameters is graded with these alone.
    """
    notebook = nbformat.read(lesson, as_version=4)
    parameters = next(cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    row = course.lessons()[lesson.stem]
    if row.of_its_parameters:
        return [parameters]
    other = parameters
    if row.others:
        other = re.sub(r"^WORLD_SIZE = .*", f"WORLD_SIZE = {row.others[0]}", parameters, flags=re.M)
    other = re.sub(r"^SEED = (\d+)", lambda found: f"SEED = {int(found[1]) + 1}", other, flags=re.M)
    return [parameters] if other == parameters else [parameters, other]


def exercises(lesson: Path, submission: bytes) -> list[Exercise]:
    """Return the exercises of a lesson that have a solution, with the answers of a submitted notebook.

    `lesson` is the path of the course's notebook, next to the folder `solutions`. An exercise whose answer has no cell
    any more has an empty answer. Raises `ValueError` when the submission is no notebook.
    """
    own = code_cells(lesson.read_bytes())
    frame = code_cells((lesson.parent / "solutions" / lesson.name).read_bytes())
    answers = _answers(own, code_cells(submission))
    cells = _with_answers(own, answers)
    found = []
    setup = []
    for index, cell in enumerate(frame):
        if check := CHECK.search(cell.source):
            answer = answers.get(check["name"], [])
            needed = _leaned_on(answer, setup, cells.get(check["name"], []))
            found.append(Exercise(check["name"], [*setup, *needed], answer, check["topic"]))
        elif not _is_answer(frame, index) and cell.source != "world.stop()":
            setup.append(cell.source)
    return found


def _is_answer(cells, index):
    return index + 1 < len(cells) and CHECK.search(cells[index + 1].source) is not None


def _answers(own, submitted):
    """Return the cells of the answer to each check: those for the ranks that stand before it and are not the lesson's.

    The cell that the lesson has there counts, wherever it is now, and so do the cells that the learner has added.
    """
    magics = {}
    for cell, check in zip(own, own[1:], strict=False):
        if (found := CHECK.search(check.source)) and cell.source.startswith("%%px"):
            magics[cell.id] = cell.source.partition("\n")[0], found["name"]
    magic_of = {name: magic for magic, name in magics.values()}
    lesson = {cell.id for cell in own} - magics.keys()
    answers = {}
    added = []
    for cell in _with_ids(submitted, own):
        if cell.id in magics:
            magic, name = magics[cell.id]
            answers[name] = [*added, _with_magic(magic, cell.source)]
            added = []
        elif check := CHECK.search(cell.source):
            if added and check["name"] not in answers:
                added[-1] = _with_magic(magic_of.get(check["name"], "%%px"), added[-1])
            if added:
                answers.setdefault(check["name"], []).extend(added)
            added = []
        elif cell.id in lesson:
            added = []
        elif cell.source.startswith("%%px"):
            added.append(_with_magic("%%px", cell.source))
    return answers


def _with_ids(submitted, own):
    """Yield the submitted cells, with the ids of the lesson's cells where a program has saved them without ids.

    Such a program may have put the id into the metadata. Otherwise a cell is the lesson's if it reads the same.
    """
    same = {cell.source: cell.id for cell in own}
    for cell in submitted:
        if not isinstance(cell.get("id"), str):
            cell.id = str(cell.metadata.get("id") or same.get(cell.source, ""))
        yield cell


def _with_magic(magic, source):
    """Return the cell with the lesson's first line: an answer runs on the ranks, whatever its own first line says.

    It runs on the ranks alone: the notebook's process is the judge's.
    """
    first, _, body = source.partition("\n")
    return f"{magic.replace(' --local', '')}\n{body if first.startswith('%%') else source}"


def _with_answers(own, answers):
    """Return for each check the lesson's cells for the ranks that stand before it, with the learner's own answers."""
    before = {}
    cells = []
    for index, cell in enumerate(own):
        if check := CHECK.search(cell.source):
            before[check["name"]] = list(cells)
        elif _is_answer(own, index):
            cells += answers.get(CHECK.search(own[index + 1].source)["name"], [])
        elif cell.source.startswith("%%px"):
            cells.append(cell.source)
    return before


def _leaned_on(answer, setup, before):
    """Return those of the cells before an answer that define what it uses and nobody has defined yet, in their order.

    A cell that gives a class another method belongs to the class.
    """
    on_ranks = [cell for cell in setup if cell.startswith("%%px")]
    defined = set(dir(builtins)).union(*map(_defines, [*on_ranks, *answer]))
    missing = set().union(*map(_uses, answer)) - defined
    needed = set()
    for index in reversed(range(len(before))):
        names = _defines(before[index])
        if missing & names or missing & _extends(before[index]):
            needed.add(index)
            missing -= names
            missing |= _uses(before[index]) - defined - names
    return [before[index] for index in sorted(needed)]


def _body(cell):
    first, _, body = cell.partition("\n")
    return body if first.startswith("%%") else cell


# What Python raises when it cannot parse a cell: a magic of IPython, a mistake, no valid text, too deep an expression.
_NO_CODE = (SyntaxError, ValueError, RecursionError, MemoryError)


def _table(cell):
    try:
        return symtable.symtable(_body(cell), "cell", "exec")
    except _NO_CODE:
        return symtable.symtable("", "cell", "exec")


def _defines(cell):
    return {symbol.get_name() for symbol in _table(cell).get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def _uses(cell):
    used = set()
    tables = [_table(cell)]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_global() or (table.get_type() == "module" and symbol.is_referenced()):
                used.add(symbol.get_name())
    return used


def _extends(cell):
    """Return the names of what a cell sets attributes of."""
    try:
        statements = ast.parse(_body(cell)).body
    except _NO_CODE:
        return set()
    targets = [target for statement in statements if isinstance(statement, ast.Assign) for target in statement.targets]
    return {t.value.id for t in targets if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name)}
