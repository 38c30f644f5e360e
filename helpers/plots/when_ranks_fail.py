"""Figures of 01_when_ranks_fail: which ranks wait for which other ranks."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from matplotlib.patches import Circle, FancyArrowPatch

from helpers.plots.style import TINTS, subplots

_SIZE = 2.6  # the size of a panel, in inches
_RADIUS = 0.3  # the largest radius of a rank
_WAITING = {"facecolor": "white", "linestyle": "--"}
_AWAITED = {"facecolor": TINTS[0], "linestyle": "-"}
_IDLE = {"facecolor": TINTS[4], "linestyle": "-"}


def who_waits(hangs: Mapping[str, Mapping[int, Sequence[int]]], size: int) -> None:
    """Draw a panel for each hang, with an arrow from every waiting rank to each rank that it waits for.

    `hangs` maps the title of a panel to its waiting ranks, and each of these to the ranks that it waits for. `size` is
    the number of ranks. A waiting rank is white with a dashed edge. A rank that waits for no rank is blue if another
    rank waits for it, and otherwise grey.
    """
    _, all_axes = subplots(1, len(hangs), figsize=(_SIZE * len(hangs), _SIZE + 0.3), squeeze=False)
    for axes, (title, waits) in zip(all_axes.flat, hangs.items(), strict=True):
        axes.set_axis_off()
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
        axes.set_title(title, fontsize=10, fontweight="bold")
        awaited_ranks = set(chain.from_iterable(waits.values()))
        looks = [_WAITING if waits.get(rank) else _AWAITED if rank in awaited_ranks else _IDLE for rank in range(size)]
        circles = [draw_rank(axes, rank, size, look) for rank, look in enumerate(looks)]
        for rank, awaited in waits.items():
            for other in awaited:
                draw_arrow(axes, circles[rank], circles[other])


def draw_rank(axes, rank, size, look):
    """Draw a rank, rank 0 at the top and the other ranks clockwise, and return its circle."""
    angle = np.pi / 2 - 2 * np.pi * rank / size
    place = np.cos(angle), np.sin(angle)
    circle = axes.add_patch(Circle(place, min(_RADIUS, 2 / size), edgecolor="black", linewidth=1.3, **look))
    axes.text(*place, f"rank\n{rank}", ha="center", va="center", fontsize=8)
    return circle


def draw_arrow(axes, here, there):
    """Draw a slightly bent arrow, so that the two arrows between ranks that wait for each other are apart."""
    ends = {"patchA": here, "patchB": there, "shrinkA": 2, "shrinkB": 2}
    look = {"arrowstyle": "-|>", "mutation_scale": 14, "connectionstyle": "arc3,rad=0.2", "color": "#404040"}
    axes.add_patch(FancyArrowPatch(here.center, there.center, **ends, **look))
