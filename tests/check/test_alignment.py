"""Which calls of the ranks of a group differ, compared without ranks."""

import sys
from itertools import count

import pytest

from helpers.look.alignment import compare
from helpers.look.differences import CollectiveCall
from helpers.probe.recorder import Group

GROUP = Group("0", "default_pg", (0, 1))


def calls(lines):
    """Return calls of all_reduce from lines of one cell, one letter for each; `a` and `A` have the same text."""
    what = "all_reduce", ((1,),), ("float32",), "SUM", None, "cell"
    return [CollectiveCall(n, GROUP, n, *what, ord(x), x.lower()) for n, x in zip(count(1), lines, strict=False)]


def kinds(*rows, busy=()):
    found, behind = compare(GROUP, {rank: calls(row) for rank, row in enumerate(rows)}, dict.fromkeys(busy, 0))
    return [(f.kind, f.ranks, "".join(call.line if call else "-" for call in f.calls.values())) for f in found], behind


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["abc", "abc", "abc"], []),
        (["aaa", "bbb", "bbb"], []),  # each has a line of its own
        (["sasb", "sxsx", "sysy"], []),
        (["abc", "acb", "abc"], [("swapped", (1,), "bcb")]),
        (["abab", "baba", "abab"], [("swapped", (1,), "aba"), ("swapped", (1,), "aba")]),
        (["abc", "ac", "abc"], [("missing", (1,), "b-b")]),
        (["abcd", "ad", "abcd"], [("missing", (1,), "b-b"), ("missing", (1,), "c-c")]),
        (["ababab", "babab", "ababab"], [("missing", (1,), "a-a")]),
        (["abc", "aabc", "abc"], [("extra", (1,), "-a-")]),
        (["abc", "abxc", "abc"], [("extra", (1,), "-x-")]),
        (["abc", "abcd", "abc"], [("extra", (1,), "-d-")]),
        (["abc", "ab", "abc"], [("missing", (1,), "c-c")]),
        (["ab", "abc", "abc"], [("missing", (0,), "-cc")]),
        (["abc", "c", "c"], [("extra", (0,), "a--"), ("extra", (0,), "b--")]),
        (["ab", "ba"], [("swapped", (1,), "ab")]),
        (["a", ""], [("missing", (1,), "a-")]),
        (["mmjjj", "mjjjj", "mmmmj"], []),  # ranks that have run out of data join in from another line
        (["mmjjjc", "mjjjj", "mmjjjc"], [("missing", (1,), "c-c")]),
        (["ab", "AB", "ab"], []),
        (["ab", "BA", "ab"], [("swapped", (1,), "aba")]),
        (["xabx", "xBAx", "xabx"], [("swapped", (1,), "aba")]),
        (["abrs", "BApq", "abtu"], [("swapped", (1,), "aba")]),  # each has lines of its own after that
        (["abrs", "bapq", "abtu"], [("swapped", (1,), "aba")]),
        (["ab", "B", "ab"], [("missing", (1,), "a-a")]),
    ],
)
def test_what_counts_as_a_difference(rows, expected):
    assert kinds(*rows)[0] == expected


def test_a_busy_rank_is_behind_and_not_missing():
    found, behind = kinds("abc", "a", "abc", busy=[1])
    assert found == [] and behind[1].line == "b"


def test_calls_of_a_busy_rank_are_swapped_and_not_missing():
    found, behind = kinds("abcd", "acb", "abcd", busy=[1])
    assert found == [("swapped", (1,), "bcb")] and behind[1].line == "d"


def test_another_operator_is_no_extra_call_because_a_later_one_is_written_alike():
    rows = {0: calls("abA"), 1: calls("axA"), 2: calls("abA")}
    rows[1][0] = rows[1][0]._replace(op="MAX")
    found, _ = compare(GROUP, rows, {})
    assert [(f.kind, f.ranks) for f in found] == [("operator", (1,))]


@pytest.mark.parametrize(
    "pattern",
    [
        ["a", "b", "c", "d"],  # each has a line of its own
        ["ab", "cd", "ef", "gh"],
        ["ab", "ba", "ab", "ab"],
        ["abcde", "aabbc", "edcba", "abcde"],
    ],
)
def test_the_work_grows_with_the_number_of_calls_and_not_with_its_square(pattern):
    def work(length):
        """Return how many functions a comparison calls."""
        rows = {rank: calls((letters * length)[:length]) for rank, letters in enumerate(pattern)}
        called = count()
        sys.setprofile(lambda frame, event, argument: next(called) if event in ("call", "c_call") else None)
        try:
            compare(GROUP, rows, {})
        finally:
            sys.setprofile(None)
        return next(called)

    assert work(400) < 3 * work(200)


def test_a_rank_that_is_busy_with_something_later_is_not_behind():
    rows = {0: calls("ab"), 1: calls("a")}
    found, behind = compare(GROUP, rows, {1: 10})
    assert [(f.kind, f.ranks) for f in found] == [("missing", (1,))] and behind == {}


def test_calls_are_compared_from_the_first_that_all_ranks_still_have():
    rows = {0: calls("abcdef")[2:], 1: calls("abcdef")}
    assert compare(GROUP, rows, {}) == ([], {})


def test_calls_meet_again_where_messages_have_shifted_their_numbers():
    made = calls("abcdefghijabcdefghij")
    shifted = [call._replace(number=call.number + 3) for call in made]
    assert compare(GROUP, {0: made[4:], 1: shifted[2:], 2: made[2:]}, {}) == ([], {})
    shifted[9] = shifted[9]._replace(op="MAX")
    found, _ = compare(GROUP, {0: made[4:], 1: shifted[2:], 2: made[2:]}, {})
    assert [(f.kind, f.ranks, f.calls[0].line) for f in found] == [("operator", (1,), "j")]


def test_a_call_of_a_thread_without_lines_may_be_any():
    # The callback of a future runs in a thread of gloo, or at once in the one that asks for it.
    here, there = calls("abb"), calls("abb")
    here[1] = here[1]._replace(path="", line_number=0, line="")
    there[2] = there[2]._replace(path="", line_number=0, line="")
    assert compare(GROUP, {0: here, 1: there}, {}) == ([], {})
    (found,) = compare(GROUP, {0: here, 1: there[:1] + [call._replace(shape=((2,),)) for call in there[1:]]}, {})[0][:1]
    assert (found.kind, found.ranks) == ("shape", (1,))
