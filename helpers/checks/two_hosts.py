"""Exercises of 35_two_hosts: all-reduces that send few bytes between hosts, and the choice between ring and levels."""

import operator
import os

import torch

from helpers.checks.exam import AnswerError, Wrong, answer, exercise, show
from helpers.checks.learner import learners_module
from helpers.measure.traffic import by_group

_BYTES = 2**20
# Large, because a cable also carries the check's own messages.
_BYTES_OVER_CABLES = 2**22
_HEADERS = 0.05  # the fraction of a cable's bytes that headers and the check's own messages may take
_SHOWN_AT_MOST = 4  # distinct elements of a tensor
# The host of each rank, in the order of the ranks.
_LAYOUTS = ([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 0, 1, 2], [2, 0, 0, 1, 2, 2, 1], [0, 0, 0], [0, 1, 2, 3])
# Hosts, ranks on each, bytes, then (α in s, β in s/byte) inside a host and between hosts.
_CLUSTERS = (
    (2, 2, 2**22, (3e-5, 5e-10), (5e-5, 4e-8)),
    (2, 8, 2**26, (1e-5, 1e-9), (1e-5, 1e-9)),
    (16, 8, 2**12, (1e-5, 1e-9), (1e-5, 1e-9)),
    (128, 8, 2**30, (5e-6, 2.2e-12), (5e-6, 2e-11)),
    (8, 4, 2**28, (5e-6, 5e-10), (5e-6, 8e-10)),
)


class _Cables:
    """The cables of a world's hosts, and the bytes each carried before the answer ran; used by the judging process."""

    def begin(self, world):
        self.hosts = len(world.hosts)
        self._cables = world.cables if world.has_cables else None
        self._before = self._cables.carried() if self._cables else {}

    def sent(self):
        """Return the bytes that left each host since `begin`, without retransmitted bytes."""
        sent = {}
        carried = self._cables.carried() if self._cables else {}
        for name, now in carried.items():
            before = self._before[name]
            again = sum(count - before[3].get(connection, 0) for connection, count in now[3].items())
            sent[name] = now[1] - before[1] - again
        return sent


_cables = _Cables()


def _judge_cables(returned):
    """Return the sentence of success, or raise `Wrong` if a host sent more bytes than necessary."""
    expected = 2 * (_cables.hosts - 1) / _cables.hosts
    sent = _cables.sent()
    for name, count in sent.items():
        tensors = count / _BYTES_OVER_CABLES
        if tensors > expected * (1 + _HEADERS):
            raise Wrong(f"The sum is right. {tensors:.2f} tensors left {name}, expected {expected:.2f}.")
    if not sent:
        return "Every rank holds the sum. (Without cables the check cannot count the bytes that leave a host.)"
    return f"Every rank holds the sum, and {expected:.2f} tensors left each host."


@exercise(before=_cables.begin, together=_judge_cables)
def my_two_level_all_reduce(exam):
    """Check `my_two_level_all_reduce(tensor)`: the sum in place, with the fewest bytes out of each host.

    The bytes are counted on the cable of each host, so any implementation can pass. Without cables the check compares
    only the sum.
    """
    _require_sum(exam, exam.on_rank(_two_levels, exam.rank))


@exercise
def sharded_all_reduce(exam):
    """Check `sharded_all_reduce(tensor, inside, across)`: each rank sends one m-th of the tensor to other hosts.

    It counts the bytes that a rank passes to collectives of groups that span hosts, and to messages to other hosts.
    """
    rank = exam.rank
    elements, ranks, size, handed = exam.on_rank(_sharded, rank)
    _require_sum(exam, elements)
    expected = size // ranks
    here = rank // ranks
    sent = sum(given for members, given in handed.items() if any(other // ranks != here for other in members))
    sent += sum(message.bytes for message in exam.messages if message.sent and message.peer // ranks != here)
    exam.require(
        sent == expected,
        f"The sum is right. Rank {rank} sent {sent} bytes to ranks on other hosts, expected {expected}: one of "
        f"{ranks} shards of {size} bytes.",
    )
    return f"Every rank holds the sum, and each rank sent {expected} bytes to other hosts."


@exercise
def best_order(exam):
    """Check `best_order(hosts)`: an order of the ranks in which a ring crosses between hosts as rarely as possible."""
    for hosts in _LAYOUTS:
        result = exam.call(list(hosts))
        order = _ranks(result)
        case = f"For ranks on the hosts {hosts}, rank {exam.rank} returned {show(result) if order is None else order}"
        if exam.require(
            order is not None and sorted(order) == list(range(len(hosts))),
            f"{case}, expected a list with each of the {len(hosts)} ranks once.",
        ):
            crossings, fewest = _crossings(hosts, order), len(set(hosts)) if len(set(hosts)) > 1 else 0
            exam.require(
                crossings <= fewest,
                f"{case}. That ring crosses between hosts {crossings} times, expected {fewest} times.",
            )
    return "No ring crosses between hosts more often than necessary."


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
                f"For {h} hosts of {m} ranks, {size / 2**20:g} MiB, {_link(inside)} inside and {_link(across)} across, "
                f"rank {exam.rank} returned {bool(choice)}, expected {not choice}: one ring takes {1e3 * ring:.3g} ms, "
                f"two levels take {1e3 * levels:.3g} ms.",
            )
    return f"Every rank chose the faster implementation for each of {len(_CLUSTERS)} clusters."


def _two_levels(rank):
    """Return the distinct elements of the tensor after the answer; the tensor itself would load the cable."""
    tensor = torch.full((_BYTES_OVER_CABLES // 4,), rank + 1.0)
    answer("my_two_level_all_reduce", [tensor])
    return tensor.unique().tolist()


def _sharded(rank):
    """Call the answer with the groups of the mesh.

    Return the distinct elements of the tensor, the ranks on a host, the tensor's bytes, and the bytes that this rank
    passed to the collectives of each group.
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
    """Return an order as a list of integers, or None if it is something else."""
    try:
        return [operator.index(rank) for rank in result]
    except TypeError:
        return None


def _crossings(hosts, order):
    return sum(hosts[order[place - 1]] != hosts[order[place]] for place in range(len(order)))


def _times(h, m, size, inside, across):
    """Return the predicted seconds of one ring and of two levels."""
    n = h * m
    ring = 2 * (n - 1) * (across[0] + size / n * across[1])
    within = 2 * (m - 1) * (inside[0] + size / m * inside[1])
    return ring, within + 2 * (h - 1) * (across[0] + size / h * across[1])


def _link(link):
    return f"α = {1e6 * link[0]:g} µs and β = {1e9 * link[1]:.3g} ns per byte"
