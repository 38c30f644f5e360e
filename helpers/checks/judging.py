"""Judge an exercise: have every rank run it, and say in a sentence what is wrong with the learner's function.

Grading uses this module inside its sandbox; `helpers.grade.judging` is the process outside.
"""

import functools
import os
import re
import signal
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import ipyparallel as ipp
import torch.distributed as dist
from IPython import get_ipython

from helpers.checks import exam
from helpers.checks.accepting import accept
from helpers.checks.exam import Wrong, missing
from helpers.checks.learner import learners_module
from helpers.errors import WorldError
from helpers.table import shortened
from helpers.world import World

RESTART = "Run the lesson again, from the cell with `World` to this check."
# The remedy in a lesson with a function `fresh_ranks`, which restarts the ranks and sets them up.
FRESH_RANKS = "Call fresh_ranks(), then run the cell with your answer and this check again."
# The remedy after an answer that failed in a group of its own, and did not break the group of all ranks.
NO_RESTART = "No restart is needed: run the cell with your changed answer, then this check."
_BY_THE_STORE = r"wait timeout after \d+ms"
# The errors of a rank that waited until the timeout, or for a rank that had timed out. gloo names a line of its own
# source first, and has a shorter text for a connection that was closed earlier. The last text is the store's.
TIMEOUT_ERROR = re.compile(
    r"/gloo/transport/\S+:\d+\] "
    r"(Timed out waiting|(Connect|Read|Write|Wait) timeout|Connection closed by peer|Read error|writev|send)"
    r"|Application timeout caused pair closure|" + _BY_THE_STORE
)
# Longer than the timeout of the process group that an exercise uses, so that a stuck rank raises its own error first,
# and long enough for a right answer on a machine that thirty learners share.
SECONDS_TO_ANSWER = 40
LETTERS_OF_AN_ERROR = 1000  # at most, in a verdict; grading sets a lower number
_SECONDS_TO_MEET = 10  # for a barrier of idle ranks, even on a busy machine
_interrupted = {}  # by the process id of a rank: the exercise whose check was interrupted on it, and when
_broken = []  # a list of process ids for each world whose group an attempt broke, and which needs a restart
killed = set()  # the process ids of ranks that a check killed; grading asks them for no fingerprints


class Verdict:
    """The result of a check, which is true if the exercise is solved, and whose representation is its message."""

    def __init__(self, passed: bool, message: str):
        self.passed = passed
        self.message = message

    def __bool__(self):
        return self.passed

    def __repr__(self):
        return ("Solved. " if self.passed else "Not yet. ") + self.message


def verdict(world, exercise: exam.Exercise) -> Verdict:
    """Return the verdict on the learner's function: what is wrong with it, or that the exercise is solved.

    Unless the function makes a group of its own, call it only if the group of all ranks works, because an answer must
    not be blamed for a group that was broken before. Raises `WorldError` when `world` is not a world.
    """
    if not isinstance(world, World):
        call = f"checks.{exercise.module.rpartition('.')[2]}.{exercise.name}"
        raise WorldError(f"{call}({world!r}): give the world, as in {call}(world).")
    try:
        if exercise.before:
            exercise.before(world)
        ranks = exercise.ranks_of(world.size)
        if len(ranks) < world.size:
            world = _Part(world, ranks)
        _require_idle(world, exercise.actors)
        _require_on_ranks(world, exercise.name)
        if not exercise.own_group:
            _require_group(world)
        for pid in world.pids:
            _interrupted.pop(pid, None)
        outcomes = examine(world, exercise)
        _require_no_failure(exercise, ranks, outcomes)
        _require_an_end(outcomes, (exercise.name, *exercise.also), _what_to_do(world, exercise, outcomes))
        if faults := [outcome.fault for outcome in outcomes if outcome.fault]:
            # The earliest requirement that failed; if it failed on several ranks, min returns the lowest rank's fault.
            raise Wrong(min(faults, key=lambda fault: fault[0])[1])
        returned = [outcome.returned for outcome in outcomes]
        sentence = exercise.together(returned) if exercise.together else returned[0]
    except Wrong as wrong:
        return Verdict(False, str(wrong).replace(RESTART, exercise.restart or RESTART))
    for name in (exercise.name, *exercise.also):
        accept(world, name)
    return Verdict(True, sentence)


