"""Exercises of 38_two_hosts: the messages of a failed rendezvous, and all-reduces that send few bytes between hosts."""

import os

import torch

from helpers.checks.exam import AnswerError, Wrong, answer, exercise
from helpers.checks.learner import learners_module
from helpers.measure.traffic import by_group

_RESTART = "Call fresh_ranks(), run the cell that makes the mesh and the cell with your answer, then this check again."
_BYTES = 2**20
# Large, because a cable also carries the check's own messages.
_BYTES_OVER_CABLES = 2**22
_HEADERS = 0.05  # the fraction of a cable's bytes that headers and the check's own messages may take
_PERIOD = 7  # of the elements; an odd number, so that the shards of a tensor differ
_MEANT = "10.0.0.11", 29500  # the address and the port of the first host
_OF_ANOTHER_JOB = "10.0.0.12", 29400
_TRIED = "The client socket has timed out after 30000ms while trying to connect to ({}, {})."
_JOINED = "Timed out after 31 seconds waiting for clients. {} clients joined."
_KEYS = "wait timeout after 30000ms, keys: /default_pg/2//cpu//0/0"
_REFUSED = "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, remote=[{}]:15245$0"
_CONNECT = "Gloo connectFullMesh failed with Connect timeout [none]"
# The messages of the first and the second host, the mistake, and the store that both hosts should have used.
_RUNS = (
    ("joined", "joined", "no mistake", _MEANT),
    (_JOINED.format("1/2"), _TRIED.format("10.0.0.12", 29500), "wrong address", _MEANT),
    (_JOINED.format("1/2"), _TRIED.format("10.0.0.11", 29400), "closed port", _MEANT),
    (_JOINED.format("2/3"), _KEYS, "wrong number of hosts", _MEANT),
    (_REFUSED.format("127.0.0.1"), _CONNECT, "wrong interface", _MEANT),
    (_CONNECT, _REFUSED.format("127.0.1.1"), "wrong interface", _MEANT),
    (_JOINED.format("1/2"), _TRIED.format(*_OF_ANOTHER_JOB), "unreachable", _OF_ANOTHER_JOB),
    (_JOINED.format("3/4"), _TRIED.format("10.0.0.110", 29500), "wrong address", _MEANT),
    (_JOINED.format("8/16"), _KEYS, "wrong number of hosts", _MEANT),
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


@exercise(before=_cables.begin, together=_judge_cables, restart=_RESTART)
def my_two_level_all_reduce(exam):
    """Check `my_two_level_all_reduce(tensor)`: the sum in place, with the fewest bytes out of each host.

    The bytes are counted on the cable of each host, so any implementation can pass. Without cables the check compares
    only the sum.
    """
    _require_sum(exam, exam.on_rank(_two_levels, exam.rank, exam.n))


@exercise(restart=_RESTART)
def diagnose(exam):
    """Check `diagnose(first, second, address, port)`: the mistake behind the messages of two hosts."""
    for first, second, mistake, (address, port) in _RUNS:
        result = exam.call(first, second, address, port)
        exam.require(
            result == mistake,
            f"For {first!r} on the first host, {second!r} on the second host, and the store at "
            f"{address}:{port}, rank {exam.rank} returned {result!r}, expected {mistake!r}.",
        )
    return f"Every rank named the mistake of {len(_RUNS)} runs."


@exercise(restart=_RESTART)
def sharded_all_reduce(exam):
    """Check `sharded_all_reduce(tensor, inside, across)`: each rank sends one m-th of the tensor to other hosts.

    It counts the bytes that a rank passes to collectives of groups that span hosts, and to messages to other hosts.
    """
    rank = exam.rank
    difference, ranks, size, handed = exam.on_rank(_sharded, rank, exam.n)
    _require_sum(exam, difference)
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


def _two_levels(rank, n):
    """Return the first difference from the sum after the answer; the tensor itself would load the cable."""
    pattern = _pattern(_BYTES_OVER_CABLES // 4)
    tensor = (rank + 1) * pattern
    answer("my_two_level_all_reduce", [tensor])
    return _first_difference(tensor, pattern * n * (n + 1) / 2)


def _sharded(rank, n):
    """Call the answer with the groups of the mesh.

    Return the first difference from the sum, the ranks on a host, the tensor's bytes, and the bytes that this rank
    passed to the collectives of each group.
    """
    groups = [vars(learners_module()).get(name) for name in ("inside", "across")]
    if None in groups:
        raise AnswerError("NameError: there are no groups `inside` and `across`: run the setup cell.")
    ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    pattern = _pattern(_BYTES // (4 * ranks) * ranks)
    tensor = (rank + 1) * pattern
    with by_group() as handed:
        answer("sharded_all_reduce", [tensor, *groups])
    return _first_difference(tensor, pattern * n * (n + 1) / 2), ranks, tensor.nbytes, dict(handed)


def _pattern(length):
    """Return a tensor of small whole numbers, in which each shard differs from the others."""
    return torch.arange(length) % _PERIOD + 1.0


def _first_difference(tensor, expected):
    """Return what the tensor holds at the first index where it is not as expected, and what it should hold there.

    If there is no such index, return None.
    """
    if tensor.shape != expected.shape:
        return f"a tensor of shape {tuple(tensor.shape)}", f"{tuple(expected.shape)}"
    indices = (tensor != expected).nonzero()
    if not len(indices):
        return None
    index = indices[0].item()
    return f"{tensor[index].item():g} at index {index}", f"{expected[index].item():g}"


def _require_sum(exam, difference):
    held, expected = difference or ("the sum", "the sum")
    exam.require(difference is None, f"Rank {exam.rank} holds {held}, expected {expected}.")
