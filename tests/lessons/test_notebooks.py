"""Every notebook and its solutions run as they are stored; at night each also runs as readers run it.

Where the notebook asks for a prediction, the right one of the solutions has to hold. The solutions run in the kernel of
their notebook, which is cleared for them, because a second start would take half of the time again. Where the lesson
goes on with what the learner has written, they are typed into it: in the short course always, elsewhere at night.
The reader's pass goes on in the kernel of a notebook that has run: with another number of ranks, each cell twice in a
row, and with a pause where a reader makes a pause. The outputs need not be the stored ones then; the asserts have to
hold.

Before a notebook stops its world, its history of collectives has to differ where the lesson means it to, and nowhere
else.
"""

import uuid

import nbformat
import pytest
from lesson_files import NOTEBOOKS, PAUSE, SOLUTIONS, run
from nbformat.v4 import new_code_cell
from typed_in import goes_on, typed_in, with_predictions

from helpers import course

ON_TWO_HOSTS = ["point_to_point", "ring_all_reduce", "what_all_reduce_costs", "inside_ddp", "uneven_ranks"]
CLEAR = new_code_cell("%reset_selective -f .")
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# The lines of the calls that differ between the ranks when a notebook ends: most lessons have none.
LINES_THAT_DIFFER = {
    "when_ranks_fail": {
        "dist.all_reduce(score, group=group)",
        "dist.all_reduce(torch.ones(3), group=group)",
        "dist.all_reduce(total, group=group)",
        "dist.barrier(group)",
    },
    "when_ranks_disagree": {
        "dist.all_reduce(count)",
        "dist.all_reduce(loss)",
        "dist.all_reduce(metrics[name], op, group=group)",
        "dist.all_reduce(tensor, dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM)",
        "dist.all_reduce(tensor, group=group)",
        "dist.all_reduce(torch.ones(2), group=group)",
        "dist.broadcast(torch.ones(2), src=0, group=group)",
    },
    "groups_and_order": {
        "dist.all_reduce(loss, group=group)",
        "dist.all_reduce(once_more, op)",
        "dist.all_reduce(torch.ones(1), group=group)",
        "dist.barrier(group)",
        'dist.barrier(impatient.get_group("host"))',
        "dist.broadcast(weights, src=0, group=group)",
    },
    "uneven_ranks": {"model(batch).sum().backward()"},
    "what_ddp_does_not_report": {
        "model(torch.ones(1, 2)).sum().backward()",
        "return DDP(model, process_group=dist.new_group(timeout=timedelta(seconds=4)))",
        "wrapped(_BRIGHT if rank else _DARK).sum().backward()",  # of a check
    },
    "fully_shard": {"norms[name] = parameter.full_tensor().norm().item()"},  # of an exercise
    "in_your_own_job": {"dist.all_reduce(torch.ones(1), group=group)"},  # of a check
}
HISTORY = """
def lines_that_differ():
    differences = world.history().differences
    return {{call.line for found in differences for call in found.calls.values() if call}}

assert lines_that_differ() == {expected!r}, lines_that_differ()
"""


def read(path):
    return nbformat.read(path, as_version=4)


TYPED_IN_AT_NIGHT = [
    path for path in NOTEBOOKS if goes_on(read(path)) and not course.lessons()[path.stem].in_short_course
]


def other_sizes(path):
    """Return the smallest and the largest of the other world sizes that the notebook works for."""
    others = course.lessons()[path.stem].others
    return sorted({min(others), max(others)})


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


def without_pauses(cells):
    for cell in cells:
        cell.metadata["tags"] = [tag for tag in cell.metadata.get("tags", []) if tag != PAUSE]
    return cells


def with_new_ids(cells):
    """Return the cells of several files, which may use the same ids, as those of one."""
    for cell in cells:
        cell.id = uuid.uuid4().hex
    return cells


@pytest.mark.timeout(1800)  # a cell that hangs ends sooner; on a slow machine the longest lesson takes a third
@EACH
def test_runs_as_stored_and_then_its_solutions(path, tmp_path, request):
    notebook = read(path)
    solutions = read(path.parent / "solutions" / path.name)
    is_typed_in = goes_on(notebook) and path not in TYPED_IN_AT_NIGHT
    solved = typed_in(notebook, solutions) if is_typed_in else solutions
    notebook = with_predictions(notebook, solutions)
    (stop,) = [place for place, cell in enumerate(notebook.cells) if cell.source.strip() == "world.stop()"]
    expected = LINES_THAT_DIFFER.get(path.stem.partition("_")[2], set())
    notebook.cells.insert(stop, new_code_cell(HISTORY.format(expected=expected)))
    notebook.cells = with_new_ids([*without_pauses(notebook.cells), CLEAR, *without_pauses(solved.cells)])
    run(notebook, tmp_path / path.name, request)


@pytest.mark.nightly
@pytest.mark.parametrize("path", TYPED_IN_AT_NIGHT, ids=lambda path: path.stem)
def test_runs_with_its_solutions_typed_in(path, tmp_path, request):
    solved = typed_in(read(path), read(path.parent / "solutions" / path.name))
    solved.cells = without_pauses(solved.cells)
    run(solved, tmp_path / path.name, request)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@EACH
def test_runs_as_readers_run_it(path, tmp_path, request):
    notebook = read(path)
    again = [cell for size in other_sizes(path) for cell in as_readers_do(notebook, size)]
    notebook.cells = with_new_ids([*without_pauses(notebook.cells), *again])
    run(notebook, tmp_path / path.name, request)


@pytest.mark.nightly
@pytest.mark.parametrize("topic", ON_TWO_HOSTS)
def test_runs_with_its_ranks_on_two_hosts(topic, tmp_path, request):
    (path,) = [path for path in NOTEBOOKS if path.stem.partition("_")[2] == topic]
    notebook = read(path)
    (cell,) = [cell for cell in notebook.cells if "World(WORLD_SIZE" in cell.source and cell.cell_type == "code"]
    cell.source = cell.source.replace("World(WORLD_SIZE", "World(WORLD_SIZE, hosts=2")
    for cell in notebook.cells:
        # The stored addresses and times are those of one host.
        cell.metadata["tags"] = [*{*cell.metadata.get("tags", []), "nbval-ignore-output"}]
    run(notebook, tmp_path / path.name, request)


@pytest.mark.nightly
def test_find_the_fault_runs_with_another_seed(tmp_path, request):
    (path,) = [path for path in NOTEBOOKS if path.stem.partition("_")[2] == "find_the_fault"]
    notebook = read(path)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source = parameters.source.replace("SEED = 0", "SEED = 1")
    assert "SEED = 1" in parameters.source
    for cell in notebook.cells:
        # The stored cases are those of seed 0.
        cell.metadata["tags"] = [*{*cell.metadata.get("tags", []), "nbval-ignore-output"}]
    run(notebook, tmp_path / path.name, request)


def test_every_solution_is_that_of_a_notebook():
    assert [path.name for path in SOLUTIONS] == [path.name for path in NOTEBOOKS]
