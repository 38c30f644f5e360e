"""The script of a notebook is what its ranks run, and it runs under torchrun."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from helpers.script import script
from helpers.torchrun import torchrun

ROOT = Path(__file__).parent.parent
# The others are about the notebook's own talk with its ranks.
SCRIPTS = sorted(path for path in ROOT.glob("notebooks/[0-9]*.ipynb") if "make script NOTEBOOK" in path.read_text())


def numbers_of_ranks(path):
    """Return 2 and 3, or for roles the number that a notebook says, because most of those take longer."""
    text = path.read_text()
    return [int(re.search(r"--nproc-per-node (\d)", text)[1])] if "rpc.init_rpc(" in text else [2, 3]


@pytest.mark.parametrize(
    ("path", "ranks"),
    [(path, ranks) for path in SCRIPTS for ranks in numbers_of_ranks(path)],
    ids=lambda value: getattr(value, "stem", value),
)
def test_the_script_runs_under_torchrun(path, ranks):
    said = torchrun(script(path), ranks)
    assert len(said) == ranks
    assert any(said)


def test_what_becomes_of_each_kind_of_cell(tmp_path):
    cells = [
        new_markdown_cell("# The title\n\nProse.\n\n## A heading"),
        new_code_cell("WORLD_SIZE = 4\nSEED = 0", metadata={"tags": ["parameters"]}),
        new_code_cell("from helpers import World\nworld = World(WORLD_SIZE)"),
        new_code_cell('%%px\nif rank:\n    print("all")'),
        new_code_cell("%px x = 1\nassert world.view['x'] == [1]\n%px y = 2"),
        new_code_cell("%%px --targets 0\nprint(0)\n\nprint(1)"),
        new_code_cell("%%px --targets 1:\nprint(2)"),
        new_code_cell("%%px --noblock -o answer\nstuck()"),
        new_markdown_cell("## Exercises"),
        new_code_cell("%%px\nskeleton()"),
    ]
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
        "# The notebook runs a cell here in the background; a script would have to wait for its end.\n",
    ]


def write(name, folder):
    return subprocess.run([sys.executable, "-m", "helpers.script", name], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(("name", "ranks"), [("02_point_to_point", 2), ("18_hybrid_ddp_rpc", 4)])
def test_the_command_writes_the_script_and_says_how_to_run_it(tmp_path, name, ranks):
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    said = write(name, tmp_path)
    assert said.stdout == f"torchrun --nproc-per-node {ranks} {name}.py\n"
    assert (tmp_path / f"{name}.py").read_text() == script(ROOT / f"notebooks/{name}.ipynb")


def test_a_notebook_that_is_not_there(tmp_path):
    said = write("2", tmp_path)
    assert said.stderr == "There is no notebook notebooks/2.ipynb. Those that are there: none in this folder.\n"
    assert said.returncode == 1
