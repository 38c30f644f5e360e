"""A world from start to stop, on real ranks: what they get, what they are refused, what they leave behind."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from functools import partial
from pathlib import Path

import ipyparallel as ipp
import psutil
import pytest
import torch
from live import INIT, SUM, left_after, wait_until

import helpers.ranks.local
import helpers.world
from helpers import World, WorldError, devices
from helpers.look.sampling import Sampler
from helpers.probe import variables
from helpers.ranks import memory, prefork
from helpers.ranks.rank import log_path
from helpers.ranks.supervisor import Supervisor
from helpers.torchrun import torchrun


@pytest.fixture
def world():
    world = World(4)
    yield world
    world.stop()


def started_here():
    """Every process of a world, but not multiprocessing's own, which stay for the next world."""
    own = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
    ours = psutil.Process()
    processes = ours.children(recursive=True)
    # A rank has the command line of the fork server that it was forked from, and is a child of it.
    return [p for p in processes if p.ppid() != ours.pid or not any(name in " ".join(p.cmdline()) for name in own)]


def run(world, code):
    world.view.execute(textwrap.dedent(code))


def test_engine_ids_are_ranks_and_ranks_wear_the_environment_of_torchrun(world):
    run(world, INIT.format(timeout=10) + SUM)
    assert world.view["rank"] == [0, 1, 2, 3]
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
    run(world, f"seen = {{name: os.environ[name] for name in {names}}}")
    assert world.view["seen"] == [
        {"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"} for r in range(4)
    ]
    run(world, "address = os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'], os.getpid()")
    assert {address[:2] for address in world.view["address"]} == {world.view["address"][0][:2]}
    assert [address[2] for address in world.view["address"]] == world.pids
    run(world, "threads = torch.get_num_threads()")
    assert world.view["threads"] == [1, 1, 1, 1]


def test_a_client_that_misses_a_rank_is_followed_by_another(monkeypatch):
    monkeypatch.setattr(helpers.ranks.local, "_SECONDS_TO_CONNECT_AGAIN", 0)  # even one that misses none
    world = World(4)
    try:
        run(world, INIT.format(timeout=10) + SUM)
        world.restart()
        run(world, INIT.format(timeout=10) + SUM)
        assert world.view["rank"] == [0, 1, 2, 3]
    finally:
        world.stop()


def test_ranks_have_the_environment_and_the_folder_of_the_notebook(monkeypatch, tmp_path):
    World(1).stop()  # the process that ranks are forked from may be older than a change
    monkeypatch.setenv("SET_IN_THE_NOTEBOOK", "yes")
    monkeypatch.chdir(tmp_path)
    world = World(2)
    run(world, "import os; seen = os.environ.get('SET_IN_THE_NOTEBOOK'), os.getcwd()")
    assert world.view["seen"] == [("yes", str(tmp_path))] * 2
    world.stop()


def test_what_torch_warns_of_from_its_depths_stays_out_of_the_cells(world):
    # Where no name server answers, c10d warns of every connection, and the stored outputs would no longer compare.
    # Here it warns because a rank waits in vain for the others, to make a group that they do not make.
    world.view.execute(INIT.format(timeout=5))
    answer = world.view.execute("""
try:
    rank == 0 and dist.new_group(timeout=timedelta(seconds=1))
except dist.DistStoreError:
    print("timed out")
""")
    assert answer.stdout[0] == "timed out\n"
    # The log also has what a notebook shows as the standard error of the cell.
    assert "[c10d]" not in log_path(world._directory, 0).read_text()


def test_text_that_utf_8_cannot_encode_is_shown_with_an_escape(world):
    answer = world.view.execute("print('äöü 漢字')\nprint('\\ud800')\nprint('later')")
    assert answer.stdout == ["äöü 漢字\n\\ud800\nlater\n"] * 4
    assert answer.stderr == [""] * 4


