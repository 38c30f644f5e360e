"""The collectives of all ranks side by side, and where they differ, even while ranks are stuck.

`helpers.probe.recorder` keeps the calls on the ranks and collects them; `alignment` defines a difference.
"""

import linecache
from collections import defaultdict
from functools import cache, partial
from pathlib import Path

from helpers.look.alignment import compare
from helpers.look.cells import Cells
from helpers.look.differences import COLUMNS, CollectiveCall, Difference, columns, say_group
from helpers.probe.recorder import CELL, Group
from helpers.probe.side_channel import Failed
from helpers.ranks.protocol import Ranks
from helpers.table import table

_LAST_CALLS = 10
_EARLIER_DIFFERENCES = 20
# torch's flight recorder uses the names of C++; these are the names of torch.dtype.
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
    """The last collectives of all ranks, at most 2,000 from each; its representation is a table.

    `calls` has a list of `CollectiveCall` for each rank that answered. `differences` is a list of `Difference` in the
    order of time, empty when the ranks agree. The table shows the latest difference; a sentence for each earlier
    difference follows, the latest first. `behind` has, for each busy rank that may still make a call which others have
    made, the first such call. `lost` says why a rank has no list.

    If calls differ only in their lines, the order decides: there is a difference if ranks reach the same lines, or
    lines with the same text, in a different order. So two tensors that are swapped on one line go unnoticed. When ranks
    take turns on purpose, on two lines that make the same call, a difference is reported although there is no mistake.
    The calls do not include point-to-point messages, calls before the last init_process_group, calls in groups that
    check each other's calls (TORCH_DISTRIBUTED_DEBUG=DETAIL), and calls of backends without torch's flight recorder.
    """

    def __init__(
        self,
        calls: dict[int, list[CollectiveCall]],
        groups: dict[int, list[Group]],
        busy_since: dict[int, int],
        lost: dict[int, str],
    ):
        self.calls, self.lost = calls, lost
        self.differences: list[Difference] = []
        self.behind: dict[int, CollectiveCall] = {}
        self._size = len(calls) + len(lost)
        calls_by_group = defaultdict(dict)
        for rank in calls:
            for group in groups[rank]:
                calls_by_group[group][rank] = []
            for call in calls[rank]:
                calls_by_group[call.group][rank].append(call)
        for group, calls_by_rank in calls_by_group.items():
            differences, behind = compare(group, calls_by_rank, busy_since)
            self.differences += differences
            self.behind |= behind
        self.differences.sort(key=lambda difference: difference.time)

    def __repr__(self):
        lines = self._say_differences() if self.differences else [self._last_calls()]
        lines += [f"Rank {rank} is behind: it has not called {_say(call)}." for rank, call in self.behind.items()]
        lines += [f"Rank {rank} {why}." for rank, why in self.lost.items()]
        if any(self.calls.values()) and not self.differences:
            lines.append("The other ranks agree." if self.lost else "All ranks agree.")
        return "\n".join(lines)

    def _say_differences(self):
        """Return the latest difference with its table, and a sentence for each earlier difference, the latest first."""
        *earlier, latest = self.differences
        lines = [repr(latest)]
        if earlier:
            lines.append(f"Earlier differences ({len(earlier)}), the latest first:")
        lines += [difference.summary for difference in earlier[: -_EARLIER_DIFFERENCES - 1 : -1]]
        if len(earlier) > _EARLIER_DIFFERENCES:
            lines.append(f"... and {len(earlier) - _EARLIER_DIFFERENCES} more, all of them in `differences`.")
        return lines

    def _last_calls(self):
        """Return a table of the last calls, with one row for all ranks that made the same call."""
        rows, begins = {}, {}
        for rank, calls in self.calls.items():
            for call in calls:
                rows.setdefault(call._replace(time=0), {})[rank] = call
                position = call.group, call.number
                begins[position] = min(call.time, begins.get(position, call.time))
        latest = sorted(rows, key=lambda call: (begins[call.group, call.number], min(rows[call])))[-_LAST_CALLS:]
        lines = []
        for call in latest:
            ranks = "all" if len(rows[call]) == self._size else ", ".join(map(str, rows[call]))
            lines.append([say_group(call.group), call.number, ranks, *columns(call)])
        return table(["group", "number", "ranks", *COLUMNS], lines) if lines else "No rank has called a collective."


def history(ranks: Ranks, cells: Cells) -> History:
    """Ask every rank for its collectives, and return them.

    `cells` are the cells that the ranks were sent.
    """
    records = ranks.collectives(set(range(ranks.size)) - ranks.deaths().keys())
    place = cache(partial(_place, cells))  # thousands of calls come from few lines
    calls, groups, busy_since, lost = {}, {}, {}, {}
    for rank in range(ranks.size):
        if rank in (dead := ranks.deaths()):
            lost[rank] = f"is dead ({dead[rank]}), and its calls are lost"
        elif rank not in records:
            lost[rank] = "does not answer"
        elif isinstance(records[rank], Failed):
            lost[rank] = str(records[rank])
        else:
            groups[rank] = records[rank].groups
            if records[rank].busy_since is not None:
                busy_since[rank] = records[rank].busy_since
            calls[rank] = [_call(recorded, place) for recorded in records[rank].calls]
    return History(calls, groups, busy_since, lost)


def _call(recorded, place):
    """Return a recorded call as a `CollectiveCall`; `place` maps a path and a line number as `_place` does."""
    return CollectiveCall(
        recorded.time,
        recorded.group,
        recorded.number,
        recorded.call,
        recorded.shapes,
        tuple(_TYPES.get(name, name.lower()) for name in recorded.types),
        recorded.op,
        recorded.root,
        *place(recorded.path, recorded.line_number),
    )


def _place(cells, path, line_number):
    """Return the name of a file, and the number and the text of a line in it."""
    name = Path(path).name
    if CELL.search(path):
        return name, *cells.line(path, line_number)
    # A line of a module, whose file is usually the same on this machine.
    return name, line_number, linecache.getline(path, line_number).strip() or name


def _say(call):
    return f"{call.call}, line {call.line_number}, {call.line}"
