"""A cluster of several hosts for tests: namespaces of this machine, with a switch on which the test itself is, too.

A scenario is a function of a test module that runs in a process of its own, on a network of its own: there is nothing
that a port of it could be open to, and all that it starts ends with it.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from live import run_command
from pyroute2 import IPRoute

from helpers.ranks.cables import CabledHosts

ADDRESS = "10.77.0.1"  # of the notebook, beside those of the hosts
_SECONDS = 600  # a deadline against hanging, for a slow and busy machine too


def why_not() -> str | None:
    """Return why there can be no virtual hosts here, None when there can."""
    if sys.platform != "linux":
        return "only Linux has namespaces, of which the hosts are made"
    with tempfile.TemporaryDirectory() as folder:
        made = run_command(
            [sys.executable, "-c", "from virtual_hosts import *; VirtualHosts(2)"],
            _environment(folder),
            Path(folder, "log"),
            60,
        )
        return None if made == 0 else Path(folder, "log").read_text().splitlines()[-1]


def play(scenario, folder: Path) -> None:
    """Run a scenario, a function of a test module, with the path of an empty folder; fail as it fails."""
    module = sys.modules[scenario.__module__]
    name = module.__name__
    code = f"import pathlib, {name}; {name}.{scenario.__name__}(pathlib.Path({str(folder)!r}))"
    log = folder / "scenario.log"
    environment = _environment(folder, Path(module.__file__).parent)
    ended = run_command([sys.executable, "-c", code], environment, log, _SECONDS)
    assert ended == 0, f"exit code {ended}:\n{log.read_text(errors='replace')[-6000:]}"


def _environment(folder, *modules):
    """Return an environment with a private IPython, in which the course, the tests' helpers and modules are found."""
    tests = Path(__file__).parent
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),  # ipcluster is there
        "PYTHONPATH": os.pathsep.join(map(str, [*modules, tests, tests.parent])),
        "IPYTHONDIR": f"{folder}/ipython",
    }


class VirtualHosts:
    """So many hosts, on a switch at which this process has the address ADDRESS. Make them while it has one thread."""

    def __init__(self, count: int):
        self._hosts = CabledHosts(count, count)
        self.names, self.addresses = self._hosts.names, self._hosts.addresses
        with IPRoute() as netlink:
            netlink.addr("add", index=socket.if_nametoindex("switch"), address=ADDRESS, prefixlen=16)

    def start(self, host: int, command: list[str], **arguments) -> subprocess.Popen:
        """Start a command on a host."""
        return subprocess.Popen(command, preexec_fn=lambda: self._hosts.enter(host), **arguments)

    def block_route(self, host: int, to: int) -> None:
        """From now on a host does not reach another."""
        self._set_blackhole("add", host, to)

    def remember_the_way(self, host: int, to: int) -> None:
        """Let a host reach another again."""
        self._set_blackhole("del", host, to)

    def _set_blackhole(self, command, host, to):
        with self._hosts.inside(host), IPRoute() as netlink:
            netlink.route(command, dst=f"{self.addresses[to]}/32", type="blackhole")


def profile(name: str, folder: Path) -> None:
    """Write the configuration that docs/clusters.md shows for a profile, as it stands there, into this IPYTHONDIR."""
    text = Path(__file__).parent.parent.joinpath("docs", "clusters.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (code,) = [block for block in blocks if f'launcher_class = "{name}"' in block]
    target = Path(folder, f"profile_{name}", "ipcluster_config.py")
    target.parent.mkdir(parents=True)
    target.write_text(code)