class _Part:
    """The part of a world that judging needs, for an exercise in which only some ranks take part.

    `size` is the size of the whole world.
    """

    def __init__(self, world, ranks):
        self.accepted = world.accepted
        self.size = world.size
        self.pids = [world.pids[rank] for rank in ranks]
        self.view = world.view.client[[world.view.targets[rank] for rank in ranks]]
        self.where = lambda: [world.where()[rank] for rank in ranks]
        self.call = functools.partial(world.call, targets=list(ranks))


def kill_last(world) -> None:
    """Kill the last rank if it is alive, and wait until it is dead. Raises `Wrong` when another rank is not idle."""
    *others, last = world.where()
    if last.state == "dead":
        return
    for state in (*others, last):
        if state.state != "idle":
            raise Wrong(f"Rank {state.rank} is {state.state}. {RESTART}")
    killed.add(world.pids[-1])
    os.kill(world.pids[-1], signal.SIGKILL)
    world.where(until={last.rank: "dead"})


def examine_on_ranks(world, exercise: exam.Exercise) -> list[exam.Outcome]:
    """Have each rank run an exercise in the process of the learner's code, and return their outcomes in rank order."""
    try:
        with stuck_ranks_named(world, exercise.name):
            return world.call(exam.sit_here, exercise.module, exercise.name, seconds=SECONDS_TO_ANSWER)
    except KeyboardInterrupt:
        _note_interrupt(world, exercise)
        raise WorldError(
            f"You interrupted the check of `{exercise.name}`, and every rank has left it. world.post_mortem(0) shows "
            "the line at which rank 0 was interrupted."
        ) from None
    except WorldError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # some ranks are still in the check
            _note_interrupt(world, exercise)
        raise


examine = examine_on_ranks  # `helpers.grade.runner` replaces it with `helpers.grade.outside.examine`


@contextmanager
def stuck_ranks_named(world, function: str):
    """Raise `Wrong` if the block raises `TimeoutError`, or the error of a rank while some rank is dead or not idle."""
    try:
        yield
    except TimeoutError:
        where = f"world.where() shows where they are:\n\n{world.where()!r}\n"
        raise Wrong(f"`{function}` did not end on all ranks within {SECONDS_TO_ANSWER} s; {where}\n{RESTART}") from None
    except ipp.error.RemoteError:
        _require_idle(world)  # it names a rank that is dead
        raise


def _note_interrupt(world, exercise):
    _interrupted.update(dict.fromkeys(world.pids, (exercise, time.monotonic())))


def _require_idle(world, actors=False):
    """Require that every rank is idle; a rank with the threads of `actors` is never idle, and may be serving."""
    for pid, state in zip(world.pids, world.where(), strict=True):
        if state.state not in (("idle", "serving") if actors else ("idle",)):
            if interrupted := _interrupted_on(pid, state):
                wait = "Wait until its call times out, then run this check again."
                raise Wrong(
                    f"Rank {state.rank} is still in the check of `{interrupted.name}`, which you interrupted. "
                    f"{wait if interrupted.own_group else RESTART}"
                )
            aborted = (state.state, state.line) == ("dead", "SIGABRT")
            why = " (SIGABRT). gloo aborts a process if the calls of the ranks do not match" if aborted else ""
            raise Wrong(f"Rank {state.rank} is {state.state}{why}. {RESTART}")


def _interrupted_on(pid, state):
    """Return the exercise in which a rank has been busy since its check was interrupted, or None."""
    exercise, when = _interrupted.get(pid, (None, 0))
    return exercise if state.seconds is not None and state.seconds > time.monotonic() - when else None


