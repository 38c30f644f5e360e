"""A collective of a rank, and a difference between the ranks, with the sentence and the table that show it.

How differences are found is in `helpers.look.alignment`.
"""

from typing import NamedTuple

from helpers.ranks.recorder import Group
from helpers.table import table

# What a table says of a call, and of one that is missing.
COLUMNS = ["call", "shape", "dtype", "op", "src", "line", "code"]
_NOTHING = ["nothing", *[None] * 6]
# What a rank does that differs, and several ranks do.
_SENTENCES = {
    "missing": ("has not called it", "have not called it"),
    "extra": ("has called it, and the others have not", "have called it, and the others have not"),
    "swapped": ("makes two calls in another order", "make two calls in another order"),
    "call": ("calls another function", "call another function"),
    "operator": ("passes another operator", "pass another operator"),
    "source": ("names another source", "name another source"),
    "shape": ("passes another shape", "pass another shape"),
    "dtype": ("passes another dtype", "pass another dtype"),
}


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
    dtype: tuple[str, ...]
    op: str | None
    src: int | None
    path: str
    line_number: int
    line: str


class Difference(NamedTuple):
    """A place at which the collectives of a group differ; shows as a table of them, rank by rank.

    `kind` says in what, seen from most of its ranks: "missing" (a rank has not made the call), "extra" (only this rank
    has made it), "swapped" (a rank makes it later, and another one first), "call" (another function), "operator",
    "source", "shape" or "dtype". `ranks` are those that differ from the others. `calls` has the call of each rank of
    the group, None where it is missing.
    """

    kind: str
    group: Group
    ranks: tuple[int, ...]
    calls: dict[int, Call | None]

    @property
    def time(self) -> int:
        """When the first of these calls was made, by time.time_ns."""
        return min(call.time for call in self.calls.values() if call)

    @property
    def summary(self) -> str:
        """One sentence: which call of which group, and which ranks differ in what."""
        one, several = _SENTENCES[self.kind]
        who = f"rank {self.ranks[0]} {one}" if len(self.ranks) == 1 else f"ranks {_say_ranks(self.ranks)} {several}"
        number = max(call.number for call in self.calls.values() if call)
        return f"Call {number} in group {say_group(self.group)}: {who}."

    def __repr__(self):
        rows = [[rank, *(columns(call) if call else _NOTHING)] for rank, call in self.calls.items()]
        return f"{self.summary}\n{table(['rank', *COLUMNS], rows)}"


def columns(call: Call) -> list:
    """Return what a table says of a call, under `COLUMNS`."""
    shape, kind = ", ".join(str(list(sizes)) for sizes in call.shape), ", ".join(dict.fromkeys(call.dtype))
    return [call.call, shape, kind, call.op, call.src, call.line_number, call.line]


def say_group(group: Group) -> str:
    """Return the description of a group, or its name when nobody has described it."""
    return group.name if group.description == "undefined" else group.description


def _say_ranks(ranks):
    return f"{', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
