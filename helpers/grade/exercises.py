"""The exercises of a lesson, and a learner's answers to them.

A solution's notebook is the frame of a lesson's exercises: it has only what they need, so it runs in seconds. The
learner's answer replaces the solution. All other cells of a learner's notebook are ignored, so they can neither break
nor replace a check.
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

CHECK = re.compile(r"^(?:verdict = |assert )?checks\.(?P<topic>\w+)\.(?P<name>\w+)\(world\)", re.MULTILINE)


class SubmittedExercise(NamedTuple):
    """One exercise: the name of its check, the cells to run before the answer, the cells of the answer, its topic.

    The check is a `helpers.checks.exam.Exercise`. Cells are the sources of code cells. The first line of each cell of
    an answer is the magic from the lesson.
    """

    name: str
    setup: list[str]
    answer: list[str]
    topic: str


def variants(lesson: Path) -> list[str]:
    """Return the sets of parameters with which a lesson is graded, as code: its stored parameters, and another set.

    A lesson whose answers depend on its parameters is graded only with its stored parameters.
    """
    notebook = nbformat.read(lesson, as_version=4)
    parameters = next(cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    row = course.lessons()[lesson.stem]
    if row.of_its_parameters:
        return [parameters]
    other = parameters
    if row.others:
        other = re.sub(r"^WORLD_SIZE = .*", f"WORLD_SIZE = {row.others[0]}", parameters, flags=re.M)
    other = re.sub(r"^SEED = (\d+)", lambda match: f"SEED = {int(match[1]) + 1}", other, flags=re.M)
    return [parameters] if other == parameters else [parameters, other]


def exercises(lesson: Path, submission: bytes) -> list[SubmittedExercise]:
    """Return the exercises of a lesson that have a solution, with the answers of a submitted notebook.

    `lesson` is the path of the course's notebook, next to the folder `solutions`. If the submission has no cell for an
    answer, the answer is empty. Raises `ValueError` when the submission is not a notebook.
    """
    own = code_cells(lesson.read_bytes())
    frame = code_cells((lesson.parent / "solutions" / lesson.name).read_bytes())
    answers = _answers(own, code_cells(submission))
    cells = _with_answers(own, answers)
    complete = []
    setup = []
    for index, cell in enumerate(frame):
        if check := CHECK.search(cell.source):
            answer = answers.get(check["name"], [])
            needed = _leaned_on(answer, setup, cells.get(check["name"], []))
            complete.append(SubmittedExercise(check["name"], [*setup, *needed], answer, check["topic"]))
        elif not _is_answer(frame, index) and cell.source != "world.stop()":
            setup.append(cell.source)
    return complete


def _is_answer(cells, index):
    return index + 1 < len(cells) and CHECK.search(cells[index + 1].source) is not None


def _answers(own, submitted):
    """Return the cells of the answer to each check: the cells for the ranks before it, except the lesson's own cells.

    The lesson's cell for the answer counts wherever the learner has moved it, and so do cells that the learner added.
    """
    magics = {}
    for cell, check in zip(own, own[1:], strict=False):
        if (match := CHECK.search(check.source)) and cell.source.startswith("%%px"):
            magics[cell.id] = cell.source.partition("\n")[0], match["name"]
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
    """Yield the submitted cells, and give them the ids of the lesson's cells if a program has saved them without ids.

    Such a program may have put the id into the metadata. Otherwise a cell is the lesson's if its source is the same.
    """
    same = {cell.source: cell.id for cell in own}
    for cell in submitted:
        if not isinstance(cell.get("id"), str):
            cell.id = str(cell.metadata.get("id") or same.get(cell.source, ""))
        yield cell


def _with_magic(magic, source):
    """Return the cell with the lesson's first line, because an answer must run on the ranks.

    It runs only on the ranks, because the notebook's process is the process that judges.
    """
    first, _, body = source.partition("\n")
    return f"{magic.replace(' --local', '')}\n{body if first.startswith('%%') else source}"


def _with_answers(own, answers):
    """Return, for each check, the lesson's cells for the ranks before it, with the learner's answers in place."""
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
    """Return the cells before an answer that define names which the answer uses and the setup does not define.

    The cells are in their order. A cell that adds a method to a class is needed whenever the class is.
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


# The errors of Python's parser: for an IPython magic, a mistake, invalid text, or an expression that is too deep.
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
    """Return the names of the objects whose attributes a cell sets."""
    try:
        statements = ast.parse(_body(cell)).body
    except _NO_CODE:
        return set()
    targets = [target for statement in statements if isinstance(statement, ast.Assign) for target in statement.targets]
    return {t.value.id for t in targets if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name)}
