"""ruff reads what a notebook runs on its ranks, and the scripts that a notebook has as text.

ruff reads notebooks by itself, but for the cells of a magic such as `%%px`, which hold most of a lesson. So the code of
all these cells goes to it as one module, in which a name of one cell is known in the others. The texts of the scripts,
which the notebook runs under torchrun, go to it as one module, too.
"""

import ast
import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest
from lesson_files import NOTEBOOKS, SOLUTIONS

# What pyproject.toml ignores in a notebook, but for names that nobody defines and imports that nobody uses: these are
# the point. And B007: `for step in range(9)` says what it counts.
IGNORED = ["B007", "B905", "D", "E401", "E402", "I001"]


def code_of_the_ranks(notebook):
    """Return the lines that the ranks run, and for each of them the cell and the line in it, both counted from 1."""
    lines, places, exercises = [], [], False
    for number, cell in enumerate(notebook.cells, start=1):
        exercises = exercises or cell.source.startswith("## Exercises")
        if cell.cell_type != "code":
            continue
        # A skeleton has what its answer uses.
        exempted = "  # noqa: F841" if exercises or "def my_" in cell.source else ""
        source = cell.source.splitlines()
        if cell.source.startswith("%%px"):
            lines += [line + exempted for line in source[1:]]
            places += [(number, line_number) for line_number in range(2, len(source) + 1)]
            continue
        for name in given_to_the_ranks(re.sub(r"(?m)^(\s*)[%!].*", r"\1pass", cell.source)):
            lines.append(f"{name} = ...")
            places.append((number, 1))
        for line_number, line in enumerate(source, start=1):
            if re.match(r"%px (?!%)", code := line.strip()):
                lines.append(code.removeprefix("%px ") + "  # noqa: E701, E702")  # it takes one line
                places.append((number, line_number))
    return lines, places


def given_to_the_ranks(source):
    """Yield the names to which the notebook gives values on the ranks, through `world.view`.

    What a function calls `global` counts, too: on the ranks it becomes a name of theirs.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Global):
            yield from node.names
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "world.view":
                yield ast.literal_eval(target.slice)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "scatter":
                yield ast.literal_eval(node.args[0])
            elif node.func.attr == "push":
                yield from [ast.literal_eval(key) for key in node.args[0].keys]


def script_of(notebook):
    """Return the texts of a notebook that are Python, one after the other.

    They are strings of several lines with a statement that is no expression.
    """
    texts = []
    for cell in notebook.cells:
        if cell.cell_type != "code" or cell.source.startswith("%%px"):
            continue
        for node in ast.walk(ast.parse(re.sub(r"(?m)^(\s*)[%!].*", r"\1pass", cell.source))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
                with suppress(SyntaxError):
                    if not all(isinstance(statement, ast.Expr) for statement in ast.parse(node.value).body):
                        texts.append(node.value)
    return "\n".join(texts)


def complaints(source, path, ignored=()):
    """Return what ruff says of this source, which stands for the file: rule, line and words."""
    ignored = ",".join([*IGNORED, *ignored])
    command = [sys.executable, "-m", "ruff", "check", "--output-format=json", f"--extend-ignore={ignored}"]
    run = subprocess.run(
        [*command, f"--stdin-filename={path.with_suffix('.py')}", "-"], input=source, capture_output=True, text=True
    )
    assert run.returncode in (0, 1), run.stderr
    return [(found["code"], found["location"]["row"], found["message"]) for found in json.loads(run.stdout)]


@pytest.mark.parametrize("path", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_code_of_the_ranks(path):
    lines, places = code_of_the_ranks(nbformat.read(path, as_version=4))
    found = complaints("\n".join([*lines, ""]), path)
    said = [f"cell {places[row - 1][0]}, line {places[row - 1][1]}: {rule} {words}" for rule, row, words in found]
    assert said == []


SCRIPTS = {path: script for path in NOTEBOOKS if (script := script_of(nbformat.read(path, as_version=4)))}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_scripts(path):
    # A script without an import continues a file that the notebook reads.
    ignored = [] if "import " in SCRIPTS[path] else ["F821"]
    assert complaints(SCRIPTS[path], path, ignored) == []


def test_a_name_that_no_script_defines_is_found():
    cells = [
        nbformat.v4.new_code_cell("instruments = '''\nimport os\n\ndef begin():\n    os.abort()\n'''"),
        nbformat.v4.new_code_cell("script = instruments + '''\nfor step in range(3):\n    begin()\n    end()\n'''"),
        nbformat.v4.new_code_cell("text = 'a sentence\\nand another one'"),
    ]
    ((rule, _, words),) = complaints(script_of(nbformat.v4.new_notebook(cells=cells)), Path("notebook.ipynb"))
    assert (rule, words) == ("F821", "Undefined name `end`")


def test_a_name_that_no_cell_defines_is_found():
    cells = [
        nbformat.v4.new_code_cell('world.view["given"] = 1\n%px also = 2; print(given)'),
        nbformat.v4.new_code_cell("%%px\ndef add():\n    return given + also + later + never"),
        nbformat.v4.new_code_cell("%%px --targets 0\nlater = add()"),
    ]
    lines, places = code_of_the_ranks(nbformat.v4.new_notebook(cells=cells))
    ((rule, row, words),) = complaints("\n".join([*lines, ""]), Path("notebook.ipynb"))
    assert (rule, places[row - 1], words) == ("F821", (2, 3), "Undefined name `never`")
