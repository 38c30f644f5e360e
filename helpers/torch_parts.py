"""The private names of torch that the course uses, each with its reason; `helpers.tap` has those that it wraps.

tests/canaries/test_torch_parts.py says when a release of torch has moved one of them.
"""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._C import Future  # of which torch.futures.Future is one kind, and what a work object returns another
from torch._C._distributed_c10d import _dump_fr_trace  # pyright: ignore[reportAttributeAccessIssue]
from torch._C._distributed_rpc import PyRRef as RRef  # what rpc.RRef and rpc.remote make: its to_here() can be watched
from torch.distributed.rpc import WorkerInfo, api, rref_proxy

# How a call on an RRef, as rref.rpc_sync(), comes to its owner: under the name of one of these.
ON_RREF = (rref_proxy._local_invoke, rref_proxy._local_invoke_async_execution)

__all__ = [
    "ON_RREF",
    "Future",
    "RRef",
    "flight_records",
    "load_dynamo",
    "source_rank",
    "unfinished_collectives",
    "without_compiler",
    "worker_of",
    "workers",
]


def workers() -> list[WorkerInfo]:
    """Return all workers of the RPC that runs; its public functions tell of one whose name is known."""
    return api._get_current_rpc_agent().get_worker_infos()


def worker_of(to) -> WorkerInfo:
    """Return the worker that a caller means by its name, its number or its WorkerInfo."""
    return api._to_worker_info(to)


def source_rank(work) -> int:
    """Return the rank in its group from which a receive from anybody has got its message."""
    return work._source_rank()


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let torch find inside the block that it has no compiler, unless that is there already.

    The flight recorder looks for it, for the stacks of compiled code, and would import it, for more than a second of
    processor time.
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
    """Return what the flight recorder of this process holds: its last collectives, the oldest first, with stacks."""
    with without_compiler():
        return pickle.loads(_dump_fr_trace())["entries"]


def unfinished_collectives(since: int) -> list[str]:
    """Return the names of the collectives called after the moment `since`, by time.time_ns, that gloo still works on.

    gloo is done with one a little later than whoever waits for its future, as DistributedDataParallel does: its thread
    then runs what was asked to follow, and notes the end for the profiler.
    """
    entries = pickle.loads(_dump_fr_trace(includeStackTraces=False))["entries"]
    return [entry["profiling_name"] for entry in entries if entry["time_created_ns"] >= since and not entry["retired"]]


def load_dynamo() -> None:
    """Import what the first DistributedDataParallel of a process imports, which takes seconds on a busy machine."""
    import torch._dynamo  # noqa: F401
