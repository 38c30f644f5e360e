"""Worlds of engines on several hosts: plain engines, those that SSH starts, and those that Slurm does."""

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from live import INIT, SUM, wait_until
from virtual_hosts import ADDRESS, VirtualHosts, play, profile, why_not

import helpers.world
from helpers import World, WorldError, traffic

pytestmark = pytest.mark.timeout(900)  # a scenario that hangs is ended sooner


@pytest.fixture(scope="module", autouse=True)
def virtual_hosts():
    if reason := why_not():
        pytest.skip(f"there can be no virtual hosts here: {reason}")


def test_plain_engines_on_two_hosts(tmp_path):
    play(plain_engines_on_two_hosts, tmp_path)


@pytest.mark.nightly
def test_engines_that_ssh_starts(tmp_path):
    require("sshd", "openssh-server")
    play(engines_that_ssh_starts, tmp_path)


def test_engines_that_slurm_starts(tmp_path):
    require("slurmctld", "slurmctld slurmd slurm-client munge")
    play(engines_that_slurm_starts, tmp_path)


def require(program, packages):
    """Skip the test where root and a program are not there."""
    if os.geteuid() != 0:
        pytest.skip(f"only root can run {program} for a test")
    if shutil.which(program, path="/usr/sbin") is None:
        pytest.skip(f"there is no {program} here: apt-get install --no-install-recommends {packages}")


def start_plain_engines(hosts, folder, places):
    """Start a controller here and an engine on each of these hosts; return a client, and its file."""
    import ipyparallel as ipp

    cluster = ipp.Cluster(profile_dir=f"{folder}/profile", cluster_id="", controller_ip=ADDRESS, log_level=50)
    cluster.start_controller_sync()
    client = cluster.connect_client_sync()
    for host in places:
        hosts.start(host, [sys.executable, "-m", "ipyparallel.engine", f"--profile-dir={folder}/profile"])
        client.wait_for_engines(1)  # the first one here gets the lowest id; the others come in any order
    client.wait_for_engines(len(places))
    return client, cluster.controller.connection_files["client"]


def plain_engines_on_two_hosts(folder):
    hosts = VirtualHosts(2)
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()  # World registers its magics with it
    client, connection_file = start_plain_engines(hosts, folder, [1, 0, 1])

    # While a host cannot reach another there is no world, and nothing is left of the attempt.
    hosts.block_route(0, to=1)
    before = client[:].apply_sync(open_sockets)
    assert "host0 cannot reach host1 (10.77.0.12)" in (why := refusal(connection_file)), why
    assert client[:].apply_sync(open_sockets) == before
    assert helpers.world.current() is None
    hosts.remember_the_way(0, to=1)
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

    # The ranks of a host share a temporary folder, which no other user can enter.
    folders = world.view.apply_sync(tempfile.gettempdir)
    assert folders[0] == folders[1] != tempfile.gettempdir()
    assert {stat.S_IMODE(os.stat(folder).st_mode) for folder in folders} == {0o700}

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
    shell.run_cell_magic("px", "", INIT.format(timeout=25) + SUM)

    # Where they are while one is stuck in C++; and an interrupt, which it hears when the call returns.
    stuck = shell.run_cell_magic("px", "--noblock", STUCK)
    places = [("recv", 3), ("", 7), ("", 7)]
    assert wait_until(lambda: [(s.call, s.line_number) for s in world.where()] == places, 20), world.where()
    assert [s.state for s in world.where()] == ["busy"] * 3
    assert world.where()[0].line == "dist.recv(torch.zeros(1), 2)"
    arguments = world.where()[0].arguments
    assert (arguments["tensor"], arguments["src"], arguments["group"]) == ("float32[1]", 2, [0, 1, 2])
    history = world.history()
    assert [[call.call for call in calls] for calls in history.calls.values()] == [["all_reduce"]] * 3
    assert history.differences == [], history
    assert history.calls[0][0].line == "dist.all_reduce(total)", history
    world.interrupt()
    stuck.wait(20)
    assert [error.ename for error in stuck.get(return_exceptions=True)] == ["KeyboardInterrupt"] * 3
    assert world.post_mortem(0).error == "KeyboardInterrupt"
    assert world.post_mortem(0)["worn"][0] == "0"
    assert world.post_mortem(0).frames[0].line_number in (3, 4)  # also when it is past the recv

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
        assert re.search(r"Rank 1 wrote before it died:\n(.*\n)*out of luck\n", str(error))
        assert "on host0, where no rank is free to read it" in str(error)
    else:
        raise AssertionError

    # Another notebook has to wait until this one leaves; the engine stays, with nothing open. Its host has no log left.
    helpers.world._current = None
    assert "Another notebook has made ranks" in refusal(connection_file)
    assert shell.Completer.custom_matchers
    world.stop()
    assert shell.Completer.custom_matchers == []  # Tab asks no rank of a stopped world
    assert len(client.ids) == 1
    assert [log.name for log in (folder / "profile/log").glob("rank-*")] == ["rank-2-host0.log"]
    assert not os.path.exists(folders[0])
    os.rmdir(folders[2])  # the folder of host0 is left, as the log is, because every rank there is dead
    assert "rank-0" not in client[0].apply_sync(os.readlink, "/proc/self/fd/2")
    client[:].execute(LISTENING, block=True)
    assert {ip for ip, _ in client[0]["addresses"]} <= {hosts.addresses[1], "127.0.0.1"}


