"""The time line of a rank: the intervals of its operations, from torch.profiler.

`helpers.measure.intervals` has the intervals themselves, for code that must not import torch.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# torch.profiler.profile is built on these, but imports all of torch._inductor, which takes seconds and memory.
from torch.autograd.profiler import profile, record_function

from helpers.measure.intervals import Interval, covered, exposed
from helpers.torch_parts import unfinished_collectives

__all__ = ["Interval", "covered", "exposed", "recorded"]

_BACKWARD = "autograd::engine::evaluate_function"  # prefix of the name of each step of autograd's engine
_GAP = 1e-3  # seconds: steps of the engine that are closer together are one interval
_ORIGIN = "timeline: origin"
_PAUSE = 1e-3  # seconds


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
