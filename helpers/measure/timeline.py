"""The time line of a rank: the intervals of its operations, from torch.profiler."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

# torch.profiler.profile is built on these, but imports all of torch._inductor, which takes seconds and memory.
from torch.autograd.profiler import profile, record_function

from helpers.torch_parts import unfinished_collectives

_BACKWARD = "autograd::engine::evaluate_function"  # prefix of the name of each step of autograd's engine
_GAP = 1e-3  # seconds: steps of the engine that are closer together are one interval
_ORIGIN = "timeline: origin"
_PAUSE = 1e-3  # seconds


class Interval(NamedTuple):
    """An activity of a rank from `begin` to `end`, in seconds by `time.monotonic`, which a machine's ranks share."""

    name: str
    begin: float
    end: float


@contextmanager
def recorded(*names: str) -> Iterator[list[Interval]]:
    """Record the intervals of this process inside the block; the list is filled when the block ends, sorted by `begin`.

    The list has three kinds of intervals. The first are the blocks that `torch.profiler.record_function` gives one of
    these names. The second are the collectives, under the backend's names, as "gloo:all_reduce", from the call until
    completion. A thread of the backend notes the completion up to about a millisecond late, and the block ends when
    the last completion is noted. The third is "backward", the time in which autograd computes gradients. It ends before
    `loss.backward()` returns if `loss.backward()` finally waits for communication, as in DistributedDataParallel.
    """
    intervals = []
    with profile() as profiler:
        with record_function(_ORIGIN):
            origin, since = time.monotonic(), time.time_ns()
        yield intervals
        # A completion noted later would be written into the profiler's memory after that memory has been freed.
        while unfinished_collectives(since):
            time.sleep(_PAUSE)
    events = sorted(profiler.function_events or [], key=lambda event: event.time_range.start)
    start = next(event.time_range.start for event in events if event.name == _ORIGIN)
    for event in events:
        begin, end = (origin + (at - start) / 1e6 for at in (event.time_range.start, event.time_range.end))
        if event.name.startswith(_BACKWARD):
            _extend(intervals, begin, end)
        elif event.name in names or event.name.startswith(("gloo:", "nccl:")):
            intervals.append(Interval(event.name, begin, end))


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


def _extend(intervals, begin, end):
    """Extend the last "backward" interval by a step of the engine, or begin a new interval."""
    for place in range(len(intervals) - 1, -1, -1):
        last = intervals[place]
        if last.name == "backward":
            if begin - last.end <= _GAP:
                intervals[place] = last._replace(end=max(last.end, end))
                return
            break
    intervals.append(Interval("backward", begin, end))


def _union(intervals, names):
    """Return the times in which at least one interval with one of these names runs, as pairs that do not overlap."""
    merged = []
    for begin, end in sorted((i.begin, i.end) for i in intervals if i.name in names):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged
