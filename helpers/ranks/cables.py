"""Hosts in namespaces of this machine: each with a name, a loopback, one address, and a cable to a switch.

The switch is a bridge on the private network of the process that makes the hosts; one end of each host's veth pair is
attached to it. Hosts exchange real TCP traffic over real interfaces, which nothing else uses. Hosts and switch
vanish with the last process inside. See network_namespaces(7), veth(4) and tc-tbf(8). Only Linux has these namespaces.
"""

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyroute2 import DiagSocket, IPRoute, NetlinkError

from helpers.probe import connections
from helpers.ranks import namespaces
from helpers.ranks.topology import OneNetwork

_SWITCH = "switch"
_INTERFACE = "eth0"
# These addresses are not visible outside, so they cannot conflict with others.
_FIRST_ADDRESS, _PREFIX = ipaddress.IPv4Address("10.77.0.11"), 16

# Jumbo frames, as in cluster networks: headers take 0.7 % of a jumbo frame, and 4.4 % of a frame of 1500 bytes.
_BYTES_OF_A_PACKET = 9000
# A token bucket sends its burst at once. The burst makes up for late scheduling, and must hold two frames. The queue is
# long enough for the switch to lose nothing, because retransmitted bytes would be counted twice.
_SECONDS_OF_BURST, _LEAST_BURST = 0.005, 2 * (_BYTES_OF_A_PACKET + 14)
_SECONDS_OF_QUEUE, _LEAST_QUEUE = 0.5, 2**20
_WITH_TCP_INFO = 2  # the bit of INET_DIAG_INFO
_ROOT, _BEHIND_DELAY = "1:0", "1:1"


class CabledHosts(OneNetwork):
    """`count` hosts, in blocks of ranks, each in namespaces of its own with a cable to a switch.

    Make the hosts in a process with a single thread on a private network, which becomes the network of the switch.
    Raises OSError, with the reason, when the kernel lacks a feature.
    """

    interface = _INTERFACE

    def __init__(self, size: int, count: int):
        super().__init__(size, count)
        self.addresses = [str(_FIRST_ADDRESS + host) for host in range(count)]
        self.master = self.addresses[0]
        self._switch = namespaces.this_network()
        self._hosts = [namespaces.make_host(name) for name in self.names]
        try:
            self._lay_cables()
        except NetlinkError as error:
            raise OSError(error.code, f"this kernel has no bridges or no veth pairs ({error.args[1]})") from None

    def enter(self, host: int) -> None:
        """Move this process to the host."""
        namespaces.enter(self._hosts[host])

    @contextmanager
    def inside(self, host: int) -> Iterator[None]:
        """Put this process on the network of the host for as long as the block runs."""
        namespaces.enter(self._hosts[host], "net")
        try:
            yield
        finally:
            namespaces.enter(self._switch)

    def set_cable(self, name: str, plugged: bool) -> None:
        """Plug the cable of a host into the switch, or unplug it."""
        with IPRoute() as netlink:
            netlink.link("set", index=socket.if_nametoindex(name), state="up" if plugged else "down")

    def pace(self, bits_per_second: float, delay: float, loss: float) -> None:
        """Pace each cable to this rate in each direction, and delay what its host sends or lose a fraction of it.

        An infinite rate means no limit. Raises OSError when the kernel cannot do this; then no cable is paced.
        """
        try:
            for host, name in enumerate(self.names):
                _shape(name, bits_per_second)
                with self.inside(host):
                    _shape(_INTERFACE, bits_per_second, delay, loss)
        except NetlinkError as error:
            if bits_per_second != float("inf") or delay or loss:
                self.pace(float("inf"), 0, 0)
            raise OSError(error.code, error.args[1]) from None

    def carried(self) -> dict[str, tuple[int, int, int, dict[int, int]]]:
        """Return, for each host, the bytes that its loopback carried, and that its interface sent and received.

        The last value has the bytes that each open connection to another host has retransmitted. Packets of a veth pair
        overtake each other when their sender moves to another core, and TCP takes the late packets for lost: up to 9 %
        of a tensor.
        """
        counters = {}
        for host, name in enumerate(self.names):
            with self.inside(host):
                loopback, cable = connections.of_interface("lo"), connections.of_interface(_INTERFACE)
                counters[name] = loopback.sent, cable.sent, cable.received, _sent_again()
        return counters

    def _lay_cables(self):
        _disable_ipv6()
        for host in range(len(self.names)):
            with self.inside(host):
                _disable_ipv6()
        with IPRoute() as netlink:
            netlink.link("add", ifname=_SWITCH, kind="bridge")
            switch = socket.if_nametoindex(_SWITCH)
            netlink.link("set", index=switch, state="up")
            for name, host in zip(self.names, self._hosts, strict=True):
                peer = {"ifname": _INTERFACE, "mtu": _BYTES_OF_A_PACKET, "net_ns_fd": host["net"]}
                netlink.link("add", ifname=name, kind="veth", mtu=_BYTES_OF_A_PACKET, peer=peer)
                netlink.link("set", index=socket.if_nametoindex(name), master=switch, state="up")
        for host, address in enumerate(self.addresses):
            with self.inside(host), IPRoute() as netlink:
                interface = socket.if_nametoindex(_INTERFACE)
                netlink.addr("add", index=interface, address=address, prefixlen=_PREFIX)
                netlink.link("set", index=interface, state="up")


def _sent_again():
    """Return the bytes that each TCP connection of this network to another host has retransmitted, by connection id.

    See sock_diag(7) and, for the counter, struct tcp_info in linux/tcp.h.
    """
    with DiagSocket() as netlink:
        sockets = netlink.get_sock_stats(socket.AF_INET, extensions=_WITH_TCP_INFO)
    again = {}
    for one_end in sockets:
        info = one_end.get_attr("INET_DIAG_INFO")
        if info and one_end["idiag_dst"] != one_end["idiag_src"]:
            again[one_end["idiag_cookie"]] = info["tcpi_bytes_retrans"]
    return again


def _disable_ipv6():
    """Disable IPv6 on new interfaces of this network, because IPv6 sends messages by itself."""
    with suppress(OSError):  # no IPv6, or a container that may not change this
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")


def _shape(interface, bits_per_second, delay=0.0, loss=0.0):
    """Set the rate, delay and loss of an interface of this process's network, in place of the earlier values."""
    with IPRoute() as netlink:
        index = socket.if_nametoindex(interface)
        with suppress(NetlinkError):  # there was no setting
            netlink.tc("del", index=index, root=True)
        place = {"handle": _ROOT}
        if delay or loss:
            netlink.tc("add", "netem", index, _ROOT, delay=round(delay * 1e6), loss=loss * 100)
            place = {"handle": "2:0", "parent": _BEHIND_DELAY}
        if bits_per_second != float("inf"):
            rate = int(bits_per_second / 8)
            burst = max(_LEAST_BURST, int(rate * _SECONDS_OF_BURST))
            queue = max(_LEAST_QUEUE, int(rate * _SECONDS_OF_QUEUE))
            netlink.tc("add", "tbf", index, rate=rate, burst=burst, limit=queue, **place)
