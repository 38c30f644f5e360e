"""Figures of 01_when_ranks_fail: which ranks wait for which other ranks."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import Circle, FancyArrowPatch

from helpers.plots.style import TINTS, subplots

_SIZE = 2.6  # the size of a panel, in inches
_RADIUS = 0.3  # the largest radius of a rank


def who_waits(hangs: Mapping[str, Mapping[int, Sequence[int]]], size: int) -> None:
    """Draw a panel for each hang, with an arrow from every waiting rank to each rank that it waits for.

    `hangs` maps the title of a panel to its waiting ranks, and each of these to the ranks that it waits for. `size` is
    the number of ranks. A waiting rank is white with a dashed edge; any other rank is filled.
    """
    _, all_axes = subplots(1, len(hangs), figsize=(_SIZE * len(hangs), _SIZE + 0.3), squeeze=False)
    for axes, (title, waits) in zip(all_axes.flat, hangs.items(), strict=True):
        axes.set_axis_off()
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
        axes.set_title(title, fontsize=10, fontweight="bold")
        circles = [_draw_rank(axes, rank, size, bool(waits.get(rank))) for rank in range(size)]
        for rank, awaited in waits.items():
            for other in awaited:
                _draw_arrow(axes, circles[rank], circles[other])


def _draw_rank(axes, rank, size, is_waiting):
    """Draw a rank, rank 0 at the top and the other ranks clockwise, and return its circle."""
    angle = np.pi / 2 - 2 * np.pi * rank / size
    place = np.cos(angle), np.sin(angle)
    look = {"facecolor": "white", "linestyle": "--"} if is_waiting else {"facecolor": TINTS[0], "linestyle": "-"}
    circle = axes.add_patch(Circle(place, min(_RADIUS, 2 / size), edgecolor="black", linewidth=1.3, **look))
    axes.text(*place, f"rank\n{rank}", ha="center", va="center", fontsize=8)
    return circle


def _draw_arrow(axes, here, there):
    """Draw a slightly bent arrow, so that the two arrows between ranks that wait for each other are apart."""
    ends = {"patchA": here, "patchB": there, "shrinkA": 2, "shrinkB": 2}
    look = {"arrowstyle": "-|>", "mutation_scale": 14, "connectionstyle": "arc3,rad=0.2", "color": "#404040"}
    axes.add_patch(FancyArrowPatch(here.center, there.center, **ends, **look))
