"""The checks of notebook 01 accept the solutions, and refuse the skeletons and plausible wrong answers, saying why."""

import os
import signal
import textwrap

import pytest
from answers import cell, says
from live import wait_until

from helpers import World, checks
from helpers.checks import judging
from helpers.checks.judging import RESTART

SETUP = """
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, world_size = dist.get_rank(), dist.get_world_size()
"""
CUT_OFF = "Not yet. Deadlock: the group's timeout ended the wait on these ranks: "


def skeleton(function):
    return cell("01_when_ranks_fail.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/01_when_ranks_fail.ipynb", f"def {function}(")


# ---------------------------------------------------------------- my_total

TOTAL = """
def my_total(group):
    numbers = torch.arange(3.0 * world_size + 1)[rank::world_size]
{}
    return result
"""
ONE_CALL_PER_NUMBER = """
    result = 0.0
    for number in numbers:
        dist.all_reduce(number, group=group)
        result += number.item()
"""
TO_RANK_0 = """
    result = numbers.sum()
    dist.reduce(result, dst=0, group=group)
    result = result.item() if rank == 0 else numbers.sum().item()
"""
HIDDEN = """
    result = 0.0
    try:
        for number in numbers:
            dist.all_reduce(number, group=group)
            result += number.item()
    except RuntimeError:
        pass
"""


def test_my_total_solution(world):
    assert says(checks.when_ranks_fail.my_total, world, solution("my_total")) == "Solved. Every rank returned 78.0."


def test_my_total_skeleton(world):
    said = says(checks.when_ranks_fail.my_total, world, skeleton("my_total"))
    assert said == f"{CUT_OFF}0. {RESTART}"
    # The next attempt gets a new group, and that is enough.
    assert says(checks.when_ranks_fail.my_total, world, solution("my_total")).startswith("Solved. ")


@pytest.mark.parametrize(
    "lines",
    [
        "    numbers = torch.cat([numbers, torch.zeros(4 - len(numbers))])" + ONE_CALL_PER_NUMBER,
        "    result = numbers.sum(); dist.all_reduce(result, group=group)",
    ],
    ids=["as many calls on every rank", "a tensor"],
)
def test_my_total_other_solution(world, lines):
    said = says(checks.when_ranks_fail.my_total, world, TOTAL.format(lines))
    assert said == "Solved. Every rank returned 78.0."


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("    numbers = numbers[:3]" + ONE_CALL_PER_NUMBER, "Rank 0 returned 66.0, expected 78.0."),
        ("    result = numbers.sum().item()", "Rank 0 returned 24.0, expected 78.0."),
        (TO_RANK_0, "Rank 1 returned 15.0, expected 78.0."),
        ("    result = None", "Rank 0 returned None, expected 78.0."),
        ("    result = 78.0", "The sum is right, but rank 0 did not get it from the others."),
        (HIDDEN, "Rank 0 returned 66.0, expected 78.0."),
        ("    result = number.sum()", "Rank 0 raised NameError: name 'number' is not defined"),
    ],
    ids=[
        "without the last number",
        "without a call",
        "only to rank 0",
        "returns nothing",
        "a constant",
        "hides the timeout",
        "misspelt",
    ],
)
def test_wrong_my_total(world, lines, sentence):
    assert says(checks.when_ranks_fail.my_total, world, TOTAL.format(lines)) == f"Not yet. {sentence}"


def test_my_total_on_a_stuck_or_dead_rank(broken_world):
    broken_world.view.execute(solution("my_total"))
    broken_world.view.client[1].execute("import time; time.sleep(1000)", block=False)
    assert wait_until(lambda: broken_world.where()[1].state == "busy", 20)
    assert repr(checks.when_ranks_fail.my_total(broken_world)) == f"Not yet. Rank 1 is busy. {RESTART}"
    os.kill(broken_world.pids[1], signal.SIGKILL)
    assert wait_until(lambda: broken_world.where()[1].state == "dead", 20)
    assert repr(checks.when_ranks_fail.my_total(broken_world)) == f"Not yet. Rank 1 is dead. {RESTART}"


