"""Exercises of 03_point_to_point."""

import os
import time

import torch

from helpers.checks.exam import Wrong, answer, counted, exercise, number, show

_NUMBERS = 16  # elements in the tensor of each rank; each element is rank + 1
_BYTES = 4 * _NUMBERS


@exercise
def ring_shift(exam):
    """Check `ring_shift(tensor)`, which returns the tensor of the left neighbour, with one message from each rank."""
    tensor = _tensor(exam.rank)
    result = exam.call(tensor)
    _require_tensor(exam, result, _left(exam) + 1.0)
    _require_sent(exam, 1)
    _require_kept(exam, tensor)
    return f"Every rank returned its left neighbour's tensor, and sent {_BYTES} bytes."


@exercise
def my_swap(exam):
    """Check `my_swap(mine, received)`: ranks 0 and 1 exchange tensors, by one message from each."""
    if exam.rank < 2:
        mine, received = _tensor(exam.rank), torch.zeros(_NUMBERS)
        exam.call(mine, received)
        _require_tensor(exam, received, 2.0 - exam.rank)
        _require_sent(exam, 1)
        _require_kept(exam, mine)
    return "Each of the two ranks received the tensor of the other rank, without a deadlock."


@exercise
def gather(exam):
    """Check `gather(tensor)`, which returns the tensors of all ranks in order on rank 0, and None on other ranks."""
    rank, n = exam.rank, exam.n
    exam.on_rank(time.sleep, 0.15 * (n - rank))  # so that the message of the last rank arrives first
    result = exam.call(_tensor(rank))
    if rank > 0:
        exam.require(result is None, f"Rank {rank} returned {_show(result)}, expected None.")
    elif exam.require(
        isinstance(result, list | tuple) and len(result) == n,
        f"Rank {rank} returned {_show(result)}, expected a list of {n} tensors.",
    ):
        for source, tensor in enumerate(result):
            if not _is_full(tensor, source + 1.0):
                exam.refuse(
                    f"Rank {rank} returned {_show(tensor)} at index {source} of its list, expected {source + 1.0}."
                    + _what_to_try(result)
                )
                break
    _require_sent(exam, int(rank > 0))
    return f"Rank 0 returned the tensors of all ranks, after {counted(n - 1, 'message')}."


def _what_to_try(tensors):
    """Return a hint for a list that holds tensors of ranks, but in the wrong places."""
    if len(tensors) > 2 and any(all(_is_full(tensor, n + 1.0) for tensor in tensors[1:]) for n in range(len(tensors))):
        return " Receive each message into a tensor of its own."
    if all(any(_is_full(tensor, n + 1.0) for n in range(len(tensors))) for tensor in tensors):
        return " Put each tensor at the index of its sender."
    return ""


def _judge_tree(receivers):
    """Judge the tree; `receivers` lists the ranks to which each rank sent its messages, in order."""
    n = len(receivers)
    sent = sum(map(len, receivers))
    if sent != n - 1:
        raise Wrong(f"The ranks sent {counted(sent, 'message')}, expected {n - 1}.")
    round_of = _rounds(receivers)
    for rank in range(n):
        if rank not in round_of:
            raise Wrong(f"No message from rank 0 reached rank {rank}, either directly or through other ranks.")
    rounds, expected = max(round_of.values()), (n - 1).bit_length()
    if rounds > expected:
        late = max(round_of, key=round_of.get)
        raise Wrong(f"Rank {late} received the tensor in round {rounds}, expected round {expected} at the latest.")
    return f"Every rank returned the tensor of rank 0, after {counted(sent, 'message')} in {counted(rounds, 'round')}."


@exercise(together=_judge_tree)
def tree_broadcast(exam):
    """Check `tree_broadcast(tensor)`, which returns the tensor of rank 0 on every rank, after ceil(log2 n) rounds.

    A rank sends at most one message in a round, and its first message in the round after it received the tensor.
    """
    result = exam.call(_tensor(exam.rank))
    _require_tensor(exam, result, 1.0)
    return [message.peer for message in exam.messages if message.sent]


