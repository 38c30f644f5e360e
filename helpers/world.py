"""A world of ranks: live processes that the notebook starts, talks to, inspects when they are stuck, and restarts."""

import atexit
import shutil
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from helpers.errors import WorldError
from helpers.look.overview import overview
from helpers.ranks import prefork
from helpers.ranks.memory import require_room
from helpers.ranks.store import find_store
from helpers.ranks.topology import ProcessElsewhere, require_even_hosts

if TYPE_CHECKING:  # these imports take time, so `World` makes them while the fork server starts
    from helpers.ranks.protocol import Cables, Ranks

_current = None  # the world of the notebook, to which `%%px` sends cells


def current() -> "World | None":
    """Return the world of this notebook, None if it has no world."""
    return _current


class World:
    """Ranks 0 to `size` - 1, each a live process on this machine, for the `%%px` cells of a notebook.

    Each rank has the environment variables that torchrun would set, so `dist.init_process_group("gloo")` in a `%%px`
    cell is the same line as in a script. Another `World(...)` in the same notebook stops this world and starts new
    ranks.

    `size` is the number of ranks. `view` is ipyparallel's view of all ranks, in their order: `world.view["x"]` fetches
    the variable x of every rank, `world.view["x"] = 1` sets it.

    `World(4, hosts=2)` puts ranks 0 and 1 on one host and ranks 2 and 3 on another. The hosts are namespaces of this
    machine, made without root privileges: each has a name, a loopback, one address, and a cable to a switch. `unplug`
    takes the cable out, and `plug` puts it in again. If the system does not allow this, the ranks only have different
    host numbers in their environment; `world` says so, and how to allow real hosts.

    `accepted` has the learner's answers that have passed their checks, each with the cell that defined it.

    `preload` names slow modules that all ranks will import. The first world of a notebook imports them once, in the
    process from which the ranks are forked. Without forking, and in later worlds, `preload` has no effect.

    Raises `WorldError` when `size` is not a whole number above 0, when the ranks cannot be divided evenly among the
    hosts, when that many ranks do not fit into the free memory (`force=True` starts them anyway), when `preload` is not
    a list of modules that can be imported, and when the ranks do not start.
    """

    def __init__(self, size: int, *, hosts: int = 1, force: bool = False, preload: Sequence[str] = ()):
        require_room(size, force)
        require_even_hosts(size, hosts)
        prefork.warm_up(preload)  # the fork server imports its modules while this process imports `LocalRanks`
        from helpers.ranks.local import LocalRanks

        self._begin(lambda directory: LocalRanks(size, directory, hosts, preload))

    @classmethod
    def attach(cls, *, profile: str = "", cluster_id: str = "", connection_file: str | None = None) -> "World":
        """Return a world of the engines of a running ipyparallel cluster, on one or several hosts.

        The cluster is given by profile and cluster id, or by the path of its `ipcontroller-client.json`, as for
        ipyparallel itself. Its engines become ranks 0, 1, 2 ... in blocks by host; the engine with the lowest id is on
        the first host. `stop` leaves the engines running. docs/clusters.md says how to start such clusters.

        Raises `WorldError` when there is no such cluster, when it has no engines or serves another notebook, and when
        its hosts cannot reach each other.
        """
        prefork.warm_up()
        from helpers.ranks.attached import AttachedRanks

        world = cls.__new__(cls)
        world._begin(lambda directory: AttachedRanks(directory, profile, cluster_id, connection_file))
        return world

    def _begin(self, make_ranks: "Callable[[str], Ranks]"):
        global _current
        if _current is not None:
            _current.stop()
        _current = self
        self.size = 0
        self._ranks: Ranks = None  # until they are made
        self._board = self._editor = None
        self._stopped = False
        self._directory = ""
        self.accepted = {}
        atexit.register(self.stop)
        try:
            self._directory = prefork.make_folder()
            self._ranks = make_ranks(self._directory)
            self._ranks.start()
            self._open()
        except BaseException:
            self.stop()
            raise

    def _open(self):
        from helpers.look.notebook import connect

        self.size = self._ranks.size
        self._view = self._ranks.client[self._ranks.engine_ids]
        self._view.block = True
        self._cells, self._waiter, self._editor = connect(self, self._ranks)

    @property
    def view(self):
        """The ipyparallel view of all ranks, in their order, which waits for their answers."""
        self.require_running()
        return self._view

    def call(
        self,
        function: str | Callable,
        *arguments,
        targets: int | Sequence[int] | None = None,
        seconds: float | None = None,
    ):
        """Have all ranks call a function at the same time, and return their results in rank order.

        `function` is the name of a function that the ranks have, such as "train" or "dist.get_rank", or a function of
        the notebook, which is sent to them. `targets` names the ranks that call it; if it is a number, return the
        result of this rank without a list. Raises the error that the function raised, `TimeoutError` if a rank has not
        answered after `seconds`, and `WorldError` when there is no such rank. An Interrupt is passed on to the ranks.
        Then `call` raises KeyboardInterrupt when all of them have answered, and `WorldError` when a rank is stuck.
        """
        self.require_running()
        ranks = range(self.size) if targets is None else [targets] if isinstance(targets, int) else targets
        for rank in ranks:
            self._require_rank(rank)
        results = self._waiter.call(ranks, function, arguments, seconds)
        return results[0] if isinstance(targets, int) else results

    def start(self, cell: str):
        """Have all ranks run a cell, as `%%px --noblock` does, and return ipyparallel's result without waiting for it.

        `where`, `history` and `post_mortem` count its lines from 1, because there is no `%%px` line.
        """
        self.require_running()
        cell = cell.rstrip()
        self._cells.remember(cell)
        result = self._view.execute(cell, silent=False, block=False)
        self._cells.sent(range(self.size), result.msg_ids)
        return result

    def cells(self, beginning: str, rank: int = 0) -> list[str]:
        """Return the cells that a rank has run and that begin with this text, in order, each of them once.

        A notebook runs them again on the ranks of another world, with `world.view.execute(cell)`.
        """
        return [*dict.fromkeys(cell for cell in self.call(eval, "In", targets=rank) if cell.startswith(beginning))]

    @property
    def pids(self) -> list[int | ProcessElsewhere]:
        """The process id of each rank, on its host."""
        self.require_running()
        return list(self._ranks.pids)

    @property
    def folder(self) -> str:
        """A folder for the files of a lesson, which only this user can read.

        It is the temporary folder of the ranks. It survives a restart, and is removed when the world stops.
        """
        self.require_this_machine("A folder of the ranks and the notebook")
        return self._directory

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts: the first block of ranks is on the first host, the next block on the second."""
        self.require_running()
        return list(self._ranks.hosts)

    def host_of(self, rank: int) -> str:
        """Return the name of the host that a rank is on."""
        self._require_rank(rank)
        return self._ranks.host_of(rank)

    @property
    def has_cables(self) -> bool:
        """Whether each host has a cable of its own, which can be unplugged."""
        return len(self.hosts) > 1 and self._ranks.why_no_cables is None

    def unplug(self, host: str) -> None:
        """Unplug the cable of a host, so that no packet reaches or leaves the host; a second call does nothing.

        The ranks on the host keep running and reach each other, and the notebook still reaches all ranks. Raises
        `WorldError` for an unknown host, and when the hosts have no cables.
        """
        self._set_cable(host, plugged=False)

    def plug(self, host: str) -> None:
        """Plug the cable of a host in again, if it is unplugged; raise `WorldError` as `unplug` does."""
        self._set_cable(host, plugged=True)

    @property
    def cables(self) -> "Cables":
        """The interface to the cables, with `pace` and `carried`; raises `WorldError` when the hosts have no cables."""
        if len(self.hosts) < 2:
            raise WorldError(
                f"All ranks of this world are on one host. There are cables in World({self.size}, hosts=2)."
            )
        if not self.has_cables:
            raise WorldError(f"The hosts of this world have no cables: {self._ranks.why_no_cables}.")
        return cast("Cables", self._ranks)

    def board(self) -> None:
        """Show a board with a line for each rank, updated while cells run; in JupyterLab the board is a side panel."""
        from helpers.look.board import show

        self.require_running()
        self._board = show(self._board, lambda: (self._ranks, self._cells))

    def where(self, *, until: Mapping[int, str] | str | None = None):
        """Return what each rank is doing: idle or busy, for how long, in which call, on which line of which cell.

        This works while ranks are stuck, because it does not use their queue of cells. The result is a `Whereabouts`, a
        list with a `RankState` for each rank, which is shown as a table. `until={1: "recv", 0: "idle"}` gives, for some
        ranks, the call or the state to wait for: ask again until the ranks are there, for at most 10 s. `until="dead"`
        asks again until any rank is in this call or state.
        """
        from helpers.look.where import whereabouts, whereabouts_when

        self.require_running()
        if until:
            return whereabouts_when(until, self._ranks, self._cells)
        return whereabouts(self._ranks, self._cells)

    def history(self):
        """Return the last collectives of all ranks, a `History`; its `differences` are empty when the ranks agree.

        Like `where`, this works while ranks are stuck, and also after they have failed.
        """
        from helpers.look.history import history

        self.require_running()
        return history(self._ranks, self._cells)

    def post_mortem(self, rank: int):
        """Return the frames of the last error of a rank, with their variables, as a `PostMortem`, shown as a table.

        `world.post_mortem(1)["loss"]` is a variable of the innermost frame in the learner's own code. Raises
        `WorldError` when the rank has had no error, and when it is busy, silent or dead.
        """
        from helpers.look.post_mortem import post_mortem

        self._require_rank(rank)
        return post_mortem(self._ranks, self._cells, self.where()[rank])

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in every rank that has not answered a cell or a `world.call`.

        In a rank that is inside a C++ call, such as a collective, it is raised only when the call returns. A rank that
        is only busy with `world.view` is not interrupted.
        """
        self.require_running()
        alive = self._cells.owed().keys() - self._ranks.deaths().keys()
        for rank in alive:
            self._ranks.signal(rank, signal.SIGINT)

    def restart(self, *, rank: int | None = None) -> None:
        """Restore working ranks in any situation, such as dead or stuck ranks, or a half-made group or RPC.

        Replace every rank with a new process that has the same number; its variables are lost. With `rank`, replace
        only this rank, whether it is dead, stuck or idle, and leave the other ranks as they are. The new process is in
        no group until it makes a group with the others. Raises `WorldError` when there is no such rank, and for
        attached ranks, which this world did not start and must not end.
        """
        self.require_running()
        if rank is not None:
            self._require_rank(rank)
            self._ranks.restart_rank(rank)
        else:
            self._ranks.restart()
            self._open()
        if self.accepted:
            from helpers.checks.accepting import remind  # imported here because it imports this module

            remind(self, range(self.size) if rank is None else [rank])

    def new_store(self) -> None:
        """Give the ranks a new store, which they need to make a process group again after they have destroyed one.

        A store keeps the addresses of the destroyed group; torchrun also uses a new store for every restart.
        """
        self.require_idle("A fresh store")
        self.call(find_store, self._ranks.new_store())

    def stop(self) -> None:
        """End the ranks and every other process of the world; a second call does nothing."""
        global _current
        if self._stopped:
            return
        # Keep this order. Each step can be repeated, because an Interrupt may come at any moment.
        if self._editor is not None:
            self._editor.disconnect()
        if self._board is not None:
            self._board.end()
        if self._ranks is not None:
            self._ranks.stop()
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._stopped = True
        atexit.unregister(self.stop)
        if _current is self:
            _current = None

    def __repr__(self):
        return f"World of {self.size} ranks, " + ("stopped" if self._stopped else overview(self, self._ranks))

    @property
    def network(self) -> int | None:
        """The id of a process on the private network of the ranks; None if the system does not allow such a network."""
        self.require_running()
        return self._ranks.network

    def require_running(self) -> None:
        """Raise `WorldError` if the world has been stopped."""
        if self._stopped:
            raise WorldError(f"This world has been stopped. Make a new one: world = World({self.size}).")

    def require_this_machine(self, what: str) -> None:
        """Raise `WorldError` if some rank is on another machine; `what` is the subject of the message."""
        self.require_running()
        if elsewhere := self._ranks.hosts_elsewhere:
            raise WorldError(
                f"{what} cannot be had from here: there are ranks on {', '.join(elsewhere)}, and this notebook is on "
                f"{socket.gethostname()}."
            )

    def require_host(self, host: str) -> None:
        """Raise `WorldError` if there is no such host."""
        if host not in self.hosts:
            raise WorldError(f"There is no host {host!r}: the hosts of this world are {', '.join(self.hosts)}.")

    def require_idle(self, what: str) -> None:
        """Raise `WorldError` if a rank is not idle; `what` is the subject of the message."""
        self.require_running()
        if busy := [state for state in self.where() if state.state != "idle"]:
            raise WorldError(f"{what} needs every rank idle, and rank {busy[0].rank} is {busy[0].state}.")

    def _require_rank(self, rank):
        self.require_running()
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < self.size:
            raise WorldError(f"There is no rank {rank!r}: the ranks of this world are 0 to {self.size - 1}.")

    def _set_cable(self, host, plugged):
        cables = self.cables
        self.require_host(host)
        cables.set_cable(host, plugged)
