"""The private names of torch that the course uses, each with its reason, except the names that `helpers.tap` wraps.

tests/canaries/test_torch_parts.py fails when a release of torch has moved one of them.
"""

import functools
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch._C import Future  # the class of a work object's future, and the base class of torch.futures.Future
from torch._C._distributed_c10d import _dump_fr_trace  # pyright: ignore[reportAttributeAccessIssue]
from torch._C._distributed_rpc import PyRRef as RRef  # rpc.RRef and rpc.remote return it; its to_here() can be wrapped
from torch.distributed.rpc import WorkerInfo, _set_rpc_timeout, api, get_rpc_timeout, internal, rref_proxy

# A call on an RRef, such as rref.rpc_sync(), reaches its owner as a call of one of these functions.
ON_RREF = (rref_proxy._local_invoke, rref_proxy._local_invoke_async_execution)
# The function in which a worker serves a call; its frame has the function that the caller requested.
SERVE = internal._run_function

__all__ = [
    "ON_RREF",
    "SERVE",
    "Future",
    "RRef",
    "flight_records",
    "forget_gathers",
    "load_dynamo",
    "rpc_timeout",
    "seconds_for_rrefs",
    "source_rank",
    "unfinished_collectives",
    "without_compiler",
    "worker_of",
    "workers",
]


def workers() -> list[WorkerInfo]:
    """Return all workers of the running RPC; its public functions only return a worker whose name is known."""
    return api._get_current_rpc_agent().get_worker_infos()


def worker_of(to) -> WorkerInfo:
    """Return the worker that a caller gives as a name, a number or a WorkerInfo."""
    return api._to_worker_info(to)


@contextmanager
def rpc_timeout(seconds: float) -> Iterator[None]:
    """Give the RPCs of this process another timeout inside the block; torch has a public function only to read it."""
    before = get_rpc_timeout()
    _set_rpc_timeout(seconds)
    try:
        yield
    finally:
        _set_rpc_timeout(before)


def forget_gathers() -> None:
    """Have the RPC that starts next on this rank number its gathers from 0.

    `init_rpc` and `shutdown` gather from all workers. Each process numbers its gathers and never begins again, so after
    a shutdown that not all workers called, the numbers differ and the next `init_rpc` hangs.
    """
    with api._all_gather_dict_lock:
        api._all_gather_sequence_id.clear()
        api._all_gather_sequence_id_to_states.clear()


@contextmanager
def seconds_for_rrefs(seconds: float) -> Iterator[None]:
    """Have `shutdown` wait this long inside the block for RRefs that are not deleted, instead of 100 s.

    The owner waits in vain if a call failed before it unpickled the RRef among its arguments.
    """
    delete = api._delete_all_user_and_unforked_owner_rrefs
    api._delete_all_user_and_unforked_owner_rrefs = functools.partial(delete, timedelta(seconds=seconds))
    try:
        yield
    finally:
        api._delete_all_user_and_unforked_owner_rrefs = delete


def source_rank(work) -> int:
    """Return the sender of the message that a receive from any rank got, as a rank in the group."""
    return work._source_rank()


@contextmanager
def without_compiler() -> Iterator[None]:
    """Hide torch's compiler from torch inside the block, unless it has already been imported.

    The flight recorder looks for the compiler, for the stacks of compiled code, and would import it, which takes more
    than a second of processor time.
    """
    is_absent = "_inductor" not in vars(torch)
    if is_absent:
        torch._inductor = None
    try:
        yield
    finally:
        if is_absent and torch._inductor is None:
            del torch._inductor


def flight_records() -> list[dict]:
    """Return the entries of this process's flight recorder: the last collectives, the oldest first, with stacks."""
    with without_compiler():
        return pickle.loads(_dump_fr_trace())["entries"]


def unfinished_collectives(since: int) -> list[str]:
    """Return the names of the collectives called since the time `since`, by time.time_ns, that gloo has not finished.

    gloo finishes a collective a little after the end of a wait for its future, such as DistributedDataParallel's: its
    thread then runs the callbacks, and notes the end for the profiler.
    """
    entries = pickle.loads(_dump_fr_trace(includeStackTraces=False))["entries"]
    return [entry["profiling_name"] for entry in entries if entry["time_created_ns"] >= since and not entry["retired"]]


def load_dynamo() -> None:
    """Import the module that the first DistributedDataParallel of a process imports; this may take seconds."""
    import torch._dynamo  # noqa: F401
