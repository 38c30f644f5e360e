"""Checks of 07_a_backend_of_your_own: on sockets that count bytes, and notice who reads from a closed connection."""

import os
import socket
import uuid
from datetime import timedelta

from helpers.checks.judging import RESTART, Run, Verdict, Wrong, call_answer, judge, missing

_SECONDS = 5  # of the sockets; nobody else is on the ranks while a check runs
_LARGE = 2**25  # bytes, more than the buffers of a connection take
_NUMBERS = 4  # in a part of a reduce-scatter
_STEPS = 3  # of the sharded optimizer
_ENDED = "the connection has ended"


def my_exchange(world) -> Verdict:
    """Check `my_exchange(right, left, outgoing, incoming)`: it sends and receives at once, whatever the two lengths.

    When the left neighbour has closed the connection it raises ConnectionError.
    """

    def check(runs):
        failures = [
            (number, not error.startswith("TimeoutError"), "Connection" in error or "Pipe" in error, rank, stage, error)
            for rank, run in enumerate(runs)
            for number, (stage, error) in enumerate(run.result)
            if error
        ]
        if failures:  # where one rank has failed first, the others have errors that follow from that
            *_, rank, stage, error = min(failures, key=lambda failure: (failure[0], failure[2], *failure[1:]))
            stuck = " It was stuck: who sends has to receive meanwhile." if error.startswith("TimeoutError") else ""
            raise Wrong(f"{stage}: on rank {rank} {error}.{stuck}")
        return "4 bytes and 32 MiB went round the ring, and nothing at all, and the end of a connection was noticed."

    return judge(world, "my_exchange", check, _run_exchange, uuid.uuid4().hex)


def Sharding(world) -> Verdict:
    """Check the class `Sharding`: its `reduce_scatter` is right and sends n - 1 parts, and a sharded optimizer runs."""

    def check(runs):
        _require_same_inputs(runs)
        for rank, run in enumerate(runs):
            target = [(rank * _NUMBERS + place) * world.size * (world.size + 1) / 2 for place in range(_NUMBERS)]
            _require(rank, run.result["output"] == target, f"holds {run.result['output']}", target)
        _require_bytes(runs, 4 * _NUMBERS * (world.size - 1), "a reduce-scatter")
        for rank, run in enumerate(runs):
            target = _trained(world.size)
            _require(rank, run.result["trained"] == target, f"has trained to {run.result['trained']}", target)
        return f"Every rank sent {runs[0].result['sent']} bytes, and sharded momentum trains as one process does."

    return judge(world, "Sharding", check, _run_sharding, uuid.uuid4().hex)


def Compressing(world) -> Verdict:
    """Check the class `Compressing`: its `allreduce` sends half of the bytes, and all ranks hold the same sum."""

    def check(runs):
        for rank, run in enumerate(runs):
            _require(rank, run.result["type"] == "torch.float32", f"holds {run.result['type']}", "torch.float32")
            places = zip(run.result["numbers"], run.result["sum"], run.result["magnitude"], strict=True)
            for place, (number, target, magnitude) in enumerate(places):
                if not abs(number - target) <= world.size * magnitude / 256:
                    raise Wrong(f"Rank {rank} holds {number:.4g} in place {place}, and the sum is {target:.4g}.")
        for rank, run in enumerate(runs):
            if run.result["numbers"] != runs[0].result["numbers"]:
                differ = [a == b for a, b in zip(run.result["numbers"], runs[0].result["numbers"], strict=True)]
                place = differ.index(False)
                raise Wrong(f"Ranks 0 and {rank} hold different bits in place {place}: replicas would drift apart.")
        _require_bytes(runs, 2 * 2 * (world.size - 1) * _NUMBERS, "the ring in bfloat16")
        return f"All ranks hold the same sum, and each sent {runs[0].result['sent']} bytes, half of the ring's."

    return judge(world, "Compressing", check, _run_compressing, uuid.uuid4().hex)


def _require(rank, right, found, target):
    if not right:
        raise Wrong(f"Rank {rank} {found}, and the target is {target}.")


def _require_same_inputs(runs):
    for rank, run in enumerate(runs):
        if run.result["changed"]:
            raise Wrong(f"Rank {rank} has changed `inputs`, which have to stay as they were.")


def _require_bytes(runs, target, who):
    for rank, run in enumerate(runs):
        sent = run.result["sent"]
        if sent != target:
            excess = f"{sent - target} too many" if sent > target else f"{target - sent} too few"
            raise Wrong(f"The numbers are right. Rank {rank} sent {sent} bytes, and {who} sends {target}: {excess}.")


def _trained(size):
    parameters, momentum = [0.0] * (size * _NUMBERS), [0.0] * (size * _NUMBERS)
    for step in range(_STEPS):
        for place in range(size * _NUMBERS):
            momentum[place] = momentum[place] / 2 + (place + step) * size * (size + 1) / 2
            parameters[place] -= momentum[place] / 2
    return parameters


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


def _store(name):
    import torch.distributed as dist

    store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=_SECONDS)))
    return dist.PrefixStore(f"check {name}", store)


