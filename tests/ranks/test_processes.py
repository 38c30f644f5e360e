"""How processes start: an Interrupt in the middle breaks nothing, and a fork server that has ended is replaced."""

import os

import pytest
from live import INIT, SUM, Notebook

from helpers.ranks import processes

pytestmark = pytest.mark.skipif(processes.START_METHOD != "forkserver", reason="every process is a fresh Python here")

FORK_SERVER = """
from multiprocessing import forkserver
from helpers import World
fork_server = forkserver._forkserver
"""
# The kernel is interrupted when it has connected to its fork server, and has not yet said what for.
INTERRUPT_IN_THE_MIDDLE = """
import signal
from multiprocessing import reduction
send = reduction.sendfds

def send_after_an_interrupt(*arguments):
    signal.raise_signal(signal.SIGINT)
    send(*arguments)

reduction.sendfds = send_after_an_interrupt
try:
    World(2)
finally:
    reduction.sendfds = send
"""
BREAK_OFF = """
import os, socket
with socket.socket(socket.AF_UNIX) as client:
    client.connect(fork_server._forkserver_address)
os.waitid(os.P_PID, fork_server._forkserver_pid, os.WEXITED | os.WNOWAIT)
"""


@pytest.fixture
def notebook():
    notebook = Notebook()
    notebook.run(FORK_SERVER)
    yield notebook
    notebook.close()


def the_sum_of_a_new_world(notebook):
    shown = notebook.run("world = World(2)")
    assert "Error" not in shown, shown
    notebook.run("%%px\n" + INIT.format(timeout=30) + SUM)
    return notebook.run("print(world.view['total'])")


def test_an_interrupt_in_the_middle_of_a_request_waits_until_it_is_made(notebook):
    notebook.run("World(1).stop()\nbefore = fork_server._forkserver_pid")
    assert "KeyboardInterrupt" in notebook.run(INTERRUPT_IN_THE_MIDDLE)
    assert the_sum_of_a_new_world(notebook) == "[tensor([3.]), tensor([3.])]\n"
    assert notebook.run("print(fork_server._forkserver_pid == before)") == "True\n"


def test_a_fork_server_that_has_ended_is_followed_by_another(notebook):
    notebook.run("World(1).stop()\nfrom multiprocessing.util import get_temp_dir")
    folder = notebook.run("print(get_temp_dir())").strip()
    notebook.run(BREAK_OFF)
    assert not os.path.exists(folder)
    assert the_sum_of_a_new_world(notebook) == "[tensor([3.]), tensor([3.])]\n"
    assert os.stat(folder).st_mode & 0o777 == 0o700
