"""The program in 41_back_by_torchrun that uses torchft, where torchft is installed: a replica dies, another joins."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest
import torch
from lesson_files import ROOT

from helpers import World
from helpers.measure.interruption import wait_for

NOTEBOOK = ROOT / "notebooks/41_back_by_torchrun.ipynb"
LIGHTHOUSE = "127.0.0.1:29510"  # on the network of the world, which nothing else uses
REPLICAS = ["a", "b", "c", "d"]  # rank r starts replica r; the last replica joins late

# On the ranks: a process for the lighthouse, and a process for each replica.
START = """
import os, subprocess, sys, tempfile
import psutil

def start(program, *arguments):
    with open(os.path.join(tempfile.gettempdir(), "_".join((program, *arguments[:1], "log"))), "w") as log:
        path = os.path.join(tempfile.gettempdir(), program)
        return subprocess.Popen([sys.executable, path, *arguments], stdout=log, stderr=log)

def start_lighthouse(address):
    start("lighthouse.py", address)

def start_replica(name, address):
    global replica
    replica = start("replica.py", name, "http://" + address)

def kill():
    replica.kill()

def exit_code():
    return replica.wait(90)

def addresses():
    found = psutil.Process(replica.pid).net_connections()
    return [each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN]
"""

LIGHTHOUSE_PROGRAM = """
import signal, sys
from torchft.coordination import LighthouseServer

timeouts = {"join_timeout_ms": 10_000, "heartbeat_timeout_ms": 1000}
lighthouse = LighthouseServer(bind=sys.argv[1], min_replicas=1, **timeouts)
signal.pause()
"""

# A file says when a replica is ready to take its first step.
BEFORE = """
import os, socket, sys, tempfile, time

socket.gethostname = lambda: "localhost"  # the network of a world has only the loopback
import torchft

def file(name):
    return os.path.join(tempfile.gettempdir(), name)

class Optimizer(torchft.Optimizer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        open(file(sys.argv[1] + " is ready"), "w").close()

torchft.Optimizer = Optimizer
"""

# The end of the loop, and what follows it: each replica waits for the others at step 10, and for the newcomer at 40.
AFTER = """
    with open(file(sys.argv[1]), "a") as steps:
        print(manager.current_step(), manager.num_participants(), file=steps)
    awaited = {10: "abc", 40: "d"}.get(manager.current_step(), "")
    while not all(os.path.exists(file(name + " is ready")) for name in awaited):
        time.sleep(0.01)
    time.sleep(0.05)
torch.save(model.state_dict(), file(sys.argv[1] + ".weights"))
manager.shutdown()
"""


def program():
    """Return the program of the notebook, in which the last line belongs to the loop."""
    text = "\n".join(cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if "torchft" in cell.source)
    (block,) = re.findall(r"```python\n(.*?\n)```", text, re.S)
    return block


@pytest.fixture
def world():
    if importlib.util.find_spec("torchft") is None:
        pytest.skip('torchft is not installed: python -m pip install -e ".[torchft]"')
    world = World(len(REPLICAS))
    if world.network is None:
        world.stop()
        pytest.skip("torchft listens on every interface, and here a world has no network of its own")
    world.view.execute(START)
    yield world
    world.stop()


def run(world, code):
    """Run three replicas of a program, kill one, and let a fourth join; return the rows and weights of the others."""
    folder = Path(world.folder)
    (folder / "lighthouse.py").write_text(LIGHTHOUSE_PROGRAM)
    (folder / "replica.py").write_text(BEFORE + code + AFTER)

    def rows(name):
        lines = (folder / name).read_text().splitlines(keepends=True) if (folder / name).exists() else []
        return [tuple(map(int, line.split())) for line in lines if line.endswith("\n")]

    world.call("start_lighthouse", LIGHTHOUSE, targets=0)
    for rank in range(3):
        world.call("start_replica", REPLICAS[rank], LIGHTHOUSE, targets=rank)
    wait_for(lambda: rows("b") and rows("b")[-1] >= (15, 3))
    # The store, the manager and the server of the weights listen on every interface, and gloo on the loopback.
    addresses = world.call("addresses", targets=0)
    assert addresses.count("::") == 3 and set(addresses) == {"::", "127.0.0.1"}
    world.call("kill", targets=1)
    wait_for(lambda: rows("a")[-1] >= (40, 0))
    world.call("start_replica", REPLICAS[3], LIGHTHOUSE, targets=3)
    finished = [0, 2, 3]
    assert world.call("exit_code", targets=finished) == [0, 0, 0]
    names = [REPLICAS[rank] for rank in finished]
    return [rows(name) for name in names], [torch.load(folder / f"{name}.weights") for name in names]


def equal(weights):
    first, *others = weights
    return all(torch.equal(first[name], other[name]) for other in others for name in first)


def test_the_survivors_continue_and_a_new_replica_gets_their_weights(world):
    (of_a, of_c, of_d), weights = run(world, program())
    for rows in (of_a, of_c):
        participants = dict(rows)  # of each step, the last attempt
        # A replica that starts later than the others begins behind their step 10. Then no step is left out or repeated.
        assert list(participants) == list(range(rows[0][0], 61)) and rows[0][0] <= 11
        assert participants[15] == 3 and participants[40] == 2 and participants[60] == 3
    assert of_d[0][0] > 40 and of_d[-1][0] == 60
    assert equal(weights)


@pytest.mark.nightly
def test_the_proof_refuses_a_new_replica_without_the_weights(world):
    code = program()
    assert code.count('    model.load_state_dict(state["model"])\n') == 1
    _, weights = run(world, code.replace('    model.load_state_dict(state["model"])\n', ""))
    assert not equal(weights)
