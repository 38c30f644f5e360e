"""The section of 24_actors about Monarch, where torchmonarch is installed: its cells, on three ranks."""

import importlib.util
import re
from pathlib import Path

import ipyparallel as ipp
import nbformat
import psutil
import pytest

from helpers import World

NOTEBOOK = Path(__file__).parent.parent.parent / "notebooks/24_actors.ipynb"
ON_ALL_RANKS = ["setup", "address", "mailbox-solution", "counter", "agent", "learn", "observer", "casting-agent"]
SECTION = ["mesh", "monarch-mailbox", "monarch-training", "death"]
SIZE = 3

# As in tests/lessons/mutants: what is false now, the cell, a text that the cell has once, and the replacement.
# tests/lessons/mutants has none of them, because `make mutants` runs without torchmonarch.
MUTANTS = {
    "call_one asks another actor": ("mesh", "slice(ranks=1).add.call_one(5)", "slice(ranks=0).add.call_one(5)"),
    "a broadcast reaches one actor": ("mesh", "tallies.add.broadcast(10)", "tallies.slice(ranks=0).add.broadcast(10)"),
    "an answer gets lost": (
        "monarch-mailbox",
        "        return getattr(self.instance, method)(*arguments)\n",
        "        getattr(self.instance, method)(*arguments)\n",
    ),
    "a cast waits for the method": (
        "monarch-mailbox",
        "self.actor.run_without_answer.broadcast(method, *arguments)",
        "self.actor.run_without_answer.call_one(method, *arguments).get(timeout=60)",
    ),
    "the observers on Monarch play other episodes": ("monarch-training", "name, SEED + r)", "name, SEED + 2 * r)"),
    "no actor dies": ("death", "os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), 0)"),
    "the caller asks an actor that lives": (
        "death",
        'counters.slice(ranks=1).run.call_one("add_one")',
        'counters.slice(ranks=0).run.call_one("add_one")',
    ),
}
# A mutant that is not a program any more proves nothing.
NO_PROGRAM = re.compile(r"\b(SyntaxError|IndentationError|NameError|ModuleNotFoundError|ImportError)\b")

# Monarch ends an actor after an error in a broadcast. Then a call gets no answer until its timeout.
CAREFREE = """
class Carefree(MonarchAddress):
    def call(self, method, *arguments):
        future = self.actor.run.call_one(method, *arguments)
        return SimpleNamespace(wait=lambda: future.get(timeout=30))

    def cast(self, method, *arguments):
        self.actor.run.broadcast(method, *arguments)

monarch.actor.unhandled_fault_hook = lambda failure: None
carefree = lambda cls, *arguments: Carefree(actor=spawn_on_monarch(1, cls, *arguments).actor)
"""

CALLS_BACK = """
class CallsBack(Counter):
    def call_back(self, me):
        me.actor.run.call_one("add_one").get(timeout=2)

caller = spawn_on_monarch(1, CallsBack)
caller.call("state").wait()
error = ""
try:
    caller.call("call_back", caller).wait()
except Exception as raised:
    error = str(raised)
afterwards = caller.call("state").wait()
"""


def source(cell_id):
    (cell,) = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.id == cell_id]
    return cell.source.partition("\n")[2]


@pytest.fixture
def lesson():
    """Ranks that have run the lesson up to the section about Monarch."""
    if importlib.util.find_spec("monarch") is None:
        pytest.skip('torchmonarch is not installed: python -m pip install -e ".[actors]"')
    world = World(SIZE)
    world.view["SEED"] = 1
    for cell_id in ON_ALL_RANKS:
        world.view.execute(source(cell_id))
    on_rank_0(world, "finished_rounds = lambda: None")
    on_rank_0(world, source("local"))
    yield world
    world.stop()


@pytest.fixture
def world(lesson):
    """Ranks on which Monarch runs, with the mailbox of the section."""
    for cell_id in SECTION[:2]:
        on_rank_0(lesson, source(cell_id))
    return lesson


def on_rank_0(world, code):
    world.view.client[0].execute(code, block=True)


def value(world, expression):
    return world.call(eval, expression, targets=0)


def broken(code, old, new):
    """Return the code of a cell with a text replaced, which the cell must have once."""
    assert code.count(old) == 1, old
    return code.replace(old, new)


def prove(world, mutant=None, old="", new=""):
    """Run the cells of the section, of which one may be broken, then the cell with its proof."""
    for cell_id in SECTION:
        code = source(cell_id)
        on_rank_0(world, broken(code, old, new) if cell_id == mutant else code)
    exec(source("monarch-proof"), {"world": world, "WORLD_SIZE": SIZE})


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_fits_its_cell(name):
    cell_id, old, new = MUTANTS[name]
    assert broken(source(cell_id), old, new) != source(cell_id)


def test_the_proof_accepts_the_section(lesson):
    prove(lesson)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTANTS)
def test_the_proof_refuses(name, lesson):
    with pytest.raises((AssertionError, ipp.error.RemoteError)) as refusal:
        prove(lesson, *MUTANTS[name])
        pytest.fail(f"the section believes that {name}")
    assert not NO_PROGRAM.search(str(refusal.value)), str(refusal.value)


def test_the_check_judges_monarchs_actors_and_the_agent_earns_the_same_rewards(world):
    on_rank_0(world, source("monarch-training"))
    assert value(world, "verdict").startswith("Solved. ")
    assert value(world, "equal_rewards") is True


def test_a_cast_whose_error_ends_the_actor_is_refused(world):
    on_rank_0(world, CAREFREE + "from helpers.checks.actors import verdict_on\nverdict = verdict_on(carefree)")
    expected = (
        "Not yet. After a `cast` whose method raised an error, the actor answered no call, expected it to keep running."
    )
    assert value(world, "verdict") == expected


def test_a_callback_into_a_waiting_actor_times_out_and_is_answered_afterwards(world):
    on_rank_0(world, CALLS_BACK)
    error, (count, _) = value(world, "(error, afterwards)")
    assert "TimeoutError" in error and count == 1


def test_a_killed_actor_fails_its_caller_and_is_reported_to_its_owner(world):
    on_rank_0(world, source("death"))
    assert value(world, "(of_caller, another)") == ("SupervisionError", 2)
    assert "Killed(sig=9)" in value(world, "to_owner")


def test_no_process_of_monarch_outlives_its_world(world):
    rank = psutil.Process(world.pids[0])
    of_monarch = [process for process in rank.children(recursive=True) if "monarch" in " ".join(process.cmdline())]
    assert len(of_monarch) >= 3
    world.stop()
    assert psutil.wait_procs(of_monarch, timeout=20)[1] == []
