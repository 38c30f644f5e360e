"""The host and the network of each rank of a world, in the simple case in which all ranks share one network.

`helpers.ranks.cables` has several hosts with a network each. If the system does not allow this, several hosts differ
only in the environment variables of their ranks.
"""

import numbers
import socket
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from helpers.errors import WorldError

LOOPBACK = next(name for _, name in socket.if_nameindex() if name in ("lo", "lo0"))  # Linux, macOS
LOOPBACK_ADDRESS = "127.0.0.1"
_LOWEST_RATE = 8  # bits per second


class Place(NamedTuple):
    """The place of a rank: its host's number, its local rank, the address of rank 0, and the interface to use."""

    host: int
    local_rank: int
    local_size: int
    master: str = LOOPBACK_ADDRESS
    interface: str = LOOPBACK


class ProcessElsewhere(NamedTuple):
    """The id of a process on another host, which can be shown but not used as the id of a process on this host."""

    pid: int
    host: str

    def __repr__(self):
        return str(self.pid)

    def __index__(self):
        raise WorldError(
            f"Process {self.pid} is on {self.host}; from here its number is that of another process. Send it a signal "
            "through ipyparallel: world.view.client.send_signal('SIGKILL', 1) for the engine with the id 1."
        )


class OneNetwork:
    """`count` hosts, in blocks of ranks, that are one machine with one network.

    `why` says why the hosts have no cables; it is None when there is only one host, which needs no cable.
    """

    master, interface = LOOPBACK_ADDRESS, LOOPBACK

    def __init__(self, size: int, count: int, why: str | None = None):
        self.names = host_names(count)
        self.why = why
        self._local_size = size // count

    def place(self, rank: int) -> Place:
        """Return the place of a rank."""
        host, local_rank = divmod(rank, self._local_size)
        return Place(host, local_rank, self._local_size, self.master, self.interface)

    def enter(self, host: int) -> None:
        """Move this process to the host."""

    def inside(self, host: int) -> AbstractContextManager:
        """Put this process on the network of the host for as long as the block runs."""
        return nullcontext()


def host_names(count: int) -> list[str]:
    """Return the names of `count` hosts."""
    return [f"host{host}" for host in range(count)]


def require_even_hosts(size: int, hosts: int) -> None:
    """Raise `WorldError` when `size` ranks cannot be divided evenly among `hosts` hosts."""
    if not isinstance(hosts, int) or isinstance(hosts, bool) or hosts < 1:
        raise WorldError(f"hosts={hosts!r}: give the number of hosts as a whole number from 1 up, as in hosts=2.")
    if size % hosts:
        numbers = [number for number in range(1, size + 1) if size % number == 0]
        raise WorldError(
            f"World({size}, hosts={hosts}): {size} ranks cannot be divided evenly among {hosts} hosts. "
            f"Possible are {', '.join(map(str, numbers))}."
        )


def require_pace(function: str, bits_per_second: float, delay: float, loss: float) -> None:
    """Raise `WorldError` for an impossible rate, delay or loss; `function` is the name of the called function."""
    if not _is_number(bits_per_second) or not bits_per_second >= _LOWEST_RATE:
        raise WorldError(f"{function}({bits_per_second!r}): give the rate in bits per second, as in 1e9 for 1 Gbit/s.")
    are_numbers = _is_number(delay) and _is_number(loss)
    if not are_numbers or not (0 <= delay < float("inf") and 0 <= loss < 1):
        raise WorldError(
            f"{function}(delay={delay!r}, loss={loss!r}): give the delay in seconds, as in 0.01, and the loss as a "
            "share, as in 0.001 for one packet in a thousand."
        )


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
