"""Time the parts of a model that is split over two ranks, of which one calls the other by RPC."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch.distributed.rpc as rpc
from torch import nn

_OPTIMIZER = "optimizer"
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


class Step(NamedTuple):
    """A step: its begin and end on the rank that took it, and the computations of this rank and of the other rank."""

    begin: float
    end: float
    here: list[Entry]
    there: list[Entry]

    @property
    def seconds(self) -> float:
        """The duration of the step."""
        return self.end - self.begin

    def shares(self) -> dict[str, dict[str, float]]:
        """Return, for each rank, the seconds in which it computes, waits for the other, and neither rank computes.

        The step of the optimizer, which both ranks take at the same time, has an entry of its own.
        """
        optimizer = sum(entry.end - entry.begin for entry in self.here if entry.what == _OPTIMIZER)
        mine = sum(entry.end - entry.begin for entry in self.here) - optimizer
        other = sum(entry.end - entry.begin for entry in self.there)
        rest = {"optimizer step of both": optimizer, "RPC": self.seconds - mine - other - optimizer}
        return {
            "trainer": {"computes": mine, "waits for the other": other, **rest},
            "server": {"computes": other, "waits for the other": mine, **rest},
        }


def fastest(other: str, step: Callable, model, optimizer, *arguments, times: int = 10) -> Step:
    """Call `step(model, optimizer, *arguments)` `times` times, and return the fastest step, the least disturbed.

    `other` is the name of the worker that has the other parts. The optimizer's `step` is timed as well.
    """
    taken = []
    for _ in range(times):
        _take()
        rpc.rpc_sync(other, _take)
        begin = time.monotonic()
        step(model, _Noted(optimizer), *arguments)
        end = time.monotonic()
        taken.append(Step(begin, end, _take(), rpc.rpc_sync(other, _take)))
    return min(taken, key=lambda step: step.seconds)


class _Noted:
    """An optimizer whose steps are timed."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def step(self, *arguments):
        begin = time.monotonic()
        self._optimizer.step(*arguments)
        _entries.append(Entry(_OPTIMIZER, begin, time.monotonic()))


def _take():
    mine = list(_entries)
    _entries.clear()
    return mine
