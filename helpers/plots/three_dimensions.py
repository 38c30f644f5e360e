"""Figures of 49_three_dimensions: a model and its ranks on hosts, and the parts of the step time."""

from collections.abc import Mapping, Sequence

from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Rectangle

from helpers.plots.style import BLUE, GREEN, GUIDE, MEASURED, RED, TINTS, new_axes, subplots

_AXES = {
    "tensor": {"color": BLUE, "linestyle": "-", "linewidth": 2.6},
    "pipeline": {"color": RED, "linestyle": "--", "linewidth": 1.8},
    "data": {"color": GREEN, "linestyle": ":", "linewidth": 2.2},
}
_EDGE = {"edgecolor": "#404040", "linewidth": 0.6}
_PARTS = {
    "computing": {"facecolor": TINTS[4]},
    "tensor": {"facecolor": TINTS[0], "hatch": ""},
    "bubble": {"facecolor": "white", "hatch": "..."},
    "pipeline": {"facecolor": TINTS[5], "hatch": "\\\\\\"},
    "data": {"facecolor": TINTS[2], "hatch": "///"},
}

_HOLLOW = {"fill": False, "edgecolor": GREEN, "linewidth": 1.2}


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


def three_splits() -> None:
    """Draw a sketch of a model on eight ranks: two replicas on two hosts, two stages, two shards of each matrix."""
    _, axes = subplots(figsize=(7.2, 3.8))
    axes.set_title("Each of 8 ranks holds a quarter of the model", loc="left", fontsize="medium", fontweight="bold")
    axes.axis("off")
    small = {"ha": "center", "va": "center", "fontsize": "small"}
    places = {}
    for host in (0, 1):
        look = {"boxstyle": "round,pad=0.12", "facecolor": "#EFEFEF", "edgecolor": "none"}
        axes.add_patch(FancyBboxPatch((4 * host - 0.1, -0.1), 2.9, 2.35, **look))
        axes.text(4 * host + 1.35, 2.62, f"host{host}: replica {host}", **small)
        for stage, shard in ((0, 0), (0, 1), (1, 0), (1, 1)):
            rank = 4 * host + 2 * stage + shard
            corner = 4 * host + 1.5 * shard, 1.35 - 1.3 * stage
            places[rank] = corner[0] + 0.6, corner[1] + 0.4
            axes.add_patch(Rectangle(corner, 1.2, 0.8, facecolor=TINTS[rank], edgecolor="black", linewidth=0.8))
            axes.text(*places[rank], f"rank {rank}", **small)
        for shard in (0, 1):
            axes.text(4 * host + 1.5 * shard + 0.6, -0.55, ("left", "right")[shard] + " shards", **small)
    for stage in (0, 1):
        text = f"stage {stage}:\n{('first', 'last')[stage]} layers"
        axes.text(-0.35, places[2 * stage][1], text, **{**small, "ha": "right"})
    ends = {
        "tensor": [(first, first + 1, 0.6, 0.0) for first in (0, 2, 4, 6)],
        "pipeline": [(first, first + 2, 0.0, -0.4) for first in (0, 1, 4, 5)],
    }
    for axis, lines in ends.items():
        for first, second, aside, down in lines:
            (x, y), (to_x, to_y) = places[first], places[second]
            axes.plot([x + aside, to_x - aside], [y + down, to_y - down], **_AXES[axis])
    for first, outwards in ((0, 1), (1, 1), (2, -1), (3, -1)):
        (x, y), (to_x, to_y) = places[first], places[first + 4]
        edges = (x, y + 0.4 * outwards), (to_x, to_y + 0.4 * outwards)
        line = FancyArrowPatch(*edges, arrowstyle="-", connectionstyle=f"arc3,rad={-0.16 * outwards}")
        line.set(**_AXES["data"])
        axes.add_patch(line)
    axes.set_xlim(-1.5, 7.1)
    axes.set_ylim(-0.75, 2.8)
    looks = {
        "tensor: sums of activations": "tensor",
        "pipeline: activations": "pipeline",
        "data: mean of gradients": "data",
    }
    handles = [Line2D([], [], label=label, **_AXES[axis]) for label, axis in looks.items()]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize="small")


