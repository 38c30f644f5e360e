"""Ranks on an ipyparallel cluster that somebody else started: the cluster of a classroom, or of several hosts.

The notebook and a rank communicate only over ipyparallel, whatever host the rank is on.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import ipyparallel as ipp

from helpers import devices
from helpers.errors import WorldError
from helpers.probe.recorder import Record
from helpers.probe.samples import Sample
from helpers.probe.side_channel import Failed
from helpers.probe.stacks import Stacks
from helpers.ranks import engine, store
from helpers.ranks.engine import Owner
from helpers.ranks.rank import last_lines
from helpers.ranks.reachability import find_addresses
from helpers.ranks.topology import LOOPBACK, LOOPBACK_ADDRESS, Place, ProcessElsewhere

_SECONDS_TO_CONNECT = 5
_SECONDS_TO_ANSWER = 30
_SECONDS_TO_JOIN = 120  # each engine imports torch, maybe from a slow shared disk
_SECONDS_TO_PUBLISH = 2.0
_SECONDS_TO_LEAVE = 1


class AttachedRanks:
    """The engines of a running cluster, in blocks by host, and a client that talks to them.

    The class has the interface of `LocalRanks`, but `stop` does not end the engines. Raises `WorldError` when there is
    no such cluster. `start` raises it when the cluster has no engines, serves another notebook, or has hosts that
    cannot reach each other.
    """

    network = None
    why_no_cables = "they belong to a cluster that somebody else has started"

    def __init__(self, directory: str, profile: str, cluster_id: str, connection_file: str | None):
        _require_texts(profile=profile, cluster_id=cluster_id, connection_file=connection_file or "")
        self.pids, self.hosts, self.hosts_elsewhere = [], [], []
        self.engine_ids = []
        self.client = None
        self._owner = Owner(socket.gethostname(), directory)
        self._places, self._answers, self._joined = [], [], []
        try:
            self.client = ipp.Client(
                connection_file,
                profile=profile,
                cluster_id=cluster_id,
                timeout=_SECONDS_TO_CONNECT,
            )
        except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:  # no cluster, or not its file
            raise WorldError(
                "No running ipyparallel cluster was found there. Start one with `ipcluster start -n 4`, or give the "
                "profile, or the path of the ipcontroller-client.json, of one that runs."
            ) from error

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.engine_ids)

    def start(self) -> None:
        """Make the engines ranks of this world, with torchrun's environment variables."""
        ids = sorted(self.client.ids)
        if not ids:
            raise WorldError("The cluster runs, but has no engines. Start some with `ipcluster engines -n 4`.")
        engines = dict(zip(ids, self._ask_all(ids, engine.introduce), strict=True))
        self._require_free([introduced.owner for introduced in engines.values()])
        self.hosts = list(dict.fromkeys(introduced.host for introduced in engines.values()))
        self.hosts_elsewhere = [host for host in self.hosts if host != socket.gethostname()]
        self.engine_ids = [id for host in self.hosts for id in ids if engines[id].host == host]
        self.pids = [_pid(engines[id]) for id in self.engine_ids]
        hosts_of_ranks = [engines[id].host for id in self.engine_ids]
        self._places = self._make_places(hosts_of_ranks)
        folders = self._make_folders(hosts_of_ranks)
        self._answers = [
            self.client[id].apply_async(
                engine.join,
                rank,
                {**store.environment(rank, self.size, 0, self._places[rank]), "TMPDIR": folders[rank]},
                self._owner,
                engines[id].owner,
            )
            for rank, id in enumerate(self.engine_ids)
        ]
        self._joined = [self._wait(answer, _SECONDS_TO_JOIN) for answer in self._answers]
        if None in self._joined:
            raise _taken()
        self._ask_all(self.engine_ids, store.find_store, self.new_store())

    def restart(self) -> None:
        """Raise `WorldError`, because this world did not start the engines and must not end them."""
        raise WorldError(
            "These ranks belong to a cluster that somebody else has started. Restart its engines where it was started "
            "(`ipcluster stop`, `ipcluster start`), then attach again."
        )

    def restart_rank(self, rank: int) -> None:
        """Raise `WorldError`, as `restart` does."""
        self.restart()

    def new_store(self) -> int:
        """Start a new store in place of the old store, on the host of rank 0, and return its port."""
        return self._wait(self.client[self.engine_ids[0]].apply_async(engine.open_store, self._places[0].master))

    def stop(self) -> None:
        """Release the engines, which keep running."""
        if self.client is None:
            return
        alive = [rank for rank, id in enumerate(self.engine_ids) if id in self.client.ids]
        answers = [
            self.client[self.engine_ids[rank]].apply_async(engine.leave, self._owner, self._logs_beside(rank))
            for rank in alive
        ]
        deadline = time.monotonic() + _SECONDS_TO_LEAVE  # a rank that is stuck leaves when its call returns
        for answer in answers:
            answer.wait(max(0, deadline - time.monotonic()))
        self.client.close(linger=_SECONDS_TO_LEAVE)
        self.client = None

    @property
    def where_they_are(self) -> str | None:
        """The hosts of the ranks, and who can reach the ranks; None when they are on this machine."""
        if len(self.hosts) > 1:
            return (
                f"{len(self.hosts)} hosts of a cluster, on the network that they share: whoever reaches "
                f"{self._places[0].master} can run code on them"
            )
        if self.hosts_elsewhere:
            return f"the loopback of {self.hosts[0]}, open to its other users"
        return None

    def host_of(self, rank: int) -> str:
        """Return the name of the host that a rank is on."""
        return self.hosts[self._places[rank].host]

    def device(self, rank: int) -> str:
        """Return the device that a rank uses."""
        place = self._places[rank]
        return devices.choose(place.local_rank, place.local_size, self._joined[rank].gpus).device

    def memory(self, rank: int) -> int:
        """Return the bytes of memory that a rank used when it last reported its stacks, 0 if it never did."""
        published = self._published(rank, "SIGUSR1")
        return published.memory if published else 0

    def signal(self, rank: int, number: int | str) -> None:
        """Send a signal, by number or name, to a rank, through the nanny process that ipyparallel starts per engine."""
        with suppress(IndexError):  # the rank has just died
            self.client.send_signal(number, self.engine_ids[rank], block=False)

    def stacks(self, ranks: set[int]) -> dict[int, Stacks | Failed]:
        """Ask living ranks for their stacks, with a signal; return the stacks of each rank that answers in time."""
        return self._ask_by_signal(ranks, "SIGUSR1")

    def collectives(self, ranks: set[int]) -> dict[int, Record | Failed]:
        """Ask living ranks for their collectives, with a signal; return the records that arrive in time."""
        return self._ask_by_signal(ranks, "SIGUSR2")

    def _ask_by_signal(self, ranks, signal):
        """Send ranks a signal; return the answer that each rank publishes within a few seconds."""
        before = {rank: self._published(rank, signal) for rank in ranks}
        for rank in ranks:
            self.signal(rank, signal)
        deadline = time.monotonic() + _SECONDS_TO_PUBLISH
        waiting = set(ranks)
        while waiting and time.monotonic() < deadline:
            time.sleep(0.01)
            waiting -= self.deaths().keys()
            waiting -= {rank for rank in waiting if self._published(rank, signal) is not before[rank]}
        return {rank: self._published(rank, signal).answer for rank in ranks - waiting - self.deaths().keys()}

    def is_connected(self) -> bool:
        """Return True, because this world did not start the controller and cannot see its process."""
        return True

    def deaths(self) -> dict[int, str]:
        """Return the ranks whose engines the cluster has lost."""
        alive = set(self.client.ids)
        lost = "its engine is gone"
        return {rank: lost for rank, id in enumerate(self.engine_ids) if id not in alive}

    def ask(self, ranks: Iterable[int], function: Callable, *arguments, seconds: float) -> dict[int, object]:
        """Have idle ranks call a function; return the results that arrive in time."""
        if self.client is None:
            return {}
        deadline = time.monotonic() + seconds
        asked = {rank: self.client[self.engine_ids[rank]].apply_async(function, *arguments) for rank in ranks}
        answers = {}
        for rank, answer in asked.items():
            with suppress(TimeoutError, ipp.RemoteError):
                answers[rank] = answer.get(max(0, deadline - time.monotonic()))
        return answers

    def samples(self, ranks: set[int], seconds: float) -> dict[int, Sample | Failed]:
        """Return a sample of each of these ranks that answers in time; `carried` is always None."""
        answers = self.stacks(ranks).items()
        return {rank: Sample(answer, None) if isinstance(answer, Stacks) else answer for rank, answer in answers}

    def last_words(self, rank: int) -> str:
        """Return the last lines of the log of a dead rank, which another rank of its host reads."""
        deaths = self.deaths()
        if rank not in deaths:
            return ""
        for neighbour in [other for other in self._beside(rank) if other not in deaths]:
            answer = self.client[self.engine_ids[neighbour]].apply_async(engine.read, self._joined[rank].log)
            with suppress(TimeoutError, ipp.RemoteError):
                return last_lines(answer.get(_SECONDS_TO_LEAVE))
        where = f"{self._joined[rank].log} on {self.host_of(rank)}"
        return f"(What it may have written is in {where}, where no rank is free to read it.)"

    def _beside(self, rank):
        """Return the ranks on the host of a rank, including the rank itself."""
        return [other for other, place in enumerate(self._places) if place.host == self._places[rank].host]

    def _logs_beside(self, rank):
        joined = dict(enumerate(self._joined))  # empty if `start` failed
        return [joined[other].log for other in self._beside(rank) if joined.get(other)]

    def _make_places(self, hosts_of_ranks):
        """Return the place of each rank; raise `WorldError` when the hosts cannot reach each other."""
        first = {host: hosts_of_ranks.index(host) for host in self.hosts}
        ids = [self.engine_ids[rank] for rank in first.values()]
        addresses = find_addresses(self.hosts, partial(self._ask_all, ids)) if len(self.hosts) > 1 else None
        master = addresses[0].address if addresses else LOOPBACK_ADDRESS
        return [
            Place(
                host=self.hosts.index(host),
                local_rank=rank - first[host],
                local_size=hosts_of_ranks.count(host),
                master=master,
                interface=addresses[self.hosts.index(host)].interface if addresses else LOOPBACK,
            )
            for rank, host in enumerate(hosts_of_ranks)
        ]

    def _make_folders(self, hosts_of_ranks):
        """Return the temporary folder of each rank, which the ranks of a host share."""
        first = [self.engine_ids[hosts_of_ranks.index(host)] for host in self.hosts]
        folders = dict(zip(self.hosts, self._ask_all(first, engine.make_folder, self._owner), strict=True))
        return [folders[host] for host in hosts_of_ranks]

    def _require_free(self, owners):
        """Raise `WorldError` when an engine belongs to another notebook, unless it ran on this host and has ended."""
        for owner in set(owners) - {None}:
            if owner.host != self._owner.host or Path(owner.folder).exists():
                raise _taken()

    def _published(self, rank, signal):
        """Return a rank's most recent `engine.Published` for a signal, None if there is none."""
        (message,) = self._answers[rank].msg_ids
        return self.client.metadata[message]["data"].get(signal)

    def _ask_all(self, ids, function, *arguments):
        return [self._wait(answer) for answer in [self.client[id].apply_async(function, *arguments) for id in ids]]

    def _wait(self, answer, seconds=_SECONDS_TO_ANSWER):
        try:
            return answer.get(seconds)
        except TimeoutError:
            raise WorldError(
                f"The engines did not answer within {seconds} s: another user's cell may be running on them, or the "
                "import of torch may take longer. Try again later."
            ) from None
        except ipp.RemoteError as error:
            if error.ename not in ("ImportError", "ModuleNotFoundError"):
                raise
            raise WorldError(
                f"An engine cannot import what a rank needs ({error.evalue}): install the course on every host of the "
                "cluster, in the Python that its engines run."
            ) from None


def _require_texts(**arguments):
    for name, value in arguments.items():
        if not isinstance(value, str | os.PathLike):
            raise WorldError(f"attach({name}={value!r}): give a text, in quotes.")


def _pid(introduced):
    is_here = introduced.host == socket.gethostname()
    return introduced.pid if is_here else ProcessElsewhere(introduced.pid, introduced.host)


def _taken():
    return WorldError(
        "Another notebook has made ranks of these engines. Stop its world first (world.stop()), or start a "
        "cluster of your own with `ipcluster start -n 4`."
    )