# ---------------------------------------------------------------- roll_call

ROLL_CALL = """
def roll_call(group):
    {}
"""
MONITORED = "dist.monitored_barrier(group, timeout=timedelta(seconds={}), wait_all_ranks={})"
RAISE_OWN_ERROR = """
    try:
        dist.monitored_barrier(group, timeout=timedelta(seconds=1), wait_all_ranks=True)
    except RuntimeError as error:
        {}
"""
TOO_LATE = "Rank 0 raised its error too late, expected it within 3 s: how long does it wait?"
ABSENT = "Ranks 1, 3 were absent, and the error on rank 0 names"


def test_roll_call_solution(world):
    said = says(checks.when_ranks_fail.roll_call, world, solution("roll_call"))
    assert said == "Solved. Ranks 1, 3 were absent, and rank 0 named [1, 3] within 3 s."


def test_roll_call_skeleton(world):
    assert says(checks.when_ranks_fail.roll_call, world, skeleton("roll_call")) == f"Not yet. {TOO_LATE}"


@pytest.mark.parametrize(
    "words",
    [
        "absent: 1 and 3",
        "2 of 4 ranks have not come within 1 s: [1, 3]",
        "rank 1, rank 3 are missing (2 of 4)",
        "{1, 3}",
    ],
)
def test_roll_call_other_solution(world, words):
    lines = RAISE_OWN_ERROR.format(f'raise RuntimeError("{words}" if rank == 0 else "see rank 0")')
    said = says(checks.when_ranks_fail.roll_call, world, ROLL_CALL.format(lines))
    assert said == "Solved. Ranks 1, 3 were absent, and rank 0 named [1, 3] within 3 s."


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (MONITORED.format(4, True), TOO_LATE),
        (MONITORED.format(1, False), f"{ABSENT} [1], expected [1, 3]."),
        ("dist.barrier(group, async_op=True).wait(timedelta(seconds=1))", f"{ABSENT} no rank, expected [1, 3]."),
        (
            RAISE_OWN_ERROR.format('raise RuntimeError("ranks 0, 1, 2, 3 are to come")'),
            f"{ABSENT} [0, 1, 2, 3], expected [1, 3].",
        ),
        (
            RAISE_OWN_ERROR.format('raise RuntimeError("2 ranks are absent: 1 is the first")'),
            f"{ABSENT} [2], [1], expected [1, 3].",
        ),
        (
            RAISE_OWN_ERROR.format("pass"),
            "Ranks 1, 3 were absent, and rank 0 raised no error, expected a RuntimeError.",
        ),
        (
            'raise RuntimeError("1, 3")',
            "All ranks had called `roll_call`, and rank 0 raised RuntimeError: 1, 3, expected no error.",
        ),
        ("dist.roll(group)", "Rank 0 raised AttributeError: module 'torch.distributed' has no attribute 'roll'"),
    ],
    ids=[
        "4 s",
        "the first only",
        "a quick barrier",
        "every rank",
        "a count",
        "hides the error",
        "always",
        "no such function",
    ],
)
def test_wrong_roll_call(world, lines, sentence):
    said = says(checks.when_ranks_fail.roll_call, world, ROLL_CALL.format(lines))
    assert said == f"Not yet. {sentence}"


def test_roll_call_that_waits_for_half_an_hour(broken_world, monkeypatch):
    monkeypatch.setattr(judging, "SECONDS_TO_ANSWER", 6)
    # Without a timeout, monitored_barrier does not take that of the group.
    answer = ROLL_CALL.format("dist.monitored_barrier(group)")
    said = says(checks.when_ranks_fail.roll_call, broken_world, answer)
    assert said.startswith("Not yet. roll_call has not ended within 6 s on all ranks; world.where() shows")
    assert "busy" in said and said.endswith(RESTART)


