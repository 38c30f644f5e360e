"""Notify subscribers of the calls that this process makes to torch.distributed.

The first subscription in a process wraps the methods and functions of torch through which every call from Python
passes: the operations of a process group, waits, RPCs, and the creation of a group. They stay wrapped. They are below
the functions of `torch.distributed`, so it does not matter how a cell imported these functions. Calls from C++, such as
the collectives of DistributedDataParallel, do not pass through them.

An error in a subscriber does not disturb the call. The error is raised at the end of the block of `subscribed`, or
logged after `subscribe`.
"""

import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.rpc import WorkerInfo, api, rref_proxy
from torch.distributed.rpc.constants import UNSET_RPC_TIMEOUT

from helpers.torch_parts import ON_RREF, Future, RRef

_logger = logging.getLogger(__name__)

# The methods of ProcessGroup for each collective of torch.distributed; versions of torch differ in some of them.
METHODS_OF_COLLECTIVES = {
    "all_gather": [
        "allgather",
        "allgather_coalesced",
        "_allgather_base",
        "all_gather_single",
        "all_gather_single_coalesced",
        "allgather_into_tensor_coalesced",
    ],
    "all_reduce": ["allreduce", "allreduce_coalesced"],
    "all_to_all": ["alltoall", "alltoall_base", "all_to_all_single"],
    "barrier": ["barrier", "monitored_barrier"],
    "broadcast": ["broadcast"],
    "gather": ["gather", "gather_single", "gather_into_tensor"],
    "reduce": ["reduce"],
    "reduce_scatter": [
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_single",
        "reduce_scatter_single_coalesced",
        "reduce_scatter_tensor_coalesced",
    ],
    "scatter": ["scatter"],
}
_COLLECTIVES = {method: name for name, methods in METHODS_OF_COLLECTIVES.items() for method in methods}
_MESSAGES = {"send": "send", "recv": "recv", "recv_anysource": "recv"}
_ENDS_A_BATCH = "_end_coalescing"  # returns the work of several operations
_CHANGES_MEMBERS = "reconfigure"  # a collective with no other name; since torch 2.15
_BRINGS_NOTHING = {"barrier", "recv", _CHANGES_MEMBERS}
_BRINGS_ITS_FIRST_ARGUMENT = {"all_reduce", "broadcast", "reduce", "send"}  # for the others it is the output

_INVOKE_RPC, _MAKE_GROUP = "_invoke_rpc", "_new_process_group_helper"
_INVOKE_REMOTE = ("_invoke_remote_builtin", "_invoke_remote_python_udf", "_invoke_remote_torchscript")
_WAITS = ("wait", "to_here")


@dataclass(eq=False)
class Event:
    """One call: its `begin` and `end` by time.time_ns, the clock of torch's flight recorder, and its result.

    `end` is None before the call returns, and stays None if the call raises.
    """

    begin: int = field(init=False, default_factory=time.time_ns)
    end: int | None = field(init=False, default=None)
    result: object = field(init=False, default=None)


@dataclass(eq=False)
class Operation(Event):
    """A call of a method of `ProcessGroup`; the result is a `Work`, or None after a monitored_barrier.

    `options` is an object such as `AllreduceOptions`; for a method without options it is the last argument. Do not
    keep an event: it keeps the tensors alive.
    """

    method: str
    group: dist.ProcessGroup
    arguments: tuple
    options: object

    @property
    def name(self) -> str:
        """The name in `torch.distributed`, such as all_reduce; for an unknown method, the name of the method."""
        return _COLLECTIVES.get(self.method) or _MESSAGES.get(self.method, self.method)

    @property
    def inputs(self) -> list[torch.Tensor]:
        """The input tensors of this rank, even if torch ignores them, as in a broadcast from another rank."""
        if self.name in _BRINGS_NOTHING:
            return []
        place = 0 if self.name in _BRINGS_ITS_FIRST_ARGUMENT else 1
        return _tensors_in(self.arguments[place : place + 1])


class Collective(Operation):
    """A collective."""


