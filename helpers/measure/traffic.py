"""Bytes and messages: counts of what a rank sends and receives, and measurements of what the loopback carries.

The counts cover what torch hands to the backend: exactly the payload of each point-to-point message, whichever
function of `torch.distributed` made it. They leave out the messages inside a collective, because the backend makes
these itself. The measurements cover everything that passes the loopback: payload, headers and acknowledgements,
including the notebook's messages to its ranks and the traffic of every other program on this machine. Both run only
inside the blocks that ask for them.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import psutil
import torch
import torch.distributed as dist

import helpers.world
from helpers import tap
from helpers.errors import WorldError
from helpers.probe import connections
from helpers.torch_parts import source_rank


@dataclass
class Message:
    """One point-to-point message, as the rank at one end sees it.

    `call` is "send" or "recv", `peer` the rank at the other end, `bytes` the size of the tensor. The other fields are
    times by `time.monotonic`: `posted`, when the rank handed the message to the backend; `waited`, when it began to
    wait for the message; and `ended`, when this wait succeeded. `waited` and `ended` are None until then. A receive
    from any rank has None for `peer` until `ended`. `seen` is the content of the tensor that `recorded` watches when
    the message was posted, None if it watches no tensor.
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
        """Whether this rank sent the message, rather than received it."""
        return self.call == "send"


@contextmanager
def recorded(watch: torch.Tensor | None = None) -> Iterator[list[Message]]:
    """Record every point-to-point message of this process inside the block, in the order in which they are posted.

    Blocking and non-blocking calls, batches and objects all count as the messages that they consist of. With `watch`,
    each message keeps the content that this tensor had when the message was posted.
    """
    messages, begun = [], {}
    # Weak references, so that recording does not keep a work object alive.
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
    """Count the collectives that this process calls inside the block, by their names in `torch.distributed`.

    A collective that calls other collectives counts as these: all_gather_object counts as two all_gather. The
    collectives of DistributedDataParallel do not count, because they are not called from Python.
    """
    calls = Counter()

    def count(event):
        calls[event.name] += 1

    with tap.subscribed(tap.Collective, begin=count):
        yield calls


@contextmanager
def by_group() -> Iterator[Counter]:
    """Count the bytes that this process hands to the collectives of each group, by the tuple of the group's ranks.

    Each call counts with its largest argument, a tensor or a list of tensors: the tensor of an all_reduce, the whole
    result of an all_gather. Barriers and the collectives of DistributedDataParallel do not count.
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
    """List the bytes of every tensor that this process hands to the backend for sending inside the block.

    These are the tensors of its messages, and its inputs of collectives.
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
    """The totals sent between ranks: `bytes[source, destination]` and `messages[source, destination]`, integers."""

    bytes: np.ndarray
    messages: np.ndarray


def by_pair(messages: Sequence[Sequence[Message]]) -> Sent:
    """Add up what each rank sent to each other rank, from the messages that every rank recorded, in rank order.

    The matrices have shape (n, n): summing over columns gives what each rank sent, summing over rows what was sent to
    each rank. Receives do not count, because each is the other end of a send.
    """
    sent = Sent(*np.zeros((2, len(messages), len(messages)), dtype=np.int64))
    for source, recorded_there in enumerate(messages):
        for message in recorded_there:
            if message.sent:
                sent.bytes[source, message.peer] += message.bytes
                sent.messages[source, message.peer] += 1
    return sent


class Carried:
    """The `bytes` that an interface or a process has carried; None until the block ends."""

    bytes: int | None = None


def loopback() -> AbstractContextManager[Carried]:
    """Measure the bytes that the loopback of this machine carries inside the block, with headers, from all programs.

    Each byte counts once, although the loopback both sends and receives it. In a world of several hosts, add up the
    loopbacks and the cables of all hosts: a byte counts once, whichever way it takes from one rank to another.
    """
    return _carried(_loopback_bytes)


class CarriedByCable(Carried):
    """The bytes that a host `sent` and `received` over its cable, and their sum `bytes`.

    `resent` counts the bytes that TCP took for lost and sent again, without headers; `sent` includes them.
    """

    sent: int | None = None
    received: int | None = None
    resent: int | None = None


@contextmanager
def cable(host: str) -> Iterator[CarriedByCable]:
    """Measure the bytes that the cable of a host carries inside the block, with headers, as its interface counts them.

    Only the ranks use the cable. Raises `WorldError` for an unknown host, and when hosts have no cables.
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

    Traffic of other programs does not count, but this rank's messages to and from the notebook and the store do. The
    system has a counter for each open connection, so keep the connections open inside the block. Only Linux has these
    counters (TCP_INFO, tcp(7)); on other systems this is `loopback`.
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
        world.require_this_machine("The traffic on the loopbacks of the ranks")
    if world and world.has_cables:
        return sum(loopback + sent for loopback, sent, *_ in world.cables.carried().values())
    return connections.of_interface("lo", _network()).sent


def _network():
    """Return the id of a process on the network of the ranks, or "self" if this process is on the same network."""
    world = helpers.world.current()
    return (world and world.network) or "self"
