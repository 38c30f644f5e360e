"""Where the collectives of the ranks differ: the calls of each group laid side by side, in their order.

Collectives are paired by their order: the first call of each rank in a group with the first of all others. Two calls
fit when function, operator, source, shape and type are the same. The line that they come from may be another one, as
under an `if rank == 0`, unless it shows that the ranks have come to the same lines in another order.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from helpers.ranks.recorder import Group
from helpers.table import table

# What a table says of a call, and of one that is missing.
COLUMNS = ["call", "shape", "type", "op", "src", "line", "code"]
_NOTHING = ["nothing", *[None] * 6]
# What a rank does that differs, and several ranks do.
_SENTENCES = {
    "missing": ("has not called it", "have not called it"),
    "extra": ("has called it, and the others have not", "have called it, and the others have not"),
    "swapped": ("makes two calls in another order", "make two calls in another order"),
    "call": ("calls another function", "call another function"),
    "operator": ("brings another operator", "bring another operator"),
    "source": ("names another source", "name another source"),
    "shape": ("brings another shape", "bring another shape"),
    "type": ("brings another type", "bring another type"),
}
# How far a call is looked for on another rank before it counts as absent there.
_CALLS_AHEAD = 16
# By how much the numbers of ranks may differ where the oldest calls are gone, the likeliest first; and how many calls
# are looked at to find out.
_SHIFTS = sorted(range(-32, 33), key=abs)
_CALLS_TO_MEET = 200
# Ranks may bring different shapes to these.
_UNEVEN = ("all_to_all", "alltoall")


class Call(NamedTuple):
    """One collective of one rank.

    `number` counts the collectives of the rank in this group. `src` is the rank that a broadcast or a scatter comes
    from, or to which a reduce or a gather goes. `op` and `src` are None where there is none, and where C++ has made the
    call, as DistributedDataParallel does. `line_number` counts the lines of the cell from 1, its `%%px` line included;
    `path` is the name of the file that the line is in: of a cell, the one that IPython makes up.
    """

    time: int
    group: Group
    number: int
    call: str
    shape: tuple[tuple[int, ...], ...]
    type: tuple[str, ...]
    op: str | None
    src: int | None
    path: str
    line_number: int
    line: str


class Difference(NamedTuple):
    """A place at which the collectives of a group differ; shows as a table of them, rank by rank.

    `kind` says in what, seen from most of its ranks: "missing" (a rank has not made the call), "extra" (only this rank
    has made it), "swapped" (a rank makes it later, and another one first), "call" (another function), "operator",
    "source", "shape" or "type". `ranks` are those that differ from the others. `calls` has the call of each rank of the
    group, None where it is missing.
    """

    kind: str
    group: Group
    ranks: tuple[int, ...]
    calls: dict[int, Call | None]

    def __repr__(self):
        one, several = _SENTENCES[self.kind]
        who = f"rank {self.ranks[0]} {one}" if len(self.ranks) == 1 else f"ranks {_say_ranks(self.ranks)} {several}"
        number = max(call.number for call in self.calls.values() if call)
        rows = [[rank, *(columns(call) if call else _NOTHING)] for rank, call in self.calls.items()]
        return f"Call {number} in group {say_group(self.group)}: {who}.\n" + table(["rank", *COLUMNS], rows)


def columns(call: Call) -> list:
    """Return what a table says of a call, under `COLUMNS`."""
    shape, kind = ", ".join(str(list(sizes)) for sizes in call.shape), ", ".join(dict.fromkeys(call.type))
    return [call.call, shape, kind, call.op, call.src, call.line_number, call.line]


def say_group(group: Group) -> str:
    """Return the description of a group, or its name when nobody has described it."""
    return group.name if group.description == "undefined" else group.description


def _say_ranks(ranks):
    return f"{', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def compare(
    group: Group, calls: Mapping[int, Sequence[Call]], busy_since: Mapping[int, int]
) -> tuple[list[Difference], dict[int, Call]]:
    """Return the differences between the ranks that are in this group, in their order, and which ranks are behind.

    `calls` has the calls of each of these ranks in the group, `busy_since` the moment at which each busy rank has begun
    what it does now. What others have called before that, beyond its last call, is missing; what they have called after
    it, the rank may still come to: it is behind, and returned with the first such call. An idle rank comes to nothing.
    """
    rows = _rows(calls)
    found, behind, place = [], {}, 0
    while here := {rank: row[place] for rank, row in rows.items() if len(row) > place}:
        called = min(call.time for call in here.values())
        late = {rank for rank in rows.keys() - here.keys() if called > busy_since.get(rank, called)}
        behind = {rank: here[_of_most(here)] for rank in late} | behind
        kinds = _kinds(rows, here, place, late)
        for kind in dict.fromkeys(kinds.values()):
            ranks = tuple(rank for rank in kinds if kinds[rank] == kind)
            found.append(Difference(kind, group, ranks, _side_by_side(rows, here, kind, ranks)))
        for rank, kind in kinds.items():
            _mend(rows[rank], here[_of_most(here)], place, kind)
        place += "extra" not in kinds.values()  # else the next call of those ranks belongs to this place
    return found, behind


def _rows(calls):
    """Return the calls of each rank, from the first on that all ranks still have.

    Where the oldest are gone a rank has numbered the rest by the group's own count, and that counts messages, too: if
    ranks have sent unlike numbers of them, their calls have to be brought together again.
    """
    numbered = {rank: {call.number: call for call in of_rank} for rank, of_rank in calls.items()}
    if any(of_rank and of_rank[0].number > 1 for of_rank in calls.values()):
        model = max(numbered.values(), key=len)
        for rank, of_rank in numbered.items():
            shift = max(_SHIFTS, key=partial(_calls_that_meet, of_rank, model))
            numbered[rank] = {number + shift: call for number, call in of_rank.items()}
    first = max((min(of_rank) for of_rank in numbered.values() if of_rank), default=0)
    return {rank: [call for number, call in of_rank.items() if number >= first] for rank, of_rank in numbered.items()}


def _kinds(rows, here, place, late):
    """Return in what each rank differs from most others at this place, by rank."""
    over = [rank for rank in rows if rank not in here and rank not in late]
    if len(over) > len(here):
        return {rank: "extra" for rank in here}
    model = _of_most(here)
    kinds = {rank: _kind(rows[model][place:], rows[rank][place:]) for rank in here if rank != model}
    if extra := {rank: kind for rank, kind in kinds.items() if kind == "extra"}:
        return extra  # the others are looked at once these are gone
    kinds |= {rank: "missing" for rank in over}
    return {rank: kinds[rank] for rank in sorted(kinds) if kinds[rank]}


def _side_by_side(rows, here, kind, ranks):
    """Return the call of each rank at a place, None where it is missing; a rank that may still come has none."""
    if kind == "extra":
        return {rank: here[rank] if rank in ranks else None for rank in rows}
    absent = ranks if kind == "missing" else ()
    return {rank: None if rank in absent else here[rank] for rank in rows if rank in here or rank in absent}


def _of_most(here):
    """Return the first of the ranks whose call most others make, too."""
    return max(sorted(here), key=lambda rank: sum(_is_same(here[rank], other) for other in here.values()))


def _kind(model, row):
    """Return in what the first call of a row differs from that of the model, None if in nothing that matters."""
    if _is_same(model[0], row[0]):
        return None
    unlike = _unlike(model[0], row[0])
    if unlike is None and len(model) == len(row) and Counter(map(_place, model)) != Counter(map(_place, row)):
        return None  # they fit, and so do all that follow: the ranks have parts of their own
    if unlike and len(model) > 1 < len(row) and _is_same(model[1], row[1]):
        return unlike  # one call stands for the other, and they go on together
    comes_later = any(_is_same(model[0], call) for call in row[1:_CALLS_AHEAD])
    came_too_early = any(_is_same(row[0], call) for call in model[1:_CALLS_AHEAD])
    if comes_later and came_too_early:
        # In a loop every call comes again: then the number of calls decides.
        return "swapped" if len(model) == len(row) else "missing" if len(model) > len(row) else "extra"
    if came_too_early:
        return "missing"
    return "extra" if comes_later else unlike


def _mend(row, model, place, kind):
    """Change the row of a rank as if it had called the model at this place, so that the next difference is found."""
    if kind == "missing":
        row.insert(place, model)
    elif kind == "extra":
        del row[place]
    elif kind == "swapped":
        later = next(index for index in range(place + 1, len(row)) if _is_same(model, row[index]))
        row.insert(place, row.pop(later))


def _calls_that_meet(row, model, shift):
    """Return how many of the first calls of a row are those of the model when their numbers are shifted."""
    some = list(row.items())[:_CALLS_TO_MEET]
    return sum(number + shift in model and _is_same(call, model[number + shift]) for number, call in some)


def _is_same(call, other):
    """Return whether these are the same call of two ranks, from the same line.

    One that a thread of C++ makes, as for the callback of a future, comes from no line: it may be any.
    """
    no_line = "" in (call.path, other.path)
    return (no_line or _place(call) == _place(other)) and _unlike(call, other) is None


def _place(call):
    return call.path, call.line_number


def _unlike(call, other):
    """Return in what two calls do not fit, None when they do."""
    if call.call != other.call:
        return "call"
    if None not in (call.op, other.op) and call.op != other.op:
        return "operator"
    if None not in (call.src, other.src) and call.src != other.src:
        return "source"
    if call.shape != other.shape and call.call not in _UNEVEN:
        return "shape"
    return "type" if call.type != other.type else None
