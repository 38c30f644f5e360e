"""A lesson with its solutions typed in: what a learner's notebook is who has solved everything.

The cells of a solutions notebook that stand below its first heading are answers: each takes the place of the cell of
the lesson that defines one of its functions or classes, or asks for one of its predictions, called `my_...`. What a
check says then is what the solutions notebook has stored, a prediction is right, and the lesson goes on with the
answers.
"""

import ast
import re

import nbformat
from nbformat import NotebookNode

IGNORED = "nbval-ignore-output"
PREDICTED = re.compile(r'checks\.predicted\(\s*"(\w+)"')
ITS_OWN = re.compile(r"The lesson goes on with its own implementation, because your `(\w+)` has not passed its check\.")


def goes_on(notebook: NotebookNode) -> bool:
    """Return whether a lesson goes on with code that the learner has typed into it."""
    return any("accepted(" in cell.source for cell in code(notebook))


def with_predictions(lesson: NotebookNode, solutions: NotebookNode) -> NotebookNode:
    """Return the lesson, in which each right prediction has to hold before the learner's own gets its verdict.

    The learner's own prediction remains what is stored, and so do all outputs.
    """
    predicted, right = nbformat.from_dict(lesson), answers(solutions)
    for cell in code(predicted):
        if name := PREDICTED.search(cell.source):
            *others, verdict_line = cell.source.rstrip().splitlines()
            holds = [
                "_scope = dict(globals())",
                f"exec({right[name[1]].source!r}, _scope)",
                f"_verdict = eval({verdict_line!r}, _scope)",
                "assert _verdict, _verdict",
            ]
            cell.source = "\n".join([*others, *holds, verdict_line])
    return predicted


def typed_in(lesson: NotebookNode, solutions: NotebookNode) -> NotebookNode:
    """Return the lesson with the answers in place, and with no output to compare but what its checks say."""
    right = answers(solutions)
    said = {verdict(cell): cell for cell in code(solutions) if verdict(cell)}
    typed = nbformat.from_dict(lesson)
    for cell in code(typed):
        answer = next((right[name] for name in names(cell) if name in right), None)
        if answer is not None and "solution" not in cell.metadata.get("tags", []):
            cell.source = answer.source
        if verdict(cell) in said:
            cell.outputs = said[verdict(cell)].outputs
        elif "accepted(" in cell.source:
            (output,) = cell.outputs
            output.text, replaced = ITS_OWN.subn(r"The lesson goes on with your `\1`.", output.text)
            assert replaced, cell.source
        else:
            cell.metadata["tags"] = [*{*cell.metadata.get("tags", []), IGNORED}]
            if PREDICTED.search(cell.source):
                *others, prediction = cell.source.rstrip().splitlines()
                cell.source = "\n".join([*others, f"assert {prediction}, {prediction}"])
    return typed


def answers(solutions):
    """Return the cells that hold the answers, by the names of what they define."""
    return {name: cell for cell in answering(solutions) for name in names(cell)}


def answering(solutions):
    """Return the code cells below the first heading."""
    headings = [place for place, cell in enumerate(solutions.cells) if re.search(r"(?m)^## ", cell.source)]
    return code(solutions, headings[0])


def code(notebook, start=0):
    return [cell for cell in notebook.cells[start:] if cell.cell_type == "code"]


def names(cell):
    """Return the names of the functions and classes that a cell defines, and of the predictions in it."""
    found = []
    for node in ast.parse(re.sub(r"(?m)^[%!].*", "", cell.source)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if re.match("my_", ast.unparse(target))]
    return found


def verdict(cell):
    """Return the call of the check whose verdict a cell shows, None for other cells."""
    shown = re.search(r"(checks\.\w+\.\w+\(world\))(\nassert verdict, verdict\nverdict)?\Z", cell.source.rstrip())
    return shown and shown[1]
