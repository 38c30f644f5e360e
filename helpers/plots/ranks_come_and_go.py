"""Figure of 36_ranks_come_and_go: the ranks that take part in each step, while a rank dies and another rank joins."""

from collections.abc import Sequence

from helpers.plots.style import BLUE, GUIDE, RED, new_axes


def comings_and_goings(members: Sequence[Sequence[int]], events: Sequence[tuple[int, int, str]]) -> None:
    """Draw, for each rank, a bar over the steps in which it takes part.

    `members[s]` has the numbers of the ranks that take step s + 1 together. An event has the number of steps taken so
    far, its rank, and a text.
    """
    names = sorted({name for present in members for name in present})
    axes = new_axes("The survivors take part in every step", width=8.2, height=0.45 * len(names) + 1.3)
    for name in names:
        own_steps = [step for step, present in enumerate(members) if name in present]
        bars = []
        for step in own_steps:
            if bars and sum(bars[-1]) == step:
                bars[-1] = (bars[-1][0], bars[-1][1] + 1)
            else:
                bars.append((step, 1))
        axes.broken_barh(bars, (name - 0.32, 0.64), facecolor=BLUE, alpha=0.55)
    for step, name, what in events:
        axes.axvline(step, **GUIDE)
        joins = step < len(members) and name in members[step]
        axes.plot(step, name, marker="o" if joins else "X", markersize=10, color=RED, markeredgecolor="white", zorder=4)
        look = {"textcoords": "offset points", "va": "center", "ha": "right" if joins else "left", "fontsize": "small"}
        axes.annotate(what, (step, name), (-9 if joins else 9, 0), color=RED, **look)  # on the side without the bar
    axes.set_yticks(names, [f"rank {name}" for name in names])
    axes.set_xlim(0, len(members))
    axes.set_ylim(names[-1] + 0.5, names[0] - 0.5)
    axes.set_xlabel("steps taken")
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
