"""The calls that returned torch's handles, because a Work, a Future or an RRef does not say which call it is from.

`note` starts to record the call of each handle, for as long as the rank keeps the handle. Each wait for a handle is
then a Python function, which a stack shows. A blocking call returns no handle.
"""

import sys
from types import FrameType
from weakref import WeakKeyDictionary

import torch.distributed as dist

from helpers import tap
from helpers.torch_parts import Future, RRef

made_by = WeakKeyDictionary()  # handle: the name of the function that returned it, and the arguments

_COLLECTIVES = dist.distributed_c10d.__file__
_BLOCKING = ("send", "recv")  # blocking calls whose options do not say so
_FRAMES_OF_THE_TAP = 3  # from `_function_of_torch` up to the tap's wrapper of the method


def note() -> None:
    """Record the handles of this process in `made_by` from now on; a second call does nothing."""
    tap.subscribe(tap.Operation, end=_note_work)
    tap.subscribe(tap.Rpc, end=_note_rpc)
    tap.subscribe(tap.RpcOnRRef, end=_note_rpc_on_rref)


def parameters(frame: FrameType) -> dict[str, object]:
    """Return the arguments of the function of this frame, by name."""
    code, values = frame.f_code, frame.f_locals
    return {name: values.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}


def called(called_with: dict[str, object]) -> dict[str, object]:
    """Return the callee and the function of an RPC, or the method for an RPC on an RRef, from its arguments."""
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
    """Return the frame of the torch.distributed function that made the process group's call that has just ended."""
    frame = sys._getframe(_FRAMES_OF_THE_TAP)
    while frame and frame.f_code.co_filename != _COLLECTIVES:
        frame = frame.f_back
    return frame
