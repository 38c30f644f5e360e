"""Figures of 00_meet_the_ranks: the processes of a lesson, and lines through points that are spread over the ranks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.patches import FancyBboxPatch

from helpers.plots.style import BLUE, GUIDE, MODEL, TINTS, new_axes

_GREY = "#404040"


def notebook_and_ranks(size: int) -> None:
    """Draw the notebook, its ranks, their process group and their store, each with its purpose."""
    axes = new_axes(f"The notebook, its {size} ranks and their store are separate processes", height=3.7)
    axes.set_axis_off()
    axes.set(xlim=(0, 10), ylim=(0, 6))
    places = np.linspace(1, 9, size) if size > 2 else [3, 7]
    for rank, place in enumerate(places):
        axes.plot([place, 5], [3.3, 5.5], color=_GREY, linewidth=1.2, zorder=1)
        axes.plot([place, 5], [3.3, 0.5], zorder=1, **GUIDE)
        _box(axes, f"rank {rank}", (place, 3.3), TINTS[rank])
    for left, right in zip(places, places[1:], strict=False):
        look = {"arrowstyle": "<->", "color": BLUE, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}
        axes.annotate("", (right - 0.43, 3.3), (left + 0.43, 3.3), arrowprops=look)
    band = FancyBboxPatch((0.3, 2.45), 9.4, 1.4, boxstyle="round,pad=0.1", edgecolor=BLUE, facecolor="white")
    axes.add_patch(band).set_zorder(0)
    _box(axes, "notebook", (5, 5.5), "white")
    _box(axes, "store", (5, 0.5), "white")
    axes.text(5.9, 5.5, "sends cells, shows outputs", color=_GREY, va="center")
    axes.text(5.7, 0.5, "holds the addresses of the ranks", color=_GREY, va="center")
    of_group = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.text(5, 2.62, "process group: ranks exchange tensors", color=BLUE, ha="center", va="center", bbox=of_group)


def _box(axes, text, place, colour):
    box = {"boxstyle": "round,pad=0.45", "facecolor": colour, "edgecolor": _GREY}
    axes.text(*place, text, ha="center", va="center", fontsize=9, bbox=box, zorder=3)


def lines_of_ranks(
    points: Sequence[Sequence[tuple[float, float]]],
    alone: Sequence[tuple[float, float]],
    together: tuple[float, float],
) -> None:
    """Draw each rank's points and the line that the rank fitted alone, and the line that all ranks fitted together.

    `points[rank]` has pairs (x, y), with x from 0 to 1; a line is given by its slope and its intercept.
    """
    axes = new_axes("Few points mislead each rank alone; together the ranks fit all points", height=4.0)
    ends = np.array([0.0, 1.0])
    for rank, ((slope, intercept), of_rank) in enumerate(zip(alone, points, strict=True)):
        x, y = np.array(of_rank).T
        axes.plot(x, y, "o", markersize=7, color=TINTS[rank], markeredgecolor=_GREY, zorder=4)
        axes.plot(ends, slope * ends + intercept, color=_GREY, linewidth=3.2, zorder=2)
        axes.plot(ends, slope * ends + intercept, color=TINTS[rank], linewidth=2, zorder=2)
    slope, intercept = together
    axes.plot(ends, slope * ends + intercept, **(MODEL | {"linewidth": 3, "linestyle": "--"}), zorder=3)
    heights = {f"rank {rank}": sum(line) for rank, line in enumerate(alone)} | {"together": sum(together)}
    bottom, top = axes.get_ylim()
    for name, height in _spread(heights, 0.055 * (top - bottom)).items():
        colour, weight = (MODEL["color"], "bold") if name == "together" else (_GREY, "normal")
        axes.text(1.02, height, name, va="center", color=colour, fontweight=weight, fontsize=9)
    axes.set(xlabel="x", ylabel="y", xlim=(-0.02, 1.16))


def _spread(heights, gap):
    """Return heights for the labels of lines, at least `gap` apart and near the ends of the lines."""
    places, last = {}, -np.inf
    for name in sorted(heights, key=heights.get):
        last = places[name] = max(heights[name], last + gap)
    too_high = np.mean([places[name] - heights[name] for name in heights])
    return {name: place - too_high for name, place in places.items()}
