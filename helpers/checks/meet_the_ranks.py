"""Exercises of 00_meet_the_ranks."""

import numpy as np
import torch

from helpers.checks.exam import Wrong, called, exercise, number, show


def _judge_shares(shares):
    """Require that both lists were shared; `shares` has each rank's shares of the lists of `_lists_of_cards`."""
    numbered, multiples = _lists_of_cards(len(shares))
    sentence = _judge_list(numbered, [first for first, _ in shares])
    try:
        _judge_list(multiples, [second for _, second in shares])
    except Wrong as wrong:
        raise Wrong(f"{wrong} The cards were {', '.join(map(str, multiples))}.") from None
    return sentence


def _judge_list(cards, shares):
    """Require that each card went to exactly one rank, and that the shares differ by at most one card."""
    for card in cards:
        takers = [rank for rank, share in enumerate(shares) if card in share]
        if not takers:
            raise Wrong(f"No rank took card {card} of the cards {cards[0]} to {cards[-1]}, expected 1 rank.")
        if len(takers) > 1:
            raise Wrong(f"Card {card} went to {len(takers)} ranks ({', '.join(map(str, takers))}), expected 1 rank.")
    sizes = [len(share) for share in shares]
    if sum(sizes) != len(cards):
        raise Wrong(f"The ranks hold {sum(sizes)} cards in total, expected {len(cards)}.")
    if max(sizes) - min(sizes) > 1:
        largest, smallest = sizes.index(max(sizes)), sizes.index(min(sizes))
        raise Wrong(
            f"Rank {largest} took {max(sizes)} cards and rank {smallest} took {min(sizes)}, "
            "expected a difference of at most 1."
        )
    return f"Each of {len(cards)} cards went to one rank."


def _lists_of_cards(n):
    """Return two lists of cards.

    The first list leaves one card over. The second leaves n - 1, so that no rank can take the rest, and its cards are
    multiples of n, so that an answer fails if it goes by the cards and not by their places.
    """
    return list(range(3 * n + 1)), [n * place for place in range(3 * n - 1)]


@exercise(together=_judge_shares)
def my_share(exam):
    """Check `my_share(cards)`: each card goes to exactly one rank, and the shares differ by at most one card."""
    shares = []
    for cards in _lists_of_cards(exam.n):
        result = exam.call(cards)
        shares.append(_numbers(result))
        exam.require(
            shares[-1] is not None, f"Rank {exam.rank} returned {show(result)}, expected its share of the list."
        )
    return shares


@exercise
def collect(exam):
    """Check `collect(number)`: every rank returns the numbers of all ranks, in rank order, after one all_reduce."""
    rank = exam.rank
    # With fractions and both signs, an answer fails if it uses integers, a maximum, or one number that encodes all.
    numbers = [(other + 2) ** 2 * (-1.0) ** other - 0.5 * (other % 2) for other in range(exam.n)]
    result = exam.call(numbers[rank])
    returned = _numbers(result)
    shown = show(result) if returned is None else returned
    exam.require(returned == numbers, f"Rank {rank} returned {shown}, expected {numbers}.")
    exam.require(
        exam.collectives == {"all_reduce": 1},
        f"The numbers are right. Rank {rank} called {called(exam.collectives)}, expected 1 all_reduce.",
    )
    return f"Every rank returned {numbers}."


@exercise
def all_done(exam):
    """Check `all_done(done)`: every rank returns whether all ranks are done, after one all_reduce.

    Call it four times, when these ranks are done: all, none, only rank 0, and all except rank 0.
    """
    rank = exam.rank
    for done, expected, who in (
        (True, True, "all ranks are"),
        (False, False, "no rank is"),
        (rank == 0, False, "only rank 0 is"),
        (rank > 0, False, "all ranks except rank 0 are"),
    ):
        result = exam.call(done)
        exam.require(
            _truth(result) is expected,
            f"When {who} done, rank {rank} returned {_show_truth(result)}, expected {expected}.",
        )
        exam.require(
            exam.collectives == {"all_reduce": 1},
            f"When {who} done, rank {rank} called {called(exam.collectives)}, expected 1 all_reduce.",
        )
    return "Every rank returned True only when all ranks were done, after one all_reduce each time."


def _truth(result):
    """Return a bool, or the single bool in a tensor or array; None for any other value."""
    if isinstance(result, torch.Tensor | np.ndarray) and len(result.reshape(-1)) == 1:
        result = result.item()
    return result if isinstance(result, bool) else None


def _show_truth(result):
    """Return the text of an answer's result: True or False by name, any other value by `show`."""
    return str(result) if isinstance(result, bool) else show(result)


def _numbers(result):
    """Return the numbers in a list, tuple, set, tensor or array as a list; None for any other value."""
    if isinstance(result, torch.Tensor | np.ndarray):
        result = result.tolist()
    if not isinstance(result, list | tuple | set):
        return None
    numbers = [number(part) for part in result]
    return None if None in numbers else numbers
