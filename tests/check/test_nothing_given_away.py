"""Until a learner has typed, nothing in view holds the answer: neither an open cell nor a stored output."""

import ast
import math
import re

import nbformat
import pytest
from lesson_files import NOTEBOOKS, ROOT
from typed_in import answering, code, names

from helpers.course import read_toml

PREDICTIONS = ROOT / "helpers/checks/predictions"
FOLDED = {"solution", "proof"}
LESSONS = [path for path in NOTEBOOKS if re.search(r"checks\.predicted\(|accepted\(", path.read_text("utf-8"))]

# The value of these stands in view as one of several choices, or as another number that the question needs.
IN_THE_QUESTION = {
    "my_bucket_count",
    "my_drifted_bias",
    "my_early_write",
    "my_largest_batches",
    "my_orphans",
    "my_policy_passes",
    "my_repeated_steps",
    "my_silence_seen_after",
    "my_survivors_lose",
}


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def lesson(path):
    return code(nbformat.read(path, as_version=4))


@pytest.fixture
def answers(path):
    """The statements of the lesson's solutions, by the name that each defines."""
    solutions = nbformat.read(path.parent / "solutions" / path.name, as_version=4)
    return {name: node for cell in answering(solutions) for name, node in definitions(cell)}


def tree(cell):
    return ast.parse(re.sub(r"(?m)^[%!].*", "", cell.source))


def definitions(cell):
    for node in tree(cell).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield ast.unparse(node.targets[0]), node


def is_open(cell):
    return not FOLDED & set(cell.metadata.get("tags", []))


def place(lesson, text):
    """Return the number of the only cell that contains a text."""
    (found,) = [number for number, cell in enumerate(lesson) if text in cell.source]
    return found


def expressions(cell):
    """Return what the cell says in expressions that are more than a name or a number."""
    found = [node for node in ast.walk(tree(cell)) if isinstance(node, ast.expr)]
    return {ast.dump(node) for node in found if not isinstance(node, ast.Name | ast.Constant | ast.Attribute)}


def value(answer):
    """Return the expression with which a prediction is answered: what is assigned, or what a formula returns."""
    if isinstance(answer, ast.Assign):
        return answer.value
    return next(node.value for node in ast.walk(answer) if isinstance(node, ast.Return))


def test_every_lesson_with_predictions_is_looked_at():
    assert {path.stem for path in LESSONS} >= {path.stem for path in PREDICTIONS.glob("*.toml")} != set()


def test_each_prediction_has_its_sentences_a_place_and_a_verdict(path, lesson, answers):
    words = read_toml(PREDICTIONS / f"{path.stem}.toml")
    asked = [name for cell in lesson for name in re.findall(r"checks\.predicted\(\s*\"(\w+)\"", cell.source)]
    assert sorted(asked) == sorted(words)
    for name in asked:
        assert {"right", "wrong"} <= words[name].keys() <= {"right", "wrong", "unit", "within", "elsewhere"}
        (typed,) = [number for number, cell in enumerate(lesson) if name in names(cell)]
        assert typed < place(lesson, f'checks.predicted("{name}"'), name
        assert name in answers, f"the solutions have no {name}"


def test_the_solution_of_a_formula_fits_elsewhere_too(path, answers):
    for name, words in read_toml(PREDICTIONS / f"{path.stem}.toml").items():
        for *arguments, result in words.get("elsewhere", []):
            defined = {"ceil": math.ceil, "log2": math.log2}
            exec(ast.unparse(answers[name]), defined)
            assert defined[name](*arguments) == pytest.approx(result)


def test_no_open_cell_before_the_verdict_says_what_is_predicted(path, lesson, answers):
    for name, answer in answers.items():
        if name.startswith("my_") and any(f'predicted("{name}"' in cell.source for cell in lesson):
            expected = value(answer)
            before = lesson[: place(lesson, f'checks.predicted("{name}"') + 1]
            for cell in filter(is_open, before):
                assert ast.dump(expected) not in expressions(cell), f"{name} is given away in\n{cell.source}"


def test_nothing_in_view_since_the_last_verdict_shows_the_value(path, answers):
    cells = nbformat.read(path, as_version=4).cells
    verdicts = [number for number, cell in enumerate(cells) if "checks.predicted(" in cell.source]
    for last, verdict in zip([0, *verdicts], verdicts, strict=False):
        (name,) = re.findall(r'checks\.predicted\(\s*"(\w+)"', cells[verdict].source)
        if name not in IN_THE_QUESTION and isinstance(answers[name], ast.Assign):
            for shown in map(in_view, cells[last + 1 : verdict + 1]):
                for form in distinctive(answers[name].value):
                    assert not re.search(rf"(?<![\w.,]){re.escape(form)}(?!\w|[.,]\d)", shown), f"{name}: {shown}"


def in_view(cell):
    """Return what a learner sees of a cell: its text, unless it is folded, and its stored outputs."""
    outputs = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", [])]
    return "\n".join([cell.source] * is_open(cell) + outputs)


def distinctive(answer):
    """Yield how the values of a prediction might be shown, without those that stand everywhere, such as 4 and True."""
    try:
        value = ast.literal_eval(answer)
    except ValueError:  # a formula
        return
    for part in value.values() if isinstance(value, dict) else [value]:
        if isinstance(part, list | tuple | set) and len(part) > 1:
            yield from {str(kind(part)) for kind in (list, tuple, set)}
        elif isinstance(part, float) or isinstance(part, int) and abs(part) >= 10:
            yield from {str(part), f"{part:,}"}


def test_the_verdict_stands_before_what_shows_the_value(lesson):
    for cell in lesson:
        if "checks.predicted(" in cell.source:
            assert cell.source.rstrip().splitlines()[-1].startswith("checks.predicted("), cell.source
            (output,) = cell.outputs
            assert output.data["text/plain"].startswith("Not yet. Replace the dots "), output


def test_no_open_cell_has_the_body_of_an_answer(lesson, answers):
    for name, answer in answers.items():
        if isinstance(answer, ast.FunctionDef):
            for cell in filter(is_open, lesson):
                for other, node in definitions(cell):
                    if isinstance(node, ast.FunctionDef):
                        assert body(node) != body(answer), f"{other} is the answer to {name}"


def body(function):
    """Return what a function does, without its docstring."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    return [ast.dump(statement) for statement in statements]


@pytest.mark.parametrize("stored", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_tagged_as_a_solution_or_a_proof_is_folded(stored):
    for cell in code(nbformat.read(stored, as_version=4)):
        assert is_open(cell) != cell.metadata.get("jupyter", {}).get("source_hidden", False), cell.source


@pytest.mark.parametrize("stored", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_line_that_jupyterlab_shows_of_a_folded_cell_says_nothing(stored):
    for cell in code(nbformat.read(stored, as_version=4)):
        if not is_open(cell):
            assert cell.source.startswith(("%%px", "#")), cell.source
