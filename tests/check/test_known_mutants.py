"""Every mutant still fits the code of its notebook, and a text that does not gets a sentence."""

import nbformat
import pytest
from known_mutants import MUTANTS, break_on_purpose, path_of
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

TOPICS = sorted({mutant.topic for mutant in MUTANTS})


@pytest.mark.parametrize("topic", TOPICS)
def test_every_mutant_fits_the_code_of_its_notebook(topic):
    stored = nbformat.read(path_of(topic), as_version=4)
    for mutant in MUTANTS:
        if mutant.topic == topic:
            break_on_purpose(nbformat.from_dict(stored), mutant.old, mutant.new)


def a_notebook():
    sources = ["%%px\nsend(1)\nwait()", "send(2)\nwait()"]
    return new_notebook(cells=[new_markdown_cell("send(2)"), *[new_code_cell(source) for source in sources]])


def test_the_text_is_replaced_in_the_code_only():
    notebook = a_notebook()
    break_on_purpose(notebook, "send(2)", "send(3)")
    assert [cell.source for cell in notebook.cells] == ["send(2)", "%%px\nsend(1)\nwait()", "send(3)\nwait()"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "wait()",
            "pass",
            "The code of the notebook has the text 'wait()' 2 times, expected once. Add the line before or after it.",
        ),
        (
            "send(4)",
            "pass",
            "The code of the notebook has the text 'send(4)' 0 times, expected once. "
            "Copy the line from the notebook as it is now.",
        ),
        (
            "send(1)",
            "send(1)",
            "The mutant replaces 'send(1)' by the same text, expected a text that makes the claim false.",
        ),
    ],
    ids=["twice", "nowhere", "no change"],
)
def test_a_mutant_that_does_not_fit_gets_a_sentence(old, new, sentence):
    with pytest.raises(ValueError) as error:
        break_on_purpose(a_notebook(), old, new)
    assert str(error.value) == sentence
