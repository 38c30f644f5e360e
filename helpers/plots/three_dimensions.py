"""Figures of 48_three_dimensions: ranks in a grid on their hosts, and the parts of the step time."""

from collections.abc import Mapping, Sequence

from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

from helpers.plots.style import BLUE, GREEN, MEASURED, RED, TINTS, new_axes, subplots

_AXES = {
    "tensor": {"color": BLUE, "linestyle": "-", "linewidth": 2.6},
    "pipeline": {"color": RED, "linestyle": "--", "linewidth": 1.8},
    "data": {"color": GREEN, "linestyle": ":", "linewidth": 2.2},
}
_PARTS = {
    "computing": {"facecolor": TINTS[4]},
    "tensor": {"facecolor": TINTS[0], "hatch": ""},
    "bubble": {"facecolor": "white", "hatch": "..."},
    "pipeline": {"facecolor": TINTS[5], "hatch": "\\\\\\"},
    "data": {"facecolor": TINTS[2], "hatch": "///"},
}


def grids_of_ranks(hosts: Sequence[Sequence[int]], panels: Mapping[str, tuple]) -> None:
    """Draw ranks on their hosts, and lines between neighbours along each axis of a grid, one panel for each grid.

    `hosts` lists the ranks of each host. A panel has the coordinates of each rank, by axis, and a text below it. Along
    tensor and data, whose ranks form a ring, another line connects the last rank with the first.
    """
    rows = max(map(len, hosts))
    figure, drawn = subplots(
        1,
        len(panels),
        squeeze=False,
        figsize=(3.9 * len(panels), 1.3 + 0.55 * rows),
    )
    shown = set()
    for axes, (title, (coordinates, text)) in zip(drawn.flat, panels.items(), strict=True):
        axes.set_title(title, fontsize="medium", fontweight="bold")
        axes.axis("off")
        places = _draw_hosts(axes, hosts)
        for axis in coordinates[0]:
            shown.add(axis)
            for first, second in _neighbours(coordinates, axis):
                bend = f"arc3,rad={_bend(places[first], places[second])}"
                line = FancyArrowPatch(places[first], places[second], arrowstyle="-", connectionstyle=bend)
                line.set(**_AXES[axis])
                axes.add_patch(line)
        for rank, place in places.items():
            look = {"boxstyle": "circle,pad=0.3", "facecolor": "white", "edgecolor": "black", "linewidth": 0.8}
            axes.text(*place, rank, ha="center", va="center", fontsize="small", zorder=5, bbox=look)
        axes.text(0.5, -0.04, text, transform=axes.transAxes, ha="center", va="top", fontsize="small")
    handles = [Line2D([], [], label=axis, **look) for axis, look in _AXES.items() if axis in shown]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize="small")


def stacked_seconds(title: str, rows: Sequence[tuple], point: str = "measured") -> None:
    """Draw the parts of the step time, a row for each layout, and a point for another step time, such as measured.

    A row has a name, its parts in seconds, the seconds of the point or None, and a text for the end of its bars.
    `point` is the legend of the points.
    """
    axes = new_axes(title, width=8.2, height=1.5 + 0.27 * len(rows))
    edge = {"edgecolor": "#404040", "linewidth": 0.6}
    shown = set()
    for row, (_, parts, measured, text) in enumerate(rows):
        begin = 0
        for part in [part for part in _PARTS if part in parts]:
            if parts[part] > 0:
                shown.add(part)
                axes.barh(row, parts[part], left=begin, height=0.72, **edge, **_PARTS[part])
                begin += parts[part]
        if measured is not None:
            axes.plot([measured], [row], **MEASURED)
        axes.annotate(text, (begin, row), (8, 0), textcoords="offset points", va="center", fontsize="small")
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.14)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of a step")
    handles = [Patch(label=part, **edge, **look) for part, look in _PARTS.items() if part in shown]
    if any(measured is not None for _, _, measured, _ in rows):
        handles.append(Line2D([], [], label=point, **MEASURED))
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize="small")


def _draw_hosts(axes, hosts):
    """Draw a box for each host, and return the place of each rank; the ranks of a host are in a column."""
    rows = max(map(len, hosts))
    places = {}
    for host, ranks in enumerate(hosts):
        look = {"boxstyle": "round,pad=0.05", "facecolor": TINTS[4], "edgecolor": "none", "alpha": 0.5}
        axes.add_patch(FancyBboxPatch((3.0 * host - 0.9, -rows + 0.4), 1.8, rows, **look))
        axes.text(3.0 * host, 0.6, f"host{host}", ha="center", fontsize="small")
        for row, rank in enumerate(ranks):
            places[rank] = 3.0 * host, -row
    axes.set_xlim(-1.1, 3.0 * len(hosts) - 1.9)
    axes.set_ylim(-rows + 0.2, 1.0)
    return places


def _bend(begin, end):
    """Return how much a line bends: around the ranks between its ends, towards the outer side of its host."""
    if begin[0] != end[0] or abs(begin[1] - end[1]) == 1:
        return 0
    outwards = -1 if begin[0] == 0 else 1
    return outwards * (-0.3 if end[1] < begin[1] else 0.3)


def _neighbours(coordinates, axis):
    """Yield the pairs of neighbouring ranks along an axis, in a ring except for the pipeline."""
    size = 1 + max(place[axis] for place in coordinates)
    rank_at = {tuple(place.items()): rank for rank, place in enumerate(coordinates)}
    for rank, place in enumerate(coordinates):
        following = place[axis] + 1
        if following == size and (axis == "pipeline" or size == 2):
            continue
        yield rank, rank_at[tuple({**place, axis: following % size}.items())]
