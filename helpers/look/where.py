"""Locate every rank, down to the line of the learner's own cell, even while it is blocked inside a C++ call.

`helpers.probe.stacks` defines what a rank reports about its stacks.
"""

import re
import time
from collections import Counter
from collections.abc import Mapping
from itertools import chain, pairwise, product
from types import MappingProxyType
from typing import NamedTuple

from helpers.look.cells import Cells
from helpers.probe.recorder import CELL
from helpers.probe.side_channel import Failed
from helpers.probe.stacks import Stacks
from helpers.ranks.protocol import Ranks
from helpers.table import shortened, table

# torch's decorators, whose frames are between a cell and the collective that it calls.
_DECORATORS = ("wrapper", "decorate_context")

# The path of ipyparallel's own line, result = function(*arguments), and the function that runs this line.
_CALL_OF_IPYPARALLEL = ("<string>", "do_apply")

# Calls with a sender and a receiver, and all_to_all, in which the shapes of the ranks may differ.
_ONE_TO_ONE = re.compile(r"send|recv|all_to_all")
_MAY_DIFFER = ("in", "of", "tag", "scatter_list", "gather_list")

# The message when no cell can reach a rank any more.
NO_CONNECTION = (
    "The process that carries messages between the notebook and its ranks has died. Call world.restart() for working "
    "ranks."
)

_WIDTH = 110  # characters; longer lines of the learner's code are shortened to fit
_BEGINNING_OF_LINE = 30  # characters of the learner's code that are shown in any case

_SECONDS_UNTIL_THERE = 10
_SECONDS_BETWEEN_LOOKS = 0.02


class RankState(NamedTuple):
    """What one rank is doing.

    `state` is "idle", "busy", "serving" (one of its threads runs the learner's code for a caller on another rank),
    "silent" (alive, but not answering; `line` says why if its helpers raised an error), "cut off" (idle, and no cell
    can reach it) or "dead". `seconds` is how long the rank has been busy with a cell or a `world.call`, None if only
    `world.view` or a check keeps it busy. `call` is the function that the learner's line called, empty when it called
    no Python function. `line_number` counts the lines of the cell from 1, including its `%%px` line. If a `world.call`
    called a function that no cell defines, `line` is the line of the notebook with this `world.call`.

    `arguments` has the arguments of `call` by name: a tensor as its dtype and shape, a group as its ranks and torch's
    name for the group. If `call` called another function of torch, `in` is the name of that function. For a wait, `of`
    is the function that returned the handle, and `arguments` has the arguments of that function. `differs` names the
    arguments in which this rank is the odd one out: at most half of the ranks of its group that are in the same
    collective have the same value.

    `serves` says which functions its RPC thread pool runs, and which ranks wait for them.
    """

    rank: int
    state: str
    seconds: float | None = None
    call: str = ""
    line_number: int | None = None
    line: str = ""
    arguments: Mapping[str, object] = MappingProxyType({})
    differs: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()


class Whereabouts(list):
    """A list with a `RankState` for each rank; its representation is a table, below a `note` if there is one."""

    note = ""

    def __repr__(self):
        columns = {
            "rank": [s.rank for s in self],
            "state": [s.state for s in self],
            "for": ["" if s.seconds is None else f"{s.seconds:.1f} s" for s in self],
            "call": [s.call for s in self],
            "with": [_say_arguments(s, len(self)) for s in self],
            "serves": [", ".join(s.serves) for s in self],
            "line": [s.line_number for s in self],
        }
        for optional in ("with", "serves"):
            if not any(columns[optional]):
                del columns[optional]
        used = len(_table(columns).splitlines()[0]) + 2
        room = max(_BEGINNING_OF_LINE, _WIDTH - used)
        shown = _table(columns | {"code": [shortened(s.line, room) for s in self]})
        return f"{self.note}\n{shown}" if self.note else shown


def is_cell(path: str) -> bool:
    """Return whether a path in a stack is the name that IPython gives to a cell."""
    return bool(CELL.search(path))


def whereabouts(ranks: Ranks, cells: Cells) -> Whereabouts:
    """Ask every rank where it is, and return the answers.

    `cells` are the cells that the ranks were sent.
    """
    owed = cells.owed()
    return from_stacks(ranks.stacks(set(range(ranks.size)) - ranks.deaths().keys()), owed, ranks, cells)


def whereabouts_when(expected: Mapping[int, str] | str, ranks: Ranks, cells: Cells) -> Whereabouts:
    """Ask every rank where it is until each rank in `expected` is in that call or state, for at most 10 s.

    A text stands for any rank: ask until one of the ranks is in that call or state.
    """
    deadline = time.monotonic() + _SECONDS_UNTIL_THERE
    while True:
        where = whereabouts(ranks, cells)
        if _are_there(where, expected) or time.monotonic() > deadline:
            return where
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _are_there(where, expected):
    """Return whether the ranks are where `whereabouts_when` expects them."""
    if isinstance(expected, str):
        return any(expected in (state.call, state.state) for state in where)
    return all(name in (where[rank].call, where[rank].state) for rank, name in expected.items())


