"""Exercises of 18_a_backend_of_your_own: on sockets that count bytes, and notice reads from a closed connection."""

import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions, ReduceScatterOptions

from helpers.checks.exam import AnswerError, Wrong, answer, errors_of_answer, exercise, missing, show
from helpers.checks.judging import RESTART

_SECONDS = 5  # of the sockets; nothing else runs on the ranks while a check runs
_SECONDS_OF_SILENCE = 0.5  # of the sockets, while the left neighbour is silent
_LARGE = 2**25  # bytes, more than the buffers of a connection hold
_NUMBERS = 4  # elements of each tensor in a reduce-scatter
_SHAPES = ((1,), torch.int64), ((2, 3), torch.float32)  # of the tensors of an all-gather
_BLOCKED = 2  # seconds until a collective in a thread goes on by itself
_STEPS = 3  # of the sharded optimizer
_ENDED = "the connection has ended"
_EARLY = "bytes of the next exchange have arrived"  # the names of three stages of an exchange
_SILENT = "the left neighbour is silent"
_CLOSED = "the left neighbour has closed the connection"
_ERRORS = {  # by stage: how the expected error begins, and its description
    _SILENT: ("TimeoutError", f"a TimeoutError after {_SECONDS_OF_SILENCE} s, the timeout of the sockets"),
    _CLOSED: ("Connection", "a ConnectionError"),
}


class Gathered(NamedTuple):
    """The result of an all-gather: whether it returned a work and kept its input, its outputs, and its exchanges.

    `replaced` tells whether it put other tensors into the list of outputs. `exchanges` has the bytes sent and the bytes
    received in each exchange.
    """

    returned: str
    is_work: bool
    unchanged: bool
    replaced: bool
    outputs: list[list[float]]
    exchanges: list[tuple[int, int]]


class Part(NamedTuple):
    """The outcome in another group: a result, None on a rank outside of the group, and an error, or ""."""

    result: object = None
    error: str = ""


class Later(NamedTuple):
    """What `my_later` did with a collective that blocks, with a collective after it, and with collectives that fail.

    `early` tells whether the call returned before the collective ended, and `completed_early` whether the work was
    complete by then. `completed` tells whether the work completed afterwards, `result` what its future held, and
    `in_thread` whether the collective ran in the given thread. `waited` tells whether `wait()` waited. `errors` has
    the error of each failing collective, with what `wait()` raised; None if its work never completed.
    """

    returned: str
    early: bool = False
    completed_early: bool = False
    completed: bool = False
    result: object = None
    in_thread: bool = False
    waited: bool = False
    errors: Sequence[tuple[str, str | None]] = ()


class Sharded(NamedTuple):
    """The results of a reduce-scatter and of a sharded optimizer.

    `output` is the result of the reduce-scatter, `sent` the bytes that it sent, `changed` whether it has changed its
    inputs, and `trained` the parameters in the end. `matrices` has the output for matrices of float64, and `part` the
    output in a group without rank 0.
    """

    output: list[float]
    sent: int
    changed: bool
    trained: list[float]
    matrices: Part
    part: Part


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
        hint = " A rank must receive while it sends." if error.startswith("TimeoutError") else ""
        if stage not in _ERRORS and "Connection" in error:
            hint = " If `incoming` is empty, receive nothing: `recv_into` returns 0 for an empty view as well."
        raise Wrong(f"{stage}: on rank {rank} {error}.{hint}")
    return (
        "0 bytes, 4 bytes and 32 MiB went round the ring, silence raised a TimeoutError, and the end of a connection "
        "raised a ConnectionError."
    )


@exercise(together=_judge_exchange)
def my_exchange(exam):
    """Check `my_exchange(right, left, outgoing, incoming)`: it sends and receives at once, whatever the two lengths.

    It raises TimeoutError after the timeout of the sockets, and ConnectionError if the left neighbour has closed the
    connection.
    """
    return exam.on_rank(_exchange, exam.rank, exam.n)


