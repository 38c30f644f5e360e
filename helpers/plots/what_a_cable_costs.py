"""Figures of 39_what_a_cable_costs: messages between ranks on a circle of two hosts, and the times of messages."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from helpers.plots.style import BLUE, RED, TINTS, label_durations, label_sizes, new_axes, subplots

_BEND = 0.18  # of an arrow, as a fraction of its length
_LABELS = 8  # of the arrows inside the hosts; more of them would overlap
_LOOKS = {"inside a host": (BLUE, "o", "-"), "between hosts": (RED, "s", "--")}


def ranks_on_a_circle(hosts: Sequence[Sequence[int]], routes: Mapping[str, Mapping | Collection], title: str) -> None:
    """Draw messages between the ranks of two hosts, with a panel for each of several collectives.

    The ranks stand on a circle, and a dashed line, the cables, separates the hosts. `routes` has, for each collective,
    its pairs of source and destination, or the tensors along each pair. If there are tensors, each arrow has its number
    of tensors, and the text below a panel says how many leave a host.
    """
    figure, panels = subplots(1, len(routes), squeeze=False, figsize=(min(9.6, 3.3 * len(routes)), 3.9))
    home = {rank: host for host, ranks in enumerate(hosts) for rank in ranks}
    places = _on_a_circle(len(home))
    for axes, (name, pairs) in zip(panels.flat, routes.items(), strict=True):
        axes.set_title(name, fontsize="medium")
        axes.axis("off")
        axes.set(xlim=(-1.5, 1.5), ylim=(-1.75 if isinstance(pairs, Mapping) else -1.35, 1.5), aspect="equal")
        axes.plot([0, 0], [-1.35, 1.2], color="#767676", linestyle=":", linewidth=1.5)
        for host, x in enumerate((-0.75, 0.75)):
            axes.text(x, 1.32, f"host{host}", ha="center", va="center", fontsize="small")
        for source, destination in pairs:
            crosses = home[source] != home[destination]
            labelled = isinstance(pairs, Mapping) and (crosses or len(pairs) <= _LABELS)
            tensors = pairs[source, destination] if labelled else None
            _draw_arrow(axes, places[source], places[destination], crosses, tensors)
        for rank, place in places.items():
            look = {"boxstyle": "circle,pad=0.3", "facecolor": TINTS[home[rank]], "edgecolor": "black"}
            axes.text(*place, rank, ha="center", va="center", fontsize="small", zorder=5, bbox=look)
        if isinstance(pairs, Mapping):
            out = [sum(t for (a, b), t in pairs.items() if home[a] == host != home[b]) for host in (0, 1)]
            axes.text(0, -1.6, f"{max(out):.2f} tensors leave a host", ha="center", va="center", fontsize="small")
    handles = [
        Line2D([], [], color="black", linewidth=1.2, label="inside a host"),
        Line2D([], [], color=RED, linewidth=2.4, label="over the cable"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    figure.suptitle(title, fontsize="medium", fontweight="bold")


def messages_and_model(
    sizes: Sequence[int], times: Mapping[str, Sequence[float]], links: Mapping[str, tuple[float, float]]
) -> None:
    """Draw the measured time of a message of each size, and the line α + βB, inside a host and between hosts."""
    axes = new_axes("A byte takes far longer over the cable, but a burst passes at full speed")
    for place, seconds in times.items():
        color, marker, line = _LOOKS[place]
        alpha, beta = links[place]
        line_sizes = np.geomspace(sizes[0], sizes[-1], 60)
        axes.plot(line_sizes, alpha + beta * line_sizes, color=color, linestyle=line, linewidth=1.5)
        axes.plot(sizes, seconds, color=color, marker=marker, linestyle="", markersize=7)
        end = sizes[-1], alpha + beta * sizes[-1]
        axes.annotate(place, end, (-14, -2), textcoords="offset points", ha="right", color=color)
    axes.set(xscale="log", yscale="log", xlabel="size of the message", ylabel="time")
    label_sizes(axes.xaxis)
    label_durations(axes.yaxis)
    handles = [
        Line2D([], [], color="black", marker="o", linestyle="", label="measured"),
        Line2D([], [], color="black", linestyle="-", label="α + βB"),
    ]
    axes.legend(handles=handles, frameon=False, fontsize="small", loc="upper left")


def _on_a_circle(count):
    """Return the place of each rank: the first half on the left, upwards, the second half on the right, downwards."""
    angles = [math.radians(270 - (rank + 0.5) * 360 / count) for rank in range(count)]
    return {rank: (math.cos(angle), math.sin(angle)) for rank, angle in enumerate(angles)}


def _draw_arrow(axes, begin, end, crosses, tensors):
    color, width = (RED, 2.4) if crosses else ("black", 1.2)
    look = {"color": color, "linewidth": width, "connectionstyle": f"arc3,rad={_BEND}", "zorder": 3 if crosses else 2}
    axes.add_patch(FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=12, shrinkA=11, shrinkB=11, **look))
    if tensors is not None:
        # On the arc, a quadratic Bézier curve, and closer to the source, because arcs meet in the middle.
        bend = (
            (begin[0] + end[0]) / 2 + _BEND * (end[1] - begin[1]),
            (begin[1] + end[1]) / 2 - _BEND * (end[0] - begin[0]),
        )
        place = [0.49 * a + 0.42 * b + 0.09 * c for a, b, c in zip(begin, bend, end, strict=True)]
        box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        axes.text(*place, f"{tensors:.2f}", ha="center", va="center", fontsize=8, color=color, zorder=4, bbox=box)
