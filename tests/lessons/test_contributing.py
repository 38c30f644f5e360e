"""The example of CONTRIBUTING.md, "Add an exercise": its check and its tests do what the text says."""

import re
import textwrap

import pytest
from answers import cell, says
from lesson_files import ROOT

from helpers import checks
from helpers.checks import collectives

SETUP = cell("03_collectives.ipynb", "init_process_group(")
EXERCISE = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add an exercise")[2].partition("\n## ")[0]
SKELETON, CHECK, TESTS = map(textwrap.dedent, re.findall(r"```python\n(.*?)```", EXERCISE, re.S))
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


def test_the_tests_of_the_example_pass(world, check):
    example = {"checks": checks, "says": says}
    example |= {"solution": lambda name: SOLUTION, "skeleton": lambda name: SKELETON.partition("\n")[2]}
    exec(TESTS, example)
    tests = [value for name, value in example.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test(world)


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
