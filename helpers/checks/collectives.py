"""Exercises of 04_collectives."""

import math
import time

import torch
from torch.overrides import TorchFunctionMode

from helpers import tap
from helpers.checks.exam import answer, called, close, exercise, near, rounded, show

_LATE = 0.3  # seconds


@exercise
def mean(exam):
    """Check `mean(numbers)`: every rank gets the mean of the numbers of all ranks, with one all_reduce.

    The check calls it three times: rank r holds r + 1 integers, then r integers, so that rank 0 holds none, and then
    r + 1 numbers that are not integers.
    """
    rank, n = exam.rank, exam.n
    for held, number, expected, who in (
        (rank + 1, rank + 1.0, (2 * n + 1) / 3, "Rank"),
        (rank, rank + 1.0, (2 * n + 2) / 3, "When rank 0 holds no numbers, rank"),
        (rank + 1, rank + 0.75, (8 * n + 1) / 12, "With numbers that are not integers, rank"),
    ):
        result = exam.call(torch.full((held,), number))
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
    gradient = (rank + 1) * (places + 1)
    expected = 10 * places - 0.5 * (n + 1) / 2 * (places + 1)
    result, inputs = exam.on_rank(_step_and_inputs, 10 * places, gradient.clone(), 0.5)
    if _require_shape(exam, result, [2 * n], f"{2 * n} weights"):
        for place in (~((torch.as_tensor(result) - expected).abs() < 1e-3)).nonzero()[:1].flatten().tolist():
            weights = f"{show(result[place].item())}, expected {show(expected[place].item())}"
            exam.refuse(f"On rank {rank} weight {place} is {weights}.")
    if exam.require(
        exam.collectives == {"reduce_scatter": 1, "all_gather": 1},
        f"The weights are right. Rank {rank} called {called(exam.collectives)}, expected 1 reduce_scatter of the "
        "gradients and 1 all_gather of the weights.",
    ):
        scattered, gathered = inputs["reduce_scatter"], inputs["all_gather"]
        factor = (scattered * gradient).sum() / gradient.square().sum() if scattered.shape == gradient.shape else 0
        exam.require(
            factor and close(scattered, factor * gradient, 1e-3),
            f"The weights are right. Rank {rank} passed {rounded(scattered)} to reduce_scatter, expected its gradient.",
        )
        shard = expected[2 * rank : 2 * rank + 2]
        exam.require(
            close(gathered, shard, 1e-3),
            f"The weights are right. Rank {rank} passed {rounded(gathered)} to all_gather, expected {rounded(shard)}, "
            "the new weights of its shard.",
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
        result, computed = exam.on_rank(_skip_and_whether_computed, gradient)
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
    exam.require(
        computed,
        f"The values are right. Rank {rank} computed nothing between its all_reduce and `wait()`, expected the norm. "
        "Start the all_reduce with `async_op=True`, then compute the norm, then wait.",
    )
    return "All ranks skip the same steps, after one all_reduce."


def _step_and_inputs(weights, gradient, rate):
    """Return the result of `sharded_step`, and for each of its collectives the numbers that this rank passed."""
    inputs = {}

    def note(event):
        inputs[event.name] = torch.cat([tensor.flatten() for tensor in event.inputs or [torch.empty(0)]])

    with tap.subscribed(tap.Collective, begin=note):
        return answer("sharded_step", (weights, gradient, rate)), inputs


def _skip_and_whether_computed(gradient):
    """Return the result of `skip_together`, and whether it computed between its collective and the wait for it."""
    meanwhile = _Meanwhile()
    with tap.subscribed(tap.Collective, end=meanwhile.begin), tap.subscribed(tap.Wait, begin=meanwhile.end), meanwhile:
        return answer("skip_together", (gradient,)), meanwhile.computed


class _Meanwhile(TorchFunctionMode):
    """Notes in `computed` whether a function of torch was called between `begin` and `end`."""

    def __init__(self):
        super().__init__()
        self.is_open = self.computed = False

    def begin(self, _):
        self.is_open = True

    def end(self, _):
        self.is_open = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.computed |= self.is_open
        return function(*args, **(kwargs or {}))


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