@exercise
def my_allgather(exam):
    """Check `my_allgather(group, outputs, inputs, opts)`: the tensors of all ranks go round a ring in n - 1 steps.

    The tensors differ in shape and dtype.
    """
    rank, n = exam.rank, exam.n
    results, part = exam.on_rank(_gather, rank, n)
    for (shape, dtype), gathered in zip(_SHAPES, results, strict=True):
        exam.require(gathered.unchanged, f"Rank {rank} changed `inputs[0]`, expected it unchanged.")
        exam.require(
            not gathered.replaced,
            f"Rank {rank} replaced a tensor in the list `outputs[0]`, expected new elements in the same tensor: copy "
            "into `outputs[0][r]`, because the caller keeps the tensors and not the list.",
        )
        for peer, output in enumerate(gathered.outputs):
            expected = _own_tensor(peer, shape, dtype).flatten().tolist()
            exam.require(
                output == expected, f"On rank {rank} `outputs[0][{peer}]` holds {output}, expected {expected}."
            )
        nbytes = _own_tensor(rank, shape, dtype).nbytes
        sent, received = (sum(moved) for moved in zip(*gathered.exchanges, (0, 0), strict=True))
        exam.require(
            sent == received == (n - 1) * nbytes,
            f"The outputs are right. Rank {rank} sent {sent} bytes and received {received}, expected "
            f"{(n - 1) * nbytes} each: {n - 1} tensors of {nbytes} bytes.",
        )
        exam.require(
            gathered.is_work,
            f"The outputs are right. Rank {rank} returned {gathered.returned}, "
            "expected a work object, as `done` returns.",
        )
    expected = [_own_tensor(peer, *_SHAPES[0]).flatten().tolist() for peer in range(n - 1)]
    _require_part(exam, part, part.result == expected, "Does `my_allgather` use `group.rank()` and `group.size()`?")
    return f"Every rank holds the tensors of all ranks, and sent {n - 1} of them."


@exercise
def my_later(exam):
    """Check `my_later(thread, collective, *arguments)`, which returns a work object at once.

    The work completes when the collective does.
    """
    rank = exam.rank
    later = exam.on_rank(_run_later, rank)
    who = f"On rank {rank}"
    exam.require(
        later.early, f"{who} `my_later` returned after the collective had ended, expected it to return at once."
    )
    exam.require(
        not later.completed_early,
        f"{who} the work was complete while the collective still ran, expected a future without a result.",
    )
    exam.require(
        later.returned == "",
        f"{who} `my_later` returned {later.returned}, expected a work object, as `Completion(future)` returns.",
    )
    exam.require(
        later.completed,
        f"{who} the work was not complete {_SECONDS} s after the collective had ended, expected a call of "
        "`future.set_result` in the thread.",
    )
    exam.require(
        later.result == [float(rank)],
        f"{who} the future holds {later.result}, expected {[float(rank)]}: the result of the work that the collective "
        "returned.",
    )
    exam.require(
        later.in_thread,
        f"{who} the collective ran in another thread, expected the worker thread of `thread`: with several threads, "
        "two ranks may run their collectives in different orders.",
    )
    exam.require(later.waited, f"{who} `wait()` returned before the collective had ended, expected it to wait.")
    for kind, error in later.errors:
        exam.require(
            error is not None,
            f"{who} a collective raised {kind}, and its work was not complete {_SECONDS} s later, expected a call of "
            "`future.set_exception`: otherwise a rank that waits for this work waits forever.",
        )
        exam.require(
            error != "",
            f"{who} a collective raised {kind}, and `wait()` raised nothing, expected the collective's error.",
        )
        exam.require(
            "the neighbour has left" in (error or ""),
            f"{who} a collective raised {kind}, and `wait()` raised {error}, expected the collective's error.",
        )
    return "Every work returned at once, and ended with the result or with the error of its collective."


