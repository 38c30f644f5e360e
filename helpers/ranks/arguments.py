"""What torch has been called with, read from its own frames while the call is still under way."""

import json
import logging
from collections.abc import Callable
from types import FrameType

import torch
import torch.distributed as dist
from torch.distributed.rpc import WorkerInfo, api, get_worker_info, internal, rref_proxy

from helpers import tap
from helpers.ranks import handles
from helpers.torch_parts import worker_of

_logger = logging.getLogger(__name__)

Told = dict[str, object]  # text and numbers


def of(frame: FrameType) -> Told | None:
    """Return the arguments of a call of torch.distributed by name, None for a frame of other code."""
    describe = _DESCRIBE.get(frame.f_code.co_filename)
    try:
        told = describe(frame) if describe else None
        # Through JSON, because an object of the learner's class, such as a tag, cannot be read in the notebook.
        return json.loads(json.dumps(told))
    except Exception:  # whatever a learner has called it with, where() shows the rest
        _logger.debug("the arguments of %s are not known", frame.f_code.co_name, exc_info=True)
        return None


def outline(tensor: torch.Tensor) -> str:
    """Return the type and the shape of a tensor in a few letters."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _collective(frame):
    return _outlines(handles.parameters(frame))


def _outlines(called_with):
    """Return the arguments of a collective or a message: what goes from rank to rank, and between which."""
    told = {}
    group = called_with.get("group") or dist.group.WORLD
    for name, value in called_with.items():
        if _has_tensors(value):
            told[name] = outline(value) if isinstance(value, torch.Tensor) else _outline_list(value)
        elif name == "op":
            told[name] = str(value).rpartition(".")[2]
        elif name in ("src", "dst"):
            told[name] = _peer(value, called_with.get(f"group_{name}"), group)
        elif (name == "tag" and value) or (name == "ranks" and isinstance(value, list)):
            told[name] = value
        elif name == "group":
            told[name] = dist.get_process_group_ranks(group)
            told["group_name"] = group.group_name  # two groups may have the same ranks
    return told


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
    """Return which function a caller has asked this worker for, and how the caller knows this worker."""
    if frame.f_code is not internal._run_function.__code__:
        return None
    request = frame.f_locals["python_udf"]
    call = handles.called({"to": get_worker_info().name, "func": request.func, "args": request.args})
    return {"requested": call["function"], "of": call["to"]}


def _wait(frame):
    """Return what a wait is for: the function that has made the handle, and what that was called with."""
    handle = tap.waited_for(frame)
    if handle is None:
        return None
    name, called_with = handles.made_by.get(handle, (None, None))
    if name is None:
        return {"to": handle.owner_name()} if hasattr(handle, "owner_name") else None
    return {"of": name, **(_whom(called_with) if "function" in called_with else _outlines(called_with))}


def _wait_for_all(frame):
    """Return whom the calls go to that torch.futures.wait_all still waits for."""
    if frame.f_code is not torch.futures.wait_all.__code__:
        return None
    pending = [handles.made_by[future] for future in frame.f_locals["futures"] if not future.done()]
    told = [_whom(call) for _, call in pending]
    names = {key: ", ".join(dict.fromkeys(call[key] for call in told)) for key in ("to", "function")}
    return {"of": f"{len(told)} calls", **names}


_DESCRIBE: dict[str, Callable[[FrameType], Told | None]] = {
    dist.distributed_c10d.__file__: _collective,
    api.__file__: _call,
    rref_proxy.__file__: _call_on_rref,
    internal.__file__: _request,
    tap.__file__: _wait,
    torch.futures.__file__: _wait_for_all,
}
