"""Align the collectives of the ranks of a group, and find where they differ.

The backend pairs the collectives of a group by their position: the first call of each rank meets the first call of
every other rank. So each rank contributes a row of calls, and the rows are aligned position by position. At each
position, the reference is a row whose call is the most common.

Invariant: before `position`, all rows hold the same calls, or calls that may meet. A row that differs at `position`
is reported and then repaired as if the rank had made the call of the reference: a missing call is inserted, an extra
call is deleted, a swapped call is moved to the front. So each mistake is reported once, and does not hide the next.
A repair looks at most `_CALLS_AHEAD` calls ahead, so the work grows linearly with the number of calls.

Two calls are the same when they come from the same line and agree in function, operator, source, shape and type. Calls
from different lines may still meet, as under an `if rank == 0`, because ranks have different roles on purpose. Only
their order can show a mistake: when two ranks make the same next few calls, by line or by the text of the call, in a
different order.

Three examples, with one letter for each line; all calls have the same function and shape, and rank 1 differs:

    rank 0   a b c d        rank 0   a b c         rank 0   a a a
    rank 1   a c d          rank 1   a c b         rank 1   x x x
    missing: b at call 2    swapped: b, c          nothing: each rank has a line of its own

Why not `torch.distributed.flight_recorder`, which compares the same dumps? It looks each group up in `pg_config`, which
gloo leaves empty, and raises KeyError. It compares neither operator, source nor line. And it reads the files that
processes leave when they end, while the ranks here keep running.
"""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import eq

from helpers.look.differences import CollectiveCall, Difference
from helpers.probe.recorder import Group

# How many calls ahead a call is searched for on another rank before it counts as absent there.
_CALLS_AHEAD = 16
# When the oldest calls are gone, ranks may number the same call differently: these are the shifts to try, the
# likeliest first, and the number of calls that are compared for each.
_SHIFTS = sorted(range(-32, 33), key=abs)
_CALLS_TO_MEET = 200
# Collectives in which the shapes of the ranks may differ.
_UNEVEN = ("all_to_all", "alltoall")


@dataclass
class _Row:
    """The calls of a rank in a group, and two numbers that represent each call.

    Calls with the same number in `by_line` agree in everything that is compared and come from the same line. Calls with
    the same number in `by_text` agree in everything that is compared and have the same text, on whichever line.
    """

    calls: list[CollectiveCall]
    by_line: list[int]
    by_text: list[int]

    def insert_from(self, other: "_Row", position: int) -> None:
        """Insert, at this position, the call that another row has there."""
        for mine, others in zip(self._lists(), other._lists(), strict=True):
            mine.insert(position, others[position])

    def delete(self, position: int) -> None:
        """Delete the call at this position."""
        for mine in self._lists():
            del mine[position]

    def move(self, source: int, position: int) -> None:
        """Move a call to an earlier position."""
        for mine in self._lists():
            mine.insert(position, mine.pop(source))

    def _lists(self):
        return self.calls, self.by_line, self.by_text


def compare(
    group: Group, calls: Mapping[int, Sequence[CollectiveCall]], busy_since: Mapping[int, int]
) -> tuple[list[Difference], dict[int, CollectiveCall]]:
    """Return the differences between the ranks of this group, in the order of the calls, and the ranks that are behind.

    `calls` has each rank's calls in the group. `busy_since` has, for each busy rank, the time at which it began its
    present work. If the other ranks made a call before that time and this rank did not, the call is missing. If they
    made it later, this rank may still make it: the rank is behind, and is returned with the first such call. An idle
    rank makes no further calls.
    """
    rows = _rows(calls)
    differences, behind, position = [], {}, 0
    while current := {rank: row.calls[position] for rank, row in rows.items() if len(row.calls) > position}:
        if len(current) == len(rows) and len({row.by_line[position] for row in rows.values()}) == 1:
            position += 1
            continue
        called = min(call.time for call in current.values())
        late = {rank for rank in rows.keys() - current.keys() if called > busy_since.get(rank, called)}
        reference = _reference({rank: rows[rank].by_line[position] for rank in current})
        behind = {rank: current[reference] for rank in late} | behind
        kinds = _kinds(rows, current, reference, position, late)
        for kind in dict.fromkeys(kinds.values()):
            ranks = tuple(rank for rank in kinds if kinds[rank] == kind)
            differences.append(Difference(kind, group, ranks, _side_by_side(rows, current, kind, ranks)))
        for rank, kind in kinds.items():
            _repair(rows[rank], rows[reference], position, kind)
        position += "extra" not in kinds.values()  # after an extra call, the rank's next call belongs to this position
    return differences, behind


