"""The example of CONTRIBUTING.md, "Add an exercise": its check says of its answers what the text says."""

import re
import textwrap

import pytest
from answer_files import parsed, setup_of
from answers import says
from lesson_files import ROOT

from helpers.checks import collectives

SETUP = setup_of("collectives")
EXERCISE = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add an exercise")[2].partition("\n## ")[0]
SKELETON, CHECK, ANSWERS = map(textwrap.dedent, re.findall(r"```python\n(.*?)```", EXERCISE, re.S))
SOLUTION = """
def doubled(numbers):
    dist.all_reduce(numbers)
    return 2 * numbers
"""


@pytest.fixture
def check(world, monkeypatch):
    """The check of the example, in the module that the text names, here and on the ranks."""
    monkeypatch.setattr(collectives, "doubled", None, raising=False)  # it is removed after the test
    add = f"exec({CHECK!r}, vars(collectives))"
    exec(add)
    world.view.execute(f"from helpers.checks import collectives\n{add}")
    return collectives.doubled


def test_the_check_says_of_the_answers_of_the_example_what_they_expect(world, check):
    _, skeleton = SKELETON.split("\n", 1)
    cells = ANSWERS
    for title, code in {"solution": SOLUTION, "skeleton": skeleton}.items():  # which no notebook has
        cells = re.sub(rf"(: {title}\n# .*\n)", rf"\1{code}", cells)
    answers = parsed(cells, "04_collectives").answers
    assert len(answers) == 3
    for answer in answers:
        assert answer.agrees(says(check, world, answer.code)), answer


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("return numbers", "Rank 0 returned 1.0, expected 20.0."),
        ("return None", "Rank 0 returned None, expected 20.0."),
        ("return numbers.repeat(2)", "Rank 0 returned a tensor of shape [2], expected 20.0."),
        (
            "dist.all_reduce(numbers)\ndist.all_reduce(numbers)\nreturn numbers / 2",
            "Rank 0 called 2 all_reduce, expected 1 all_reduce.",
        ),
    ],
    ids=["not the sum", "without return", "of another shape", "in two calls"],
)
def test_the_check_of_the_example_refuses_what_is_wrong(world, check, answer, sentence):
    answer = "def doubled(numbers):\n" + textwrap.indent(answer, "    ")
    assert says(check, world, answer) == f"Not yet. {sentence}"
