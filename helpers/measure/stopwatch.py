"""Time the parts of a model that is split over two ranks, of which one calls the other by RPC."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed.rpc as rpc
from torch import nn

OPTIMIZER = "optimizer"
_STEPS = 30  # of which `fastest` returns one
_entries = []  # entries of this process since the last `_take`


class Entry(NamedTuple):
    """A computation from `begin` to `end`, in seconds by `time.monotonic`, a clock that a machine's processes share."""

    what: str
    begin: float
    end: float


class Timed(nn.Module):
    """A part of a model, `kind(*sizes)`, which notes the times of its forward and backward passes.

    The backward pass begins when the gradient of the output arrives, and ends when the gradient of the first input has
    been computed. It is not noted for an input that needs no gradient.
    """

    def __init__(self, kind: type[nn.Module], *sizes):
        super().__init__()
        self.part = kind(*sizes)

    def forward(self, inputs, *others):
        """Call the part, and note the time."""
        begin, name = time.monotonic(), type(self.part).__name__
        result = self.part(inputs, *others)
        _entries.append(Entry(f"{name} forward", begin, time.monotonic()))
        output, arrived = result[0] if isinstance(result, tuple) else result, []
        if output.requires_grad and inputs.requires_grad:
            output.register_hook(lambda gradient: arrived.append(time.monotonic()))
            inputs.register_hook(
                lambda gradient: _entries.append(Entry(f"{name} backward", arrived.pop(), time.monotonic()))
            )
        return result


class TimedAdam(torch.optim.Adam):
    """Adam that notes the times of its steps, on the rank that owns the parameters.

    `DistributedOptimizer` compiles the optimizers that it knows. A subclass stays a Python class on each owner. On a
    GPU the step waits for all streams, before and after: RPC orders it neither after the backward pass nor before the
    next forward pass.
    """

    def step(self, closure=None):
        """Take a step, and note the time."""
        _wait_for_gpus()
        begin = time.monotonic()
        loss = super().step(closure)
        _wait_for_gpus()
        _entries.append(Entry(OPTIMIZER, begin, time.monotonic()))
        return loss


class Step(NamedTuple):
    """A step: its begin and end on the trainer, and the computations of the trainer and of the server."""

    begin: float
    end: float
    trainer: list[Entry]
    server: list[Entry]

    @property
    def seconds(self) -> float:
        """The duration of the step."""
        return self.end - self.begin

    def busy(self, *ranks: str) -> float:
        """Return for how long at least one of these ranks, "trainer" or "server", computes."""
        seconds, until = 0.0, self.begin
        for entry in sorted((entry for rank in ranks for entry in getattr(self, rank)), key=lambda entry: entry.begin):
            seconds += max(0.0, entry.end - max(until, entry.begin))
            until = max(until, entry.end)
        return seconds

    def shares(self) -> dict[str, dict[str, float]]:
        """Return for each rank the shares of the step: it computes, it waits for the other rank, neither computes."""
        either = self.busy("trainer", "server")
        return {
            rank: {
                "computes": self.busy(rank) / self.seconds,
                "waits while the other computes": (either - self.busy(rank)) / self.seconds,
                "neither computes": 1 - either / self.seconds,
            }
            for rank in ("trainer", "server")
        }


def fastest(other: str, step: Callable, model, optimizer, *arguments) -> Step:
    """Call `step(model, optimizer, *arguments)` 30 times, and return the fastest step, the least disturbed.

    `other` is the name of the worker that has the other parts.
    """
    taken = []
    for _ in range(_STEPS):
        _take()
        rpc.rpc_sync(other, _take)
        begin = time.monotonic()
        step(model, optimizer, *arguments)
        end = time.monotonic()
        taken.append(Step(begin, end, _take(), rpc.rpc_sync(other, _take)))
    return min(taken, key=lambda step: step.seconds)


def _wait_for_gpus():
    for gpu in range(torch.cuda.device_count()):
        torch.cuda.synchronize(gpu)


def _take():
    taken = list(_entries)
    _entries.clear()
    return taken
