"""Links are paced: every connection between ranks, none other, at the rate that was asked for."""

import os
import sys
from contextlib import suppress

import ipyparallel as ipp
import pytest
from live import wait_until

from helpers import WorldError
from helpers.measure import network
from helpers.probe.connections import duplicate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only the kernel of Linux paces connections")

SETUP = """
import os, socket, time
from datetime import timedelta
import psutil
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, n = dist.get_rank(), dist.get_world_size()

def rates():
    '''The limit of each TCP connection of this rank, in bytes per second, by the port at its other end.'''
    found = {}
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_ESTABLISHED:
            with socket.socket(fileno=os.dup(connection.fd)) as duplicate:
                option = duplicate.getsockopt(socket.SOL_SOCKET, 47, 8)
            found[connection.raddr.port] = int.from_bytes(option, "little")
    return found

def limited():
    return sorted(rate for rate in rates().values() if rate < 2**32 - 1)

def seconds(size):
    tensor = torch.ones(size // 4)
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(tensor)
    return time.perf_counter() - begin
"""


@pytest.fixture(autouse=True)
def without_limits(world):
    """Each test leaves the links as it found them."""
    yield
    network.lift(world)


def on_ranks(world, function, *arguments):
    return world.view.apply_async(ipp.Reference(function), *arguments).get()


def test_every_connection_between_ranks_and_none_other(world):
    before = [len(rates) for rates in on_ranks(world, "rates")]
    links = network.limit(world, 8e6)
    assert on_ranks(world, "limited") == [[1_000_000] * 3] * 4
    # The ones left alone: to the notebook's controller and to the store.
    assert all(count > 3 for count in before)
    assert [len(rates) for rates in on_ranks(world, "rates")] == before
    assert links
    assert links.connections == 6
    assert links.rates == [{peer: 8e6 for peer in range(4) if peer != rank} for rank in range(4)]


def test_the_links_show_as_a_table(world):
    assert repr(network.limit(world, 1e9, ranks=[1])).splitlines() == [
        "3 connections are paced between ranks; connections made later are not.",
        "from \\ to  0         1         2         3",
        "rank 0               1 Gbit/s",
        "rank 1     1 Gbit/s            1 Gbit/s  1 Gbit/s",
        "rank 2               1 Gbit/s",
        "rank 3               1 Gbit/s",
    ]
    assert "no limit" in repr(network.lift(world))


def test_a_slow_rank_leaves_the_other_links_as_they_are(world):
    network.limit(world, 80e6)
    network.limit(world, 8e6, ranks=[2])
    assert on_ranks(world, "limited") == [
        [1_000_000, 10_000_000, 10_000_000],
        [1_000_000, 10_000_000, 10_000_000],
        [1_000_000, 1_000_000, 1_000_000],
        [1_000_000, 10_000_000, 10_000_000],
    ]


def test_a_shared_card_is_divided_among_its_connections(world):
    network.limit(world, 24e6, shared=[0])
    assert on_ranks(world, "limited") == [[1_000_000] * 3] + [[1_000_000, 3_000_000, 3_000_000]] * 3


def test_a_rate_above_4_gbytes_per_second(world):
    network.limit(world, 80e9)
    assert on_ranks(world, "rates")[0] != {}
    world.view.execute("fast = sum(rate == 10_000_000_000 for rate in rates().values())")
    assert world.view["fast"] == [3] * 4


def test_lift(world):
    network.limit(world, 8e6)
    network.lift(world)
    assert on_ranks(world, "limited") == [[]] * 4


def test_no_byte_arrives_before_its_time(world):
    # A lower bound only: how much longer it takes is the machine's affair, and that of the benchmarks.
    # The first packets of a connection that was idle go out at once, hence the 0.8.
    size, bits_per_second = 2**22, 200e6
    network.limit(world, bits_per_second)
    formula = 2 * 3 / 4 * size / (bits_per_second / 8)
    assert max(on_ranks(world, "seconds", size)) > 0.8 * formula


