"""The copy of a kernel: torch is imported once for a notebook and its ranks; they start without it, too."""

import os
import subprocess
import sys

import psutil
import pytest
from live import INIT, SUM, Notebook, left_after, wait_until

from helpers.ranks import prefork

SECONDS_TO_VANISH = 10

pytestmark = pytest.mark.skipif(prefork.START_METHOD != "forkserver", reason="every process is a fresh Python here")


def the_copy(notebook):
    """Return the only process that a new kernel has started."""
    (process,) = notebook.processes()[1:]
    return process


def ancestors_of_the_ranks(notebook):
    """Start a world, have its ranks add, and return the processes that both have been forked from."""
    notebook.run("from helpers import World\nworld = World(2)")
    notebook.run("%%px\n" + INIT.format(timeout=30) + SUM)
    assert notebook.run("print(world.view['total'])") == "[tensor([3.]), tensor([3.])]\n"
    first, second = (psutil.Process(pid).parents() for pid in eval(notebook.run("print(world.pids)")))
    return [process for process in first if process in second]


def is_fresh(process):
    return "multiprocessing.forkserver" in " ".join(process.cmdline())


def test_the_ranks_are_forked_from_the_copy(notebook):
    before = the_copy(notebook)
    ancestors = ancestors_of_the_ranks(notebook)
    assert before in ancestors and not any(is_fresh(process) for process in ancestors)


def test_an_interrupt_before_the_first_world_is_not_for_the_copy(notebook):
    before = the_copy(notebook)
    is_running = notebook.sees("'running' in globals()")
    shown = notebook.run("import time\nrunning = True\ntime.sleep(1000)", interrupt_when=is_running)
    assert "KeyboardInterrupt" in shown
    assert before in ancestors_of_the_ranks(notebook)


def test_a_copy_that_somebody_has_killed_is_not_missed(notebook):
    before = the_copy(notebook)
    before.kill()
    assert wait_until(lambda: before.status() == psutil.STATUS_ZOMBIE, SECONDS_TO_VANISH)
    assert any(is_fresh(process) for process in ancestors_of_the_ranks(notebook))
    assert not before.is_running()


def test_torch_is_imported_anew_in_another_environment(notebook):
    before = the_copy(notebook)
    notebook.run("import os\nos.environ['TORCH_CPP_LOG_LEVEL'] = 'FATAL'")
    assert any(is_fresh(process) for process in ancestors_of_the_ranks(notebook))
    assert not before.is_running()


def test_what_a_world_asks_to_have_imported_is_imported_in_the_copy(notebook):
    before = the_copy(notebook)
    notebook.run("from helpers import World\nworld = World(2, preload=['mailbox'])")
    notebook.run("%%px\nimport sys\nis_there = 'mailbox' in sys.modules")
    assert notebook.run("print(world.view['is_there'])") == "[True, True]\n"
    assert before in psutil.Process(eval(notebook.run("print(world.pids)"))[0]).parents()


def test_ranks_have_the_folder_and_the_environment_of_the_first_world(notebook, tmp_path):
    notebook.run(f"import os\nos.chdir({str(tmp_path)!r})\nos.environ['SET_IN_THE_NOTEBOOK'] = 'yes'")
    ancestors_of_the_ranks(notebook)
    notebook.run("%px seen = os.getcwd(), os.environ['SET_IN_THE_NOTEBOOK']")
    assert notebook.run("print(world.view['seen'])") == f"{[(str(tmp_path), 'yes')] * 2}\n"


def test_ranks_look_for_gpus_without_initialising_cuda(notebook):
    ancestors_of_the_ranks(notebook)
    notebook.run("%px by_nvml = torch.cuda._nvml_based_avail()")
    assert notebook.run("print(world.view['by_nvml'])") == "[True, True]\n"


def test_a_copy_that_was_not_needed_ends_with_its_kernel(notebook):
    before = the_copy(notebook)
    psutil.Process(notebook.pid).kill()
    assert not left_after([before], SECONDS_TO_VANISH)


@pytest.mark.parametrize("asked", ["", "1"])
def test_the_notebook_computes_with_as_many_threads_as_a_python_of_its_own(asked, monkeypatch):
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    threads = "import torch\nprint(torch.get_num_threads())"
    fresh = subprocess.run([sys.executable, "-c", threads], capture_output=True, text=True, check=True)
    notebook = Notebook()
    try:
        assert notebook.run(threads) == fresh.stdout
        ancestors_of_the_ranks(notebook)
        notebook.run("%px threads = torch.get_num_threads()")
        assert notebook.run("print(world.view['threads'])") == "[1, 1]\n"
    finally:
        notebook.close()


def test_torch_does_not_import_what_lies_beside_the_notebook(tmp_path):
    (tmp_path / "fractions.py").write_text("raise ImportError('this is the one beside the notebook')")
    notebook = Notebook(cwd=str(tmp_path))
    try:
        assert notebook.run("import torch\nprint(torch.ones(1))") == "tensor([1.])\n"
    finally:
        notebook.close()


def test_a_torch_that_cannot_be_imported_is_an_error_of_the_cell(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('this torch is for another machine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    notebook = Notebook()
    try:
        assert "ImportError: this torch is for another machine" in notebook.run("import torch")
    finally:
        notebook.close()


# From Python 3.14 on, and in new versions of 3.13, multiprocessing starts its fork server with arguments.
WITH_ARGUMENTS = """
import os, sys
from multiprocessing import util
from helpers.ranks import prefork

prefork.prepare()
with prefork._started_from_copy(prefork.at_import()):
    command = [sys.executable, "-c", "import sys; print(sys.argv, flush=True)", "-f", "connection.json"]
    pid = util.spawnv_passfds(sys.executable, command, [])
os.waitpid(pid, 0)
"""


def test_the_copy_runs_code_with_arguments_as_python_does():
    done = subprocess.run([sys.executable, "-c", WITH_ARGUMENTS], capture_output=True, text=True, timeout=120)
    assert done.stdout == "['-c', '-f', 'connection.json']\n", done.stderr
