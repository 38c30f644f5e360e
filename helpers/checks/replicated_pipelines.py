"""Exercises of 32_replicated_pipelines: how stale weights are, and how to split ranks into pipelines."""

import torch

from helpers.checks.exam import exercise, number, show

_MIB = 2**20
_ORDERS = [
    "F0 B0 F1 B1",
    "F0 F1 B0 F2 B1 B2",
    "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
    "F0 F1 F2 B2 B1 B0",
    "F1 F0 B1 B0",
    "",
]
# Ranks, bytes of all weights, and bytes of the activations that a stage sends.
_CUTS = [
    (8, 400 * _MIB, _MIB),
    (8, _MIB, 400 * _MIB),
    (8, 8 * _MIB, 12 * _MIB),
    (6, 3 * _MIB, 4 * _MIB),
    (12, 10 * _MIB, 6 * _MIB),
    (4, 10 * _MIB, 4 * _MIB),
    (4, _MIB, 0),
    (1, _MIB, _MIB),
]


@exercise
def staleness(exam):
    """Check `staleness(order)`: for each batch, the updates between its forward and its own update."""
    for text in _ORDERS:
        order = [(action[0], int(action[1:])) for action in text.split()]
        expected = _stale(order)
        result = exam.call(list(order))
        numbers = _numbers(result)
        shown = show(result) if numbers is None else numbers
        exam.require(
            numbers == expected,
            f"For the order {text or '[]'} rank {exam.rank} returned {shown}, expected {expected}.",
        )
    return "Every batch has the right number of updates, even in unusual orders."


@exercise
def best_cut(exam):
    """Check `best_cut(ranks, weights, activations)`: the number of stages with which the busiest rank sends least."""
    for ranks, weights, activations in _CUTS:
        sent = {stages: _most_sent(ranks, stages, weights, activations) for stages in _divisors(ranks)}
        expected = min(sent, key=sent.get)
        result = exam.call(ranks, weights, activations)
        stages = number(result)
        than = f", where a rank sends {sent[stages] / _MIB:.1f} MiB" if stages in sent else ""
        exam.require(
            stages == expected,
            f"For {ranks} ranks, {weights / _MIB:.0f} MiB of weights and {activations / _MIB:.0f} MiB of activations "
            f"rank {exam.rank} returned {show(result)}{than}, expected {expected}, where the busiest sends "
            f"{sent[expected] / _MIB:.1f} MiB.",
        )
    return "Every cut is the one in which the busiest rank sends the fewest bytes."


def _numbers(result):
    """Return an answer as a list of numbers, or None if it is something else."""
    if not isinstance(result, list | tuple | torch.Tensor) or not getattr(result, "shape", (1,)):
        return None
    return [number(part) for part in result]


def _stale(order):
    updates, at_forward, stale = 0, {}, {}
    for kind, batch in order:
        if kind == "F":
            at_forward[batch] = updates
        else:
            stale[batch] = updates - at_forward[batch]
            updates += 1
    return [stale[batch] for batch in sorted(stale)]


def _divisors(ranks):
    return [stages for stages in range(1, ranks + 1) if ranks % stages == 0]


def _most_sent(ranks, stages, weights, activations):
    replicas = ranks // stages
    neighbours = min(stages - 1, 2)
    return neighbours * activations / replicas + 2 * (replicas - 1) / replicas * weights / stages
