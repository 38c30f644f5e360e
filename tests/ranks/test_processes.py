"""How processes start: an Interrupt in the middle breaks nothing, and a fork server that has ended is replaced."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing import forkserver

import pytest
from live import INIT, SUM, Notebook, wait_until

from helpers import World, WorldError
from helpers.ranks import prefork
from helpers.ranks.supervisor import Supervisor

SECONDS_TO_VANISH = 30  # at most, on a busy machine

pytestmark = pytest.mark.skipif(prefork.START_METHOD != "forkserver", reason="every process is a fresh Python here")

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
# The kernel is interrupted when its controller runs, and has not yet been told so.
INTERRUPT_AT_THE_END = """
import signal, time
from multiprocessing.util import get_temp_dir
from pathlib import Path
read = forkserver.read_signed

def interrupted_when_it_runs(descriptor):
    pid = read(descriptor)
    while not list(Path(get_temp_dir()).glob("*/controller.log")):
        time.sleep(0.01)
    signal.raise_signal(signal.SIGINT)
    return pid

forkserver.read_signed = interrupted_when_it_runs
try:
    World(2)
finally:
    forkserver.read_signed = read
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


def test_a_controller_ends_when_an_interrupt_comes_while_it_starts(notebook):
    notebook.run("World(1).stop()")
    assert "KeyboardInterrupt" in notebook.run(INTERRUPT_AT_THE_END)
    # What is left: the kernel, its fork server and its resource tracker.
    assert wait_until(lambda: len(notebook.processes()) == 3, SECONDS_TO_VANISH)


def test_a_fork_server_that_has_ended_is_followed_by_another(notebook):
    notebook.run("World(1).stop()\nfrom multiprocessing.util import get_temp_dir")
    folder = notebook.run("print(get_temp_dir())").strip()
    notebook.run(BREAK_OFF)
    assert not os.path.exists(folder)
    assert the_sum_of_a_new_world(notebook) == "[tensor([3.]), tensor([3.])]\n"
    assert os.stat(folder).st_mode & 0o777 == 0o700


class KillsItsProcess:
    """A number of hosts that ends the process which looks at it."""

    def __lt__(self, other):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_supervisor_that_is_killed_while_it_starts_is_told_from_a_torch_that_cannot_be_imported():
    with pytest.raises(
        WorldError, match=r"^The ranks did not start. Their supervisor was killed \(signal 9\). Try again"
    ):
        Supervisor(prefork.make_folder(), [{}], hosts=KillsItsProcess())


def test_a_fork_server_that_is_stopped_is_not_waited_for_without_end(monkeypatch):
    World(1).stop()
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)
    monkeypatch.setattr(prefork, "_SECONDS_TO_FORK", 0.5)
    with pytest.raises(WorldError, match="^The process that ranks are forked from did not answer for 0.5 s. Try again"):
        World(1)
    monkeypatch.undo()
    World(1).stop()
    # An Interrupt waits until the request is whole, but not for ever either.
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)
    monkeypatch.setattr(prefork, "_SECONDS_AFTER_INTERRUPT", 0.1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has background jobs ignore it
    try:
        interrupt = threading.Timer(0.5, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            World(1)
        interrupt.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_temporary_folders_that_a_cleaner_removes(notebook):
    notebook.run("world = World(2)")
    for folder in ("world._directory", "os.path.dirname(world._directory)"):
        notebook.run(f"import os, shutil\nshutil.rmtree({folder})")
        for use in ("world.where()", "world.restart()", "world.restart(rank=0)"):
            shown = notebook.run(use)
            assert "in it was removed. Make a new world: world = World(2)." in shown and "Traceback" not in shown
        assert the_sum_of_a_new_world(notebook) == "[tensor([3.]), tensor([3.])]\n"


def test_a_temporary_folder_whose_name_is_too_long_is_said_and_not_left(tmp_path):
    folder = tmp_path / ("x" * (100 - len(str(tmp_path))))
    folder.mkdir()
    script = "from helpers import World\nWorld(1)"
    environment = {**os.environ, "TMPDIR": str(folder)}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert "WorldError: The name of the temporary folder, " in result.stderr
    assert os.listdir(folder) == []


# A user who has no other process, with room for two more: the guard and the supervisor. All imports come before,
# because this user may not be able to read what root has installed.
TWO_MORE_PROCESSES = """
import os, resource
from multiprocessing import popen_fork, popen_forkserver, resource_tracker
import psutil
import helpers.ranks.preload
from helpers.ranks import prefork
from helpers.ranks.supervisor import Supervisor

prefork.SHARED.clear()
resource_tracker.ensure_running()
os.setgid(54321)
os.setuid(54321)
limit = psutil.Process().num_threads() + 1 + 2
resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
prefork.prepare()
try:
    Supervisor(prefork.make_folder(), [{}, {}])
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who has no other process")
def test_a_limit_on_processes_is_named(monkeypatch):
    folder = tempfile.mkdtemp(dir="/tmp")
    os.chown(folder, 54321, 54321)
    monkeypatch.setenv("TMPDIR", folder)
    try:
        command = [sys.executable, "-c", TWO_MORE_PROCESSES]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert result.stdout.startswith("The ranks did not start. This user may start no more processes"), result
    assert "Traceback" not in result.stderr
