"""Figures of 35_two_hosts: a training while a cable is unplugged, and the routes of all-reduces over the cables."""

from collections.abc import Mapping, Sequence

from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

from helpers.plots.style import BLUE, RED, TINTS, subplots

_OUT = {"facecolor": "#D9D9D9", "hatch": "///", "edgecolor": "white", "linewidth": 0}
_STEP = {"color": BLUE, "marker": "|", "linestyle": "", "markersize": 11, "markeredgewidth": 1.4}
_ERROR = {"color": RED, "marker": "X", "linestyle": "", "markersize": 9, "clip_on": False, "zorder": 4}


def training_and_cable(scenes: Mapping[str, Mapping], killed: str) -> None:
    """Draw when each rank finished its steps and when it got an error, with a panel for each scene.

    A scene has "steps", a list of times for each rank; "errors", a time for some ranks; and "out", the time at which
    the cable was plugged in again, or None if the cable was never unplugged. All times are in seconds since the cable
    was unplugged or a rank was killed. The keys of `scenes` are the titles, and `killed` is the legend of the dagger.
    """
    last = max(_last(scene) for scene in scenes.values())
    rows = [len(scene["steps"]) for scene in scenes.values()]
    figure, panels = subplots(
        len(scenes),
        squeeze=False,
        sharex=True,
        figsize=(7.2, 1.3 + sum(0.6 + 0.2 * ranks for ranks in rows)),
        height_ratios=[1 + ranks for ranks in rows],
    )
    for axes, (title, scene) in zip(panels.flat, scenes.items(), strict=True):
        axes.set_title(title, loc="left", fontsize="medium", fontweight="bold")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(color="#E0E0E0", axis="x")
        axes.set_axisbelow(True)
        if scene["out"] is not None:
            axes.axvspan(0, min(scene["out"], 1.02 * last), **_OUT)
        for rank, times in scene["steps"].items():
            axes.plot(times, [rank] * len(times), **_STEP)
            if rank in scene["errors"]:
                axes.plot([scene["errors"][rank]], [rank], **_ERROR)
            elif not times or times[-1] < 0:
                axes.plot([0], [rank], color="black", marker="$†$", markersize=9, linestyle="")
        axes.set_yticks(list(scene["steps"]), [f"rank {rank}" for rank in scene["steps"]], fontsize="small")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(max(scene["steps"]) + 0.6, -0.6)
        axes.set_xlim(right=1.02 * last)
    panels.flat[-1].set_xlabel("seconds since the cable was unplugged or the rank was killed")
    handles = [
        Line2D([], [], label="a step ends", **_STEP),
        Line2D([], [], label="an error", **_ERROR),
        Patch(label="the cable is out", **_OUT),
        Line2D([], [], color="black", marker="$†$", markersize=9, linestyle="", label=killed),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize="small")


def routes_over_cables(hosts: Sequence[Sequence[int]], routes: Mapping[str, tuple], title: str) -> None:
    """Draw the messages of several all-reduces, with the hosts as boxes and a panel for each all-reduce.

    `hosts` lists the ranks of each host. `routes` has, for each all-reduce, its pairs of source and destination, and
    the text below its panel. Messages between hosts have a colour of their own.
    """
    figure, panels = subplots(
        1,
        len(routes),
        squeeze=False,
        figsize=(2.75 * len(routes), 1.9 + 0.42 * max(map(len, hosts))),
    )
    places = {rank: (2.0 * host, -row) for host, ranks in enumerate(hosts) for row, rank in enumerate(ranks)}
    home = {rank: host for host, ranks in enumerate(hosts) for rank in ranks}
    bottom = -max(map(len, hosts))
    for axes, (name, (pairs, text)) in zip(panels.flat, routes.items(), strict=True):
        axes.set_title(name, fontsize="medium")
        axes.axis("off")
        axes.set_xlim(-0.7, 2.0 * len(hosts) - 1.3)
        axes.set_ylim(bottom - 0.75, 1.0)
        for host, ranks in enumerate(hosts):
            corner = 2.0 * host - 0.5, 0.5 - len(ranks)
            look = {"boxstyle": "round,pad=0.05", "facecolor": TINTS[4], "edgecolor": "none", "alpha": 0.5}
            axes.add_patch(FancyBboxPatch(corner, 1.0, len(ranks), **look))
            axes.text(2.0 * host, 0.68, f"host{host}", ha="center", fontsize="small")
        for source, destination in pairs:
            _draw_arrow(axes, places[source], places[destination], home[source] != home[destination])
        for rank, place in places.items():
            axes.text(*place, rank, ha="center", va="center", fontsize="small", zorder=5, bbox=_circle(home[rank]))
        axes.text((2.0 * len(hosts) - 2) / 2, bottom + 0.05, text, ha="center", va="top", fontsize="small")
    handles = [
        Line2D([], [], color="black", linewidth=1.2, label="inside a host"),
        Line2D([], [], color=RED, linewidth=2.4, label="over the cables"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    figure.suptitle(title, fontsize="medium", fontweight="bold")


def _last(scene):
    """Return the time of the last step or error of a scene."""
    return max([time for times in scene["steps"].values() for time in times] + list(scene["errors"].values()))


def _draw_arrow(axes, begin, end, crosses):
    look = {"color": RED, "linewidth": 2.4} if crosses else {"color": "black", "linewidth": 1.2}
    if crosses:
        # The first row bends up and the others bend down; a diagonal arrow is straight, so that no two arrows coincide.
        outward = 0.2 if begin[1] < 0 else -0.2
        bend = 0.0 if begin[1] != end[1] else outward
    else:
        bend = 0.45 if abs(begin[1] - end[1]) > 1 else 0.25
    look["connectionstyle"] = f"arc3,rad={bend}"
    axes.add_patch(FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=11, shrinkA=10, shrinkB=10, **look))


def _circle(host):
    return {"boxstyle": "circle,pad=0.3", "facecolor": TINTS[host], "edgecolor": "black", "linewidth": 0.8}
