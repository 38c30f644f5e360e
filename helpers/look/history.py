"""The collectives of all ranks side by side, and where they differ, also while ranks are stuck.

How the ranks keep them, and are asked, is in `helpers.ranks.recorder`; what counts as a difference, in `differences`.
"""

import linecache
from pathlib import Path

from helpers.look import differences
from helpers.look.cells import Cells
from helpers.look.differences import COLUMNS, Call, Difference, columns, say_group
from helpers.ranks.recorder import CELL, Group
from helpers.table import table

_LAST_CALLS = 10
_NOTHING = ["nothing", None, None, None, None, None, None]
# As torch.dtype says it. The recorder has the names of C++.
_TYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
}


class History:
    """The last collectives of all ranks, at most 2,000 of each; shows as a table.

    `calls` has a list of `Call` for each rank that has answered, `differences` a list of `Difference`, empty when the
    ranks agree; the table shows the first one. `behind` has, for each rank that is busy and may still come to a call
    which others have made, the first such call. `lost` says of a rank without a list why it has none.

    A difference in the line alone counts when ranks come to the same lines in another order. So two tensors that are
    swapped on one line cannot be seen; and where ranks take turns on purpose, on two lines that make the same call, a
    difference is shown that is none. Not among the calls are messages from point to point, what came before the last
    init_process_group, groups that compare notes (TORCH_DISTRIBUTED_DEBUG=DETAIL), and backends that do not use torch's
    flight recorder.
    """

    def __init__(
        self,
        calls: dict[int, list[Call]],
        groups: dict[int, list[Group]],
        busy_since: dict[int, int],
        lost: dict[int, str],
    ):
        self.calls, self.lost = calls, lost
        self.differences: list[Difference] = []
        self.behind: dict[int, Call] = {}
        self._size = len(calls) + len(lost)
        for group in dict.fromkeys(group for of_rank in groups.values() for group in of_rank):
            members = [rank for rank in calls if group in groups[rank]]
            of_group = {rank: [call for call in calls[rank] if call.group == group] for rank in members}
            found, behind = differences.compare(group, of_group, busy_since)
            self.differences += found
            self.behind |= behind
        self.differences.sort(key=lambda difference: min(call.time for call in difference.calls.values() if call))

    def __repr__(self):
        said = [repr(self.differences[0])] if self.differences else [self._last_calls()]
        if len(self.differences) > 1:
            said.append(f"There are {len(self.differences)} differences; this is the first.")
        said += [f"Rank {rank} is behind: it has not called {_say(call)}." for rank, call in self.behind.items()]
        said += [f"Rank {rank} {why}." for rank, why in self.lost.items()]
        if any(self.calls.values()) and not self.differences:
            said.append("The other ranks agree." if self.lost else "All ranks agree.")
        return "\n".join(said)

    def _last_calls(self):
        """Return a table of the last calls, with one row for all ranks that have made the same one."""
        rows, begins = {}, {}
        for rank, calls in self.calls.items():
            for call in calls:
                rows.setdefault(call._replace(time=0), {})[rank] = call
                of_all = call.group, call.number
                begins[of_all] = min(call.time, begins.get(of_all, call.time))
        latest = sorted(rows, key=lambda call: (begins[call.group, call.number], min(rows[call])))[-_LAST_CALLS:]
        lines = []
        for call in latest:
            ranks = "all" if len(rows[call]) == self._size else ", ".join(map(str, rows[call]))
            lines.append([say_group(call.group), call.number, ranks, *columns(call)])
        return table(["group", "number", "ranks", *COLUMNS], lines) if lines else "No rank has called a collective."


def history(ranks, cells: Cells) -> History:
    """Ask every rank for its collectives.

    `ranks` are the world's `LocalRanks` or `AttachedRanks`, and `cells` are those that they were sent.
    """
    records = ranks.collectives(set(range(ranks.size)) - ranks.deaths().keys())
    calls, groups, busy_since, lost = {}, {}, {}, {}
    for rank in range(ranks.size):
        if rank in (dead := ranks.deaths()):
            lost[rank] = f"is dead ({dead[rank]}), and its calls are lost"
        elif rank not in records:
            lost[rank] = "does not answer"
        else:
            groups[rank] = records[rank].groups
            if records[rank].busy_since is not None:
                busy_since[rank] = records[rank].busy_since
            calls[rank] = [_call(recorded, cells) for recorded in records[rank].calls]
    return History(calls, groups, busy_since, lost)


def _call(recorded, cells):
    name = Path(recorded.path).name
    if CELL.search(recorded.path):
        line_number, line = cells.line(recorded.path, recorded.line_number)
    else:  # a module, which is most often the same on this machine
        line_number, line = recorded.line_number, linecache.getline(recorded.path, recorded.line_number).strip() or name
    return Call(
        recorded.time,
        recorded.group,
        recorded.number,
        recorded.call,
        recorded.shapes,
        tuple(_TYPES.get(name, name.lower()) for name in recorded.types),
        recorded.op,
        recorded.root,
        name,
        line_number,
        line,
    )


def _say(call):
    return f"{call.call}, line {call.line_number}, {call.line}"
