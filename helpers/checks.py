"""Checks of the exercises: each runs the learner's function on the ranks and says what is wrong with it, and where."""

import os
import re
import time
from datetime import timedelta
import re
from collections import Counter
from typing import NamedTuple

import ipyparallel as ipp

# Longer than the timeout of the process group that an exercise uses, so that a rank that is stuck can say so itself.
_SECONDS_TO_ANSWER = 20


class Verdict:
    """What a check has found; it counts as true when the exercise is solved, and shows as its message."""

    def __init__(self, passed: bool, message: str):
        self.passed = passed
        self.message = message

    def __bool__(self):
        return self.passed

    def __repr__(self):
        return ("Solved. " if self.passed else "Not yet. ") + self.message


class Run(NamedTuple):
    """What one rank made of the learner's function: its result, the messages it counted, and the error it raised."""

    result: object
    messages: list
    error: str


def run_on_ranks(world, function: str, *arguments) -> list[Run]:
    """Call the function of that name, which the learner has defined in a `%%px` cell, on every rank at once.

    Returns one `Run` for each rank, in the order of the ranks.
    """
    answers = world.view.apply_async(_run, function, arguments)
    return answers.get(_SECONDS_TO_ANSWER)


def _run(function, arguments):
    import __main__

    from helpers.traffic import recorded

    with recorded() as messages:
        try:
            return Run(vars(__main__)[function](*arguments), messages, "")
        except Exception as error:
            return Run(None, messages, f"{type(error).__name__}: {error}")


# ---------------------------------------------------------------- 00_meet_the_ranks

# What gloo and the store say, in texts that name ports, on a rank that was left waiting.
_WAITED_IN_VAIN = re.compile(r"timed? ?out|closed by peer|reset by peer|connection refused", re.IGNORECASE)
_BEGIN_AFRESH = "Call world.restart(), run the first cell of the exercises again, then your own."


def numbers_collected(world) -> Verdict:
    """Check `collect(number)`: every rank gets the numbers of all ranks, in the order of the ranks."""
    numbers = [float((rank + 2) ** 2) for rank in range(world.size)]
    runs = _runs(world, _collect, numbers)
    if verdict := _failure(runs, "collect"):
        return verdict
    for rank, run in enumerate(runs):
        if run.result != numbers:
            return Verdict(False, f"Rank {rank} returned {run.result}, and the target is {numbers}.")
    return Verdict(True, f"Every rank returned {numbers}.")


def world_turned_round(world) -> Verdict:
    """Check `turn_round(name)`: it makes a new group with the ranks in reverse, met in the store under the prefix `name`.

    Afterwards the ranks are put into a group in their old order.
    """
    runs = _runs(world, _turn_round, f"turned round {time.time_ns()}")
    if verdict := _failure(runs, "turn_round"):
        return verdict
    for rank, (group_rank, group_size, met_under_name) in enumerate(run.result for run in runs):
        if group_rank is None:
            return Verdict(False, f"Rank {rank} has left the old group and is in no new one.")
        target = world.size - 1 - rank
        if group_rank != target:
            return Verdict(
                False, f"The process with RANK={rank} is rank {group_rank} of its group, and the target is rank {target}."
            )
        if group_size != world.size:
            return Verdict(False, f"The group of rank {rank} has {group_size} ranks, and the target is {world.size}.")
        if not met_under_name:
            return Verdict(
                False,
                "The ranks are in reverse, but they have not met under the prefix: the store holds no key that begins "
                "with the name. The next group that meets at this place would find the addresses of this one.",
            )
    return Verdict(True, f"The process with RANK=0 is rank {world.size - 1} of the new group, and so on down to rank 0.")


def _runs(world, function, *arguments):
    """Call a function of this module on every rank at once; return what each made of it, or None for no answer."""
    world.require_answering(list(range(world.size)))
    try:
        return world.view.apply_async(function, *arguments).get(_SECONDS_TO_ANSWER)
    except (TimeoutError, ipp.TimeoutError):
        return None


def _failure(runs, function):
    """Return what has gone wrong when not every rank came to a result: the cause, if some rank names one."""
    if runs is None:
        return Verdict(False, f"Some ranks have not come back from {function} within {_SECONDS_TO_ANSWER} s. {_BEGIN_AFRESH}")
    failed = {rank: run.error for rank, run in enumerate(runs) if run.error}
    if not failed:
        return None
    rank = min(failed, key=lambda rank: (bool(_WAITED_IN_VAIN.search(failed[rank])), rank))
    if failed[rank] == f"KeyError: '{function}'":
        return Verdict(False, f"Rank {rank} does not know {function}: run the cell that defines it.")
    if _WAITED_IN_VAIN.search(failed[rank]):
        return Verdict(False, f"Rank {rank} waited in {function} for a rank that did not come. {_BEGIN_AFRESH}")
    return Verdict(False, f"Rank {rank} raised {failed[rank]}")


