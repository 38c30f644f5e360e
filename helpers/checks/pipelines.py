"""Exercises of 32_pipelines: backward through stages that exchange messages, and the orders in which stages work."""

from collections.abc import Iterable

import torch
from torch import nn

from helpers.checks.exam import answer, errors_of_answer, exercise, near, show

_WIDTH, _SAMPLES = 4, 6


@exercise
def my_backward(exam):
    """Check `my_backward(x, output, targets)`: the gradients of every stage equal those of one process."""
    layers, inputs, targets = _pipeline(exam.n)
    nn.functional.mse_loss(nn.Sequential(*layers)(inputs), targets).backward()
    gradient = exam.on_rank(_gradient_of_stage, exam.rank, exam.n)
    if exam.require(
        gradient is not None,
        f"The parameters of stage {exam.rank} have no gradient, expected the gradient of one process.",
    ):
        difference = _compared(gradient, layers[exam.rank].weight.grad)
        exam.require(not difference, f"The gradient of stage {exam.rank} is {difference} the gradient of one process.")
    return "Every stage has the gradients of one process."


@exercise
def my_order(exam):
    """Check `my_order(stage, stages, m)`: as short as a schedule can be, with at most `stages - stage` kept.

    Every rank returns the orders of all stages. A backward takes twice as long as a forward.
    """
    for stages, m in ((4, 8), (2, 3), (3, 3), (4, 2), (1, 2)):
        orders = _asked_orders(exam, "my_order", stages, m)
        if _require_order(exam, orders, m, {"F": 1, "B": 2}, expected=3 * (m + stages - 1)):
            _require_room(exam, orders, m, "B", [min(m, stages - stage) for stage in range(stages)])
    return (
        "No order ends sooner, and a stage keeps at most as many micro-batches as there are stages from it to the end."
    )


@exercise
def split_order(exam):
    """Check `split_order(stage, stages, m)`: with B and W apart, a bubble of (p - 1)/(3m + p - 1).

    Every rank returns the orders of all stages. All actions take equally long.
    """
    for stages, m in ((4, 8), (2, 3), (3, 3), (5, 7), (1, 2)):
        orders = _asked_orders(exam, "split_order", stages, m)
        if _require_order(exam, orders, m, {"F": 1, "B": 1, "W": 1}, expected=3 * m + stages - 1):
            _require_room(exam, orders, m, "W", [stages] * stages)
    return "The bubble is (p - 1) / (3m + p - 1): every stage waits for its first micro-batch, and never again."


@exercise
def most_micro_batches(exam):
    """Check `most_micro_batches(order, stages, bytes_each, memory)`: the largest m, up to 64, that fits on all stages.

    The check calls it with several schedules, each a function `order(stage, stages, m)`.
    """
    schedules = {"GPipe's order": _all_forward_first, "1F1B": _one_forward_one_backward, "pairs": _in_pairs}
    for stages, bytes_each, memory in ((4, 100, 650), (4, 100, 400), (4, 100, 399), (3, 64, 63), (2, 10, 10)):
        room = memory // bytes_each
        for name, order in schedules.items():
            fits = [m for m in range(1, 65) if all(max(_kept(order(s, stages, m))) <= room for s in range(stages))]
            expected = max(fits, default=0)
            result = exam.call(order, stages, bytes_each, memory)
            exam.require(
                near(result, expected),
                f"With {name}, {stages} stages, {bytes_each} bytes per micro-batch and {memory} bytes of memory, rank "
                f"{exam.rank} returned {show(result)}, expected {expected}.",
            )
    return (
        "You found the largest m that fits. GPipe's order needs memory for all m, 1F1B at most for one on each stage."
    )


def _pipeline(stages):
    """Return a layer for each stage, inputs and targets, the same on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layers = [nn.Linear(_WIDTH, _WIDTH, dtype=torch.float64) for _ in range(stages)]
        inputs, targets = torch.randn(2, _SAMPLES, _WIDTH, dtype=torch.float64)
    return layers, inputs, targets


def _gradient_of_stage(rank, stages):
    """Return the gradient of this rank's weight after `my_backward`, whose arguments have a graph."""
    layers, x, targets = _pipeline(stages)
    for layer in layers[:rank]:
        x = layer(x)
    x = x.detach().requires_grad_(rank > 0)
    answer("my_backward", [x, layers[rank](x), targets], then="finish")
    return layers[rank].weight.grad


def _compared(gradient, expected):
    """Return "" for equal gradients, the factor between proportional ones in words, and "not" for any others."""
    if torch.allclose(gradient, expected, rtol=1e-9):
        return ""
    factor = (gradient.norm() / expected.norm()).item()
    return (
        f"{factor:.2f} times, expected 1.00 times," if torch.allclose(gradient, factor * expected, rtol=1e-9) else "not"
    )