@exercise
def Sharding(exam):
    """Check the class `Sharding`: its `reduce_scatter` is right and sends n - 1 parts, and a sharded optimizer runs."""
    rank, n = exam.rank, exam.n
    output, sent, changed, trained, matrices, part = exam.on_rank(_shard, rank, n)
    exam.require(not changed, f"Rank {rank} changed `inputs`, expected them unchanged.")
    expected = _reduced(rank, n)
    exam.require(output == expected, f"Rank {rank} holds {output}, expected {expected}.")
    size = 4 * _NUMBERS * (n - 1)
    exam.require(sent == size, _other_bytes(rank, sent, size, "a reduce-scatter"))
    where, hint = f"With matrices of float64, rank {rank}", "Do all tensors have the shape and the dtype of the inputs?"
    exam.require(not matrices.error, f"{where} raised {matrices.error.rstrip('.')}. {hint}")
    exam.require(matrices.result == expected, f"{where} holds {matrices.result}, expected {expected}. {hint}")
    expected = _trained(n)
    exam.require(trained == expected, f"After training, rank {rank} holds {trained}, expected {expected}.")
    is_right = part.result == _reduced(rank - 1, n - 1)
    _require_part(exam, part, is_right, "Does `reduce_scatter` use `self.rank()` and `self.size()`?")
    return f"Every rank sent {size} bytes, and sharded momentum trains as one process does."


def _judge_compressing(returned):
    n = len(returned)
    first, _ = returned[0]
    for rank, (numbers, _) in enumerate(returned):
        differ = [place for place, (mine, other) in enumerate(zip(numbers, first, strict=True)) if mine != other]
        if differ:
            raise Wrong(
                f"Ranks 0 and {rank} hold different bits in element {differ[0]}, expected the same bits on all ranks."
            )
    size = 2 * 2 * (n - 1) * _NUMBERS
    for rank, (_, sent) in enumerate(returned):
        if sent != size:
            raise Wrong(_other_bytes(rank, sent, size, "the ring in bfloat16"))
    return f"All ranks hold the same sum, and each sent {size} bytes, half of the ring's."


@exercise(together=_judge_compressing)
def Compressing(exam):
    """Check the class `Compressing`: its `allreduce` sends half of the bytes, and all ranks hold the same sum.

    The second tensor is a matrix of one row, whose number of elements is not a multiple of n.
    """
    rank, n = exam.rank, exam.n
    (tensor, matrix), sent, part = exam.on_rank(_compress, rank, n)
    numbers = _require_sum(exam, tensor, n * _NUMBERS, f"Rank {rank}")
    numbers += _require_sum(exam, matrix, 2 * n + 1, f"Of a tensor of shape {[1, 2 * n + 1]}, rank {rank}")
    is_right = part.result is not None and not _far_from_sum(part.result, n - 1)
    _require_part(exam, part, is_right, "Does `allreduce` use `self.rank()` and `self.size()`?")
    return numbers, sent


def _require_sum(exam, tensor, length, who):
    """Require that a tensor of float32 has about the sum in each of its elements, and return the elements."""
    exam.require(tensor.dtype == torch.float32, f"{who} holds {tensor.dtype}, expected torch.float32.")
    numbers = tensor.flatten().tolist()
    if exam.require(len(numbers) == length, f"{who} holds {show(tensor)}, expected {length} elements."):
        for place, expected in _far_from_sum(numbers, exam.n):
            exam.refuse(f"{who} holds {numbers[place]:.4g} in element {place}, expected the sum {expected:.4g}.")
    return numbers


def _far_from_sum(numbers, n):
    """Return the places of the numbers that are not about the sum over n ranks, each with the sum."""
    inputs = torch.stack([_brought(other, len(numbers)) for other in range(n)]).double()
    pairs = zip(inputs.sum(0).tolist(), inputs.abs().sum(0).tolist(), strict=True)
    return [
        (place, expected)
        for place, (expected, magnitude) in enumerate(pairs)
        if not abs(numbers[place] - expected) <= n * magnitude / 256
    ]


