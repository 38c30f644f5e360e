"""Judge the orders in which the stages of a pipeline work, by simulation; 34_pipelines and the next lesson use it."""

from collections.abc import Iterable
from operator import index

from helpers.checks.exam import answer, errors_of_answer, show


def asked_orders(exam, name, stages, m):
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
            pairs.append((str(kind), index(number)))
        except (TypeError, ValueError):
            return f"a list with {action!r}"
    return pairs


def require_order(exam, orders, m, durations, expected, advice=""):
    """Require that every stage does each action once, that no stage waits forever, and that all end in time.

    `advice` says what to try if the step takes too long.
    """
    fault = _fault_of_actions(exam.rank, orders, m, durations)
    fault = fault or _fault_of_time(orders, m, durations, expected, advice)
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


def _fault_of_time(orders, m, durations, expected, advice):
    """Return a sentence about a stage that waits forever or about a step that takes too long, or ""."""
    case = f"With {len(orders)} stages and {m} micro-batches"
    ticks, stuck = _ticks(orders, durations)
    if stuck:
        stage, action = stuck
        return f"{case} stage {stage} waits forever before {action!r}, expected every action to run."
    return f"{case} a step takes {ticks} ticks, expected {expected}. {advice}".strip() if ticks > expected else ""


def require_room(exam, orders, m, freed_by, rooms):
    """Require that each stage keeps at most as many micro-batches as it has room for.

    It begins with the last stage, because the lesson asks how many micro-batches the first stage keeps.
    """
    for stage, (order, room) in reversed(list(enumerate(zip(orders, rooms, strict=True)))):
        most = max(kept_after_each(order, freed_by))
        exam.require(
            most <= room,
            f"For stage {stage} of {len(orders)} and {m} micro-batches the order of rank {exam.rank} keeps {most} "
            f"micro-batches at once, expected {room} at most.",
        )


def kept_after_each(order, freed_by="B"):
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
        return {("I", number, stage)}
    after = {(kind, number, stage + 1)} if stage < stages - 1 else set()
    return {("F", number, stage)} | after
