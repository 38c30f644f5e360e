"""What the ranks send is counted, each message once, however it was posted; what the loopback carries is measured."""

import sys
import textwrap

import pytest

from helpers import World
from helpers.measure.traffic import Message, by_pair, loopback

SETUP = """
import time
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.distributed import irecv, isend
from helpers import tap
from helpers.measure.traffic import Message, by_group, collectives, recorded

dist.init_process_group("gloo", timeout=timedelta(seconds=10))
rank = dist.get_rank()
other = 1 - rank
tensor = torch.zeros(6)
subscribers = dict(tap._heard)

def pass_on(tensor):
    if rank == 0:
        dist.send(tensor, dst=1)
    else:
        dist.recv(tensor, src=0)

def restored():
    return tap._heard == subscribers

def counted(messages):
    return [(message.call, message.peer, message.bytes) for message in messages]
"""


@pytest.fixture(scope="module")
def world():
    world = World(3)
    world.view.execute(SETUP)
    yield world
    world.stop()


def counts(world, block, ranks=2):
    """Run a block on the first ranks; return what each of them has counted."""
    block = f"if rank < {ranks}:\n{textwrap.indent(textwrap.dedent(block), '    ')}"
    world.view.execute(f"with recorded() as messages:\n{textwrap.indent(block, '    ')}\nresult = counted(messages)")
    world.view.execute("assert restored()")
    return world.view["result"][:ranks]


def test_send_and_recv(world):
    assert counts(world, "pass_on(tensor)") == [
        [("send", 1, 24)],
        [("recv", 0, 24)],
    ]


def test_the_size_is_that_of_the_tensor(world):
    block = """
        for own in (torch.zeros(()), torch.zeros(3, 5, dtype=torch.uint8), torch.zeros(2, dtype=torch.complex64)):
            pass_on(own)
    """
    assert counts(world, block)[0] == [("send", 1, 4), ("send", 1, 15), ("send", 1, 16)]


def test_isend_and_irecv_also_by_names_of_their_own(world):
    block = """
        received = torch.zeros(6)
        works = [isend(tensor, other, tag=3), irecv(received, other, tag=3)]
        for work in works:
            work.wait()
    """
    assert counts(world, block) == [[("send", other, 24), ("recv", other, 24)] for other in (1, 0)]


def test_receive_from_any_rank_learns_who_sent(world):
    block = """
        if rank == 0:
            dist.send(tensor, 1)
        else:
            work = dist.irecv(tensor)
            early = counted(messages)
            work.wait()
    """
    assert counts(world, block)[1] == [("recv", 0, 24)]
    assert world.view.pull("early", targets=1) == [("recv", None, 24)]


def test_a_batch_counts_as_its_messages(world):
    block = """
        received = torch.zeros(6)
        batch = [dist.P2POp(dist.isend, tensor, other), dist.P2POp(dist.irecv, received, other)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
    """
    assert counts(world, block) == [[("send", other, 24), ("recv", other, 24)] for other in (1, 0)]


def test_objects_count_as_sizes_and_bytes(world):
    block = """
        objects = ["first", {"second": 2}] if rank == 0 else [None, None]
        dist.send_object_list(objects, 1) if rank == 0 else dist.recv_object_list(objects, 0)
    """
    sent, received = counts(world, block)
    assert [message[0] for message in sent] == ["send", "send"]
    assert sent[0] == ("send", 1, 16)
    assert [message[1:] for message in received] == [(0, size) for _, _, size in sent]
    assert world.view.pull("objects", targets=[0, 1]) == [["first", {"second": 2}]] * 2


def test_collectives_are_not_point_to_point(world):
    assert counts(world, "dist.all_reduce(tensor)\ndist.barrier()", ranks=3) == [[], [], []]


def test_peers_are_ranks_of_the_world_in_a_smaller_group_too(world):
    block = """
        group = dist.new_group([1, 2])
        if rank == 1:
            dist.send(tensor, dst=2, group=group)
        if rank == 2:
            dist.recv(tensor, group=group)
    """
    assert counts(world, block, ranks=3) == [[], [("send", 2, 24)], [("recv", 1, 24)]]


def test_times_of_posting_and_waiting(world):
    block = """
        begin = time.monotonic()
        work = dist.isend(tensor, 1) if rank == 0 else dist.irecv(tensor, 0)
        posted = time.monotonic()
        time.sleep(0.05)
        before = messages[0].waited
        waiting = time.monotonic()
        work.wait()
        end = time.monotonic()
        first = messages[0]
        in_order = begin <= first.posted <= posted and before is None and waiting <= first.waited <= end
        pass_on(tensor)
        in_order = in_order and first.waited <= first.ended <= end
        in_order = in_order and end <= messages[1].posted <= messages[1].waited <= messages[1].ended
    """
    counts(world, block)
    assert world.view.pull("in_order", targets=[0, 1]) == [True, True]


def test_messages_keep_what_a_watched_tensor_held_when_they_were_posted(world):
    block = """
        for number in (1.0, 2.0):
            tensor.fill_(number)
            pass_on(torch.zeros(1))
    """
    block = f"if rank < 2:\n{textwrap.indent(textwrap.dedent(block), '    ')}"
    world.view.execute(f"with recorded(watch=tensor) as messages:\n{textwrap.indent(block, '    ')}")
    world.view.execute("seen = [message.seen for message in messages]")
    assert world.view["seen"][:2] == [[[1.0] * 6, [2.0] * 6]] * 2
    assert counts(world, "pass_on(tensor)\nunwatched = messages[0].seen is None")[0] == [("send", 1, 24)]
    assert world.view.pull("unwatched", targets=[0, 1]) == [True, True]


