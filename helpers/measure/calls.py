"""The RPCs that a rank makes: the worker it calls, the function, the number of bytes and the time.

The record has the calls that pass through `torch.distributed.rpc` in Python: rpc_sync, rpc_async, remote, and the same
three on an RRef. It does not have the messages that torch sends by itself: for the reference counts of RRefs, for
to_here(), and for the backward pass of distributed autograd. Calls are recorded only inside the block of `recorded`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
from torch.distributed.rpc import get_worker_info

from helpers import tap
from helpers.torch_parts import worker_of


@dataclass
class Call:
    """One RPC, as its caller sees it.

    `kind` is "sync", "async" or "remote"; `caller` and `callee` are names of workers; `function` is the name of the
    function, or of the method for a call on an RRef. Before the first call on an RRef of another worker, torch makes a
    call of its own, `_rref_typeof_on_owner`. `sent` and `received` are the bytes of the tensors in the arguments and in
    the result, including tensors inside lists, tuples and dicts. The result of a remote call stays on the callee, so
    `received` is 0. `begin` and `end` are times by `time.monotonic`; `end` is None until the answer has arrived.
    """

    kind: str
    caller: str
    callee: str
    function: str
    sent: int
    received: int
    begin: float
    end: float | None = None


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Record every RPC that this process makes inside the block, in any thread, in the order in which they begin.

    A failed call has an `end` like any other, and `received` is 0. Raises RuntimeError when RPC has not been
    initialised.
    """
    made, begun = [], {}
    notes = []  # the future of each answer, and a future that completes when the end of the call has been noted
    caller = get_worker_info().name

    def note_begin(event):
        begun[event] = time.monotonic()

    def note(event):
        begin = begun.pop(event)
        if event.end is None:
            return
        function, *called_with = tap.named(event.function, event.arguments, event.keywords)
        call = Call(event.kind, caller, worker_of(event.to).name, function, tensor_bytes(called_with), 0, begin)

        def note_end(answer):
            call.end = time.monotonic()
            with suppress(Exception):  # the code that waits for the answer handles the error of a failed call
                call.received = 0 if call.kind == "remote" else tensor_bytes(answer.value())

        made.append(call)
        answer = event.result._get_future() if event.kind == "remote" else event.result
        notes.append((answer, answer.then(note_end)))

    try:
        with tap.subscribed(tap.Rpc, begin=note_begin, end=note):
            yield made
    finally:
        # Code that waits for an answer may continue before the end of the call has been noted.
        torch.futures.collect_all([noted for answer, noted in notes if answer.done()]).wait()
        made.sort(key=lambda call: call.begin)  # the calls of several threads


def tensor_bytes(value) -> int:
    """Return the bytes of the tensors in a value, including tensors inside lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return tensor_bytes(list(value.values()))
    return sum(map(tensor_bytes, value)) if isinstance(value, (list, tuple)) else 0
