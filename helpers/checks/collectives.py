"""Exercises of 04_collectives."""

import math
import time

import torch

from helpers.checks.exam import called, exercise, near, show

_LATE = 0.3  # seconds


@exercise
def mean(exam):
    """Check `mean(numbers)`: every rank gets the mean of the numbers of all ranks, with one all_reduce.

    The check calls it twice: rank r holds r + 1 numbers, and then r numbers, so that rank 0 holds none.
    """
    rank, n = exam.rank, exam.n
    for held, expected, who in (
        (rank + 1, (2 * n + 1) / 3, "Rank"),
        (rank, (2 * n + 2) / 3, "When rank 0 holds no numbers, rank"),
    ):
        result = exam.call(torch.full((held,), rank + 1.0))
        exam.require(near(result, expected), f"{who} {rank} returned {show(result)}, expected {show(expected)}.")
    _require_collectives(exam, all_reduce=1)
    return f"Every rank returned {show((2 * n + 1) / 3)}, after one all_reduce."


@exercise
def transpose(exam):
    """Check `transpose(rows)`: every rank gets its 2 rows of the transposed matrix, with one all_to_all."""
    rank, shape = exam.rank, [2, 2 * exam.n]
    matrix = 100.0 * torch.arange(shape[1])[:, None] + torch.arange(shape[1])
    own = slice(2 * rank, 2 * rank + 2)
    result = exam.call(matrix[own].clone())
    if _require_shape(exam, result, shape, f"a tensor of shape {shape}"):
        for row, column in (torch.as_tensor(result) != matrix.T[own]).nonzero()[:1].tolist():
            found, expected = result[row, column].item(), matrix[column, 2 * rank + row].item()
            exam.refuse(f"Rank {rank} holds {show(found)} in row {row}, column {column}, expected {expected}.")
    _require_collectives(exam, all_to_all=1)
    return "Every rank returned its rows of the transposed matrix, after one all_to_all."


@exercise
def my_all_gather(exam):
    """Check `my_all_gather(mine)`: an all_gather of broadcasts, one from each rank."""
    rank, n = exam.rank, exam.n
    expected = [(chunk + 1) * 10**chunk for chunk in range(n)]
    result = exam.call(torch.tensor([expected[rank]]))
    if _require_shape(exam, result, [n], f"a tensor of shape [{n}]"):
        found = result.tolist()
        exam.require(found == expected, f"Rank {rank} returned {found}, expected {expected}.")
    others = set(exam.collectives) - {"broadcast"}
    exam.require(
        not others, f"The chunks are right. Rank {rank} called {called(exam.collectives)}, expected broadcasts only."
    )
    return f"Every rank returned all chunks, after {exam.collectives.get('broadcast', 0)} broadcasts."


@exercise
def my_all_reduce(exam):
    """Check `my_all_reduce(chunks)`: an all_reduce of one reduce_scatter and one all_gather."""
    rank, n = exam.rank, exam.n
    expected = [(chunk + 1) * (10**n // 9) for chunk in range(n)]
    result = exam.call(torch.arange(1, n + 1) * 10**rank)
    if _require_shape(exam, result, [n], f"a tensor of shape [{n}]"):
        found = result.tolist()
        exam.require(found == expected, f"Rank {rank} returned {found}, expected {expected}.")
    _require_collectives(exam, "The sums are right. ", reduce_scatter=1, all_gather=1)
    return "Every rank returned all sums: one collective computed them, and the other brought them to all ranks."


@exercise
def sharded_step(exam):
    """Check `sharded_step(weights, gradient, rate)`: SGD in which each rank updates only its shard of the weights."""
    rank, n = exam.rank, exam.n
    places = torch.arange(2.0 * n)
    result = exam.call(10 * places, (rank + 1) * (places + 1), 0.5)
    if _require_shape(exam, result, [2 * n], f"{2 * n} weights"):
        expected = 10 * places - 0.5 * (n + 1) / 2 * (places + 1)
        for place in (~((torch.as_tensor(result) - expected).abs() < 1e-3)).nonzero()[:1].flatten().tolist():
            weights = f"{show(result[place].item())}, expected {show(expected[place].item())}"
            exam.refuse(f"On rank {rank} weight {place} is {weights}.")
    exam.require(
        exam.collectives == {"reduce_scatter": 1, "all_gather": 1},
        f"The weights are right. Rank {rank} called {called(exam.collectives)}, expected 1 reduce_scatter of the "
        "gradients and 1 all_gather of the weights.",
    )
    return "Every rank returned the new weights, and updated only its own shard."


@exercise
def skip_together(exam):
    """Check `skip_together(gradient)`: whether any rank has a NaN, and the norm of the rank's own gradient.

    The last rank comes late, so that an answer without `wait()` reads the result too early.
    """
    rank, n = exam.rank, exam.n
    for where, ranks in ((f"only on rank {n - 1}", [n - 1]), ("on no rank", []), ("on every rank", range(n))):
        gradient = torch.arange(1.0, 5) * (rank + 1)
        if rank in ranks:
            gradient[rank % 4] = math.nan
        expected, norm = bool(ranks), gradient.norm().item()
        time.sleep(_LATE if rank == n - 1 else 0)
        result = exam.call(gradient)
        if not isinstance(result, list | tuple) or len(result) != 2:
            exam.refuse(f"Rank {rank} returned {show(result)}, expected two values: True or False, and a norm.")
            continue
        skips, own = result
        found = _truth(skips)
        exam.require(
            found == expected,
            f"With a NaN {where}, rank {rank} returned {show(skips) if found is None else found}, expected {expected}.",
        )
        exam.require(
            math.isnan(norm) or near(own, norm),
            f"Rank {rank} returned the norm {show(own)}, expected {show(norm)}, the norm of its own gradient.",
        )
    _require_collectives(exam, all_reduce=1)
    return "All ranks skip the same steps, after one all_reduce."


def _truth(value):
    """Return True or False for a bool, for 0 or 1, and for a tensor with one of these; None for anything else."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def _require_shape(exam, result, shape, expected):
    found = list(getattr(result, "shape", ()))
    return exam.require(found == shape, f"Rank {exam.rank} returned {show(result)}, expected {expected}.")


def _require_collectives(exam, before="", **expected):
    wanted = " and ".join(f"{count} {name}" for name, count in expected.items())
    exam.require(
        exam.collectives == expected,
        f"{before}Rank {exam.rank} called {called(exam.collectives)}, expected {wanted}.",
    )
