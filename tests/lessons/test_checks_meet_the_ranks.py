"""The checks of notebook 00 accept the solutions, and refuse the skeletons and plausible wrong answers, saying why."""

import os
import signal

import pytest
from live import wait_until

from helpers import checks
from helpers.checks.judging import RESTART

SETUP = """
import os
from datetime import timedelta
import torch
import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
timeout = timedelta(seconds=10)
dist.init_process_group("gloo", timeout=timeout)
"""

COLLECT = """
def collect(number):
    numbers = torch.zeros(world_size)
    {}
    return numbers.tolist()
"""


def check_collect(world, lines, skeleton=COLLECT):
    world.view.execute(skeleton.format(lines))
    return checks.meet_the_ranks.collect(world)


def check_shares(world, line):
    world.view.execute(f"def my_share(cards):\n    {line}")
    return repr(checks.meet_the_ranks.my_share(world))


@pytest.mark.parametrize(
    "line",
    [
        "return cards[rank::world_size]",
        "return torch.tensor(cards).tensor_split(world_size)[rank]",
        "return [card for card in cards if card % world_size == world_size - 1 - rank]",
        "return tuple(cards[len(cards) * rank // world_size : len(cards) * (rank + 1) // world_size])",
    ],
    ids=["every n-th", "a block", "from the last rank on", "a block by its ends"],
)
def test_shares_are_accepted(world, line):
    assert check_shares(world, line) == "Solved. Each of 13 cards went to one rank."


@pytest.mark.parametrize(
    "line, reason",
    [
        ("return None  # your line", "Rank 0 returned None, expected its share of the list."),
        ("return cards", "Card 0 went to 4 ranks (0, 1, 2, 3), expected 1 rank."),
        ("return cards[rank * 3 : rank * 3 + 3]", "No rank took card 12 of the cards 0 to 12."),
        ("return cards[rank * 3 :][: 4 if rank < 3 else None]", "Card 3 went to 2 ranks (0, 1), expected 1 rank."),
        (
            "return cards[rank * 4 : rank * 4 + 4]",
            "Rank 0 took 4 cards and rank 3 took 1, expected a difference of at most 1.",
        ),
        (
            "return cards[rank::world_size] * 2",
            "The ranks hold 26 cards in total, expected 13.",
        ),
        ("return rank", "Rank 0 returned 0, expected its share of the list."),
    ],
)
def test_shares_are_refused(world, line, reason):
    assert check_shares(world, line) == f"Not yet. {reason}"


def test_collect_is_accepted(world):
    verdict = check_collect(world, "numbers[rank] = number; dist.all_reduce(numbers)")
    assert verdict
    assert repr(verdict) == "Solved. Every rank returned [4.0, -9.5, 16.0, -25.5]."


def test_collect_may_return_a_tensor(world):
    returning_tensor = COLLECT.replace(".tolist()", "")
    assert check_collect(world, "numbers[rank] = number; dist.all_reduce(numbers)", returning_tensor)


@pytest.mark.parametrize(
    "lines, returned",
    [
        ("# Your lines go here.", "Rank 0 returned [0.0, 0.0, 0.0, 0.0]"),
        ("numbers[rank] = number", "Rank 0 returned [4.0, 0.0, 0.0, 0.0]"),
        ("numbers += number; dist.all_reduce(numbers)", "Rank 0 returned [-15.0, -15.0, -15.0, -15.0]"),
        ("numbers[-1 - rank] = number; dist.all_reduce(numbers)", "Rank 0 returned [-25.5, 16.0, -9.5, 4.0]"),
        ("dist.all_reduce(numbers); return", "Rank 0 returned None"),
    ],
    ids=["skeleton", "no all_reduce", "all places", "wrong order", "nothing returned"],
)
def test_collect_is_refused(world, lines, returned):
    verdict = check_collect(world, lines)
    assert not verdict
    assert repr(verdict) == f"Not yet. {returned}, expected [4.0, -9.5, 16.0, -25.5]."


@pytest.mark.parametrize(
    "lines",
    [
        "numbers[rank] = number; dist.all_reduce(numbers, op=dist.ReduceOp.MAX)",
        "numbers = numbers.long(); numbers[rank] = int(number); dist.all_reduce(numbers)",
        "total = torch.tensor(number * 1000.0**rank).double(); dist.all_reduce(total); "
        "numbers = torch.tensor([total.item() // 1000**r % 1000 for r in range(4)])",
    ],
    ids=["maximum", "integers", "packed into one number"],
)
def test_collect_that_works_for_some_numbers_only_is_refused(world, lines):
    verdict = check_collect(world, lines)
    assert repr(verdict).startswith("Not yet. Rank 0 returned ")


@pytest.mark.parametrize(
    "lines",
    [
        "numbers[rank] += number; dist.all_reduce(numbers, async_op=True).wait()",
        "dist.all_reduce(numbers.index_fill_(0, torch.tensor(rank), number), op=dist.ReduceOp.SUM)",
        "numbers = torch.eye(world_size)[rank] * number; dist.all_reduce(numbers)",
    ],
    ids=["asynchronous", "filled", "a row of the identity"],
)
def test_collect_in_another_style_is_accepted(world, lines):
    assert check_collect(world, lines)