def from_stacks(answers: Mapping[int, Stacks | Failed], owed: Mapping[int, float], ranks, cells: Cells) -> Whereabouts:
    """Return where the ranks are; `answers` has the stacks of the ranks that answered, `owed` is from `cells.owed`."""
    dead, connected = ranks.deaths(), ranks.is_connected()
    stacks = {rank: answer for rank, answer in answers.items() if isinstance(answer, Stacks) and rank not in dead}
    states = []
    for rank in range(ranks.size):
        if rank in dead:
            states.append(RankState(rank, "dead", line=dead[rank]))
        elif rank in stacks:
            state = _state(rank, stacks[rank], owed.get(rank), cells)
            states.append(state._replace(state="cut off") if state.state == "idle" and not connected else state)
        else:
            states.append(RankState(rank, "silent", owed.get(rank), line=str(answers.get(rank, ""))))
    callers = _callers(stacks)
    where = Whereabouts(
        state._replace(
            differs=_differs(state, states),
            serves=_serves(stacks[state.rank].others, callers) if state.rank in stacks else (),
        )
        for state in states
    )
    where.note = "" if connected else NO_CONNECTION
    return where


def _state(rank, stacks, seconds, cells):
    place = _place(stacks.main_thread, cells) or _place_of_call(stacks.main_thread, cells.calls().get(rank))
    if place or seconds is not None:
        return RankState(rank, "busy", seconds, *(place or ()))
    for frames in stacks.others:
        if place := _place(frames, cells):
            return RankState(rank, "serving", None, *place)
    return RankState(rank, "idle")


def _place(frames, cells):
    """Return the call, the line number and the line of the learner's code that a thread runs, or None.

    The call has the arguments of the first of torch's functions whose frame has recorded any.
    """
    for index, frame in enumerate(frames):
        if is_cell(frame.path):
            call, arguments = _call(frames[:index])
            return call, *cells.line(frame.path, frame.line_number), arguments
    return None


def _place_of_call(frames, line):
    """Return, as `_place` does, where a thread is in a function that the notebook sent, or None.

    `line` is the notebook's line with its number, None if the function was not sent by `world.call`.
    """
    for index, (frame, outer) in enumerate(pairwise(frames)):
        if (frame.path, outer.function) == _CALL_OF_IPYPARALLEL:
            call, arguments = _call(frames[:index])
            return call, *(line or (None, "")), arguments
    return None


def _call(inner_frames):
    """Return the function that a line called, and its arguments, from the frames that are inside this line."""
    called = [inner for inner in reversed(inner_frames) if inner.function not in _DECORATORS]
    names = [inner.function for inner in called]
    call = next((name for name in names if not name.startswith("_")), names[0] if names else "")
    telling = next((inner for inner in called if inner.arguments), None)
    return call, _arguments(telling, call) if telling else {}


def _arguments(frame, call):
    """Return the arguments of a frame of torch, with its function as `in` when that is not the call itself.

    A wait has `of` instead, and the arguments of the function that returned the handle.
    """
    is_another = frame.function != call and not frame.function.startswith("_")
    return {"in": frame.function, **frame.arguments} if is_another and "of" not in frame.arguments else frame.arguments


def _differs(state, states):
    """Return the names of the arguments in which a rank is the odd one out of the ranks in the same collective."""
    if _collective(state) is None:
        return ()
    members, group = state.arguments["group"], state.arguments["group_name"]
    participants = [other for other in states if other.rank in members and _collective(other) == _collective(state)]
    same_group = [other for other in participants if other.arguments["group_name"] == group]
    odd = []
    for name, value in state.arguments.items():
        others = participants if name in ("group", "group_name") else same_group
        values = [other.arguments.get(name) for other in others]
        if name == "group_name" and "group" in odd:
            continue  # another group has another name in any case
        if name not in _MAY_DIFFER and values.count(value) * 2 <= len(values):
            odd.append(name)
    return tuple(odd)


def _collective(state):
    """Return the name of the collective that a rank is in, None for a call whose arguments naturally differ."""
    name = state.arguments.get("of", state.arguments.get("in", state.call))
    return name if "group" in state.arguments and not _ONE_TO_ONE.search(name) else None


def _callers(stacks):
    """Return, for each worker and function, the ranks that wait for this call."""
    callers = {}
    for rank, (main_thread, others) in stacks.items():
        for frame in chain(main_thread, *others):
            workers = frame.arguments.get("to", "").split(", ")
            functions = frame.arguments.get("function", "").split(", ")
            for call in product(workers, functions):
                callers.setdefault(call, set()).add(rank)
    return callers


def _serves(threads, callers):
    """Return the functions that the RPC thread pool runs, with the number of threads and the waiting ranks of each."""
    requests = Counter()
    for frames in threads:
        for frame in frames:
            if "requested" in frame.arguments:
                requests[frame.arguments["of"], frame.arguments["requested"]] += 1
    return tuple(_say_request(call[1], number, sorted(callers.get(call, ()))) for call, number in requests.items())


def _say_request(function, number, callers):
    times = f"{number} x " if number > 1 else ""
    ranks = f" for rank{'s' * (len(callers) > 1)} {', '.join(map(str, callers))}" if callers else ""
    return f"{times}{function}{ranks}"


def _say_arguments(state, size):
    """Return the arguments of a call as text: a tensor without its name, a group only if it lacks some ranks.

    A group is shown in any case when it is an argument in which the rank differs.
    """
    texts = []
    for name, value in state.arguments.items():
        odd = " (differs)" if name in state.differs else ""
        if name in ("in", "of"):
            texts.append(f"{name} {value}")
        elif name == "tensor":
            texts.append(f"{value}{odd}")
        elif odd or not ((name == "group" and len(value) == size) or name == "group_name"):
            texts.append(f"{name}={value}{odd}")
    return ", ".join(texts)


def _table(columns):
    return table(list(columns), [list(row) for row in zip(*columns.values(), strict=True)])
