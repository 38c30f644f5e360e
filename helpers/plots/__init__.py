"""Every figure of the course, in one style, drawn from plain data."""

from helpers.plots.collectives import before_and_after, chunk_grid, stays
from helpers.plots.controls import live
from helpers.plots.data_parallel import loss_curves, step_timeline
from helpers.plots.ddp_in_practice import extrapolation, throughput
from helpers.plots.fewer_bytes import compression
from helpers.plots.inside_ddp import buckets
from helpers.plots.point_to_point import message_cost
from helpers.plots.ring_all_reduce import ring_step, ring_storyboard
from helpers.plots.what_all_reduce_costs import all_reduce_times, bus_bandwidths, modelled_times

__all__ = [
    "all_reduce_times",
    "before_and_after",
    "buckets",
    "compression",
    "bus_bandwidths",
    "chunk_grid",
    "extrapolation",
    "live",
    "loss_curves",
    "message_cost",
    "modelled_times",
    "ring_step",
    "ring_storyboard",
    "stays",
    "step_timeline",
    "throughput",
]
