"""The plumbing of the course: it starts ranks, finds them when they are stuck, counts, draws and checks."""

from helpers.world import World, WorldError

__all__ = ["World", "WorldError"]
