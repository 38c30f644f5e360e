"""Checks of 04_groups_and_order: which groups an answer makes, and what the ranks hold after its collectives."""

import os
from datetime import timedelta

from helpers.checks.collectives import called, require_collectives, sendable, show
from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge
from helpers.measure.patching import replaced


def my_host_group(world) -> Verdict:
    """Check `my_host_group(hosts)`, which makes a group for each host, and returns that of this rank's host.

    It is called in a rehearsal, in which `new_group` only writes down what it is asked for: groups that do not fit
    together would otherwise keep the ranks waiting.
    """
    hosts = ["ab"[rank % 2] for rank in range(world.size)]

    def check(runs):
        for rank, (members, made) in enumerate(run.result for run in runs):
            target = [other for other in range(world.size) if hosts[other] == hosts[rank]]
            if members is None:
                raise Wrong(f"Rank {rank} returned no group, and the target is the group of ranks {target}.")
            if members != target:
                raise Wrong(f"Rank {rank} returned the group of ranks {members}, and the target is {target}.")
            for of_ranks, seconds, _ in made:
                if seconds is None or seconds > 30:
                    raise Wrong(
                        f"The group of ranks {of_ranks} waits {'30 minutes' if seconds is None else f'{seconds:g} s'} "
                        "for a rank that does not come. Give it a timeout of 10 s."
                    )
        made_by_all = [[of_ranks for of_ranks, _, local in run.result[1] if not local] for run in runs]
        for rank, made in enumerate(made_by_all):
            if sorted(made) != sorted(made_by_all[0]):
                raise Wrong(
                    f"Rank 0 made the groups {made_by_all[0]}, and rank {rank} made {made}. "
                    "All ranks make all groups, also those that they are not in."
                )
            if made != made_by_all[0]:
                raise Wrong(f"Rank 0 made the groups in the order {made_by_all[0]}, and rank {rank} in {made}.")
        return "Each rank has the group of its host, and all ranks make all groups in one order."

    return judge(world, "my_host_group", check, _rehearse, hosts)


def grid_sums(world) -> Verdict:
    """Check `grid_sums(number)`: every rank gets the sums over its row and its column of a grid of two columns.

    Each is the result of an all_reduce in a subgroup.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            sums = run.result
            if not isinstance(sums, list) or len(sums) != 2:
                raise Wrong(f"Rank {rank} returned {show(sums)}, and the target is two tensors.")
            row = [other for other in range(world.size) if other // 2 == rank // 2]
            column = [other for other in range(world.size) if other % 2 == rank % 2]
            for name, members, found in (("row", row, sums[0]), ("column", column, sums[1])):
                target = sum(10**member for member in members)
                if not isinstance(found, int) or found != target:
                    raise Wrong(f"Rank {rank} returned {show(found)} for its {name}, and the target is {target}.")
        require_collectives(runs, "all_reduce", 2)
        return "Every rank holds the sums of its row and its column, after two all_reduces."

    return judge(world, "grid_sums", check, _run_with_digit)


def stop_together(world) -> Verdict:
    """Check `stop_together(wish)`: it returns True on every rank when any rank wishes to stop, else False.

    It is called three times: no rank wishes, one does, all do.
    """

    def check(runs):
        for call, (who, target) in enumerate((("no rank", False), ("only the last rank", True), ("every rank", True))):
            for rank, run in enumerate(runs):
                found = run.result[call]
                if not isinstance(found, bool | int | float) or bool(found) != target:
                    raise Wrong(f"When {who} wishes to stop, rank {rank} returned {show(found)}: it is to be {target}.")
        for rank, run in enumerate(runs):
            if len(run.collectives) != 1 or set(run.collectives.values()) != {3}:
                raise Wrong(
                    f"In three calls rank {rank} called {called(run.collectives)}; the target is one collective a call."
                )
        return "The ranks stop together, after one collective, which each of them calls every time."

    return judge(world, "stop_together", check, _run_stop_together)


def hierarchical_sum(world) -> Verdict:
    """Check `hierarchical_sum(chunks, mesh)`: an all_reduce that sends only one chunk of each rank across hosts."""
    size = world.size
    hosts = 2 if size % 2 == 0 else 1
    total = [float((place + 1) * (10**size // 9)) for place in range(size // hosts)]

    def check(runs):
        for rank, run in enumerate(runs):
            found = run.result[0]
            if not isinstance(found, list) or len(found) != len(total):
                raise Wrong(f"Rank {rank} returned {show(found)}, and the target is a tensor of {len(total)}.")
            if found != total:
                raise Wrong(f"Rank {rank} returned {found}, and the target is {total}.")
        for rank, run in enumerate(runs):
            across = run.result[1]
            if across != [1]:
                sent = ", ".join(map(str, across)) or "nothing"
                raise Wrong(
                    f"The sums are right. Rank {rank} brought this many numbers to all_reduces across hosts: {sent}. "
                    "The target is once, 1 number."
                )
        if len(total) == 1:
            return "Every rank holds the sum. Its host has no other rank, so nothing could be saved: try 4 ranks, too."
        return "Every rank holds the sum, and brought only one chunk to an all_reduce across hosts."

    return judge(world, "hierarchical_sum", check, _run_hierarchical_sum)


def global_mean(world) -> Verdict:
    """Check `global_mean(values)`: a mean over all ranks whose gradients, averaged, are those of one process.

    Gradients are compared for a loss that is the same on all ranks, and for one that each rank has for itself.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            found, target, *_ = run.result
            if not _close(found, target):
                mean = [round(number, 4) for number in target]
                shown = [round(number, 4) for number in found] if _is_flat(found) else show(found)
                raise Wrong(f"Rank {rank} returned {shown}, and the mean over all ranks is {mean}.")
        for rank, run in enumerate(runs):
            if not run.result[2]:
                raise Wrong(f"The means are right, but on rank {rank} no gradient finds its way back through them.")
        alike, of_its_own = runs[0].result[3:]
        if not _close(*alike):
            raise Wrong(f"The means are right. {_share(*alike, world.size)}")
        if not _close(*of_its_own):
            raise Wrong(
                "The means are right, and so is the gradient when all ranks have the same loss. When each has one of "
                "its own it is not: the gradients that the other ranks find for the mean do not come back."
            )
        return "Every rank holds the mean over all ranks, and the gradients are those of one process."

    return judge(world, "global_mean", check, _run_global_mean)


