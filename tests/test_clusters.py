"""Worlds of engines on several hosts: plain engines, those that SSH starts, and those that Slurm does."""

import os
import signal
import socket
import sys

import pytest
from live import INIT, SUM, wait_until
from virtual_hosts import ADDRESS, VirtualHosts, play, why_not

import helpers.world
from helpers import World, WorldError, traffic

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.mark.parametrize("name", ["plain_engines_on_two_hosts_from_start_to_stop", "a_host_that_cannot_reach_another"])
def test_of(name, tmp_path):
    play(globals()[name], tmp_path)


def start_plain_engines(hosts, folder, places):
    """Start a controller here and an engine on each of these hosts, in the order of their ids."""
    import ipyparallel as ipp

    cluster = ipp.Cluster(profile_dir=f"{folder}/profile", cluster_id="", controller_ip=ADDRESS, log_level=50)
    cluster.start_controller_sync()
    client = cluster.connect_client_sync()
    for number, host in enumerate(places, 1):
        hosts.start(host, [sys.executable, "-m", "ipyparallel.engine", f"--profile-dir={folder}/profile"])
        client.wait_for_engines(number)
    return client, cluster.controller.connection_files["client"]


def plain_engines_on_two_hosts_from_start_to_stop(folder):
    hosts = VirtualHosts(2)
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()  # World registers its magics with it
    client, connection_file = start_plain_engines(hosts, folder, [1, 0, 1])
    world = World.attach(connection_file=connection_file)

    # Ranks are in blocks by host, in the order of the lowest engine on each.
    assert world.hosts == ["host1", "host0"] and world.size == 3
    assert [world.host_of(rank) for rank in range(3)] == ["host1", "host1", "host0"]
    assert world.view.apply_sync(socket.gethostname) == ["host1", "host1", "host0"]
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR"]
    shell.run_cell_magic("px", "", f"import os, time\nworn = [os.environ[name] for name in {names}]\n")
    assert world.view["worn"] == [
        ["0", "3", "0", "2", "0", hosts.addresses[1]],
        ["1", "3", "1", "2", "0", hosts.addresses[1]],
        ["2", "3", "0", "1", "1", hosts.addresses[1]],
    ]
    title, header, *rows = repr(world).splitlines()
    assert "on 2 hosts of a cluster" in title and hosts.addresses[1] in title
    assert [row.split()[:2] for row in rows] == [["0", "host1"], ["1", "host1"], ["2", "host0"]]
    assert all(row.split()[4] == "idle" and int(row.split()[5]) > 20 for row in rows)

    # They form a group. What listens is on the network of the hosts and on the loopback, never on all addresses.
    shell.run_cell_magic("px", "", INIT.format(timeout=10) + SUM)
    shell.run_cell_magic("px", "", LISTENING)
    at = world.view["addresses"]
    assert int(world.view.apply_sync(os.getenv, "MASTER_PORT")[2]) in [
        port for ip, port in at[0] if ip == hosts.addresses[1]
    ]
    assert {ip for of_rank in at for ip, _ in of_rank} == {*hosts.addresses, "127.0.0.1"}
    shell.run_cell_magic("px", "", "dist.destroy_process_group()")
    world.new_store()
    shell.run_cell_magic("px", "", INIT.format(timeout=4) + SUM)

    # Where they are, while two are stuck in C++; and an interrupt, which one of them hears.
    stuck = shell.run_cell_magic("px", "--noblock", STUCK)
    assert wait_until(lambda: [s.call for s in world.where()] == ["recv", "", ""], 10), world.where()
    assert [(s.state, s.line_number) for s in world.where()] == [("busy", 3), ("busy", 5), ("busy", 5)]
    assert world.where()[0].line == "dist.recv(torch.zeros(1), 2)"
    world.interrupt()
    stuck.wait(20)
    assert [error.ename for error in stuck.get(return_exceptions=True)] == ["KeyboardInterrupt"] * 3

    # What cannot be had from afar says so.
    for refused in (lambda: os.kill(world.pids[2], signal.SIGKILL), lambda: world.folder, world.restart, loopback):
        try:
            refused()
        except WorldError as error:
            print(error)
        else:
            raise AssertionError(refused)

    # Deaths, and the last words of the dead: read by a neighbour, or by nobody.
    crash = shell.run_cell_magic("px", "--noblock", "if rank > 0:\n    os.write(2, b'out of luck')\n    os.abort()\n")
    assert crash.wait(20)
    assert [state.state for state in world.where()] == ["idle", "dead", "dead"]
    try:
        shell.run_cell_magic("px", "", "pass")
    except WorldError as error:
        assert "Rank 1 has died (its engine is gone)." in str(error)
        assert "Rank 1 wrote before it died:\nout of luck" in str(error)
        assert "No rank of host0 is free to read" in str(error)
    else:
        raise AssertionError

    # Another notebook has to wait until this one leaves; the engine stays, with nothing open and no log.
    helpers.world._current = None
    assert "Another notebook has made ranks" in refusal(connection_file)
    world.stop()
    assert len(client.ids) == 1 and not list((folder / "profile/log").glob("rank-*"))
    client[:].execute(LISTENING, block=True)
    assert {ip for ip, _ in client[0]["addresses"]} <= {hosts.addresses[1], "127.0.0.1"}


LISTENING = """
import psutil
listening = [c.laddr for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
addresses = [tuple(address) for address in listening]
"""

STUCK = """if rank == 0:
    dist.recv(torch.zeros(1), 2)
while True:
    time.sleep(0.01)
"""


def loopback():
    with traffic.loopback():
        pass


def refusal(connection_file):
    try:
        World.attach(connection_file=connection_file)
    except WorldError as error:
        return str(error)
    raise AssertionError("it was not refused")


def a_host_that_cannot_reach_another(folder):
    hosts = VirtualHosts(2)
    hosts.forget_the_way(0, to=1)
    client, connection_file = start_plain_engines(hosts, folder, [0, 1])
    before = client[:].apply_sync(open_sockets)
    assert "host1 cannot reach host0 (10.77.0.11)" in (why := refusal(connection_file)), why
    assert client[:].apply_sync(open_sockets) == before
    assert helpers.world.current() is None
    hosts.remember_the_way(0, to=1)
    world = World.attach(connection_file=connection_file)
    world.view.execute(INIT.format(timeout=10) + SUM)
    world.stop()


def open_sockets():
    import psutil

    return sorted(tuple(c.laddr) for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN)
