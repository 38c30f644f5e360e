"""Exercises of 00_meet_the_ranks."""

import os
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from helpers.checks.exam import AnswerError, Wrong, answer, called, errors_of_answer, exercise, number, show


def _judge_shares(shares):
    """Require that each card has been taken by one rank, and that no rank has two more than another."""
    cards = range(3 * len(shares) + 1)
    for card in cards:
        takers = [rank for rank, share in enumerate(shares) if card in share]
        if not takers:
            raise Wrong(f"Of the cards {cards[0]} to {cards[-1]} nobody has taken {card}.")
        if len(takers) > 1:
            raise Wrong(f"Card {card} has been taken by ranks {' and '.join(map(str, takers))}.")
    sizes = [len(share) for share in shares]
    if sum(sizes) != len(cards):
        raise Wrong(f"The ranks have {sum(sizes)} cards in all, expected the {len(cards)} that were to be dealt out.")
    if max(sizes) - min(sizes) > 1:
        raise Wrong(f"Rank {sizes.index(max(sizes))} has {max(sizes)} cards, and another only {min(sizes)}.")
    return f"Of {len(cards)} cards each has been taken by one rank."


@exercise(together=_judge_shares)
def my_share(exam):
    """Check `my_share(cards)`: each card goes to one rank, and no rank gets two more than another."""
    result = exam.call(list(range(3 * exam.n + 1)))
    share = _numbers(result)
    exam.require(share is not None, f"Rank {exam.rank} returned {show(result)}, expected its part of the list.")
    return share


@exercise
def collect(exam):
    """Check `collect(number)`: by one all_reduce every rank gets the numbers of all ranks, in their order."""
    rank = exam.rank
    # Fractions and both signs, so that integers, a maximum and numbers packed into one get some of them wrong.
    numbers = [(other + 2) ** 2 * (-1.0) ** other - 0.5 * (other % 2) for other in range(exam.n)]
    result = exam.call(numbers[rank])
    found = _numbers(result)
    exam.require(
        found == numbers, f"Rank {rank} returned {show(result) if found is None else found}, expected {numbers}."
    )
    exam.require(
        exam.collectives == {"all_reduce": 1},
        f"The numbers are right. Rank {rank} called {called(exam.collectives)}, expected 1 all_reduce.",
    )
    return f"Every rank returned {numbers}."


@exercise
def turn_round(exam):
    """Check `turn_round(name)`: it makes a new group with the ranks in reverse, which meet in the store under `name`.

    Afterwards the ranks are put into a group in their old order.
    """
    rank, n = exam.rank, exam.n
    expected = n - 1 - rank
    group = exam.on_rank(_turn_round)
    exam.require(group.rank is not None, f"Rank {rank} has left the old group, and is in no new one.")
    exam.require(
        group.rank == expected,
        f"The process with RANK={rank} is rank {group.rank}, expected rank {expected}.",
    )
    exam.require(group.size == n, f"The group of rank {rank} has {group.size} ranks, expected {n}.")
    exam.require(
        group.met_under_name,
        "The ranks are in reverse, but they have not met under the prefix `name`. "
        "The next group that meets in this place would find the addresses of this one.",
    )
    return f"The process with RANK=0 is rank {n - 1} of the new group, and so on down to rank 0."


class _Group(NamedTuple):
    """The default group of a rank: its rank in it, None outside of one, and whether a name is in the store's keys."""

    rank: int | None
    size: int | None
    met_under_name: bool


def _turn_round():
    """Call `turn_round`, and return the group that this rank is in then; put the ranks back into their old order."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    timeout = timedelta(seconds=10)  # for ranks that come late, because they have waited in turn_round
    store = dist.TCPStore(address, port, is_master=False, timeout=timeout)
    # Each of the ranks adds one a time, so that all of them get the same name, and the next time another one.
    name = f"time {(store.add('times turned round', 1) - 1) // n} of turning round"
    error = None
    try:
        answer("turn_round", [name])
    except AnswerError as raised:
        error = raised
    _wait_for_all(store, name)
    group = _Group(None, None, False)
    if dist.is_initialized():
        met_under_name = any(key.startswith(name) for key in store.list_keys())
        group = _Group(dist.get_rank(), dist.get_world_size(), met_under_name)
        dist.destroy_process_group()
    try:
        old_order = dist.PrefixStore(f"after {name}", store)
        with errors_of_answer():
            dist.init_process_group("gloo", store=old_order, rank=rank, world_size=n, timeout=timeout)
    except AnswerError as raised:
        error = error or raised
    if error:
        raise error
    return group


def _wait_for_all(store, name):
    """Wait until every rank has called its answer: a rank that leaves a group breaks it for those who are still coming.

    Gloo connects each pair of ranks by itself, so one rank may be through while two others are not.
    """
    if store.add(f"through {name}", 1) == int(os.environ["WORLD_SIZE"]):
        store.set(f"all through {name}", "")
    with suppress(RuntimeError):  # one is stuck in its answer; the judge says where
        store.wait([f"all through {name}"], timedelta(seconds=10))


def _numbers(result):
    """Return the numbers in a list, tuple, set, tensor or array as a list; None for anything else."""
    if isinstance(result, torch.Tensor | np.ndarray):
        result = result.tolist()
    if not isinstance(result, list | tuple | set):
        return None
    numbers = [number(part) for part in result]
    return None if None in numbers else numbers
