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
                    raise Wrong(f"{who} {rank} returned {_show(result)}, and the target is {_show(target)}.")
        _require_collectives(runs, "all_reduce", 1)
        return f"Every rank returned {_show(targets[0])}, after one all_reduce."

    return judge(world, "mean", check, _run_mean)


def transposed(world) -> Verdict:
    """Check `transpose(rows)`: every rank gets its 2 rows of the transposed matrix, with one all_to_all."""
    shape = [2, 2 * world.size]

    def check(runs):
        for rank, run in enumerate(runs):
            if list(getattr(run.result, "shape", ())) != shape:
                raise Wrong(f"Rank {rank} returned {_show(run.result)}, and the target is a tensor of shape {shape}.")
            for row, numbers in enumerate(run.result.tolist()):
                for column, number in enumerate(numbers):
                    target = 100.0 * column + 2 * rank + row
                    if number != target:
                        holds = f"holds {_show(number)} in row {row}, column {column}"
                        raise Wrong(f"Rank {rank} {holds}, and the target is {target}.")
        _require_collectives(runs, "all_to_all", 1)
        return "Every rank holds its rows of the transposed matrix, after one all_to_all."

    return judge(world, "transpose", check, _run_with_rows)


def grid_sums(world) -> Verdict:
    """Check `grid_sums(number)`: every rank gets the sums over its row and its column of a grid of two columns.

    Each is the result of an all_reduce in a subgroup.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            sums = run.result
            if not isinstance(sums, list) or len(sums) != 2:
                raise Wrong(f"Rank {rank} returned {_show(sums)}, and the target is two tensors.")
            row = [other for other in range(world.size) if other // 2 == rank // 2]
            column = [other for other in range(world.size) if other % 2 == rank % 2]
            for name, members, found in (("row", row, sums[0]), ("column", column, sums[1])):
                target = sum(10**member for member in members)
                if not isinstance(found, int) or found != target:
                    raise Wrong(f"Rank {rank} returned {_show(found)} for its {name}, and the target is {target}.")
        _require_collectives(runs, "all_reduce", 2)
        return "Every rank holds the sums of its row and its column, after two all_reduces."

    return judge(world, "grid_sums", check, _run_with_digit)


def _require_collectives(runs, name, times):
    """Require that each rank has called this collective so many times, and no other."""
    for rank, run in enumerate(runs):
        if run.collectives != {name: times}:
            called = ", ".join(f"{count} {called}" for called, count in sorted(run.collectives.items()))
            raise Wrong(f"Rank {rank} called {called or 'no collective'}, and the target is {times} {name}.")


def _run_mean():
    import torch

    rank = int(os.environ["RANK"])
    run = call_answer("mean", [torch.full((rank + 1,), rank + 1.0)])
    if run.error:
        return run
    without_numbers_on_rank_0 = call_answer("mean", [torch.full((rank,), rank + 1.0)])
    results = [_sendable(run.result), _sendable(without_numbers_on_rank_0.result)]
    return run._replace(result=results, error=without_numbers_on_rank_0.error)


def _run_with_rows():
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rows = torch.tensor([[100.0 * row + column for column in range(2 * size)] for row in (2 * rank, 2 * rank + 1)])
    run = call_answer("transpose", [rows])
    return run._replace(result=_sendable(run.result))


def _run_with_digit():
    import torch

    run = call_answer("grid_sums", [torch.tensor(10 ** int(os.environ["RANK"]))])
    return run._replace(result=_sendable(run.result))


def _sendable(result):
    """Return a result in a form that pickle takes, a tensor or an array of one number as that number."""
    import numpy as np
    import torch

    if isinstance(result, list | tuple):
        return [_sendable(item) for item in result]
    if isinstance(result, np.ndarray | np.generic):
        result = torch.as_tensor(result)
    if isinstance(result, torch.Tensor) and result.numel() == 1:
        return result.item()
    if result is None or isinstance(result, int | float | torch.Tensor):
        return result
    return f"a {type(result).__name__}"


def _show(result):
    if isinstance(result, float):
        return str(round(result, 4))
    if isinstance(result, list):
        return f"a list of {len(result)}"
    return f"a tensor of shape {list(result.shape)}" if hasattr(result, "shape") else str(result)
