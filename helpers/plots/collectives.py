"""Figures of 04_collectives: what the ranks hold in each chunk, and how long each rank stays in a call."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots.style import GUIDE, LIMIT, MEASURED, TINTS, subplots

_CELL = 0.52, 0.34  # inches
_TITLE = {"fontsize": 9, "fontfamily": "monospace", "fontweight": "bold", "pad": 6}
_POINTS_PER_CHARACTER = 0.62  # the width of a character, for each point of its font size
# Hollow and larger than the dot for entering a call, so that both are visible when a rank enters and leaves at once.
_LEAVES = {**LIMIT, "linestyle": "", "zorder": 4, "markersize": 11, "markerfacecolor": "none", "markeredgewidth": 2}


def chunk_grid(
    axes: Axes,
    values: Sequence[Sequence[object]],
    sources: Sequence[Sequence[Sequence[int]]] | None = None,
) -> None:
    """Draw a grid of the ranks' values into these axes: a row for each rank, a column for each chunk.

    `values[rank][chunk]` is written into its cell. If it is None, the rank has no value, and the cell stays empty.
    `sources[rank][chunk]` lists the ranks whose values went into the value: the cell has a band in the colour of each
    of these ranks, from left to right. Without `sources` each chunk has a colour.
    """
    rows, columns = len(values), max(map(len, values))
    longest = max((len(str(value)) for row in values for value in row if value is not None), default=1)
    size = min(10, 72 * _CELL[0] * 0.9 / (longest * _POINTS_PER_CHARACTER))
    for rank, row in enumerate(values):
        for chunk, value in enumerate(row):
            if value is not None:
                bands = [chunk] if sources is None else sources[rank][chunk]
                for band, source in enumerate(bands):
                    left = chunk + band / len(bands)
                    axes.add_patch(Rectangle((left, rank), 1 / len(bands), 1, color=TINTS[source % 8], linewidth=0))
                axes.text(chunk + 0.5, rank + 0.52, str(value), ha="center", va="center", fontsize=size)
            look = {"linestyle": ":", "edgecolor": "#A0A0A0"} if value is None else {"edgecolor": "black", "zorder": 3}
            axes.add_patch(Rectangle((chunk, rank), 1, 1, facecolor="none", linewidth=0.8, **look))
    axes.set(xlim=(-0.05, columns + 0.05), ylim=(rows + 0.05, -0.05), aspect=_CELL[1] / _CELL[0])
    axes.set_xticks([chunk + 0.5 for chunk in range(columns)], [str(chunk) for chunk in range(columns)])
    axes.set_yticks([rank + 0.5 for rank in range(rows)], _rank_names(rows))
    axes.tick_params(length=0, labelsize=8, colors="#404040", pad=2)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("chunk", fontsize=8, color="#404040", labelpad=1)


def before_and_after(*rows: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Draw rows of grids with titles: the values of all ranks before and after some collectives.

    `row[title][rank][chunk]` is a number whose digits say which ranks contributed to it: the last digit is from rank 0,
    the last but one from rank 1, and so on. The bands of a cell are in the order of the digits. 0 means no value.
    """
    columns = max(map(len, rows))
    ranks = max(len(grid) for row in rows for grid in row.values())
    width, height = columns * (ranks * _CELL[0] + 0.3) + 0.5, len(rows) * (ranks * _CELL[1] + 0.75)
    _, all_axes = _panels(len(rows), columns, width, height)
    for axes_of_row, row in zip(all_axes, rows, strict=True):
        for axes in axes_of_row[len(row) :]:
            axes.set_visible(False)
        for axes, (title, grid) in zip(axes_of_row, row.items(), strict=False):
            numbers = [[int(number) for number in rank] for rank in grid]
            values = [[number or None for number in rank] for rank in numbers]
            chunk_grid(axes, values, [[ranks_in(number) for number in rank] for rank in numbers])
            axes.set_title(title, **_TITLE)
            if axes is not axes_of_row[0]:
                axes.set_yticklabels([])


def stays(**calls: tuple[Sequence[float], Sequence[float]]) -> None:
    """Draw when each rank entered a call and when it left the call, for several calls.

    Each call is given by its name, as (times at which the ranks entered, times at which they left), in seconds on one
    clock for all ranks. A line marks the time at which the last rank entered.
    """
    size = max(len(came) for came, _ in calls.values())
    figure, all_axes = _panels(1, len(calls), width=8, height=1.3 + 0.22 * size, sharex=True, sharey=True)
    for axes, (name, (came, left)) in zip(all_axes[0], calls.items(), strict=True):
        came, left = np.array(came) - min(came), np.array(left) - min(came)
        ranks = np.arange(len(came))
        axes.hlines(ranks, came, left, color=TINTS[0], linewidth=9)
        axes.plot(came, ranks, label="comes", **MEASURED)
        axes.plot(left, ranks, label="leaves", **_LEAVES)
        axes.axvline(came.max(), label="the last rank comes", **GUIDE)
        axes.set_title(name, **_TITLE)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("seconds since the first rank came")
    all_axes[0, 0].set_yticks(range(size), _rank_names(size))
    all_axes[0, 0].set_ylim(size - 0.4, -0.6)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)


def _panels(rows, columns, width, height, **shared):
    return subplots(
        rows,
        columns,
        figsize=(width, height),
        squeeze=False,
        **shared,
    )


def _rank_names(size):
    return [f"rank {rank}" for rank in range(size)]


def ranks_in(number):
    """Return the ranks whose digits are in a number, from its first digit to its last."""
    digits = str(number)
    return [len(digits) - 1 - place for place, digit in enumerate(digits) if digit != "0"]
