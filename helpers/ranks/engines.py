"""How ipyparallel starts local ranks fast and lets none outlive the notebook."""

import json
import logging
import multiprocessing.connection
import os
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import ipyparallel as ipp
import psutil
import zmq
from ipyparallel.cluster.launcher import EngineLauncher, LocalControllerLauncher
from jupyter_client.session import Session
from tqdm import tqdm
from traitlets import Dict, List
from traitlets.config import Config

from helpers.errors import WorldError
from helpers.ranks import processes
from helpers.ranks.rank import log_path, run_rank
from helpers.ranks.store import Agent, environment

_SECONDS_TO_START = 120
_SECONDS_TO_CONNECT_AGAIN = 10
_SECONDS_TO_UNREGISTER = 5
_PORTS_OF_A_CONTROLLER = 16
# What a process does to itself, most often in C++, as opposed to what is done to it.
_CRASHES = {"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV"}


class ControllerLauncher(LocalControllerLauncher):
    """Starts ipyparallel's controller in a process group that does not outlive this process."""

    def find_args(self):
        """Return the command line of the controller."""
        return [
            sys.executable,
            "-m",
            "helpers.ranks.controller",
            str(os.getpid()),
            *self.controller_args,
        ]

    async def stop(self):
        """Kill the process group: the controller holds nothing that is worth a goodbye."""
        os.killpg(self.pid, signal.SIGKILL)
        await self.join(timeout=self.stop_timeout)


class RankLauncher(EngineLauncher):
    """Starts one process per rank, each an ipyparallel engine whose id is the rank."""

    rank_environments = List(Dict(), help="what each rank has in its environment beside that of the notebook")
    processes = List(help="the process of each rank")

    def find_args(self):
        """Name what this launcher starts, for ipyparallel's log."""
        return ["ranks"]

    def start(self, n):
        """Start `n` ranks."""
        self.processes = [
            processes.start(
                run_rank,
                rank,
                {**os.environ, **self.get_env(), **environment},
                self.profile_dir,
            )
            for rank, environment in zip(range(n), self.rank_environments, strict=True)
        ]
        self._alive = [psutil.Process(process.pid) for process in self.processes]
        self.notify_start([process.pid for process in self.processes])

    async def stop(self):
        """Kill every rank: one that is blocked in C++ hears nothing less."""
        for process in self._alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(self._alive, timeout=self.stop_timeout)
        self.notify_stop({"exit_code": 0})


