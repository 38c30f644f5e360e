"""The bytes that TCP connections and network interfaces have carried, as Linux counts them.

Connections: TCP_INFO, see tcp(7). Interfaces: /proc/PID/net/dev, see proc_pid_net(5).
"""

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

# The offsets of these 64-bit counters in struct tcp_info of linux/tcp.h. There is a counter of acknowledged bytes, but
# it lags behind, so bytes sent minus bytes sent again are used instead.
_BYTES_RECEIVED, _BYTES_SENT, _BYTES_SENT_AGAIN = 128, 200, 208
_COLUMN_RECEIVED, _COLUMN_SENT = 0, 8


class ConnectionBytes(NamedTuple):
    """The bytes that a connection has carried, without headers."""

    received: int
    sent: int


class InterfaceBytes(NamedTuple):
    """The bytes that a network interface has carried, with headers."""

    received: int
    sent: int


def carried() -> dict[int, ConnectionBytes]:
    """Return the bytes that each open TCP connection of this process has carried, by the inode of its socket."""
    connections = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), duplicate(int(name)) as connection:
            if connection is not None and _is_tcp(connection):
                connections[os.fstat(connection.fileno()).st_ino] = _counters(connection)
    return connections


def of_interface(name: str, process: int | str = "thread-self") -> InterfaceBytes:
    """Return the bytes that an interface has carried, on the network of this process or of another process."""
    for line in Path(f"/proc/{process}/net/dev").read_text().splitlines():
        interface, _, numbers = line.strip().partition(":")
        if interface == name:
            columns = numbers.split()
            return InterfaceBytes(int(columns[_COLUMN_RECEIVED]), int(columns[_COLUMN_SENT]))
    raise OSError(f"there is no interface {name}")


@contextmanager
def duplicate(descriptor: int) -> Iterator[socket.socket | None]:
    """Yield a socket that shares the connection of this file descriptor; closing it leaves the connection open.

    Yields None when the descriptor is not a socket, or no longer a socket, because other threads may close and open
    files meanwhile.
    """
    connection = None
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            copy = os.dup(descriptor)
            try:
                connection = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
    try:
        yield connection
    finally:
        if connection is not None:
            connection.close()


def _is_tcp(connection):
    return connection.type == socket.SOCK_STREAM and connection.family in (socket.AF_INET, socket.AF_INET6)


def _counters(connection):
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_SENT_AGAIN + 8)
    counters = (_BYTES_RECEIVED, _BYTES_SENT, _BYTES_SENT_AGAIN)
    received, sent, again = (struct.unpack_from("=Q", info, counter)[0] for counter in counters)
    return ConnectionBytes(received, sent - again)
