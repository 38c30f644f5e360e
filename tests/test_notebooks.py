"""Every notebook and its solution run as they are stored; some notebooks, in turn, go on in ways of a reader's own.

The solution runs in the kernel of its notebook, which is cleared for it, because half of the time would go into another
start. Every day a fourteenth of the notebooks run all their cells once more in that kernel: with another number of
ranks, each cell twice in a row, and with a pause where a reader makes one. The numbers of ranks take turns, too. The
outputs need not be the stored ones then; the asserts have to hold. Five notebooks take turns at running with their
ranks on two hosts.

Before a notebook stops its world, its history of collectives has to differ where the lesson means it to, and nowhere.
"""

import uuid

import nbformat
import pytest
from lessons import NOTEBOOKS, PAUSE, SHARE, SOLUTIONS, has_its_turn, run
from nbformat.v4 import new_code_cell

from helpers.grade.exercises import sizes

SHARES = 14
ON_TWO_HOSTS = ["point_to_point", "ring_all_reduce", "what_all_reduce_costs", "inside_ddp", "uneven_ranks"]
CLEAR = new_code_cell("%reset_selective -f .")

# The lines of the calls that differ between the ranks when a notebook ends: most lessons have none.
LINES_THAT_DIFFER = {
    "when_ranks_fail": {
        "dist.all_reduce(count)",
        "dist.all_reduce(loss)",
        "dist.all_reduce(number, group=group)",
        "dist.barrier(group)",
    },
    "groups_and_order": {
        "dist.all_reduce(loss, group=group)",
        "dist.all_reduce(once_more, op)",
        "dist.all_reduce(torch.ones(1), group=group)",
        "dist.barrier(group)",
        'dist.barrier(impatient.get_group("host"))',
        "dist.broadcast(weights, src=0, group=group)",
    },
    "uneven_ranks": {"model(torch.tensor([[rank + 1.0]])).sum().backward()"},
    "ddp_in_practice": {
        "model(torch.ones(1, 2)).sum().backward()",
        "return DDP(model, process_group=brief())",
        "wrapped(bright if rank else dark).sum().backward()",
    },
    "in_your_own_job": {"dist.all_reduce(torch.ones(1), group=group)"},  # of a check
}
HISTORY = """
def lines_that_differ():
    differences = world.history().differences
    return {{call.line for found in differences for call in found.calls.values() if call}}

assert lines_that_differ() == {expected!r}, lines_that_differ()
"""


def another_size(notebook, number):
    """Return one of the world sizes that the notebook says it works for, in turn low ones and high ones."""
    stored, others = sizes("".join(cell.source for cell in notebook.cells[:3]))
    if not others:
        return stored
    others = sorted({*others[:2], others[(len(others) - 1) // 2], others[-1]})
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
    (stop,) = [place for place, cell in enumerate(notebook.cells) if cell.source.strip() == "world.stop()"]
    expected = LINES_THAT_DIFFER.get(path.stem.partition("_")[2], set())
    notebook.cells.insert(stop, new_code_cell(HISTORY.format(expected=expected)))
    if has_its_turn(number, SHARES):
        notebook.cells += again
    notebook.cells += [CLEAR, *nbformat.read(path.parent / "solutions" / path.name, as_version=4).cells]
    for cell in notebook.cells:
        cell.id = uuid.uuid4().hex  # both files count their cells
    run(notebook, tmp_path / path.name, request)


@pytest.mark.parametrize("topic", [topic for topic in ON_TWO_HOSTS if has_its_turn(ON_TWO_HOSTS.index(topic), 5)])
def test_runs_with_its_ranks_on_two_hosts(topic, tmp_path, request):
    (path,) = [path for path in NOTEBOOKS if path.stem.partition("_")[2] == topic]
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if "World(WORLD_SIZE" in cell.source and cell.cell_type == "code"]
    cell.source = cell.source.replace("World(WORLD_SIZE", "World(WORLD_SIZE, hosts=2")
    for cell in notebook.cells:
        # Addresses and times are others than those that are stored.
        cell.metadata["tags"] = [*{*cell.metadata.get("tags", []), "nbval-ignore-output"}]
    run(notebook, tmp_path / path.name, request)


def test_every_solution_is_that_of_a_notebook():
    assert [path.name for path in SOLUTIONS] == [path.name for path in NOTEBOOKS]
