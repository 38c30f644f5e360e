"""Exercises of 07_a_backend_of_your_own: on sockets that count bytes, and notice reads from a closed connection."""

import os
import socket
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions, ReduceScatterOptions

from helpers.checks.exam import AnswerError, Wrong, answer, errors_of_answer, exercise, missing, show
from helpers.checks.judging import RESTART

_SECONDS = 5  # of the sockets; nobody else is on the ranks while a check runs
_LARGE = 2**25  # bytes, more than the buffers of a connection take
_NUMBERS = 4  # in a part of a reduce-scatter
_STEPS = 3  # of the sharded optimizer
_ENDED = "the connection has ended"


class Sharded(NamedTuple):
    """What came of a reduce-scatter, and of a sharded optimizer.

    `output` is the result of the reduce-scatter, `sent` the bytes that it sent, `changed` whether it has changed its
    inputs, and `trained` the parameters in the end.
    """

    output: list[float]
    sent: int
    changed: bool
    trained: list[float]


def _judge_exchange(returned):
    """Name the first stage that failed; where one rank failed first, other ranks have errors that follow from that."""
    failures = [
        (number, "Connection" in error or "Pipe" in error, not error.startswith("TimeoutError"), rank, stage, error)
        for rank, errors in enumerate(returned)
        for number, (stage, error) in enumerate(errors)
        if error
    ]
    if failures:
        *_, rank, stage, error = min(failures)
        stuck = " It was stuck: who sends has to receive meanwhile." if error.startswith("TimeoutError") else ""
        raise Wrong(f"{stage}: on rank {rank} {error}.{stuck}")
    return "4 bytes and 32 MiB went round the ring, and nothing at all, and the end of a connection was noticed."


@exercise(together=_judge_exchange)
def my_exchange(exam):
    """Check `my_exchange(right, left, outgoing, incoming)`: it sends and receives at once, whatever the two lengths.

    When the left neighbour has closed the connection it raises ConnectionError.
    """
    return exam.on_rank(_exchange, exam.rank, exam.n)


@exercise
def Sharding(exam):
    """Check the class `Sharding`: its `reduce_scatter` is right and sends n - 1 parts, and a sharded optimizer runs."""
    rank, n = exam.rank, exam.n
    output, sent, changed, trained = exam.on_rank(_shard, rank, n)
    exam.require(not changed, f"Rank {rank} has changed `inputs`, which have to stay as they were.")
    expected = [(rank * _NUMBERS + place) * n * (n + 1) / 2 for place in range(_NUMBERS)]
    exam.require(output == expected, f"Rank {rank} holds {output}, expected {expected}.")
    size = 4 * _NUMBERS * (n - 1)
    exam.require(sent == size, _other_bytes(rank, sent, size, "a reduce-scatter"))
    expected = _trained(n)
    exam.require(trained == expected, f"Rank {rank} has trained to {trained}, expected {expected}.")
    return f"Every rank sent {size} bytes, and sharded momentum trains as one process does."


def _judge_compressing(returned):
    n = len(returned)
    first, _ = returned[0]
    for rank, (numbers, _) in enumerate(returned):
        differ = [place for place, (mine, other) in enumerate(zip(numbers, first, strict=True)) if mine != other]
        if differ:
            raise Wrong(f"Ranks 0 and {rank} hold different bits in place {differ[0]}: replicas would drift apart.")
    size = 2 * 2 * (n - 1) * _NUMBERS
    for rank, (_, sent) in enumerate(returned):
        if sent != size:
            raise Wrong(_other_bytes(rank, sent, size, "the ring in bfloat16"))
    return f"All ranks hold the same sum, and each sent {size} bytes, half of the ring's."