class LocalRanks:
    """The processes of a world of `size` ranks on this machine, and the ipyparallel client that talks to them.

    `directory` is a private folder for keys, logs and stacks. Raises `WorldError` when the ranks do not start.
    """

    def __init__(self, size: int, directory: str):
        self.size = size
        self.directory = directory
        self.engine_ids = list(range(size))
        self.pids = []  # of the ranks, in their order
        self.client = None
        self._cluster = None
        self._agent = None
        self._deaths = {}

    def start(self) -> None:
        """Start the controller and the ranks, and connect to them."""
        with (
            _reserved_ports(_PORTS_OF_A_CONTROLLER) as ports,
            self._progress() as progress,
        ):
            self._cluster = _cluster(self.directory, ports)
            self._cluster.start_controller_sync()
            self._start_ranks(progress)

    def restart(self) -> None:
        """Replace every rank by a new process; the controller, too, if it has died or does not answer."""
        self._stop_ranks()
        if self._all_unregistered():
            with self._progress() as progress:
                self._start_ranks(progress)
        else:
            self._stop_controller()
            self.start()

    def new_store(self) -> int:
        """Start a fresh store in place of the old one, and return its port."""
        agent, self._agent = self._agent, Agent(self.directory)
        agent.stop()
        return self._agent.port

    def stop(self) -> None:
        """End every process."""
        self._stop_ranks()
        self._stop_controller()

    @property
    def cuda_devices(self) -> int:
        """How many CUDA devices the ranks see."""
        return self._agent.cuda_devices

    def deaths(self) -> dict[int, str]:
        """Return what ended each rank that is dead: the name of a signal, or an exit code."""
        return dict(self._deaths)

    def last_words(self, rank: int) -> str:
        """Return the last lines that a rank which has crashed wrote to its log; nothing of a rank that was killed."""
        if self._deaths.get(rank) not in _CRASHES:
            return ""
        lines = log_path(self.directory, rank).read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "[IPEngine" not in line][-8:])

    def _progress(self):
        # The first step is the agent, which comes up as soon as torch has been imported.
        return tqdm(total=1 + self.size, desc=f"starting {self.size} ranks", unit="process", file=sys.stdout)

    def _start_ranks(self, progress):
        self._agent = Agent(self.directory)
        progress.update()
        environments = [environment(rank, self.size, self._agent.port) for rank in range(self.size)]
        self._cluster.start_engines_sync(self.size, rank_environments=environments)
        engines = self._cluster.engine_set
        self.pids = [process.pid for process in engines.processes]
        self._deaths = {}
        connection_info = json.loads(engines.environment["IPP_CONNECTION_INFO"])
        threading.Thread(
            target=_watch,
            args=[engines.processes, self._deaths, connection_info],
            daemon=True,
        ).start()
        connect = new = self.client is None
        deadline = time.monotonic() + _SECONDS_TO_START
        started = 0
        while started < self.size:
            if self._deaths or time.monotonic() > deadline:
                raise WorldError(self._why_not_started())
            if connect:
                self._connect()
                connect_again = time.monotonic() + _SECONDS_TO_CONNECT_AGAIN
            time.sleep(0.01)
            before, started = started, len(self.client.ids)
            progress.update(started - before)
            # A new client is told of the ranks that are there, and of each that comes once it listens. On a busy
            # machine one may come in between, and this client never hears of it; the next one does.
            connect = new and started < self.size and time.monotonic() > connect_again

    def _connect(self):
        if self.client is not None:
            self.client.close(linger=0)
        self.client = self._cluster.connect_client_sync()

    def _all_unregistered(self):
        """Wait until the controller has struck off every rank; return False when it is dead or does not answer."""
        if self.client is None:
            return False  # an earlier restart has failed
        deadline = time.monotonic() + _SECONDS_TO_UNREGISTER
        while self.client.ids:
            if self._cluster.controller.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _why_not_started(self):
        missing = min(self._deaths, default=None)
        if missing is None:
            missing = min(set(self.engine_ids) - set(self.client.ids))
            what = f"Rank {missing} did not start within {_SECONDS_TO_START} s."
        else:
            what = f"Rank {missing} died while it started ({self._deaths[missing]})."
        log = log_path(self.directory, missing)
        tail = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
        return "\n".join([what + " Its log ends with:", *tail])

    def _stop_ranks(self):
        if self._cluster is not None:
            self._cluster.stop_engines_sync()
        if self._agent is not None:
            self._agent.stop()
            self._agent = None

    def _stop_controller(self):
        if self.client is not None:
            self.client.close(linger=0)
            self.client = None
        if self._cluster is not None:
            self._cluster.stop_controller_sync()


def _cluster(directory, ports):
    return ipp.Cluster(
        controller=ControllerLauncher,
        engines=RankLauncher,
        controller_args=[
            "--IPController.ports=" + ",".join(map(str, ports)),
            # One process in place of eight. What ranks send to each other does not pass through here.
            "--IPController.use_threads=True",
            "--IPController.broadcast_scheduler_depth=0",
            # An engine registers after its first heartbeat. The death of a rank is noticed by other means, and sooner;
            # a rank that misses heartbeats because the machine is short of time must not be taken for dead.
            "--HeartMonitor.period=200",
            "--HeartMonitor.max_heartmonitor_misses=1000000",
        ],
        profile_dir=directory,
        cluster_file="",
        load_profile=False,
        config=Config(),
        delay=0,
        shutdown_atexit=False,
        log_level=logging.CRITICAL,
    )


@contextmanager
def _reserved_ports(count):
    """Hold free ports of the loopback, so that no other program is given them before the controller binds them.

    Several worlds may start at once. Linux lets a second socket bind a port that another one holds with SO_REUSEADDR
    and does not listen on. Other systems do not: there the list is empty, and the controller picks its ports itself.
    """
    with ExitStack() as stack:
        ports = []
        for _ in range(count if sys.platform == "linux" else 0):
            holder = stack.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            ports.append(holder.getsockname()[1])
        yield ports


def _watch(ranks, deaths, connection_info):
    """Note what ends each rank, and tell the controller, so that whoever waits for the rank stops waiting."""
    alive = {process.sentinel: rank for rank, process in enumerate(ranks)}
    while alive:
        for sentinel in multiprocessing.connection.wait(list(alive)):
            rank = alive.pop(sentinel)
            deaths[rank] = _cause(ranks[rank].exitcode)
            _report_death(connection_info, rank)


def _report_death(connection_info, engine_id):
    """Send the controller the message that ipyparallel's nanny process sends when its engine has died."""
    session = Session(
        key=connection_info["key"].encode(),
        signature_scheme=connection_info["signature_scheme"],
    )
    with zmq.Context.instance().socket(zmq.DEALER) as registrar:
        registrar.linger = 1000
        registrar.connect(f"{connection_info['interface']}:{connection_info['registration']}")
        session.send(registrar, "unregistration_request", content={"id": engine_id})


def _cause(exitcode):
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit code {exitcode}"
