"""The arguments of torch's functions, read from their frames while the call is in progress."""

import json
import logging
from collections.abc import Callable
from types import FrameType

import torch
import torch.distributed as dist
from torch.distributed.rpc import WorkerInfo, api, get_worker_info, internal, rref_proxy

from helpers import tap
from helpers.probe import handles
from helpers.torch_parts import SERVE, worker_of

_logger = logging.getLogger(__name__)

Told = dict[str, object]  # text and numbers


def of(frame: FrameType) -> Told | None:
    """Return the arguments of a call of torch.distributed by name, None for a frame of other code."""
    describe = _DESCRIBE.get(frame.f_code.co_filename)
    try:
        description = describe(frame) if describe else None
        # Through JSON, because the notebook cannot unpickle an object of the learner's class, such as a tag.
        return json.loads(json.dumps(description))
    except Exception:  # where() shows the rest, whatever arguments the learner passed
        _logger.debug("the arguments of %s are not known", frame.f_code.co_name, exc_info=True)
        return None


def outline(tensor: torch.Tensor) -> str:
    """Return the dtype and the shape of a tensor as a short text."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _collective(frame):
    return _outlines(handles.parameters(frame))


def _outlines(called_with):
    """Return the arguments of a collective or a message: its tensors, its operator, its peers and its group."""
    outlines = {}
    group = called_with.get("group") or dist.group.WORLD
    for name, value in called_with.items():
        if _has_tensors(value):
            outlines[name] = outline(value) if isinstance(value, torch.Tensor) else _outline_list(value)
        elif name == "op":
            outlines[name] = str(value).rpartition(".")[2]
        elif name in ("src", "dst"):
            outlines[name] = _peer(value, called_with.get(f"group_{name}"), group)
        elif (name == "tag" and value) or (name == "ranks" and isinstance(value, list)):
            outlines[name] = value
        elif name == "group":
            outlines[name] = dist.get_process_group_ranks(group)
            outlines["group_name"] = group.group_name  # two groups may have the same ranks
    return outlines


def _has_tensors(value):
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(isinstance(tensor, torch.Tensor) for tensor in value)
    return isinstance(value, torch.Tensor)


def _outline_list(tensors):
    outlines = [outline(tensor) for tensor in tensors]
    if len(set(outlines)) == 1:
        return f"{len(outlines)} x {outlines[0]}"
    return f"[{', '.join(outlines)}]"


def _peer(rank, rank_in_group, group):
    if rank is not None:
        return rank
    return "any" if rank_in_group is None else dist.get_global_rank(group, rank_in_group)


def _call(frame):
    called_with = handles.parameters(frame)
    return _whom(handles.called(called_with)) if "func" in called_with else None


def _call_on_rref(frame):
    if frame.f_code.co_name != "_invoke_rpc":
        return None
    called_with = handles.parameters(frame)
    return {"to": called_with["rref"].owner_name(), "function": called_with["func_name"]}


def _whom(call):
    to = call["to"]
    name = to if isinstance(to, str) else (to if isinstance(to, WorkerInfo) else worker_of(to)).name
    return {"to": name, "function": call["function"]}


def _request(frame):
    """Return the function that a caller requested from this worker, and the name by which the caller knows it."""
    if frame.f_code is not SERVE.__code__:
        return None
    request = frame.f_locals["python_udf"]
    call = handles.called({"to": get_worker_info().name, "func": request.func, "args": request.args})
    return {"requested": call["function"], "of": call["to"]}


def _wait(frame):
    """Return what a wait is for: the function that returned the handle, and the arguments of that function."""
    handle = tap.waited_for(frame)
    if handle is None:
        return None
    name, called_with = handles.made_by.get(handle, (None, None))
    if name is None:
        return {"to": handle.owner_name()} if hasattr(handle, "owner_name") else None
    return {"of": name, **(_whom(called_with) if "function" in called_with else _outlines(called_with))}


def _wait_for_all(frame):
    """Return the workers and the functions of the calls that torch.futures.wait_all still waits for."""
    if frame.f_code is not torch.futures.wait_all.__code__:
        return None
    pending = [handles.made_by[future] for future in frame.f_locals["futures"] if not future.done()]
    calls = [_whom(call) for _, call in pending]
    names = {key: ", ".join(dict.fromkeys(call[key] for call in calls)) for key in ("to", "function")}
    return {"of": f"{len(calls)} calls", **names}


_DESCRIBE: dict[str, Callable[[FrameType], Told | None]] = {
    dist.distributed_c10d.__file__: _collective,
    api.__file__: _call,
    rref_proxy.__file__: _call_on_rref,
    internal.__file__: _request,
    tap.__file__: _wait,
    torch.futures.__file__: _wait_for_all,
}
