"""Checks of the exercises of 02_point_to_point."""

import os
import time

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_NUMBERS = 16  # in the tensor that each rank brings, all of them rank + 1
_BYTES = 4 * _NUMBERS


def ring_shift(world) -> Verdict:
    """Check `ring_shift(tensor)`, which returns the tensor of the left neighbour, with one message from each rank."""

    def check(runs):
        for rank, run in enumerate(runs):
            _require_tensor(rank, run.result, (rank - 1) % world.size + 1)
        _require_sent(runs, [1] * world.size, "the ring sends")
        return f"Every rank holds its left neighbour's tensor, and sent {_BYTES} bytes."

    return judge(world, "ring_shift", check, _run_with_tensor, "ring_shift")


def my_swap(world) -> Verdict:
    """Check `my_swap(mine, received)`: ranks 0 and 1 exchange tensors, by one message from each."""

    def check(runs):
        for rank, run in enumerate(runs[:2]):
            _require_tensor(rank, run.result, 2 - rank)
        _require_sent(runs, [1, 1] + [0] * (world.size - 2), "a swap sends")
        return "Both ranks hold the other one's tensor, and neither has waited in vain."

    return judge(world, "my_swap", check, _run_swap)


def gather(world) -> Verdict:
    """Check `gather(tensor)`, which returns on rank 0 the tensors of all ranks in their order, elsewhere None."""

    def check(runs):
        gathered = runs[0].result
        if not isinstance(gathered, list) or len(gathered) != world.size:
            raise Wrong(f"Rank 0 returned {_show(gathered)}, and the target is a list of {world.size} tensors.")
        for rank, tensor in enumerate(gathered):
            _require_tensor(0, tensor, rank + 1, f" in place {rank}")
        for rank, run in enumerate(runs):
            if rank and run.result is not None:
                raise Wrong(f"Rank {rank} returned {_show(run.result)}, and the target is None.")
        _require_sent(runs, [0] + [1] * (world.size - 1), "the gather sends")
        return f"Rank 0 holds the tensor of every rank, after {_count(world.size - 1, 'message')}."

    return judge(world, "gather", check, _run_with_tensor, "gather")


