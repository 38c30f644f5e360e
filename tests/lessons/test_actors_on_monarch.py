"""The section of 24_actors about Monarch, where torchmonarch is installed: its cells, on three ranks."""

import importlib.util
from pathlib import Path

import nbformat
import psutil
import pytest

from helpers import World

NOTEBOOK = Path(__file__).parent.parent.parent / "notebooks/24_actors.ipynb"
ON_ALL_RANKS = ["setup", "address", "mailbox-solution", "counter", "agent", "learn", "observer", "casting-agent"]
ON_RANK_0 = ["local", "mesh", "monarch-mailbox"]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("monarch") is None,
    reason='torchmonarch is not installed: python -m pip install -e ".[actors]"',
)

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
def world():
    world = World(3)
    world.view["SEED"] = 1
    for cell_id in ON_ALL_RANKS:
        world.view.execute(source(cell_id))
    on_rank_0(world, "finished_rounds = lambda: None")
    for cell_id in ON_RANK_0:
        on_rank_0(world, source(cell_id))
    yield world
    world.stop()


def on_rank_0(world, code):
    world.view.client[0].execute(code, block=True)


def value(world, expression):
    return world.call(eval, expression, targets=0)


def test_the_check_judges_monarchs_actors_and_the_agent_earns_the_same_rewards(world):
    on_rank_0(world, source("monarch-training"))
    assert value(world, "verdict").startswith("Solved. ")
    assert value(world, "equal_rewards") is True


def test_a_cast_whose_error_ends_the_actor_is_refused(world):
    on_rank_0(world, CAREFREE + "from helpers.checks.actors import verdict_on\nverdict = verdict_on(carefree)")
    expected = "Not yet. After a cast whose method raised, the actor answered no call, expected it to live on."
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
