"""Ranks on several hosts: names and addresses; cables out and in, paced and counted; hosts in name only."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import ipyparallel as ipp
import pytest
from live import INIT, SUM, Notebook, left_after, ranks_that_raised, wait_until

import helpers.ranks.local
import helpers.world
from helpers import World, WorldError, network, traffic
from helpers.ranks import namespaces
from helpers.ranks.supervisor import Supervisor
from helpers.script import script

ROOT = Path(__file__).parents[2]
SECONDS_TO_VANISH = 10
SECONDS_OF_A_GROUP = 6
MiB = 2**20

SETUP = (
    INIT.format(timeout=SECONDS_OF_A_GROUP)
    + """
import json, socket, subprocess, sys

def outcome_of(collective, *arguments):
    '''What becomes of a call, and when it begins and ends, by the clock of this machine.'''
    begin = time.monotonic()
    try:
        getattr(dist, collective)(torch.ones(1), *arguments)
    except RuntimeError as error:
        return str(error), begin, time.monotonic()
    return "no error", begin, time.monotonic()

def seconds_of_all_reduce(size):
    tensor = torch.ones(size // 4)
    dist.barrier()
    begin = time.monotonic()
    dist.all_reduce(tensor)
    return time.monotonic() - begin

def seconds_of_sends(pairs, size):
    tensor = torch.ones(size // 4)
    dist.barrier()
    begin = time.monotonic()
    for source, destination in pairs:
        if rank == source:
            dist.send(tensor, destination)
        if rank == destination:
            dist.recv(tensor, source)
    return time.monotonic() - begin
"""
)


@pytest.fixture
def world(worlds):
    """Four ranks on two hosts, with a group; each test leaves the cables in, and as fast as they can."""
    if not worlds or helpers.world.current() is not worlds[-1]:
        worlds.append(World(4, hosts=2))
        worlds[-1].view.execute(SETUP, silent=True)
    if not worlds[-1].has_cables:
        pytest.skip(repr(worlds[-1]).splitlines()[0])
    yield worlds[-1]
    if helpers.world.current() is worlds[-1]:
        network.lift(worlds[-1])
        for host in worlds[-1].hosts:
            worlds[-1].plug(host)


@pytest.fixture
def hosts_in_name_only(monkeypatch):
    monkeypatch.setattr(helpers.ranks.local, "Supervisor", partial(Supervisor, private=False))
    world = World(4, hosts=2)
    world.view.execute(SETUP + SUM)
    yield world
    world.stop()


def start(world, function, *arguments):
    return world.view.apply_async(ipp.Reference(function), *arguments)


def wait_until_inside(world, call, ranks=range(4)):
    """Wait until these ranks are inside a call."""
    assert wait_until(lambda: all(world.where()[rank].call == call for rank in ranks), 20), world.where()


def on_ranks(world, function, *arguments):
    return start(world, function, *arguments).get(30)


# ---------------------------------------------------------------- who is where

NAMES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR"]
UNDER_TORCHRUN = """
def torchrun(*program):
    '''Run a program as torchrun does, as the one agent of this host, with two ranks.'''
    given = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
    options = ["--nnodes=2", "--nproc-per-node=2", "--node-rank=" + given.pop("GROUP_RANK")]
    options += ["--master-addr=" + given.pop("MASTER_ADDR"), "--master-port=29500", *program]
    command = [sys.executable, "-m", "torch.distributed.run", *options]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=90)
"""


def torchrun(world, *program):
    """Run a program by torchrun on both hosts of a world, with two ranks on each; return what those of each print."""
    world.view.execute(UNDER_TORCHRUN)
    agents = world.view.client[[0, 2]].apply_async(ipp.Reference("torchrun"), *program).get(120)
    assert [agent.returncode for agent in agents] == [0, 0], agents[0].stderr + agents[1].stderr
    return [agent.stdout for agent in agents]


def test_ranks_wear_the_environment_of_torchrun_on_two_nodes(world):
    world.view.execute(f"worn = [os.environ[name] for name in {NAMES}]")
    # Each line in one piece: two ranks of a host write to one pipe.
    show = f"import json, os; os.write(1, (json.dumps([os.environ[name] for name in {NAMES}]) + chr(10)).encode())"
    said = torchrun(world, "--no-python", sys.executable, "-c", show)
    assert world.view["worn"] == sorted(json.loads(line) for line in "".join(said).splitlines())
    assert [worn[1:5] for worn in world.view["worn"]] == [
        ["4", "0", "2", "0"],
        ["4", "1", "2", "0"],
        ["4", "0", "2", "1"],
        ["4", "1", "2", "1"],
    ]


def test_the_script_of_a_notebook_runs_over_two_hosts(world, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(script(next((ROOT / "notebooks").glob("*_ring_all_reduce.ipynb"))))
    with traffic.cable("host0") as cable:
        assert any(torchrun(world, str(path)))
    assert cable.sent > MiB / 4  # torchrun itself sends about one KiB


def test_each_host_has_a_name_and_an_address_of_its_own(world):
    assert world.hosts == ["host0", "host1"]
    assert [world.host_of(rank) for rank in range(4)] == ["host0", "host0", "host1", "host1"]
    assert world.view.apply_sync(socket.gethostname) == ["host0", "host0", "host1", "host1"]
    assert socket.gethostname() not in world.hosts
    world.view.execute("import psutil; addresses = {c.laddr.ip for c in psutil.Process().net_connections('tcp4')}")
    first, same, second, last = world.view["addresses"]
    assert first == same and second == last and first.isdisjoint(second)
    assert world.view.apply_sync(os.getenv, "MASTER_ADDR")[3] in first


def test_the_table_shows_the_host_of_each_rank(world):
    title, header, *rows = repr(world).splitlines()
    assert title == "World of 4 ranks, on 2 hosts, each with a cable to a switch of their own"
    assert header.split() == ["rank", "host", "pid", "device", "state", "memory"]
    assert [row.split()[:3] for row in rows] == [
        [str(rank), world.host_of(rank), str(world.pids[rank])] for rank in range(4)
    ]


def test_four_hosts_of_one_rank_each():
    world = World(4, hosts=4)
    try:
        world.view.execute(INIT.format(timeout=10) + SUM)
        assert [world.host_of(rank) for rank in range(4)] == world.hosts == ["host0", "host1", "host2", "host3"]
        world.view.execute("local = os.environ['LOCAL_RANK'], os.environ['GROUP_RANK']")
        assert world.view["local"] == [("0", str(rank)) for rank in range(4)]
    finally:
        world.stop()


def test_a_world_on_one_host_is_as_it_was_and_loads_nothing_more():
    world = World(2, hosts=1)
    try:
        assert world.hosts == [socket.gethostname()]
        assert not world.has_cables
        world.view.execute("import sys; loaded = 'pyroute2' in sys.modules")
        assert world.view["loaded"] == [False, False]
        assert repr(world).splitlines()[1].split() == ["rank", "pid", "device", "state", "memory"]
        for use in (
            lambda: world.unplug("host1"),
            lambda: world.plug("host1"),
            lambda: network.limit(world, 1e9, loss=0.1),
        ):
            with pytest.raises(WorldError, match=r"^All ranks of this world are on one host. .*World\(2, hosts=2\)"):
                use()
        with pytest.raises(WorldError, match="^All ranks of this world are on one host"), traffic.cable("host0"):
            pass
    finally:
        world.stop()


# ---------------------------------------------------------------- what passes a cable


def test_the_bytes_of_a_ring_at_each_cable(world):
    size = 16 * MiB
    formula = 2 * 3 / 4 * size
    with traffic.cable("host0") as first, traffic.cable("host1") as second, traffic.loopback() as everywhere:
        assert first.bytes is None
        on_ranks(world, "seconds_of_all_reduce", size)
    for cable, other in ((first, second), (second, first)):
        assert 1 <= (cable.sent - cable.resent) / formula < 1.02
        assert 1 <= (cable.received - other.resent) / formula < 1.02
        assert cable.bytes == cable.sent + cable.received
    assert 1 <= everywhere.bytes / (4 * formula) < 1.2  # with all that TCP has sent again


def test_what_ranks_of_one_host_send_each_other_passes_no_cable(world):
    with traffic.cable("host0") as cable, traffic.loopback() as everywhere:
        on_ranks(world, "seconds_of_sends", [(0, 1), (2, 3)], 4 * MiB)
    assert cable.bytes < MiB / 16
    assert everywhere.bytes > 8 * MiB


def test_rpc_between_hosts_passes_the_cable(broken_world):
    world = broken_world
    world.view.execute("import torch.distributed.rpc as rpc\nrpc.init_rpc(f'rank{rank}', rank=rank, world_size=size)")
    world.view.execute("def same(tensor):\n    return tensor")
    for other, passes in ((1, 0), (2, 1)):
        with traffic.cable("host0") as cable:
            call = f"rpc.rpc_sync('rank{other}', same, args=(torch.ones({4 * MiB}),))"
            world.view.client[0].execute(call, block=True)
        assert cable.sent == pytest.approx(passes * 16 * MiB, rel=0.02, abs=MiB / 16)
    world.view.execute("rpc.shutdown()")


# ---------------------------------------------------------------- a cable out, and in again


def test_a_cable_out_for_less_than_the_timeout_harms_nobody(world):
    world.unplug("host1")
    world.unplug("host1")  # once is as good as twice
    assert repr(world).splitlines()[0].endswith("; the cable of host1 is out")
    answer = start(world, "outcome_of", "all_reduce")
    wait_until_inside(world, "all_reduce")
    time.sleep(1)  # the cable is out for that long
    plugged = time.monotonic()
    world.plug("host1")
    world.plug("host1")
    outcomes = answer.get(30)
    assert [outcome for outcome, _, _ in outcomes] == ["no error"] * 4
    assert min(end for _, _, end in outcomes) > plugged
    assert "is out" not in repr(world)


def test_a_cable_out_for_good_is_everybodys_timeout_and_nobodys_before(broken_world):
    world = broken_world
    world.unplug("host0")
    answer = start(world, "outcome_of", "all_reduce")
    wait_until_inside(world, "all_reduce")  # asked from outside, not over the cable
    outcomes = answer.get(30)
    said = [outcome for outcome, _, _ in outcomes]
    assert all("Timed out waiting" in outcome or "Connection closed" in outcome for outcome in said), outcomes
    first_timeout = min(begin for _, begin, _ in outcomes) + SECONDS_OF_A_GROUP
    assert min(end for _, _, end in outcomes) > first_timeout - 0.2, outcomes


def test_the_ranks_behind_a_cable_that_is_out_still_reach_each_other_and_the_notebook(broken_world):
    world = broken_world
    world.unplug("host1")
    on_ranks(world, "outcome_of", "all_reduce")  # which the two hosts give up
    world.view.execute("listener = socket.create_server(('0.0.0.0', 29600)) if rank == 2 else None")
    world.view.client[3].execute("socket.create_connection(('10.77.0.12', 29600), timeout=2).close()", block=True)
    with pytest.raises(ipp.CompositeError, match="OSError|timed out|TimeoutError"):
        world.view.client[[0]].execute("socket.create_connection(('10.77.0.12', 29600), timeout=2)", block=True)


def test_a_death_is_heard_of_at_once_on_the_other_host(broken_world):
    world = broken_world
    answer = world.view.client[0].apply_async(ipp.Reference("outcome_of"), "recv", 3)
    wait_until_inside(world, "recv", [0])
    os.kill(world.pids[3], signal.SIGKILL)
    outcome, _, _ = answer.get(30)
    assert re.search("Connection (closed|reset) by peer", outcome)  # after the timeout it would be "Timed out waiting"
    # The supervisor may hear of it a moment after the peer, which until then is silent.
    assert [state.state for state in world.where(until={3: "dead"})] == ["idle"] * 3 + ["dead"]


def test_one_rank_comes_back_on_its_host(broken_world):
    world = broken_world
    os.kill(world.pids[3], signal.SIGKILL)
    world.restart(rank=3)
    assert world.view.apply_sync(socket.gethostname) == ["host0", "host0", "host1", "host1"]
    network = "network = __import__('os').readlink('/proc/self/ns/net')"
    world.view.execute(network)
    assert world.view["network"][3] == world.view["network"][2] != world.view["network"][0]
    world.view.client[[0, 1, 2]].execute("dist.destroy_process_group()", block=True)
    world.new_store()
    world.view.execute(SETUP + SUM)


def test_restart_and_new_store_with_a_cable_out(broken_world):
    world = broken_world
    network.limit(world, 8e5)
    world.unplug("host1")
    world.restart()
    assert "is out" not in repr(world)
    for _ in range(2):
        world.view.execute(SETUP)
        assert max(on_ranks(world, "seconds_of_all_reduce", 4 * MiB)) < 25  # paced it would take 63 s
        world.view.execute("dist.destroy_process_group()")
        world.new_store()


# ---------------------------------------------------------------- a slow cable


def test_no_byte_is_faster_than_the_cable(world):
    # A lower bound only: how much longer it takes is the machine's affair, and that of the benchmarks.
    size, bits_per_second = 4 * MiB, 100e6
    cables = network.limit(world, bits_per_second)
    assert cables
    in_a_burst = 0.005 * bits_per_second / 8  # of each cable, once on the way out and once on the way in
    formula = (2 * 3 / 4 * size - 2 * in_a_burst) / (bits_per_second / 8)
    assert max(on_ranks(world, "seconds_of_all_reduce", size)) > formula


def test_two_ranks_of_a_host_share_its_cable_and_inside_a_host_nothing_is_paced(world):
    size, bits_per_second = MiB, 16e6
    network.limit(world, bits_per_second)
    one = size / (bits_per_second / 8)
    assert max(on_ranks(world, "seconds_of_sends", [(0, 2), (1, 3)], size)) > 1.8 * one
    network.limit(world, bits_per_second / 40)
    assert max(on_ranks(world, "seconds_of_sends", [(0, 1), (2, 3)], size)) < 20 * one
    network.lift(world)
    assert max(on_ranks(world, "seconds_of_sends", [(0, 2), (1, 3)], size)) < 20 * one


def test_the_cables_show_as_a_table(world):
    cables = network.limit(world, 2e8)
    assert repr(cables).splitlines() == [
        "2 cables, which all connections of a host share; inside a host nothing is paced.",
        "cable of  each way    delay  loss",
        "host0     200 Mbit/s  0 ms   0.0%",
        "host1     200 Mbit/s  0 ms   0.0%",
    ]
    assert cables.rates == [{2: 2e8, 3: 2e8}] * 2 + [{0: 2e8, 1: 2e8}] * 2
    assert "no limit" in repr(network.lift(world))


def test_ranks_and_shared_pace_connections_between_hosts(world):
    links = network.limit(world, 8e5, ranks=[3])
    assert links.rates == [{3: 8e5}, {3: 8e5}, {}, {0: 8e5, 1: 8e5}]
    network.limit(world, 1e9)  # of the cables, and of nothing else any more
    assert max(on_ranks(world, "seconds_of_all_reduce", 4 * MiB)) < 25
    network.limit(world, 8e5, shared=[0])
    network.lift(world)
    assert max(on_ranks(world, "seconds_of_all_reduce", 4 * MiB)) < 25  # paced it would take 63 s


def test_delay_and_loss_where_the_kernel_has_them(world):
    try:
        network.limit(world, 1e9, delay=0.05)
    except WorldError as error:
        assert str(error).startswith(
            "No cable is paced: the kernel of this system cannot delay or lose packets (netem)."
        )
        assert max(on_ranks(world, "seconds_of_all_reduce", MiB)) < 5
        pytest.skip(str(error))
    assert max(on_ranks(world, "seconds_of_sends", [(0, 2), (2, 0)], 4)) > 0.1
    network.limit(world, 1e9, delay=0.001, loss=0.01)
    on_ranks(world, "seconds_of_all_reduce", MiB)


@pytest.mark.parametrize("arguments", [{"delay": -1}, {"delay": float("nan")}, {"loss": 1}, {"loss": -0.1}])
def test_a_delay_or_a_loss_that_makes_no_sense(world, arguments):
    with pytest.raises(WorldError, match="give the delay in seconds, as in 0.01, and the loss as a share"):
        network.limit(world, 1e9, **arguments)


def test_a_rate_that_no_cable_can_be_given(world):
    with pytest.raises(WorldError, match=r"a cable can be paced up to 34.4 Gbit/s"):
        network.limit(world, 1e12)


@pytest.mark.parametrize("pace", [(0, 0, 0), ("1e9", 0, 0), (1e9, None, 0), (1e9, 0, 1), (1e9, -1, 0), (True, 0, 0)])
def test_a_pace_that_makes_no_sense(world, pace):
    with pytest.raises(WorldError, match=r"^pace\(.*give the "):
        world.cables.pace(*pace)


def test_an_error_in_the_supervisor_comes_back_whatever_it_is(world):
    supervisor = world.cables._supervisor
    for pace, error in (((0, 0, 0), ZeroDivisionError), (("x", 0, 0), TypeError)):
        with pytest.raises(error):
            supervisor.pace(*pace)
    assert on_ranks(world, "seconds_of_all_reduce", 4)
    network.lift(world)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("size, hosts", [(4, 3), (4, 5), (1, 2)])
def test_ranks_that_cannot_be_divided(size, hosts):
    with pytest.raises(WorldError, match=rf"^World\({size}, hosts={hosts}\): {size} ranks cannot be divided evenly"):
        World(size, hosts=hosts)


@pytest.mark.parametrize("hosts", [0, -1, "2", 2.0, True, None])
def test_a_number_of_hosts_that_is_none(hosts):
    with pytest.raises(WorldError, match="give the number of hosts as a whole number from 1 up, as in hosts=2"):
        World(4, hosts=hosts)


@pytest.mark.parametrize("host", ["nobody", 1, None])
def test_a_host_that_is_not_there(world, host):
    for use in (world.unplug, world.plug, lambda host: traffic.cable(host).__enter__()):
        with pytest.raises(WorldError, match="^There is no host .*: the hosts of this world are host0, host1.$"):
            use(host)


def test_use_after_stop_and_after_the_end_of_what_holds_the_cables():
    world = World(2, hosts=2)
    try:
        if world.has_cables:
            os.kill(world._ranks._supervisor.pid, signal.SIGKILL)
            with pytest.raises(WorldError, match="has ended. Call world.restart"):
                world.unplug("host1")
            world.restart()
            world.view.execute(INIT.format(timeout=10) + SUM)
    finally:
        world.stop()
    for use in (lambda: world.hosts, lambda: world.unplug("host1"), lambda: world.plug("host1")):
        with pytest.raises(WorldError, match="^This world has been stopped"):
            use()


# ---------------------------------------------------------------- nothing is left


def networks():
    """Return the network namespaces of all processes, as the system numbers them."""
    found = set()
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(process))
        except OSError:  # somebody else's, or it has just ended
            pass
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")
@pytest.mark.parametrize("state", ["idle", "stuck behind a cable that is out"])
def test_nothing_outlives_a_killed_kernel(state):
    notebook = Notebook()
    try:
        notebook.run("from helpers import World\nworld = World(4, hosts=2)\n%px import os")
        notebook.run("%%px\n" + INIT.format(timeout=30))
        notebook.run("%px network = os.readlink('/proc/self/ns/net')")
        of_the_ranks = set(notebook.run("print(*world.view['network'])").split())
        if notebook.run("print(world.has_cables)") == "True\n":
            assert len(of_the_ranks) == 2 and of_the_ranks < networks()
            notebook.run("world.unplug('host1')")
        else:
            of_the_ranks -= networks()
        if state != "idle":
            notebook.run("%%px --noblock\ndist.all_reduce(torch.ones(1))")
            notebook.run("while not all(state.call == 'all_reduce' for state in world.where()):\n    pass")
        processes = notebook.processes()
        assert len(processes) >= 9
        interfaces = socket.if_nameindex()
        os.kill(notebook.pid, signal.SIGKILL)
        assert left_after(processes, SECONDS_TO_VANISH) == []
        assert networks().isdisjoint(of_the_ranks)
        assert socket.if_nameindex() == interfaces
        assert not {"host0", "host1", "switch"} & {name for _, name in interfaces}
    finally:
        notebook.close()


def test_interrupt_and_last_words_of_a_rank_on_another_host():
    notebook = Notebook()
    try:
        notebook.run("from helpers import World\nworld = World(2, hosts=2)")
        all_are_inside = notebook.sees("all(state.line for state in world.where())")
        shown = notebook.run("%%px\nimport time\nwhile True:\n    time.sleep(0.01)", interrupt_when=all_are_inside)
        assert ranks_that_raised(shown) in ("0-1", "0 1") and "KeyboardInterrupt" in shown
        shown = notebook.run("%%px --targets 1\nimport os\nos.write(2, b'what(): no\\n')\nos.abort()")
        assert "WorldError: Rank 1 has died (SIGABRT).\nCall world.restart() for working ranks.\n" in shown
        assert "Rank 1 wrote before it died:\n" in shown and shown.rstrip().endswith("what(): no")
    finally:
        notebook.close()


# ---------------------------------------------------------------- any user, and no namespaces

AS_AN_ORDINARY_USER = f"""
import os
from helpers import World, network, traffic

world = World(4, hosts=2)
world.view.execute({INIT.format(timeout=10) + SUM!r})
print(os.getuid(), world.has_cables, world.view.apply_sync(os.getuid))
world.unplug("host1")
answer = world.view.execute("dist.all_reduce(torch.ones(1))", block=False)
print(answer.wait(0.5))
world.plug("host1")
answer.get(8)
network.limit(world, 1e9)
with traffic.cable("host0") as cable:
    world.view.execute("dist.all_reduce(torch.ones(2**20))")
print(1 <= cable.sent / (2 * 3 / 4 * 2**22) < 1.02)
world.restart()
world.view.execute({INIT.format(timeout=10) + SUM!r})
world.stop()
"""


def python_of_an_ordinary_user():
    """Return a Python that user nobody may run with the packages of this one, None when there is none."""
    for python in [sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")]:
        command = [python, "-c", "import sys, torch, ipyparallel, helpers.world; print(sys.version_info[:2])"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60, **as_nobody("/"))
        except (OSError, TypeError):
            continue
        if found.stdout.strip() == str(sys.version_info[:2]):
            return python
    return None


def as_nobody(home):
    path = os.pathsep.join([str(ROOT), *(folder for folder in sys.path if "site-packages" in folder)])
    return {
        "user": 65534,
        "group": 65534,
        "extra_groups": [],
        "env": {"PYTHONPATH": path, "HOME": str(home), "PATH": os.environ["PATH"]},
    }


def test_an_ordinary_user_has_cables_too(world):
    if os.geteuid() != 0:
        pytest.skip("all these tests run as an ordinary user")
    python = python_of_an_ordinary_user()
    if python is None:
        pytest.skip("there is no Python here that user nobody may run")
    command = [python, "-c", AS_AN_ORDINARY_USER]
    home = Path("/tmp") if os.access("/tmp", os.W_OK) else Path.cwd()
    folder = home / f"hosts-{os.getpid()}"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    try:
        result = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120, **as_nobody(folder))
    finally:
        shutil.rmtree(folder)
    assert result.returncode == 0, result.stderr
    shown = [line for line in result.stdout.replace("\r", "\n").splitlines() if line and "starting" not in line]
    assert shown == ["65534 True [65534, 65534, 65534, 65534]", "False", "True"]


def test_where_namespaces_are_forbidden_ranks_are_told_which_host_they_are_on(hosts_in_name_only):
    world = hosts_in_name_only
    title, header, *rows = repr(world).splitlines()
    assert title.startswith("World of 4 ranks, on 2 hosts in name only, on the loopback of this machine")
    assert namespaces.why_none() in title
    assert header.split()[:2] == ["rank", "host"]
    assert [row.split()[1] for row in rows] == ["host0", "host0", "host1", "host1"]
    assert not world.has_cables
    world.view.execute(f"worn = [os.environ[name] for name in {NAMES}]")
    assert world.view["worn"] == [
        ["0", "4", "0", "2", "0", "127.0.0.1"],
        ["1", "4", "1", "2", "0", "127.0.0.1"],
        ["2", "4", "0", "2", "1", "127.0.0.1"],
        ["3", "4", "1", "2", "1", "127.0.0.1"],
    ]
    for use in (
        lambda: world.unplug("host1"),
        lambda: world.plug("host1"),
        lambda: network.limit(world, 1e9, delay=0.1),
    ):
        with pytest.raises(WorldError, match="^The hosts of this world have no cables: ") as refusal:
            use()
        assert namespaces.why_none() in str(refusal.value)
    links = network.limit(world, 8e6)
    assert links.rates == [{2: 8e6, 3: 8e6}] * 2 + [{0: 8e6, 1: 8e6}] * 2
    network.lift(world)
    world.restart()
    world.view.execute(INIT.format(timeout=10) + SUM)


# There is a file too few for the namespaces of a host.
TOO_FEW_FILES = """
import os, resource
from helpers.ranks import namespaces

if namespaces.enter_private_network():
    before = os.listdir("/proc/self/fd")
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 3, lowest + 3))
    try:
        namespaces.make_host("host0")
    except OSError as error:
        print(error.strerror)
    print(os.listdir("/proc/self/fd") == before)
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no child")
"""


def test_a_host_that_cannot_be_made_leaves_no_process_and_no_file(world):
    result = subprocess.run([sys.executable, "-c", TOO_FEW_FILES], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines() == ["Too many open files", "True", "no child"], result


def test_why_there_are_no_namespaces_is_said_with_what_allows_them(monkeypatch, tmp_path):
    setting = tmp_path / "kernel/apparmor_restrict_unprivileged_userns"
    monkeypatch.setattr(namespaces, "_FOLDER_OF_SETTINGS", tmp_path)
    assert "docker run --security-opt seccomp=unconfined" in namespaces.why_none()
    setting.parent.mkdir()
    setting.write_text("1\n")
    assert "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" in namespaces.why_none()
    setting.write_text("0\n")
    assert "docker" in namespaces.why_none()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert namespaces.why_none() == "this system (darwin) has none, Linux has"
