"""A collective of a rank, and a difference between the ranks, with the sentence and the table that show it.

`helpers.look.alignment` finds the differences.
"""

from typing import NamedTuple

from helpers.probe.recorder import Group
from helpers.table import table

# The columns of a table of calls, and the row of a missing call.
COLUMNS = ["call", "shape", "dtype", "op", "src", "line", "code"]
_NOTHING = ["nothing", *[None] * 6]
# The end of the sentence about one rank that differs, and about several ranks.
_SENTENCES = {
    "missing": ("has not called it", "have not called it"),
    "extra": ("has called it, and the others have not", "have called it, and the others have not"),
    "swapped": ("makes two calls in a different order", "make two calls in a different order"),
    "call": ("calls a different function", "call a different function"),
    "operator": ("passes a different operator", "pass a different operator"),
    "source": ("names a different source", "name a different source"),
    "shape": ("passes a different shape", "pass a different shape"),
    "dtype": ("passes a different dtype", "pass a different dtype"),
}


class CollectiveCall(NamedTuple):
    """One collective of one rank.

    `number` counts the collectives of the rank in this group. `src` is the root: the source of a broadcast or a
    scatter, or the destination of a reduce or a gather. `op` and `src` are None when the collective has none, and when
    C++ made the call, as in DistributedDataParallel. `line_number` counts the lines of the cell from 1, including its
    `%%px` line; `path` is the name of the file with the line, for a cell the name that IPython generates.
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
    """A position at which the collectives of a group differ; its representation is a table of the calls by rank.

    `kind` says how they differ, compared with most ranks of the group: "missing" (a rank did not make the call),
    "extra" (only this rank made it), "swapped" (a rank makes it later, after another call), "call" (another function),
    "operator", "source", "shape" or "dtype". `ranks` are the ranks that differ from the others. `calls` has the call of
    each rank of the group, None where it is missing.
    """

    kind: str
    group: Group
    ranks: tuple[int, ...]
    calls: dict[int, CollectiveCall | None]

    @property
    def time(self) -> int:
        """The time of the earliest of these calls, by time.time_ns."""
        return min(call.time for call in self.calls.values() if call)

    @property
    def summary(self) -> str:
        """A sentence that names the call, the group, the ranks that differ and how they differ."""
        one, several = _SENTENCES[self.kind]
        who = f"rank {self.ranks[0]} {one}" if len(self.ranks) == 1 else f"ranks {_say_ranks(self.ranks)} {several}"
        number = max(call.number for call in self.calls.values() if call)
        return f"Call {number} in group {say_group(self.group)}: {who}."

    def __repr__(self):
        rows = [[rank, *(columns(call) if call else _NOTHING)] for rank, call in self.calls.items()]
        return f"{self.summary}\n{table(['rank', *COLUMNS], rows)}"


def columns(call: CollectiveCall) -> list:
    """Return the row of a table that describes a call, with the columns `COLUMNS`."""
    shape, kind = ", ".join(str(list(sizes)) for sizes in call.shape), ", ".join(dict.fromkeys(call.dtype))
    return [call.call, shape, kind, call.op, call.src, call.line_number, call.line]


def say_group(group: Group) -> str:
    """Return the description of a group, or its name when it has no description."""
    return group.name if group.description == "undefined" else group.description


def _say_ranks(ranks):
    return f"{', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
