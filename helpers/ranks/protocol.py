"""The interface that `LocalRanks` and `AttachedRanks` implement, and the interface of cables between hosts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from helpers.probe.recorder import Record
from helpers.probe.samples import Sample
from helpers.probe.side_channel import Failed
from helpers.probe.stacks import Stacks
from helpers.ranks.topology import ProcessElsewhere


class Ranks(Protocol):
    """The processes of a world, in the order of the ranks, and a client that talks to them."""

    @property
    def client(self) -> Any:
        """The ipyparallel client; None before the start and after the end."""
        ...

    @property
    def engine_ids(self) -> list[int]:
        """The ids of the ranks' engines in ipyparallel, in the order of the ranks."""
        ...

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts on which the ranks run."""
        ...

    @property
    def hosts_elsewhere(self) -> Sequence[str]:
        """The names of the hosts on which the notebook does not run."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    @property
    def pids(self) -> Sequence[int | ProcessElsewhere]:
        """The process ids of the ranks."""
        ...

    @property
    def network(self) -> int | None:
        """The id of a process on the private network of the ranks; None when they have no private network."""
        ...

    @property
    def where_they_are(self) -> str | None:
        """The hosts of the ranks, and who can reach the ranks; None when they are on this machine."""
        ...

    @property
    def why_no_cables(self) -> str | None:
        """Why the hosts have no cables; None when they have cables, and when there is only one host."""
        ...

    def start(self) -> None:
        """Start the ranks or attach to them, and connect to them."""
        ...

    def restart(self) -> None:
        """Replace every rank with a new process."""
        ...

    def restart_rank(self, rank: int) -> None:
        """Replace one rank with a new process."""
        ...

    def stop(self) -> None:
        """End what `start` started; a second call does nothing."""
        ...

    def new_store(self) -> int:
        """Start a new store in place of the old store, and return its port."""
        ...

    def host_of(self, rank: int) -> str:
        """Return the name of the host that a rank is on."""
        ...

    def device(self, rank: int) -> str:
        """Return the device that a rank uses."""
        ...

    def memory(self, rank: int) -> int:
        """Return the bytes of memory that a rank uses, 0 if they are not known."""
        ...

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a rank."""
        ...

    def is_connected(self) -> bool:
        """Return whether messages reach the ranks, as far as this process can tell."""
        ...

    def deaths(self) -> dict[int, str]:
        """Return what ended each dead rank, by rank."""
        ...

    def last_words(self, rank: int) -> str:
        """Return the last lines of a dead rank's log, an empty text if they do not say why it died."""
        ...

    def stacks(self, ranks: set[int]) -> dict[int, Stacks | Failed]:
        """Ask living ranks for their stacks, even while cells run; return the stacks that arrive in time."""
        ...

    def collectives(self, ranks: set[int]) -> dict[int, Record | Failed]:
        """Ask living ranks for their collectives, even while cells run; return the records that arrive in time."""
        ...

    def ask(self, ranks: Iterable[int], function: Callable, *arguments, seconds: float) -> dict[int, Any]:
        """Have ranks call a function; return the results that arrive in time."""
        ...

    def samples(self, ranks: set[int], seconds: float) -> dict[int, Sample | Failed]:
        """Return a sample of each of these ranks that answers within this many seconds."""
        ...


class Cables(Protocol):
    """The cables between the hosts of a world and their switch, which only `LocalRanks` may have.

    `unplugged` has the hosts whose cable is unplugged.
    """

    unplugged: set[str]

    def set_cable(self, host: str, plugged: bool) -> None:
        """Plug the cable of a host into the switch, or unplug it."""
        ...

    def pace(self, bits_per_second: float, delay: float, loss: float) -> None:
        """Set the rate of every cable, in bits per second, its delay, in seconds, and its fraction of lost packets."""
        ...

    def carried(self) -> dict[str, tuple[int, int, int, dict[int, int]]]:
        """Return the byte counts of each host's interfaces: loopback, cable out and in, and retransmissions."""
        ...
