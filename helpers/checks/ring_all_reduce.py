"""Exercises of 06_ring_all_reduce."""

import torch
import torch.distributed as dist

from helpers.checks.exam import Wrong, called, close, counted, errors_of_answer, exercise

_NUMBERS = 4  # the elements of a chunk
CHUNK_BYTES = 4 * _NUMBERS
_RANDOM_NUMBERS = 256


@exercise
def reduce_scatter(exam):
    """Check `reduce_scatter(tensor)`, which returns on rank r chunk r of the sum over all ranks.

    The tensor has a chunk for each rank, and each rank sends n - 1 chunks.
    """
    steps = exam.n - 1
    result = exam.call(new_tensor(exam.rank, exam.n))
    require_numbers(exam, result, expected_sum(exam.n)[exam.rank * _NUMBERS :][:_NUMBERS])
    require_sent(exam, steps * CHUNK_BYTES, steps, "a reduce-scatter")
    return f"Rank r holds chunk r of the sum, and every rank sent {steps * CHUNK_BYTES} bytes."


@exercise
def two_way_ring(exam):
    """Check `two_way_ring(tensor)`, an all-reduce in place: half of the tensor travels to the right, half to the left.

    In 2(n - 1) steps each rank sends to each neighbour half as many bytes as a ring in one direction sends, and it
    sends in both directions at the same time.
    """
    steps = 2 * (exam.n - 1)
    tensor = new_tensor(exam.rank, exam.n)
    exam.call(tensor)
    require_numbers(exam, tensor, expected_sum(exam.n))
    require_sent(exam, steps * CHUNK_BYTES, 2 * steps, "a ring in both directions")
    _require_both_ways_at_once(exam)
    halves = steps * CHUNK_BYTES // 2
    return f"Every rank holds the sum, and sent {halves} bytes in each direction, both at the same time."


def _judge_bits(returned):
    """Return the sentence of success if all ranks hold the same numbers, or raise `Wrong`."""
    for rank, numbers in enumerate(returned):
        for place, (found, of_rank_0) in enumerate(zip(numbers, returned[0], strict=True)):
            if found != of_rank_0:
                raise Wrong(
                    f"In element {place} rank 0 holds {of_rank_0!r} and rank {rank} holds {found!r}, expected the same "
                    "bits. In which order does each rank add the tensors?"
                )
    return "Every rank holds the same bits, and sent its tensor once to each other rank."


@exercise(together=_judge_bits)
def ordered_exchange(exam):
    """Check `ordered_exchange(tensor)`, an all-reduce in place after which all ranks hold the same bits.

    The numbers are random. Each rank sends its tensor once to each other rank.
    """
    rank, n = exam.rank, exam.n
    tensors = [torch.randn(_RANDOM_NUMBERS, generator=torch.Generator().manual_seed(other)) for other in range(n)]
    tensor = tensors[rank].clone()
    exam.call(tensor)
    exam.require(
        close(tensor, sum(tensors), within=1e-4),
        f"Rank {rank} holds {tensor[0]:.4f} in element 0, expected the sum, {sum(tensors)[0]:.4f}.",
    )
    require_sent(exam, (n - 1) * tensor.nbytes, n - 1, "an exchange of whole tensors")
    peers = sorted(message.peer for message in exam.messages if message.sent)
    others = [other for other in range(n) if other != rank]
    exam.require(peers == others, f"Rank {rank} sent its tensor to ranks {peers}, expected {others}.")
    exam.require(
        not exam.collectives,
        f"Rank {rank} called {called(exam.collectives)}, expected no collective. In which order does each rank add the "
        "tensors?",
    )
    return tensor.tolist()


def _judge_ring(returned):
    """Return the sentence of success if every rank called the ring with unequal chunks, or raise `Wrong`."""
    if not all(returned):
        raise Wrong("The check has not called `my_ring` with unequal chunks. Does your code change `dist.all_reduce`?")
    return "Every rank holds the sum, and every rank sent one chunk a step."


@exercise(together=_judge_ring)
def my_ring(exam):
    """Check `my_ring(tensor)`: an all-reduce in place, as a reduce-scatter and an all-gather of n - 1 steps each.

    Each rank sends one chunk a step. If the sum is wrong, the check judges the reduce-scatter first, then the
    all-gather. If all ranks are right, the check calls the function with tensors whose length is not a multiple of n.
    With unequal chunks a wrong ring may send a chunk that is longer than the receiver's buffer, and gloo then aborts
    the receiver.
    """
    rank, n = exam.rank, exam.n
    steps = n - 1
    tensor = new_tensor(rank, n)
    exam.call(tensor, watch=tensor)
    if tensor.tolist() != expected_sum(n):
        _require_halves(exam, tensor.tolist())
    require_sent(exam, 2 * steps * CHUNK_BYTES, 2 * steps, "the ring")
    if not exam.on_rank(_on_all_ranks, exam.fault is None):
        return False
    for length in (1, n + 1):
        numbers = torch.arange(1.0, length + 1)
        expected = (numbers * n * (n + 1) / 2).tolist()
        numbers *= rank + 1
        exam.call(numbers)
        exam.require(
            numbers.tolist() == expected,
            f"The sum of {n * _NUMBERS} elements is right. Of {counted(length, 'element')}, in unequal chunks, rank "
            f"{rank} holds {numbers.tolist()}, expected {expected}.",
        )
    return True


