"""What a rank did when: the intervals of its steps, from torch.profiler."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

# What torch.profiler.profile is made of; that one imports all of torch._inductor when it starts: seconds, and memory.
from torch.autograd.profiler import profile, record_function

from helpers.torch_parts import unfinished_collectives

_BACKWARD = "autograd::engine::evaluate_function"  # begins the name of each step of autograd's engine
_GAP = 1e-3  # seconds: steps of the engine that are closer together are one interval
_ORIGIN = "timeline: origin"
_PAUSE = 1e-3  # seconds


class Interval(NamedTuple):
    """What a rank did from `begin` to `end`, in seconds by `time.monotonic`, which all ranks of a machine share."""

    name: str
    begin: float
    end: float


@contextmanager
def recorded(*names: str) -> Iterator[list[Interval]]:
    """Record what this process does inside the block; the list fills when the block ends, in order of `begin`.

    It holds what the block gives one of these names with `torch.profiler.record_function`; every collective, by the
    name that its backend gives it, as "gloo:all_reduce", from its call until it is complete (a thread of the backend
    notes that, so up to about a millisecond late, and the block ends when the last is noted); and "backward", the time
    in which autograd computes gradients. That ends before `loss.backward()` returns, if that waits for communication
    at its end, as under DistributedDataParallel.
    """
    intervals = []
    with profile() as profiler:
        with record_function(_ORIGIN):
            origin, since = time.monotonic(), time.time_ns()
        yield intervals
        # An end noted later would be written where the profiler's memory has been, which another owner uses by then.
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
    """Return which share, 0 to 1, of the time in intervals of this name falls into intervals of the name `by`.

    Time in which several of them run at once counts once. Raises ValueError when there is no interval of this name.
    """
    of, over = _union(intervals, name), _union(intervals, by)
    total = sum(end - begin for begin, end in of)
    if not total:
        raise ValueError(f"there is no interval named {name!r}, only {sorted({i.name for i in intervals})}")
    common = sum(max(0, min(end, other_end) - max(begin, other)) for begin, end in of for other, other_end in over)
    return common / total


def _extend(intervals, begin, end):
    """Lengthen the last interval of backward by a step of the engine, or begin a new one."""
    for place in range(len(intervals) - 1, -1, -1):
        last = intervals[place]
        if last.name == "backward":
            if begin - last.end <= _GAP:
                intervals[place] = last._replace(end=max(last.end, end))
                return
            break
    intervals.append(Interval("backward", begin, end))


def _union(intervals, name):
    """Return the times in which at least one interval of this name runs, as pairs that do not overlap."""
    merged = []
    for begin, end in sorted((i.begin, i.end) for i in intervals if i.name == name):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged
