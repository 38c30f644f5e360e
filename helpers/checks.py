"""Checks of the exercises: each runs the learner's function on the ranks and says what is wrong with it, and where."""

import os
import re
import time
from collections import Counter
from datetime import timedelta
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


def numbers_collected(world) -> Verdict:
    """Check `collect(number)`: every rank gets the numbers of all ranks, in the order of the ranks."""
    numbers = [float((rank + 2) ** 2) for rank in range(world.size)]

    def check(runs):
        for rank, run in enumerate(runs):
            if run.result != numbers:
                raise _Wrong(f"Rank {rank} returned {run.result}, and the target is {numbers}.")
        return f"Every rank returned {numbers}."

    return _judge(world, "collect", check, _collect, numbers)


def world_turned_round(world) -> Verdict:
    """Check `turn_round(name)`: it makes a new group with the ranks in reverse, which meet in the store under `name`.

    Afterwards the ranks are put into a group in their old order.
    """

    def check(runs):
        for rank, (group_rank, group_size, met_under_name) in enumerate(run.result for run in runs):
            target = world.size - 1 - rank
            if group_rank is None:
                raise _Wrong(f"Rank {rank} has left the old group, and is in no new one.")
            if group_rank != target:
                raise _Wrong(f"The process with RANK={rank} is rank {group_rank}, and the target is rank {target}.")
            if group_size != world.size:
                raise _Wrong(f"The group of rank {rank} has {group_size} ranks, and the target is {world.size}.")
            if not met_under_name:
                raise _Wrong(
                    "The ranks are in reverse, but they have not met under the prefix `name`. "
                    "The next group that meets in this place would find the addresses of this one."
                )
        return f"The process with RANK=0 is rank {world.size - 1} of the new group, and so on down to rank 0."

    return _judge(world, "turn_round", check, _turn_round, f"turned round {time.time_ns()}")


def _judge(world, function, check, on_rank, *arguments):
    """Have every rank call `on_rank(*arguments)`, and return the verdict of `check` on what they make of it."""
    try:
        _require_idle(world)
        runs = _answers(world, function, on_rank, arguments)
        _require_an_end(runs, function)
        return Verdict(True, check(runs))
    except _Wrong as wrong:
        return Verdict(False, str(wrong))


def _answers(world, function, on_rank, arguments):
    try:
        return world.view.apply_async(on_rank, *arguments).get(_SECONDS_TO_ANSWER)
    except TimeoutError:
        raise _Wrong(f"{function} has not ended within {_SECONDS_TO_ANSWER} s on all ranks. {_RESTART}") from None
    except ipp.error.RemoteError:
        _require_idle(world)  # it names a rank that has died
        raise


def _require_idle(world):
    """Require that every rank can take the function now."""
    for state in world.where():
        if state.state != "idle":
            raise _Wrong(f"Rank {state.rank} is {state.state}. {_RESTART}")


def _collect(numbers):
    run = _run("collect", [numbers[int(os.environ["RANK"])]])
    return run._replace(result=run.result.tolist() if hasattr(run.result, "tolist") else run.result)


def _turn_round(name):
    import torch.distributed as dist

    run = _run("turn_round", [name])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    timeout = timedelta(seconds=10)  # for ranks that come late, because they have waited in turn_round
    store = dist.TCPStore(address, port, is_master=False, timeout=timeout)
    result = (None, None, False)
    if dist.is_initialized():
        met_under_name = any(key.startswith(name) for key in store.list_keys())
        result = (dist.get_rank(), dist.get_world_size(), met_under_name)
        dist.destroy_process_group()
    try:
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore(f"after {name}", store),
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=timeout,
        )
    except RuntimeError as error:
        return run._replace(error=run.error or f"{type(error).__name__}: {error}")
    return run._replace(result=result)


# ---------------------------------------------------------------- 01_when_ranks_fail

_SECONDS_TO_NAME = 3
_NAMED = re.compile(r"Ranks? ([\d, ]+) failed to pass")


def uneven_shares(world) -> Verdict:
    """Check `total()`: every rank gets the sum of 0 to 3n, of which rank r of n holds every n-th number, from r on."""
    target = float(sum(range(3 * world.size + 1)))

    def check(runs):
        for rank, run in enumerate(runs):
            if run.result != target:
                raise _Wrong(f"Rank {rank} returned {run.result}, and the target is {target}.")
        return f"Every rank returned {target}."

    return _judge(world, "total", check, _run_total)


