"""Checks of 29_two_hosts: what an all-reduce sends over the cables, the order of a ring, and which way is faster."""

from contextlib import ExitStack

from helpers.checks.collectives import show
from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_BYTES = 2**20
# Counted at a cable, where the check's own talk must be little.
_BYTES_OVER_CABLES = 2**22
_HEADERS = 0.05  # a share: of the cable's bytes, with what the check itself sends
# The host of each rank, in the order of the ranks.
_LAYOUTS = ([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 0, 1, 2], [2, 0, 0, 1, 2, 2, 1], [0, 0, 0], [0, 1, 2, 3])
# Hosts, ranks of each, bytes, and α and β inside a host and across.
_CLUSTERS = (
    (2, 2, 2**22, (3e-5, 2e9), (5e-5, 2.5e7)),
    (2, 8, 2**26, (1e-5, 1e9), (1e-5, 1e9)),
    (16, 8, 2**12, (1e-5, 1e9), (1e-5, 1e9)),
    (128, 8, 2**30, (5e-6, 4.5e11), (5e-6, 5e10)),
    (8, 4, 2**28, (5e-6, 2e9), (5e-6, 1.25e9)),
)


def my_two_level_all_reduce(world) -> Verdict:
    """Check `my_two_level_all_reduce(tensor)`: the sum in place, with as few bytes out of each host as there can be.

    What leaves a host is counted at its cable, so any way will do. Hosts without cables have only the sum checked.
    """
    from helpers.measure.traffic import cable  # it imports torch

    hosts = len(world.hosts)
    target = 2 * (hosts - 1) / hosts

    def check(runs):
        counting.close()  # the ranks are done
        _require_sums(world, runs)
        for name, carried in carried_by.items():
            tensors = (carried.sent - carried.resent) / _BYTES_OVER_CABLES
            if tensors > target * (1 + _HEADERS):
                raise Wrong(
                    f"The sum is right. {tensors:.2f} tensors have left {name}, and the target is {target:.2f}."
                )
        if not carried_by:
            return "Every rank holds the sum. (These hosts have no cables, so nobody has counted what leaves them.)"
        return f"Every rank holds the sum, and {target:.2f} tensors have left each host."

    with ExitStack() as counting:
        names = world.hosts if world.has_cables else []
        carried_by = {name: counting.enter_context(cable(name)) for name in names}
        return judge(world, "my_two_level_all_reduce", check, _run_two_levels, _BYTES_OVER_CABLES)


def sharded_all_reduce(world) -> Verdict:
    """Check `sharded_all_reduce(tensor, inside, across)`: each rank brings one m-th of the tensor to other hosts.

    Counted is what a rank hands to collectives of groups with ranks of several hosts, and to messages to other hosts.
    """
    ranks = world.size // len(world.hosts)
    target = _BYTES // (4 * ranks) * 4  # shards of whole numbers of 4 bytes
    size = ranks * target

    def check(runs):
        _require_sums(world, runs)
        for rank, run in enumerate(runs):
            brought = run.result[1]
            if brought != target:
                raise Wrong(
                    f"The sum is right. Rank {rank} brought {brought} bytes to ranks of other hosts, and the target is "
                    f"{target}: one of {ranks} shards of {size} bytes."
                )
        return f"Every rank holds the sum, and each has brought {target} bytes to the other hosts."

    return judge(world, "sharded_all_reduce", check, _run_sharded, size, ranks)


def best_order(world) -> Verdict:
    """Check `best_order(hosts)`: an order of the ranks in which a ring goes from host to host as rarely as it can."""

    def check(runs):
        for rank, run in enumerate(runs):
            for hosts, order in zip(_LAYOUTS, run.result, strict=True):
                called = f"For ranks on the hosts {hosts} rank {rank} returned {order}"
                if not isinstance(order, list) or sorted(order, key=str) != sorted(range(len(hosts)), key=str):
                    raise Wrong(f"{called}, and the target is a list of the {len(hosts)} ranks, each of them once.")
                found, target = _crossings(hosts, order), len(set(hosts)) if len(set(hosts)) > 1 else 0
                if found > target:
                    raise Wrong(
                        f"{called}. That ring goes from host to host {found} times, and {target} times will do."
                    )
        return "No ring goes from host to host more often than there are hosts."

    return judge(world, "best_order", check, _run_over, "best_order", [[layout] for layout in _LAYOUTS])


