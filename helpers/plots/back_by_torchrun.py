"""Figures of 41_back_by_torchrun: the steps of a training over time, with a failure in the middle."""

from collections.abc import Mapping, Sequence

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, new_axes, note

_LOOKS = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": GREEN, "linestyle": "--", "marker": "s"},
    {"color": RED, "linestyle": "-.", "marker": "^"},
    {"color": "#404040", "linestyle": ":", "marker": "D"},
)


def what_a_restart_costs() -> None:
    """Sketch the steps over time with a failure and a restart of all ranks, without numbers."""
    axes = new_axes("A restart costs a start, and steps that are taken again", height=3.2)
    axes.plot([0, 4], [0, 4], color=BLUE, linewidth=2.5)
    axes.plot([4, 6], [4, 3], color="#767676", linestyle=":", linewidth=2)
    axes.plot([6, 7], [3, 4], color=RED, linestyle="--", linewidth=2.5)
    axes.plot([7, 9], [4, 6], color=BLUE, linewidth=2.5)
    axes.plot(4, 4, marker="X", markersize=13, color=RED, markeredgecolor="white")
    for steps in (1, 3, 5):
        axes.axhline(steps, **GUIDE)
        axes.annotate("checkpoint", (9.05, steps), va="center", color="#767676", annotation_clip=False)
    note(axes, "failure", (4, 4), (-12, 10))
    note(axes, "start of the ranks", (4, 4), (26, 0))
    note(axes, "taken again", (6.5, 3.5), (10, -10))
    axes.set(xlim=(0, 9), ylim=(0, 6.2), xticks=[], yticks=[])
    axes.set_xlabel("time")
    axes.set_ylabel("steps")
    axes.grid(visible=False)


def progress_after_failure(runs: Mapping[str, tuple[float, Sequence, int]]) -> None:
    """Draw the number of steps of each run over the seconds since its failure; both begin at 0 with the failure.

    A run has the moment of its failure, its rows (step, moment of its end, ...), and the steps before the failure.
    """
    axes = new_axes("Survivors go on where they were, and restarts go back", width=8.2, height=4.2)
    longest = 0.0
    heights = (29, 16, 3, 3)  # of the names, in points: the first three runs end at about the same time
    for look, height, (name, (failure, rows, before)) in zip(_LOOKS, heights, runs.items(), strict=True):
        points = [(moment - failure, step - before) for step, moment, *_ in rows]
        points = [(seconds, steps) for seconds, steps in points if -1 < seconds and steps <= 30]
        later = [(seconds, steps) for seconds, steps in points if seconds > 0]
        end = next((point for point in later if point[1] == 30), later[-1])
        points = [point for point in points if point[0] <= end[0]]
        seconds, steps = zip(*sorted(points), strict=True)
        # A wait is level, and the step back to a checkpoint is vertical.
        axes.plot(seconds, steps, linewidth=2, markersize=5, markevery=15, drawstyle="steps-post", **look)
        axes.annotate(name, end, (4, height), textcoords="offset points", color=look["color"], ha="left")
        longest = max(longest, end[0])
    axes.axvline(0, **GUIDE)
    note(axes, "failure", (0, -28), (4, 0))
    axes.set(xlim=(-1, longest * 1.12), ylim=(-32, 44))
    axes.set_xlabel("seconds since the failure")
    axes.set_ylabel("steps since the failure")
