"""Every figure of the course, in one style, drawn from plain data."""

from helpers.plots.point_to_point import message_cost

__all__ = ["message_cost"]