def two_levels_pay(world) -> Verdict:
    """Check `two_levels_pay(h, m, size, inside, across)`: whether an all-reduce in two levels beats one ring."""

    def check(runs):
        for rank, run in enumerate(runs):
            for cluster, found in zip(_CLUSTERS, run.result, strict=True):
                ring, levels = _times(*cluster)
                if found not in (True, False):
                    raise Wrong(f"Rank {rank} returned {show(found)}, and the target is True or False.")
                if bool(found) != (levels < ring):
                    h, m, size, inside, across = cluster
                    raise Wrong(
                        f"For {h} hosts of {m} ranks, {size / 2**20:g} MiB, {_link(inside)} inside and "
                        f"{_link(across)} across rank {rank} returned {bool(found)}, and one ring takes "
                        f"{1e3 * ring:.3g} ms, two levels {1e3 * levels:.3g} ms."
                    )
        return f"Every rank chose the faster way for each of {len(_CLUSTERS)} clusters."

    return judge(world, "two_levels_pay", check, _run_over, "two_levels_pay", [list(cluster) for cluster in _CLUSTERS])


def _require_sums(world, runs):
    target = world.size * (world.size + 1) / 2
    for rank, run in enumerate(runs):
        found = run.result[0]
        if found != [target]:
            shown = " and ".join(f"{number:g}" for number in found)
            raise Wrong(f"Rank {rank} holds {shown}, and the target is {target:g} everywhere.")


def _crossings(hosts, order):
    return sum(hosts[order[place - 1]] != hosts[order[place]] for place in range(len(order)))


def _times(h, m, size, inside, across):
    """Return the seconds that one ring takes, and three rings in two levels, by the model."""
    n = h * m
    ring = 2 * (n - 1) * (across[0] + size / n / across[1])
    within = 2 * (m - 1) * (inside[0] + size / m / inside[1])
    return ring, within + 2 * (h - 1) * (across[0] + size / h / across[1])


def _link(link):
    return f"{1e6 * link[0]:g} µs and {1e-9 * link[1]:g} GB/s"


def _run_over(function, arguments):
    results = []
    for these in arguments:
        run = call_answer(function, these)
        if run.error:
            return run
        found = run.result.tolist() if hasattr(run.result, "tolist") else run.result
        found = list(found) if isinstance(found, list | tuple | range) else found
        results.append(found if isinstance(found, bool | int | list) else show(found))
    return Run(results, [], "")


def _run_two_levels(size):
    tensor = _own_numbers(size)
    return call_answer("my_two_level_all_reduce", [tensor])._replace(result=(tensor.unique().tolist(), None))


def _run_sharded(size, ranks):
    """Call the answer with groups of the mesh, and count the bytes that this rank brings to other hosts."""
    import torch.distributed as dist

    import __main__
    from helpers.measure.traffic import by_group

    tensor = _own_numbers(size)
    here = dist.get_rank() // ranks
    groups = [vars(__main__)[name] for name in ("inside", "across")]
    with by_group() as handed:
        run = call_answer("sharded_all_reduce", [tensor, *groups])
    brought = [given for members, given in handed.items() if any(rank // ranks != here for rank in members)]
    brought += [message.bytes for message in run.messages if message.sent and message.peer // ranks != here]
    return run._replace(result=(tensor.unique().tolist(), sum(brought)))


def _own_numbers(size):
    """Return a tensor of so many bytes, full of the number of this rank, counted from 1."""
    import torch
    import torch.distributed as dist

    return torch.full((size // 4,), dist.get_rank() + 1.0)
