"""The tap tells its subscribers of every call, disturbs none, and forgets who has left."""

import logging
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from helpers import tap

SETUP = """
import os
from datetime import timedelta
import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from helpers import tap

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, n = dist.get_rank(), dist.get_world_size()
left, right = (rank - 1) % n, (rank + 1) % n
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=20, _transports=["uv"], _channels=["basic"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n, rpc_backend_options=options)

class Box:
    def open(self, lid):
        return lid + 1
"""


@pytest.fixture(scope="module")
def alone():
    """A group of one rank in this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def heard(alone):
    """The subscribers before the test; it asserts that the test has left none behind."""
    before = dict(tap._heard)
    yield before
    assert tap._heard == before


@pytest.fixture
def for_good(heard):
    """A function that subscribes for good; the test takes these subscriptions back."""
    before = list(tap._subscriptions)
    yield tap.subscribe
    with tap._lock:
        tap._subscriptions[:] = before
        tap._renew()


def test_a_subscriber_is_told_before_a_collective_and_after_it(heard):
    tensor, told = torch.ones(3), []

    def begin(event):
        told.append((event, event.end, event.result, time.time_ns()))

    def end(event):
        told.append((event, event.end, event.result, time.time_ns()))

    before = time.time_ns()
    with tap.subscribed(tap.Collective, begin=begin, end=end):
        work = dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True)
    (event, *before_it, begun), (same, *after_it, ended) = told
    assert event is same and before_it == [None, None] and after_it == [event.end, work]
    assert before <= event.begin <= begun <= event.end <= ended
    assert (event.method, event.name, event.group) == ("allreduce", "all_reduce", dist.group.WORLD)
    assert event.options.reduceOp == dist.ReduceOp.MAX
    assert [brought.data_ptr() for brought in event.inputs] == [tensor.data_ptr()]


def test_the_inputs_are_what_a_rank_brings_to_each_collective(heard):
    inputs = []
    one, two = torch.full((2,), 1.0), torch.full((2,), 2.0)

    def note(event):
        inputs.append((event.name, [tensor.tolist() for tensor in event.inputs]))

    with tap.subscribed(tap.Operation, begin=note):
        dist.all_reduce(one)
        with dist.distributed_c10d._coalescing_manager():
            dist.all_reduce(one)
            dist.all_reduce(two)
        dist.broadcast(one, 0)
        dist.reduce(one, 0)
        dist.all_gather([torch.zeros(2)], one)
        dist.gather(one, [torch.zeros(2)])
        dist.scatter(torch.zeros(2), [one])
        dist.reduce_scatter(torch.zeros(2), [one])
        dist.all_to_all([torch.zeros(2)], [one])
        dist.all_to_all_single(torch.zeros(2), one, [2], [2])
        dist.barrier()
        dist.monitored_barrier()
    both = [one.tolist(), two.tolist()]
    names = ["broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "all_to_all"]
    assert inputs == [
        ("all_reduce", both[:1]),
        ("all_reduce", both),
        *[(name, both[:1]) for name in names],
        ("barrier", []),
        ("barrier", []),
    ]


def test_a_wait_is_told_with_its_handle(heard):
    waits = []
    work = dist.all_reduce(torch.ones(1), async_op=True)
    future = torch.futures.Future()
    future.set_result(5)
    with tap.subscribed(tap.Wait, end=waits.append):
        work.wait()
        future.wait()
    assert [(event.handle, event.result) for event in waits] == [(work, True), (future, 5)]


def test_a_call_that_raises_has_no_end(heard):
    waits = []
    future = torch.futures.Future()
    future.set_exception(ValueError("on purpose"))
    with tap.subscribed(tap.Wait, end=waits.append), pytest.raises(ValueError, match="on purpose"):
        future.wait()
    assert [(event.handle, event.end, event.result) for event in waits] == [(future, None, None)]


def test_the_making_of_groups_is_told(heard):
    made = []
    with tap.subscribed(tap.NewGroup, end=made.append):
        group = dist.new_group([0], timeout=timedelta(seconds=7))
    assert [(event.name, event.ranks, event.group) for event in made] == [(group.group_name, (0,), group)]
    assert [event.timeout for event in made] == [timedelta(seconds=7)]


def test_a_subscriber_that_raises_does_not_disturb_the_call_and_its_block_raises_the_error(heard):
    tensor, names = torch.ones(1), []

    def fail(event):
        raise ValueError(f"on purpose, before {event.name}")

    with pytest.raises(ValueError, match="^on purpose, before all_reduce$"):
        with tap.subscribed(tap.Collective, begin=fail, end=lambda event: names.append(event.name)):
            assert dist.all_reduce(tensor, async_op=True).wait()
            dist.barrier()
            names.append("end of block")
    assert names == ["all_reduce", "barrier", "end of block"]


def test_the_error_of_a_subscriber_for_good_is_logged(for_good, caplog):
    def fail(event):
        raise ValueError("on purpose")

    for_good(tap.Collective, end=fail)
    with caplog.at_level(logging.ERROR, logger="helpers.tap"):
        dist.all_reduce(torch.ones(1))
    assert "ValueError: on purpose" in caplog.text


def test_a_second_subscription_for_good_changes_nothing(for_good):
    names = []

    def note(event):
        names.append(event.name)

    for_good(tap.Collective, end=note)
    for_good(tap.Collective, end=note)
    dist.all_reduce(torch.ones(1))
    assert names == ["all_reduce"]


def test_an_error_of_the_block_ends_the_subscription_and_goes_before_that_of_a_subscriber(heard):
    def fail(event):
        raise ValueError("of the subscriber")

    with pytest.raises(ZeroDivisionError), tap.subscribed(tap.Collective, begin=fail):
        dist.all_reduce(torch.ones(1))
        1 / 0  # noqa: B018
    assert tap._heard == heard


def test_a_call_that_begins_inside_the_block_is_told_to_its_end(heard):
    begun, go, events = threading.Event(), threading.Event(), []
    future = torch.futures.Future()

    def begin(event):
        begun.set()

    def wait():
        future.wait()
        go.set()

    thread = threading.Thread(target=wait)
    with tap.subscribed(tap.Wait, begin=begin, end=events.append):
        thread.start()
        assert begun.wait(20)
    assert tap._heard == heard
    future.set_result(7)
    assert go.wait(20)
    thread.join()
    assert [event.result for event in events] == [7]


def test_two_threads_are_told_of_all_calls_each_in_its_own(heard):
    told, group, calls = [], dist.new_group([0]), 200

    def note(event):
        told.append((threading.get_ident(), event.inputs[0].item()))

    def reduce(number):
        for _ in range(calls):
            dist.all_reduce(torch.tensor([number]), group=group if number else None)

    threads = [threading.Thread(target=reduce, args=(number,)) for number in range(2)]
    with tap.subscribed(tap.Collective, begin=note):
        for thread in threads:
            thread.start()
        # Blocks that come and go in another thread take nothing from this one.
        for _ in range(calls):
            with tap.subscribed(tap.Collective, begin=lambda event: None):
                pass
        for thread in threads:
            thread.join()
    assert sorted(told) == sorted((thread.ident, number) for number, thread in enumerate(threads) for _ in range(calls))


def test_messages_are_told_with_the_rank_at_the_other_end(world):
    world.view.execute("""