@exercise
def SharedMemory(exam):
    """Check the class `SharedMemory`: its `allreduce` is right, in several pieces and in one, and sends few bytes."""
    rank, n = exam.rank, exam.n
    results, part = exam.on_rank(_share, rank, n)
    for length, pieces, right, sent in results:  # the last tensor has one piece
        who = f"A tensor of {length} elements, {pieces} piece{'s' if pieces > 1 else ''}: rank {rank}"
        exam.require(right, f"{who} does not hold the sum, expected the sum over all ranks in every element.")
        fewest = 2 * pieces * (n - 1)
        exam.require(
            sent >= fewest,
            f"{who} sent {sent} bytes, expected at least {fewest}, for two calls of `meet` per piece. The sum was "
            "right only by luck: a rank may read elements before another rank has written them.",
        )
        exam.require(
            sent <= 2 * fewest,
            f"{who} sent {sent} bytes, expected {fewest}, for two calls of `meet` per piece: exchange the elements "
            "through the shared memory.",
        )
    _require_part(exam, part, part.result, "Does `allreduce` use `self.rank()` and `self.size()`?")
    return f"Every rank holds the sums, and sent {sent} bytes per piece."


def _require_part(exam, part, is_right, hint):
    """Require that a group without rank 0 had the right result on this rank, if the group has this rank."""
    where = f"In a group without rank 0, rank {exam.rank}"
    exam.require(not part.error, f"{where} raised {part.error.rstrip('.')}. {hint}")
    exam.require(
        part.result is None or is_right,
        f"{where} has a wrong result, expected the result over the {exam.n - 1} ranks of this group. {hint}",
    )


def _other_bytes(rank, sent, size, who):
    return f"The elements are right. Rank {rank} sent {sent} bytes, expected {size}, as {who} sends."


def _reduced(rank, size):
    """Return what a rank has after a reduce-scatter of `Sharding`."""
    return [(rank * _NUMBERS + place) * size * (size + 1) / 2 for place in range(_NUMBERS)]


def _trained(size):
    """Return the parameters that one process has after training with momentum."""
    parameters, momentum = [0.0] * (size * _NUMBERS), [0.0] * (size * _NUMBERS)
    for step in range(_STEPS):
        for place in range(size * _NUMBERS):
            momentum[place] = momentum[place] / 2 + (place + step) * size * (size + 1) / 2
            parameters[place] -= momentum[place] / 2
    return parameters


def _brought(rank, length):
    """Return what a rank brings to the all-reduce of `Compressing`."""
    numbers = torch.randn(length, generator=torch.Generator().manual_seed(rank))
    numbers[::_NUMBERS] *= 1e6  # float16 ends at 65504
    return numbers


def _own_tensor(rank, shape, dtype):
    """Return the tensor that a rank contributes to an all-gather."""
    return torch.full(shape, 10 * rank + 3, dtype=dtype)


# The functions below run in the process of the learner's code.


class _Watched(socket.socket):
    """A socket that counts the bytes that it sends, and raises an error after many reads from a closed connection."""

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
            raise RuntimeError(f"{_ENDED}, but `my_exchange` continues to receive from it")


_attempts = count()  # the same on every rank, because every rank takes part in every attempt


def _store():
    """Return a store for this attempt."""
    store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=_SECONDS)))
    return dist.PrefixStore(f"attempt {next(_attempts)} of a check", store)


def _without_rank_0(call, store, rank, size):
    """Call a function with the store, the rank and the size of a group without rank 0, if two ranks remain."""
    if rank == 0 or size == 2:
        return Part()
    return _attempt(call, dist.PrefixStore("without rank 0", store), rank - 1, size - 1)


def _attempt(call, *arguments):
    """Return the result of a call, or the error of the learner's code."""
    try:
        return Part(call(*arguments))
    except AnswerError as error:
        return Part(error=str(error).splitlines()[0])


def _connected(store, rank, size):
    """Return sockets to the right neighbour and from the left neighbour, as the lesson's `connect` does."""
    address = os.environ["MASTER_ADDR"]
    with socket.create_server((address, 0)) as server:
        server.settimeout(_SECONDS)
        store.set(f"port {rank}", str(server.getsockname()[1]))
        right = socket.create_connection((address, int(store.get(f"port {(rank + 1) % size}"))), _SECONDS)
        left, _ = server.accept()
    return _Watched.of(right), _Watched.of(left)


