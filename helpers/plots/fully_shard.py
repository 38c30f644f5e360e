"""The figure of 44_fully_shard: the number of elements of the optimizer's state on each rank."""

from collections.abc import Mapping, Sequence

from helpers.plots.style import BLUE, GREEN, RED, new_axes

_LOOKS = ({"color": "#767676"}, {"color": RED, "hatch": "//"}, {"color": BLUE, "hatch": "--"}, {"color": GREEN})


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
