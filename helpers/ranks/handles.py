"""What a handle of torch is of: a Work, a Future or an RRef does not tell which call has made it.

Once `note` has been called, torch notes it for each handle that a rank gets, as long as the rank keeps the handle; and
each wait for a handle is a function of Python, which a stack shows. A call that waits by itself gives no handle away.
"""

import functools
import sys
from types import FrameType
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed.rpc import api, rref_proxy

from helpers.torch_parts import ON_RREF, Future, RRef

made_by = WeakKeyDictionary()  # of each handle: the name of the function, and what it was called with

_COLLECTIVES, _RPC = dist.distributed_c10d.__file__, api.__file__
_INVOKE = (
    "_invoke_rpc_builtin",
    "_invoke_rpc_python_udf",
    "_invoke_rpc_torchscript",
    "_invoke_remote_builtin",
    "_invoke_remote_python_udf",
    "_invoke_remote_torchscript",
)
_BLOCKING = ("send", "recv")  # like a collective whose options say that it is not asynchronous

_is_noted = False


def note() -> None:
    """From now on `made_by` knows the handles of this process; a second call does nothing."""
    global _is_noted
    if _is_noted:
        return
    _is_noted = True
    for name, method in list(vars(dist.ProcessGroup).items()):
        if "-> c10d::Work" in (method.__doc__ or ""):
            setattr(dist.ProcessGroup, name, _noting_work(method))
    for name in _INVOKE:
        setattr(api, name, _noting_call(vars(api)[name]))
    rref_proxy._invoke_rpc = _noting_call_on_rref(rref_proxy._invoke_rpc)
    dist.Work.wait = _in_python(dist.Work.wait)
    Future.wait = _in_python(Future.wait)
    RRef.to_here = _in_python(RRef.to_here)


def parameters(frame: FrameType) -> dict[str, object]:
    """Return what the function of this frame was called with."""
    code, values = frame.f_code, frame.f_locals
    return {name: values.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}


def called(called_with: dict[str, object]) -> dict[str, object]:
    """Return of what an RPC was called with whom it calls, and which function, on an RRef which method."""
    function, arguments = called_with["func"], called_with.get("args")
    if function in ON_RREF:
        name = arguments[1]
    else:
        name = getattr(function, "__name__", None) or getattr(function, "name", type(function).__name__)
    return {"to": called_with["to"], "function": name}


def _noting_work(method):
    def call(group, *arguments, **options):
        work = method(group, *arguments, **options)
        if getattr(options.get("opts", (*arguments, None)[-1]), "asyncOp", True):
            frame = _nearest(_COLLECTIVES)
            if frame and frame.f_back.f_code.co_name not in _BLOCKING:
                made_by[work] = frame.f_code.co_name, parameters(frame)
        return work

    return _in_place_of(method, call)


def _noting_call(invoke):
    def call(*arguments, **options):
        made = invoke(*arguments, **options)
        frame = _nearest(_RPC)
        made_by[made] = "remote" if isinstance(made, RRef) else "rpc_async", called(parameters(frame))
        return made

    return _in_place_of(invoke, call)


def _noting_call_on_rref(invoke):
    def call(rref, rpc_api, func_name, *arguments, **options):
        made = invoke(rref, rpc_api, func_name, *arguments, **options)
        if isinstance(made, Future):
            made_by[made] = rpc_api.__name__, {"to": rref.owner_name(), "function": func_name}
        return made

    return _in_place_of(invoke, call)


def _in_python(method):
    def wait(handle, *arguments, **options):
        return method(handle, *arguments, **options)

    return _in_place_of(method, wait)


def _in_place_of(original, function):
    """Give a function the name of another one, in stacks, too.

    By this name torch's C++ tells it from a method that a class of the learner's brings along.
    """
    function.__code__ = function.__code__.replace(co_name=original.__name__)
    return functools.wraps(original)(function)


def _nearest(path):
    """Return the innermost frame of this file that has led here."""
    frame = sys._getframe(2)
    while frame and frame.f_code.co_filename != path:
        frame = frame.f_back
    return frame
