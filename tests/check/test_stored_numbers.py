"""Numbers that docs/teaching.md calls "stored" are those that the notebook of the lesson has stored."""

import json
import re

import pytest
from lesson_files import ROOT

NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
# Their stored numbers are in figures, which no test reads. Compare them after storing these lessons again.
IN_FIGURES = {"09_overlap", "30_hybrid_costs", "36_replicated_pipelines"}


def sentences():
    """Return the sentences about stored numbers, each with its lesson."""
    text = (ROOT / "docs/teaching.md").read_text("utf-8")
    _, *parts = re.split(r"^### \[.*\]\(\.\./notebooks/(\w+)\.ipynb\)$", text, flags=re.M)
    for lesson, notes in zip(parts[::2], parts[1::2], strict=True):
        notes = " ".join(notes.partition("\n## ")[0].split())
        for sentence in re.split(r"(?<=[.!?]) (?=[A-Z0-9*`(])", notes):
            if re.search(r"\bstored\b", sentence, re.I) and NUMBER.search(sentence):
                yield lesson, sentence


def numbers_in(text):
    return [number.replace(",", "").rstrip(".") for number in NUMBER.findall(text)]


def texts_of(lesson):
    """Return what the cells of a lesson have printed, and their sources."""
    cells = json.loads((ROOT / f"notebooks/{lesson}.ipynb").read_text("utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    printed = ["".join(output.get("text", output.get("data", {}).get("text/plain", []))) for output in outputs]
    return "\n".join(printed), "\n".join("".join(cell["source"]) for cell in cells)


def rounds_to(number, said):
    """Return whether a number, rounded to the digits of another number, is that number."""
    digits, _, exponent = said.partition("e")
    decimals = len(digits.partition(".")[2])
    return float(f"{float(number):.{decimals}{'e' if exponent else 'f'}}") == float(said)


STORED = [(lesson, sentence) for lesson, sentence in sentences() if lesson not in IN_FIGURES]


@pytest.mark.parametrize(("lesson", "sentence"), STORED, ids=[lesson for lesson, _ in STORED])
def test_a_number_that_is_called_stored_is_in_the_notebook(lesson, sentence):
    printed, sources = map(numbers_in, texts_of(lesson))
    is_printed = {said: any(rounds_to(number, said) for number in printed) for said in numbers_in(sentence)}
    assert any(is_printed.values()), sentence
    missing = [said for said in is_printed if not is_printed[said]]
    assert [said for said in missing if not any(rounds_to(number, said) for number in sources)] == [], sentence


def test_lessons_with_stored_numbers_in_figures_have_such_sentences():
    assert {lesson for lesson, _ in sentences()} >= IN_FIGURES