REMOTE_FAILURE = """
import sys, threading
import torch.distributed.rpc as rpc

def fail():
    print("asked")
    raise ValueError("the disk is full")

def own_thread():
    print("from a thread")
    raise ValueError("in a thread")

rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
if rank == 0:
    try:
        rpc.rpc_sync("worker1", fail)
    except ValueError as error:
        print("ValueError: the disk is full" in str(error))
if rank == 2:
    thread = threading.Thread(target=own_thread)
    thread.start()
    thread.join()
rpc.shutdown()  # waits for all ranks, so the cell of rank 1 runs while rank 0 calls
"""


def test_the_traceback_of_a_remote_function_is_in_the_log_of_the_rank_that_ran_it(world):
    world.view.execute(INIT.format(timeout=20))
    answer = world.view.execute(REMOTE_FAILURE)
    assert answer.stdout[0] == "True\n"
    assert answer.stdout[1] == "asked\n"
    assert "Traceback" not in answer.stderr[1]
    log = log_path(world._directory, 1).read_text()
    assert "Traceback" in log and log.count("ValueError: the disk is full\n") == 1
    # The cell's own threads still show both.
    assert answer.stdout[2] == "from a thread\n"
    assert answer.stderr[2].endswith("ValueError: in a thread\n")


DRAW = "import random, numpy, torch; drawn = torch.rand(1).item(), numpy.random.rand(), random.random()"


def test_ranks_draw_numbers_of_their_own_as_under_torchrun(world):
    def all_differ(draws):
        return all(len(set(kind)) == len(kind) for kind in zip(*draws, strict=True))

    run(world, DRAW)
    draws = world.view["drawn"]
    world.restart()
    run(world, DRAW)
    assert all_differ(draws + world.view["drawn"])
    under_torchrun = torchrun(DRAW + "; print(*drawn)", 2) + torchrun(DRAW + "; print(*drawn)", 2)
    assert all_differ([said.split() for said in under_torchrun])


WHO = "import os, random; who = {'names': sorted(os.environ), 'rank': os.environ['RANK'], 'draw': random.random()}"


def test_call_returns_what_the_ranks_return_in_their_order(world):
    world.view.execute("import torch.distributed as dist\ndef plus(number, other=0): return rank + number + other")
    world.view.execute(INIT.format(timeout=10))
    ranks = list(range(world.size))
    assert world.call("plus", 10) == [rank + 10 for rank in ranks]
    assert world.call("plus", 10, 100, targets=1) == 111
    assert world.call("plus", 10, targets=[1, 0]) == [11, 10]
    assert world.call("dist.get_rank") == ranks
    assert world.call(lambda word: word.upper(), "a") == ["A"] * world.size
    with pytest.raises(ipp.error.RemoteError, match="NameError"):
        world.call("minus", 1)
    with pytest.raises(WorldError, match=f"^There is no rank {world.size}: "):
        world.call("plus", 1, targets=world.size)


def test_the_cells_of_a_mark_are_returned_in_their_order_and_once(world):
    for cell in ("# again\na = 1", "# again\nb = a + 1", "c = 3", "# again\na = 1"):
        world.view.execute(cell, silent=False)
    assert world.cells("# again") == ["# again\na = 1", "# again\nb = a + 1"]
    assert world.cells("# never") == []


def test_one_rank_is_replaced_and_the_others_keep_what_they_have(world):
    run(world, INIT.format(timeout=10) + SUM + WHO + "; kept = rank")
    before, pids = world.view["who"], world.pids
    supervisor = psutil.Process(world._ranks._supervisor.pid)
    open_files = supervisor.num_fds()
    os.kill(pids[1], signal.SIGKILL)
    world.restart(rank=1)
    assert supervisor.num_fds() == open_files
    assert [new == old for new, old in zip(world.pids, pids, strict=True)] == [True, False, True, True]
    assert [state.state for state in world.where()] == ["idle"] * 4
    run(world, "here = globals().get('kept'), os.getpid() if 'os' in globals() else None")
    assert world.view["here"] == [(0, pids[0]), (None, None), (2, pids[2]), (3, pids[3])]
    world.view.client[1].execute(WHO, block=True)
    assert {**world.view["who"][1], "draw": before[1]["draw"]} == before[1]
    assert world.view["who"][1]["draw"] != before[1]["draw"]
    world.view.client[[0, 2, 3]].execute("dist.destroy_process_group()", block=True)
    world.new_store()
    run(world, INIT.format(timeout=10) + SUM)


