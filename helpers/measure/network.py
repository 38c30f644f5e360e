"""Slow links between the ranks of one machine: the kernel paces them, without root privileges.

In a world of several hosts, the cables between the hosts are paced; otherwise the TCP connections are paced.

A connection between two ranks gets a rate in each direction, as if the ranks were far apart. Transfers outside TCP,
such as RPC's shared memory on one machine, are not paced. Neither are the ranks' connections to the notebook and to
the store.

Each connection gets the whole rate. A rank that sends to k other ranks at once sends k times as fast as one network
interface allows, unless `shared` says that its connections share one interface.
"""

import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from weakref import WeakKeyDictionary

import psutil

import helpers.world
from helpers.errors import WorldError
from helpers.probe.connections import duplicate
from helpers.ranks.topology import require_pace
from helpers.table import table

# Linux has this option since version 3.13, but Python has no name for it. See socket(7) and tcp(7).
_SO_MAX_PACING_RATE = 47
_NO_LIMIT = 2**64 - 1
# A token bucket keeps its rate in 32 bits, as bytes per second; see tc-tbf(8).
_LARGEST_RATE_OF_A_CABLE = 8 * (2**32 - 1)

_AND_MORE = {"limit": ", 1e9", "lift": ""}

_paced_connections = WeakKeyDictionary()  # world with cables: process ids of its ranks when connections were paced

_Endpoint = tuple[str, int]


class Links:
    """The connections between ranks whose rate was set, and the rate of each; its representation is a table.

    `rates[source][destination]` is the rate, in bits per second, at which one rank sends to another over one
    connection: infinite when there is no limit, and absent when the two ranks have no connection or their connection
    was left alone. The object is false when the kernel cannot pace connections and no rate was set.
    """

    def __init__(self, rates: Sequence[dict[int, float]], connections: int):
        self.rates = list(rates)
        self.connections = connections

    def __bool__(self):
        return self.connections > 0

    def __repr__(self):
        if not self:
            return f"No link is paced: the kernel of this system ({sys.platform}) cannot do it, that of Linux can."
        ranks = range(len(self.rates))
        rows = [
            [f"rank {source}", *(_rate(self.rates[source].get(destination)) for destination in ranks)]
            for source in ranks
        ]
        many = "1 connection is" if self.connections == 1 else f"{self.connections} connections are"
        ways = f"{many} paced between ranks; connections made later are not."
        return ways + "\n" + table(["from \\ to", *map(str, ranks)], rows)


class PacedCables(Links):
    """The cables between hosts whose rate was set; its representation is a table.

    `rates[source][destination]` is the rate between two ranks of different hosts, which they share with the other
    ranks of their hosts. Ranks of the same host have no rate, because their messages use no cable.
    """

    def __init__(self, world, bits_per_second: float, delay: float, loss: float):
        self._hosts, self._bits = world.hosts, bits_per_second
        self._delay, self._loss = delay, loss
        hosts = [world.host_of(rank) for rank in range(world.size)]
        rates = [{peer: bits_per_second for peer, there in enumerate(hosts) if there != here} for here in hosts]
        super().__init__(rates, len(world.hosts))

    def __repr__(self):
        rows = [[host, _rate(self._bits), f"{self._delay * 1e3:g} ms", f"{self._loss:.1%}"] for host in self._hosts]
        what = f"{self.connections} cables, which all connections of a host share; inside a host nothing is paced."
        return f"{what}\n" + table(["cable of", "each way", "delay", "loss"], rows)


def limit(
    world,
    bits_per_second: float,
    *,
    ranks: Collection[int] | None = None,
    shared: Collection[int] = (),
    delay: float = 0.0,
    loss: float = 0.0,
) -> Links:
    """Pace every open connection between ranks to this rate in each direction, and return the connections.

    With `ranks`, pace only the connections of these ranks; other connections keep their rates. The connections of a
    rank in `shared` share one network interface of this rate: each of n - 1 connections gets 1/(n - 1) of it, in both
    directions. A process group opens its connections when it is created, so a group that is created after this call is
    not paced until the next call.

    In a world of several hosts, pace the cables instead, and return `PacedCables`. Later connections between hosts are
    then paced as well, and connections inside a host are not. `delay` is the number of seconds that a byte takes
    from one host to another, `loss` the fraction of packets that a cable loses. With `ranks` or `shared`, or when the
    hosts have no cables, pace the connections between hosts.

    Raises `WorldError` when there are no connections yet, when a rank is not idle, for an invalid rate or rank, for a
    delay or a loss without cables, and when the kernel cannot pace cables.
    """
    _require_world("limit", world)
    require_pace("limit", bits_per_second, delay, loss)
    shared = () if shared is None else shared
    for name, choice in (("ranks", ranks), ("shared", shared)):
        if choice is not None and not isinstance(choice, Collection) or isinstance(choice, str):
            raise WorldError(f"limit({name}={choice!r}): give a list of ranks, as in {name}=[1, 2].")
    for rank in [*(ranks or ()), *shared]:
        if rank not in range(world.size):
            raise WorldError(f"There is no rank {rank!r}: this world has ranks 0 to {world.size - 1}.")
    if delay or loss:
        world.cables  # noqa: B018 - raises `WorldError` when there are no cables
    if world.has_cables and ranks is None and not shared:
        return _pace_cables(world, bits_per_second, delay, loss)
    if delay or loss:
        raise WorldError("Only cables have a delay or a loss: give it without `ranks` and `shared`.")

    def rate(source, destination):
        if ranks is not None and source not in ranks and destination not in ranks:
            return None
        if len(world.hosts) > 1 and world.host_of(source) == world.host_of(destination):
            return None
        sharing = world.size - 1 if source in shared or destination in shared else 1
        return bits_per_second / sharing

    if world.has_cables:
        _paced_connections[world] = world.pids
    return _set_rates(world, rate)