def absent_ranks_named(world) -> Verdict:
    """Check `roll_call(group)`: within 3 s it raises on rank 0 an error that names every rank that has not called it.

    When every rank has called it, it raises nothing.
    """
    absent = sorted({1, world.size - 1})

    def check(runs):
        for rank, (all_there, _) in enumerate(run.result for run in runs):
            if all_there.error:
                raise _Wrong(f"All ranks were there, and rank {rank} raised {all_there.error.splitlines()[0]}")
        rank_0 = runs[0].result[1]
        if not rank_0.error:
            raise _Wrong(f"{_ranks(absent)} absent, and rank 0 raised no error.")
        if rank_0.result > _SECONDS_TO_NAME:
            raise _Wrong(f"Rank 0 raised its error later than after {_SECONDS_TO_NAME} s.")
        named = _named(rank_0.error)
        if named != absent:
            raise _Wrong(f"{_ranks(absent)} absent, and the error on rank 0 names {named or 'none'}.")
        return f"{_ranks(absent)} absent, and rank 0 named {absent} within {_SECONDS_TO_NAME} s."

    return _judge(world, "roll_call", check, _call_roll, absent)


def _run_total():
    run = _run("total", [])
    return run._replace(result=run.result.tolist() if hasattr(run.result, "tolist") else run.result)


def _call_roll(absent):
    import torch.distributed as dist

    timeout = timedelta(seconds=5)
    groups = [dist.new_group(timeout=timeout), dist.new_group(timeout=timeout)]
    all_there = _run("roll_call", [groups[0]])
    if not all_there.error.startswith(("", "RuntimeError")):
        return all_there
    begin = time.monotonic()
    some_absent = Run(None, [], "") if dist.get_rank() in absent else _run("roll_call", [groups[1]])
    return Run([all_there, some_absent._replace(result=time.monotonic() - begin)], [], "")


def _named(error):
    """Return the ranks that an error names, in order: as `monitored_barrier` does, or in the learner's own words."""
    if named := _NAMED.search(error):
        return sorted(map(int, named[1].split(",")))
    return [] if _CUT_OFF.search(error) else sorted(map(int, re.findall(r"\d+", error.splitlines()[0])))


def _ranks(ranks):
    return f"Rank {ranks[0]} was" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))} were"


# Notebook 02: point-to-point

_NUMBERS = 16  # in the tensor that each rank brings, all of them rank + 1
_BYTES = 4 * _NUMBERS
_RESTART = "Call world.restart(), then run the setup cell, the cell of your answer and this check again."
# The errors of a rank that waited in vain, or for one that did.
_CUT_OFF = re.compile("gloo|Application timeout|wait timeout")


class _Wrong(Exception):
    """What is wrong with an answer."""


def ring_shift(world) -> Verdict:
    """Check `ring_shift(tensor)`, which returns the tensor of the left neighbour, with one message from each rank."""

    def check(runs):
        for rank, run in enumerate(runs):
            _require_tensor(rank, run.result, (rank - 1) % world.size + 1)
        _require_sent(runs, [1] * world.size, "the ring sends")
        return f"Every rank holds its left neighbour's tensor, and sent {_BYTES} bytes."

    return _judge(world, "ring_shift", check, _run_with_tensor, "ring_shift")


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

    return _judge(world, "gather", check, _run_with_tensor, "gather")


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
            raise _Wrong(f"Rank {late} received the tensor in round {rounds}, and the target is {target} rounds.")
        return f"Every rank holds the tensor of rank 0, after {_count(sent, 'message')} in {_count(rounds, 'round')}."

    return _judge(world, "tree_broadcast", check, _run_with_tensor, "tree_broadcast")


def overlap(world) -> Verdict:
    """Check `overlap(tensor, compute)`: a ring shift, and a computation while its messages are under way.

    The function returns what `compute()` has returned, and the tensor of the left neighbour.
    """

    def check(runs):
        for rank, (result, _) in enumerate(run.result for run in runs):
            if not isinstance(result, list) or len(result) != 2:
                raise _Wrong(f"Rank {rank} returned {_show(result)}, and the target is a number and a tensor.")
            if not isinstance(result[0], int | float):
                raise _Wrong(f"What rank {rank} returned first is not what compute() returned.")
            if result[0] != rank + 1:
                raise _Wrong(f"Rank {rank} computed {_show(result[0])}, and the target is {rank + 1}.0.")
            _require_tensor(rank, result[1], (rank - 1) % world.size + 1)
        _require_sent(runs, [1] * world.size, "the ring sends")
        for rank, run in enumerate(runs):
            computed = run.result[1]
            if len(computed) != 1:
                raise _Wrong(f"Rank {rank} called compute() {len(computed)} times, and the target is once.")
            for message in run.messages:
                _require_overlap(rank, message, *computed[0])
        return "Every rank computed while its messages were under way."

    return _judge(world, "overlap", check, _run_with_computation, "overlap")


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


def _run_with_tensor(function, *arguments):
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    time.sleep(0.05 * (size - rank))  # whoever takes what comes first gets it from the last rank first
    run = _run(function, [torch.full((_NUMBERS,), rank + 1.0), *arguments])
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