def test_one_rank_is_replaced_whatever_it_does_and_dies_again_like_any_other(world):
    run(world, "kept = 1")
    for code in ("import time; time.sleep(1000)", "sum(range(10**15))"):
        answer = world.view.client[2].execute(code, block=False)
        assert wait_until(lambda: world.where()[2].state == "busy", 20), world.where()
        world.restart(rank=2)
        with pytest.raises(ipp.error.RemoteError, match="EngineError"):
            answer.get(10)
    os.kill(world.pids[2], signal.SIGSTOP)
    world.restart(rank=2)
    os.kill(world.pids[2], signal.SIGKILL)
    assert wait_until(lambda: world.where()[2].line == "SIGKILL", 5)
    world.restart(rank=2)
    run(world, "seen = globals().get('kept')")
    assert world.view["seen"] == [1, 1, None, 1]
    processes = started_here()
    world.stop()
    assert left_after(processes, 5) == []


@pytest.mark.parametrize("rank", [4, -1, "1", 1.0, True])
def test_a_rank_that_is_not_there_is_not_replaced_and_has_no_host(worlds, rank):
    if not worlds or helpers.world.current() is not worlds[-1]:
        worlds.append(World(4))
    for use in (lambda: worlds[-1].restart(rank=rank), lambda: worlds[-1].host_of(rank)):
        with pytest.raises(WorldError, match=r"^There is no rank .*: the ranks of this world are 0 to 3.$"):
            use()


def test_a_second_world_replaces_the_first_with_clean_ranks(world):
    run(world, "kept = 1")
    pids = world.pids
    second = World(2)
    try:
        assert "stopped" in repr(world)
        assert left_after([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], 5) == []
        run(second, INIT.format(timeout=10) + SUM + "clean = 'kept' not in globals()")
        assert second.view["clean"] == [True, True]
    finally:
        second.stop()


def test_repr_shows_rank_pid_device_state_and_memory(world):
    title, header, *rows = repr(world).splitlines()
    assert title.startswith("World of 4 ranks, on ")
    assert header.split() == ["rank", "pid", "device", "state", "memory"]
    assert [row.split()[:2] for row in rows] == [[str(rank), str(pid)] for rank, pid in enumerate(world.pids)]
    assert all(row.split()[3] == "idle" and row.split()[5] == "MiB" for row in rows)


def test_stop_leaves_no_process_and_no_file(world):
    directory = Path(world._directory)
    processes = started_here()
    assert len(processes) >= 7  # four ranks, their supervisor and its store, the controller
    world.stop()
    assert left_after(processes, 5) == []
    assert not directory.exists()
    world.stop()  # a second time does nothing


def test_nothing_listens_off_the_loopback(world):
    run(world, INIT.format(timeout=10) + SUM)
    run(world, "import torch.distributed.rpc as rpc; rpc.init_rpc(f'rank{rank}', rank=rank, world_size=size)")
    addresses = [address for ends in world.view.apply_sync(listening) for address in ends]
    assert len(addresses) > 10  # those of gloo and TensorPipe
    assert {address for address, _ in addresses} <= {"127.0.0.1", "::1"}
    run(world, "rpc.shutdown()")


def listening():
    """Return the addresses on which this process listens."""
    import psutil

    connections = psutil.Process().net_connections("inet")
    return [tuple(connection.laddr) for connection in connections if connection.status == psutil.CONN_LISTEN]


