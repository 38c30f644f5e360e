"""Figures of 44_fully_shard: whole tensors or slices of rows, and the elements of the optimizer's state by rank."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from helpers.plots.style import BLUE, GREEN, RED, TINTS, new_axes

_LOOKS = ({"color": "#767676"}, {"color": RED, "hatch": "//"}, {"color": BLUE, "hatch": "--"}, {"color": GREEN})
_HEIGHTS = (3.0, 1.8, 1.2)  # of the matrices of the sketch


def tensors_and_slices() -> None:
    """Draw a sketch of three matrices on three ranks: on the left each on one rank, on the right each in slices."""
    axes = new_axes("A rank keeps whole tensors, or some rows of every tensor", width=7.2, height=2.7)
    axes.set_axis_off()
    axes.set(xlim=(-0.2, 15.2), ylim=(-0.6, 4.1))
    ranks = range(len(_HEIGHTS))
    for begin, heading, is_sliced in ((0, "ZeroRedundancyOptimizer", False), (8, "fully_shard", True)):
        axes.text(begin, 3.8, heading, fontsize=9, fontweight="bold", va="center")
        for number, height in enumerate(_HEIGHTS):
            left = begin + 2.4 * number
            axes.text(left + 1, -0.15, f"matrix {number}", fontsize=8, ha="center", va="top")
            slices = ranks if is_sliced else [number]
            for place, rank in enumerate(slices):
                part = height / len(slices)
                bottom = height - (place + 1) * part
                axes.add_patch(Rectangle((left, bottom), 2, part, facecolor=TINTS[rank], edgecolor="black"))
                axes.text(left + 1, bottom + part / 2, f"rank {rank}", fontsize=8, ha="center", va="center")


def elements_by_rank(elements: Mapping[str, Sequence[int]]) -> None:
    """Draw the number of elements on each rank, a group of bars for each name, with the number next to its bar."""
    ranks = len(next(iter(elements.values())))
    rows = len(elements) * (ranks + 1)
    axes = new_axes("Whole parameters make uneven shards, slices make even shards", width=7.2, height=0.9 + 0.2 * rows)
    axes.grid(False, axis="y")
    places, labels, top = [], [], 0
    for (name, numbers), look in zip(elements.items(), _LOOKS, strict=False):
        axes.text(0, top, f" {name}", va="center", fontsize="small", fontweight="bold")
        for rank, number in enumerate(numbers):
            top += 1
            axes.barh(top, number, height=0.8, edgecolor="white", **look)
            axes.text(number, top, f" {number:,}", va="center", fontsize="small")
            places.append(top)
            labels.append(f"rank {rank}")
        top += 1
    axes.set_ylim(top - 0.4, -0.8)
    axes.set_xlim(0, 1.15 * max(map(max, elements.values())))
    axes.set_yticks(places, labels, fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda number, _: f"{number:,.0f}")
    axes.set_xlabel("elements of the optimizer's state")
