"""What two ranks compute during a step, as their stopwatches note it."""

from pathlib import Path

import nbformat
import pytest

from helpers import World, plots
from helpers.measure.stopwatch import Entry, Step

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "26_faster_distributed_rnn.ipynb"


def test_shares():
    trainer = [Entry("LSTM forward", 1.0, 2.0), Entry("LSTM backward", 5.0, 6.5), Entry("optimizer", 7.0, 8.0)]
    server = [Entry("Linear forward", 2.5, 4.5), Entry("optimizer", 7.5, 9.0)]
    step = Step(0.0, 10.0, trainer, server)
    assert step.busy("trainer") == 3.5 and step.busy("server") == 3.5 and step.busy("trainer", "server") == 6.5
    assert step.shares() == {
        rank: {
            "computes": pytest.approx(0.35),
            "waits while the other computes": pytest.approx(0.3),
            "neither computes": pytest.approx(0.35),
        }
        for rank in ("trainer", "server")
    }
    plots.rpc_steps("a step", {"a step": step})
    plots.step_chain()
    runs = {"one process": [1e-3, 2e-3], "logits": [3e-3], "few bytes": [2e-3], "in halves": [2e-3]}
    plots.tokens_per_second("tokens", {"loopback": runs, "1 Gbit/s": runs}, 320)


@pytest.fixture
def world():
    world = World(2)
    yield world
    world.stop()


def test_entries_of_both_ranks(world):
    cells = [cell.source.partition("\n")[2] for cell in nbformat.read(NOTEBOOK, as_version=4).cells]
    texts = (
        "import os, time",
        "init_rpc(",
        "class SendsLogits:",
        "def new_optimizer(",
        "logits_step = stopwatch.fastest(",
    )
    for text in texts:
        source = next(cell for cell in cells if text in cell)
        (world.view.client[0] if "fastest(" in text else world.view).execute(source, silent=True, block=True)
    step = world.view.pull("logits_step", targets=0)
    assert [entry.what for entry in step.trainer] == [
        "LSTM forward",
        "CrossEntropyLoss forward",
        "CrossEntropyLoss backward",
        "LSTM backward",
        "optimizer",
    ]
    on_server = ["Embedding forward", "Linear forward", "Linear backward", "optimizer"]
    assert [entry.what for entry in step.server] == on_server
    passes = [entry for entry in [*step.trainer, *step.server] if entry.what != "optimizer"]
    times = [time for entry in sorted(passes, key=lambda entry: entry.begin) for time in entry[1:]]
    assert times == sorted(times)  # the two take turns
    optimizers = [entry for entry in [*step.trainer, *step.server] if entry.what == "optimizer"]
    assert all(times[-1] <= entry.begin < entry.end <= step.end for entry in optimizers)
    assert step.begin <= times[0]
