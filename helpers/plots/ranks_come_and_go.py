"""Figures of 40_ranks_come_and_go: groups that lose and gain a member, and who took steps when."""

from collections.abc import Sequence
from math import cos, pi, sin

from matplotlib.patches import FancyArrowPatch

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, subplots

_PAUSE = 0.2  # seconds; a longer time between two steps is a wait
_WORKS = {"facecolor": BLUE, "alpha": 0.6}
_WAITS = {"facecolor": "white", "edgecolor": "#767676", "hatch": "///", "linewidth": 0.8}


def three_groups() -> None:
    """Draw a group of four processes, the group of the three survivors, and the group with a new process."""
    figure, panels = subplots(1, 3, figsize=(8.6, 3.2))
    title = "Whenever a process leaves or joins, the members form a new group"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    titles = ("one group of 4", "rank 1 is killed: a group of 3", "a new process joins: a group of 4")
    groups = ((0, 1, 2, 3), (0, 2, 3), (0, 1, 2, 3))
    for number, (axes, title, group) in enumerate(zip(panels, titles, groups, strict=True)):
        axes.set_title(title, fontsize="medium")
        axes.set(xlim=(-1.6, 1.6), ylim=(-1.5, 1.5), aspect="equal")
        axes.axis("off")
        places = [(-cos(pi / 4 + pi / 2 * process), sin(pi / 4 + pi / 2 * process)) for process in range(4)]
        for rank, process in enumerate(group):
            ends = places[process], places[group[(rank + 1) % len(group)]]
            axes.add_patch(
                FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=12, shrinkA=19, shrinkB=19, color="#767676")
            )
            new = number == 2 and process == 1
            axes.plot(*places[process], "o", markersize=34, markeredgecolor=GREEN if new else BLUE, color="white")
            axes.annotate(f"rank {rank}", places[process], ha="center", va="center", fontsize="x-small")
            if new:
                axes.annotate("new", places[process], (0, 22), textcoords="offset points", ha="center", color=GREEN)
        if 1 not in group:
            axes.plot(*places[1], marker="X", markersize=16, color=RED, markeredgecolor="white")


def comings_and_goings(runs: Sequence[tuple[Sequence, float, str]]) -> None:
    """Draw for each process when it took steps and when it waited, in one panel for each run.

    A run has the history of a rank, the moment of an event and its text. Each row of a history is (step, moment of its
    end, processes that took it together).
    """
    width = [history[-1][1] - history[0][1] for history, _, _ in runs]
    names = [sorted({name for row in history for name in row[2]}) for history, _, _ in runs]
    _, panels = subplots(
        len(runs),
        1,
        figsize=(8.2, 0.3 * sum(map(len, names)) + 1.9),
        height_ratios=[len(lanes) + 0.9 for lanes in names],
    )
    panels[0].set_title("Survivors wait and go on; no process goes back", loc="left", fontsize="medium", weight="bold")
    for axes, lanes, (history, event, text) in zip(panels, names, runs, strict=True):
        begin = history[0][1]
        for lane, name in enumerate(lanes):
            own = [row for row in history if name in row[2]]
            for (_, left, _), (_, right, _) in zip(own, own[1:], strict=False):
                look = _WAITS if right - left > _PAUSE else _WORKS
                axes.broken_barh([(left - begin, right - left)], (lane - 0.34, 0.68), **look)
        axes.axvline(event - begin, **GUIDE)
        axes.annotate(
            text, (event - begin, len(lanes) - 0.45), (5, -3), textcoords="offset points", va="top", color=RED
        )
        axes.set(xlim=(0, max(width)), ylim=(len(lanes) + 0.35, -0.5))
        axes.set_yticks(range(len(lanes)), [f"process {name}" for name in lanes], fontsize="small")
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel("seconds since the first step of the panel; filled: takes steps, hatched: waits")
