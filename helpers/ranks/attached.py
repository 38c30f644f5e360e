"""Ranks on an ipyparallel cluster that somebody else has started, such as the shared one of a classroom."""

import socket

import ipyparallel as ipp

from helpers.errors import WorldError
from helpers.ranks.host import Host
from helpers.ranks.rank import join_world
from helpers.ranks.store import environment

_SECONDS_TO_CONNECT = 5
_SECONDS_TO_ANSWER = 30


class AttachedRanks:
    """The engines of a running cluster, the one with the lowest id as rank 0, and a client that talks to them.

    It is used like `LocalRanks`, but ends only what it has started itself. Raises `WorldError` when
    there is no such cluster, and when `start` finds that it has no engines, has some on another machine, or
    serves another notebook.
    """

    def __init__(self, directory: str, profile: str, cluster_id: str, connection_file: str | None):
        self.directory = directory
        self.client = None
        self.pids = []
        self.hosts = [socket.gethostname()]
        self._host = None
        try:
            self.client = ipp.Client(
                connection_file,
                profile=profile,
                cluster_id=cluster_id,
                timeout=_SECONDS_TO_CONNECT,
            )
        except (OSError, TimeoutError) as error:
            raise WorldError(
                "No running ipyparallel cluster was found there. Start one with `ipcluster start -n 4`, or give the "
                "profile, or the path of the ipcontroller-client.json, of one that runs."
            ) from error
        self.engine_ids = sorted(self.client.ids)
        self.size = len(self.engine_ids)

    def start(self) -> None:
        """Give the engines torchrun's environment."""
        if not self.size:
            raise WorldError("The cluster runs, but has no engines. Start some with `ipcluster engines -n 4`.")
        hosts = self._answer(self.client[self.engine_ids].apply_async(socket.gethostname))
        if elsewhere := set(hosts) - {socket.gethostname()}:
            raise WorldError(
                f"Engines of this cluster run on {', '.join(sorted(elsewhere))}. A world has all its ranks on the "
                "machine of the notebook; for several machines start a script with torchrun."
            )
        self._host = Host(self.directory, [], private=False)
        answers = [
            self.client[engine].apply_async(
                join_world,
                rank,
                environment(rank, self.size, self._host.port),
                self.directory,
            )
            for rank, engine in enumerate(self.engine_ids)
        ]
        self.pids = [self._answer(answer) for answer in answers]
        if None in self.pids:
            raise WorldError(
                "Another notebook has made ranks of these engines. Stop its world first (world.stop()), or start a "
                "cluster of your own with `ipcluster start -n 4`."
            )

    def restart(self) -> None:
        """Refuse: the engines are not this world's to end."""
        raise WorldError(
            "These ranks belong to a cluster that somebody else has started. Restart its engines where it was started "
            "(`ipcluster stop`, `ipcluster start`), then attach again."
        )

    def restart_rank(self, rank: int) -> None:
        """Refuse, as `restart` does."""
        self.restart()

    def new_store(self) -> int:
        """Start a fresh store in place of the old one, and return its port."""
        return self._host.new_store()

    def stop(self) -> None:
        """Let go of the engines, which keep running."""
        if self._host is not None:
            self._host.stop()
        if self.client is not None:
            self.client.close(linger=0)

    @property
    def cuda_devices(self) -> int:
        """How many CUDA devices the ranks see."""
        return self._host.cuda_devices

    @property
    def network(self) -> None:
        """None: the engines are on a network of the machine."""
        return None

    @property
    def why_no_cables(self) -> str:
        """Why the hosts have no cables that this world could take out."""
        return "they belong to a cluster that somebody else has started"

    def is_connected(self) -> bool:
        """Return True: how the controller is, only those know who have started it."""
        return True

    def deaths(self) -> dict[int, str]:
        """Return the ranks whose engines the cluster has lost."""
        alive = set(self.client.ids)
        return {rank: "its engine is gone" for rank, engine in enumerate(self.engine_ids) if engine not in alive}

    def last_words(self, rank: int) -> str:
        """Return nothing: whoever has started the engine knows where its log is."""
        return ""

    def _answer(self, answer):
        try:
            return answer.get(_SECONDS_TO_ANSWER)
        except TimeoutError:
            raise WorldError(
                f"The engines have not answered for {_SECONDS_TO_ANSWER} s: somebody else's cell runs on them."
            ) from None
