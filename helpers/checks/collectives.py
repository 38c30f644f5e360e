"""Checks of the exercises of 03_collectives."""

import os

from helpers.checks.judging import Verdict, Wrong, call_answer, judge


def mean_of_all(world) -> Verdict:
    """Check `mean(numbers)`: every rank gets the mean of the numbers of all ranks, with one all_reduce.

    It is called twice: rank r holds r + 1 numbers, and then r numbers, so that rank 0 holds none.
    """
    targets = [(2 * world.size + 1) / 3, (2 * world.size + 2) / 3]

    def check(runs):
        for call, target in enumerate(targets):
            who = "When rank 0 holds no numbers, rank" if call else "Rank"
            for rank, run in enumerate(runs):
                result = run.result[call]
                if not isinstance(result, int | float) or not abs(result - target) < 1e-4:
                    raise Wrong(f"{who} {rank} returned {show(result)}, and the target is {show(target)}.")
        require_collectives(runs, "all_reduce", 1)
        return f"Every rank returned {show(targets[0])}, after one all_reduce."

    return judge(world, "mean", check, _run_mean)


def transposed(world) -> Verdict:
    """Check `transpose(rows)`: every rank gets its 2 rows of the transposed matrix, with one all_to_all."""
    shape = [2, 2 * world.size]

    def check(runs):
        for rank, run in enumerate(runs):
            if list(getattr(run.result, "shape", ())) != shape:
                raise Wrong(f"Rank {rank} returned {show(run.result)}, and the target is a tensor of shape {shape}.")
            for row, numbers in enumerate(run.result.tolist()):
                for column, number in enumerate(numbers):
                    target = 100.0 * column + 2 * rank + row
                    if number != target:
                        holds = f"holds {show(number)} in row {row}, column {column}"
                        raise Wrong(f"Rank {rank} {holds}, and the target is {target}.")
        require_collectives(runs, "all_to_all", 1)
        return "Every rank holds its rows of the transposed matrix, after one all_to_all."

    return judge(world, "transpose", check, _run_with_rows)


def in_two_halves(world) -> Verdict:
    """Check `my_all_reduce(chunks)`: an all_reduce of one reduce_scatter and one all_gather."""
    total = [(chunk + 1) * (10**world.size // 9) for chunk in range(world.size)]

    def check(runs):
        for rank, run in enumerate(runs):
            if list(getattr(run.result, "shape", ())) != [world.size]:
                raise Wrong(f"Rank {rank} returned {show(run.result)}, and the target is a tensor of {world.size}.")
            if run.result.tolist() != total:
                raise Wrong(f"Rank {rank} returned {run.result.tolist()}, and the target is {total}.")
        for rank, run in enumerate(runs):
            if run.collectives != {"reduce_scatter": 1, "all_gather": 1}:
                raise Wrong(
                    f"The sums are right. Rank {rank} called {called(run)}, and the target is "
                    "1 reduce_scatter and 1 all_gather."
                )
        return "Every rank holds all sums: one collective has made them, the other has brought them to all."

    return judge(world, "my_all_reduce", check, _run_with_chunks)


def sharded(world) -> Verdict:
    """Check `sharded_step(weights, gradient, rate)`: SGD in which each rank updates only its share of the weights."""
    mean_of_ranks = (world.size + 1) / 2
    target = [10.0 * place - 0.5 * mean_of_ranks * (place + 1) for place in range(2 * world.size)]

    def check(runs):
        for rank, run in enumerate(runs):
            if list(getattr(run.result, "shape", ())) != [len(target)]:
                raise Wrong(f"Rank {rank} returned {show(run.result)}, and the target is {len(target)} weights.")
            for place, (found, wanted) in enumerate(zip(run.result.tolist(), target, strict=True)):
                if not abs(found - wanted) < 1e-3:
                    raise Wrong(f"On rank {rank} weight {place} is {show(found)}, and the target is {show(wanted)}.")
        for rank, run in enumerate(runs):
            if run.collectives != {"reduce_scatter": 1, "all_gather": 1}:
                raise Wrong(
                    f"The weights are right. Rank {rank} called {called(run)}, and the target is "
                    "1 reduce_scatter of the gradients and 1 all_gather of the weights."
                )
        return "Every rank holds the new weights, of which it has updated its own share."

    return judge(world, "sharded_step", check, _run_sharded_step)


def require_collectives(runs, name, times):
    """Require that each rank has called this collective so many times, and no other."""
    for rank, run in enumerate(runs):
        if run.collectives != {name: times}:
            raise Wrong(f"Rank {rank} called {called(run)}, and the target is {times} {name}.")


def called(run):
    """Return the collectives that a rank has called, in words."""
    names = sorted(run.collectives.items())
    return ", ".join(f"{count} {name}" for name, count in names) or "no collective"


def _run_mean():
    import torch

    rank = int(os.environ["RANK"])
    run = call_answer("mean", [torch.full((rank + 1,), rank + 1.0)])
    if run.error:
        return run
    without_numbers_on_rank_0 = call_answer("mean", [torch.full((rank,), rank + 1.0)])
    results = [sendable(run.result), sendable(without_numbers_on_rank_0.result)]
    return run._replace(result=results, error=without_numbers_on_rank_0.error)


def _run_with_rows():
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rows = torch.tensor([[100.0 * row + column for column in range(2 * size)] for row in (2 * rank, 2 * rank + 1)])
    run = call_answer("transpose", [rows])
    return run._replace(result=sendable(run.result))


def _run_with_chunks():
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    run = call_answer("my_all_reduce", [torch.arange(1, size + 1) * 10**rank])
    return run._replace(result=sendable(run.result))


def _run_sharded_step():
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    places = torch.arange(2.0 * size)
    run = call_answer("sharded_step", [10 * places, (rank + 1) * (places + 1), 0.5])
    return run._replace(result=sendable(run.result))


def sendable(result):
    """Return a result in a form that pickle takes, a tensor or an array of one number as that number."""
    import numpy as np
    import torch

    if isinstance(result, list | tuple):
        return [sendable(item) for item in result]
    if isinstance(result, np.ndarray | np.generic):
        result = torch.as_tensor(result)
    if isinstance(result, torch.Tensor) and result.numel() == 1:
        return result.item()
    if result is None or isinstance(result, int | float | torch.Tensor):
        return result
    return f"a {type(result).__name__}"


def show(result):
    """Return what an answer has returned, in few words."""
    if isinstance(result, float):
        return str(round(result, 4))
    if isinstance(result, list):
        return f"a list of {len(result)}"
    return f"a tensor of shape {list(result.shape)}" if hasattr(result, "shape") else str(result)
