"""Exercises of 44_fully_shard: the rows of a rank, gradients clipped over shards, and layers grouped into units."""

import operator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from helpers.checks.exam import answer, exercise, number, show

_ROWS = (8, 7, 10, 3, 1, 401)


@exercise
def my_slice(exam):
    """Check `my_slice(rows, n, rank)`: the rows of a parameter that `fully_shard` keeps on a rank.

    Each rank answers for all ranks, in worlds of 1 to 8 ranks and for parameters of 1 to 401 rows.
    """
    for n in (1, 2, 3, 4, 8):
        for rows in _ROWS:
            chunks = torch.arange(rows).chunk(n)
            for place in range(n):
                expected = chunks[place].tolist() if place < len(chunks) else []
                result = exam.call(rows, n, place)
                case = f"For `my_slice({rows}, {n}, {place})` rank {exam.rank} returned"
                returned = [number(row) for row in result] if isinstance(result, list | tuple) else [None]
                if exam.require(None not in returned, f"{case} {show(result)}, expected a range."):
                    exam.require(
                        returned == expected,
                        f"{case} {_in_words(returned)}, expected {_in_words(expected)}.",
                    )
    return "Every rank returned the rows of all ranks."


@exercise
def my_clip(exam):
    """Check `my_clip(parameters, most)`: gradients in shards, clipped by the norm over all shards.

    The check calls it twice, with half the norm and with twice the norm as the limit.
    """
    rank = exam.rank
    for factor in (0.5, 2.0):
        norm, local, clipped = exam.on_rank(_clipped, factor)
        expected = min(1.0, factor)
        if exam.require(
            clipped is not None, f"After `my_clip` a parameter of rank {rank} has no gradient, expected one."
        ):
            # A rank without a single row has nothing to clip.
            times = clipped / local if local else expected
            exam.require(
                abs(times - expected) <= 1e-6 * expected,
                f"With a norm of {norm:.4f} over all ranks, {local:.4f} on rank {rank}, at most {factor * norm:.4f}, "
                f"the gradients of rank {rank} are {times:.4f} times what they were, expected {expected:.4f} times.",
            )
    return "All ranks clip their gradients by the norm over all shards."


@exercise
def grouped(exam):
    """Check `grouped(sizes, limit)`: neighbours in as few units as possible, none larger than the limit."""
    for sizes, limit in (([4, 4, 4, 4], 8), ([4, 4, 4, 4], 4), ([6, 3, 3, 6, 2], 9), ([5, 1, 5, 1, 5], 6), ([7], 100)):
        fault = _fault_of_units(exam.call(list(sizes), limit), sizes, limit)
        exam.require(not fault, f"With layers of {sizes} bytes and a limit of {limit}, rank {exam.rank} {fault}")
    return "There are as few units as possible, and no unit is larger than the limit."


def _in_words(rows):
    return f"rows {rows[0]} to {rows[-1]}" if rows else "no rows"


def _clipped(factor):
    """Return the norm of the gradients over all ranks, and this rank's norm before and after `my_clip`.

    The norm after `my_clip` is None if a parameter has lost its gradient.
    """
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 5)).double()
        inputs = torch.randn(4, 9, dtype=torch.float64)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    model(inputs).square().sum().backward()
    local = _norm(model)
    squares = torch.tensor(local**2, dtype=torch.float64)
    dist.all_reduce(squares)
    norm = squares.sqrt().item()
    answer("my_clip", [list(model.parameters()), factor * norm])
    return norm, local, _norm(model)


def _norm(model):
    """Return the norm of this rank's gradients, or None if a gradient is missing."""
    gradients = [parameter.grad for parameter in model.parameters()]
    if any(gradient is None for gradient in gradients):
        return None
    return torch.cat([gradient.to_local().flatten() for gradient in gradients]).norm().item()


def _fault_of_units(result, sizes, limit):
    """Return in words what is wrong with these units, or ""."""
    try:
        units = [[operator.index(layer) for layer in unit] for unit in result]
    except TypeError:
        return f"returned {show(result)}, expected a list of lists of layer numbers."
    if sum(units, []) != list(range(len(sizes))) or [] in units:
        return f"returned {units}, expected each layer in one unit, in order."
    for unit in units:
        unit_bytes = sum(sizes[layer] for layer in unit)
        if unit_bytes > limit:
            return f"returned a unit {unit} of {unit_bytes} bytes, expected at most {limit}."
    fewest = _fewest(sizes, limit)
    if len(units) > fewest:
        return f"returned {len(units)} units, expected {fewest}."
    return ""


def _fewest(sizes, limit):
    units, unit_bytes = 0, limit + 1
    for size in sizes:
        if unit_bytes + size > limit:
            units, unit_bytes = units + 1, 0
        unit_bytes += size
    return units
