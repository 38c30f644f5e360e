"""Kernels: their sockets lie where only their user can reach them, and nothing of a test is in their environment."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

import psutil
import pytest
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import find_kernel_specs, get_kernel_spec
from jupyter_client.manager import start_new_kernel
from jupyter_client.provisioning import LocalProvisioner
from lesson_files import NOTEBOOKS, SOLUTIONS
from live import Notebook, wait_until

from helpers import kernels
from helpers.kernels import KERNEL, PrivateSockets, remove_abandoned, short_folder

ROOT = Path(__file__).resolve().parents[2]
INSTALL_AGAIN = "install the checkout again: pip install -e ."


def test_jupyter_finds_the_class_by_its_name():
    (found,) = entry_points(group="jupyter_client.kernel_provisioners", name="private-sockets")
    assert found.load() is PrivateSockets, INSTALL_AGAIN


def test_the_environment_has_the_kernelspec_of_the_checkout():
    assert KERNEL in find_kernel_specs(), INSTALL_AGAIN
    spec = get_kernel_spec(KERNEL)
    assert Path(spec.resource_dir) == Path(sys.prefix, "share/jupyter/kernels", KERNEL)
    (stored,) = ROOT.glob("helpers/jupyter/kernels/*/kernel.json")
    assert json.loads(stored.read_text()) == json.loads(Path(spec.resource_dir, "kernel.json").read_text())
    assert stored.parent.name == KERNEL, INSTALL_AGAIN


def test_the_kernelspec_differs_from_that_of_ipykernel_only_in_module_and_provisioner():
    expected = get_kernel_dict()
    expected["argv"] = ["python", "-m", "helpers.start_kernel", *expected["argv"][-2:]]
    expected["display_name"] = "torch.distributed, live"
    expected["metadata"]["kernel_provisioner"] = {"provisioner_name": "private-sockets"}
    (stored,) = ROOT.glob("helpers/jupyter/kernels/*/kernel.json")
    assert json.loads(stored.read_text()) == expected


@pytest.mark.parametrize("stored", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_notebook_asks_for_the_kernel_of_the_course(stored):
    spec = get_kernel_spec(KERNEL)
    expected = {"name": KERNEL, "display_name": spec.display_name, "language": spec.language}
    assert json.loads(stored.read_text())["metadata"]["kernelspec"] == expected


def test_another_kernel_starts_as_jupyter_starts_it(monkeypatch):
    monkeypatch.delenv("JUPYTER_DEFAULT_PROVISIONER_NAME", raising=False)
    manager, client = start_new_kernel(startup_timeout=120, kernel_name="python3")
    try:
        assert type(manager.provisioner) is LocalProvisioner and manager.transport == "tcp"
        command = psutil.Process(manager.provisioner.process.pid).cmdline()
        assert "ipykernel_launcher" in command and "helpers.start_kernel" not in command
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_the_kernel_runs_in_this_environment(notebook):
    assert notebook.run("import sys\nprint(sys.prefix)") == f"{sys.prefix}\n"
    assert "helpers.start_kernel" in psutil.Process(notebook.pid).cmdline()


def folder_of(notebook):
    return Path(notebook.manager.ip).parent


def test_the_sockets_lie_in_a_private_folder_that_goes_with_the_kernel(notebook):
    folder = folder_of(notebook)
    assert [path.is_socket() for path in folder.iterdir()] == [True] * 5
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    notebook.close()
    assert not folder.exists()


SERVER = """
import subprocess, time
from jupyter_client.manager import start_new_kernel
from helpers.kernels import KERNEL
options = {"independent": True, "stdout": subprocess.DEVNULL}
manager, client = start_new_kernel(startup_timeout=120, kernel_name=KERNEL, **options)
print(manager.provisioner.folder, manager.provisioner.process.pid, manager.connection_file, flush=True)
time.sleep(1000)
"""


def test_the_next_server_removes_the_folder_of_a_killed_server_once_its_kernel_has_ended():
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        folder, pid, connection_file = server.stdout.readline().split()
        kernel = psutil.Process(int(pid))
        try:
            remove_abandoned()
            assert len(list(Path(folder).iterdir())) == 5
            server.kill()
            server.wait()
            remove_abandoned()
            assert len(list(Path(folder).iterdir())) == 5  # the kernel is independent of its server, and uses them
        finally:
            server.kill()
            kernel.kill()
            os.remove(connection_file)  # Jupyter's own, which a killed server leaves
    assert wait_until(lambda: not psutil.pid_exists(kernel.pid), 10)
    remove_abandoned()
    assert not Path(folder).exists()


def test_what_a_server_has_just_made_is_not_abandoned():
    folder, held = kernels._make_folder()
    remove_abandoned()
    assert Path(folder).exists()
    os.close(held)
    remove_abandoned()
    assert not Path(folder).exists()


@pytest.mark.parametrize("now", [True, False])
def test_a_restarted_kernel_has_the_same_sockets(notebook, now):
    folder = folder_of(notebook)
    notebook.run("before = 1")
    notebook.manager.restart_kernel(now=now)
    notebook.client.wait_for_ready(timeout=60)
    assert folder_of(notebook) == folder
    assert "NameError" in notebook.run("before")


def test_interrupt(notebook):
    is_running = notebook.sees("'running' in globals()")
    shown = notebook.run("import time\nrunning = True\nwhile True:\n    time.sleep(0.01)", interrupt_when=is_running)
    assert "KeyboardInterrupt" in shown


def test_a_kernel_whose_home_cannot_be_written_to_leaves_nothing_in_its_temporary_folder():
    folder = tempfile.mkdtemp(dir="/tmp")  # a short name, for the sockets
    environment = {name: value for name, value in os.environ.items() if name != "IPYTHONDIR"}
    try:
        notebook = Notebook(env=environment | {"HOME": "/nonexistent", "TMPDIR": folder})
        assert notebook.run("from helpers import World\nworld = World(2)\n%px print(1)").endswith("1\n")
        notebook.close()
        assert wait_until(lambda: os.listdir(folder) == [], 30), os.listdir(folder)
    finally:
        shutil.rmtree(folder)


def test_a_temporary_folder_with_a_long_name(monkeypatch, tmp_path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert short_folder() == "/tmp"
    monkeypatch.setattr(Path, "is_dir", lambda path: str(path) != "/tmp")
    with pytest.raises(OSError, match="need a temporary folder with a shorter name than .*xxx"):
        short_folder()


def test_kernels_and_ranks_know_nothing_of_pytest(notebook):
    assert "PYTEST_CURRENT_TEST" not in os.environ
    notebook.run("from helpers import World\nworld = World(1)")
    find = "import os\nprint([name for name in os.environ if name.startswith('PYTEST')])"
    assert notebook.run(find) == "[]\n"
    assert notebook.run("%%px\n" + find) == "[stdout:0] \n[]\n"
