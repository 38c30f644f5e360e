"""The checks of 23_hybrid_ddp_rpc and 24_hybrid_proof: each accepts the solution, and says what else is wrong."""

import textwrap
from pathlib import Path

import nbformat
import pytest

import helpers.world
from helpers import World, checks

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
STEP = """
def frozen_step(model, optimizer, data):
    rows, offsets, label = data
    with dist_autograd.context() as context:
        vectors = model.table.forward(rows, offsets){}
        loss = cross_entropy(model.dense(vectors), label)
        dist_autograd.backward(context, [loss])
        {}
"""
RATES = """
class Both:
    def __init__(self, *optimizers):
        self.optimizers = optimizers
    def step(self, context):
        for optimizer in self.optimizers:
            optimizer.step(context)

def one_rate(model, rate):
    dense = [rpc.RRef(parameter) for parameter in model.dense.parameters()]
    rates = [(model.table.remote_parameters(), {}), (dense, {})]
    return Both(*[DistributedOptimizer(torch.optim.SGD, of_part, lr=lr) for of_part, lr in rates])
"""


NAMES = """
import torch.distributed.autograd as dist_autograd
from torch.nn.functional import cross_entropy
from hybrid_model import new_optimizer, step
"""
PARTS = """
def step_in_parts(model, optimizer, parts):
    passages = sum(len(label) for _, _, label in parts)
    with dist_autograd.context() as context:
        losses = [cross_entropy(model(*data[:2]), data[2].to(model.device)) for data in parts]
        loss = sum({} for loss, data in zip(losses, parts))
        dist_autograd.backward(context, [loss])
        optimizer.step(context)
"""