def test_roll_call_that_nobody_has_defined(broken_world):
    broken_world.restart()
    broken_world.view.execute(SETUP)
    assert repr(checks.when_ranks_fail.roll_call(broken_world)) == (
        "Not yet. Rank 0 has no function `roll_call`: run the cell that defines it, then this check."
    )


# ---------------------------------------------------------------- my_metrics

METRICS = """
def my_metrics(metrics, group):
    {}
    return metrics
"""
IN_TWO_LOOPS = """
    for name in metrics:
        if not name.startswith("max"):
            dist.all_reduce(metrics[name], group=group)
    for name in metrics:
        if name.startswith("max"):
            dist.all_reduce(metrics[name], dist.ReduceOp.MAX, group=group)
"""
ALL_SUMMED = """
    for name in sorted(metrics):
        dist.all_reduce(metrics[name], group=group)
"""
BACKWARDS = """
    for name in reversed(metrics):
        op = dist.ReduceOp.MAX if name.startswith("max") else dist.ReduceOp.SUM
        dist.all_reduce(metrics[name], op, group=group)
"""


def test_my_metrics_solution(world):
    said = says(checks.when_ranks_fail.my_metrics, world, solution("my_metrics"))
    assert said == "Solved. Every rank returned correct 10.0, max_tokens 40.0."


def test_my_metrics_skeleton_and_what_the_history_says_of_it(world):
    said = says(checks.when_ranks_fail.my_metrics, world, skeleton("my_metrics"))
    assert said == "Not yet. On rank 0 `correct` is wrong, expected 10.0. Look at world.history()."
    latest = world.history().differences[-1]
    assert (latest.kind, latest.ranks) == ("swapped", (1,))
    assert [call.op for call in latest.calls.values()] == ["SUM", "MAX", "SUM", "SUM"]
    assert latest.calls[1].line == "dist.all_reduce(metrics[name], op, group=group)"


@pytest.mark.parametrize("lines", [IN_TWO_LOOPS, "metrics = dict(sorted(metrics.items()))" + IN_TWO_LOOPS])
def test_my_metrics_other_solution(world, lines):
    assert says(checks.when_ranks_fail.my_metrics, world, METRICS.format(lines)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (ALL_SUMMED, "On rank 0 `max_tokens` is wrong, expected 40.0. Look at world.history()."),
        (BACKWARDS, "On rank 0 `correct` is wrong, expected 10.0. Look at world.history()."),
        ("pass", "On rank 0 `correct` is wrong, expected 10.0. Look at world.history()."),
        ("metrics = None", "Rank 0 returned None, expected a dict with the keys correct, max_tokens."),
        (
            "metrics = {'correct': 10.0, 'max_tokens': 40.0}",
            "The result is right, but rank 0 did not get it from the others.",
        ),
    ],
    ids=["all summed", "backwards", "without a call", "returns nothing", "constants"],
)
def test_wrong_my_metrics(world, lines, sentence):
    said = says(checks.when_ranks_fail.my_metrics, world, METRICS.format(lines))
    assert said == f"Not yet. {sentence}"


# ---------------------------------------------------------------- my_score

SCORE = """
weights = torch.arange(10.0).reshape(10, 1)

def my_score(tokens, group):
    {}
    dist.all_reduce(score, group=group)
    return score.item()
"""
EMBEDDED = "score = torch.nn.functional.embedding({}, weights).sum()"
SKIPS_THE_RANK = """
    if tokens.max() > 9:
        return 0.0
    score = torch.nn.functional.embedding(tokens, weights).sum()
"""


def test_my_score_solution(world):
    said = says(checks.when_ranks_fail.my_score, world, solution("my_score"))
    assert said == "Solved. Every rank returned 18.0."


def test_my_score_skeleton(world):
    said = says(checks.when_ranks_fail.my_score, world, skeleton("my_score"))
    assert said == f"Not yet. Rank 1 raised IndexError: index out of range in self\n{RESTART}"


