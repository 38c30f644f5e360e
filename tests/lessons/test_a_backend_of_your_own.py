"""What the lesson a_backend_of_your_own shows with a rank that leaves holds for a rank that is killed.

In the lesson the last rank closes its sockets itself, because a killed rank would lose the lesson's definitions.
"""

import ipyparallel as ipp
import pytest
from answers import cell

LESSON = "18_a_backend_of_your_own.ipynb"
OWN = """
exchange = exchange_of_the_lesson
allgather = allgather_of_the_lesson
later = later_of_the_lesson
"""
BEFORE = ("import select", "def connect(", "def as_bytes(", "def exchange_of_the_lesson(", "class Completion(")
THEN = ("def allgather_of_the_lesson(", "def later_of_the_lesson(")
AFTER = ("def allreduce(group", "def logged(", "class Ring(", 'register("ring"', "def new_model(", "class Threaded(")

KILLED = """
import signal

def die(what):
    if rank == n - 1 and what == "step 1":
        os.kill(os.getpid(), signal.SIGKILL)

def end_of_training(backend):
    global end
    group = dist.new_group(backend=backend, timeout=timedelta(seconds=10))
    try:
        train(group, 3, die)
    except Exception as error:
        end = str(error)
    return end
"""


def definitions(name):
    """Return the definitions in a cell of the lesson, without the choice of the learner's code and the groups."""
    source = cell(LESSON, name).partition("\nthreaded = ")[0]
    return "\n".join(line for line in source.splitlines() if "accepted(" not in line)


SETUP = "\n".join(["SEED = 0", *map(definitions, BEFORE + THEN), OWN, *map(definitions, AFTER), KILLED])


@pytest.mark.parametrize("backend", ["ring", "threaded"])
def test_every_rank_gets_an_error_if_a_rank_is_killed(broken_world, backend):
    answer = broken_world.view.apply_async(ipp.Reference("end_of_training"), backend)
    answer.wait(60)
    ends = broken_world.view.pull("end", targets=[0, 1, 2])
    assert broken_world.where()[3].line == "SIGKILL"
    assert len(ends) == 3 and all(ends)
    assert not any("no neighbour was ready" in error for error in ends), ends  # no rank waited for its timeout