def _require_on_ranks(world, function):
    """Require that the ranks, and not only the notebook, ran the last cell that defines the learner's function."""
    cell = _last_cell_with(function)
    own = _file_of(function)
    if not cell or not own or cell.lstrip().startswith("%%px"):
        return
    on_ranks = world.view.apply_async(_file_of, function).get(SECONDS_TO_ANSWER)
    if own in on_ranks:  # `world.view.push` sent it there, or an equal cell with `%%px` defined it before
        return
    theirs = f"still have the old `{function}`" if any(on_ranks) else f"have no `{function}`"
    raise Wrong(
        f"You defined `{function}` in the notebook, but the ranks {theirs}. Put `%%px` in the first line of the cell "
        "that defines it, run that cell, then this check."
    )


def _last_cell_with(function):
    """Return the last cell of this session that defines a function, "" without such a cell and outside IPython."""
    shell = get_ipython()
    if shell is None:
        return ""
    definition = re.compile(rf"^[ \t]*(?:def|class) +{function}\b", re.MULTILINE)
    cells = [cell for _, _, cell in shell.history_manager.get_range(session=0) if definition.search(cell)]
    return cells[-1] if cells else ""


def _file_of(function):
    """Return the name of the file that defines a function or a class of this process, "" if no file does.

    IPython makes the name from the text of a cell, so it is the same in the notebook and on the ranks.
    """
    named = getattr(learners_module(), function, None)
    for part in (named, *getattr(named, "__dict__", {}).values()):  # of a class, its methods
        if hasattr(part, "__code__"):
            return Path(part.__code__.co_filename).name
    return ""


def _require_group(world):
    """Require that a barrier of all ranks succeeds, if they made a group of all ranks."""
    if world.pids in _broken:
        raise Wrong(f"An earlier attempt broke the process group. {RESTART}")
    interrupted = next((_interrupted[pid][0] for pid in world.pids if pid in _interrupted), None)
    cause = f"when you interrupted the check of `{interrupted.name}`" if interrupted else "by an earlier cell"
    for rank, error in enumerate(_errors_of_a_barrier(world)):
        if error:
            raise Wrong(
                f"The process group was broken before this check called your answer, {cause}: on rank "
                f"{rank} a barrier raises {error}\n{RESTART}"
            )


def _errors_of_a_barrier(world):
    """Return the error of a barrier of all ranks on each rank, as text, as `_meet` does."""
    try:
        return world.view.apply_async(_meet, len(world.pids)).get(SECONDS_TO_ANSWER)
    except TimeoutError:
        return [f"TimeoutError after {SECONDS_TO_ANSWER} s"]


def _meet(ranks):
    """Return the error of a barrier of all ranks as text.

    The text is empty without an error, without a gloo group, and if the group has other ranks as well.
    """
    if not dist.is_initialized() or dist.get_backend() != "gloo" or dist.get_world_size() > ranks:
        return ""
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=_SECONDS_TO_MEET))
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def _require_no_failure(exercise, ranks, outcomes):
    """Raise `WorldError` when the exercise itself failed on a rank, and no rank shows that the answer is the cause.

    A check sends messages, too, and such a message fails if the answer has failed on the rank at the other end.
    """
    errors = [outcome.error for outcome in outcomes if outcome.error]
    if any(outcome.fault for outcome in outcomes) or any(not TIMEOUT_ERROR.search(error) for error in errors):
        return
    for rank, outcome in zip(ranks, outcomes, strict=True):
        if outcome.failure and not (errors and TIMEOUT_ERROR.search(outcome.failure)):
            raise WorldError(
                f"The check of `{exercise.name}` failed on rank {rank}, and no rank shows why. {RESTART} If it fails "
                f"again, please report this error of the course:\n\n{outcome.failure}"
            )


def _unfinished(outcome):
    return [message for message in outcome.messages if message.ended is None]


def _what_to_do(world, exercise, outcomes):
    """Return what the learner has to do if a rank was cut off or a message is lost; note a group that may be broken."""
    disturbed = any(TIMEOUT_ERROR.search(outcome.error) or _unfinished(outcome) for outcome in outcomes)
    if exercise.own_group:
        return RESTART if disturbed and any(_errors_of_a_barrier(world)) else NO_RESTART
    if disturbed:
        _broken.append(world.pids)
    return RESTART


