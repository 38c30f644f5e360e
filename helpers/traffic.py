"""Bytes and messages: what a rank has sent and received, counted where torch hands a message to the backend."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch.distributed as dist


@dataclass
class Message:
    """One point-to-point message as the rank at one end of it sees it.

    `call` is "send" or "recv", `peer` the rank at the other end, `bytes` the size of the tensor. `posted` and `waited`
    are the times, on the clock of `time.monotonic`, at which the rank handed the message over and at which it began to
    wait for its end: None if it never did. A receive from any rank learns its `peer` when it ends, and has None before.
    """

    call: str
    peer: int | None
    bytes: int
    posted: float
    waited: float | None = None

    @property
    def sent(self) -> bool:
        """Whether the message went out, rather than came in."""
        return self.call == "send"


@contextmanager
def recorded() -> Iterator[list[Message]]:
    """Record every point-to-point message of this process inside the block, in the order in which they were posted.

    Blocking and non-blocking calls, batches and objects all count as the messages that they are made of.
    """
    messages = []
    pending = WeakKeyDictionary()  # a work object in whose end nobody is interested must go as it would have gone

    def posted(call, group, tensors, peer, work):
        peer = None if peer is None else dist.get_global_rank(group, peer)
        message = Message(call, peer, sum(tensor.nbytes for tensor in tensors), time.monotonic())
        messages.append(message)
        return message

    def send(group, tensors, destination, tag):
        return hand_over("send", group, tensors, destination, tag)

    def hand_over(*_):
        raise NotImplementedError

    yield messages
