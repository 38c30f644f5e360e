"""Exercises of 31_two_hosts: what an all-reduce sends over the cables, the order of a ring, and which way is faster."""

import operator
import os

import torch

from helpers.checks.exam import AnswerError, Wrong, answer, exercise, show
from helpers.checks.learner import learners_module
from helpers.measure.traffic import by_group

_BYTES = 2**20
# Counted at a cable, where the check's own talk must be little.
_BYTES_OVER_CABLES = 2**22
_HEADERS = 0.05  # a share: of the cable's bytes, with what the check itself sends
_SHOWN_AT_MOST = 4  # different elements of a tensor
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


class _Cables:
    """In the process that judges: the cables of a world's hosts, and what each has carried before the answer ran."""

    def begin(self, world):
        self.hosts = len(world.hosts)
        self._cables = world.cables if world.has_cables else None
        self._before = self._cables.carried() if self._cables else {}

    def sent(self):
        """Return the bytes that have left each host since, without those that its TCP has sent again."""
        sent = {}
        carried = self._cables.carried() if self._cables else {}
        for name, now in carried.items():
            before = self._before[name]
            again = sum(count - before[3].get(connection, 0) for connection, count in now[3].items())
            sent[name] = now[1] - before[1] - again
        return sent


_cables = _Cables()


def _judge_cables(returned):
    """Return the sentence when no host has sent more than it must; raise `Wrong` otherwise."""
    expected = 2 * (_cables.hosts - 1) / _cables.hosts
    sent = _cables.sent()
    for name, count in sent.items():
        tensors = count / _BYTES_OVER_CABLES
        if tensors > expected * (1 + _HEADERS):
            raise Wrong(f"The sum is right. {tensors:.2f} tensors have left {name}, expected {expected:.2f}.")
    if not sent:
        return "Every rank holds the sum. (These hosts have no cables, so nobody has counted what leaves them.)"
    return f"Every rank holds the sum, and {expected:.2f} tensors have left each host."


@exercise(before=_cables.begin, together=_judge_cables)
def my_two_level_all_reduce(exam):
    """Check `my_two_level_all_reduce(tensor)`: the sum in place, with as few bytes out of each host as there can be.

    What leaves a host is counted at its cable, so any way will do. Hosts without cables have only the sum checked.
    """
    _require_sum(exam, exam.on_rank(_two_levels, exam.rank))


@exercise
def sharded_all_reduce(exam):
    """Check `sharded_all_reduce(tensor, inside, across)`: each rank brings one m-th of the tensor to other hosts.

    Counted is what a rank hands to collectives of groups with ranks of several hosts, and to messages to other hosts.
    """
    rank = exam.rank
    elements, ranks, size, handed = exam.on_rank(_sharded, rank)
    _require_sum(exam, elements)
    expected = size // ranks
    here = rank // ranks
    brought = sum(given for members, given in handed.items() if any(other // ranks != here for other in members))
    brought += sum(message.bytes for message in exam.messages if message.sent and message.peer // ranks != here)
    exam.require(
        brought == expected,
        f"The sum is right. Rank {rank} brought {brought} bytes to ranks of other hosts, expected {expected}: one of "
        f"{ranks} shards of {size} bytes.",
    )
    return f"Every rank holds the sum, and each has brought {expected} bytes to the other hosts."


@exercise
def best_order(exam):
    """Check `best_order(hosts)`: an order of the ranks in which a ring goes from host to host as rarely as it can."""
    for hosts in _LAYOUTS:
        result = exam.call(list(hosts))
        order = _ranks(result)
        case = f"For ranks on the hosts {hosts} rank {exam.rank} returned {show(result) if order is None else order}"
        if exam.require(
            order is not None and sorted(order) == list(range(len(hosts))),
            f"{case}, expected a list of the {len(hosts)} ranks, each of them once.",
        ):
            crossings, fewest = _crossings(hosts, order), len(set(hosts)) if len(set(hosts)) > 1 else 0
            exam.require(
                crossings <= fewest,
                f"{case}. That ring goes from host to host {crossings} times, and {fewest} times will do.",
            )
    return "No ring goes from host to host more often than there are hosts."


@exercise
def two_levels_pay(exam):
    """Check `two_levels_pay(h, m, size, inside, across)`: whether an all-reduce in two levels beats one ring."""
    for cluster in _CLUSTERS:
        h, m, size, inside, across = cluster
        ring, levels = _times(*cluster)
        result = exam.call(*cluster)
        choice = result.tolist() if hasattr(result, "tolist") else result
        known = isinstance(choice, int | float) and choice in (True, False)
        if exam.require(known, f"Rank {exam.rank} returned {show(result)}, expected True or False."):
            exam.require(
                bool(choice) == (levels < ring),
                f"For {h} hosts of {m} ranks, {size / 2**20:g} MiB, {_link(inside)} inside and {_link(across)} across "
                f"rank {exam.rank} returned {bool(choice)}, and one ring takes {1e3 * ring:.3g} ms, two levels "
                f"{1e3 * levels:.3g} ms.",
            )
    return f"Every rank chose the faster way for each of {len(_CLUSTERS)} clusters."


def _two_levels(rank):
    """Return the different elements of the tensor after the answer. It is too large to be sent here over a cable."""
    tensor = torch.full((_BYTES_OVER_CABLES // 4,), rank + 1.0)
    answer("my_two_level_all_reduce", [tensor])
    return tensor.unique().tolist()


def _sharded(rank):
    """Call the answer with groups of the mesh.

    Returns the different elements of the tensor, the ranks of a host, the tensor's bytes, and those that this rank has
    handed to the collectives of each group.
    """
    groups = [vars(learners_module()).get(name) for name in ("inside", "across")]
    if None in groups:
        raise AnswerError("NameError: there are no groups `inside` and `across`: run the setup cell.")
    ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    tensor = torch.full((_BYTES // (4 * ranks) * ranks,), rank + 1.0)
    with by_group() as handed:
        answer("sharded_all_reduce", [tensor, *groups])
    return tensor.unique().tolist(), ranks, tensor.nbytes, dict(handed)


def _require_sum(exam, elements):
    expected = exam.n * (exam.n + 1) / 2
    shown = " and ".join(f"{element:g}" for element in elements[:_SHOWN_AT_MOST])
    more = " and others" if len(elements) > _SHOWN_AT_MOST else ""
    exam.require(elements == [expected], f"Rank {exam.rank} holds {shown}{more}, expected {expected:g} everywhere.")


def _ranks(result):
    """Return an order as a list of whole numbers, None where it is something else."""
    try:
        return [operator.index(rank) for rank in result]
    except TypeError:
        return None


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