def lift(world) -> Links:
    """Remove the rate of every connection between ranks and of every cable, and return them.

    Raises `WorldError` as `limit` does.
    """
    _require_world("lift", world)
    if world.has_cables:
        return _pace_cables(world, float("inf"), 0.0, 0.0)
    return _lift_connections(world)


def _require_world(function, world):
    if not isinstance(world, helpers.world.World):
        raise WorldError(f"{function}({world!r}): give the world first, as in {function}(world{_AND_MORE[function]}).")


def _lift_connections(world):
    links = _set_rates(world, lambda source, destination: float("inf"))
    _paced_connections.pop(world, None)
    return links


def _pace_cables(world, bits_per_second, delay, loss):
    if _LARGEST_RATE_OF_A_CABLE < bits_per_second < float("inf"):
        raise WorldError(f"limit({bits_per_second!r}): a cable can be paced up to {_rate(_LARGEST_RATE_OF_A_CABLE)}.")
    if _paced_connections.get(world) == world.pids:
        _lift_connections(world)
    try:
        world.cables.pace(bits_per_second, delay, loss)
    except OSError as error:
        what = "delay or lose packets (netem)" if delay or loss else "pace an interface (tbf)"
        raise WorldError(
            f"No cable is paced: the kernel of this system cannot {what}. It says: {error.args[1]}."
        ) from None
    return PacedCables(world, bits_per_second, delay, loss)


def _set_rates(world, rate):
    """Set the rate of each connection to rate(source, destination), in bits per second; None leaves it alone."""
    if sys.platform != "linux":
        return Links([{} for _ in range(world.size)], 0)
    world.require_idle("A limit on the links")
    ends = world.view.apply_async(_ends).get()
    owner = {end: rank for rank, ends_of_rank in enumerate(ends) for end in ends_of_rank}
    rates, settings = [], []
    for source, ends_of_rank in enumerate(ends):
        # The other end of (here, there) is (there, here); connections to the notebook and the store end outside a rank.
        peers = {end: owner[end[::-1]] for end in ends_of_rank if end[::-1] in owner}
        wanted = {end: rate(source, peer) for end, peer in peers.items()}
        settings.append({end: bits for end, bits in wanted.items() if bits is not None})
        rates.append({peers[end]: bits for end, bits in settings[-1].items()})
    if not any(settings):
        raise WorldError("These ranks have no connections with each other yet: make the process group first.")
    engines = zip(world.view.targets, settings, strict=True)
    for answer in [world.view.client[engine].apply_async(_pace, setting) for engine, setting in engines]:
        answer.get()
    return Links(rates, sum(map(len, settings)) // 2)


def _ends() -> list[tuple[_Endpoint, _Endpoint]]:
    """Return the local and the remote address of every TCP connection of this process."""
    return [ends for ends, _ in own_sockets()]


def _pace(rates: dict[tuple[_Endpoint, _Endpoint], float]) -> None:
    """Set the rates, in bits per second, at which this process sends; the keys are the addresses of connections."""
    for ends, connection in own_sockets():
        if ends in rates:
            bytes_per_second = _NO_LIMIT if rates[ends] == float("inf") else int(rates[ends] / 8)
            option = bytes_per_second.to_bytes(8, sys.byteorder)
            connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, option)


def own_sockets() -> Iterator[tuple[tuple[_Endpoint, _Endpoint], socket.socket]]:
    """Yield the local and the remote address of every TCP connection of this process, and a duplicate of its socket."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_ESTABLISHED:
            with duplicate(connection.fd) as own:
                if own is not None:
                    yield (connection.laddr[:2], connection.raddr[:2]), own


def _rate(bits):
    if bits is None:
        return ""
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits >= factor:
            return "no limit" if bits == float("inf") else f"{bits / factor:.3g} {unit}"
    return f"{bits:.3g} bit/s"
