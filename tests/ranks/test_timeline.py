"""Intervals of a real step, on one clock for all ranks, and how much of one kind another kind covers."""

import time

import pytest

from helpers.measure.timeline import Interval, covered, exposed

SETUP = """
import time
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from helpers.measure import timeline

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank = dist.get_rank()
model = DistributedDataParallel(nn.Sequential(*[nn.Linear(200, 200) for _ in range(4)]), bucket_cap_mb=0.1)
optimizer = torch.optim.SGD(model.parameters())

def step():
    with record_function("forward"):
        loss = model(torch.ones(8, 200)).sum()
    loss.backward()
    with record_function("optimizer"):
        optimizer.step()

step()
step()  # DDP has its final buckets now
"""


def test_the_intervals_of_a_step(world):
    begin = time.monotonic()
    world.view.execute("with timeline.recorded('forward', 'optimizer') as intervals:\n    step()")
    end = time.monotonic()
    for intervals in world.view["intervals"]:
        names = [interval.name for interval in intervals]
        assert names[:2] == ["forward", "backward"]
        assert names[-1] == "optimizer"
        assert names.count("gloo:all_reduce") == 4
        assert set(names) == {"forward", "backward", "gloo:all_reduce", "optimizer"}
        assert begin <= intervals[0].begin
        assert intervals == sorted(intervals, key=lambda interval: interval.begin)
        assert all(interval.begin < interval.end <= end for interval in intervals)


def test_an_all_reduce_is_complete_on_no_rank_before_it_is_called_on_all(world):
    world.view.execute("""
time.sleep(0.1 * rank)
with timeline.recorded() as intervals:
    dist.all_reduce(torch.ones(10))
""")
    alone = [interval for intervals in world.view["intervals"] for interval in intervals]
    assert [interval.name for interval in alone] == ["gloo:all_reduce"] * 4
    assert min(interval.end for interval in alone) >= max(interval.begin for interval in alone)


def test_the_block_ends_when_every_end_is_noted_and_not_when_a_future_is_done(world):
    """A thread of gloo runs what follows a future first, and then notes the end in the profiler's memory.

    A callback that is added to a future which is done runs at once, in the thread that adds it. So rank 0 comes to the
    all-reduce when the others have added theirs.
    """
    world.view.execute("""
all_have_added = dist.new_group()
with timeline.recorded() as intervals:
    if rank == 0:
        dist.barrier(all_have_added)
    future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    if rank:
        future.add_done_callback(lambda _: time.sleep(0.3))
        dist.barrier(all_have_added)
    future.wait()
""")
    for intervals in world.view["intervals"][1:]:
        ((begin, end),) = [(begin, end) for name, begin, end in intervals if name == "gloo:all_reduce"]
        assert end - begin > 0.3


def test_backward_ends_before_ddp_waits_for_the_other_ranks(world):
    world.view.execute("""
with timeline.recorded("step") as intervals:
    with record_function("step"):
        loss = model(torch.ones(8, 200)).sum()
        time.sleep(2 * (rank == 1))
        loss.backward()
""")
    for rank, intervals in enumerate(world.view["intervals"]):
        backward = sum(interval.end - interval.begin for interval in intervals if interval.name == "backward")
        step = next(interval for interval in intervals if interval.name == "step")
        assert step.end - step.begin > 1.9
        assert backward < 1.5, rank  # much less, but the machine may be busy


def test_two_backwards_are_two_intervals(world):
    world.view.execute("""
with timeline.recorded() as intervals, model.no_sync():
    for _ in range(2):
        model(torch.ones(8, 200)).sum().backward()
        time.sleep(0.05)
""")
    for intervals in world.view["intervals"]:
        pauses = [later.begin - earlier.end for earlier, later in zip(intervals, intervals[1:], strict=False)]
        assert sum(pause >= 0.05 for pause in pauses) == 1
        assert {interval.name for interval in intervals} == {"backward"}


def test_what_is_covered():
    intervals = [
        Interval("backward", 0, 4),
        Interval("all_reduce", 1, 3),
        Interval("all_reduce", 2, 5),  # with the one before: 1 to 5
        Interval("backward", 7, 8),
        Interval("all_reduce", 6, 10),
    ]
    assert covered(intervals, "all_reduce", by="backward") == (3 + 1) / (4 + 4)
    assert covered(intervals, "backward", by="all_reduce") == (3 + 1) / (4 + 1)
    assert covered(intervals, "backward", by="forward") == 0


def test_what_is_not_there_is_not_covered():
    with pytest.raises(ValueError, match="no interval named 'gloo:all_reduce', only \\['backward'\\]"):
        covered([Interval("backward", 0, 4)], "gloo:all_reduce", by="backward")


@pytest.mark.parametrize(
    ("computed", "communicated", "expected"),
    [
        ([(0, 3)], [(3, 5)], [(3, 5)]),
        ([(0, 3)], [(1, 2)], []),
        ([(0, 3), (6, 7)], [(2, 4), (3, 5)], [(3, 5)]),
        ([(0, 2), (3, 4), (6, 7)], [(1, 8)], [(2, 3), (4, 6), (7, 8)]),
        ([], [(1, 2)], [(1, 2)]),
    ],
)
def test_what_is_exposed(computed, communicated, expected):
    intervals = [Interval("backward", *pair) for pair in computed]
    intervals += [Interval("gloo:all_reduce", *pair) for pair in communicated]
    assert exposed(intervals) == [Interval("exposed", *pair) for pair in expected]