def _exchange(rank, size):
    """Return pairs: a stage, and what went wrong in it on this rank, or "". The first that went wrong is the last."""
    source = (rank - 1) % size
    stream, expected = _pattern(rank, 12), _pattern(source, 12)
    stages = {  # what this rank sends, and what it receives
        "4 bytes": (_pattern(rank, 4), _pattern(source, 4)),
        "rank r sends r + 1 bytes": (_pattern(rank, rank + 1), _pattern(source, source + 1)),
        "only rank 0 sends": {0: (_pattern(0, 5), b""), 1: (b"", _pattern(0, 5))}.get(rank, (b"", b"")),
        _EARLY: (stream[8:10], b""),
        "more bytes have arrived than this exchange expects": (stream[10:], expected[:3]),
        "the bytes that had arrived early": (b"", expected[3:]),
        "32 MiB": (_pattern(rank, _LARGE), _pattern(source, _LARGE)),
        _SILENT: (b"", bytes(4)),
        _CLOSED: (b"", bytes(4)),
    }
    errors, store = [], _store()
    right, left = _connected(store, rank, size)
    with right, left:
        for stage, (outgoing, incoming) in stages.items():
            if stage == _SILENT and rank != 1:
                if rank == 0:
                    _close_after_silence(right, store)
                break
            if stage == _EARLY:
                with suppress(ConnectionError):  # the right neighbour has failed, and says so itself
                    socket.socket.sendall(right, stream[:8])
                select.select([left], [], [], _SECONDS)
            elif stage == _SILENT:
                right.settimeout(_SECONDS_OF_SILENCE)
                left.settimeout(_SECONDS_OF_SILENCE)
            elif stage == _CLOSED:
                store.set("the silence has ended", "")
                left.settimeout(_SECONDS)
            received = bytearray(len(incoming))
            raised = _error_of_exchange(right, left, memoryview(outgoing), memoryview(received))
            error = _judged(raised, stage, received, incoming)
            errors.append((stage, error))
            if error:
                break
    return errors


def _close_after_silence(right, store):
    """Close the connection to rank 1 after its timeout, or later, if `my_exchange` on rank 1 ignores the timeout."""
    with suppress(dist.DistStoreError):
        store.wait(["the silence has ended"], timedelta(seconds=_SECONDS))
    with suppress(OSError):  # rank 1 has failed before, and says so itself
        right.shutdown(socket.SHUT_WR)


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


def _judged(error, stage, received, expected):
    """Return what is wrong with an exchange that raised an error, or no error, "", and has received bytes."""
    if error.startswith("RuntimeError") and _ENDED in error:
        return error.partition(": ")[2]
    if stage in _ERRORS:
        kind, words = _ERRORS[stage]
        if not error:
            return f"my_exchange returned, expected {words}"
        return "" if error.startswith(kind) else f"{error.splitlines()[0]}, expected {words}"
    if error:
        return error.splitlines()[0]
    if received != expected:
        wrong = next(place for place, number in enumerate(received) if number != expected[place])
        return f"byte {wrong} of {len(received)} is not what the left neighbour sent"
    return ""


@contextmanager
def _new_group(kind, store, rank, size):
    """Make a group of the learner's class, whose socket to the right counts bytes, and shut it down after the block."""
    try:
        group = answer(kind, [store, rank, size, timedelta(seconds=_SECONDS)])
        with errors_of_answer():
            group.right = _Watched.of(group.right)
            try:
                yield group
            finally:
                group.shutdown()
    except AnswerError as error:
        if str(error).startswith("TimeoutError"):
            raise AnswerError(f"{error}. Another rank did not send, or did not make its group. {RESTART}") from error
        raise


