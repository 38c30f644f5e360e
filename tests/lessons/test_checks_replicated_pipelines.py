"""32_replicated_pipelines' own judge of the step: it accepts what is right, and says what is wrong otherwise."""

import textwrap

import pytest
from answer_files import setup_of
from answers import cell

NAME = "32_replicated_pipelines.ipynb"
SETUP = setup_of("replicated_pipelines")

STEP = """
    def my_step(context, m):
        losses = []
        for x, target in zip(my_inputs.chunk(m), my_targets.chunk(m)):
            losses.append(rpc.rpc_async(next_rank, last_stage, (stage(x), target)))
        loss = sum(future.wait() for future in losses) / m
        dist_autograd.backward(context, [loss])
"""
ASK = """
new_stage()
dist.barrier()
verdict = judged(my_step) if drives else ""
dist.barrier()
"""


def judged(world, answer):
    """Return what the notebook's own judge says of this step, on the rank that drives the first pipeline."""
    world.view.execute(textwrap.dedent(answer), silent=True)
    world.view.execute(ASK, silent=True)
    return world.view.pull("verdict", targets=0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("sum(future.wait() for future in losses) / m", "torch.stack(torch.futures.wait_all(losses)).mean()"),
        ("[loss]", "[future.wait() / m for future in losses]"),
        (
            "rpc.rpc_async(next_rank, last_stage, (stage(x), target))",
            "rpc.rpc_async(rank + 1, last_stage, (stage(x), target))",
        ),
    ],
)
def test_my_step_that_is_right(world, old, new):
    assert judged(world, STEP.replace(old, new)) == "Solved."


def test_my_step_skeleton(world):
    assert judged(world, cell(NAME, "def my_step(")) == "Not yet. It called last_stage 1 times, expected 4 times."


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" / m", "", "Not yet. The gradient differs, expected the gradient of one process."),
        (
            "(stage(x), target)",
            "(stage(x).detach(), target)",
            "Not yet. The gradient differs, expected the gradient of one process.",
        ),
        (
            "my_targets.chunk(m)",
            "my_targets.flip(0).chunk(m)",
            "Not yet. The gradient differs, expected the gradient of one process.",
        ),
        ("chunk(m)", "chunk(2)", "Not yet. It called last_stage 2 times, expected 4 times."),
    ],
)
def test_my_step_that_is_wrong(world, old, new, message):
    assert old in STEP
    assert judged(world, STEP.replace(old, new)) == message


def test_my_step_that_waits_for_each(world):
    answer = STEP.replace("rpc_async", "rpc_sync").replace("future.wait()", "future")
    assert judged(world, answer) == "Not yet. It called rpc_sync, expected a call that does not wait for its result."
