"""What the TCP connections of this process have carried, as the system counts it (TCP_INFO, tcp(7)); Linux only."""

import os
import socket
import stat
import struct
from contextlib import suppress
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
        descriptor = int(name)
        with suppress(OSError):  # closed meanwhile
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                # A duplicate is closed without closing the connection.
                with socket.socket(fileno=os.dup(descriptor)) as duplicate:
                    if _is_tcp(duplicate):
                        found[os.fstat(descriptor).st_ino] = _counters(duplicate)
    return found


def _is_tcp(one):
    return one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6)


def _counters(connection):
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_SENT_AGAIN + 8)
    counters = (_BYTES_RECEIVED, _BYTES_SENT, _BYTES_SENT_AGAIN)
    received, sent, again = (struct.unpack_from("=Q", info, counter)[0] for counter in counters)
    return Carried(received, sent - again)
