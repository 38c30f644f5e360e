"""Exercises of 32_replicated_pipelines: how to split ranks into pipelines."""

from helpers.checks.exam import exercise, number, show

_MIB = 2**20
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


def _divisors(ranks):
    return [stages for stages in range(1, ranks + 1) if ranks % stages == 0]


def _most_sent(ranks, stages, weights, activations):
    replicas = ranks // stages
    neighbours = min(stages - 1, 2)
    return neighbours * activations / replicas + 2 * (replicas - 1) / replicas * weights / stages
