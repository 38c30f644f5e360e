"""Every notebook and its solution run as they are stored; some notebooks, in turn, go on in ways of a reader's own.

The solution runs in the kernel of its notebook, which is cleared for it, because half of the time would go into another
start. Every day a seventh of the notebooks run all their cells once more in that kernel: with another number of ranks,
each cell twice in a row, and with a pause where a reader makes one. The numbers of ranks take turns, too. The outputs
need not be the stored ones then; the asserts have to hold. Five notebooks run once more, with their ranks on two hosts.
"""

import re
import uuid

import nbformat
import pytest
from lessons import NOTEBOOKS, PAUSE, SHARE, SOLUTIONS, has_its_turn, run
from nbformat.v4 import new_code_cell

SHARES = 7
ON_TWO_HOSTS = ["point_to_point", "ring_all_reduce", "what_all_reduce_costs", "inside_ddp", "uneven_ranks"]
CLEAR = new_code_cell("%reset_selective -f .")


def another_size(notebook, number):
    """Return one of the world sizes that the notebook says it works for, in turn low ones and high ones."""
    opening = "".join(cell.source for cell in notebook.cells[:3])
    stored = int(re.search(r"\*\*Ranks\*\*: (\d)", opening)[1])
    if "No other `WORLD_SIZE` works." in opening:
        return stored
    even, low, high = re.search(r"(?i)any (even )?`WORLD_SIZE` from (\d) to (\d) works", opening).groups()
    sizes = range(int(low), int(high) + 1, 2 if even else 1)
    others = [size for size in sorted({*sizes[:2], sizes[(len(sizes) - 1) // 2], sizes[-1]}) if size != stored]
    return others[number % len(others)]


def as_readers_do(notebook, size):
    """Return the notebook's code cells, each twice in a row, with the parameter set and no outputs to compare."""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            source = cell.source if cells else f"{cell.source}\nWORLD_SIZE = {size}"
            ignored = "nbval-ignore-output"
            pauses = [PAUSE] if PAUSE in cell.metadata.get("tags", []) else []
            cells.append(new_code_cell(source, metadata={"tags": [ignored, *pauses]}))
            cells.append(new_code_cell(source, metadata={"tags": [ignored]}))
    return cells


@pytest.mark.parametrize("number", range(len(NOTEBOOKS)), ids=[path.stem for path in NOTEBOOKS])
def test_runs_as_stored_and_in_its_turn_as_readers_do(number, tmp_path, request):
    path = NOTEBOOKS[number]
    notebook = nbformat.read(path, as_version=4)
    again = as_readers_do(notebook, another_size(notebook, number + SHARE // SHARES))
    for cell in notebook.cells:
        cell.metadata["tags"] = [tag for tag in cell.metadata.get("tags", []) if tag != PAUSE]
    if has_its_turn(number, SHARES):
        notebook.cells += again
    notebook.cells += [CLEAR, *nbformat.read(path.parent / "solutions" / path.name, as_version=4).cells]
    for cell in notebook.cells:
        cell.id = uuid.uuid4().hex  # both files count their cells
    run(notebook, tmp_path / path.name, request)


@pytest.mark.parametrize("topic", ON_TWO_HOSTS)
def test_runs_with_its_ranks_on_two_hosts(topic, tmp_path, request):
    (path,) = [path for path in NOTEBOOKS if path.stem.partition("_")[2] == topic]
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if "World(WORLD_SIZE)" in cell.source and cell.cell_type == "code"]
    cell.source = cell.source.replace("World(WORLD_SIZE)", "World(WORLD_SIZE, hosts=2)")
    for cell in notebook.cells:
        # Addresses and times are others than those that are stored.
        cell.metadata["tags"] = [*{*cell.metadata.get("tags", []), "nbval-ignore-output"}]
    run(notebook, tmp_path / path.name, request)


def test_every_solution_is_that_of_a_notebook():
    assert [path.name for path in SOLUTIONS] == [path.name for path in NOTEBOOKS]