def _on_all_ranks(holds):
    """Return whether `holds` is true on all ranks."""
    with errors_of_answer():
        all_hold = torch.tensor(int(holds))
        dist.all_reduce(all_hold, dist.ReduceOp.MIN)
        return bool(all_hold)


def new_tensor(rank, n):
    """Return a rank's input, which has n chunks."""
    return torch.arange(1.0, n * _NUMBERS + 1) * (rank + 1)


def expected_sum(n):
    """Return the expected sum over n ranks."""
    return [(place + 1.0) * n * (n + 1) / 2 for place in range(n * _NUMBERS)]


def _require_halves(exam, numbers):
    """Refuse the reduce-scatter if it is wrong on this rank, otherwise the all-gather."""
    rank, n = exam.rank, exam.n
    expected = _chunks(expected_sum(n))
    received = [message for message in exam.messages if not message.sent]
    exam.require(
        len(received) >= n - 1,
        f"Rank {rank} received {counted(len(received), 'message')}, expected one in each of {n - 1} steps of the "
        "reduce-scatter.",
    )
    half = received[n - 1].seen if len(received) > n - 1 else numbers
    exam.require(
        any(chunk == right for chunk, right in zip(_chunks(half), expected, strict=False)),
        f"After {counted(n - 1, 'step')} rank {rank} holds {_chunks(half)}, expected one chunk of the sum: one of "
        f"{expected}.",
    )
    for chunk, (found, right) in enumerate(zip(_chunks(numbers), expected, strict=False)):
        exam.require(
            found == right,
            "The reduce-scatter is right: each rank finishes one chunk. After the all-gather rank "
            f"{rank} holds {found} in chunk {chunk}, expected {right}.",
        )


def _chunks(numbers):
    return [numbers[first : first + _NUMBERS] for first in range(0, len(numbers), _NUMBERS)]


def require_numbers(exam, result, expected):
    """Require the expected elements, and name the first chunk that differs."""
    rank = exam.rank
    numbers = result.flatten().tolist() if hasattr(result, "tolist") else None
    if numbers is None:
        exam.refuse(f"Rank {rank} returned {result}, expected a tensor of {len(expected)} elements.")
    elif len(numbers) != len(expected):
        exam.refuse(f"Rank {rank} holds {len(numbers)} elements, expected {len(expected)}.")
    else:
        for chunk, (found, right) in enumerate(zip(_chunks(numbers), _chunks(expected), strict=True)):
            if found != right:
                place = f" in chunk {chunk}" if len(expected) > _NUMBERS else ""
                exam.refuse(f"Rank {rank} holds {found}{place}, expected {right}.")
                break


def require_sent(exam, size, messages, algorithm):
    """Require that the rank sent `size` bytes in `messages` messages."""
    sent = [message.bytes for message in exam.messages if message.sent]
    for number, expected, unit in ((sum(sent), size, "byte"), (len(sent), messages, "message")):
        exam.require(
            number == expected, f"Rank {exam.rank} sent {counted(number, unit)}, expected {expected} for {algorithm}."
        )


def _require_both_ways_at_once(exam):
    """Require that each neighbour gets half of the messages, and that each step posts both sends before it waits."""
    rank, n, sent = exam.rank, exam.n, [message for message in exam.messages if message.sent]
    right, left = (rank + 1) % n, (rank - 1) % n
    if n == 2:  # both neighbours are the same rank
        ways = sent[0::2], sent[1::2]
    else:
        ways = tuple([message for message in sent if message.peer == peer] for peer in (right, left))
    size_of_half = sum(message.bytes for message in sent) // 2
    for way, neighbour in zip(ways, (right, left), strict=True):
        to_it = sum(message.bytes for message in way)
        exam.require(
            to_it == size_of_half and len(way) == len(sent) // 2,
            f"Rank {rank} sent {to_it} bytes to rank {neighbour}, expected {size_of_half}.",
        )
    for step, (one, other) in enumerate(zip(*ways, strict=False), start=1):
        first, last = sorted([one.posted, other.posted])
        exam.require(
            not any(first < message.waited < last for message in exam.messages if message.waited is not None),
            f"In step {step} rank {rank} waited for one send before it posted the other, expected both sends to be "
            "posted first: `dist.send` blocks.",
        )
