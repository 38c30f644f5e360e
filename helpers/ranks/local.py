"""The ranks of a world on this machine: a controller, a supervisor, and the client that talks to the ranks."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection

import ipyparallel as ipp
from tqdm import tqdm

from helpers import devices
from helpers.errors import WorldError
from helpers.probe import recorder, samples, side_channel, stacks
from helpers.probe.recorder import Record
from helpers.probe.samples import Sample
from helpers.probe.side_channel import Failed
from helpers.probe.stacks import Stacks
from helpers.ranks import memory, prefork
from helpers.ranks.controller import Controller
from helpers.ranks.rank import last_lines, log_path
from helpers.ranks.supervisor import Supervisor
from helpers.ranks.topology import host_names, require_pace

_SECONDS_TO_START = 120
_SECONDS_TO_TELL_OF_STACKS = 1
_SECONDS_TO_TELL_OF_COLLECTIVES = 5  # enough for two thousand calls on a busy machine
_SECONDS_TO_CONNECT = 60
_SECONDS_TO_CONNECT_AGAIN = 10
_SECONDS_TO_UNREGISTER = 5
# Signals of a crash, most often in C++; a process that is killed from outside receives other signals.
_CRASHES = {"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV"}

_CONTROLLER = "The process that carries messages between the notebook and its ranks"


class LocalRanks:
    """The processes of a world of `size` ranks on this machine, and the ipyparallel client that talks to them.

    `hosts` is the number of hosts, `directory` a private folder for sockets, logs and stacks. `start` raises
    `WorldError` when the ranks do not start, and when a module in `preload` cannot be imported.
    """

    hosts_elsewhere = ()
    where_they_are = None

    def __init__(self, size: int, directory: str, hosts: int = 1, preload: Iterable[str] = ()):
        self.size = size
        self.hosts = host_names(hosts) if hosts > 1 else [socket.gethostname()]
        self.unplugged = set()
        self.directory = directory
        self.engine_ids = list(range(size))
        self._preload = preload
        self.client = None
        self._controller = None
        self._supervisor = None
        self._deaths = {}
        self._reported = []  # the ranks whose deaths have been noted, in order

    def start(self) -> None:
        """Start the controller and the ranks, and connect to them."""
        with self._progress() as progress:
            self._controller = Controller(self.directory)
            self._start_ranks(progress)

    def restart(self) -> None:
        """Replace every rank with a new process, and replace the controller if it has died or does not answer."""
        self._require_folder()
        self._stop_ranks()
        if self._all_unregistered():
            with self._progress() as progress:
                self._start_ranks(progress)
        else:
            self._stop_controller()
            self.start()

    def restart_rank(self, rank: int) -> None:
        """Replace one rank, dead or alive, with a new process; the other ranks see the death of the old process."""
        self._require_folder()
        deaths, reported = self._supervisor.end_rank(rank), self._reported
        # Wait for all deaths that have been reported, because other ranks may die meanwhile.
        self._wait_for(rank, _SECONDS_TO_UNREGISTER, lambda: len(reported) >= deaths and rank not in self.client.ids)
        cause = self._deaths.pop(rank)
        try:
            self._supervisor.start_rank(rank)
            self._wait_for(rank, _SECONDS_TO_START, lambda: rank in self._deaths or rank in self.client.ids)
            if rank in self._deaths:
                raise WorldError(self._why_not_started())
        except BaseException:
            self._deaths.setdefault(rank, cause)  # so that the rank can be restarted again, even after an Interrupt
            raise

    def new_store(self) -> int:
        """Start a new store in place of the old store, and return its port."""
        return self._supervisor.new_store()

    def stop(self) -> None:
        """End every process of the world; a second call does nothing."""
        self._stop_ranks()
        self._stop_controller()

    @property
    def pids(self) -> list[int]:
        """The process ids of the ranks, in their order."""
        return self._supervisor.pids if self._supervisor else []

    def host_of(self, rank: int) -> str:
        """Return the name of the host that a rank is on."""
        return self.hosts[rank * len(self.hosts) // self.size]

    def device(self, rank: int) -> str:
        """Return the device that a rank uses."""
        return devices.choose(rank, self.size, self._supervisor.cuda_devices).device

    def memory(self, rank: int) -> int:
        """Return the bytes of memory that a rank uses."""
        return memory.share(self.pids[rank])

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a rank."""
        with suppress(ProcessLookupError):  # the rank has just died
            os.kill(self.pids[rank], number)

    def stacks(self, ranks: set[int]) -> dict[int, Stacks | Failed]:
        """Ask living ranks for their stacks, on the side channel; return the stacks of each rank that answers in time.

        Send a signal to the ranks that do not answer. Raises `WorldError` when the private folder is gone.
        """
        self._require_folder()
        answers = self.ask(sorted(ranks), stacks.of_this_process, seconds=_SECONDS_TO_TELL_OF_STACKS)
        silent = ranks - answers.keys() - self.deaths().keys()  # another process may have a dead rank's process id
        try:
            return answers | stacks.by_signal(self.directory, {rank: self.pids[rank] for rank in silent})
        except FileNotFoundError:
            raise self._folder_is_gone() from None

    def collectives(self, ranks: set[int]) -> dict[int, Record | Failed]:
        """Ask living ranks for their collectives, on the side channel; return the records that arrive in time."""
        return self.ask(ranks, recorder.record, seconds=_SECONDS_TO_TELL_OF_COLLECTIVES)

    @property
    def network(self) -> int | None:
        """The id of a process on the private network of the ranks; None when they use the network of the machine."""
        return self._supervisor.pid if self._supervisor and self._supervisor.private else None

    @property
    def why_no_cables(self) -> str | None:
        """Why the hosts have no cables; None when they have cables, and when there is only one host."""
        return self._supervisor.why_no_cables

    def set_cable(self, host: str, plugged: bool) -> None:
        """Plug the cable of a host into the switch, or unplug it."""
        self._supervisor.set_cable(host, plugged)
        (self.unplugged.discard if plugged else self.unplugged.add)(host)

    def pace(self, bits_per_second: float, delay: float, loss: float) -> None:
        """Set the rate of every cable, in bits per second, its delay, in seconds, and its fraction of lost packets.

        Raises `WorldError` for an impossible value, and OSError when the kernel cannot do this.
        """
        require_pace("pace", bits_per_second, delay, loss)
        self._supervisor.pace(bits_per_second, delay, loss)

    def carried(self) -> dict[str, tuple[int, int, int, dict[int, int]]]:
        """Return what `CabledHosts.carried` counts for each host: loopback, cable out and in, and retransmissions."""
        return self._supervisor.carried()

    def is_connected(self) -> bool:
        """Return whether the controller, which carries the messages, is alive."""
        return self._controller is not None and self._controller.is_alive()

    def ask(self, ranks: Iterable[int], function: Callable, *arguments, seconds: float) -> dict[int, object]:
        """Have ranks call a function, even while their cells run; return the results that arrive in time."""
        return side_channel.ask(self.directory, ranks, function, *arguments, seconds=seconds)

    def samples(self, ranks: Iterable[int], seconds: float) -> dict[int, Sample | Failed]:
        """Return a sample of each of these ranks that answers within this many seconds."""
        return self.ask(ranks, samples.take, seconds=seconds)

    def deaths(self) -> dict[int, str]:
        """Return what ended each rank that is dead: the name of a signal, or an exit code."""
        return dict(self._deaths)

    def last_words(self, rank: int) -> str:
        """Return the last lines of the log of a rank that crashed; an empty text for a rank that did not crash."""
        if self._deaths.get(rank) not in _CRASHES:
            return ""
        return last_lines(log_path(self.directory, rank).read_text(errors="replace"))

    def _require_preloaded(self):
        """Raise `WorldError` when a module of `preload` could not be imported; the next world tries again."""
        for name in self._preload:
            if why := self._supervisor.could_not_import.get(name):
                prefork.end_fork_server()
                raise WorldError(f"preload: the module {name} cannot be imported ({why}). Leave it out, or install it.")

    def _require_folder(self):
        """Raise `WorldError` when the private folder, which has the sockets of the ranks, was removed."""
        if not os.path.isdir(self.directory):
            raise self._folder_is_gone()

    def _folder_is_gone(self):
        return WorldError(
            f"The temporary folder of this world, {self.directory}, or a file in it was removed. Make a new world: "
            f"world = World({self.size})."
        )

    def _progress(self):
        # The first step is the supervisor, which starts when the fork server has imported its modules.
        return tqdm(total=1 + self.size, desc=f"starting {self.size} ranks", unit="process", file=sys.stdout)

    def _start_ranks(self, progress):
        engine = {
            **os.environ,
            "TMPDIR": self.directory,  # the files that a rank leaves there are removed with the world
            "IPP_PROFILE_DIR": self.directory,
            "IPP_CONNECTION_INFO": json.dumps(self._controller.for_engines),
        }
        self._deaths, self._reported = {}, []
        self.unplugged.clear()
        self._supervisor = Supervisor(self.directory, [engine] * self.size, hosts=len(self.hosts))
        self._require_preloaded()
        progress.update()
        watched = [self._supervisor.deaths, self._controller, self.size, self._deaths, self._reported]
        threading.Thread(target=_note_deaths, args=watched, daemon=True).start()
        connect = new = self.client is None
        deadline = time.monotonic() + _SECONDS_TO_START
        started = 0
        while started < self.size:
            if self._deaths or not self.is_connected() or time.monotonic() > deadline:
                raise WorldError(self._why_not_started())
            if connect:
                self._connect()
                connect_again = time.monotonic() + _SECONDS_TO_CONNECT_AGAIN
            time.sleep(0.01)
            before, started = started, len(self.client.ids)
            progress.update(started - before)
            # The controller tells a new client which ranks are registered, and then announces each new rank as soon as
            # the client listens. On a busy machine a rank may register in between; then only a new client sees it.
            connect = new and started < self.size and time.monotonic() > connect_again

    def _connect(self):
        if self.client is not None:
            self.client.close(linger=0)
        try:
            self.client = ipp.Client(self._controller.for_clients, timeout=_SECONDS_TO_CONNECT)
        except TimeoutError:
            raise WorldError(f"{_CONTROLLER} did not answer within {_SECONDS_TO_CONNECT} s. Try again.") from None

    def _all_unregistered(self):
        """Wait until the controller has unregistered every rank; return False when it is dead or does not answer."""
        if self.client is None:
            return False  # an earlier restart failed
        deadline = time.monotonic() + _SECONDS_TO_UNREGISTER
        while self.client.ids:
            if not self.is_connected() or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _wait_for(self, rank, seconds, condition):
        """Wait until the condition holds; raise `WorldError` if it does not within this many seconds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.is_connected() or time.monotonic() > deadline:
                raise WorldError(f"Rank {rank} could not be replaced. Call world.restart() for working ranks.")
            time.sleep(0.01)

    def _why_not_started(self):
        if not self.is_connected():
            return f"{_CONTROLLER} died during its start. Try again."
        missing = min(self._deaths, default=None)
        if missing is None:
            missing = min(set(self.engine_ids) - set(self.client.ids))
            what = f"Rank {missing} did not start within {_SECONDS_TO_START} s."
        else:
            what = f"Rank {missing} died during its start ({self._deaths[missing]})."
        log = log_path(self.directory, missing)
        tail = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
        return "\n".join([what + " Its log ends with:", *tail])

    def _stop_ranks(self):
        if self._supervisor is not None:
            self._supervisor.stop()

    def _stop_controller(self):
        if self.client is not None:
            self.client.close(linger=0)
            self.client = None
        if self._controller is not None:
            self._controller.stop()


def _note_deaths(
    exits: Connection, controller: Controller, size: int, deaths: dict[int, str], reported: list[int]
) -> None:
    """Note the cause of each rank's death in `deaths`, and tell the controller, so that no client waits for the rank.

    `exits` receives each rank with its exit code. It closes when the supervisor ends, and then all `size` ranks have
    ended. Each rank whose death has been noted is appended to `reported`.
    """
    with suppress(EOFError, OSError):
        while True:
            rank, exit_code = exits.recv()
            deaths[rank] = _cause(exit_code)
            controller.unregister(rank)
            reported.append(rank)
    for rank in range(size):
        if rank not in deaths:
            deaths[rank] = "its supervisor has ended"
            controller.unregister(rank)


def _cause(exit_code):
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:  # a real-time signal has no name
        return f"signal {-exit_code}"
