"""Figures of 06_what_all_reduce_costs: how a tree and a ring use their time, and the time of each algorithm."""

from collections.abc import Mapping, Sequence
from math import ceil, log2

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from helpers.plots.style import (
    BLUE,
    GREEN,
    GUIDE,
    LIMIT,
    MEASURED,
    MODEL,
    RED,
    TINTS,
    data_size,
    duration,
    label_durations,
    label_sizes,
    new_axes,
    subplots,
)

_LATENCY = {"facecolor": "#B0B0B0", "edgecolor": "white", "linewidth": 0.6}
_BYTES = {"facecolor": TINTS[0], "edgecolor": "white", "linewidth": 0.6}
_SENDS = {"arrowstyle": "-|>", "color": "black", "linewidth": 1}
_BAR = 0.62  # height of a bar; the lanes of two ranks are 1 apart

# An algorithm has the same colour, marker and line in every figure.
_LOOKS = {
    "naive_exchange": {"color": "#767676", "marker": "x", "linestyle": ":"},
    "aggregator_on_rank_0": {"color": "#CC79A7", "marker": "s", "linestyle": (0, (5, 1, 1, 1))},
    "ring_all_reduce": {"color": BLUE, "marker": "o", "linestyle": "-"},
    "tree_all_reduce": {"color": RED, "marker": "^", "linestyle": "--"},
    "halving_doubling": {"color": GREEN, "marker": "v", "linestyle": "-."},
    "dist.all_reduce": {"color": "black", "marker": "+", "linestyle": (0, (1, 1))},
}


def tree_and_ring(n: int, small: float, large: float) -> None:
    """Draw when each of n ranks takes part in a message, for a tree all-reduce and for a ring all-reduce.

    The latency of a message is 1 unit of time. Sending the bytes of a whole tensor takes `small` units in the left
    column and `large` units in the right column.
    """
    figure, all_axes = subplots(2, 2, figsize=(8.2, 3.9), sharex="col", sharey=True)
    title = "A small tensor is finished sooner by the tree, a large tensor by the ring"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    for row, (name, draw) in enumerate((("tree", _draw_tree), ("ring", _draw_ring))):
        for axes, size, text in zip(all_axes[row], (small, large), ("small tensor", "large tensor"), strict=True):
            end = draw(axes, n, size)
            axes.axvline(end, **GUIDE)
            axes.set_title(f"{name}, {text}", loc="left", fontsize="small")
            axes.set_yticks(range(n), [f"rank {rank}" for rank in range(n)], fontsize="small")
            axes.tick_params(axis="y", length=0)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.set_ylim(n - 0.5, -0.5)
            axes.set_xticks([])
    for axes in all_axes[1]:
        axes.set_xlim(left=0)
        axes.set_xlabel("time", fontsize="small")
    handles = [Patch(label="latency", **_LATENCY), Patch(label="bytes", **_BYTES)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize="small")


def _draw_tree(axes, n, size):
    """Draw the rounds up the tree and down again; return the time at which they end."""
    distances = [2**k for k in range(ceil(log2(n)))]
    begin = 0.0
    rounds = [(distance, True) for distance in distances] + [(distance, False) for distance in reversed(distances)]
    for distance, up in rounds:
        for rank in range(distance, n, 2 * distance):
            for partner in (rank, rank - distance):
                _message(axes, partner, begin, size)
            ends = (rank, rank - distance) if up else (rank - distance, rank)
            middle = begin + (1 + size) / 2
            axes.annotate("", (middle, ends[1]), (middle, ends[0]), arrowprops=_SENDS)
        begin += 1 + size
    return begin


def _draw_ring(axes, n, size):
    """Draw the steps of the ring, in which every rank sends and receives a chunk; return the time at which they end."""
    begin = 0.0
    for _ in range(2 * (n - 1)):
        for rank in range(n):
            _message(axes, rank, begin, size / n)
        begin += 1 + size / n
    return begin


def _message(axes, rank, begin, size):
    axes.barh(rank, 1, left=begin, height=_BAR, **_LATENCY)
    axes.barh(rank, size, left=begin + 1, height=_BAR, **_BYTES)