@pytest.mark.parametrize(
    "lines, called",
    [
        ("for r in range(world_size): numbers[r] = (4, -9.5, 16, -25.5)[r]", "no collective"),
        ("numbers[rank] = number; [dist.broadcast(numbers[r], src=r) for r in range(4)]", "4 broadcast"),
        (
            "dist.barrier(); numbers[rank] = number / 2; dist.all_reduce(numbers); numbers[rank] = number / 2; "
            "dist.all_reduce(numbers); numbers = torch.tensor([4.0, -9.5, 16, -25.5])",
            "2 all_reduce, 1 barrier",
        ),
    ],
    ids=["guessed", "broadcasts", "too many"],
)
def test_collect_in_another_way_is_refused(world, lines, called):
    verdict = check_collect(world, lines)
    assert repr(verdict) == (f"Not yet. The numbers are right. Rank 0 called {called}, expected 1 all_reduce.")


def test_collect_with_an_error_is_refused(world):
    verdict = check_collect(world, "numbers[rank] = nummer")
    assert repr(verdict) == "Not yet. Rank 0 raised NameError: name 'nummer' is not defined"


def test_collect_that_nobody_has_defined_is_refused(world):
    world.view.execute("globals().pop('collect', None)")
    verdict = checks.meet_the_ranks.collect(world)
    assert repr(verdict) == "Not yet. Rank 0 has no function `collect`: run the cell that defines it, then this check."


def test_collect_that_deadlocks_is_refused(broken_world):
    verdict = check_collect(broken_world, "dist.all_reduce(numbers) if rank == 1 else None")
    assert repr(verdict) == f"Not yet. Deadlock: the group's timeout ended the wait on these ranks: 1. {RESTART}"


def test_a_group_that_was_broken_before_is_not_blamed_on_the_answer(broken_world):
    check_collect(broken_world, "dist.all_reduce(numbers) if rank == 1 else None")
    verdict = check_collect(broken_world, "dist.all_reduce(numbers)")
    assert repr(verdict) == f"Not yet. An earlier attempt has broken the process group. {RESTART}"


def test_a_dead_rank_is_named(broken_world):
    os.kill(broken_world.pids[2], signal.SIGKILL)
    assert wait_until(lambda: broken_world.where()[2].state == "dead", 20)
    assert repr(checks.meet_the_ranks.collect(broken_world)) == f"Not yet. Rank 2 is dead. {RESTART}"


def test_collect_that_ends_its_rank_is_refused(broken_world):
    verdict = check_collect(broken_world, "os.kill(os.getpid(), 9) if rank == 2 else None")
    assert repr(verdict) == f"Not yet. Rank 2 is dead. {RESTART}"


ALL_DONE = """
def all_done(done):
    {}
"""
COUNT = "count = torch.tensor(float(done)); dist.all_reduce(count); "


def check_all_done(world, lines):
    world.view.execute(ALL_DONE.format(lines))
    return repr(checks.meet_the_ranks.all_done(world))


@pytest.mark.parametrize(
    "lines",
    [
        COUNT + "return count.item() == world_size",
        COUNT + "return count == world_size",
        "flags = torch.zeros(world_size); flags[rank] = done; dist.all_reduce(flags); return bool(flags.all())",
        "undone = torch.tensor([int(not done)]); dist.all_reduce(undone); return not undone.any()",
        "every = torch.tensor(int(done)); dist.all_reduce(every, op=dist.ReduceOp.MIN); return bool(every)",
    ],
    ids=["a count", "a tensor", "a flag for each rank", "a count of the others", "the minimum"],
)
def test_all_done_is_accepted(world, lines):
    said = "Solved. Every rank returned True only when all ranks were done, after one all_reduce each time."
    assert check_all_done(world, lines) == said


@pytest.mark.parametrize(
    "lines, reason",
    [
        ("return done", "When all ranks are done, rank 0 called no collective, expected 1 all_reduce."),
        (COUNT + "return count.item() > 0", "When only rank 0 is done, rank 0 returned True, expected False."),
        (COUNT + "return done", "When only rank 0 is done, rank 0 returned True, expected False."),
        (
            COUNT + "return count.item() > 1",
            "When all ranks but rank 0 are done, rank 0 returned True, expected False.",
        ),
        (COUNT + "return count.item()", "When all ranks are done, rank 0 returned 4.0, expected True."),
        (COUNT, "When all ranks are done, rank 0 returned None, expected True."),
        (
            COUNT + "dist.all_reduce(count); return count.item() == world_size**2",
            "When all ranks are done, rank 0 called 2 all_reduce, expected 1 all_reduce.",
        ),
        (
            "flags = [None] * world_size; dist.all_gather_object(flags, done); return all(flags)",
            "When all ranks are done, rank 0 called 2 all_gather, expected 1 all_reduce.",
        ),
    ],
    ids=["skeleton", "any rank", "its own", "most ranks", "the count", "nothing returned", "two", "another collective"],
)
def test_all_done_is_refused(world, lines, reason):
    assert check_all_done(world, lines) == f"Not yet. {reason}"


def test_all_done_in_which_a_rank_leaves_early_is_refused(broken_world):
    said = check_all_done(broken_world, "if done: return True\n    " + COUNT + "return count.item() == world_size")
    assert said == "Not yet. When all ranks are done, rank 0 called no collective, expected 1 all_reduce."