def _require_an_end(outcomes, functions, what_to_do):
    """Require that every rank returned without an error, and that every message was waited for and received."""
    cut_off = [rank for rank, outcome in enumerate(outcomes) if TIMEOUT_ERROR.search(outcome.error)]
    for rank, outcome in enumerate(outcomes):
        for name in functions:
            if outcome.error == missing(name):
                raise Wrong(f"Rank {rank} has no function `{name}`: run the cell that defines it, then this check.")
        if outcome.error and rank not in cut_off:
            error = shortened(outcome.error.splitlines()[0], LETTERS_OF_AN_ERROR)
            raise Wrong(f"Rank {rank} raised {error}" + (f"\n{what_to_do}" if cut_off else ""))
    _require_waits(outcomes, cut_off, what_to_do)
    if cut_off:
        raise Wrong(f"Deadlock: until the timeout, {_waits(outcomes, cut_off)}. {what_to_do}")
    sent = Counter((rank, m.peer) for rank, outcome in enumerate(outcomes) for m in outcome.messages if m.sent)
    received = Counter((m.peer, rank) for rank, outcome in enumerate(outcomes) for m in outcome.messages if not m.sent)
    for source, destination in sorted((sent - received).keys()):
        raise Wrong(
            f"Rank {destination} did not receive all messages from rank {source}, expected a receive for each send. "
            f"{what_to_do}"
        )


def _require_waits(outcomes, cut_off, what_to_do):
    """Require that a rank waited for each of its messages.

    A rank that was cut off might have waited for its remaining messages later. If the peer waited for such a message in
    vain, the rank did not keep the work object: a message arrives as long as its work object is kept.

    An example, in which all four ranks are cut off. Rank 0 drops the work object of its isend to rank 1, and rank 1
    waits for that message: rank 0 is wrong. Rank 2 keeps the work object of its isend to rank 3, but waits for rank 1
    first, and rank 3 does not wait for rank 2: rank 2 might have waited later.
    """
    for rank, outcome in enumerate(outcomes):
        for message in outcome.messages:
            if message.waited is None and (rank not in cut_off or _awaited(message, rank, outcomes)):
                work = "isend" if message.sent else "irecv"
                raise Wrong(
                    f"Rank {rank} never waited for its {_with_peer(message)}, so that message may be lost. "
                    f"Keep the work object that {work} returns, and call its wait(). {what_to_do}"
                )


def _awaited(message, rank, outcomes):
    """Return whether the rank at the other end of a message waited for it without success."""
    if message.peer is None:
        return False
    other_ends = [m for m in outcomes[message.peer].messages if m.peer == rank and m.sent != message.sent]
    return any(m.waited is not None and m.ended is None for m in other_ends)


def _with_peer(message):
    name = "send" if message.sent else "receive"
    if message.peer is None:
        return name
    return f"{name} {'to' if message.sent else 'from'} rank {message.peer}"


def _waits(outcomes, cut_off):
    """Say where each rank waited when it was cut off; ranks that waited in the same call are named together."""
    ranks_by_call = defaultdict(list)
    for rank in cut_off:
        ranks_by_call[_waited_in(outcomes[rank])].append(str(rank))
    return "; ".join(
        f"{'rank' if len(ranks) == 1 else 'ranks'} {_joined(ranks, 'and')} waited{call}"
        for call, ranks in ranks_by_call.items()
    )


def _waited_in(outcome):
    """Return the call in which a rank was cut off, as in " in a send to rank 1"; an empty text if it is unknown."""
    for message in outcome.messages:
        if message.waited is not None and message.ended is None and message.peer is not None:
            return f" in a {message.call} {'to' if message.sent else 'from'} rank {message.peer}"
    if re.search(_BY_THE_STORE, outcome.error):
        return " for a key of the store"
    collectives = sorted({f"`{name}`" for run in outcome.runs[-1:] for name in run.collectives})
    return f" in {_joined(collectives, 'or')}" if collectives else ""


def _joined(parts, word):
    """Return parts as text: "1", "1 and 2", "1, 2 and 3"."""
    *first, last = parts
    return f"{', '.join(first)} {word} {last}" if first else last
