"""The checks of 30_ranks_come_and_go: each accepts right answers of any style, and says what is wrong with others."""

import pytest
from answers import cell, says

from helpers import checks

NAME = "30_ranks_come_and_go.ipynb"
SETUP = cell(f"solutions/{NAME}", "init_process_group(").replace("seconds=10", "seconds=4")


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


# ---------------------------------------------------------------- quorum

QUORUM = """
    def my_quorum(store, name, grace):
        {}
"""
SIGNED = "signed = [other for other in everybody if store.check([str(other)])]"
IN_TURN = """
    def my_quorum(store, name, grace):
        number = store.add("count", 1)
        store.set(f"signature {number}", str(name))
        time.sleep(grace)
        signed = [int(store.get(f"signature {k}")) for k in range(1, store.add("count", 0) + 1)]
        return json.loads(store.compare_set("list", "", json.dumps(sorted(signed))))
"""
ONE_WRITES = """
    def my_quorum(store, name, grace):
        store.set(str(name), "here")
        if store.add("who is first", 1) == 1:
            time.sleep(grace)
            store.set("list", ",".join(str(other) for other in everybody if store.check([str(other)])))
        return [int(other) for other in store.get("list").decode().split(",")]
"""


@pytest.mark.parametrize("answer", [solution("my_quorum"), IN_TURN, ONE_WRITES])
def test_quorum(world, answer):
    assert says(checks.ranks_come_and_go.my_quorum, world, answer) == (
        "Solved. All ranks have the same list, of those who signed in time, and nobody waited for who never came."
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("store.set(str(name), ''); return [name]", "Rank 1 signed 0."),
        (
            f"store.set(str(name), ''); time.sleep(grace); {SIGNED}; return signed",
            "Rank 3 signed when the others had their list; rank 0 returned [0, 1, 2], and rank 3 [0, 1, 2, 3].",
        ),
        (
            f"store.set(str(name), ''); {SIGNED}; return json.loads(store.compare_set('l', '', json.dumps(signed)))",
            "Rank ",  # who comes second depends on the moment
        ),
        ("store.set(str(name), ''); return list(everybody)", "Rank 3 never came, and rank 0 has it on its list, [0, 1"),
        (
            "store.set(str(name), ''); store.wait([str(other) for other in everybody], timedelta(seconds=1)); "
            "return list(everybody)",
            "Rank 0 raised TimeoutError: it waited for what nobody writes",
        ),
        (
            f"store.set(str(name), ''); time.sleep(grace); {SIGNED}; "
            "return store.compare_set('l', '', json.dumps(signed))",
            "Rank 0 returned b'[0, 1, 2]', expected a list of names, as in [0, 2].",
        ),
        ("return quorums(store)", "Rank 0 raised NameError: name 'quorums' is not defined"),
    ],
    ids=["alone", "its own view", "no grace", "everybody", "waits for all", "bytes", "misspelt"],
)
def test_no_quorum(world, lines, message):
    assert says(checks.ranks_come_and_go.my_quorum, world, QUORUM.format(lines)).startswith(f"Not yet. {message}")


def test_quorum_skeleton(world):
    assert says(checks.ranks_come_and_go.my_quorum, world, skeleton("my_quorum")).startswith(
        "Not yet. Rank 1 signed 0."
    )


# ---------------------------------------------------------------- weighed

LOSS = """
    def my_loss(losses, batch, n):
        return {}
"""


@pytest.mark.parametrize(
    "value",
    [
        "losses.sum() * n / batch",
        "(losses * (n / batch)).sum()",
        "losses.mean() * len(losses) / batch * n if len(losses) else losses.sum()",
        "torch.nn.functional.l1_loss(losses, torch.zeros_like(losses), reduction='sum') / (batch / n)",
    ],
)
def test_weighed(world, value):
    assert says(checks.ranks_come_and_go.my_loss, world, LOSS.format(value)).startswith(
        "Solved. However the batch is dealt out"
    )