class _Rehearsed:
    """Stands for a group that has been asked for and not been made."""

    def __init__(self, members):
        self.members = members


def _rehearse(hosts):
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    rank = dist.get_rank()
    made = []

    def new_group(ranks=None, timeout=None, *others, use_local_synchronization=False, **more):
        members = sorted(range(dist.get_world_size()) if ranks is None else ranks)
        made.append((members, timeout and timeout.total_seconds(), use_local_synchronization))
        return _Rehearsed(members) if rank in members else dist.GroupMember.NON_GROUP_MEMBER

    with replaced([(dist, "new_group", new_group), (distributed_c10d, "new_group", new_group)]):
        run = call_answer("my_host_group", [list(hosts)])
    group = run.result
    members = group.members if isinstance(group, _Rehearsed) else None
    if isinstance(group, dist.ProcessGroup):
        members = sorted(dist.get_process_group_ranks(group))
    return run._replace(result=(members, made))


def _run_with_digit():
    import torch

    run = call_answer("grid_sums", [torch.tensor(10 ** int(os.environ["RANK"]))])
    return run._replace(result=sendable(run.result))


def _run_stop_together():
    rank, last = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
    runs = []
    for wish in (False, rank == last, True):
        runs.append(call_answer("stop_together", [wish]))
        if runs[-1].error:
            return runs[-1]
    calls = sum((run.collectives for run in runs), start=type(runs[0].collectives)())
    messages = [message for run in runs for message in run.messages]
    return Run([sendable(run.result) for run in runs], messages, "", calls)


def _run_hierarchical_sum():
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    size = dist.get_world_size()
    hosts = 2 if size % 2 == 0 else 1
    ten_seconds = dist.ProcessGroupGloo.Options("gloo", timedelta(seconds=10))
    override = {name: ("gloo", ten_seconds) for name in ("host", "local")}
    shape = hosts, size // hosts
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("host", "local"), backend_override=override)
    chunks = torch.arange(1.0, size // hosts + 1) * 10 ** dist.get_rank()
    across = []

    def all_reduce(group, tensors, *options):
        if group.group_name != mesh.get_group("local").group_name:
            across.append(sum(tensor.numel() for tensor in tensors))
        return real(group, tensors, *options)

    real = dist.ProcessGroup.allreduce
    with replaced([(dist.ProcessGroup, "allreduce", all_reduce)]):
        run = call_answer("hierarchical_sum", [chunks, mesh])
    found = run.result.tolist() if hasattr(run.result, "tolist") else sendable(run.result)
    return run._replace(result=(found, across))


def _run_global_mean():
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    samples = torch.arange(12 * size, dtype=torch.float64).sin().reshape(size, 4, 3)
    weights = torch.tensor([[1.0, 0], [0, 1], [1, 1]], dtype=torch.float64, requires_grad=True)
    target = (samples.flatten(0, 1) @ weights).mean(dim=0)
    runs, compared = [], []
    for scales in ([1.0] * size, [float(other + 1) for other in range(size)]):
        truth = torch.autograd.grad(sum(scales) / size * (target**3).sum(), weights, retain_graph=True)[0]
        runs.append(call_answer("global_mean", [samples[rank] @ weights]))
        found = runs[-1].result
        right = isinstance(found, torch.Tensor) and found.shape == target.shape
        passes = right and found.requires_grad
        mean = torch.zeros_like(truth)
        error = runs[-1].error
        if passes:
            try:
                mean = torch.autograd.grad(scales[rank] * (found**3).sum(), weights)[0]
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"
        if error:
            return runs[-1]._replace(error=error)
        dist.all_reduce(mean)
        compared.append(((mean / size).flatten().tolist(), truth.flatten().tolist()))
    values = sendable(found.detach().tolist() if right else found)
    return runs[-1]._replace(result=(values, target.tolist(), passes, *compared))


def _is_flat(found):
    return isinstance(found, list) and all(isinstance(number, float) for number in found)


def _close(found, target):
    if not _is_flat(found) or len(found) != len(target):
        return False
    return all(abs(one - other) < 1e-9 for one, other in zip(found, target, strict=True))


def _share(found, truth, size):
    """Return a sentence on the share of the true gradient that was found, if it is the same share of every number."""
    share = sum(one * other for one, other in zip(found, truth, strict=True)) / sum(one * one for one in truth)
    if not _close(found, [share * one for one in truth]):
        return "The gradient of the weights, averaged over the ranks, is not that of one process."
    why = " What the other ranks find for the mean does not come back." if abs(share * size - 1) < 1e-9 else ""
    return f"The gradient of the weights, averaged over the ranks, is {share:.3g} times that of one process.{why}"
