"""Kernels: their sockets lie where only their user can reach them, and nothing of a test is in their environment."""

import os
import stat
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from live import Notebook

from helpers.kernels import PrivateSockets, short_folder


def test_jupyter_finds_the_class_by_its_name():
    (found,) = entry_points(group="jupyter_client.kernel_provisioners", name="private-sockets")
    assert found.load() is PrivateSockets, "install the checkout again: pip install -e ."


@pytest.fixture
def notebook():
    notebook = Notebook()
    yield notebook
    notebook.close()


def folder_of(notebook):
    return Path(notebook.manager.ip).parent


def test_the_sockets_lie_in_a_private_folder_that_goes_with_the_kernel(notebook):
    folder = folder_of(notebook)
    assert [path.is_socket() for path in folder.iterdir()] == [True] * 5
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    notebook.close()
    assert not folder.exists()


@pytest.mark.parametrize("now", [True, False])
def test_a_restarted_kernel_has_the_same_sockets(notebook, now):
    folder = folder_of(notebook)
    notebook.run("before = 1")
    notebook.manager.restart_kernel(now=now)
    notebook.client.wait_for_ready(timeout=60)
    assert folder_of(notebook) == folder
    assert "NameError" in notebook.run("before")


def test_interrupt(notebook):
    shown = notebook.run("import time\nwhile True:\n    time.sleep(0.01)", interrupt_after=0.5)
    assert "KeyboardInterrupt" in shown


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