def _collect(numbers):
    run = _run("collect", [numbers[int(os.environ["RANK"])]])
    return run._replace(result=run.result.tolist() if hasattr(run.result, "tolist") else run.result)


def _turn_round(name):
    import torch.distributed as dist

    timeout = timedelta(seconds=5)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    run = _run("turn_round", [name])
    if run.error:
        return run
    store = dist.TCPStore(address, port, is_master=False, timeout=timeout)
    result = (None, None, False)
    if dist.is_initialized():
        met_under_name = any(key.startswith(name) for key in store.list_keys())
        result = (dist.get_rank(), dist.get_world_size(), met_under_name)
        dist.destroy_process_group()
    meeting_place = dist.PrefixStore(f"after {name}", store)
    dist.init_process_group("gloo", store=meeting_place, rank=rank, world_size=size, timeout=timeout)
    return run._replace(result=result)


# Notebook 02: point-to-point

_NUMBERS = 16  # in the tensor that each rank brings, all of them rank + 1
_BYTES = 4 * _NUMBERS
_RESTART = "Call world.restart(), then run the setup cell, the cell of your answer and this check again."
_CUT_OFF = re.compile("gloo|Application timeout")  # the errors of a rank that waited in vain, or for one that did


class _Wrong(Exception):
    """What is wrong with an answer."""


def ring_shift(world) -> Verdict:
    """Check `ring_shift(tensor)`, which returns the tensor of the left neighbour, with one message from each rank."""

    def check(runs):
        for rank, run in enumerate(runs):
            _require_tensor(rank, run.result, (rank - 1) % world.size + 1)
        _require_sent(runs, [1] * world.size, "the ring sends")
        return f"Every rank holds its left neighbour's tensor, and sent {_BYTES} bytes."

    return _verdict(world, "ring_shift", check)


def gather_by_hand(world) -> Verdict:
    """Check `gather(tensor)`, which returns on rank 0 the tensors of all ranks in their order, elsewhere None."""

    def check(runs):
        gathered = runs[0].result
        if not isinstance(gathered, list) or len(gathered) != world.size:
            raise _Wrong(f"Rank 0 returned {_show(gathered)}, and the target is a list of {world.size} tensors.")
        for rank, tensor in enumerate(gathered):
            _require_tensor(0, tensor, rank + 1, f" in place {rank}")
        for rank, run in enumerate(runs):
            if rank and run.result is not None:
                raise _Wrong(f"Rank {rank} returned {_show(run.result)}, and the target is None.")
        _require_sent(runs, [0] + [1] * (world.size - 1), "the gather sends")
        return f"Rank 0 holds the tensor of every rank, after {_count(world.size - 1, 'message')}."

    return _verdict(world, "gather", check)


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
            raise _Wrong(f"The ranks sent {_count(sent, 'message')}, and the target is {world.size - 1}.")
        received = _rounds(runs)
        for rank in range(world.size):
            if rank not in received:
                raise _Wrong(f"Nothing that rank 0 has sent, or had passed on, has come to rank {rank}.")
        rounds, target = max(received.values()), (world.size - 1).bit_length()
        if rounds > target:
            late = max(received, key=received.get)
            raise _Wrong(f"Rank {late} received the tensor in round {rounds}, and the target is {target} rounds in all.")
        return f"Every rank holds the tensor of rank 0, after {_count(sent, 'message')} in {_count(rounds, 'round')}."

    return _verdict(world, "tree_broadcast", check)


def overlap(world) -> Verdict:
    """Check `overlap(tensor, compute)`: a ring shift, and a computation while its messages are under way.

    The function returns what `compute()` has returned, and the tensor of the left neighbour.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            if not isinstance(run.result, list) or len(run.result) != 2:
                raise _Wrong(f"Rank {rank} returned {_show(run.result)}, and the target is a number and a tensor.")
            if run.result[0] != rank + 1:
                raise _Wrong(f"Rank {rank} computed {_show(run.result[0])}, and the target is {rank + 1}.0.")
            _require_tensor(rank, run.result[1], (rank - 1) % world.size + 1)
        _require_sent(runs, [1] * world.size, "the ring sends")
        for rank, run in enumerate(runs):
            if len(run.computed) != 1:
                raise _Wrong(f"Rank {rank} called compute() {len(run.computed)} times, and the target is once.")
            for message in run.messages:
                _require_overlap(rank, message, *run.computed[0])
        return "Every rank computed while its messages were under way."

    return _verdict(world, "overlap", check, overlapping=True)


def _require_overlap(rank, message, begin, end):
    name = "send" if message.sent else "receive"
    if message.posted > begin:
        raise _Wrong(f"Rank {rank} posted its {name} after the computation had begun.")
    if message.waited is None:
        raise _Wrong(f"Rank {rank} never waited for its {name}. {_RESTART}")
    if message.waited < end:
        raise _Wrong(f"Rank {rank} waited for its {name} before the computation had ended.")


def _require_tensor(rank, tensor, target, place=""):
    """Require that all numbers of a tensor are the target."""
    if list(getattr(tensor, "shape", ())) != [_NUMBERS] or set(tensor.tolist()) != {target}:
        raise _Wrong(f"Rank {rank} holds {_show(tensor)}{place}, and the target is {target}.0.")


def _require_sent(runs, messages, who_sends):
    """Require that each rank has sent this many messages with a tensor in each."""
    for rank, (run, target) in enumerate(zip(runs, messages, strict=True)):
        sent = [message.bytes for message in run.messages if message.sent]
        if sum(sent) != target * _BYTES:
            raise _Wrong(f"Rank {rank} sent {sum(sent)} bytes, and {who_sends} {target * _BYTES}.")
        if len(sent) != target:
            raise _Wrong(f"Rank {rank} sent {_count(len(sent), 'message')}, and {who_sends} {target}.")


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


class _TimedRun(NamedTuple):
    """A `Run`, and the times between which the rank computed."""

    result: object
    messages: list
    error: str
    computed: list[tuple[float, float]]


def _verdict(world, function, check, overlapping=False):
    try:
        runs = _run_everywhere(world, function, overlapping)
        _require_an_end(runs, function)
        return Verdict(True, check(runs))
    except _Wrong as wrong:
        return Verdict(False, str(wrong))


def _run_everywhere(world, function, overlapping):
    world.require_answering(world.view.targets)
    answers = world.view.apply_async(_run_with_own_tensor, function, overlapping)
    try:
        return answers.get(_SECONDS_TO_ANSWER)
    except (ipp.error.RemoteError, TimeoutError):
        for state in world.where():
            if state.state == "dead":
                raise _Wrong(f"Rank {state.rank} has died ({state.line}). {_RESTART}") from None
            if state.state == "busy":
                raise _Wrong(f"Rank {state.rank} does not come to an end: it is at `{state.line}`. {_RESTART}") from None
        raise


def _require_an_end(runs, function):
    """Require that every rank has ended without an error, and that nothing was sent that nobody has received."""
    cut_off = [rank for rank, run in enumerate(runs) if _CUT_OFF.search(run.error)]
    for rank, run in enumerate(runs):
        if run.error == f"KeyError: '{function}'":
            raise _Wrong(f"Rank {rank} has no function `{function}`: run the cell that defines it, then this check.")
        if run.error and rank not in cut_off:
            error = run.error.splitlines()[0]
            raise _Wrong(f"Rank {rank} raised {error}" + (f"\n{_RESTART}" if cut_off else ""))
    if cut_off:
        ranks = ", ".join(map(str, cut_off))
        raise _Wrong(f"Deadlock: the group's timeout ended the wait on these ranks: {ranks}. {_RESTART}")
    sent = Counter((rank, m.peer) for rank, run in enumerate(runs) for m in run.messages if m.sent)
    received = Counter((m.peer, rank) for rank, run in enumerate(runs) for m in run.messages if not m.sent)
    for source, destination in sorted((sent - received).keys()):
        raise _Wrong(f"Rank {destination} has not received all that rank {source} sent to it. {_RESTART}")


def _run_with_own_tensor(function, overlapping):
    import os
    import time

    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    tensor = torch.full((_NUMBERS,), rank + 1.0)
    computed = []

    def compute():
        begin = time.monotonic()
        number = (torch.full((500, 500), rank + 1.0) @ torch.eye(500))[0, 0].item()
        computed.append((begin, time.monotonic()))
        return number

    time.sleep(0.05 * (size - rank))  # whoever takes what comes first gets it from the last rank first
    run = _run(function, [tensor, compute] if overlapping else [tensor])
    return _TimedRun(_sendable(run.result), run.messages, run.error, computed)


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