# ---------------------------------------------------------------- rows


def _rows(calls):
    """Return the row of each rank, beginning with the first call that all ranks still have.

    When a rank has dropped its oldest calls, it numbers the rest by the group's own counter, which also counts
    messages. If the ranks have sent different numbers of messages, their calls have to be realigned.
    """
    numbered = {rank: {call.number: call for call in rank_calls} for rank, rank_calls in calls.items()}
    if any(rank_calls and rank_calls[0].number > 1 for rank_calls in calls.values()):
        longest = max(numbered.values(), key=len)
        for rank, rank_calls in numbered.items():
            shift = max(_SHIFTS, key=partial(_calls_that_meet, rank_calls, longest))
            numbered[rank] = {number + shift: call for number, call in rank_calls.items()}
    first = max((min(rank_calls) for rank_calls in numbered.values() if rank_calls), default=0)
    numbers = {}
    return {
        rank: _row([call for number, call in rank_calls.items() if number >= first], numbers)
        for rank, rank_calls in numbered.items()
    }


def _row(calls, numbers):
    """Return a row of calls; `numbers` maps each line and each text to its number, and receives new entries."""
    row = _Row(calls, [], [])
    for call in calls:
        shape = None if call.call in _UNEVEN else call.shape
        compared = call.call, call.op, call.src, shape, call.dtype
        line = *compared, call.path, call.line_number
        text = (*compared, text) if (text := _expression(call.line)) else line
        row.by_line.append(numbers.setdefault(line, len(numbers)))
        row.by_text.append(numbers.setdefault(text, len(numbers)))
    return row


@lru_cache(maxsize=4096)
def _expression(line: str) -> str | None:
    """Return the call on a line, without assignment target and comment; None if the line is not one whole statement."""
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):  # a call over several lines, or several calls on one line
        return None
    return ast.unparse(getattr(statement, "value", None) or statement)


def _calls_that_meet(row, longest, shift):
    """Return how many of the first calls of a row equal the calls of the longest row when their numbers are shifted."""
    first_calls = list(row.items())[:_CALLS_TO_MEET]
    return sum(number + shift in longest and _is_same(call, longest[number + shift]) for number, call in first_calls)


# ---------------------------------------------------------------- one position


def _reference(by_line):
    """Return the lowest rank that makes the most common call; `by_line` has the number of each rank's call."""
    times = Counter(by_line.values())
    return max(sorted(by_line), key=lambda rank: times[by_line[rank]])


def _kinds(rows, current, reference, position, late):
    """Return, by rank, how each rank that differs from the reference at this position does so."""
    ended = [rank for rank in rows if rank not in current and rank not in late]
    if len(ended) > len(current):
        return {rank: "extra" for rank in current}
    kinds = {rank: _kind(rows[reference], rows[rank], position) for rank in current if rank != reference}
    if extra := {rank: kind for rank, kind in kinds.items() if kind == "extra"}:
        return extra  # the other kinds are examined once the extra calls are deleted
    kinds |= {rank: "missing" for rank in ended}
    return {rank: kinds[rank] for rank in sorted(kinds) if kinds[rank]}


def _side_by_side(rows, current, kind, ranks):
    """Return the call of each rank at a position, None where it is missing; ranks that may still call are left out."""
    if kind == "extra":
        return {rank: current[rank] if rank in ranks else None for rank in rows}
    absent = ranks if kind == "missing" else ()
    return {rank: None if rank in absent else current[rank] for rank in rows if rank in current or rank in absent}