def test_a_group_made_later_is_paced_by_the_next_call(world):
    network.limit(world, 8e6)
    world.view.execute("later = dist.new_group()")
    assert on_ranks(world, "limited") == [[1_000_000] * 3] * 4
    assert network.limit(world, 8e6).connections == 12
    assert on_ranks(world, "limited") == [[1_000_000] * 6] * 4
    world.view.execute("dist.destroy_process_group(later)")


def test_no_descriptor_is_left_open(world):
    count = "files = len(os.listdir('/proc/self/fd'))"
    world.view.execute(count)
    before = world.view["files"]
    network.limit(world, 8e6)
    network.lift(world)
    world.view.execute(count)
    assert world.view["files"] == before


def test_a_descriptor_that_is_no_socket_has_no_duplicate():
    reading, writing = os.pipe()
    os.close(writing)
    for _ in range(2):  # it is a pipe, then closed
        before = len(os.listdir("/proc/self/fd"))
        with duplicate(reading) as connection:
            assert connection is None
        assert len(os.listdir("/proc/self/fd")) == before
        with suppress(OSError):
            os.close(reading)


@pytest.mark.parametrize("rate", [0, -1e9, float("nan"), "1e9", None, True])
def test_a_rate_that_makes_no_sense(world, rate):
    with pytest.raises(WorldError, match="give the rate in bits per second, as in 1e9 for 1 Gbit/s"):
        network.limit(world, rate)


def test_a_rank_that_is_not_there(world):
    for choice in ({"ranks": [4]}, {"shared": [-1]}, {"ranks": [[0]]}, {"ranks": ["a"]}):
        with pytest.raises(WorldError, match="this world has ranks 0 to 3"):
            network.limit(world, 1e9, **choice)


@pytest.mark.parametrize("choice", [{"ranks": 5}, {"shared": 5}, {"ranks": "01"}])
def test_a_choice_that_is_no_list_of_ranks(world, choice):
    with pytest.raises(WorldError, match=r"^limit\(.*\): give a list of ranks, as in (ranks|shared)=\[1, 2\].$"):
        network.limit(world, 1e9, **choice)


@pytest.mark.parametrize("numbers", [{"delay": "x"}, {"loss": None}])
def test_a_delay_or_a_loss_that_is_no_number(world, numbers):
    with pytest.raises(WorldError, match=r"^limit\(delay=.*\): give the delay in seconds"):
        network.limit(world, 1e9, **numbers)


@pytest.mark.parametrize("thing", [None, "world", 1e9])
def test_a_thing_that_is_no_world(thing):
    with pytest.raises(WorldError, match=r"^limit\(.*\): give the world first, as in limit\(world, 1e9\).$"):
        network.limit(thing, 1e9)
    with pytest.raises(WorldError, match=r"^lift\(.*\): give the world first, as in lift\(world\).$"):
        network.lift(thing)


def test_a_rank_that_is_busy(world):
    answer = world.view.execute("if rank == 1:\n    dist.recv(torch.zeros(1), src=0)", block=False)
    assert wait_until(lambda: [state.call for state in world.where()] == ["", "recv", "", ""], 20), world.where()
    with pytest.raises(WorldError, match="A limit on the links needs every rank idle, and rank 1 is busy."):
        network.limit(world, 1e9)
    world.view.client[0].execute("dist.send(torch.zeros(1), dst=1)", block=True)
    answer.get(20)


def test_where_the_kernel_cannot_pace_the_result_says_so_and_is_false():
    links = network.Links([{}, {}], 0)
    assert not links
    assert repr(links).startswith("No link is paced: the kernel of this system")


def test_ranks_without_a_process_group(world):
    world.restart()
    with pytest.raises(WorldError, match="no connections with each other yet: make the process group first"):
        network.limit(world, 1e9)
    world.view.execute(SETUP)
