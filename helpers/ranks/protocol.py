"""The interface of a world's ranks, which `LocalRanks` and `AttachedRanks` have. Only `LocalRanks` may have cables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from helpers.ranks.recorder import Record
from helpers.ranks.samples import Sample
from helpers.ranks.side_channel import Failed
from helpers.ranks.stacks import Stacks
from helpers.ranks.topology import ProcessElsewhere


class Ranks(Protocol):
    """The processes of a world, in the order of the ranks, and a client that talks to them."""

    @property
    def client(self) -> Any:
        """The ipyparallel client; None before the start and after the end."""
        ...

    @property
    def engine_ids(self) -> list[int]:
        """The numbers by which ipyparallel knows the ranks, in their order."""
        ...

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts that the ranks are on."""
        ...

    @property
    def hosts_elsewhere(self) -> Sequence[str]:
        """The names of the hosts on which the notebook does not run."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    @property
    def pids(self) -> Sequence[int | ProcessElsewhere]:
        """The process ids of the ranks."""
        ...

    @property
    def network(self) -> int | None:
        """The id of a process on the private network of the ranks; None when they have none."""
        ...

    @property
    def where_they_are(self) -> str | None:
        """On which hosts the ranks are, and who can reach them; None when they are on this machine."""
        ...

    @property
    def why_no_cables(self) -> str | None:
        """Why the hosts have no cables; None when they have cables, and when there is only one host."""
        ...

    def start(self) -> None:
        """Start the ranks or attach to them, and connect to them."""
        ...

    def restart(self) -> None:
        """Replace every rank by a new process."""
        ...

    def restart_rank(self, rank: int) -> None:
        """Replace one rank by a new process."""
        ...

    def stop(self) -> None:
        """End what `start` has started; a second call does nothing."""
        ...

    def new_store(self) -> int:
        """Start a fresh store in place of the old one, and return its port."""
        ...

    def host_of(self, rank: int) -> str:
        """Return the name of the host that a rank is on."""
        ...

    def device(self, rank: int) -> str:
        """Return the device that a rank takes."""
        ...

    def memory(self, rank: int) -> int:
        """Return the bytes of memory that a rank takes, as far as they are known."""
        ...

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a rank."""
        ...

    def is_connected(self) -> bool:
        """Return whether messages get through."""
        ...

    def deaths(self) -> dict[int, str]:
        """Return what ended each rank that is dead."""
        ...

    def last_words(self, rank: int) -> str:
        """Return the last lines of the log of a rank that has died, as far as they say why."""
        ...

    def stacks(self, ranks: set[int]) -> dict[int, Stacks | Failed]:
        """Ask ranks that are alive for their stacks, from outside; return the stacks of each that answers in time."""
        ...

    def collectives(self, ranks: set[int]) -> dict[int, Record | Failed]:
        """Ask ranks that are alive for their collectives, from outside; return those of each that answers in time."""
        ...

    def ask(self, ranks: Iterable[int], function: Callable, *arguments, seconds: float) -> dict[int, Any]:
        """Have ranks call a function; return the results that arrive in time."""
        ...

    def samples(self, ranks: set[int], seconds: float) -> dict[int, Sample | Failed]:
        """Return a sample of each of these ranks that answers within this many seconds."""
        ...


class Cables(Protocol):
    """The cables between the hosts of a world and their switch; `unplugged` are the hosts whose cable is out."""

    unplugged: set[str]

    def set_cable(self, host: str, plugged: bool) -> None:
        """Put the cable of a host into the switch, or take it out."""
        ...

    def pace(self, bits_per_second: float, delay: float, loss: float) -> None:
        """Give every cable this rate, in bits per second, this delay, in seconds, and this share of lost packets."""
        ...

    def carried(self) -> dict[str, tuple[int, int, int, dict[int, int]]]:
        """Return what each host's interfaces have counted: loopback, cable out and in, and sent again."""
        ...