@exercise(together=_judge_compressing)
def Compressing(exam):
    """Check the class `Compressing`: its `allreduce` sends half of the bytes, and all ranks hold the same sum."""
    rank, n = exam.rank, exam.n
    tensor, sent = exam.on_rank(_compress, rank, n)
    exam.require(tensor.dtype == torch.float32, f"Rank {rank} holds {tensor.dtype}, expected torch.float32.")
    numbers, inputs = tensor.flatten().tolist(), torch.stack([_brought(other, n) for other in range(n)]).double()
    if exam.require(
        len(numbers) == n * _NUMBERS, f"Rank {rank} holds {show(tensor)}, expected {n * _NUMBERS} elements."
    ):
        sums, magnitudes = inputs.sum(0).tolist(), inputs.abs().sum(0).tolist()
        for place, (found, expected, magnitude) in enumerate(zip(numbers, sums, magnitudes, strict=True)):
            exam.require(
                abs(found - expected) <= n * magnitude / 256,
                f"Rank {rank} holds {found:.4g} in place {place}, expected the sum {expected:.4g}.",
            )
    return numbers, sent


def _other_bytes(rank, sent, size, who):
    excess = f"{sent - size} too many" if sent > size else f"{size - sent} too few"
    return f"The numbers are right. Rank {rank} sent {sent} bytes, and {who} sends {size}: {excess}."


def _trained(size):
    """Return the parameters that one process has after training with momentum."""
    parameters, momentum = [0.0] * (size * _NUMBERS), [0.0] * (size * _NUMBERS)
    for step in range(_STEPS):
        for place in range(size * _NUMBERS):
            momentum[place] = momentum[place] / 2 + (place + step) * size * (size + 1) / 2
            parameters[place] -= momentum[place] / 2
    return parameters


def _brought(rank, n):
    """Return what a rank brings to the all-reduce of `Compressing`."""
    numbers = torch.randn(_NUMBERS * n, generator=torch.Generator().manual_seed(rank))
    numbers[::_NUMBERS] *= 1e6  # float16 ends at 65504
    return numbers


# What follows runs beside the learner's code.


class _Watched(socket.socket):
    """A socket that counts what it sends, and raises an error when somebody reads on and on after the end."""

    sent, ends = 0, 0

    @classmethod
    def of(cls, plain):
        watched = cls(fileno=plain.detach())
        watched.settimeout(_SECONDS)
        return watched

    def send(self, data, *flags):
        number = super().send(data, *flags)
        self.sent += number
        return number

    def sendall(self, data, *flags):
        super().sendall(data, *flags)
        self.sent += memoryview(data).nbytes

    def recv(self, number, *flags):
        received = super().recv(number, *flags)
        self._note_end(number and not received)
        return received

    def recv_into(self, buffer, *arguments):
        number = super().recv_into(buffer, *arguments)
        self._note_end(memoryview(buffer).nbytes and not number)
        return number

    def _note_end(self, ended):
        self.ends += bool(ended)
        if self.ends > 20:
            raise RuntimeError(f"{_ENDED}, and my_exchange goes on receiving from it")


_attempts = count()  # the same on every rank, because every rank takes part in every attempt


def _store():
    """Return a store for this attempt."""
    store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=_SECONDS)))
    return dist.PrefixStore(f"attempt {next(_attempts)} of a check", store)


def _connected(rank, size):
    """Return sockets to the right neighbour and from the left one, as the lesson's `connect` does."""
    address, store = os.environ["MASTER_ADDR"], _store()
    with socket.create_server((address, 0)) as server:
        server.settimeout(_SECONDS)
        store.set(f"port {rank}", str(server.getsockname()[1]))
        right = socket.create_connection((address, int(store.get(f"port {(rank + 1) % size}"))), _SECONDS)
        left, _ = server.accept()
    return _Watched.of(right), _Watched.of(left)


