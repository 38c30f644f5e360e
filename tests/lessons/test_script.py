"""The script of a notebook is what its ranks run, and it runs under torchrun.

torchrun starts a fresh Python for each rank and for itself, which import torch for most of the time that such a test
takes. So one script runs under torchrun, at night one of each kind. At night all of them run in processes that have
torch already, with what torchrun would put into their environment.
"""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
import script_rank
from lesson_files import NOTEBOOKS, ROOT, at_night
from nbformat.v4 import new_code_cell, new_markdown_cell
from torch.distributed import TCPStore

from helpers.ranks import prefork
from helpers.script import number_of_ranks, script
from helpers.torchrun import torchrun

# The others are about the notebook's own talk with its ranks.
SCRIPTS = [path for path in NOTEBOOKS if "make script NOTEBOOK" in path.read_text()]
SECONDS_TO_RUN = 240  # less than the time limit of a test


def run_as_torchrun(source, ranks, folder):
    """Run a script on so many ranks; return what each has printed, and fail when one has failed."""
    path = folder / "script.py"
    path.write_text(source)
    logs = [folder / f"{rank}.log" for rank in range(ranks)]
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )  # torchrun, too, hosts the store
    started = [prefork.start(script_rank.run, path, rank, ranks, store.port, logs[rank]) for rank in range(ranks)]
    deadline = time.monotonic() + SECONDS_TO_RUN
    for process in started:
        process.join(max(0, deadline - time.monotonic()))
    ends = [process.exitcode for process in started]
    for process in started:
        process.kill()
        process.join()
    said = [log.read_text() for log in logs]
    assert ends == [0] * ranks, "\n".join(said)
    return said


@pytest.mark.nightly
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_runs_with_the_environment_of_torchrun(path, tmp_path):
    assert any(run_as_torchrun(script(path), number_of_ranks(path), tmp_path))


@pytest.mark.parametrize("topic", ["data_parallel", at_night("distributed_autograd"), at_night("hybrid_ddp_rpc")])
def test_the_script_runs_under_torchrun(topic):
    (path,) = [path for path in SCRIPTS if path.stem.partition("_")[2] == topic]
    said = torchrun(script(path), number_of_ranks(path))
    assert len(said) == number_of_ranks(path)
    assert any(said)


def test_a_script_that_fails_on_one_rank_is_noticed(tmp_path):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_as_torchrun("import os\n1 / int(os.environ['RANK'])", 2, tmp_path)


def test_what_becomes_of_each_kind_of_cell(tmp_path):
    cells = [
        new_markdown_cell("# The title\n\nProse.\n\n## A heading"),
        new_code_cell("WORLD_SIZE = 4\nSEED = 0", metadata={"tags": ["parameters"]}),
        new_code_cell("from helpers import World\nworld = World(WORLD_SIZE)"),
        new_code_cell('%%px\nif rank:\n    print("all")'),
        new_code_cell("%px x = 1\nassert world.view['x'] == [1]\n%px y = 2"),
        new_code_cell("%%px --targets 0\nprint(0)\n\nprint(1)"),
        new_code_cell("%%px --targets 1:\nprint(2)"),
        new_code_cell("%%px --targets {master}\nprint(3)"),
        new_code_cell("%%px\nfrom beside import first\nfrom beside import second\nfrom helpers import devices"),
        new_code_cell("%%px --noblock -o answer\nstuck()"),
        new_markdown_cell("## Exercises"),
        new_code_cell("%%px\nskeleton()"),
    ]
    (tmp_path / "beside.py").write_text("first = second = 3\n")
    path = tmp_path / "notebook.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    assert script(path).split("\n\n\n") == [
        "# The title",
        "# A heading",
        "SEED = 0",
        'if rank:\n    print("all")',
        "x = 1\ny = 2",
        "if rank in (0,):\n    print(0)\n\n    print(1)",
        "if rank in range(n)[1:]:\n    print(2)",
        "if rank in (master,):\n    print(3)",
        "first = second = 3\nfrom helpers import devices",
        "# The notebook runs a cell here in the background; a script would have to wait for its end.\n",
    ]


def write(name, folder):
    return subprocess.run([sys.executable, "-m", "helpers.script", name], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(("name", "ranks"), [("03_point_to_point", 4), ("21_distributed_autograd", 3)])
def test_the_command_writes_the_script_and_says_how_to_run_it(tmp_path, name, ranks):
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    said = write(name, tmp_path)
    assert said.stdout == f"{Path(sys.executable).parent}/torchrun --nproc-per-node {ranks} {name}.py\n"
    assert (tmp_path / f"{name}.py").read_text() == script(ROOT / f"notebooks/{name}.ipynb")


def test_the_command_for_a_script_runs_without_the_course_in_path(tmp_path):
    cells = [
        new_code_cell("WORLD_SIZE = 2", metadata={"tags": ["parameters"]}),
        new_code_cell("%%px\nimport os\nline = os.environ['RANK'] + ' of ' + os.environ['WORLD_SIZE'] + '\\n'"),
        new_code_cell("%%px\nos.write(1, line.encode())  # in one piece, because both ranks write to one pipe"),
    ]
    (tmp_path / "notebooks").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebooks/tiny.ipynb")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    module = [".venv/bin/python", "-m", "helpers.script", "tiny"]
    command = subprocess.run(module, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert command == ".venv/bin/torchrun --nproc-per-node 2 tiny.py\n"
    # torchrun leaves a folder in the temporary folder.
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS_TO_RUN
    )
    assert sorted(run.stdout.splitlines()) == ["0 of 2", "1 of 2"], run.stderr


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_lesson_names_the_same_number_of_ranks_as_its_parameters(path):
    ((name, script, ranks),) = re.findall(
        r"`make script NOTEBOOK=(\w+)` writes `(\w+).py` and prints the `torchrun` command that runs it with (\d+) pr",
        path.read_text(),
    )
    assert (name, script, int(ranks)) == (path.stem, path.stem, number_of_ranks(path))


def test_a_notebook_that_is_not_there(tmp_path):
    said = write("2", tmp_path)
    assert said.stderr == "There is no notebook notebooks/2.ipynb. Those that are there: none in this folder.\n"
    assert said.returncode == 1