def _connected(name):
    """Return sockets to the right neighbour and from the left one, as the lesson's `connect` does."""
    rank, size, address = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"]
    store = _store(name)
    with socket.create_server((address, 0)) as server:
        server.settimeout(_SECONDS)
        store.set(f"port {rank}", str(server.getsockname()[1]))
        right = socket.create_connection((address, int(store.get(f"port {(rank + 1) % size}"))), _SECONDS)
        left, _ = server.accept()
    return _Watched.of(right), _Watched.of(left)


def _run_exchange(name):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    one_to_another = {0: (5, 0), 1: (0, 5)}
    stages = {
        "4 bytes": (4, 4),
        "rank r sends r + 1 bytes": (rank + 1, (rank - 1) % size + 1),
        "rank 0 sends to rank 1, and nobody else": one_to_another.get(rank, (0, 0)),
        "32 MiB": (_LARGE, _LARGE),
        "the left neighbour has closed the connection": (0, 4),
    }
    found = []
    right, left = _connected(name)
    with right, left:
        for stage, (outgoing, incoming) in stages.items():
            closed = stage.startswith("the left")
            if closed and rank == 0:
                right.shutdown(socket.SHUT_WR)
            if closed and rank != 1:
                break
            received = bytearray(incoming)
            arguments = [right, left, memoryview(_pattern(rank, outgoing)), memoryview(received)]
            error = call_answer("my_exchange", arguments).error
            if error == missing("my_exchange"):
                return Run(None, [], error)
            error = _judged(error, closed, received, _pattern((rank - 1) % size, incoming))
            found.append((stage, error))
            if error:
                break
    return Run(found, [], "")


def _pattern(rank, length):
    """Return bytes of which none can be swapped for another."""
    return (bytes((rank + place) % 251 for place in range(251)) * (length // 251 + 1))[:length]


def _judged(error, closed, received, target):
    if closed and not error:
        return "my_exchange returned, and the target is a ConnectionError"
    if error.startswith("RuntimeError") and _ENDED in error:
        return error.partition(": ")[2]
    if closed:
        return "" if error.startswith("Connection") else f"{error.splitlines()[0]}, and the target is a ConnectionError"
    if error:
        return error.splitlines()[0]
    if received != target:
        wrong = next(place for place, number in enumerate(received) if number != target[place])
        return f"byte {wrong} of {len(received)} is not what the left neighbour sent"
    return ""


def _new_group(kind, name):
    import __main__

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    group = vars(__main__)[kind](_store(name), rank, size, timedelta(seconds=_SECONDS))
    group.right = _Watched.of(group.right)
    return group


def _run_group(kind, name, use):
    """Return what `use` makes of a new group of the learner's class, or the error."""
    try:
        group = _new_group(kind, name)
        try:
            return Run(use(group), [], "")
        finally:
            group.shutdown()
    except TimeoutError as error:
        return Run(None, [], f"TimeoutError: {error}. The others have not come, or have not sent. {RESTART}")
    except Exception as error:
        return Run(None, [], f"{type(error).__name__}: {error}")


def _run_sharding(name):
    return _run_group("Sharding", name, _shard)


def _shard(group):
    import torch
    from torch.distributed.distributed_c10d import AllgatherOptions, ReduceScatterOptions

    rank, size = group.rank(), group.size()
    places = torch.arange(float(size * _NUMBERS))

    def reduce_scatter(gradient):
        output = torch.full((_NUMBERS,), -1.0)
        group.reduce_scatter([output], [list(gradient.split(_NUMBERS))], ReduceScatterOptions()).wait()
        return output

    numbers = places * (rank + 1)
    output = reduce_scatter(numbers)
    result = {"output": output.tolist(), "sent": group.right.sent}
    result["changed"] = not torch.equal(numbers, places * (rank + 1))
    parameters, momentum = torch.zeros_like(places), torch.zeros(_NUMBERS)
    for step in range(_STEPS):
        momentum = momentum / 2 + reduce_scatter((places + step) * (rank + 1))
        mine = parameters.split(_NUMBERS)[rank] - momentum / 2
        group.allgather([list(parameters.split(_NUMBERS))], [mine], AllgatherOptions()).wait()
    return {**result, "trained": parameters.tolist()}


def _run_compressing(name):
    return _run_group("Compressing", name, _compress)


def _compress(group):
    import torch
    import torch.distributed as dist

    def brought(rank):
        numbers = torch.randn(_NUMBERS * group.size(), generator=torch.Generator().manual_seed(rank))
        numbers[::_NUMBERS] *= 1e6  # float16 ends at 65504
        return numbers

    tensor = brought(group.rank())
    group.allreduce([tensor], dist.AllreduceOptions()).wait()
    stacked = torch.stack([brought(rank) for rank in range(group.size())]).double()
    return {
        "type": str(tensor.dtype),
        "numbers": tensor.tolist(),
        "sum": stacked.sum(0).tolist(),
        "magnitude": stacked.abs().sum(0).tolist(),
        "sent": group.right.sent,
    }
