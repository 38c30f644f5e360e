"""The RPCs that a rank makes: whom it calls, which function, with how many bytes, and for how long.

Recorded is what passes through `torch.distributed.rpc` in Python: rpc_sync, rpc_async, remote, and the same three on an
RRef. Not recorded are the messages that it sends by itself: of RRefs' counts and of to_here(), and those of distributed
autograd's backward pass. Nothing is recorded outside of the block that asks for it.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
from torch.distributed.rpc import api, get_worker_info

from helpers.measure.patching import replaced
from helpers.torch_parts import ON_RREF, worker_of


@dataclass
class Call:
    """One RPC, as its caller sees it.

    `kind` is "sync", "async" or "remote"; `caller` and `callee` are names of workers; `function` is the name of the
    function, on an RRef that of the method. The first call on an RRef of another worker is preceded by one of torch's
    own, `_rref_typeof_on_owner`. `sent` and `received` are the bytes of the tensors among the arguments and in the
    result, also inside lists, tuples and dicts. The result of a remote call stays where it is: its `received` is 0.
    `begin` and `end` are times by `time.monotonic`; `end` is None as long as the answer is not there.
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
    """Record every RPC that this process makes inside the block, in whichever thread, in the order in which they begin.

    A call that fails has ended, too, with nothing received. Raises RuntimeError when RPC has not been initialised.
    """
    made = []
    notes = []  # the future of each answer, and the one that completes when its end has been noted
    caller = get_worker_info().name
    of_this_thread = threading.local()

    def record(kind, callee, function, arguments, begin, answer):
        call = Call(kind, caller, callee, function, tensor_bytes(arguments), 0, begin)

        def note_end(answer):
            call.end = time.monotonic()
            with suppress(Exception):  # the error of a call that failed belongs to whoever waits for its answer
                call.received = 0 if kind == "remote" else tensor_bytes(answer.value())

        made.append(call)
        notes.append((answer, answer.then(note_end)))

    def invoke_rpc(to, function, mode, args=None, kwargs=None, *timeout):
        begin = time.monotonic()
        answer = original_invoke_rpc(to, function, mode, args, kwargs, *timeout)
        name, called_with = _called(function, args, kwargs)
        record(mode.value, worker_of(to).name, name, called_with, begin, answer)
        return answer

    def python_function(function, args, kwargs):
        # rpc.remote turns the function into bytes right after this, so here its name can still be seen.
        of_this_thread.called = _called(function, args, kwargs)
        return original_python_function(function, args, kwargs)

    def invoke_remote(original, called):
        def invoke(callee, *arguments, **keywords):
            begin = time.monotonic()
            rref = original(callee, *arguments, **keywords)
            function, called_with = called(arguments, keywords)
            record("remote", rref.owner_name(), function, called_with, begin, rref._get_future())
            return rref

        return invoke

    original_invoke_rpc, original_python_function = api._invoke_rpc, api.PythonUDF
    called = {
        "_invoke_remote_python_udf": lambda arguments, keywords: of_this_thread.called,
        # The name, the timeout and, for a script function, whether it is asynchronous come before its arguments.
        "_invoke_remote_builtin": lambda arguments, keywords: _named(arguments[0], arguments[2:], keywords),
        "_invoke_remote_torchscript": lambda arguments, keywords: _named(arguments[0], arguments[3:], keywords),
    }
    changes = [(api, "_invoke_rpc", invoke_rpc), (api, "PythonUDF", python_function)]
    changes += [(api, name, invoke_remote(vars(api)[name], called[name])) for name in called]
    try:
        with replaced(changes):
            yield made
    finally:
        # Whoever waits for an answer may go on before its end has been noted.
        torch.futures.collect_all([noted for answer, noted in notes if answer.done()]).wait()
        made.sort(key=lambda call: call.begin)  # the calls of several threads


def _called(function, args, kwargs):
    """Return the name of the function that is called, and its arguments; on an RRef, those of the method."""
    args, kwargs = list(args or ()), kwargs or {}
    if function in ON_RREF:
        _, name, args, kwargs = args
        return name, (args, kwargs)
    if isinstance(function, torch.jit.ScriptFunction):
        return function.name, (args, kwargs)
    return getattr(function, "__name__", type(function).__name__), (args, kwargs)


def _named(qualified_name, args, kwargs):
    return re.split(r"::|\.", qualified_name)[-1], (args, kwargs)


def tensor_bytes(value) -> int:
    """Return the bytes of the tensors in a value, also inside lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return tensor_bytes(list(value.values()))
    return sum(map(tensor_bytes, value)) if isinstance(value, (list, tuple)) else 0
