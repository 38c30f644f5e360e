"""The plumbing of the course: it starts ranks, finds them when they are stuck, counts, draws and checks.

Its rooms are `ranks` (start, reach and end them), `look` (what they do), `measure` (bytes, calls and times), `plots`
and `checks`; `world` is the face of them all.
"""

from importlib import import_module

from helpers.world import World, WorldError

__all__ = ["World", "WorldError"]

_INSTRUMENTS = ("calls", "network", "stopwatch", "tensors", "timeline", "traffic")


def __getattr__(name):
    """Let the lessons write `from helpers import network`, and import an instrument only for whoever asks for it."""
    if name in _INSTRUMENTS:
        return import_module(f"helpers.measure.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
