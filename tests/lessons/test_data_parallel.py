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
    ONE_WEIGHT := "batch = torch.arange(",
    THREE_LINES := "def synchronise_of_the_lesson(",
    LINES_IN_USE := 'synchronise = accepted("my_synchronise"',
    LOOP := "for start in range(",
    EQUAL := "def equal_everywhere(",
    TRAIN := "def train(",
    REFERENCE := "reference_weights = train(",
    DEAL := "def deal(",
    DISTANCE := "def distance(",
    START := "def as_one_process(",
    PER_PARAMETER := 'as_one_process("per parameter"',
    BITS := "difference = (weights",
    BUCKET := "class BucketOfTheLesson",
    BUCKET_IN_USE := 'accepted("MyBucket"',
    ONE := "def in_one_bucket(",
    DDP := 'as_one_process("DDP"',
)
SAME_START = "assert after == new_model(SEED)"
SAME_BITS = "assert equal_everywhere(weights) and difference > 0"
BITS_OF_TWO = "assert n > 2 or all("
SHUFFLED = "assert epoch_0 == without_set_epoch != with_set_epoch"
STAYS = "assert abs(after - before) < 1e-6"
SAME_GRADIENTS = "assert_close(gradients, reference_gradients, rtol=0, atol=1e-10)"
SAME_WEIGHTS = "assert_close(weights, reference_weights, rtol=0, atol=1e-10)"


def cell(contains):
    (source,) = [source for source in CELLS if contains in source]
    return source


def on_the_ranks(contains, *change):
    """Return a `%%px` cell without its first line; `change` is a text that occurs once in it, and its replacement."""
    magic, _, source = cell(contains).partition("\n")
    assert magic == "%%px"
    if change:
        assert source.count(change[0]) == 1, change[0]
        source = source.replace(*change)
    return source


@pytest.fixture(scope="module")
def ranks():
    """Two ranks that have run all cells up to DDP."""
    world = World(2, preload=["torch._dynamo"])
    world.view["SEED"] = 0
    for contains in ALL:
        world.view.execute(on_the_ranks(contains))
    yield world
    world.stop()


@pytest.fixture
def world(ranks):
    """The two ranks; what a test breaks is repaired afterwards."""
    yield ranks
    for contains in (THREE_LINES, LINES_IN_USE, TRAIN, START, BUCKET, BUCKET_IN_USE):
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
        pytest.param(PER_PARAMETER, "synchronise)", "nothing)", id="no average"),
        pytest.param(ONE, "bucket.finish()", "bucket.work.wait()", id="bucket not given back"),
        pytest.param(ONE, "    bucket.launch()\n    bucket.finish()\n", "", id="bucket not sent"),
        pytest.param(DDP, "DDP(different)", "same_start()", id="not wrapped"),
    ],
)
def test_gradients_that_differ_from_one_process(world, contains, whole, broken):
    lines = failed(world, on_the_ranks(contains, whole, broken))
    assert lines == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}


@pytest.mark.parametrize(
    ("contains", "whole", "broken", "cells"),
    [
        pytest.param(THREE_LINES, "parameter.grad /= n", "pass", [LINES_IN_USE, PER_PARAMETER], id="sum, no average"),
        pytest.param(
            THREE_LINES,
            "dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)",
            "pass",
            [LINES_IN_USE, PER_PARAMETER],
            id="no all_reduce",
        ),
        pytest.param(
            THREE_LINES,
            "in model.parameters():",
            "in list(model.parameters())[1:]:",
            [LINES_IN_USE, PER_PARAMETER],
            id="one parameter left out",
        ),
        pytest.param(
            BUCKET, "(parameter.grad, n,", "(parameter.grad, 1,", [BUCKET_IN_USE, ONE], id="sum in the bucket"
        ),
        pytest.param(BUCKET, "parameter.grad = part", "pass", [BUCKET_IN_USE, ONE], id="average stays in the bucket"),
        pytest.param(TRAIN, "optimizer.step()", "pass", [PER_PARAMETER], id="no step"),
        pytest.param(TRAIN, "sampler.set_epoch(epoch)", "pass", [PER_PARAMETER], id="no set_epoch"),
        pytest.param(
            TRAIN, "shard, seed=SEED", "shard, seed=SEED + rank", [PER_PARAMETER], id="a shuffle for each rank"
        ),
        pytest.param(
            TRAIN, "shards, shard, seed", "shards, 0, seed", [PER_PARAMETER], id="the same shard on all ranks"
        ),
    ],
)
def test_what_a_variant_uses_is_broken(world, contains, whole, broken, cells):
    world.view.execute(on_the_ranks(contains, whole, broken))
    *before, last = cells
    for other in before:
        world.view.execute(on_the_ranks(other))
    assert failed(world, on_the_ranks(last)) == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}


def test_without_the_broadcast(world):
    world.view.execute(on_the_ranks(START, "dist.broadcast(tensor, src=0)", "pass"))
    assert failed(world, on_the_ranks(SAME_START)) == {1: "assert after == new_model(SEED)[0].weight[0, 0]"}
    assert failed(world, on_the_ranks(PER_PARAMETER)) == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}


def test_copies_that_begin_equal(world):
    world.view.execute(on_the_ranks(DISTANCE, "model = new_model(SEED + rank)", "model = new_model(SEED)"))
    assert failed(world, on_the_ranks(STAYS))[1].startswith(STAYS)
    world.view.execute(on_the_ranks(DISTANCE))


def test_weights_that_differ_from_one_process(world):
    world.view.execute(on_the_ranks(TRAIN, "parameters()).detach()", "parameters()).detach() + 1e-9"))
    assert failed(world, on_the_ranks(PER_PARAMETER)) == {0: SAME_WEIGHTS, 1: SAME_WEIGHTS}


def test_weights_that_differ_in_the_last_bits(world):
    """The weights of rank 1 differ from the weights of rank 0 after the first variant, and not after DDP."""
    world.view.execute(on_the_ranks(TRAIN, "parameters()).detach()", "parameters()).detach() * (1 + rank * 1e-15)"))
    world.view.execute(on_the_ranks(PER_PARAMETER))
    world.view.execute(on_the_ranks(BITS))
    assert failed(world, on_the_ranks(SAME_BITS)) == {1: SAME_BITS}
    world.view.execute(on_the_ranks(TRAIN))
    world.view.execute(on_the_ranks(DDP))
    (line,) = failed(world, on_the_ranks(BITS_OF_TWO)).values()
    assert line.startswith("assert n > 2 or all(torch.equal(others, weights)")


def test_without_set_epoch_the_second_epoch_is_the_first(world):
    world.view.execute(on_the_ranks(DEAL, "sampler.set_epoch(1)", "pass"))
    assert failed(world, on_the_ranks(SHUFFLED)) == dict.fromkeys(range(2), SHUFFLED)


def test_a_mean_loss_that_is_not_the_loss_of_one_process(world):
    world.view.execute(on_the_ranks(PER_PARAMETER))
    figure = cell("plots.loss_curves(").replace("plots.loss_curves(", "(lambda *curves: None)(")
    proof = cell("assert_close(mean_losses, reference_losses)")
    names = {"torch": torch, "world": world}
    exec(figure, names)
    exec(proof, names)
    world.view.execute("losses = losses + 1e-4 * rank")
    exec(figure, names)
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        exec(proof, names)