def _shard(rank, size):
    """Call `reduce_scatter` of the class `Sharding`, then train with it, each rank its share of the parameters.

    Another group reduces matrices of float64. Then a group without rank 0 reduces.
    """
    store, places = _store(), torch.arange(float(size * _NUMBERS))
    inputs = places * (rank + 1)
    parameters, momentum = torch.zeros_like(places), torch.zeros(_NUMBERS)
    with _new_group("Sharding", store, rank, size) as group:
        output = _reduce_scatter(group, inputs)
        sent, changed = group.right.sent, not torch.equal(inputs, places * (rank + 1))
        for step in range(_STEPS):
            momentum = momentum / 2 + _reduce_scatter(group, (places + step) * (rank + 1))
            mine = parameters.split(_NUMBERS)[rank] - momentum / 2
            group.allgather([list(parameters.split(_NUMBERS))], [mine], AllgatherOptions()).wait()
    matrices = _attempt(_shard_matrices, dist.PrefixStore("matrices", store), rank, size)
    part = _without_rank_0(_shard_once, store, rank, size)
    return Sharded(output.tolist(), sent, changed, parameters.tolist(), matrices, part)


def _shard_matrices(store, rank, size):
    """Return the output of `reduce_scatter` in a new group that reduces matrices of float64."""
    return _shard_once(store, rank, size, torch.float64, (-1, 2))


def _shard_once(store, rank, size, dtype=torch.float32, shape=(-1,)):
    """Return the output of `reduce_scatter` in a new group."""
    gradient = torch.arange(size * _NUMBERS, dtype=dtype).view(shape) * (rank + 1)
    with _new_group("Sharding", store, rank, size) as group:
        return _reduce_scatter(group, gradient).flatten().tolist()


def _reduce_scatter(group, gradient):
    parts = list(gradient.tensor_split(group.size()))
    output = torch.full_like(parts[0], -1)
    group.reduce_scatter([output], [parts], ReduceScatterOptions()).wait()
    return output


def _compress(rank, size):
    """Return two tensors that `allreduce` of the class `Compressing` has summed, and the bytes sent for the first.

    Then a group without rank 0 sums a tensor.
    """
    store = _store()
    tensor, matrix = _brought(rank, _NUMBERS * size), _brought(rank, 2 * size + 1).view(1, -1)
    with _new_group("Compressing", store, rank, size) as group:
        group.allreduce([tensor], dist.AllreduceOptions()).wait()
        sent = group.right.sent
        group.allreduce([matrix], dist.AllreduceOptions()).wait()
    return (tensor, matrix), sent, _without_rank_0(_compress_once, store, rank, size)


def _compress_once(store, rank, size):
    """Return the elements of a tensor that a new group has summed."""
    tensor = _brought(rank, _NUMBERS * size)
    with _new_group("Compressing", store, rank, size) as group:
        group.allreduce([tensor], dist.AllreduceOptions()).wait()
    return tensor.tolist()


class _Neighbours:
    """What `my_allgather` gets as its group: a rank, a size, and exchanges with the neighbours, which are noted."""

    def __init__(self, rank, size, right, left):
        self._rank, self._size, self._right, self._left = rank, size, right, left
        self.exchanges = []

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def exchange(self, outgoing, incoming):
        self.exchanges.append((outgoing.nbytes, incoming.nbytes))
        out, into = (memoryview(tensor.view(-1).view(torch.uint8).numpy()) for tensor in (outgoing, incoming))
        while out or into:
            readable, writable, _ = select.select([self._left] * bool(into), [self._right] * bool(out), [], _SECONDS)
            if not readable and not writable:
                raise TimeoutError("no neighbour was ready: the ranks' exchanges do not match")
            if readable:
                received = self._left.recv_into(into)
                if not received:
                    raise ConnectionError("the left neighbour made fewer exchanges")
                into = into[received:]
            if writable:
                out = out[self._right.send(out) :]


def _gather(rank, size):
    """Return what `my_allgather` did with tensors of each shape, and the first outputs in a group without rank 0."""
    store = _store()
    return _gather_each(store, rank, size), _without_rank_0(_gather_first, store, rank, size)