def seconds_on_cables(title: str, rows: Sequence[tuple]) -> None:
    """Draw the seconds that the bytes of each axis need on the cables, a row for each layout, and the measured time.

    A row has a name, the seconds of each axis, and the measured seconds of a step or None. The bars of data are hollow,
    because computing can overlap these bytes.
    """
    axes = new_axes(title, width=8.2, height=1.5 + 0.27 * len(rows))
    _stack(axes, [(name, {**parts, "data": 0}, True) for name, parts, _ in rows])
    for row, (_, parts, _) in enumerate(rows):
        if data := parts.get("data", 0):
            axes.barh(row, data, left=sum(parts.values()) - data, height=0.72, **_HOLLOW)
    look = {**MEASURED, "color": "black", "markersize": 5}
    measured = [(seconds, row) for row, (_, _, seconds) in enumerate(rows) if seconds is not None]
    axes.plot([seconds for seconds, _ in measured], [row for _, row in measured], **look)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of a step")
    extra = [Line2D([], [], label="measured step", **look)] if measured else []
    if any(parts.get("data", 0) for _, parts, _ in rows):
        extra = [Patch(label="data, unless overlap hides it", **_HOLLOW), *extra]
    _legend(axes.figure, [{**parts, "data": 0} for _, parts, _ in rows], extra, " on the cables")


def layouts_on_paper(title: str, rows: Sequence[tuple], published: tuple[str, float], memory: float) -> None:
    """Draw the parts of the step time and the memory of a GPU in two columns, a row for each layout.

    A row has a name, its parts in seconds, its gigabytes, and whether it fits; a row that does not fit is pale.
    `published` is the name of a row and its published step time, and `memory` the gigabytes of a GPU.
    """
    figure, (axes, room) = subplots(
        1, 2, sharey=True, figsize=(9.0, 1.7 + 0.27 * len(rows)), gridspec_kw={"width_ratios": [3, 1.15]}
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    _stack(axes, [(name, parts, fits) for name, parts, _, fits in rows])
    look = {**MEASURED, "color": "black", "markersize": 6}
    names = [name for name, *_ in rows]
    axes.plot([published[1]], [names.index(published[0])], **look)
    axes.set_xlim(left=0)
    axes.get_yticklabels()[names.index(published[0])].set_fontweight("bold")
    axes.set_xlabel("seconds of a step")
    number = {"va": "center", "fontsize": "x-small"}
    for row, (_, _, gigabytes, fits) in enumerate(rows):
        room.barh(row, gigabytes, height=0.72, color=TINTS[4], edgecolor="#404040", linewidth=0.6, alpha=_alpha(fits))
        room.annotate(f"{gigabytes:.0f}", (max(gigabytes, memory), row), (4, 0), textcoords="offset points", **number)
    room.axvline(memory, **{**GUIDE, "color": RED})
    room.set_xlim(0, 1.2 * max(gigabytes for _, _, gigabytes, _ in rows))
    room.set_xlabel(f"GB of a GPU (dotted: {memory:.0f} GB)")
    for column in (axes, room):
        column.spines[["top", "right"]].set_visible(False)
        column.tick_params(axis="y", length=0)
    _legend(figure, [parts for _, parts, *_ in rows], [Line2D([], [], label="published step", **look)])


def _stack(axes, rows):
    """Draw a row of bars for each layout: its name, the seconds of its parts, and whether the row is dark or pale."""
    for row, (_, parts, dark) in enumerate(rows):
        begin = 0
        for part in [part for part in _PARTS if parts.get(part, 0) > 0]:
            axes.barh(row, parts[part], left=begin, height=0.72, alpha=_alpha(dark), **_EDGE, **_PARTS[part])
            begin += parts[part]
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.05)


def _alpha(dark):
    return 1 if dark else 0.5


def _legend(figure, rows, extra, suffix=""):
    """Explain the parts that any row has, and the extra handles, below a figure."""
    shown = [part for part in _PARTS if any(parts.get(part, 0) > 0 for parts in rows)]
    handles = [Patch(label=part + suffix, **_EDGE, **_PARTS[part]) for part in shown] + extra
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize="small")


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
    if len(rank_at) < len(coordinates):
        raise ValueError("Several ranks have the same coordinates, expected one rank at each place of the grid.")
    for rank, place in enumerate(coordinates):
        following = place[axis] + 1
        if following == size and (axis == "pipeline" or size == 2):
            continue
        yield rank, rank_at[tuple({**place, axis: following % size}.items())]