def tree_broadcast(world) -> Verdict:
    """Check `tree_broadcast(tensor)`, which returns the tensor of rank 0 on every rank, after ceil(log2 n) rounds.

    The rounds are those of ranks with one port each: a rank sends one message in a round, from the round after the one
    in which it has received the tensor.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            _require_tensor(rank, run.result, 1)
        sent = sum(message.sent for run in runs for message in run.messages)
        if sent != world.size - 1:
            raise Wrong(f"The ranks sent {_count(sent, 'message')}, and the target is {world.size - 1}.")
        received = _rounds(runs)
        for rank in range(world.size):
            if rank not in received:
                raise Wrong(f"Nothing that rank 0 has sent, or had passed on, has come to rank {rank}.")
        rounds, target = max(received.values()), (world.size - 1).bit_length()
        if rounds > target:
            late = max(received, key=received.get)
            raise Wrong(f"Rank {late} received the tensor in round {rounds}, and the target is {target} rounds.")
        return f"Every rank holds the tensor of rank 0, after {_count(sent, 'message')} in {_count(rounds, 'round')}."

    return judge(world, "tree_broadcast", check, _run_with_tensor, "tree_broadcast")


def overlap(world) -> Verdict:
    """Check `overlap(tensor, compute)`: a ring shift, and a computation while its messages are under way.

    The function returns what `compute()` has returned, and the tensor of the left neighbour.
    """

    def check(runs):
        for rank, (result, _) in enumerate(run.result for run in runs):
            if not isinstance(result, list) or len(result) != 2:
                raise Wrong(f"Rank {rank} returned {_show(result)}, and the target is a number and a tensor.")
            if not isinstance(result[0], int | float):
                raise Wrong(f"What rank {rank} returned first is not what compute() returned.")
            if result[0] != rank + 1:
                raise Wrong(f"Rank {rank} computed {_show(result[0])}, and the target is {rank + 1}.0.")
            _require_tensor(rank, result[1], (rank - 1) % world.size + 1)
        _require_sent(runs, [1] * world.size, "the ring sends")
        for rank, run in enumerate(runs):
            computed = run.result[1]
            if len(computed) != 1:
                raise Wrong(f"Rank {rank} called compute() {len(computed)} times, and the target is once.")
            for message in run.messages:
                _require_overlap(rank, message, *computed[0])
        return "Every rank computed while its messages were under way."

    return judge(world, "overlap", check, _run_with_computation, "overlap")


def _require_overlap(rank, message, begin, end):
    name = "send" if message.sent else "receive"
    if message.posted > begin:
        raise Wrong(f"Rank {rank} posted its {name} after the computation had begun.")
    if message.waited < end:
        raise Wrong(f"Rank {rank} waited for its {name} before the computation had ended.")


def _require_tensor(rank, tensor, target, place=""):
    """Require that all numbers of a tensor are the target."""
    if list(getattr(tensor, "shape", ())) != [_NUMBERS] or set(tensor.tolist()) != {target}:
        raise Wrong(f"Rank {rank} holds {_show(tensor)}{place}, and the target is {target}.0.")


def _require_sent(runs, messages, who_sends):
    """Require that each rank has sent this many messages with a tensor in each."""
    for rank, (run, target) in enumerate(zip(runs, messages, strict=True)):
        sent = [message.bytes for message in run.messages if message.sent]
        if sum(sent) != target * _BYTES:
            raise Wrong(f"Rank {rank} sent {sum(sent)} bytes, and {who_sends} {target * _BYTES}.")
        if len(sent) != target:
            raise Wrong(f"Rank {rank} sent {_count(len(sent), 'message')}, and {who_sends} {target}.")


def _rounds(runs):
    """Return for each rank that something from rank 0 has come to the round in which it came."""
    received = {0: 0}
    senders = [0]
    for sender in senders:
        sent = [message for message in runs[sender].messages if message.sent]
        for number, message in enumerate(sent, start=1):
            if message.peer not in received:
                received[message.peer] = received[sender] + number
                senders.append(message.peer)
    return received


def _run_swap():
    import torch

    rank = int(os.environ["RANK"])
    if rank > 1:
        return Run(None, [], "")
    received = torch.zeros(_NUMBERS)
    return call_answer("my_swap", [torch.full((_NUMBERS,), rank + 1.0), received])._replace(result=received)


def _run_with_tensor(function, *arguments):
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    time.sleep(0.15 * (size - rank))  # whoever takes what comes first gets it from the last rank first
    run = call_answer(function, [torch.full((_NUMBERS,), rank + 1.0), *arguments])
    return run._replace(result=_sendable(run.result))


def _run_with_computation(function):
    import torch

    computed = []

    def compute():
        begin = time.monotonic()
        number = (torch.full((500, 500), int(os.environ["RANK"]) + 1.0) @ torch.eye(500))[0, 0].item()
        computed.append((begin, time.monotonic()))
        return number

    run = _run_with_tensor(function, compute)
    return run._replace(result=(run.result, computed))


def _sendable(result):
    import torch

    if isinstance(result, list | tuple):
        return [_sendable(item) for item in result]
    if result is None or isinstance(result, int | float | torch.Tensor):
        return result
    return f"a {type(result).__name__}"


def _show(result):
    if isinstance(result, list):
        return f"a list of {len(result)}"
    if hasattr(result, "tolist"):
        numbers = set(result.flatten().tolist())
        if list(result.shape) != [_NUMBERS]:
            return f"a tensor of shape {list(result.shape)}"
        return str(numbers.pop()) if len(numbers) == 1 else str(result.tolist())
    return str(result)


def _count(number, thing):
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
