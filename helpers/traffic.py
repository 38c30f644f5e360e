"""Bytes and messages: what a rank has sent and received, counted where torch hands a message to the backend."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch.distributed as dist


@dataclass
class Message:
    """One point-to-point message, as the rank at one end of it sees it.

    `call` is "send" or "recv", `peer` the rank at the other end, `bytes` the size of the tensor. `posted` and `waited`
    are the times, by `time.monotonic`, at which the rank handed the message over and at which it began to wait for it,
    None if it never did. A receive from any rank has None for `peer` until it has been waited for.
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
    """Record every point-to-point message of this process inside the block, in the order in which they are posted.

    Blocking and non-blocking calls, batches and objects all count as the messages that they are made of.
    """
    messages = []
    # Weak, because a work object that nobody keeps must go as it would have gone.
    unfinished = WeakKeyDictionary()

    def posting(call, method):
        def post(group, tensors, *peer_and_tag):
            now = time.monotonic()
            work = method(group, tensors, *peer_and_tag)
            peer = dist.get_global_rank(group, peer_and_tag[0]) if len(peer_and_tag) == 2 else None
            messages.append(Message(call, peer, sum(tensor.nbytes for tensor in tensors), now))
            unfinished[work] = group, messages[-1]
            return work

        return post

    def waiting(method):
        def wait(work, *timeout):
            group, message = unfinished.pop(work, (None, None))
            if message is None:
                return method(work, *timeout)
            message.waited = time.monotonic()
            result = method(work, *timeout)
            if message.peer is None:
                message.peer = dist.get_global_rank(group, work._source_rank())
            return result

        return wait

    # Methods of C++ classes, below every function of `dist`: it counts whichever way a cell has imported those.
    changed = [
        (dist.ProcessGroup, "send", posting("send", dist.ProcessGroup.send)),
        (dist.ProcessGroup, "recv", posting("recv", dist.ProcessGroup.recv)),
        (dist.ProcessGroup, "recv_anysource", posting("recv", dist.ProcessGroup.recv_anysource)),
        (dist.Work, "wait", waiting(dist.Work.wait)),
    ]
    originals = [(owner, name, vars(owner)[name]) for owner, name, _ in changed]
    try:
        for owner, name, method in changed:
            setattr(owner, name, method)
        yield messages
    finally:
        for owner, name, method in originals:
            setattr(owner, name, method)
