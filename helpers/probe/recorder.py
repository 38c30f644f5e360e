"""The collectives that a rank has called; a thread of the rank reports them, even while the rank is blocked in C++.

torch's flight recorder keeps the last calls of a process, from Python and from C++, with the lines of Python that made
them. It leaves out the operator and the root, which this module notes during the call.

The notebook asks a rank of this machine through `helpers.probe.side_channel`, and an engine of a cluster by a signal,
as for its stacks.
"""

import math
import re
import sys
import threading
import traceback
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import NamedTuple

from jupyter_client.jsonutil import extract_dates

# How ipykernel names the file of a learner's cell.
CELL = re.compile(r"ipykernel_\d+[/\\]\d+\.py$")

# The functions in which an engine handles requests.
_REQUESTS = {"execute_request", "apply_request"}
# The files and folders of the code that notes, counts and times calls, between the learner's line and torch.
_OBSERVERS = {Path(__file__).parents[1] / "tap.py", Path(__file__).parents[1] / "measure"}
_AS_MANY_AS_THE_RECORDER = 2000

_notes = deque(maxlen=_AS_MANY_AS_THE_RECORDER)
_groups = {}  # name of each group since the last init_process_group: the group
_made = {}  # name of each group: time of its creation, by time.time_ns


class Group(NamedTuple):
    """A process group: its name, its description, and its ranks as `torch.distributed` numbers them."""

    name: str
    description: str
    ranks: tuple[int, ...]


class Recorded(NamedTuple):
    """One collective of one rank.

    `time` is the time of the call, by time.time_ns. `number` counts the collectives of this rank in this group. `call`
    is torch's name of the collective, such as all_reduce. `shapes` and `types` describe the input tensors of the rank,
    for a scatter its output tensors. `op` and `root` are None if the collective has none, or if they are not known, as
    in a call from C++. `path` and `line_number` are the place of the call, in a cell if it came from a cell.
    """

    time: int
    group: Group
    number: int
    call: str
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    op: str | None
    root: int | None
    path: str
    line_number: int


class Record(NamedTuple):
    """A rank's answer: its groups since the last init_process_group, and its last collectives in them, in order.

    `busy_since` is the time, by time.time_ns, at which the rank's present request was sent; None when it is idle.
    """

    busy_since: int | None
    groups: list[Group]
    calls: list[Recorded]


class _Note(NamedTuple):
    """The options of a call of one thread, with the times of its begin and end."""

    thread: int
    begin: int
    end: int
    options: object


def watch() -> None:
    """Start to note what the flight recorder leaves out; a second call does nothing.

    This costs each collective about a microsecond.
    """
    from helpers import tap

    tap.subscribe(tap.Collective, end=_note)
    tap.subscribe(tap.NewGroup, begin=_forget_groups, end=_note_group)


def record() -> Record:
    """Return the groups and the last collectives of this process.

    They do not include collectives of groups that check each other's calls (TORCH_DISTRIBUTED_DEBUG=DETAIL), whose
    names the flight recorder does not have, nor collectives of backends that do not use the flight recorder.
    """
    from helpers.torch_parts import flight_records

    busy_since = _busy_since()  # before reading the calls, because a rank that is idle now makes no further calls
    notes, counted, calls = _notes_by_thread(), Counter(), []
    entries = flight_records()
    for entry in entries:
        name, _ = entry["process_group"]
        if entry["time_created_ns"] < _made.get(name, math.inf) or entry["is_p2p"]:
            continue
        has_all_calls = entries[0]["record_id"] == 0 or entries[0]["time_created_ns"] < _made[name]
        if has_all_calls or counted[name]:
            counted[name] += 1
        else:  # the oldest calls are gone, so use the group's own number, although it also counts messages
            counted[name] = entry["collective_seq_id"]
        calls.append(_recorded(entry, _groups[name], counted[name], notes))
    return Record(busy_since, list(_groups.values()), calls)


def _busy_since():
    """Return the time at which the notebook sent the cell or function that runs here; None when nothing runs."""
    from ipyparallel.engine.app import IPEngine

    innermost = sys._current_frames()[threading.main_thread().ident]
    if _REQUESTS.isdisjoint(frame.f_code.co_name for frame, _ in traceback.walk_stack(innermost)):
        return None
    header = extract_dates(IPEngine.instance().kernel.get_parent("shell")["header"])
    return int(header["date"].timestamp() * 1e9)


def _recorded(entry, group, number, notes):
    call = entry["profiling_name"].rpartition(":")[2]
    side = "output" if call == "scatter" else "input"
    options = _options(notes[int(entry["thread_id"])], entry["time_created_ns"])
    op = getattr(options, "reduceOp", None)
    root = getattr(options, "rootRank", None)
    return Recorded(
        entry["time_created_ns"],
        group,
        number,
        call,
        tuple(map(tuple, entry[f"{side}_sizes"])),
        tuple(entry[f"{side}_dtypes"]),
        None if op is None else op.op.name,
        None if root is None else group.ranks[root],
        *_place(entry["frames"]),
    )


def _notes_by_thread():
    """Return the notes by thread, sorted by `begin`."""
    notes = defaultdict(list)
    for note in sorted(list(_notes), key=lambda note: note[1]):
        notes[note[0]].append(_Note(*note))
    return notes


def _options(notes, moment):
    """Return the options of the noted call that a thread was in at this moment, None if there is none."""
    place = bisect_right(notes, moment, key=lambda note: note.begin)
    return notes[place - 1].options if place and moment <= notes[place - 1].end else None


def _place(frames):
    """Return the file and the line of a call: the innermost frame in a cell, otherwise the innermost outside torch."""
    for frame in frames:
        if CELL.search(frame["filename"]):
            return frame["filename"], frame["line"]
    for frame in frames:
        path = Path(frame["filename"])
        if "torch" not in path.parts and _OBSERVERS.isdisjoint((path, path.parent)):
            return frame["filename"], frame["line"]
    return "", 0


def _note(event):
    """Note the options of a collective if they have an operator or a root."""
    kind = type(event.options)
    if event.end and (hasattr(kind, "reduceOp") or hasattr(kind, "rootRank")):
        _notes.append((threading.get_ident(), event.begin, event.end, event.options))


def _forget_groups(event):
    """Forget the groups before init_process_group makes the default group."""
    if not event.ranks:
        _groups.clear()
        _made.clear()


def _note_group(event):
    if group := event.group:
        _groups[event.name] = Group(event.name, group.group_desc, event.ranks or tuple(range(group.size())))
        _made[event.name] = event.begin
