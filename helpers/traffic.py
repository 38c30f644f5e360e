"""Bytes and messages: what a rank has sent and received, counted where the call is made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch.distributed as dist
from torch.distributed import distributed_c10d

_POINT_TO_POINT = ("send", "recv", "isend", "irecv")


class Message(NamedTuple):
    """One point-to-point call: its name, the rank at the other end (None: any), and the size of the tensor in bytes."""

    call: str
    peer: int | None
    bytes: int

    @property
    def sent(self) -> bool:
        """Whether the message went out, rather than came in."""
        return self.call in ("send", "isend")


@contextmanager
def recorded() -> Iterator[list[Message]]:
    """Record every point-to-point call that this process makes inside the block, in the order of the calls.

    Objects and batches of calls are made of these calls, and are counted as such.
    """
    messages = []
    originals = {name: getattr(distributed_c10d, name) for name in _POINT_TO_POINT}

    def recording(name):
        def call(tensor, *args, **kwargs):
            peer = args[0] if args else kwargs.get("dst", kwargs.get("src"))
            messages.append(Message(name, peer, tensor.numel() * tensor.element_size()))
            return originals[name](tensor, *args, **kwargs)

        return call

    replacements = {name: recording(name) for name in _POINT_TO_POINT}
    try:
        _install(replacements)
        yield messages
    finally:
        _install(originals)


def _install(functions):
    # Both modules, because a batch of calls compares what it is given with the functions of the second.
    for name, function in functions.items():
        setattr(dist, name, function)
        setattr(distributed_c10d, name, function)