LISTENING = """
import psutil
listening = [c.laddr for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
addresses = [tuple(address) for address in listening]
"""

# One statement, so that no interrupt comes while IPython compiles the next one.
STUCK = """if rank == 0:
    dist.recv(torch.zeros(1), 2)
    time.sleep(1000)
else:
    try:
        time.sleep(1000)
    finally:
        if rank == 2:
            dist.send(torch.ones(1), 0)
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


def open_sockets():
    import psutil

    return sorted(tuple(c.laddr) for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN)


# ---------------------------------------------------------------- SSH

SSHD = """
ListenAddress {address}
Port 2222
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin prohibit-password
ForceCommand {folder}/log_in
Subsystem sftp /usr/lib/openssh/sftp-server
"""
# Whatever the files of this machine's user say of PATH, `python3` is the one with the course.
LOG_IN = """#!/bin/sh
export PATH='{PATH}' PYTHONPATH='{PYTHONPATH}' IPYTHONDIR='{IPYTHONDIR}'
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
SSH = """
Host {name}
HostName {address}
Port 2222
IdentityFile {folder}/key
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking accept-new
BatchMode yes
"""
# A host has a disk of its own, as far as the profiles of ipyparallel are on it.
SSHD_ON_A_DISK = (
    "mount -t tmpfs none /run && mkdir /run/sshd && mount -t tmpfs none $IPYTHONDIR && exec {sshd} -D -f $0"
)


def start_sshd(hosts, folder):
    """Start an sshd on each host, and put an `ssh` and a `scp` into PATH that know their names."""
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    for host, (name, address) in enumerate(zip(hosts.names, hosts.addresses, strict=True)):
        settings = SSHD.format(address=address, folder=folder)
        (folder / f"sshd_{name}").write_text(settings)
        (folder / "ssh_config").open("a").write(SSH.format(name=name, address=address, folder=folder))
        command = SSHD_ON_A_DISK.format(sshd=shutil.which("sshd", path="/usr/sbin"))
        hosts.start(host, ["unshare", "--mount", "sh", "-c", command, folder / f"sshd_{name}"])
    write_program(folder / "log_in", LOG_IN.format_map(os.environ))
    for command in ("ssh", "scp"):
        settings = f'#!/bin/sh\nexec {shutil.which(command)} -F {folder}/ssh_config "$@"\n'
        write_program(folder / "bin" / command, settings)
    os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
    assert wait_until(lambda: all(can_log_in(name) for name in hosts.names), 20)