@exercise
def overlap(exam):
    """Check `overlap(tensor, compute)`: a ring shift, and a computation while its messages are under way.

    The function returns the result of `compute()` and the tensor of the left neighbour.
    """
    rank, tensor = exam.rank, _tensor(exam.rank)
    result, computed = exam.on_rank(_overlap, tensor)
    if exam.require(
        isinstance(result, list | tuple) and len(result) == 2,
        f"Rank {rank} returned {_show(result)}, expected a number and a tensor.",
    ):
        first = number(result[0])
        expected = f"expected {rank + 1.0}, the result of `compute()`"
        exam.require(first is not None, f"Rank {rank} returned {show(result[0])} first, {expected}.")
        exam.require(first == rank + 1, f"Rank {rank} returned {show(first)} first, {expected}.")
        _require_tensor(exam, result[1], _left(exam) + 1.0)
    _require_sent(exam, 1)
    _require_kept(exam, tensor)
    if exam.require(
        len(computed) == 1, f"Rank {rank} called `compute()` {counted(len(computed), 'time')}, expected once."
    ):
        for message in exam.messages:
            _require_overlap(exam, message, *computed[0])
    return "Every rank computed while its messages were under way."


def _require_overlap(exam, message, begin, end):
    name = "send" if message.sent else "receive"
    exam.require(
        message.posted <= begin,
        f"Rank {exam.rank} began the computation before it posted its {name}, expected the {name} first.",
    )
    exam.require(
        message.waited is not None and message.waited >= end,
        f"Rank {exam.rank} waited for its {name} before the computation ended, expected the wait afterwards.",
    )


def _overlap(tensor):
    """Return the result of `overlap`, and when each computation began and ended."""
    computed = []

    def compute():
        begin = time.monotonic()
        product = torch.full((500, 500), int(os.environ["RANK"]) + 1.0) @ torch.eye(500)
        computed.append((begin, time.monotonic()))
        return product[0, 0].item()

    return answer("overlap", [tensor, compute]), computed


def _tensor(rank):
    """Return the tensor with which a rank calls the answer."""
    return torch.full((_NUMBERS,), rank + 1.0)


def _left(exam):
    return (exam.rank - 1) % exam.n


def _is_full(tensor, expected):
    """Return whether a result is a tensor of the expected size whose elements all equal `expected`."""
    return list(getattr(tensor, "shape", ())) == [_NUMBERS] and set(tensor.tolist()) == {expected}


def _require_tensor(exam, tensor, expected):
    exam.require(_is_full(tensor, expected), f"Rank {exam.rank} holds {_show(tensor)}, expected {expected}.")


def _require_sent(exam, messages):
    """Require that the rank sent this many messages, each with one tensor."""
    sent = [message.bytes for message in exam.messages if message.sent]
    expected = messages * _BYTES
    exam.require(sum(sent) == expected, f"Rank {exam.rank} sent {sum(sent)} bytes, expected {expected}.")
    exam.require(len(sent) == messages, f"Rank {exam.rank} sent {counted(len(sent), 'message')}, expected {messages}.")


def _require_kept(exam, tensor):
    """Require that the tensor that the rank sends still has its elements."""
    exam.require(
        _is_full(tensor, exam.rank + 1.0),
        f"The result is right. Rank {exam.rank}'s own tensor now holds {_show(tensor)}, expected {exam.rank + 1.0}: "
        "receive into another tensor, because a send may still be reading this one.",
    )


def _rounds(receivers):
    """Map each rank that a message from rank 0 reached, directly or through others, to the round of its arrival."""
    round_of = {0: 0}
    senders = [0]
    for sender in senders:
        for rounds, receiver in enumerate(receivers[sender], start=1):
            if receiver not in round_of:
                round_of[receiver] = round_of[sender] + rounds
                senders.append(receiver)
    return round_of


def _show(result):
    """Describe the result of an answer in a few words, and a tensor of the expected size by its elements."""
    if list(getattr(result, "shape", ())) != [_NUMBERS]:
        return show(result)
    numbers = result.tolist()
    return str(numbers[0] if len(set(numbers)) == 1 else numbers)