UNEVEN = "With 17 examples, dealt out as [5, 4, 4, 4], the gradient after DDP's average is "


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("losses.mean()", UNEVEN + "104.5000, expected 105.0000."),
        ("losses.sum() / batch", "With 16 examples, dealt out as [4, 4, 4, 4], the gradient after DDP's average is "),
        ("losses.sum() / n", UNEVEN + "111.5625, expected 105.0000."),
        ("losses.mean() * len(losses) * batch / n", "With 16 examples, dealt out as [4, 4, 4, 4], the gradient after "),
        (
            "losses.sum().item() * n / batch",
            "With 16 examples rank 0 returned 69.0, expected a tensor with one element.",
        ),
        (
            "losses * n / batch",
            "With 16 examples rank 0 returned a tensor of shape [4], expected a tensor with one element.",
        ),
    ],
)
def test_not_weighed(world, value, message):
    assert says(checks.ranks_come_and_go.my_loss, world, LOSS.format(value)).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- caught_up

OBJECTS = """
    def catch_up(step, state):
        steps = [None] * n
        dist.all_gather_object(steps, step)
        furthest = steps.index(max(steps))
        behind = [other for other in range(n) if steps[other] < max(steps)]
        if rank == furthest:
            for other in behind:
                dist.send(state, other)
        elif rank in behind:
            state = torch.empty_like(state)
            dist.recv(state, furthest)
        return state
"""
EXTREMES = """
    def catch_up(step, state):
        ends = torch.tensor([step * n + rank, -step])
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)
        most, furthest = divmod(ends[0].item(), n)
        if most != -ends[1].item():
            dist.broadcast(state, furthest)
        return state
"""
STEPS = """
    def catch_up(step, state):
        steps = [None] * n
        dist.all_gather_object(steps, step)
        {}
        return state
"""


@pytest.mark.parametrize("answer", [solution("catch_up"), OBJECTS, EXTREMES])
def test_caught_up(world, answer):
    assert says(checks.ranks_come_and_go.catch_up, world, answer) == (
        "Solved. Every rank has the state of the furthest, and none is sent when nobody needs one."
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("dist.broadcast(state, steps.index(max(steps)))", "When all are level, rank 0 handed over 10"),
        ("dist.broadcast(state, 0)", "When all but the last rank are behind, rank 0 returned the state of step 7, exp"),
        ("pass", "When rank 1 is new, rank 1 returned the state of step 0, expected the state of step 7."),
        ("dist.all_reduce(state); state /= n", "When rank 1 is new, rank 0 returned the state of step 5.25, expected "),
        ("dist.broadcast(state, steps.index(min(steps)))", "When rank 1 is new, rank 0 returned the state of step 0,"),
        ("state = None", "When rank 1 is new, rank 0 returned None, expected the state of step 7."),
    ],
)
def test_not_caught_up(world, lines, message):
    assert says(checks.ranks_come_and_go.catch_up, world, STEPS.format(lines)).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- majority

MAJORITY = """
    def majority(store, name, grace, last):
        members = quorum(store, name, grace)
        {}
"""


@pytest.mark.parametrize(
    "lines",
    [
        "return members if 2 * len(set(members) & set(last)) > len(last) else None",
        "if sum(other in members for other in last) > len(last) // 2: return members",
        "gone = [other for other in last if other not in members]; "
        "return None if len(gone) >= len(last) / 2 else members",
    ],
)
def test_majority(world, lines):
    assert says(checks.ranks_come_and_go.majority, world, MAJORITY.format(lines)) == (
        "Solved. Nobody goes on without more than half of the last group, so no two groups ever do."
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "return members",
            "When only rank 0 has signed, and the last group was [0, 1, 2, 3], rank 0 returned [0], exp",
        ),
        (
            "return members if 2 * len(members) > len(last) else None",
            "When [0, 3] have signed, of which 3 is new, and the last group was [0, 1, 2], rank 0 returned [0, 3], exp",
        ),
        (
            "return members if 2 * len(set(members) & set(last)) >= len(last) else None",
            "When half have signed, and the last group was [0, 1, 2, 3], rank 0 returned [0, 1], exp",
        ),
        ("return members if members == last else None", "When all but the last rank have signed, and the last group "),
        (
            "return 2 * len(set(members) & set(last)) > len(last)",
            "When all have signed, and the last group was [0, ",
        ),
    ],
)
def test_no_majority(world, lines, message):
    assert says(checks.ranks_come_and_go.majority, world, MAJORITY.format(lines)).startswith(f"Not yet. {message}")


def test_majority_without_a_quorum(world):
    answer = "def majority(store, name, grace, last):\n    return list(last)"
    assert (
        says(checks.ranks_come_and_go.majority, world, answer)
        == "Not yet. Rank 0 did not call `quorum(store, name, grace)`."
    )
