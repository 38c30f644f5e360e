"""Checks of the exercises of notebook 00."""

import os
import time
from contextlib import suppress
from datetime import timedelta

from helpers.checks.judging import Verdict, Wrong, call_answer, judge


def my_share(world) -> Verdict:
    """Check `my_share(cards)`: each card goes to one rank, and no rank gets two more than another."""
    cards = list(range(3 * world.size + 1))

    def check(runs):
        for rank, run in enumerate(runs):
            if not isinstance(run.result, list):
                raise Wrong(f"Rank {rank} returned {run.result}, and the target is its part of the list.")
        for card in cards:
            takers = [rank for rank, run in enumerate(runs) if card in run.result]
            if not takers:
                raise Wrong(f"Of the cards {cards[0]} to {cards[-1]} nobody has taken {card}.")
            if len(takers) > 1:
                raise Wrong(f"Card {card} has been taken by ranks {' and '.join(map(str, takers))}.")
        sizes = [len(run.result) for run in runs]
        if sum(sizes) != len(cards):
            raise Wrong(f"The ranks have {sum(sizes)} cards in all, and {len(cards)} were to be dealt out.")
        if max(sizes) - min(sizes) > 1:
            raise Wrong(f"Rank {sizes.index(max(sizes))} has {max(sizes)} cards, and another only {min(sizes)}.")
        return f"Of {len(cards)} cards each has been taken by one rank."

    return judge(world, "my_share", check, _share, cards)


def collect(world) -> Verdict:
    """Check `collect(number)`: by one all_reduce every rank gets the numbers of all ranks, in their order."""
    # Fractions and both signs, so that integers, a maximum and numbers packed into one get some of them wrong.
    numbers = [(rank + 2) ** 2 * (-1.0) ** rank - 0.5 * (rank % 2) for rank in range(world.size)]

    def check(runs):
        for rank, run in enumerate(runs):
            if run.result != numbers:
                raise Wrong(f"Rank {rank} returned {run.result}, and the target is {numbers}.")
            if run.collectives != {"all_reduce": 1}:
                called = ", ".join(f"{name} {count} times" for name, count in run.collectives.items()) or "none"
                raise Wrong(f"The numbers are right. Rank {rank} called {called}, and the target is one all_reduce.")
        return f"Every rank returned {numbers}."

    return judge(world, "collect", check, _collect, numbers)


def turn_round(world) -> Verdict:
    """Check `turn_round(name)`: it makes a new group with the ranks in reverse, which meet in the store under `name`.

    Afterwards the ranks are put into a group in their old order.
    """

    def check(runs):
        for rank, (group_rank, group_size, met_under_name) in enumerate(run.result for run in runs):
            target = world.size - 1 - rank
            if group_rank is None:
                raise Wrong(f"Rank {rank} has left the old group, and is in no new one.")
            if group_rank != target:
                raise Wrong(f"The process with RANK={rank} is rank {group_rank}, and the target is rank {target}.")
            if group_size != world.size:
                raise Wrong(f"The group of rank {rank} has {group_size} ranks, and the target is {world.size}.")
            if not met_under_name:
                raise Wrong(
                    "The ranks are in reverse, but they have not met under the prefix `name`. "
                    "The next group that meets in this place would find the addresses of this one."
                )
        return f"The process with RANK=0 is rank {world.size - 1} of the new group, and so on down to rank 0."

    return judge(world, "turn_round", check, _turn_round, f"turned round {time.time_ns()}")


def _share(cards):
    run = call_answer("my_share", [list(cards)])
    parts = run.result.tolist() if hasattr(run.result, "tolist") else run.result
    return run._replace(result=list(parts) if isinstance(parts, list | tuple | range | set) else parts)


def _collect(numbers):
    run = call_answer("collect", [numbers[int(os.environ["RANK"])]])
    return run._replace(result=run.result.tolist() if hasattr(run.result, "tolist") else run.result)


def _turn_round(name):
    import torch.distributed as dist

    run = call_answer("turn_round", [name])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    timeout = timedelta(seconds=10)  # for ranks that come late, because they have waited in turn_round
    store = dist.TCPStore(address, port, is_master=False, timeout=timeout)
    _wait_for_all(store, name)
    result = (None, None, False)
    if dist.is_initialized():
        met_under_name = any(key.startswith(name) for key in store.list_keys())
        result = (dist.get_rank(), dist.get_world_size(), met_under_name)
        dist.destroy_process_group()
    try:
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore(f"after {name}", store),
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=timeout,
        )
    except RuntimeError as error:
        return run._replace(error=run.error or f"{type(error).__name__}: {error}")
    return run._replace(result=result)


def _wait_for_all(store, name):
    """Wait until every rank has called its answer: a rank that leaves a group breaks it for those who are still coming.

    Gloo connects each pair of ranks by itself, so one rank may be through while two others are not.
    """
    if store.add(f"through {name}", 1) == int(os.environ["WORLD_SIZE"]):
        store.set(f"all through {name}", "")
    with suppress(RuntimeError):  # one is stuck in its answer; the judge says where
        store.wait([f"all through {name}"], timedelta(seconds=10))