def listening_on_the_network_of(pid):
    """Return the ports on which any process listens on the network of this one; see proc_pid_net(5)."""
    tables = [Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {int(local.rpartition(":")[2], 16) for _, local, _, state, *_ in rows if state == "0A"}


CONNECT = """
import socket, sys
for port in map(int, sys.argv[1:]):
    for host in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((host, port), timeout=5).close()
            print(port)
        except OSError:
            pass
"""


@pytest.mark.parametrize("user", ["the same user", "another user"])
def test_no_port_of_a_world_answers_from_outside(world, user):
    if not world.network:
        pytest.skip("this system allows no private network without root")
    if user == "another user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    run(world, INIT.format(timeout=10) + SUM)
    run(world, "import torch.distributed.rpc as rpc; rpc.init_rpc(f'rank{rank}', rank=rank, world_size=size)")
    ports = listening_on_the_network_of(world.network)
    assert len(ports) > 10  # those of gloo, TensorPipe and the store
    assert int(world.view.apply_sync(os.getenv, "MASTER_PORT")[0]) in ports
    somebody_elses = listening_on_the_network_of("self")
    command = [sys.executable, "-c", CONNECT, *map(str, ports - somebody_elses)]
    other = {"user": 65534, "group": 65534} if user == "another user" else {}
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable  # one that anybody may run
    result = subprocess.run([python, *command[1:]], capture_output=True, text=True, cwd="/", **other)
    assert (result.stdout, result.stderr) == ("", "")
    run(world, "rpc.shutdown()")


def test_where_no_private_network_is_allowed_a_world_is_on_the_loopback_and_says_so(monkeypatch):
    monkeypatch.setattr(helpers.ranks.local, "Supervisor", partial(Supervisor, private=False))
    world = World(2)
    try:
        assert repr(world).startswith("World of 2 ranks, on the loopback of this machine, open to its other users\n")
        run(world, INIT.format(timeout=10) + SUM)
        assert int(world.view.apply_sync(os.getenv, "MASTER_PORT")[0]) in listening_on_the_network_of("self")
        world.restart()
        run(world, INIT.format(timeout=10) + SUM)
    finally:
        world.stop()


def test_the_way_to_the_engines_is_private(world):
    directory = Path(world._directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [path for path in directory.iterdir() if path.is_socket()]
    run(world, "import pathlib, tempfile; pathlib.Path(tempfile.gettempdir(), 'left').touch()")
    # Even if the folder were open: nothing in it is.
    assert [path.name for path in directory.iterdir() if path.stat().st_mode & 0o077] == []


def test_a_group_is_left_and_made_again_with_a_new_store(world):
    for _ in range(2):
        run(world, INIT.format(timeout=10) + SUM)
        run(world, "dist.destroy_process_group()")
        world.new_store()


def test_what_a_rank_leaves_in_its_temporary_folder_stays_over_a_restart_and_goes_with_the_world(world):
    run(world, "import os, pathlib, tempfile; kept = tempfile.NamedTemporaryFile(delete=False).name")
    files = [Path(name) for name in world.view["kept"]]
    assert {file.parent for file in files} == {Path(world.folder)}
    world.restart()
    assert all(file.exists() for file in files)
    world.stop()
    assert not any(file.exists() for file in files)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone counts how often a thread has slept")
def test_idle_ranks_sleep(world):
    def wakeups(name):
        tasks = [task for pid in world.pids for task in Path(f"/proc/{pid}/task").iterdir()]
        named = [task for task in tasks if name in (task / "comm").read_text()]
        assert len(named) >= world.size, "threads have other names now"
        return sum(int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", (t / "status").read_text())[1]) for t in named)

    run(world, INIT.format(timeout=10) + SUM)
    heartbeats, moves = wakeups("ZMQbg/IO"), wakeups("gloo_tcp_loop")
    time.sleep(3)
    assert wakeups("ZMQbg/IO") - heartbeats < world.size * 5  # ipyparallel's would be 5 a second
    assert wakeups("gloo_tcp_loop") - moves < world.size * 150  # gloo's would be 100 a second


def test_a_rank_can_have_processes_of_its_own(world):
    run(
        world,
        """
        from torch.utils.data import DataLoader
        batches = [batch.tolist() for batch in DataLoader([1, 2, 3, 4], batch_size=2, num_workers=1)]
        """,
    )
    assert world.view["batches"] == [[[1, 2], [3, 4]]] * 4


def test_plain_engines_where_a_rank_is_not_forked():
    script = f"""
        from helpers import World
        from helpers.ranks import prefork
        prefork.START_METHOD = "spawn"
        if __name__ == "__main__":
            world = World(2)
            world.view.execute({INIT.format(timeout=20) + SUM!r})
            print(world.view["rank"])
            world.restart()
            world.view.execute({INIT.format(timeout=20) + SUM!r})
            print(world.where())
            world.stop()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "[0, 1]" in result.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each rank imports for itself")
def test_modules_that_are_imported_once_for_all_ranks():
    script = """
        from helpers import World, WorldError, devices
        if __name__ == "__main__":
            try:
                World(2, preload=["mailbox", "no_such.module"])
            except WorldError as error:
                print(error)
            world = World(2, preload=["mailbox"])
            world.view.execute("import sys; there = [name in sys.modules for name in ('mailbox', 'tabnanny')]")
            print(world.view["there"])
            world.stop()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "preload: the module no_such.module cannot be imported (ModuleNotFoundError: No module" in result.stdout
    assert "[[True, False], [True, False]]" in result.stdout


@pytest.mark.parametrize("preload", ["gymnasium", 5, None, [5], [""]])
def test_a_preload_that_is_no_list_of_modules(preload):
    before = started_here()
    with pytest.raises(WorldError, match=r"^preload=.*: give a list of modules, as in preload=\['torch._dynamo'\]"):
        World(2, preload=preload)
    assert started_here() == before


def test_a_controller_that_does_not_answer_is_not_waited_for_without_end(monkeypatch):
    class Stopped(helpers.ranks.local.Controller):
        def __init__(self, directory):
            super().__init__(directory)
            os.kill(self.pid, signal.SIGSTOP)

    before = started_here()
    monkeypatch.setattr(helpers.ranks.local, "Controller", Stopped)
    monkeypatch.setattr(helpers.ranks.local, "_SECONDS_TO_CONNECT", 0.5)
    with pytest.raises(WorldError, match="^The process that carries messages .* did not answer within 0.5 s."):
        World(1)
    assert started_here() == before


def test_a_controller_that_is_killed_while_it_starts_is_named_with_what_to_do(monkeypatch):
    class Killed(helpers.ranks.local.Controller):
        def __init__(self, directory):
            super().__init__(directory)
            os.kill(self.pid, signal.SIGKILL)
            self._process.join()

    before = started_here()
    monkeypatch.setattr(helpers.ranks.local, "Controller", Killed)
    with pytest.raises(WorldError, match="^The process that carries messages .* died during its start. Try again.$"):
        World(1)
    assert started_here() == before


@pytest.mark.parametrize("size", [0, -1, "4", 2.0, True, None])
def test_a_size_that_is_no_number_of_ranks(size):
    before = started_here()
    with pytest.raises(WorldError, match=r"^World\(.*\): give the number of ranks as a whole number from 1 up"):
        World(size)
    assert started_here() == before


def test_a_world_too_large_is_refused_with_the_numbers():
    before = started_here()
    with pytest.raises(WorldError, match=r"takes about 170 MiB, .* GiB are free.*force=True") as refusal:
        World(100_000)
    assert started_here() == before
    largest = int(str(refusal.value).split("The largest world that fits has ")[1].split()[0])
    assert 0 < largest < 100_000


@pytest.mark.parametrize(
    "limit, used, inactive, none",
    [
        ("memory.max", "memory.current", "inactive_file", "max"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", str(2**63 - 4096)),
    ],
    ids=["version 2", "version 1"],
)
def test_in_a_control_group_memory_that_only_holds_files_counts_as_free(tmp_path, limit, used, inactive, none):
    assert memory._free_in(tmp_path) == float("inf")  # no such control group
    (tmp_path / used).write_text("700\n")
    (tmp_path / "memory.stat").write_text(f"anon 300\n{inactive} 250\nactive_file 150\n")
    (tmp_path / limit).write_text(f"{none}\n")
    assert memory._free_in(tmp_path) > 2**62
    (tmp_path / limit).write_text("1000\n")
    assert memory._free_in(tmp_path) == 1000 - 700 + 250


def test_the_control_groups_of_a_process_are_its_own_and_all_above(monkeypatch, tmp_path):
    root = tmp_path
    of_a_service = "0::/user.slice/user-1000.slice/jupyter.service"
    assert [str(group.relative_to(root)) for group in memory._groups(of_a_service, root)][:4] == [
        "user.slice/user-1000.slice/jupyter.service",
        "user.slice/user-1000.slice",
        "user.slice",
        ".",
    ]
    of_version_1 = "9:name=systemd:/\n4:cpu,memory:/docker/abc\n3:cpuset:/\n"
    assert [str(group.relative_to(root)) for group in memory._groups(of_version_1, root)] == [
        "memory/docker/abc",
        "memory/docker",
        "memory",
    ]
    slice = tmp_path / "user.slice"
    slice.mkdir()
    for name, text in {"memory.max": "1000", "memory.current": "700", "memory.stat": "inactive_file 250"}.items():
        (slice / name).write_text(text)
    own = tmp_path / "cgroup"
    own.write_text(of_a_service)
    monkeypatch.setattr(memory, "_OWN_GROUPS", own)
    monkeypatch.setattr(memory, "_GROUPS", root)
    assert memory.free() == 550


def test_force_starts_a_world_all_the_same():
    memory.require_room(100_000, force=True)  # to start it would take this machine down


def test_use_after_stop(world):
    world.stop()
    uses = (
        *(world.where, world.restart, world.interrupt, world.new_store, lambda: world.pids),
        *(lambda: world.view["x"], lambda: world.network, lambda: world.host_of(0)),
    )
    for use in uses:
        with pytest.raises(WorldError, match=r"^This world has been stopped. Make a new one"):
            use()
    assert repr(world) == "World of 4 ranks, stopped"


def test_attach_to_nothing(tmp_path):
    before = started_here()
    (tmp_path / "no.json").write_text("root:x:0:0")
    (tmp_path / "other.json").write_text("[1]")
    for name in ("ipcontroller-client.json", "no.json", "other.json"):
        with pytest.raises(WorldError, match="^No running ipyparallel cluster was found"):
            World.attach(connection_file=str(tmp_path / name))
    for arguments in ({"connection_file": 123}, {"profile": 5}, {"cluster_id": None}):
        with pytest.raises(WorldError, match=r"^attach\(.*=.*\): give a text, in quotes.$"):
            World.attach(**arguments)
    assert started_here() == before


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cluster = ipp.Cluster(profile_dir=str(tmp_path / "profile"), delay=0, log_level=50)
    cluster.start_controller_sync()
    yield cluster
    cluster.stop_cluster_sync()


def connection_file(cluster):
    return cluster.controller.connection_files["client"]


def test_attach_to_a_cluster_without_engines(cluster):
    cluster.connect_client_sync().close()
    with pytest.raises(WorldError, match="^The cluster runs, but has no engines"):
        World.attach(connection_file=connection_file(cluster))


def test_engines_that_serve_another_notebook_are_refused_until_it_stops(cluster, monkeypatch):
    cluster.start_engines_sync(1)
    cluster.connect_client_sync().wait_for_engines(1)
    first = World.attach(connection_file=connection_file(cluster))
    monkeypatch.setattr(helpers.world, "_current", None)  # as if the next one came from another notebook
    with pytest.raises(WorldError, match="^Another notebook has made ranks of these engines"):
        World.attach(connection_file=connection_file(cluster))
    first.stop()
    killed = World.attach(connection_file=connection_file(cluster))
    monkeypatch.setattr(helpers.world, "_current", None)
    shutil.rmtree(killed._directory)  # as it goes with a notebook that is killed
    world = World.attach(connection_file=connection_file(cluster))
    killed.stop()
    run(world, INIT.format(timeout=10) + SUM)
    world.stop()


def test_attached_engines_are_ranks_in_the_order_of_their_ids_and_stay_when_the_world_stops(cluster):
    client = cluster.connect_client_sync()
    first = cluster.start_engines_sync(1)
    client.wait_for_engines(1)
    cluster.start_engines_sync(2)
    client.wait_for_engines(3)
    cluster.stop_engines_sync(first)
    while len(client.ids) > 2:
        client.wait_interactive(timeout=0.1)
    assert client.ids == [1, 2]
    pids = client[:].apply_sync(os.getpid)
    client[:].execute("import os, sys\nfirst, imported = dict(os.environ), 'torch' in sys.modules", block=True)

    world = World.attach(connection_file=connection_file(cluster))
    assert world.pids == pids
    run(world, "import torch\nin_between = os.environ != first, torch.get_num_threads()")
    assert (world.view["imported"], world.view["in_between"]) == ([False] * 2, [(True, 1)] * 2)
    # Files of the ranks lie where no other user can put one before.
    assert world.view.apply_sync(tempfile.gettempdir) == [world.folder] * 2
    assert stat.S_IMODE(os.stat(world.folder).st_mode) == 0o700
    run(world, INIT.format(timeout=10) + SUM)
    assert world.view["rank"] == [0, 1]
    assert [state.state for state in world.where()] == ["idle", "idle"]
    completed = world._ranks.ask([1], variables.complete, "total.num", 9, seconds=20.0)
    assert (".num", ".numel", "attribute") in completed[1]
    lines = Sampler().look(world._ranks, world._cells)
    assert [(line.state.state, line.memory > 0, line.sent) for line in lines] == [("idle", True, None)] * 2
    run(world, "dist.destroy_process_group()")
    world.new_store()
    run(world, INIT.format(timeout=10) + SUM)
    with pytest.raises(WorldError, match="^These ranks belong to a cluster that somebody else has started"):
        world.restart()
    with pytest.raises(WorldError, match="^These ranks belong to a cluster that somebody else has started"):
        world.restart(rank=1)
    world.stop()
    assert client[:].apply_sync(os.getpid) == pids
    client[:].execute("in_the_end = os.environ == first, torch.get_num_threads()", block=True)
    client[:].execute("from helpers import tap\nheard = [kind.__name__ for kind, heard in tap._heard.items() if heard]")
    assert client[:].pull("heard", block=True) == [[], []]
    assert client[:].apply_sync(tempfile.gettempdir) == [tempfile.gettempdir()] * 2
    assert client[:].pull("in_the_end", block=True) == [(True, prefork.threads_of_torch())] * 2
    client.close()


def test_ranks_choose_what_their_world_shows():
    world = World(2)
    try:
        world.view.execute("from helpers import devices\nchoice = devices.of_this_rank()")
        gpus = torch.cuda.device_count()
        assert world.view["choice"] == [devices.choose(rank, 2, gpus) for rank in range(2)]
        assert all(
            choice.device in line
            for choice, line in zip(world.view["choice"], repr(world).splitlines()[2:], strict=True)
        )
    finally:
        world.stop()
