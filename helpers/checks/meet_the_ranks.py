"""Checks of the exercises of notebook 00."""

import os
import time
from datetime import timedelta

from helpers.checks.judging import Verdict, Wrong, call_answer, judge


def numbers_collected(world) -> Verdict:
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


def world_turned_round(world) -> Verdict:
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


def _collect(numbers):
    run = call_answer("collect", [numbers[int(os.environ["RANK"])]])
    return run._replace(result=run.result.tolist() if hasattr(run.result, "tolist") else run.result)


def _turn_round(name):
    import torch.distributed as dist

    run = call_answer("turn_round", [name])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    timeout = timedelta(seconds=10)  # for ranks that come late, because they have waited in turn_round
    store = dist.TCPStore(address, port, is_master=False, timeout=timeout)
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
