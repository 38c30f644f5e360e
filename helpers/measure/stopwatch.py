"""What two ranks compute when, while one of them calls the other by RPC: from stopwatches in the parts of a model."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch.distributed.rpc as rpc
from torch import nn

_OPTIMIZER = "optimizer"
_entries = []  # of this process, since they were last taken


class Entry(NamedTuple):
    """What was computed from `begin` to `end`, in seconds by `time.monotonic`, which a machine's processes share."""

    what: str
    begin: float
    end: float


class Timed(nn.Module):
    """A part of a model, `kind(*sizes)`, which notes when it computes: forward, and backward as long as that takes.

    Backward begins when the gradient of the output arrives, and ends when that of the first input is there. It is not
    noted for an input that has no gradient.
    """

    def __init__(self, kind: type[nn.Module], *sizes):
        super().__init__()
        self.part = kind(*sizes)

    def forward(self, inputs, *others):
        """Call the part."""
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
    """A step: when it began and ended for the rank that took it, and what this rank and the other one computed."""

    begin: float
    end: float
    here: list[Entry]
    there: list[Entry]

    @property
    def seconds(self) -> float:
        """How long the step took."""
        return self.end - self.begin

    def shares(self) -> dict[str, dict[str, float]]:
        """Return for each rank the seconds in which it computes, waits for the other, and in which nobody computes.

        The step of the optimizer, which both ranks take at once, is a kind of its own.
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
    """Take so many steps, `step(model, optimizer, *arguments)`, and return the fastest, the least disturbed one.

    `other` is the name of the worker that has the other parts. The optimizer's `step` is noted as well.
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
    """An optimizer whose steps are noted."""

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
