"""The checks of 27_pipelines: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import checks

NAME = "27_pipelines.ipynb"


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


SETUP = "\n".join(
    [
        cell(f"solutions/{NAME}", "init_process_group("),
        "import torch",
        "from torch.nn.functional import mse_loss",
        cell(NAME, "def finish("),
        cell(NAME, "def order_of_the_lesson("),
        cell(NAME, "def one_forward_one_backward("),
    ]
)


# ---------------------------------------------------------------- my_backward

BACKWARD = """
    def my_backward(x, output, targets):
        if last:
            mse_loss(output, targets).backward()
        else:
            gradient = torch.empty_like(output)
            dist.recv(gradient, rank + 1)
            output.backward(gradient)
        if not first:
            dist.send(x.grad, rank - 1)
"""
SOLVED = "Solved. Every stage has the gradients of one process."


def test_backward_skeleton(world):
    assert says(checks.pipelines.my_backward, world, skeleton("my_backward")) == (
        "Not yet. The parameters of stage 0 have no gradient."
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("output.backward(gradient)", "torch.autograd.backward([output], [gradient])"),
        ("output.backward(gradient)", "(output * gradient).sum().backward()"),
        ("dist.recv(gradient, rank + 1)", "dist.irecv(gradient, rank + 1).wait()"),
        ("dist.send(x.grad, rank - 1)", "dist.isend(x.grad, rank - 1).wait()"),
        ("dist.send(x.grad, rank - 1)", "send(x.grad, rank - 1)"),
        ("mse_loss(output, targets).backward()", "(output - targets).square().mean().backward()"),
    ],
)
def test_backward_that_is_right(world, old, new):
    assert says(checks.pipelines.my_backward, world, BACKWARD.replace(old, new)) == SOLVED


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "mse_loss(output, targets).backward()",
            "(2 * mse_loss(output, targets)).backward()",
            "The gradient of stage ",
        ),
        ("output.backward(gradient)", "output.sum().backward()", "The gradient of stage "),
        ("output.backward(gradient)", "output.backward()", "Rank "),
        (
            "mse_loss(output, targets).backward()",
            "mse_loss(output, targets, reduction='sum').backward()",
            "The gradient of stage 0 is 24.00 times that of one process.",
        ),
        ("output.backward(gradient)", "x.grad = gradient.clone()", "The parameters of stage 0 have no gradient."),
    ],
)
def test_backward_that_is_wrong(world, old, new, message, request):
    assert old in BACKWARD
    said = says(checks.pipelines.my_backward, world, BACKWARD.replace(old, new))
    assert said.startswith(f"Not yet. {message}")
    if "restart" in said:
        world.restart()
        world.view.execute(request.module.SETUP, silent=True)


# ---------------------------------------------------------------- my_order

ORDER = cell(NAME, "def order_of_the_lesson(").replace("order_of_the_lesson", "my_order")
ONE_BY_ONE = "Solved. No order ends sooner, and a stage keeps no more micro-batches than there are stages from it to "


def test_order_skeleton(world):
    assert says(checks.pipelines.my_order, world, skeleton("my_order")) == (
        "Not yet. For stage 0 of 4 and 8 micro-batches the order of rank 0 keeps 8 micro-batches at once, "
        "expected 4 at most."
    )


AS_MEGATRON = """
    def my_order(stage, stages, m):
        warm_up = min(stages - stage - 1, m)
        for i in range(warm_up):
            yield "F", i
        for i in range(m - warm_up):
            yield "F", warm_up + i
            yield "B", i
        for i in range(m - warm_up, m):
            yield "B", i
"""
BY_COUNTING = """
    def my_order(stage, stages, m):
        order, forwards, backwards = [], 0, 0
        while backwards < m:
            if forwards < m and forwards - backwards < stages - stage:
                order.append(["F", forwards])
                forwards += 1
            else:
                order.append(["B", backwards])
                backwards += 1
        return order
"""


@pytest.mark.parametrize("answer", [ORDER, AS_MEGATRON, BY_COUNTING])
def test_order_that_is_right(world, answer):
    assert says(checks.pipelines.my_order, world, answer).startswith(ONE_BY_ONE)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("stages - stage", "stage + 1", "With 4 stages and 8 micro-batches stage 0 waits for ever before ('B', 0)."),
        ("stages - stage", "1", "With 4 stages and 8 micro-batches a step takes 96 ticks, expected 33."),
        ("stages - stage", "stages", "With 4 stages and 8 micro-batches a step takes 69 ticks, expected 33."),
        ("min(stages - stage, m)", "stages - stage", "For stage 0 of 4 and 2 micro-batches rank 0 returned the action"),
        ('order.append(("B", i))', "pass", "For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('B', 0), "),
        ('("B", i)', '("B", m - 1 - i)', "With 4 stages and 8 micro-batches stage 0 waits for ever before ('B', 7)."),
        (
            "return order",
            "return None",
            "For stage 0 of 4 and 8 micro-batches rank 0 returned None, expected a list of ",
        ),
        ("return order", "return ['F']", "For stage 0 of 4 and 8 micro-batches rank 0 returned a list with 'F', "),
    ],
)
def test_order_that_is_wrong(world, old, new, message):
    assert old in ORDER
    said = says(checks.pipelines.my_order, world, ORDER.replace(old, new))
    assert said.startswith(f"Not yet. {message}"), said


def test_order_by_the_own_rank(world):
    answer = ORDER.replace("stages - stage", "stages - rank")
    assert says(checks.pipelines.my_order, world, answer).startswith("Not yet. ")


# ---------------------------------------------------------------- split_order

A_THIRD = "Solved. The bubble is (p - 1) / (3m + p - 1): every stage waits for its first micro-batch, and never again."


def test_split_solution(world):
    assert says(checks.pipelines.split_order, world, solution("split_order")) == A_THIRD


def test_split_skeleton(world):
    assert says(checks.pipelines.split_order, world, skeleton("split_order")) == (
        "Not yet. With 4 stages and 8 micro-batches a step takes 30 ticks, expected 27."
    )


BY_ROUNDS = """
    def split_order(stage, stages, m):
        order = []
        for tick in range(m + stages):
            if tick < stages - stage:
                order += [("F", tick)] if tick < m else []
                continue
            i = tick - (stages - stage)
            order += [("B", i)] if i < m else []
            order += [("W", i - stage)] if 0 <= i - stage < m else []
            order += [("F", tick)] if tick < m else []
        return order
