"""Intervals of a time line, and the times that they have in common; `helpers.measure.timeline` records them.

Figures use this module, because it does not import torch.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """An activity of a rank from `begin` to `end`, in seconds by `time.monotonic`, which a machine's ranks share."""

    name: str
    begin: float
    end: float


def covered(intervals: Sequence[Interval], name: str, by: str) -> float:
    """Return the fraction, 0 to 1, of the time of the intervals `name` during which an interval `by` also runs.

    Time in which several intervals of one name overlap counts once. Raises ValueError when no interval is named `name`.
    """
    of, over = _union(intervals, {name}), _union(intervals, {by})
    total = sum(end - begin for begin, end in of)
    if not total:
        raise ValueError(f"there is no interval named {name!r}, only {sorted({i.name for i in intervals})}")
    common = sum(max(0, min(end, other_end) - max(begin, other)) for begin, end in of for other, other_end in over)
    return common / total


def exposed(intervals: Sequence[Interval]) -> list[Interval]:
    """Return the times in which a collective runs and no other interval does, as intervals named "exposed"."""
    communication = {interval.name for interval in intervals if ":" in interval.name}
    computed = _union(intervals, {interval.name for interval in intervals} - communication)
    remaining = []
    for begin, end in _union(intervals, communication):
        for other_begin, other_end in computed:
            if begin < other_begin < end:
                remaining.append((begin, other_begin))
            if other_begin < end:
                begin = max(begin, other_end)
        if begin < end:
            remaining.append((begin, end))
    return [Interval("exposed", begin, end) for begin, end in remaining]


def _union(intervals, names):
    """Return the times in which at least one interval with one of these names runs, as pairs that do not overlap."""
    merged = []
    for begin, end in sorted((i.begin, i.end) for i in intervals if i.name in names):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged
