"""Exercises of 05_groups_and_order: which groups an answer makes, and what the ranks hold after its collectives."""

import functools
import os
import uuid
from collections import Counter
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import init_device_mesh

from helpers import tap
from helpers.checks.exam import AnswerError, Wrong, answer, called, exercise, number, show
from helpers.checks.patching import replaced

_SECONDS_TO_WAIT = 30  # at most, in a group of the answer
_SECONDS_TO_AGREE = 5  # for the last rank to ask for a group


class _Disagreement(AnswerError):
    """The ranks ask for different groups; the text is the sentence for the learner."""


def _judge_order(returned):
    """Require that all ranks make the same groups in one order; `returned` are the lists of each rank's groups."""
    first = returned[0]
    for rank, made in enumerate(returned):
        if sorted(made, key=str) != sorted(first, key=str):
            raise Wrong(
                f"Rank 0 made the groups {first}, and rank {rank} made {made}. "
                "All ranks must make all groups, including the groups that they are not in."
            )
        if made != first:
            raise Wrong(
                f"Rank 0 made the groups in the order {first}, and rank {rank} in {made}. "
                "Go through the hosts in an order that all ranks share. A set has no such order: sort it."
            )
    if any(first.count(members) > 1 for members in first):
        raise Wrong(
            f"Every rank made the groups {first}, expected each group once. Go through the hosts, not the ranks."
        )
    return "Each rank has the group of its host, and all ranks make all groups in one order."


@exercise(together=_judge_order)
def my_host_group(exam):
    """Check `my_host_group(hosts)`, which makes a group for each host and returns the group of this rank's host.

    The call is a rehearsal, in which `new_group` only notes its arguments: groups that do not fit together would
    otherwise keep the ranks waiting.
    """
    rank, n = exam.rank, exam.n
    hosts = ["ab"[other % 2] for other in range(n)]
    expected = [other for other in range(n) if hosts[other] == hosts[rank]]
    members, made = exam.on_rank(_rehearse, hosts)
    exam.require(members is not None, f"Rank {rank} returned no group, expected the group of ranks {expected}.")
    exam.require(
        members == expected,
        f"Rank {rank} returned the group of ranks {members}, expected the group of ranks {expected}.",
    )
    _require_timeouts(exam, made)
    return [of_ranks for of_ranks, _, only_by_members in made if not only_by_members]


@exercise
def grid_sums(exam):
    """Check `grid_sums(number)`: every rank gets the sums over its row and its column of a grid of two columns.

    Each is the result of an all_reduce in a subgroup, and all ranks make the subgroups in one order.
    """
    rank, n = exam.rank, exam.n
    row = [other for other in range(n) if other // 2 == rank // 2]
    column = [other for other in range(n) if other % 2 == rank % 2]
    result, disagreement, made = exam.on_rank(_grid_sums, torch.tensor(10**rank))
    if exam.require(not disagreement, disagreement) and exam.require(
        isinstance(result, list | tuple) and len(result) == 2,
        f"Rank {rank} returned {show(result)}, expected two tensors.",
    ):
        for name, members, found in (("row", row, result[0]), ("column", column, result[1])):
            expected = sum(10**member for member in members)
            exam.require(
                number(found) == expected, f"Rank {rank} returned {show(found)} for its {name}, expected {expected}."
            )
    exam.require(
        exam.collectives == {"all_reduce": 2},
        f"Rank {rank} called {called(exam.collectives)}, expected 2 all_reduce.",
    )
    _require_timeouts(exam, made)
    return "Every rank holds the sums of its row and its column, after two all_reduces."


@exercise
def stop_together(exam):
    """Check `stop_together(wish)`: it returns True on every rank if any rank wishes to stop, and False otherwise.

    It is called four times: no rank wishes, the last does, the first does, all do. With gloo a `reduce` to rank 0
    leaves the wish of the last rank on every rank, but the wish of the first rank on rank 0 only.
    """
    rank, last = exam.rank, exam.n - 1
    for who, wish, expected in (
        ("no rank", False, False),
        ("only the last rank", rank == last, True),
        ("only rank 0", rank == 0, True),
        ("every rank", True, True),
    ):
        result = _item(exam.call(wish))
        exam.require(
            isinstance(result, bool | int | float) and bool(result) == expected,
            f"When {who} wishes to stop, rank {rank} returned {show(result)}, expected {expected}.",
        )
    calls = sum((run.collectives for run in exam.runs), start=Counter())
    exam.require(
        list(calls.values()) == [4],
        f"In four calls rank {rank} called {called(calls)}, expected one collective in each call.",
    )
    return "The ranks stop together, after one collective, which each of them calls every time."


@exercise
def hierarchical_sum(exam):
    """Check `hierarchical_sum(chunks, mesh)`: an all_reduce that sends only one chunk of each rank across hosts."""
    rank, n = exam.rank, exam.n
    hosts = 2 if n % 2 == 0 else 1
    expected = [float((chunk + 1) * (10**n // 9)) for chunk in range(n // hosts)]
    result, across = exam.on_rank(_hierarchical_sum, torch.arange(1.0, n // hosts + 1) * 10**rank, hosts)
    found = result.tolist() if hasattr(result, "tolist") else result
    if exam.require(
        isinstance(found, list) and len(found) == len(expected),
        f"Rank {rank} returned {show(result)}, expected a tensor of shape [{len(expected)}].",
    ):
        exam.require(list(map(number, found)) == expected, f"Rank {rank} returned {found}, expected {expected}.")
    elements = f"{' + '.join(map(str, across))} elements" if across else "nothing"
    exam.require(
        across == [1],
        f"The sums are right. Rank {rank} passed {elements} to all_reduces across hosts, expected 1 element, once.",
    )
    if len(expected) == 1:
        return "Every rank holds the sum. Its host has no other rank, so nothing could be saved: try 4 ranks as well."
    return "Every rank holds the sum, and brought only one chunk to an all_reduce across hosts."


def _require_timeouts(exam, made):
    """Require a timeout of each group; `made` has tuples of its ranks, its timeout in seconds, and more."""
    for members, seconds, *_ in made:
        if seconds is None or not seconds <= _SECONDS_TO_WAIT:
            exam.refuse(
                f"The group of ranks {members} waits {'30 minutes' if seconds is None else f'{seconds:g} s'} "
                "for a rank that does not come. Give it a timeout of 10 s."
            )
            return


def _grid_sums(number):
    """Return what `grid_sums` returns, "", and the ranks and the timeout of each group that it makes by `new_group`.

    If the ranks ask for different groups, return None, a sentence, and the groups so far. Otherwise such ranks would
    wait in `new_group` until its timeout, and again in their next group.
    """
    attempt = [uuid.uuid4().hex]
    dist.broadcast_object_list(attempt, src=0)
    server = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store = dist.PrefixStore(attempt[0], server)
    asked, made = [], []
    make = dist.new_group

    @functools.wraps(make)
    def new_group(ranks=None, timeout=None, *others, use_local_synchronization=False, **more):
        members = sorted(range(dist.get_world_size()) if ranks is None else ranks)
        made.append((members, None if timeout is None else timeout.total_seconds()))
        if not use_local_synchronization:
            asked.append(members)
            _require_agreement(store, asked)
        return make(ranks, timeout, *others, use_local_synchronization=use_local_synchronization, **more)

    try:
        with replaced([(dist, "new_group", new_group), (distributed_c10d, "new_group", new_group)]):
            return answer("grid_sums", [number]), "", made
    except _Disagreement as disagreement:
        return None, str(disagreement), made


def _require_agreement(store, asked):
    """Require that every rank asks for the last of these groups as its group of the same number."""
    rank, number, members = dist.get_rank(), len(asked), asked[-1]
    store.set(f"{number} of {rank}", str(members))
    for other in range(dist.get_world_size()):
        try:
            store.wait([f"{number} of {other}"], timedelta(seconds=_SECONDS_TO_AGREE))
            theirs = store.get(f"{number} of {other}").decode()
        except dist.DistStoreError:
            theirs = "none"
        if theirs != str(members):
            raise _Disagreement(
                f"As group number {number}, rank {rank} made {members} and rank {other} made {theirs}. All ranks must "
                "make all groups in the same order, including the groups that they are not in."
            )


class _Rehearsed:
    """Represents a group that was requested but not created."""

    def __init__(self, members):
        self.members = members


class _Host(str):
    """The name of a host, whose hash depends on the rank.

    Processes that are started one by one hash strings differently, so each has its own order of a set. The ranks of a
    world are forked from one process, so without this class a set would have the same order on all of them.
    """

    __slots__ = ()

    def __hash__(self):
        return (sum(map(ord, self)) + dist.get_rank()) % 2


def _rehearse(hosts):
    """Return the ranks of the group that `my_host_group` returns, None without one, and the groups that it asks for.

    Each of these has its ranks, its timeout in seconds, and whether only its members make it.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    made = []

    def new_group(ranks=None, timeout=None, *others, use_local_synchronization=False, **more):
        members = sorted(range(n) if ranks is None else ranks)
        seconds = None if timeout is None else timeout.total_seconds()
        made.append((members, seconds, use_local_synchronization))
        return _Rehearsed(members) if rank in members else dist.GroupMember.NON_GROUP_MEMBER

    # Replaced, and not observed: a rehearsal must make no groups.
    with replaced([(dist, "new_group", new_group), (distributed_c10d, "new_group", new_group)]):
        group = answer("my_host_group", [[_Host(host) for host in hosts]])
    members = group.members if isinstance(group, _Rehearsed) else None
    if isinstance(group, dist.ProcessGroup):
        members = sorted(dist.get_process_group_ranks(group))
    return members, made


def _item(result):
    """Return the one element of a tensor or array; anything else as it is."""
    if isinstance(result, torch.Tensor | np.ndarray) and len(result.reshape(-1)) == 1:
        return result.item()
    return result


def _hierarchical_sum(chunks, hosts):
    """Return what `hierarchical_sum` returns, and how many elements it passes to each all_reduce across hosts."""
    ten_seconds = dist.ProcessGroupGloo.Options("gloo", timedelta(seconds=10))
    override = {name: ("gloo", ten_seconds) for name in ("host", "local")}
    shape = hosts, dist.get_world_size() // hosts
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("host", "local"), backend_override=override)
    across = []

    def note(event):
        if event.name == "all_reduce" and event.group.group_name != mesh.get_group("local").group_name:
            across.append(sum(tensor.numel() for tensor in event.inputs))

    with tap.subscribed(tap.Collective, begin=note):
        result = answer("hierarchical_sum", [chunks, mesh])
    return result, across
