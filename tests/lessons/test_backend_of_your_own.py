"""What 07_a_backend_of_your_own shows with a rank that leaves holds for one that is killed, with a thread and without.

There the last rank closes its sockets itself, because a killed one would take the definitions of the lesson with it.
"""

import ipyparallel as ipp
import pytest
from answers import cell

LESSON = "07_a_backend_of_your_own.ipynb"
CELLS = ("import select", "def connect(", "def as_bytes(", "def exchange_of_the_lesson(", "class Done(", "class Links(")
MORE_CELLS = ("class Summing(", "class Ring(", 'register("ring"', "def new_model(", "class Later(", "class Threaded(")
EXCHANGE = "exchange = exchange_of_the_lesson"

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


def without_runs(name):
    """Return a cell of the lesson without what it runs after its definitions."""
    return cell(LESSON, name).partition("\nthreaded = ")[0]


SETUP = "\n".join(["SEED = 0", *map(without_runs, CELLS + MORE_CELLS), EXCHANGE, KILLED])


@pytest.mark.parametrize("backend", ["ring", "threaded"])
def test_all_learn_of_a_rank_that_is_killed(broken_world, backend):
    answer = broken_world.view.apply_async(ipp.Reference("end_of_training"), backend)
    answer.wait(60)
    ends = broken_world.view.pull("end", targets=[0, 1, 2])
    assert broken_world.where()[3].line == "SIGKILL"
    assert len(ends) == 3 and all(ends)
    assert not any("no neighbour was ready" in error for error in ends), ends  # nobody waited for a timeout