def test_after_an_error_in_the_block_nothing_is_counted_either(world):
    world.view.execute(
        "try:\n    with recorded() as messages:\n        raise ValueError\nexcept ValueError:\n    assert restored()"
    )


def test_nested_blocks_both_count(world):
    block = """
        pass_on(tensor)
        with recorded() as inner:
            pass_on(tensor)
    """
    assert [len(messages) for messages in counts(world, block)] == [2, 2]
    world.view.execute("inner = counted(inner) if rank < 2 else None")
    assert world.view["inner"][:2] == [[("send", 1, 24)], [("recv", 0, 24)]]


def test_nothing_is_counted_afterwards(world):
    block = "pass_on(tensor)"
    counts(world, block)
    world.view.execute(f"if rank < 2:\n    {block}\nlater = len(messages)")
    assert world.view["later"][:2] == [1, 1]


def test_by_pair(world):
    world.view.execute("""
with recorded() as messages:
    work = dist.isend(tensor, (rank + 1) % 3)
    dist.recv(torch.zeros(6), (rank - 1) % 3)
    work.wait()
    if rank < 2:
        pass_on(torch.zeros(1))
""")
    sent = by_pair(world.view["messages"])
    assert sent.bytes.tolist() == [[0, 28, 0], [0, 0, 24], [24, 0, 0]]
    assert sent.messages.tolist() == [[0, 2, 0], [0, 0, 1], [1, 0, 0]]
    assert sent.bytes.sum(axis=1).tolist() == [28, 24, 24]


def test_by_pair_of_large_messages_and_of_none():
    large = Message("send", 1, 3 * 2**30, 0.0)
    sent = by_pair([[large, large], [Message("recv", 0, 3 * 2**30, 0.0)]])
    assert sent.bytes.tolist() == [[0, 6 * 2**30], [0, 0]]
    assert by_pair([[], []]).messages.sum() == 0


def test_the_loopback_carries_what_the_ranks_send(world):
    with loopback() as carried:
        assert carried.bytes is None
        world.view.execute("if rank < 2:\n    pass_on(torch.zeros(2**22))")
    # At least: other programs may use the loopback at the same time.
    assert carried.bytes >= 2**24


OWN = """
from helpers.measure.traffic import own_connections
for _ in range(2):  # the first makes the connections
    dist.barrier()
    with own_connections() as own:
        if rank < 2:
            pass_on(torch.zeros(2**22))
        dist.barrier()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a system does not count for each connection")
def test_the_own_connections_carry_what_a_rank_sends_and_receives(world):
    world.view.execute(OWN)
    busy, idle = world.view.pull("own.bytes", targets=0), world.view.pull("own.bytes", targets=2)
    assert idle < 2**16 and 0 <= busy - 2**24 < 2**16


def test_the_loopback_is_measured_until_an_error(world):
    with pytest.raises(ZeroDivisionError), loopback() as carried:
        world.view.execute("if rank < 2:\n    pass_on(torch.zeros(2**20))")
        1 / 0  # noqa: B018
    assert carried.bytes >= 2**22


def test_collectives_are_counted_by_name(world):
    world.view.execute("""
with collectives() as calls:
    dist.all_reduce(tensor)
    for work in [dist.all_reduce(tensor, async_op=True), dist.broadcast(tensor, 0, async_op=True)]:
        work.wait()
    dist.all_gather([torch.zeros(6) for _ in range(3)], tensor)
    dist.all_gather_into_tensor(torch.zeros(18), tensor)
    dist.reduce_scatter_tensor(torch.zeros(2), tensor)
    dist.all_to_all_single(torch.zeros(6), tensor)
    dist.scatter(torch.zeros(1), [torch.ones(1)] * 3 if rank == 0 else None)
    dist.gather(tensor, [torch.zeros(6) for _ in range(3)] if rank == 0 else None)
    dist.reduce(tensor, 0)
    dist.barrier()
    dist.monitored_barrier()
    if rank < 2:
        pass_on(tensor)
dist.barrier()
calls = dict(calls)
""")
    assert (
        world.view["calls"]
        == [
            {
                "all_reduce": 2,
                "broadcast": 1,
                "all_gather": 2,
                "reduce_scatter": 1,
                "all_to_all": 1,
                "scatter": 1,
                "gather": 1,
                "reduce": 1,
                "barrier": 2,
            }
        ]
        * 3
    )


def test_bytes_are_counted_by_group(world):
    world.view.execute("""
pair = dist.new_group([0, 1])
with by_group() as handed:
    dist.all_reduce(tensor)
    dist.all_gather_into_tensor(torch.zeros(18), tensor)
    dist.all_gather([torch.zeros(6) for _ in range(3)], tensor)
    if rank < 2:
        dist.all_reduce(torch.zeros(2), group=pair)
    dist.barrier()
handed = dict(handed)
dist.all_reduce(tensor)
""")
    everybody = {(0, 1, 2): 24 + 72 + 72}
    assert world.view["handed"] == [everybody | {(0, 1): 8}] * 2 + [everybody]
