"""What the TCP connections of this process have carried, as the system counts it (TCP_INFO, tcp(7)); Linux only."""

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

# Where struct tcp_info of linux/tcp.h has these counters, of 64 bits each. What has been acknowledged has one, too, but
# it comes late: take what has been sent, less what has been sent again.
_BYTES_RECEIVED, _BYTES_SENT, _BYTES_SENT_AGAIN = 128, 200, 208


class Carried(NamedTuple):
    """The bytes that a connection has carried, without headers."""

    received: int
    sent: int


def carried() -> dict[int, Carried]:
    """Return what each TCP connection of this process that is open now has carried, by a number that is its own."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), duplicate(int(name)) as connection:
            if connection is not None and _is_tcp(connection):
                found[os.fstat(connection.fileno()).st_ino] = _counters(connection)
    return found


@contextmanager
def duplicate(descriptor: int) -> Iterator[socket.socket | None]:
    """Yield a socket that shares the connection of this file descriptor, and is closed without closing it.

    Yields None when the descriptor is no socket, or no longer one: others may close and open files meanwhile.
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


def _is_tcp(one):
    return one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6)


def _counters(connection):
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_SENT_AGAIN + 8)
    counters = (_BYTES_RECEIVED, _BYTES_SENT, _BYTES_SENT_AGAIN)
    received, sent, again = (struct.unpack_from("=Q", info, counter)[0] for counter in counters)
    return Carried(received, sent - again)