@pytest.mark.parametrize(
    "lines",
    [
        "score = sum(weights[token, 0] for token in tokens if token < 10)",
        "more = torch.cat([weights, torch.zeros(1, 1)]); score = more[tokens].sum()",
    ],
    ids=["a loop", "a row of zeros"],
)
def test_my_score_other_solution(world, lines):
    assert says(checks.when_ranks_fail.my_score, world, SCORE.format(lines)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (EMBEDDED.format("tokens.clamp(max=9)"), "Rank 0 returned 27.0, expected 18.0."),
        (EMBEDDED.format("tokens[tokens < 9][:1]"), "Rank 0 returned 6.0, expected 18.0."),
        ("return 18.0", "The score is right, but rank 0 did not get it from the others."),
        (SKIPS_THE_RANK, f"Deadlock: the group's timeout ended the wait on these ranks: 0, 2, 3. {RESTART}"),
    ],
    ids=["the last token instead", "the first token only", "a constant", "the rank is left out"],
)
def test_wrong_my_score(world, lines, sentence):
    assert says(checks.when_ranks_fail.my_score, world, SCORE.format(lines)) == f"Not yet. {sentence}"


# ---------------------------------------------------------------- my_survivors

SURVIVORS = """
def my_survivors(store):
    {}
"""
SIGNED = (
    "store.set(f'alive {{rank}}', 'yes'); time.sleep({}); return [r for r in range(4) if store.check([f'alive {{r}}'])]"
)
GETS = "store.set(str(rank), 'yes'); return [r for r in range(world_size) if store.get(str(r))]"
OF_SURVIVORS = """
    if rank == 0:
        store.set("wait", "")
        time.sleep(1.5)
        alive = [r for r in range(world_size) if r == 0 or store.check([f"alive {r}"])]
        store.set("alive", ",".join(map(str, alive)))
    else:
        store.set(f"alive {rank}", "")
    return list(map(int, store.get("alive").decode().split(",")))
"""


def test_my_survivors_solution(broken_world):
    said = says(checks.when_ranks_fail.my_survivors, broken_world, solution("my_survivors"))
    assert said == "Solved. Rank 3 is dead, and every other rank returned [0, 1, 2]."
    # The check can be run again, with the rank that is dead already.
    assert checks.when_ranks_fail.my_survivors(broken_world)


def test_my_survivors_skeleton(broken_world):
    said = says(checks.when_ranks_fail.my_survivors, broken_world, skeleton("my_survivors"))
    assert said == "Not yet. Rank 3 is dead, and rank 0 returned [0, 1, 2, 3], expected [0, 1, 2]."


def survivors_says(world, lines):
    """Return what the check says of an answer; only the ranks that are alive get its code."""
    alive = [state.rank for state in world.where() if state.state != "dead"]
    world.view.client[alive].execute(textwrap.dedent(SURVIVORS.format(lines)), block=True)
    return repr(checks.when_ranks_fail.my_survivors(world))


def test_wrong_my_survivors(broken_world):
    for lines, sentence in [
        (SIGNED.format(0), "Not yet. Rank 3 is dead, and rank 0 returned [0, 1], expected [0, 1, 2]."),
        (SIGNED.format(4.5), "Not yet. Rank 0 returned too late, expected it within 3 s: how long does it wait?"),
        (GETS, f"{CUT_OFF}0, 1, 2. {RESTART}"),
        ("return None", "Not yet. Rank 3 is dead, and rank 0 returned None, expected [0, 1, 2]."),
    ]:
        assert survivors_says(broken_world, lines) == sentence


def test_my_survivors_other_solution(broken_world):
    said = survivors_says(broken_world, OF_SURVIVORS)
    assert said == "Solved. Rank 3 is dead, and every other rank returned [0, 1, 2]."


# ---------------------------------------------------------------- all


@pytest.mark.parametrize("size", [2, 3, 8])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for name in ("my_total", "roll_call", "my_metrics", "my_score", "my_survivors"):
            check = getattr(checks.when_ranks_fail, name)
            assert says(check, world, solution(name)).startswith("Solved. ")
    finally:
        world.stop()