def all_reduce_times(
    title: str,
    sizes: Sequence[float],
    measured: Mapping[str, Sequence[float]],
    predicted: Mapping[str, Sequence[float]],
) -> None:
    """Draw measured times against the size of the tensor, in a panel for each algorithm that has a prediction.

    `sizes` are in bytes; `measured[name]` and `predicted[name]` have the time for each size in seconds.
    `dist.all_reduce`, which is a ring in gloo, is drawn in the panel of `ring_all_reduce`.
    """
    names = [name for name in measured if name in predicted]
    figure, all_axes = subplots(1, len(names), figsize=(9.2, 3.4), squeeze=False, sharex=True, sharey=True)
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    for axes, name in zip(all_axes[0], names, strict=True):
        axes.set_title(name, loc="left", fontsize="small", fontfamily="monospace")
        axes.loglog(sizes, predicted[name], **MODEL)
        axes.loglog(sizes, measured[name], **{**MEASURED, "markersize": 6})
        if name == "ring_all_reduce" and "dist.all_reduce" in measured:
            hollow = {"marker": "s", "markerfacecolor": "none", "markersize": 8, "color": "black", "linestyle": ""}
            axes.loglog(sizes, measured["dist.all_reduce"], **hollow)
            axes.text(0.04, 0.9, "□ dist.all_reduce", transform=axes.transAxes, fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
        label_sizes(axes.xaxis)
        label_durations(axes.yaxis)
        axes.tick_params(labelsize="small")
        axes.tick_params(axis="x", rotation=45)
    first = all_axes[0, 0]
    first.text(0.04, 0.9, "● measured", transform=first.transAxes, fontsize="small", color=MEASURED["color"])
    first.text(0.04, 0.8, "— by the model", transform=first.transAxes, fontsize="small", color=MODEL["color"])
    figure.supxlabel("size of the tensor", fontsize="small")
    first.set_ylabel("time", fontsize="small")


def bus_bandwidths(
    title: str, sizes: Sequence[float], bandwidths: Mapping[str, Sequence[float]], link: float | None
) -> None:
    """Draw the bus bandwidth of each algorithm against the size of the tensor, and the rate of a link.

    `sizes` are in bytes, bandwidths and `link` in bytes per second; `link` is None if the links are not paced.
    """
    axes = new_axes(title, width=7.6)
    ends = {}
    for name, bandwidth in bandwidths.items():
        axes.semilogx(sizes, np.array(bandwidth) / 1e6, **_LOOKS[name])
        ends[name] = bandwidth[-1] / 1e6
    if link:
        axes.axhline(link / 1e6, **{**LIMIT, "marker": ""})
        axes.annotate("rate of the link", (sizes[0], link / 1e6), (0, 4), textcoords="offset points", color=GREEN)
    axes.set_xlabel("size of the tensor")
    axes.set_ylabel("bus bandwidth (MB/s)")
    axes.set_ylim(bottom=0)
    label_sizes(axes.xaxis)
    _label_ends(axes, sizes[-1], ends)


def modelled_times(
    title: str,
    size: float | Sequence[float],
    sizes: Sequence[float],
    times: Mapping[str, Sequence[float]],
) -> None:
    """Draw the modelled time of each algorithm against the size of the tensor, and mark one or several sizes, `size`.

    `sizes` and `size` are in bytes; `times[name]` has the time for each size in seconds. The label of an algorithm
    gives its time for each marked size.
    """
    axes = new_axes(title, width=8.2)
    marked = np.atleast_1d(size)
    labels = {}
    for name, time in times.items():
        axes.loglog(sizes, time, **{**_LOOKS[name], "marker": ""}, linewidth=2)
        at = np.exp(np.interp(np.log(marked), np.log(sizes), np.log(time)))
        labels[name] = f"{name}: {' and '.join(map(duration, at))}"
    for mark in marked:
        axes.axvline(mark, zorder=0, **GUIDE)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(data_size(mark), (mark, 1), (3, -10), **place, color=GUIDE["color"], fontsize="small")
    axes.set_xlabel("size of the tensor")
    axes.set_ylabel("time by the model, not measured")
    axes.set_xlim(sizes[0], sizes[-1])
    label_sizes(axes.xaxis)
    label_durations(axes.yaxis)
    _label_ends(axes, sizes[-1], {name: time[-1] for name, time in times.items()}, labels)


def _label_ends(axes: Axes, x: float, ends: Mapping[str, float], labels: Mapping[str, str] | None = None) -> None:
    """Write a label to the right of the axes where each line ends, and move overlapping labels apart."""
    axes.figure.canvas.draw()  # makes the limits final
    transform = axes.transData.transform
    low, high = axes.transAxes.transform([(0, 0), (0, 1)])[:, 1]
    heights = {name: (transform((x, end))[1] - low) / (high - low) for name, end in ends.items()}
    apart = 0.065  # the height of a line of text, as a fraction of the height of the axes
    places = []
    for name in sorted(heights, key=heights.get):
        places.append(max(heights[name], places[-1] + apart) if places else heights[name])
    excess = max(0, places[-1] - 1)
    for name, place in zip(sorted(heights, key=heights.get), places, strict=True):
        color = _LOOKS[name]["color"]
        look = {"color": color, "fontsize": "small", "va": "center", "annotation_clip": False}
        leader = {"arrowstyle": "-", "color": color, "linewidth": 0.8, "relpos": (0, 0.5)}
        text = (labels or {}).get(name, name)
        ends_at, written_at = (1.0, heights[name]), (1.04, place - excess)
        axes.annotate(text, ends_at, written_at, xycoords="axes fraction", arrowprops=leader, **look)
