"""Every equality that 08_data_parallel asserts fails when the ranks are not synchronised as they should be."""

import re
from pathlib import Path

import ipyparallel as ipp
import nbformat
import pytest
import torch

from helpers import World

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "08_data_parallel.ipynb"
CELLS = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]

ALL = (
    SETUP := "init_process_group(",
    MODEL := "def sgd(",
    TRAIN := "def train(",
    TRUTH := "true_weights = train(alone",
    DEAL := "def deal(",
    START := "def same_start(",
    PER_PARAMETER := "def per_parameter(",
    BUCKET := "class Bucket",
    ONE := "def one_bucket(",
    DDP := "def by_ddp(",
)
SAME_START = "assert after == new_model(SEED)"
SAME_BITS = "assert torch.equal(weights, weights_of_0)"
BITS_OF_TWO = "assert n > 2 or all("
SHUFFLED = "assert first == forgotten != second"
SAME_GRADIENTS = "assert_close(gradients, true_gradients, rtol=0, atol=1e-10)"
SAME_WEIGHTS = "assert_close(weights, true_weights, rtol=0, atol=1e-10)"


def cell(contains):
    (source,) = [source for source in CELLS if contains in source]
    return source


def on_the_ranks(contains, *change):
    """Return a `%%px` cell, without its first line; of a change, a text and what takes its place, it is there once."""
    magic, _, source = cell(contains).partition("\n")
    assert magic == "%%px"
    if change:
        assert source.count(change[0]) == 1, change[0]
        source = source.replace(*change)
    return source


@pytest.fixture(scope="module")
def ranks():
    """Two ranks that have run all cells up to DDP."""
    world = World(2)
    world.view["SEED"] = 0
    for contains in ALL:
        world.view.execute(on_the_ranks(contains))
    yield world
    world.stop()


@pytest.fixture
def world(ranks):
    """The two ranks; what a test breaks is whole again afterwards."""
    yield ranks
    for contains in (MODEL, TRAIN, START):
        ranks.view.execute(on_the_ranks(contains))


def failed(world, source):
    """Run a cell that fails, and return the line of the assert that failed on each rank that raised."""
    with pytest.raises(ipp.CompositeError) as raised:
        world.view.execute(source)
    lines = {}
    for kind, _, traceback, engine in raised.value.elist:
        assert kind == "AssertionError"
        arrows = re.findall(r"-+> *\d+ +(.*)", re.sub(r"\x1b\[[\d;]*m", "", traceback))
        lines[engine["engine_id"]] = [line for line in arrows if "assert" in line][0]
    return lines


@pytest.mark.parametrize(
    ("contains", "whole", "broken"),
    [
        pytest.param(PER_PARAMETER, "parameter.grad /= dist.get_world_size(group)", "pass", id="sum, no average"),
        pytest.param(PER_PARAMETER, "dist.all_reduce(parameter.grad, group=group)", "pass", id="no all_reduce"),
        pytest.param(PER_PARAMETER, "in model.parameters():", "in list(model.parameters())[1:]:", id="one left out"),
        pytest.param(PER_PARAMETER, "        optimizer.step()", "        pass", id="no step"),
        pytest.param(ONE, "bucket.finish()", "bucket.work.wait()", id="bucket not written back"),
        pytest.param(ONE, "in model.parameters():", "in list(model.parameters())[1:]:", id="a parameter not taken"),
        pytest.param(DDP, "DDP(model, process_group=group)", "model", id="not wrapped"),
    ],
)
def test_gradients_that_are_not_those_of_one_process(world, contains, whole, broken):
    lines = failed(world, on_the_ranks(contains, whole, broken))
    assert lines == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}


@pytest.mark.parametrize(
    ("contains", "whole", "broken", "version"),
    [
        pytest.param(BUCKET, "dist.get_world_size(self.group)", "1", ONE, id="sum in the bucket"),
    ],
)
def test_what_a_version_uses_is_broken(world, contains, whole, broken, version):
    world.view.execute(on_the_ranks(contains, whole, broken))
    try:
        assert failed(world, on_the_ranks(version)) == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}
    finally:
        world.view.execute(on_the_ranks(contains))


def test_without_the_broadcast(world):
    world.view.execute(on_the_ranks(START, "dist.broadcast(tensor, src=0)", "pass"))
    assert failed(world, on_the_ranks(SAME_START)) == {1: "assert after == new_model(SEED)[0].weight[0, 0]"}
    assert failed(world, on_the_ranks(PER_PARAMETER)) == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        pytest.param("sampler.set_epoch(epoch)", "pass", id="no set_epoch"),
        pytest.param("shares, share, seed=SEED", "shares, share, seed=SEED + rank", id="each rank its own shuffle"),
        pytest.param("shares, share, seed=SEED", "shares, 0, seed=SEED", id="all ranks the same share"),
    ],
)
def test_shares_that_are_not_the_batches_of_one_process(world, whole, broken):
    world.view.execute(on_the_ranks(TRAIN, whole, broken))
    assert failed(world, on_the_ranks(PER_PARAMETER)) == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}


def test_weights_that_are_not_those_of_one_process(world):
    world.view.execute(on_the_ranks(TRAIN, "vector(model.parameters()).detach()", "vector(model.parameters()) + 1e-9"))
    assert failed(world, on_the_ranks(PER_PARAMETER)) == {0: SAME_WEIGHTS, 1: SAME_WEIGHTS}


def test_weights_that_differ_in_the_last_bits(world):
    """Rank 1 differs from rank 0, and so its versions do."""
    broken = "vector(model.parameters()) * (1 + rank * 1e-15)"
    world.view.execute(on_the_ranks(TRAIN, "vector(model.parameters()).detach()", broken))
    world.view.execute(on_the_ranks(PER_PARAMETER))
    assert failed(world, on_the_ranks(SAME_BITS)) == {1: SAME_BITS}
    world.view.execute(on_the_ranks(DDP))
    (line,) = set(failed(world, on_the_ranks(BITS_OF_TWO)).values())
    assert line.startswith("assert n > 2 or all(torch.equal(weights, weights_of_0)")


def test_without_set_epoch_the_second_epoch_is_the_first(world):
    world.view.execute(on_the_ranks(DEAL, "sampler.set_epoch(1)", "pass"))
    assert failed(world, on_the_ranks(SHUFFLED)) == dict.fromkeys(range(2), SHUFFLED)


def test_a_mean_loss_that_is_not_that_of_one_process(world):
    figure = cell("plots.loss_curves(").replace("plots.loss_curves(", "(lambda *curves: None)(")
    proof = cell("assert_close(losses.mean(dim=0), true_losses)")
    names = {"torch": torch, "world": world}
    exec(figure, names)
    exec(proof, names)
    world.view.execute("losses = losses + 1e-4 * rank")
    exec(figure, names)
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        exec(proof, names)