def write_program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o700)


def can_log_in(name):
    return subprocess.run(["ssh", name, "true"], capture_output=True).returncode == 0


def engines_that_ssh_starts(folder):
    hosts = VirtualHosts(2)
    ipython = Path(os.environ["IPYTHONDIR"])
    profile("ssh", ipython)
    start_sshd(hosts, folder)
    subprocess.Popen(["ipcluster", "start", "--profile=ssh"])
    attach_and_sum(ipython / "profile_ssh", hosts)


def attach_and_sum(folder, hosts, meanwhile=lambda: None):
    """Attach to the cluster of a profile once both its engines are there, and let them add.

    Until they are there, call `meanwhile` again and again.
    """
    import ipyparallel as ipp

    to_clients = folder / "security/ipcontroller-client.json"
    assert wait_until(lambda: to_clients.exists() and to_clients.read_text().endswith("}"), 60)
    with ipp.Client(profile_dir=str(folder)) as client:

        def both_are_there():
            meanwhile()
            return len(client.ids) == len(hosts.names)

        assert wait_until(both_are_there, 300), f"engines: {client.ids}"
    world = World.attach(profile=folder.name.removeprefix("profile_"))
    assert sorted(world.hosts) == hosts.names
    world.view.execute(INIT.format(timeout=20) + SUM)
    assert [state.state for state in world.where()] == ["idle", "idle"]
    world.stop()


# ---------------------------------------------------------------- Slurm

SLURM = """
ClusterName=course
SlurmctldHost={name}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdParameters=config_overrides
MailProg=/bin/true
PartitionName=course Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def start_slurm(hosts, folder):
    """Start a munged and a slurmctld here, and a slurmd on each host."""
    for name in ("state", *[f"spool-{name}" for name in hosts.names]):
        (folder / name).mkdir()
    settings = SLURM.format(name=socket.gethostname(), address=ADDRESS, folder=folder)
    for name, address in zip(hosts.names, hosts.addresses, strict=True):
        settings += f"NodeName={name} NodeAddr={address} CPUs=1 State=UNKNOWN\n"
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    (folder / "slurm.conf").write_text(settings)
    munge = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "pid", "log", "seed")]
    subprocess.run(["/usr/sbin/mungekey", f"--keyfile={folder}/munge.key"], check=True)
    subprocess.run(["/usr/sbin/munged", "--force", f"--socket={folder}/munge.socket", *munge], check=True)
    subprocess.Popen(["/usr/sbin/slurmctld", "-D"])
    for host, name in enumerate(hosts.names):
        hosts.start(host, ["/usr/sbin/slurmd", "-D", "-N", name])
    assert wait_until(lambda: nodes() == ["idle"] * len(hosts.names), 30), nodes()


def nodes():
    """Return the states of the nodes of Slurm."""
    asked = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%t"], capture_output=True, text=True)
    return asked.stdout.split()


def engines_that_slurm_starts(folder):
    hosts = VirtualHosts(2)
    ipython = Path(os.environ["IPYTHONDIR"])
    profile("slurm", ipython)
    start_slurm(hosts, folder)
    os.chdir(folder)  # where the launcher leaves its batch script
    subprocess.Popen(["ipcluster", "start", "--profile=slurm"])
    attach_and_sum(ipython / "profile_slurm", hosts, meanwhile=hurry_the_job)


def hurry_the_job():
    """Start Slurm's only job now if Slurm wants to start it later.

    On a busy machine a slurmstepd may fail to start, even when its job is said to run. Slurm then puts the job back,
    and waits for two minutes.
    """
    reason = subprocess.run(["squeue", "--noheader", "--format=%r"], capture_output=True, text=True).stdout
    if "BeginTime" in reason:
        subprocess.run(["scontrol", "update", "JobId=1", "StartTime=now"])