def _repair(row, reference, position, kind):
    """Change a row as if its rank had made the call of the reference at this position."""
    if kind == "missing":
        row.insert_from(reference, position)
    elif kind == "extra":
        row.delete(position)
    elif kind == "swapped":
        later = _distance(reference.by_line, row.by_line, position) or _distance(
            reference.by_text, row.by_text, position
        )
        row.move(position + later, position)


# ---------------------------------------------------------------- two rows


def _kind(reference: _Row, row: _Row, position: int) -> str | None:
    """Return how a row differs from the reference at a position, None if it does not differ in anything that counts."""
    if _is_same(reference.calls[position], row.calls[position]):
        return None
    unlike = _unlike(reference.calls[position], row.calls[position])
    after = position + 1
    if unlike and after < min(len(reference.calls), len(row.calls)):
        if _is_same(reference.calls[after], row.calls[after]):
            return unlike  # only this call differs, and the rows agree again after it
    by_line = _moved(reference.by_line, row.by_line, position, may_meet=unlike is None)
    return by_line or _moved(reference.by_text, row.by_text, position, may_meet=True) or unlike


def _moved(reference: list[int], row: list[int], position: int, may_meet: bool) -> str | None:
    """Return whether the call of a row at a position is missing, extra or swapped; None if it is none of these.

    Both rows are given as the numbers of their calls, by line or by text. When the two calls may meet, only strong
    evidence counts, because ranks may have lines of their own: with a move, more of the next calls must agree than
    without it.
    """
    if reference[position] == row[position]:
        return None
    later = _distance(reference, row, position)  # distance to the reference's call, in the row
    earlier = _distance(row, reference, position)  # distance to the row's call, in the reference
    if not later and not earlier:
        return None
    lack = len(reference) - len(row)
    permuted = _permuted(reference, row, position) if later and earlier else 0
    # How many of the next calls agree without a shift, with a call missing from the row, and with an extra call in it.
    swapped = permuted + _agreement(reference, row, position + permuted, position + permuted)
    missing = _agreement(reference, row, position + earlier, position) if earlier else 0
    extra = _agreement(reference, row, position, position + later) if later else 0
    if later and earlier:  # in a loop every call recurs, so a missing call looks like many swapped calls
        if lack > 0 and missing > swapped:
            return "missing"
        if lack < 0 and extra > swapped:
            return "extra"
        return "swapped" if permuted or not may_meet else None
    if not may_meet or (lack and max(missing, extra) > swapped):
        return "missing" if earlier else "extra"
    return None


def _distance(wanted: list[int], row: list[int], position: int) -> int:
    """Return how many calls later the row has the call that `wanted` has at this position; 0 if it does not soon."""
    ahead = row[position + 1 : position + _CALLS_AHEAD]
    return ahead.index(wanted[position]) + 1 if wanted[position] in ahead else 0


def _permuted(reference, row, position):
    """Return the smallest number of next calls that are the same in both rows up to their order; 0 if there is none."""
    balance = Counter()
    for number, (wanted, given) in enumerate(zip(_ahead(reference, position), _ahead(row, position), strict=False), 1):
        balance[wanted] += 1
        balance[given] -= 1
        if not any(balance.values()):
            return number
    return 0


def _agreement(reference, row, position, position_in_row):
    """Return how many of the next calls are the same when the rows are paired from these positions."""
    return sum(map(eq, _ahead(reference, position), _ahead(row, position_in_row)))


def _ahead(row, position):
    return row[position : position + _CALLS_AHEAD]


def _is_same(call, other):
    """Return whether two ranks make the same call, from the same line.

    A call that a C++ thread makes, such as the callback of a future, has no line: it matches a call from any line.
    """
    from_one_line = (call.path, call.line_number) == (other.path, other.line_number)
    return (from_one_line or "" in (call.path, other.path)) and _unlike(call, other) is None


def _unlike(call, other):
    """Return in what two calls do not match, None when they match."""
    if call.call != other.call:
        return "call"
    if None not in (call.op, other.op) and call.op != other.op:
        return "operator"
    if None not in (call.src, other.src) and call.src != other.src:
        return "source"
    if call.shape != other.shape and call.call not in _UNEVEN:
        return "shape"
    return "dtype" if call.dtype != other.dtype else None