"""
WITH_A_QUEUE = """
    def split_order(stage, stages, m):
        from collections import deque
        postponed, order = deque(), []
        for kind, i in one_forward_one_backward(stage, stages, m):
            order.append((kind, i))
            if kind == "B":
                postponed.append(i)
                if len(postponed) > stage:
                    order.append(("W", postponed.popleft()))
        return order + [("W", i) for i in postponed]
"""


@pytest.mark.parametrize("answer", [BY_ROUNDS, WITH_A_QUEUE])
def test_split_that_is_right(world, answer):
    assert says(checks.pipelines.split_order, world, answer) == A_THIRD


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "i >= stage",
            "i >= 2 * m",
            "For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('W', 0), ",
        ),
        ('("W", i - stage)', '("W", i)', "For stage 1 of 4 and 8 micro-batches rank 0 returned 0 times ('W', 0), "),
        ("range(max(0, m - stage), m)", "range(m)", "For stage 0 of 4 and 8 micro-batches rank 0 returned 2 times"),
        ("stages - stage", "1", "With 4 stages and 8 micro-batches a step takes "),
        (
            'order.append(("B", i))\n        if',
            "if",
            "For stage 0 of 4 and 8 micro-batches rank 0 returned 0 times ('B'",
        ),
    ],
)
def test_split_that_is_wrong(world, old, new, message):
    answer = solution("split_order")
    assert old in answer
    said = says(checks.pipelines.split_order, world, answer.replace(old, new))
    assert said.startswith(f"Not yet. {message}"), said


def test_split_with_all_weights_at_the_end(world):
    answer = """
        def split_order(stage, stages, m):
            return one_forward_one_backward(stage, stages, m) + [("W", i) for i in range(m)]
    """
    assert says(checks.pipelines.split_order, world, answer) == (
        "Not yet. With 4 stages and 8 micro-batches a step takes 30 ticks, expected 27."
    )


def test_split_that_runs_further_ahead(world):
    answer = solution("split_order").replace("min(stages - stage, m)", "min(stages - stage + 1, m)")
    assert says(checks.pipelines.split_order, world, answer) == (
        "Not yet. For stage 0 of 4 and 8 micro-batches the order of rank 0 keeps 5 micro-batches at once, "
        "expected 4 at most."
    )


# ---------------------------------------------------------------- most_micro_batches

FITS = "Solved. As many as fit: with GPipe's order memory sets the number, with 1F1B it is enough for any or for few."


def test_most_solution(world):
    assert says(checks.pipelines.most_micro_batches, world, solution("most_micro_batches")) == FITS


def test_most_skeleton(world):
    assert says(checks.pipelines.most_micro_batches, world, skeleton("most_micro_batches")) == (
        "Not yet. With 1F1B, 4 stages, 100 bytes for a micro-batch and 650 in all rank 0 returned 6, expected 64."
    )


FROM_ABOVE = """
    def most_micro_batches(order, stages, bytes_each, memory):
        def needed(actions):
            depth, depths = 0, [0]
            for kind, i in actions:
                depth += {"F": 1, "B": -1}[kind]
                depths.append(depth)
            return bytes_each * max(depths)

        m = 64
        while m > 0 and max(needed(order(s, stages, m)) for s in range(stages)) > memory:
            m -= 1
        return m
"""
WITH_A_SET = """
    def most_micro_batches(order, stages, bytes_each, memory):
        def fits(m):
            for stage in range(stages):
                kept = set()
                for kind, i in order(stage, stages, m):
                    (kept.add if kind == "F" else kept.remove)(i)
                    if bytes_each * len(kept) > memory:
                        return False
            return True

        return max(filter(fits, range(1, 65)), default=0)
"""


@pytest.mark.parametrize("answer", [FROM_ABOVE, WITH_A_SET])
def test_most_that_is_right(world, answer):
    assert says(checks.pipelines.most_micro_batches, world, answer) == FITS


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "> memory",
            ">= memory",
            "With GPipe's order, 4 stages, 100 bytes for a micro-batch and 400 in all rank 0 ret",
        ),
        ("return m - 1", "return m", "With GPipe's order, 4 stages, 100 bytes for a micro-batch and 650 in all rank 0"),
        ("range(stages)", "[stages - 1]", "With 1F1B, 4 stages, 100 bytes for a micro-batch and 399 in all rank 0 ret"),
        ('kept += 1 if kind == "F" else -1', "kept += 1", "With GPipe's order, 4 stages, 100 bytes for a micro-"),
        (
            "return 64",
            "return None",
            "With 1F1B, 4 stages, 100 bytes for a micro-batch and 650 in all rank 0 returned N",
        ),
    ],
)
def test_most_that_is_wrong(world, old, new, message):
    answer = solution("most_micro_batches")
    assert old in answer
    said = says(checks.pipelines.most_micro_batches, world, answer.replace(old, new))
    assert said.startswith(f"Not yet. {message}"), said
