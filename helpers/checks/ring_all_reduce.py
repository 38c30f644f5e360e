"""Checks of the exercises of notebooks 05 and 06."""

import operator
import os

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_NUMBERS = 4  # in a chunk
_CHUNK_BYTES = 4 * _NUMBERS


def reduce_scatter(world) -> Verdict:
    """Check `reduce_scatter(tensor)`, which returns on rank r chunk r of the sum over all ranks.

    The tensor has a chunk for each rank, and each rank sends n - 1 chunks.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            _require_numbers(rank, run.result, _sum(world.size)[rank * _NUMBERS :][:_NUMBERS])
        steps = world.size - 1
        _require_sent(runs, steps * _CHUNK_BYTES, steps, "a reduce-scatter")
        return f"Rank r holds chunk r of the sum, and every rank sent {steps * _CHUNK_BYTES} bytes."

    return judge(world, "reduce_scatter", check, _run_and_return, "reduce_scatter", world.size)


def two_way_ring(world) -> Verdict:
    """Check `two_way_ring(tensor)`, an all-reduce in place: one half travels to the right, one to the left, at once.

    Each rank sends half of what a ring in one direction sends to each neighbour, in 2(n - 1) steps.
    """

    def check(runs):
        steps = 2 * (world.size - 1)
        for rank, run in enumerate(runs):
            _require_numbers(rank, run.result, _sum(world.size))
        _require_sent(runs, steps * _CHUNK_BYTES, 2 * steps, "a ring in both directions")
        for rank, run in enumerate(runs):
            _require_both_ways_at_once(rank, run.messages, world.size)
        halves = steps * _CHUNK_BYTES // 2
        return f"Every rank holds the sum, and sent {halves} bytes each way, both ways at once."

    return judge(world, "two_way_ring", check, _run_in_place, "two_way_ring", world.size)


def my_ring(world) -> Verdict:
    """Check `my_ring(tensor)`: an all-reduce in place, a reduce-scatter of n - 1 steps and an all-gather of as many.

    Each rank sends one chunk a step. If the sum is wrong, the reduce-scatter is judged first, then the all-gather. If
    it is right, tensors follow whose length is no multiple of n.
    """
    steps = world.size - 1

    def check(runs):
        for rank, run in enumerate(runs):
            if run.result["numbers"] != _sum(world.size):
                _require_halves(runs, rank)
        _require_sent(runs, 2 * steps * _CHUNK_BYTES, 2 * steps, "the ring")
        for rank, run in enumerate(runs):
            for numbers, expected in run.result["others"]:
                if numbers != expected:
                    raise Wrong(
                        f"The sum of {world.size * _NUMBERS} elements is right. Of {_count(len(expected), 'element')}, "
                        f"in unequal chunks, rank {rank} holds {numbers}, expected {expected}."
                    )
        return "Every rank holds the sum, and every rank sent one chunk a step."

    return judge(world, "my_ring", check, _run_ring, world.size)


def _require_halves(runs, rank):
    """Raise `Wrong` for the reduce-scatter, or for the all-gather of a rank if every reduce-scatter is right."""
    size = len(runs)
    expected = _chunks(_sum(size))
    for other, run in enumerate(runs):
        received = [message for message in run.messages if not message.sent]
        if len(received) < size - 1:
            raise Wrong(
                f"Rank {other} received {_count(len(received), 'message')}, expected one in each of {size - 1} steps "
                "of the reduce-scatter."
            )
        half = [*received, None][size - 1]
        chunks = _chunks(half.seen if half else run.result["numbers"])
        if not any(map(operator.eq, chunks, expected)):
            raise Wrong(
                f"After {_count(size - 1, 'step')} rank {other} holds {chunks}, expected one chunk of the sum: one of "
                f"{expected}."
            )
    for chunk, numbers in enumerate(_chunks(runs[rank].result["numbers"])):
        if numbers != expected[chunk]:
            raise Wrong(
                "The reduce-scatter is right: each rank finishes one chunk. After the all-gather rank "
                f"{rank} holds {numbers} in chunk {chunk}, expected {expected[chunk]}."
            )


def _chunks(numbers):
    return [numbers[first : first + _NUMBERS] for first in range(0, len(numbers), _NUMBERS)]


def halving_doubling(world) -> Verdict:
    """Check `halving_doubling(tensor, m)`, an all-reduce in place over the first m ranks.

    Each of them sends 2 log2 m messages, and no more bytes than in a ring. m is the largest power of two that is not
    above the number of ranks; the other ranks do not call the function.
    """
    m = _largest_power_of_two(world.size)

    def check(runs):
        for rank, run in enumerate(runs[:m]):
            _require_numbers(rank, run.result, _sum(m))
        rounds = 2 * (m.bit_length() - 1)
        _require_sent(runs[:m], 2 * (m - 1) * _CHUNK_BYTES, rounds, "halving-doubling")
        return f"Ranks 0 to {m - 1} hold the sum of them all, after {_count(rounds, 'message')} from each."

    return judge(world, "halving_doubling", check, _run_in_place, "halving_doubling", m, m)


def _largest_power_of_two(size):
    return 1 << (size.bit_length() - 1)


def _sum(size):
    """Return the expected sum over `size` ranks."""
    return [(place + 1.0) * size * (size + 1) / 2 for place in range(size * _NUMBERS)]


def _require_numbers(rank, numbers, target):
    if not isinstance(numbers, list):
        raise Wrong(f"Rank {rank} returned {numbers}, expected a tensor of {len(target)} elements.")
    if len(numbers) != len(target):
        raise Wrong(f"Rank {rank} holds {len(numbers)} elements, expected {len(target)}.")
    for first in range(0, len(target), _NUMBERS):
        chunk = slice(first, first + _NUMBERS)
        if numbers[chunk] != target[chunk]:
            place = f" in chunk {first // _NUMBERS}" if len(target) > _NUMBERS else ""
            raise Wrong(f"Rank {rank} holds {numbers[chunk]}{place}, expected {target[chunk]}.")


def _require_sent(runs, size, messages, who):
    """Require that each rank sent `size` bytes in `messages` messages."""
    for rank, run in enumerate(runs):
        sent = [message.bytes for message in run.messages if message.sent]
        for number, target, unit in ((sum(sent), size, "byte"), (len(sent), messages, "message")):
            if number != target:
                excess = f"{number - target} too many" if number > target else f"{target - number} too few"
                raise Wrong(f"Rank {rank} sent {_count(number, unit)}, and {who} sends {target}: {excess}.")


def _require_both_ways_at_once(rank, messages, size):
    """Require that half of the messages goes to each neighbour, and no wait between the two that a step sends."""
    sent = [message for message in messages if message.sent]
    right, left = (rank + 1) % size, (rank - 1) % size
    if size == 2:  # both neighbours are one and the same rank
        ways = sent[0::2], sent[1::2]
    else:
        ways = [message for message in sent if message.peer == right], [m for m in sent if m.peer == left]
    for way, neighbour in zip(ways, (right, left), strict=True):
        size_of_half = sum(message.bytes for message in sent) // 2
        if sum(message.bytes for message in way) != size_of_half or len(way) != len(sent) // 2:
            to_it = sum(message.bytes for message in way)
            raise Wrong(f"Rank {rank} sent {to_it} bytes to rank {neighbour}, expected {size_of_half}.")
    for step, (one, other) in enumerate(zip(*ways, strict=True), start=1):
        first, last = sorted([one.posted, other.posted])
        if any(first < message.waited < last for message in messages if message.waited is not None):
            raise Wrong(f"Rank {rank} waited for one way before it sent the other, in step {step}. (dist.send waits.)")


def _run_and_return(function, size):
    run = call_answer(function, [_tensor(size)])
    return run._replace(result=_plain(run.result))


def _run_in_place(function, size, *arguments):
    tensor = _tensor(size)
    if int(os.environ["RANK"]) >= size:
        return Run(None, [], "")
    return call_answer(function, [tensor, *arguments])._replace(result=tensor.tolist())


def _tensor(size):
    """Return this rank's input, which has `size` chunks."""
    import torch

    return torch.arange(1.0, size * _NUMBERS + 1) * (int(os.environ["RANK"]) + 1)


def _plain(result):
    """Return a tensor as a list, and the type name of anything else."""
    if hasattr(result, "tolist"):
        return result.flatten().tolist()
    return "None" if result is None else f"a {type(result).__name__}"


def _count(number, thing):
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _run_ring(size):
    """Run the ring on a tensor that the messages watch, then on tensors of other lengths."""
    import torch

    tensor = _tensor(size)
    run = call_answer("my_ring", [tensor], watch=tensor)
    others = []
    for length in (1, size + 1):
        other = torch.arange(1.0, length + 1)
        expected = other * size * (size + 1) / 2
        other *= int(os.environ["RANK"]) + 1
        if not run.error:
            again = call_answer("my_ring", [other])
            run = again._replace(messages=run.messages) if not again.error else again
        others.append((other.tolist(), expected.tolist()))
    return run._replace(result={"numbers": tensor.tolist(), "others": others})