def _gather_first(*group):
    return _gather_each(*group)[0].outputs


def _gather_each(store, rank, size):
    """Return what `my_allgather` did with tensors of each shape."""
    results = []
    right, left = _connected(store, rank, size)
    with right, left:
        for shape, dtype in _SHAPES:
            mine = _own_tensor(rank, shape, dtype)
            outputs = [torch.full_like(mine, -1) for _ in range(size)]
            group = _Neighbours(rank, size, right, left)
            given = list(outputs)  # torch gives the method a list of its own
            work = answer("my_allgather", [group, [given], [mine], AllgatherOptions()])
            results.append(
                Gathered(
                    type(work).__name__ if work is not None else "None",
                    isinstance(work, dist.Work),
                    torch.equal(mine, _own_tensor(rank, shape, dtype)),
                    list(map(id, given)) != list(map(id, outputs)),
                    [output.flatten().tolist() for output in outputs],
                    group.exchanges,
                )
            )
    return results


class _Ended(dist.Work):
    """The work of a collective that has ended with a result."""

    def __init__(self, result):
        super().__init__()
        self._future = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout=None):
        return True

    def get_future(self):
        return self._future


def _run_later(rank):
    """Return what `my_later` did with four collectives: the first blocks, the second takes long, two others fail."""
    thread = ThreadPoolExecutor(max_workers=1)
    worker = thread.submit(threading.get_ident).result()
    may_end, ended = threading.Event(), []

    def blocks(tensors, opts):
        may_end.wait(_BLOCKED)
        ended.append(threading.get_ident())
        return _Ended([opts])

    def takes_long(seconds):
        time.sleep(seconds)
        ended.append(threading.get_ident())
        return _Ended([])

    def fails(kind):
        raise kind("the neighbour has left")

    try:
        work = answer("my_later", [thread, blocks, ["tensor"], float(rank)])
        early = not ended
        if not isinstance(work, dist.Work):
            return Later(f"a {type(work).__name__}" if work is not None else "None", early)
        completed_early = early and work.get_future().done()
        may_end.set()
        later = Later("", early, completed_early, _completes(work))
        if not later.completed or not early or completed_early:
            return later
        with errors_of_answer():
            result = work.get_future().value()
        later = later._replace(result=result, in_thread=ended == [worker])
        work = answer("my_later", [thread, takes_long, 0.3])
        with errors_of_answer():
            work.wait()
        later = later._replace(waited=len(ended) == 2)
        errors = []
        for kind in (ConnectionError, ValueError):
            work = answer("my_later", [thread, fails, kind])
            errors.append((kind.__name__, _error_of(work) if _completes(work) else None))
            if errors[-1][1] is None:
                break
        return later._replace(errors=errors)
    finally:
        may_end.set()
        thread.shutdown(wait=False)


def _completes(work):
    """Return whether a work completes in time."""
    end = time.monotonic() + _SECONDS
    while not work.get_future().done():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def _error_of(work):
    try:
        work.wait()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _share(rank, size):
    """Return the length of each tensor, its number of pieces, whether the sum was right, and the bytes sent.

    Also return whether the sum was right in a group without rank 0.
    """
    results, store = [], _store()
    with _new_group("SharedMemory", store, rank, size) as group:
        row = group.rows.shape[1] // 4  # elements
        for length in (2 * row + row // 2 + 1, size + 1, 1):
            before = group.right.sent
            right = _sum_is_right(group, length)
            results.append((length, -(-length // row), right, group.right.sent - before))
    return results, _without_rank_0(_share_once, store, rank, size)


def _share_once(store, rank, size):
    """Return whether a new group sums a tensor correctly."""
    with _new_group("SharedMemory", store, rank, size) as group:
        return _sum_is_right(group, size + 1)


def _sum_is_right(group, length):
    places, size = 1 + torch.arange(length) % 1000, group.size()
    tensor = places * (group.rank() + 1.0)
    group.allreduce([tensor], dist.AllreduceOptions()).wait()
    return torch.equal(tensor, places * (size * (size + 1) / 2))