events = []
with tap.subscribed(tap.PointToPoint, end=events.append):
    work = dist.isend(torch.full((2,), float(rank)), right)
    dist.recv(torch.zeros(2), left)
    work.wait()
    work = dist.isend(torch.zeros(1), right)
    dist.recv(torch.zeros(1))
    work.wait()
    dist.all_reduce(torch.zeros(1))
told = [(event.name, event.peer, [tensor.tolist() for tensor in event.inputs]) for event in events]
""")
    for rank, told in enumerate(world.view["told"]):
        left, right = (rank - 1) % 4, (rank + 1) % 4
        assert told == [
            ("send", right, [[float(rank)] * 2]),
            ("recv", left, []),
            ("send", right, [[0.0]]),
            ("recv", None, []),
        ]


def test_rpcs_are_told_with_what_they_call(world):
    world.view.client[0].execute(
        """
calls, on_rref, waits = [], [], []
with tap.subscribed(tap.Rpc, end=calls.append), tap.subscribed(tap.RpcOnRRef, end=on_rref.append):
    with tap.subscribed(tap.Wait, end=waits.append):
        rpc.rpc_sync("worker1", torch.neg, (torch.ones(1),))
        rpc.rpc_async(2, max, (1, 2)).wait()
        box = rpc.remote("worker3", Box)
        opened = box.rpc_async().open(lid=4).wait()
        fetched = rpc.remote(1, torch.add, (torch.ones(1), 1)).to_here()
told = []
for event in calls:
    name, arguments, keywords = tap.named(event.function, event.arguments, event.keywords)
    told.append((event.kind, getattr(event.to, "name", event.to), name, len(arguments), keywords))
results = [type(event.result).__name__ for event in calls]
on_rref = [(event.rref.owner_name(), event.api, event.method) for event in on_rref]
waits = [type(event.handle).__name__ for event in waits]
""",
        block=True,
    )
    told, results, on_rref, waits, opened = world.view.client[0].pull(
        ["told", "results", "on_rref", "waits", "opened"], block=True
    )
    assert told == [
        ("sync", "worker1", "neg", 1, {}),
        ("async", 2, "max", 2, {}),
        ("remote", "worker3", "Box", 0, {}),
        ("async", "worker3", "_rref_typeof_on_owner", 1, {}),
        ("async", "worker3", "open", 0, {"lid": 4}),
        ("remote", 1, "add", 2, {}),
    ]
    assert results == ["Future", "Future", "PyRRef", "Future", "Future", "PyRRef"]
    assert on_rref == [("worker3", "rpc_async", "open")] and opened == 5
    assert waits[-1] == "PyRRef" and set(waits[:-1]) == {"Future"}
