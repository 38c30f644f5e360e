"""Slow links between the ranks of one machine: the kernel paces them, and no root is needed.

Where the ranks are on hosts of their own it is the cables between these that are paced; else it is TCP connections.

A connection between two ranks gets a rate in each direction, as if the two were far apart. What passes outside of TCP
keeps its pace, such as the shared memory through which RPC talks on one machine. So do the connections of the ranks
with the notebook and with the store.

The rate is one for each connection. A rank that sends to k others at once sends k times as much as one network
interface would let out, unless `shared` says that its connections share one interface.
"""

import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from weakref import WeakKeyDictionary

import psutil

import helpers.world
from helpers.errors import WorldError
from helpers.ranks.connections import duplicate
from helpers.ranks.topology import require_pace
from helpers.table import table

# Linux has it since version 3.13, and Python does not name it. See socket(7) and tcp(7).
_SO_MAX_PACING_RATE = 47
_NO_LIMIT = 2**64 - 1
# A token bucket keeps its rate in 32 bits, as bytes per second; see tc-tbf(8).
_LARGEST_RATE_OF_A_CABLE = 8 * (2**32 - 1)

_AND_MORE = {"limit": ", 1e9", "lift": ""}

_paced_connections = WeakKeyDictionary()  # worlds whose cables can be paced, too: the ranks that have some

Address = tuple[str, int]


class Links:
    """The connections between ranks whose rate has been set, and the rate of each; shows as a table.

    `rates[source][destination]` is the rate, in bits per second, at which one rank sends to another over one
    connection: infinite when there is no limit, and absent when the two have no connection or theirs was left alone.
    Counts as false where the kernel cannot pace: then no rate has been set.
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
        ways = f"{self.connections} connections between ranks; one that is made later is not paced."
        return ways + "\n" + table(["from \\ to", *map(str, ranks)], rows)


class Cables(Links):
    """The cables between hosts, which have been given a rate; shows as a table.

    `rates[source][destination]` is the rate between two ranks of different hosts, which they share with the others of
    their hosts. Ranks of one host have no rate: what they send passes no cable.
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
    """Pace every connection between ranks that is there now to this rate in each direction, and return them.

    With `ranks`, only what these ranks send and what is sent to them, and other connections keep the rate that they
    have. The connections of a rank in `shared` share one network interface of this rate: of n - 1 connections each gets
    1/(n - 1) of it, in both directions. A process group makes its connections when it is made: a group made after this
    call is not paced until the next call.

    In a world of several hosts it is their cables that get the rate, and return as `Cables`; then also what connects
    later is paced, and nothing inside a host. `delay` is how many seconds a byte takes from one host to another, `loss`
    the share of packets that a cable loses. With `ranks` or `shared` connections are paced there, too. Hosts without
    cables have the connections between them paced.

    Raises `WorldError` when there are no connections yet, when a rank is not idle, for a rate or a rank that makes no
    sense, and for a delay or a loss where there are no cables, or where the kernel cannot do it.
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
        world.cables  # noqa: B018 - it raises when there are none
    if world.has_cables and ranks is None and not shared:
        return _pace_cables(world, bits_per_second, delay, loss)
    if delay or loss:
        raise WorldError("A delay or a loss is one of the cables: give it without `ranks` and `shared`.")

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
    """Let every connection between ranks, and every cable, run as fast as it can again, and return them.

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
    return Cables(world, bits_per_second, delay, loss)


def _set_rates(world, rate):
    """Give each connection between ranks the rate(source, destination), in bits per second; None leaves it alone."""
    if sys.platform != "linux":
        return Links([{} for _ in range(world.size)], 0)
    world.require_idle("A limit on the links")
    ends = world.view.apply_async(_ends).get()
    owner = {end: rank for rank, ends_of_rank in enumerate(ends) for end in ends_of_rank}
    rates, settings = [], []
    for source, ends_of_rank in enumerate(ends):
        # The other end of (here, there) is (there, here); the notebook and the store have theirs outside the ranks.
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


def _ends() -> list[tuple[Address, Address]]:
    """Return the two addresses, here and there, of every TCP connection of this process."""
    return [ends for ends, _ in own_sockets()]


def _pace(rates: dict[tuple[Address, Address], float]) -> None:
    """Set the rate at which this process sends on its connections, in bits per second by their two addresses."""
    for ends, connection in own_sockets():
        if ends in rates:
            bytes_per_second = _NO_LIMIT if rates[ends] == float("inf") else int(rates[ends] / 8)
            option = bytes_per_second.to_bytes(8, sys.byteorder)
            connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, option)


def own_sockets() -> Iterator[tuple[tuple[Address, Address], socket.socket]]:
    """Yield the two addresses, here and there, of every TCP connection of this process, and its socket."""
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