class PointToPoint(Operation):
    """The send or the receive of a message."""

    @property
    def peer(self) -> int | None:
        """The global rank at the other end; None for a receive from any rank."""
        return dist.get_global_rank(self.group, self.arguments[1]) if self.method != "recv_anysource" else None


@dataclass(eq=False)
class Wait(Event):
    """A wait for a `Work` or a `Future`, or a call of `to_here` on an `RRef`."""

    handle: dist.Work | Future | RRef


@dataclass(eq=False)
class Rpc(Event):
    """An RPC; its `kind` is "sync", "async" or "remote", and its result a `Future` or an `RRef`.

    Its `timeout` is what the caller gave, in seconds; None stands for the timeout of RPC, and for every `remote`.

    A call on an `RRef` calls one of the functions in `ON_RREF`; `named` finds the method among its arguments.
    """

    kind: str
    to: str | int | WorkerInfo
    function: Callable
    arguments: tuple
    keywords: dict
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(eq=False)
class RpcOnRRef(Event):
    """A call on an `RRef`, such as `rref.rpc_async().method()`: the name of the API, and the name of the method.

    The call also makes an `Rpc`; with rpc_async, this may happen after the call has returned.
    """

    rref: RRef
    api: str
    method: str


@dataclass(eq=False)
class NewGroup(Event):
    """The creation of a process group; `ranks` is empty for the default group."""

    name: str
    ranks: tuple[int, ...]
    timeout: timedelta | None = field(default=None, kw_only=True)

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The group, once it has been created, if this rank is in it; otherwise None."""
        group = self.result and self.result[0]
        return group if isinstance(group, dist.ProcessGroup) else None


class _Subscription(NamedTuple):
    kind: type[Event]
    begin: Callable | None
    end: Callable | None
    report: Callable[[Exception], None]


_lock = threading.Lock()  # only for changes, because a call reads its entry of `_heard` once
_subscriptions: list[_Subscription] = []
# For each kind of event that has subscribers: the functions for its begin and for its end, each with its `report`.
_heard: dict[type[Event], tuple] = dict.fromkeys(
    (Operation, Collective, PointToPoint, Wait, Rpc, RpcOnRRef, NewGroup), ()
)
_is_wrapped = False


def subscribe(kind: type[Event], *, begin: Callable | None = None, end: Callable | None = None) -> None:
    """Start to call `begin` with each event of this kind before the call, and `end` after it, even if it raises.

    A kind includes its subclasses. The functions run in the thread of the call. A second subscription with the same
    functions changes nothing.
    """
    subscription = _Subscription(kind, begin, end, _log)
    with _lock:
        if subscription not in _subscriptions:
            _subscriptions.append(subscription)
            _renew()


def unsubscribe_all() -> None:
    """End every subscription of `subscribe`; without subscribers, a wrapper only calls the function that it wraps."""
    with _lock:
        _subscriptions[:] = [subscription for subscription in _subscriptions if subscription.report is not _log]
        _renew()


@contextmanager
def subscribed(kind: type[Event], *, begin: Callable | None = None, end: Callable | None = None) -> Iterator[None]:
    """Subscribe, as `subscribe` does, to the calls that begin inside the block, in any thread.

    After the block, raise the first error of `begin` or `end`, unless the block itself raised an error.
    """
    errors = []
    subscription = _Subscription(kind, begin, end, errors.append)
    with _lock:
        _subscriptions.append(subscription)
        _renew()
    try:
        yield
    finally:
        with _lock:
            _subscriptions.remove(subscription)
            _renew()
    if errors:
        raise errors[0]


def named(function: Callable, arguments: tuple, keywords: dict) -> tuple[str, tuple, dict]:
    """Return the name and the arguments of the function that an RPC calls, or of the method on an `RRef`."""
    if function in ON_RREF:
        _, name, arguments, keywords = arguments
        return name, arguments, keywords
    if isinstance(function, torch.jit.ScriptFunction):
        return function.name, arguments, keywords
    return getattr(function, "__name__", type(function).__name__), arguments, keywords


def waited_for(frame: FrameType) -> object | None:
    """Return the handle that a frame of this module waits for; None if the frame does not wait."""
    return frame.f_locals.get("target") if frame.f_code.co_name in _WAITS else None


def _renew():
    """Update `_heard` from the present subscriptions, for the calls that begin from now on."""
    _wrap_all()
    for kind in _heard:
        subscriptions = [subscription for subscription in _subscriptions if issubclass(kind, subscription.kind)]
        begins = tuple((each.begin, each.report) for each in subscriptions if each.begin)
        ends = tuple((each.end, each.report) for each in subscriptions if each.end)
        _heard[kind] = (begins, ends) if subscriptions else ()


def _log(error):
    _logger.error("a subscriber to calls of torch raised an error", exc_info=error)


def _wrap_all():
    """Wrap the methods and functions that calls pass through, once, except methods that this version of torch lacks."""
    global _is_wrapped
    if _is_wrapped:
        return
    _is_wrapped = True
    for name, method in list(vars(dist.ProcessGroup).items()):
        if name in _COLLECTIVES or "-> c10d::Work" in (method.__doc__ or ""):
            kind = PointToPoint if name in _MESSAGES else Operation if name == _ENDS_A_BATCH else Collective
            _wrap(dist.ProcessGroup, name, kind, _operation(kind, name))
    for owner in (dist.Work, Future):
        _wrap(owner, "wait", Wait, _wait)
    _wrap(RRef, "to_here", Wait, _wait)
    _wrap(api, _INVOKE_RPC, Rpc, _rpc)
    for name in _INVOKE_REMOTE:
        _wrap(api, name, Rpc, _remote)
    _wrap(rref_proxy, _INVOKE_RPC, RpcOnRRef, _rpc_on_rref)
    _wrap(distributed_c10d, _MAKE_GROUP, NewGroup, _new_group)


def _wrap(owner, name, kind, event_of):
    """Wrap a method or a function, so that the subscribers to this kind of event are notified of each call.

    `event_of` makes the event from the first argument, the other arguments and the keywords.
    """
    original = getattr(owner, name)

    def call(target, *arguments, **keywords):
        heard = _heard[kind]
        if not heard:
            return original(target, *arguments, **keywords)
        begins, ends = heard
        event = event_of(target, arguments, keywords)
        try:
            if begins:
                _tell(begins, event)
            event.result = original(target, *arguments, **keywords)
            event.end = time.time_ns()
            return event.result
        finally:
            _tell(ends, event)

    # Stacks show this name, and C++ needs it. Before C++ calls a method that a backend in Python overrides, it checks
    # whether the innermost frame is that method. With another name, wrapper and C++ would call each other forever.
    call.__code__ = call.__code__.replace(co_name=name)
    setattr(owner, name, functools.wraps(original)(call))


def _tell(subscribers, event):
    for tell, report in subscribers:
        try:
            tell(event)
        except Exception as error:
            report(error)


def _operation(kind, method):
    def event(group, arguments, keywords):
        options = keywords["opts"] if "opts" in keywords else arguments[-1] if arguments else None
        return kind(method, group, arguments, options)

    return event


def _wait(handle, arguments, keywords):
    return Wait(handle)


def _rpc(to, arguments, keywords):
    function, mode, called_with, named_arguments, *others = arguments
    timeout = None if others in ([], [UNSET_RPC_TIMEOUT]) else others[0]
    return Rpc(mode.value, to, function, called_with or (), named_arguments or {}, timeout=timeout)


def _remote(worker, arguments, keywords):
    # Here the function is a name or already pickled; the frame of `remote`, which made this call, still has it.
    parameters = sys._getframe(2).f_locals
    return Rpc("remote", parameters["to"], parameters["func"], parameters["args"], parameters["kwargs"])


def _rpc_on_rref(rref, arguments, keywords):
    function, method, *_ = arguments
    return RpcOnRRef(rref, function.__name__, method)


def _new_group(size, arguments, keywords):
    _, ranks, _, _, name, *_ = arguments
    return NewGroup(name, tuple(ranks), timeout=keywords.get("timeout"))


def _tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in _tensors_in(part)] if isinstance(value, list | tuple) else []
