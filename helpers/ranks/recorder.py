"""The collectives that a rank has called: a thread of the rank tells of them, also while it is blocked in C++.

torch's flight recorder keeps the last calls of a process, whoever makes them, with the lines of Python that they come
from. What it leaves out is noted when a call passes: the operator, and the rank that it comes from or goes to.

A rank of this machine is asked as `helpers.ranks.questions` says, an engine of a cluster by a signal, as for its
stacks.
"""

import functools
import math
import re
import sys
import threading
import time
import traceback
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import NamedTuple

# How ipykernel names the file of a learner's cell.
CELL = re.compile(r"ipykernel_\d+[/\\]\d+\.py$")

# The methods of a process group whose options have an operator or a root; versions of torch differ in some of them.
_METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "_reduce_scatter_base",
    "scatter",
)
# The functions in which an engine does what it is asked for.
_REQUESTS = {"execute_request", "apply_request"}
# Where the code is that notes and counts calls: it stands between the learner's line and torch.
_OBSERVERS = {Path(__file__).parent, Path(__file__).parents[1] / "measure"}
_AS_MANY_AS_THE_RECORDER = 2000

_notes = deque(maxlen=_AS_MANY_AS_THE_RECORDER)
_groups = {}  # by name, those since the last init_process_group
_made = {}  # by name, when each was made, by time.time_ns
_is_watching = False


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
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    global _is_watching
    if _is_watching:
        return  # this engine has been a rank of another world
    _is_watching = True
    kinds = frozenset(vars(dist)[name] for name in vars(dist) if name.endswith("Options"))
    for method in _METHODS:
        if original := vars(dist.ProcessGroup).get(method):
            setattr(dist.ProcessGroup, method, _noting(original, method, kinds))
    distributed_c10d._new_process_group_helper = _noting_groups(distributed_c10d._new_process_group_helper)


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
        if "torch" not in path.parts and path.parent not in _OBSERVERS:
            return frame["filename"], frame["line"]
    return "", 0


def _noting(original, method, kinds):
    """Return a method that does the same as the original one, and notes the options of the call."""

    @functools.wraps(original)
    def call(group, *arguments, **keywords):
        begin = time.time_ns()
        work = original(group, *arguments, **keywords)
        if arguments and type(arguments[-1]) in kinds:  # else a tensor, which nobody may keep
            _notes.append((threading.get_ident(), begin, time.time_ns(), arguments[-1]))
        return work

    # By its name C++ tells the method that it calls from one that a backend written in Python brings along.
    call.__code__ = call.__code__.replace(co_name=method)
    return call


def _noting_groups(original):
    """Return a function that makes a group as the original one does, and notes it."""
    from torch.distributed import ProcessGroup

    @functools.wraps(original)
    def make(size, rank, ranks, backend, store, name, *arguments, **keywords):
        if not ranks:  # init_process_group makes the group of all ranks
            _groups.clear()
            _made.clear()
        begin = time.time_ns()
        made = original(size, rank, ranks, backend, store, name, *arguments, **keywords)
        if isinstance(group := made[0], ProcessGroup):  # else this rank is not in it
            _groups[name] = Group(name, group.group_desc, tuple(ranks or range(group.size())))
            _made[name] = begin
        return made

    return make