def _asked_orders(exam, name, stages, m):
    """Return the order of each stage as a list of pairs, or a description of what was returned instead."""
    return [_pairs(order) for order in exam.on_rank(_orders, name, stages, m)]


def _orders(name, stages, m):
    """Return what the learner's function returns for each stage; the actions may come from a generator."""
    orders = []
    for stage in range(stages):
        order = answer(name, [stage, stages, m])
        with errors_of_answer():
            orders.append(list(order) if isinstance(order, Iterable) and not isinstance(order, str) else order)
    return orders


def _pairs(order):
    if not isinstance(order, list):
        return show(order)
    pairs = []
    for action in order:
        try:
            kind, number = action
            pairs.append((str(kind), int(number)))
        except (TypeError, ValueError, OverflowError):
            return f"a list with {action!r}"
    return pairs


def _require_order(exam, orders, m, durations, expected):
    """Require that every stage does each action once, that no stage waits forever, and that all end in time."""
    fault = _fault_of_actions(exam.rank, orders, m, durations) or _fault_of_time(orders, m, durations, expected)
    return exam.require(not fault, fault)


def _fault_of_actions(rank, orders, m, kinds):
    """Return a sentence about the first order that does not do each action once, or ""."""
    wanted = sorted((kind, number) for kind in kinds for number in range(m))
    for stage, order in enumerate(orders):
        where = f"For stage {stage} of {len(orders)} and {m} micro-batches rank {rank} returned"
        if isinstance(order, str):
            return f"{where} {order}, expected a list of pairs such as ('F', 0)."
        for action in order:
            if action not in wanted:
                return f"{where} the action {action!r}, expected {' or '.join(kinds)} with a number below {m}."
        for action in wanted:
            if (times := order.count(action)) != 1:
                return f"{where} {times} times {action!r}, expected once."
    return ""


def _fault_of_time(orders, m, durations, expected):
    """Return a sentence about a stage that waits forever or about a step that takes too long, or ""."""
    case = f"With {len(orders)} stages and {m} micro-batches"
    ticks, stuck = _ticks(orders, durations)
    if stuck:
        stage, action = stuck
        return f"{case} stage {stage} waits forever before {action!r}."
    return f"{case} a step takes {ticks} ticks, expected {expected}." if ticks > expected else ""


def _require_room(exam, orders, m, freed_by, rooms):
    """Require that each stage keeps at most as many micro-batches as it has room for.

    It begins with the last stage, because the lesson asks how many micro-batches the first stage keeps.
    """
    for stage, (order, room) in reversed(list(enumerate(zip(orders, rooms, strict=True)))):
        most = max(_kept(order, freed_by))
        exam.require(
            most <= room,
            f"For stage {stage} of {len(orders)} and {m} micro-batches the order of rank {exam.rank} keeps {most} "
            f"micro-batches at once, expected {room} at most.",
        )


def _kept(order, freed_by="B"):
    """Return how many micro-batches a stage keeps after each action."""
    numbers = [0]
    for kind, _ in order:
        numbers.append(numbers[-1] + (kind == "F") - (kind == freed_by))
    return numbers[1:]


def _ticks(orders, durations):
    """Return when the last stage ends, and the stage that waits forever with its action, or None."""
    ends, free, place = {}, [0] * len(orders), [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while place[stage] < len(order):
                action = order[place[stage]]
                needed = _needed(*action, stage, len(orders))
                if not needed <= ends.keys():
                    break
                free[stage] = max([free[stage], *(ends[need] for need in needed)]) + durations[action[0]]
                ends[(*action, stage)] = free[stage]
                place[stage] += 1
                moved = True
    for stage, order in enumerate(orders):
        if place[stage] < len(order):
            return None, (stage, order[place[stage]])
    return max(free), None


def _needed(kind, number, stage, stages):
    """Return what must have ended, as (kind, micro-batch, stage), before this action can begin."""
    if kind == "F":
        return {("F", number, stage - 1)} if stage else set()
    if kind == "W":
        return {("B", number, stage)}
    after = {("B", number, stage + 1)} if stage < stages - 1 else set()
    return {("F", number, stage)} | after


def _all_forward_first(stage, stages, m):
    return [("F", number) for number in range(m)] + [("B", number) for number in range(m)]


def _in_pairs(stage, stages, m):
    order = []
    for number in range(0, m, 2):
        pair = range(number, min(number + 2, m))
        order += [("F", i) for i in pair] + [("B", i) for i in pair]
    return order


def _one_forward_one_backward(stage, stages, m):
    ahead = min(stages - stage, m)
    order = [("F", number) for number in range(ahead)]
    for number in range(m):
        order.append(("B", number))
        if ahead + number < m:
            order.append(("F", ahead + number))
    return order
