"""The collectives that a rank has called: a thread of the rank tells of them, also while it is blocked in C++.

torch's flight recorder keeps the last calls of a process, whoever makes them, with the lines of Python that they come
from. What it leaves out is noted when a call passes: the operator, and the rank that it comes from or goes to.

A rank of this machine is asked as `helpers.ranks.side_channel` says, an engine of a cluster by a signal, as for its
stacks.
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

# How ipykernel names the file of a learner's cell.
CELL = re.compile(r"ipykernel_\d+[/\\]\d+\.py$")

# The functions in which an engine does what it is asked for.
_REQUESTS = {"execute_request", "apply_request"}
# Where the code is that notes, counts and times calls: it stands between the learner's line and torch.
_OBSERVERS = {Path(__file__).parents[1] / "tap.py", Path(__file__).parents[1] / "measure"}
_AS_MANY_AS_THE_RECORDER = 2000

_notes = deque(maxlen=_AS_MANY_AS_THE_RECORDER)
_groups = {}  # by name, those since the last init_process_group
_made = {}  # by name, when each was made, by time.time_ns


class Group(NamedTuple):
    """A process group: its name, its description, and its ranks as `torch.distributed` numbers them."""

    name: str
    description: str
    ranks: tuple[int, ...]


class Recorded(NamedTuple):
    """One collective of one rank.

    `time` is the moment of the call, by time.time_ns. `number` counts the collectives of this rank in this group.
    `call` is torch's name of it, such as all_reduce. `shapes` and `types` are those of the tensors that the rank
    brings, in a scatter of those that it gets. `op` and `root` are None where there is none, and where it is not known,
    as in a call that C++ makes. `path` and `line_number` are the place that it comes from, in a cell if there is one.
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
    """What a rank tells: its groups since the last init_process_group, and its last collectives in them, in order.

    `busy_since` is when it was sent what it is busy with, by time.time_ns, and None when it is idle.
    """

    busy_since: int | None
    groups: list[Group]
    calls: list[Recorded]


class _Note(NamedTuple):
    """What passed in a call of one thread between two moments: the options of the call."""

    thread: int
    begin: int
    end: int
    options: object


def watch() -> None:
    """From now on note what the flight recorder leaves out, which takes a call about a microsecond. Twice is once."""
    from helpers import tap

    tap.subscribe(tap.Collective, end=_note)
    tap.subscribe(tap.NewGroup, begin=_forget_groups, end=_note_group)


def record() -> Record:
    """Return the groups and the last collectives of this process.

    Not among them are those of groups that compare notes (TORCH_DISTRIBUTED_DEBUG=DETAIL), which the flight recorder
    does not know by name, and those of backends that do not use it.
    """
    from helpers.torch_parts import flight_records

    busy_since = _busy_since()  # before its calls: one that is idle has made all that it will make
    notes, counted, calls = _notes_by_thread(), Counter(), []
    entries = flight_records()
    for entry in entries:
        name, _ = entry["process_group"]
        if entry["time_created_ns"] < _made.get(name, math.inf) or entry["is_p2p"]:
            continue
        has_all_calls = entries[0]["record_id"] == 0 or entries[0]["time_created_ns"] < _made[name]
        if has_all_calls or counted[name]:
            counted[name] += 1
        else:  # the oldest calls are gone: the group's own number is the best there is, though it counts messages, too
            counted[name] = entry["collective_seq_id"]
        calls.append(_recorded(entry, _groups[name], counted[name], notes))
    return Record(busy_since, list(_groups.values()), calls)


def _busy_since():
    """Return when the cell or the function was sent that this process runs for the notebook, None when it runs none."""
    from ipyparallel.engine.app import IPEngine
    from jupyter_client.jsonutil import extract_dates

    innermost = sys._current_frames()[threading.main_thread().ident]
    if _REQUESTS.isdisjoint(frame.f_code.co_name for frame, _ in traceback.walk_stack(innermost)):
        return None
    header = extract_dates(IPEngine.instance().kernel.get_parent("shell")["header"])
    return int(header["date"].timestamp() * 1e9)


def _recorded(entry, group, number, notes):
    call = entry["profiling_name"].rpartition(":")[2]
    brings = "output" if call == "scatter" else "input"
    options = _options(notes[int(entry["thread_id"])], entry["time_created_ns"])
    op = getattr(options, "reduceOp", None)
    root = getattr(options, "rootRank", None)
    return Recorded(
        entry["time_created_ns"],
        group,
        number,
        call,
        tuple(map(tuple, entry[f"{brings}_sizes"])),
        tuple(entry[f"{brings}_dtypes"]),
        None if op is None else op.op.name,
        None if root is None else group.ranks[root],
        *_place(entry["frames"]),
    )


def _notes_by_thread():
    """Return the notes of each thread, in the order of their begin."""
    notes = defaultdict(list)
    for note in sorted(list(_notes), key=lambda note: note[1]):
        notes[note[0]].append(_Note(*note))
    return notes


def _options(notes, moment):
    """Return the options of the call that a thread was in at this moment, None when none of its calls was noted."""
    place = bisect_right(notes, moment, key=lambda note: note.begin)
    return notes[place - 1].options if place and moment <= notes[place - 1].end else None


def _place(frames):
    """Return the file and the line that a call comes from: of the innermost cell, or of what is not torch's."""
    for frame in frames:
        if CELL.search(frame["filename"]):
            return frame["filename"], frame["line"]
    for frame in frames:
        path = Path(frame["filename"])
        if "torch" not in path.parts and _OBSERVERS.isdisjoint((path, path.parent)):
            return frame["filename"], frame["line"]
    return "", 0


def _note(event):
    """Note the options of a collective that have an operator or a root."""
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