def _exchange(rank, size):
    """Return pairs: a stage, and what went wrong in it on this rank, or "". The first that went wrong is the last."""
    one_to_another = {0: (5, 0), 1: (0, 5)}
    stages = {
        "4 bytes": (4, 4),
        "rank r sends r + 1 bytes": (rank + 1, (rank - 1) % size + 1),
        "rank 0 sends to rank 1, and nobody else": one_to_another.get(rank, (0, 0)),
        "32 MiB": (_LARGE, _LARGE),
        "the left neighbour has closed the connection": (0, 4),
    }
    errors = []
    right, left = _connected(rank, size)
    with right, left:
        for stage, (outgoing, incoming) in stages.items():
            closed = stage.startswith("the left")
            if closed and rank == 0:
                right.shutdown(socket.SHUT_WR)
            if closed and rank != 1:
                break
            received = bytearray(incoming)
            raised = _error_of_exchange(right, left, memoryview(_pattern(rank, outgoing)), memoryview(received))
            error = _judged(raised, closed, received, _pattern((rank - 1) % size, incoming))
            errors.append((stage, error))
            if error:
                break
    return errors


def _error_of_exchange(*arguments):
    """Return what `my_exchange` raises, in words, or ""."""
    try:
        answer("my_exchange", arguments)
    except AnswerError as error:
        if str(error) == missing("my_exchange"):
            raise
        return str(error)
    return ""


def _pattern(rank, length):
    """Return bytes of which none can be swapped for another."""
    return (bytes((rank + place) % 251 for place in range(251)) * (length // 251 + 1))[:length]


def _judged(error, closed, received, expected):
    """Return what is wrong with an exchange that raised an error, or no error, "", and has received bytes."""
    if closed and not error:
        return "my_exchange returned, expected a ConnectionError"
    if error.startswith("RuntimeError") and _ENDED in error:
        return error.partition(": ")[2]
    if closed:
        return "" if error.startswith("Connection") else f"{error.splitlines()[0]}, expected a ConnectionError"
    if error:
        return error.splitlines()[0]
    if received != expected:
        wrong = next(place for place, number in enumerate(received) if number != expected[place])
        return f"byte {wrong} of {len(received)} is not what the left neighbour sent"
    return ""


@contextmanager
def _new_group(kind, rank, size):
    """Make a group of the learner's class, whose socket to the right counts bytes, and shut it down after the block."""
    try:
        group = answer(kind, [_store(), rank, size, timedelta(seconds=_SECONDS)])
        with errors_of_answer():
            group.right = _Watched.of(group.right)
            try:
                yield group
            finally:
                group.shutdown()
    except AnswerError as error:
        if str(error).startswith("TimeoutError"):
            raise AnswerError(f"{error}. The others have not come, or have not sent. {RESTART}") from error
        raise


def _shard(rank, size):
    """Call `reduce_scatter` of the class `Sharding`, then train with it, each rank its share of the parameters."""
    places = torch.arange(float(size * _NUMBERS))
    inputs = places * (rank + 1)
    parameters, momentum = torch.zeros_like(places), torch.zeros(_NUMBERS)
    with _new_group("Sharding", rank, size) as group:
        output = _reduce_scatter(group, inputs)
        sent, changed = group.right.sent, not torch.equal(inputs, places * (rank + 1))
        for step in range(_STEPS):
            momentum = momentum / 2 + _reduce_scatter(group, (places + step) * (rank + 1))
            mine = parameters.split(_NUMBERS)[rank] - momentum / 2
            group.allgather([list(parameters.split(_NUMBERS))], [mine], AllgatherOptions()).wait()
    return Sharded(output.tolist(), sent, changed, parameters.tolist())


def _reduce_scatter(group, gradient):
    output = torch.full((_NUMBERS,), -1.0)
    group.reduce_scatter([output], [list(gradient.split(_NUMBERS))], ReduceScatterOptions()).wait()
    return output


def _compress(rank, size):
    """Return the tensor that `allreduce` of the class `Compressing` has summed, and the bytes that it sent."""
    tensor = _brought(rank, size)
    with _new_group("Compressing", rank, size) as group:
        group.allreduce([tensor], dist.AllreduceOptions()).wait()
        sent = group.right.sent
    return tensor, sent
