"""Find an address of each host of a cluster that all other hosts reach: an engine of each host tries them."""

import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import psutil

from helpers.errors import WorldError

_SECONDS_TO_REACH = 3

_listeners = []  # the sockets of this process that other hosts try to reach


class OfferedAddress(NamedTuple):
    """An address of a host, where an engine listens and sends the `password` to each process that connects."""

    interface: str
    address: str
    port: int
    password: bytes


# ---------------------------------------------------------------- in the notebook


def find_addresses(hosts: Sequence[str], ask: Callable[..., list]) -> list[OfferedAddress]:
    """Return, for each host, the first of its addresses that all other hosts reach.

    `ask(function, ...)` has an engine of each host call a function, and returns the results. Raises `WorldError` when
    there is no such address of a host.
    """
    offered = ask(listen)
    all_addresses = [address for addresses in offered for address in addresses]
    reached = [dict(zip(all_addresses, by_host, strict=True)) for by_host in ask(reach, all_addresses)]
    chosen = []
    for host, addresses in zip(hosts, offered, strict=True):
        good = [address for address in addresses if all(by_host[address] for by_host in reached)]
        if not good:
            answers = zip(hosts, reached, strict=True)
            missing = [other for other, by_host in answers if not any(by_host[address] for address in addresses)]
            raise WorldError(_say_unreachable(host, addresses, missing))
        chosen.append(good[0])
    return chosen


def _say_unreachable(host, addresses, missing):
    where = ", ".join(address.address for address in addresses) or "it has no address"
    if not missing:
        return (
            f"The hosts of this cluster reach {host} at different addresses ({where}), and none at which all do. A "
            "world needs one network that all its hosts are on."
        )
    return (
        f"{' and '.join(missing)} cannot reach {host} ({where}). In a world every host must reach every other host, at "
        "any port. Ask the administrator of the network between them, or start engines on other hosts."
    )


# ---------------------------------------------------------------- in an engine of each host


def listen() -> list[OfferedAddress]:
    """Listen on every IPv4 address of this host except its loopback, until `stop_listening`; return the addresses."""
    stop_listening()
    password = secrets.token_bytes(16)  # another host may have the same address in another network
    offered = []
    states = psutil.net_if_stats()
    for interface, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            is_public = address.family == socket.AF_INET and not address.address.startswith("127.")
            if is_public and states[interface].isup:
                listener = socket.create_server((address.address, 0))
                _listeners.append(listener)
                threading.Thread(target=_send_to_all, args=[password, listener], daemon=True).start()
                offered.append(OfferedAddress(interface, *listener.getsockname(), password))
    return offered


def _send_to_all(password, listener):
    with suppress(OSError):  # the listener has been closed
        while True:
            visitor, _ = listener.accept()
            with visitor, suppress(OSError):
                visitor.sendall(password)


def reach(addresses: Sequence[OfferedAddress]) -> list[bool]:
    """Return, for each address, whether this host reaches the host that listens there."""
    if not addresses:
        return []
    with ThreadPoolExecutor(len(addresses)) as pool:
        return list(pool.map(_reaches, addresses))


def _reaches(address):
    try:
        with socket.create_connection((address.address, address.port), timeout=_SECONDS_TO_REACH) as connection:
            return connection.recv(len(address.password), socket.MSG_WAITALL) == address.password
    except OSError:
        return False


def stop_listening() -> None:
    """Close the listeners of this process."""
    while _listeners:
        listener = _listeners.pop()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for connections
        listener.close()
