"""When the code of a check fails on a rank: what another rank did is the verdict, if it explains the failure."""

import sys
import types

import pytest

from helpers.errors import WorldError

SETUP = "import os\nrank = int(os.environ['RANK'])"
NAME = "made_up_exercise"
EXERCISE = '''
import os
from helpers.checks.exam import exercise

def send_to_neighbour():
    if os.environ["RANK"] == "0":
        raise ConnectionResetError("the neighbour has closed the connection")

@exercise
def double(exam):
    """Check `double(number)`; then each rank sends something to its neighbour."""
    result = exam.call(exam.rank)
    exam.require(result == 2 * exam.rank, f"Rank {exam.rank} returned {result}, expected {2 * exam.rank}.")
    FAIL
    return "Every rank doubled its number."
'''
HERE, IN_THE_PROCESS_OF_THE_ANSWER = "send_to_neighbour()", "exam.on_rank(send_to_neighbour)"


@pytest.fixture(params=[HERE, IN_THE_PROCESS_OF_THE_ANSWER], ids=["here", "on_rank"])
def check(world, request):
    """A check whose own code fails on rank 0, in the exercise or in a function that runs beside the answer."""
    source = EXERCISE.replace("FAIL", request.param)
    module = sys.modules[NAME] = types.ModuleType(NAME)
    exec(source, vars(module))
    world.view.execute(
        f"import sys, types; sys.modules[{NAME!r}] = types.ModuleType({NAME!r})\n"
        f"exec({source!r}, vars(sys.modules[{NAME!r}]))"
    )
    yield lambda: module.double(world)
    del sys.modules[NAME]


def answer(world, body):
    world.view.execute(f"def double(number):\n    {body}")


def test_an_error_of_the_answer_on_another_rank_is_the_verdict(world, check):
    answer(world, "return 2 * number if rank != 1 else number / 0")
    assert repr(check()).startswith("Not yet. Rank 1 raised ZeroDivisionError: division by zero")


def test_a_wrong_result_on_another_rank_is_the_verdict(world, check):
    answer(world, "return 2 * number if rank != 1 else 0")
    assert repr(check()) == "Not yet. Rank 1 returned 0, expected 2."


def test_a_failure_that_no_rank_explains_is_an_error_of_the_course(world, check):
    answer(world, "return 2 * number")
    with pytest.raises(WorldError, match=r"(?s)`double` failed on rank 0, and no rank shows why.*has closed") as raised:
        check()
    assert "send_to_neighbour" in str(raised.value)  # the traceback is there