def sources(path):
    """Return the sources of the `%%px` cells of a notebook, without their first lines."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / path, as_version=4).cells if cell.cell_type == "code"]
    return [source.partition("\n")[2] for source in cells if source.startswith("%%px")]


def cell(path, contains):
    (found,) = [source for source in sources(path) if contains in source]
    return found


@pytest.fixture
def world(worlds):
    """Four ranks that have run the solutions of notebook 24, the same for all tests of this module."""
    if not worlds or helpers.world._current is not worlds[-1]:
        worlds.append(World(4))
        worlds[-1].view.execute(f"import sys; sys.path.append({str(NOTEBOOKS)!r})", silent=True)
        for source in sources("solutions/24_hybrid_proof.ipynb"):
            worlds[-1].view.execute(source, silent=True)
        worlds[-1].view.execute(NAMES, silent=True)
    return worlds[-1]


def says(check, world, answer):
    world.view.execute(textwrap.dedent(answer), silent=True)
    return repr(check(world))


def test_frozen_step_solution(world):
    answer = cell("solutions/23_hybrid_ddp_rpc.ipynb", "def frozen_step(")
    assert says(checks.hybrid_ddp_rpc.frozen_step, world, answer) == (
        "Solved. The dense layer learns, the table keeps every bit, and no gradient travels to the server."
    )


def test_frozen_step_skeleton(world):
    answer = cell("23_hybrid_ddp_rpc.ipynb", "def frozen_step(")
    assert says(checks.hybrid_ddp_rpc.frozen_step, world, answer).startswith(
        "Not yet. After a step of trainer 0 the table is not"
    )


@pytest.mark.parametrize(
    ("detach", "last", "message"),
    [
        (".detach()", "optimizer", "Not yet. The dense layer of trainer 0 has not moved in 4 steps."),
        (
            "",
            "DistributedOptimizer(torch.optim.SGD, references(model)[1:], lr=1.0).step(context)",
            "Not yet. In 4 steps of trainer 0 4 gradients came to the table.",
        ),
        (".detach()", "loss.missing", "Not yet. Rank 0 raised AttributeError"),
    ],
)
def test_frozen_step_otherwise(world, detach, last, message):
    assert says(checks.hybrid_ddp_rpc.frozen_step, world, STEP.format(detach, last)).startswith(message)


@pytest.mark.parametrize("change", [("model.dense(", "model.dense.module("), ("loss = cross", "loss = -cross")])
def test_frozen_step_that_learns_something_else(world, change):
    answer = STEP.format(".detach()", "optimizer.step(context)")
    assert says(checks.hybrid_ddp_rpc.frozen_step, world, answer).startswith("Solved.")
    assert answer != (wrong := answer.replace(*change))
    said = says(checks.hybrid_ddp_rpc.frozen_step, world, wrong)
    assert said == "Not yet. The dense layer of trainer 0 has moved, but not as in one process."


def test_frozen_step_without_a_context_for_the_lookup(world):
    answer = """
    def frozen_step(model, optimizer, data):
        rows, offsets, label = data
        vectors = model.table.forward(rows, offsets)
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [cross_entropy(model.dense(vectors), label)])
            optimizer.step(context)
    """
    assert says(checks.hybrid_ddp_rpc.frozen_step, world, answer).startswith("Solved.")


IN_PARTS = "Solved. Both parts of the model are where one step with the whole batch brings them."


def test_step_in_parts_solution(world):
    answer = cell("solutions/23_hybrid_ddp_rpc.ipynb", "def step_in_parts(")
    assert says(checks.hybrid_ddp_rpc.step_in_parts, world, answer) == IN_PARTS


@pytest.mark.parametrize(
    "answer",
    [
        PARTS.format("loss * len(data[2]) / passages"),
        """
        def step_in_parts(model, optimizer, parts):
            lengths = [len(rows) for rows, _, _ in parts]
            offsets = [offsets + sum(lengths[:number]) for number, (_, offsets, _) in enumerate(parts)]
            rows = torch.cat([rows for rows, _, _ in parts])
            return step(model, optimizer, (rows, torch.cat(offsets), torch.cat([label for *_, label in parts])))
        """,
    ],
)
def test_step_in_parts_that_is_written_otherwise(world, answer):
    assert says(checks.hybrid_ddp_rpc.step_in_parts, world, answer) == IN_PARTS


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (cell("23_hybrid_ddp_rpc.ipynb", "def step_in_parts("), "The dense layer of trainer 0 is not where one step "),
        (PARTS.format("loss / len(parts)"), "The dense layer of trainer 0 is not where one step with all parts brings"),
        (PARTS.format("loss"), "The dense layer of trainer 0 is not where one step with all parts brings it."),
        ("def step_in_parts(model, optimizer, parts):\n    pass", "The dense layer of trainer 0 has not moved."),
        (
            "def step_in_parts(model, optimizer, parts):\n    for data in parts:\n        step(model, optimizer, data)",
            "The dense layer of trainer 0 is not where one step with all parts brings it.",
        ),
    ],
    ids=["skeleton", "mean of means", "sum", "nothing", "a step for each part"],
)
def test_step_in_parts_that_is_wrong(world, answer, message):
    assert says(checks.hybrid_ddp_rpc.step_in_parts, world, answer).startswith(f"Not yet. {message}")


def test_one_rate_solution(world):
    answer = cell("solutions/24_hybrid_proof.ipynb", "def one_rate(")
    assert says(checks.hybrid_proof.one_rate, world, answer) == "Solved. Both parts move as in one process."


def test_one_rate_skeleton(world):
    answer = cell("24_hybrid_proof.ipynb", "def one_rate(")
    assert says(checks.hybrid_proof.one_rate, world, answer) == (
        "Not yet. On trainer 0 the table moves 2.00 times as far as in one process."
    )


@pytest.mark.parametrize(
    ("table", "dense", "message"),
    [
        ("rate / 2", "rate / 2", "Not yet. On trainer 0 the dense layer moves 0.50 times as far as in one process."),
        ("rate", "2 * rate", "Not yet. On trainer 0 the dense layer moves 2.00 times as far as in one process."),
        ("rate / 4", "rate", "Not yet. On trainer 0 the table moves 0.50 times as far as in one process."),
        ("-rate / 2", "rate", "Not yet. On trainer 0 the table moves -1.00 times as far as in one process."),
    ],
)
def test_one_rate_with_other_rates(world, table, dense, message):
    assert says(checks.hybrid_proof.one_rate, world, RATES.format(table, dense)) == message


@pytest.mark.parametrize("returned", ["None", "[new_optimizer(references(model))]"])
def test_one_rate_that_returns_no_optimizer(world, returned):
    answer = f"def one_rate(model, rate): return {returned}"
    assert says(checks.hybrid_proof.one_rate, world, answer).startswith("Not yet. Rank 0 raised AttributeError")


def test_before_rpc_has_been_started(world):
    world.restart()
    for check in (checks.hybrid_ddp_rpc.frozen_step, checks.hybrid_ddp_rpc.step_in_parts, checks.hybrid_proof.one_rate):
        assert repr(check(world)).startswith("Not yet. The model is not there: run all cells from `World` on")
    world.stop()
