"""Figures of 38_two_hosts: two hosts and the switch between them, and a training while a cable is unplugged."""

from collections.abc import Mapping

from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch

from helpers.plots.style import BLUE, RED, TINTS, new_axes, subplots

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


def two_hosts_and_switch(ranks: int) -> None:
    """Draw two hosts with their ranks, loopbacks and interfaces, and the cables to the switch between them."""
    axes = new_axes("Only the cables and the switch connect the ranks of two hosts", width=7.2, height=3.0)
    axes.set_axis_off()
    axes.set(xlim=(-0.3, 12.3), ylim=(-0.4, 3.7))
    for host, left in enumerate((0.0, 7.6)):
        look = {"boxstyle": "round,pad=0.1", "facecolor": "#F4F4F4", "edgecolor": "black"}
        axes.add_patch(FancyBboxPatch((left, 0), 4.4, 3.0, **look))
        axes.text(left + 2.2, 3.35, f"host{host}, 10.77.0.{11 + host}", ha="center", va="center", fontsize="small")
        inner, outer = (left + 1.0, left + 3.6) if host == 0 else (left + 3.4, left + 0.8)
        for place in range(ranks):
            height = 2.6 - 1.3 * place
            axes.plot([inner, outer], [height, 1.5], color="#767676", linewidth=1.2, zorder=1)
            _box(axes, (inner, height), f"rank {host * ranks + place}", TINTS[host])
        _box(axes, (outer, 1.5), "eth0", "white")
        _box(axes, (inner, 0.3), "lo", "white")
        if host == 0:
            _box(axes, (outer, 0.3), "store", TINTS[2])
            axes.plot([outer, outer], [0.3, 1.5], color="#767676", linewidth=1.2, zorder=1)
        axes.plot([outer, 6.0], [1.5, 1.5], color=RED, linewidth=3, zorder=1)
        axes.text((outer + 6.0) / 2 + (0.4 if host == 0 else -0.4), 1.72, "cable", ha="center", color=RED, fontsize=9)
    _box(axes, (6.0, 1.5), "switch", "white")


def _last(scene):
    """Return the time of the last step or error of a scene."""
    return max([time for times in scene["steps"].values() for time in times] + list(scene["errors"].values()))


def _box(axes, place, text, color):
    look = {"boxstyle": "round,pad=0.3", "facecolor": color, "edgecolor": "#404040"}
    axes.text(*place, text, ha="center", va="center", fontsize=9, bbox=look, zorder=3)
