"""The checks of 28_replicated_pipelines: each accepts the solution, and says what is wrong with other answers."""

import textwrap

import pytest
from answers import cell, says

from helpers import checks

NAME = "28_replicated_pipelines.ipynb"
SETUP = "SEED = 0\n" + "\n".join(
    cell(NAME, contains)
    for contains in ("import os, time", "init_rpc(", "class Layer(", "def new_stage(", "next_rank =", "def judged(")
)


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


# ---------------------------------------------------------------- the step that the learner writes

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
said = judged(my_step) if drives else ""
dist.barrier()
"""


def judged(world, answer):
    """Return what the notebook's own judge says of this step, on the rank that drives the first pipeline."""
    world.view.execute(textwrap.dedent(answer), silent=True)
    world.view.execute(ASK, silent=True)
    return world.view.pull("said", targets=0)


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
    assert judged(world, STEP.replace(old, new)) == "right"


def test_my_step_skeleton(world):
    assert judged(world, cell(NAME, "def my_step(")) == "not yet: calls of last_stage: 1, and the target is 4"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" / m", "", "no: the gradient is not that of one process"),
        ("(stage(x), target)", "(stage(x).detach(), target)", "no: the gradient is not that of one process"),
        ("my_targets.chunk(m)", "my_targets.flip(0).chunk(m)", "no: the gradient is not that of one process"),
        ("chunk(m)", "chunk(2)", "not yet: calls of last_stage: 2, and the target is 4"),
    ],
)
def test_my_step_that_is_wrong(world, old, new, message):
    assert old in STEP
    assert judged(world, STEP.replace(old, new)) == message


def test_my_step_that_waits_for_each(world):
    answer = STEP.replace("rpc_async", "rpc_sync").replace("future.wait()", "future")
    assert judged(world, answer) == "not yet: it waits for each micro-batch before it begins the next one"


# ---------------------------------------------------------------- staleness

STALE = "Solved. Every batch has its number, also in orders that nobody uses."


def test_staleness_solution(world):
    assert says(checks.replicated_pipelines.staleness, world, solution("staleness")) == STALE


def test_staleness_skeleton(world):
    assert says(checks.replicated_pipelines.staleness, world, skeleton("staleness")) == (
        "Not yet. For F0 F1 B0 F2 B1 B2 rank 0 returned [0, 0, 0], expected [0, 1, 1]."
    )


BY_PLACES = """
    def staleness(order):
        result = []
        for batch in range(len(order) // 2):
            between = order[order.index(("F", batch)) : order.index(("B", batch))]
            result.append(sum(kind == "B" for kind, _ in between))
        return result
"""
BY_COUNTS = """
    def staleness(order):
        stale = [0] * (len(order) // 2)
        open_batches = set()
        for kind, batch in order:
            if kind == "F":
                open_batches.add(batch)
                continue
            open_batches.remove(batch)
            for other in open_batches:
                stale[other] += 1
        return tuple(stale)
"""


@pytest.mark.parametrize("answer", [BY_PLACES, BY_COUNTS])
def test_staleness_that_is_right(world, answer):
    assert says(checks.replicated_pipelines.staleness, world, answer) == STALE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "updates += 1",
            "updates += 0",
            "For F0 F1 B0 F2 B1 B2 rank 0 returned [0, 0, 0], expected [0, 1, 1].",
        ),
        ("updates - at_forward[batch]", "updates", "For F0 B0 F1 B1 rank 0 returned [0, 1], expected [0, 0]."),
        ("sorted(stale)", "stale", "For F0 F1 F2 B2 B1 B0 rank 0 returned [0, 1, 2], expected [2, 1, 0]."),
        ("return [stale[batch] for batch in sorted(stale)]", "return max(stale)", "Rank 0 raised ValueError: "),
        ("at_forward[batch] = updates", "at_forward[batch] = batch", "For F0 F1 B0 F2 B1 B2 rank 0 returned [0, 0, 0]"),
    ],
)
def test_staleness_that_is_wrong(world, old, new, message):
    answer = solution("staleness")
    assert old in answer
    said = says(checks.replicated_pipelines.staleness, world, answer.replace(old, new))
    assert said.startswith(f"Not yet. {message}"), said


# ---------------------------------------------------------------- best_cut

BEST = "Solved. Every cut is the one in which the busiest rank sends the fewest bytes."


def test_best_cut_solution(world):
    assert says(checks.replicated_pipelines.best_cut, world, solution("best_cut")) == BEST


def test_best_cut_skeleton(world):
    assert says(checks.replicated_pipelines.best_cut, world, skeleton("best_cut")).startswith("Not yet. For ")


IN_A_LOOP = """
    def best_cut(ranks, weights, activations):
        best, fewest = None, float("inf")
        for replicas in range(ranks, 0, -1):
            stages, rest = divmod(ranks, replicas)
            if rest:
                continue
            sides = {1: 0, 2: 1}.get(stages, 2)
            bytes_sent = sides * activations / replicas + 2 * weights * (replicas - 1) / ranks
            if bytes_sent < fewest - 1e-6:
                best, fewest = stages, bytes_sent
        return best
"""
SORTED = """
    def best_cut(ranks, weights, activations):
        table = []
        for stages in range(1, ranks + 1):
            if ranks % stages == 0:
                copies = ranks // stages
                share = weights / stages
                table.append((2 * share * (copies - 1) / copies + min(stages - 1, 2) * activations / copies, stages))
        return sorted(table)[0][1]
"""


@pytest.mark.parametrize("answer", [IN_A_LOOP, SORTED])
def test_best_cut_that_is_right(world, answer):
    assert says(checks.replicated_pipelines.best_cut, world, answer) == BEST


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min(stages - 1, 2)", "2"),
        ("activations / replicas", "activations"),
        ("2 * (replicas - 1) / replicas * weights / stages", "2 * (replicas - 1) / replicas * weights"),
        ("min(cuts, ", "max(cuts, "),
        ("if ranks % stages == 0", "if True"),
    ],
)
def test_best_cut_that_is_wrong(world, old, new):
    answer = solution("best_cut")
    assert old in answer
    assert says(checks.replicated_pipelines.best_cut, world, answer.replace(old, new)).startswith("Not yet. For ")
