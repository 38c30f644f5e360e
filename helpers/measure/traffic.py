"""Bytes and messages: what a rank has sent and received, counted, and what the loopback has carried, measured.

Counted is what torch hands to the backend: exactly the payload of each point-to-point message, whichever function of
`torch.distributed` made it. Not counted are the messages that a collective consists of, because the backend makes them
itself. Measured is everything that passes the loopback meanwhile: payload, headers and acknowledgements, also those of
the notebook's own talk with its ranks and of every other program on this machine. Nothing is counted or measured
outside of the blocks that ask for it.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import psutil
import torch
import torch.distributed as dist

import helpers.world
from helpers import tap
from helpers.errors import WorldError
from helpers.ranks import connections
from helpers.torch_parts import source_rank

# In /proc/net/dev; see proc_pid_net(5).
_COLUMN_OF_BYTES_SENT = 8


@dataclass
class Message:
    """One point-to-point message, as the rank at one end of it sees it.

    `call` is "send" or "recv", `peer` the rank at the other end, `bytes` the size of the tensor. `posted`, `waited` and
    `ended` are the times, by `time.monotonic`, at which the rank handed the message over, at which it began to wait for
    it, and at which that wait ended well; None if it never did. A receive from any rank has None for `peer` until then.
    `seen` is what the tensor that `recorded` watches held when the message was posted, None if it watches none.
    """

    call: str
    peer: int | None
    bytes: int
    posted: float
    waited: float | None = None
    ended: float | None = None
    seen: list | None = None

    @property
    def sent(self) -> bool:
        """Whether the message went out, rather than came in."""
        return self.call == "send"


@contextmanager
def recorded(watch: torch.Tensor | None = None) -> Iterator[list[Message]]:
    """Record every point-to-point message of this process inside the block, in the order in which they are posted.

    Blocking and non-blocking calls, batches and objects all count as the messages that they are made of. With `watch`,
    each message keeps what this tensor held when the message was posted.
    """
    messages, begun = [], {}
    # Weak, because a work object that nobody keeps must go as it would have gone.
    unfinished = WeakKeyDictionary()

    def begin_to_post(event):
        begun[event] = time.monotonic(), None if watch is None else watch.tolist()

    def end_to_post(event):
        posted, seen = begun.pop(event)
        if event.end:
            size = sum(tensor.nbytes for tensor in event.arguments[0])
            messages.append(Message(event.name, event.peer, size, posted, seen=seen))
            unfinished[event.result] = event.group, messages[-1]

    def begin_to_wait(event):
        _, message = unfinished.get(event.handle, (None, None))
        if message:
            message.waited = time.monotonic()

    def end_to_wait(event):
        group, message = unfinished.pop(event.handle, (None, None))
        if message and event.end:
            message.ended = time.monotonic()
            if message.peer is None:
                message.peer = dist.get_global_rank(group, source_rank(event.handle))

    with tap.subscribed(tap.PointToPoint, begin=begin_to_post, end=end_to_post):
        with tap.subscribed(tap.Wait, begin=begin_to_wait, end=end_to_wait):
            yield messages


@contextmanager
def collectives() -> Iterator[Counter]:
    """Count the collectives that this process calls inside the block, by the names that `torch.distributed` gives them.

    Those that call another one count as that: all_gather_object as two all_gather. Not counted are the collectives of
    DistributedDataParallel, which do not come from Python.
    """
    calls = Counter()

    def count(event):
        calls[event.name] += 1

    with tap.subscribed(tap.Collective, begin=count):
        yield calls


@contextmanager
def by_group() -> Iterator[Counter]:
    """Count the bytes that this process hands to the collectives of each group, by the tuple of the group's ranks.

    Of what a collective takes, the largest tensor or list of tensors counts, once for each call: the tensor of an
    all_reduce, the whole result of an all_gather. Barriers do not count, nor what DistributedDataParallel calls.
    """
    handed = Counter()

    def add(event):
        if event.name != "barrier":
            ranks = tuple(dist.get_process_group_ranks(event.group))
            handed[ranks] += max(map(_bytes_of, event.arguments), default=0)

    with tap.subscribed(tap.Collective, begin=add):
        yield handed


@contextmanager
def handed_over() -> Iterator[list[int]]:
    """List the bytes of every tensor that this process hands to the backend inside the block, to be sent to others.

    These are the tensors of its messages, and those that it brings to collectives.
    """
    sizes = []

    def add(event):
        sizes.extend(tensor.nbytes for tensor in event.inputs)

    with tap.subscribed(tap.Operation, begin=add):
        yield sizes


def _bytes_of(value):
    if isinstance(value, torch.Tensor):
        return value.nbytes
    return sum(map(_bytes_of, value)) if isinstance(value, list | tuple) else 0


class Sent(NamedTuple):
    """What the ranks have sent: `bytes[source, destination]` and `messages[source, destination]`, integers."""

    bytes: np.ndarray
    messages: np.ndarray


def by_pair(messages: Sequence[Sequence[Message]]) -> Sent:
    """Add up what each rank has sent to each other one, from the messages that every rank has recorded, in rank order.

    Of the matrices of shape (n, n) a sum over columns is what each rank has sent, one over rows what has been sent to
    each rank. Receives are not counted: each is the other end of a send.
    """
    sent = Sent(*np.zeros((2, len(messages), len(messages)), dtype=np.int64))
    for source, recorded_there in enumerate(messages):
        for message in recorded_there:
            if message.sent:
                sent.bytes[source, message.peer] += message.bytes
                sent.messages[source, message.peer] += 1
    return sent


class Carried:
    """The `bytes` that an interface, or a process, has carried; None until the block has ended."""

    bytes: int | None = None


def loopback() -> AbstractContextManager[Carried]:
    """Measure the bytes that the loopback of this machine carries inside the block, with headers, whoever sends them.

    Each byte counts once, although the loopback both sends and receives it. In a world of several hosts these are the
    loopbacks of all of them, and their cables: whatever way a byte takes from one rank to another, it counts once.
    """
    return _carried(_loopback_bytes)


class CarriedByCable(Carried):
    """What the cable of a host has carried: `sent` out of the host, `received` into it, and both in `bytes`.

    Of the bytes that the host has sent, `resent` are those that its TCP took for lost and sent again, without headers.
    """

    sent: int | None = None
    received: int | None = None
    resent: int | None = None


@contextmanager
def cable(host: str) -> Iterator[CarriedByCable]:
    """Measure the bytes that the cable of a host carries inside the block, with headers, as its interface counts them.

    Nobody but the ranks is there. Raises `WorldError` for a host that is not there, and when hosts have no cables.
    """
    world = helpers.world.current()
    if world is None:
        raise WorldError("This process has no world, so it has no cables: measure them in a cell of the notebook.")
    cables = world.cables
    world.require_host(host)
    carried = CarriedByCable()
    before = cables.carried()[host]
    try:
        yield carried
    finally:
        now = cables.carried()[host]
        carried.sent, carried.received = now[1] - before[1], now[2] - before[2]
        carried.resent = sum(again - before[3].get(connection, 0) for connection, again in now[3].items())
        carried.bytes = carried.sent + carried.received


def own_connections() -> AbstractContextManager[Carried]:
    """Measure the bytes that this process sends and receives over TCP inside the block, without headers.

    What other programs send does not count, but this rank's own talk with the notebook and the store does. The system
    counts for each connection that is open, so keep them open inside the block. Only Linux tells (TCP_INFO, tcp(7));
    elsewhere this is `loopback`.
    """
    return _carried(_connection_bytes if sys.platform == "linux" else _loopback_bytes)


@contextmanager
def _carried(bytes_so_far):
    carried = Carried()
    before = bytes_so_far()
    try:
        yield carried
    finally:
        carried.bytes = bytes_so_far() - before


def _connection_bytes():
    return sum(map(sum, connections.carried().values()))


def _loopback_bytes():
    if sys.platform != "linux":
        return psutil.net_io_counters(pernic=True)["lo0"].bytes_sent
    world = helpers.world.current()
    if world:
        world.require_this_machine("What the loopbacks of the ranks carry")
    if world and world.has_cables:
        return sum(loopback + sent for loopback, sent, *_ in world.cables.carried().values())
    lines = Path(f"/proc/{_network()}/net/dev").read_text().splitlines()
    (counters,) = [line.split(":")[1].split() for line in lines if line.strip().startswith("lo:")]
    return int(counters[_COLUMN_OF_BYTES_SENT])


def _network():
    """Return the id of a process on the network of the ranks: "self" where that is the network of this process."""
    world = helpers.world.current()
    return (world and world.network) or "self"
