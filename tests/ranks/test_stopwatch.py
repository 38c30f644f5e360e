"""What two ranks compute during a step, as their stopwatches note it."""

from pathlib import Path

import nbformat
import pytest

from helpers import World, plots
from helpers.measure.stopwatch import Entry, Step

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "25_faster_distributed_rnn.ipynb"


def test_shares():
    here = [Entry("LSTM forward", 1.0, 2.0), Entry("LSTM backward", 5.0, 6.5), Entry("optimizer", 7.0, 9.0)]
    step = Step(0.0, 10.0, here, [Entry("Linear forward", 2.5, 4.5)])
    rest = {"optimizer step of both": 2.0, "RPC": 3.5}
    assert step.shares() == {
        "trainer": {"computes": 2.5, "waits for the other": 2.0, **rest},
        "server": {"computes": 2.0, "waits for the other": 2.5, **rest},
    }
    assert all(sum(shares.values()) == step.seconds for shares in step.shares().values())
    plots.rpc_steps({"a step": step})
    plots.shares_by_rank(step.shares())
    plots.step_times({"loopback": {"one process": 1e-3, "first": 3e-3, "second": 2e-3}}, 320)


@pytest.fixture
def world():
    world = World(2)
    yield world
    world.stop()


def test_entries_of_both_ranks(world):
    cells = [cell.source.partition("\n")[2] for cell in nbformat.read(NOTEBOOK, as_version=4).cells]
    texts = ("import os, time", "init_rpc(", "class First:", "def new_optimizer(", "first_step = stopwatch.fastest(")
    for text in texts:
        source = next(cell for cell in cells if text in cell)
        (world.view.client[0] if "fastest(" in text else world.view).execute(source, silent=True, block=True)
    step = world.view.pull("first_step", targets=0)
    assert [entry.what for entry in step.here] == [
        "LSTM forward",
        "CrossEntropyLoss forward",
        "CrossEntropyLoss backward",
        "LSTM backward",
        "optimizer",
    ]
    assert [entry.what for entry in step.there] == ["Embedding forward", "Linear forward", "Linear backward"]
    times = [time for entry in sorted([*step.here, *step.there], key=lambda e: e.begin) for time in entry[1:]]
    assert times == sorted(times)  # the two take turns
    assert step.begin <= times[0] and times[-1] <= step.end
