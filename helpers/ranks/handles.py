"""What a handle of torch is of: a Work, a Future or an RRef does not tell which call has made it.

Once `note` has been called, it is noted for each handle that a rank gets, as long as the rank keeps the handle; and
each wait for a handle is a function of Python, which a stack shows. A call that waits by itself gives no handle away.
"""

import sys
from types import FrameType
from weakref import WeakKeyDictionary

import torch.distributed as dist

from helpers import tap
from helpers.torch_parts import Future, RRef

made_by = WeakKeyDictionary()  # of each handle: the name of the function, and what it was called with

_COLLECTIVES = dist.distributed_c10d.__file__
_BLOCKING = ("send", "recv")  # like a collective whose options say that it is not asynchronous
_FRAMES_OF_THE_TAP = 3  # from the search for a frame to the wrapper of the method


def note() -> None:
    """From now on `made_by` knows the handles of this process; a second call does nothing."""
    tap.subscribe(tap.Operation, end=_note_work)
    tap.subscribe(tap.Rpc, end=_note_rpc)
    tap.subscribe(tap.RpcOnRRef, end=_note_rpc_on_rref)


def parameters(frame: FrameType) -> dict[str, object]:
    """Return what the function of this frame was called with."""
    code, values = frame.f_code, frame.f_locals
    return {name: values.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}


def called(called_with: dict[str, object]) -> dict[str, object]:
    """Return of what an RPC was called with whom it calls, and which function, on an RRef which method."""
    name, *_ = tap.named(called_with["func"], called_with.get("args"), called_with.get("kwargs"))
    return {"to": called_with["to"], "function": name}


def _note_work(event):
    if event.result is not None and getattr(event.options, "asyncOp", True):
        frame = _function_of_torch()
        if frame and frame.f_back.f_code.co_name not in _BLOCKING:
            made_by[event.result] = frame.f_code.co_name, parameters(frame)


def _note_rpc(event):
    if event.result is not None:
        name = "remote" if isinstance(event.result, RRef) else "rpc_async"
        made_by[event.result] = name, called({"to": event.to, "func": event.function, "args": event.arguments})


def _note_rpc_on_rref(event):
    if isinstance(event.result, Future):
        made_by[event.result] = event.api, {"to": event.rref.owner_name(), "function": event.method}


def _function_of_torch():
    """Return the frame of the function of torch.distributed that has asked a process group for what has just ended."""
    frame = sys._getframe(_FRAMES_OF_THE_TAP)
    while frame and frame.f_code.co_filename != _COLLECTIVES:
        frame = frame.f_back
    return frame
