"""The infrastructure of the course: it starts ranks, shows where they are stuck, measures, draws and checks.

Its packages are `ranks` (start, reach and end ranks), `look` (what ranks do), `measure` (bytes, calls and times),
`plots`, `checks` and `grade`; `world` is the interface to most of them.
"""

from importlib import import_module

from helpers.world import World, WorldError

__all__ = ["World", "WorldError"]

_INSTRUMENTS = ("calls", "network", "stopwatch", "tensors", "timeline", "traffic")


def __getattr__(name):
    """Let the lessons write `from helpers import network`, and import each instrument only when it is used."""
    if name in _INSTRUMENTS:
        return import_module(f"helpers.measure.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
