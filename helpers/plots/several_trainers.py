"""Figures of 27_several_trainers: when trainers read and write the weights of a server, in principle and in a run."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from helpers.plots.style import BLUE, RED, TINTS, label_rows, new_axes

_LOOKS = {
    "fresh": {"facecolor": "#B5D6EC"},
    "stale": {"facecolor": BLUE, "hatch": "---"},
    "failed": {"facecolor": RED, "hatch": "///"},
}
_UPDATE = {"color": "#404040", "linewidth": 0.8, "linestyle": ":"}
_SHOWN = 8  # steps of each trainer, on average

# For `trainers_and_server`: the lane of each trainer, and the times at which its steps read and write.
_SERVER = 1.5
_STEPS = ((3.0, ((0.6, 5.0), (6.0, 9.6))), (0.0, ((1.6, 3.4), (4.2, 7.2))))


class _Step(NamedTuple):
    trainer: str
    begin: float
    end: float
    outcome: str


def trainers_and_server() -> None:
    """Draw steps of two trainers in time, with an arrow for each read and each write of the server's weights."""
    axes = new_axes("Between a trainer's read and its write, another trainer can write", height=3)
    axes.axis("off")
    axes.set_xlim(-1.1, 10.6)
    axes.set_ylim(-0.6, 3.6)
    axes.plot((0, 10.4), (_SERVER, _SERVER), color="#404040", linewidth=6, solid_capstyle="butt")
    axes.text(-0.1, _SERVER, "server", ha="right", va="center", fontweight="bold")
    for number, (lane, steps) in enumerate(_STEPS):
        axes.text(-0.1, lane, f"trainer{number}", ha="right", va="center", fontweight="bold")
        inner = lane + (0.3 if lane < _SERVER else -0.3)
        for read, write in steps:
            axes.broken_barh([(read, write - read)], (lane - 0.3, 0.6), facecolor=TINTS[number])
            axes.text((read + write) / 2, lane, "computes", ha="center", va="center", fontsize="small")
            for begin, end, colour, name in ((_SERVER, inner, BLUE, "reads"), (inner, _SERVER, RED, "writes")):
                moment, line = (read, "-") if name == "reads" else (write, "--")
                look = {"arrowstyle": "->", "color": colour, "linewidth": 1.5, "linestyle": line}
                axes.annotate("", (moment, end), (moment, begin), arrowprops=look)
                middle = (_SERVER + inner) / 2
                axes.text(moment + 0.08, middle, name, color=colour, va="center", fontsize="small")
    axes.annotate("", (10.5, -0.5), (0, -0.5), arrowprops={"arrowstyle": "->", "color": "#767676"})
    axes.text(10.5, -0.42, "time", ha="right", va="bottom", fontsize="small", color="#404040")


def trainer_steps(log: Sequence[tuple[str, str, float]]) -> None:
    """Draw steps of each trainer as bars, and a line through all trainers at each update.

    Each entry of the log of a server has a trainer, an event ("reads", "updates" or "fails") and its time in seconds.
    If the log is long, the figure shows a part of it: the part with the most failed steps.
    """
    steps = _steps(log)
    trainers = sorted({step.trainer for step in steps})
    start, last = _most_eventful(steps, _SHOWN * len(trainers))
    shown = [step for step in steps if step.end > start and step.begin < last]
    counts = {name: sum(step.outcome == name for step in shown) for name in _LOOKS}
    title = f"{counts['stale']} of {len(shown)} steps were stale, and {counts['failed']} failed"
    axes = new_axes(title, height=1.3 + 0.6 * len(trainers))
    axes.grid(False, axis="y")
    for step in shown:
        bar = 1e3 * (step.begin - start), 1e3 * (step.end - step.begin)
        lane = trainers.index(step.trainer) - 0.3, 0.6
        axes.broken_barh([bar], lane, edgecolor="white", linewidth=0.8, zorder=2, **_LOOKS[step.outcome])
    for _, event, seconds in log:
        if event == "updates" and start <= seconds <= last:
            axes.axvline(1e3 * (seconds - start), zorder=3, **_UPDATE)
    label_rows(axes, range(len(trainers)), trainers)
    axes.set_xlim(0, 1e3 * (last - start))  # cuts off a step that began earlier or ends later
    axes.set_ylim(len(trainers) - 0.5, -0.5)
    axes.set_xlabel("time (ms)")
    handles = [Patch(label=f"{name} step", **_LOOKS[name]) for name, count in counts.items() if count]
    handles.append(Line2D([], [], label="update", **_UPDATE))
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize="small")


def _steps(log):
    """Return the steps of a log, in the order of their ends."""
    steps, begun, changed = [], {}, {}
    for trainer, event, seconds in log:
        if event == "reads":
            begun[trainer], changed[trainer] = seconds, False
            continue
        outcome = "failed" if event == "fails" else "stale" if changed[trainer] else "fresh"
        steps.append(_Step(trainer, begun[trainer], seconds, outcome))
        if event == "updates":
            changed = dict.fromkeys(changed, True)
    return steps


def _most_eventful(steps, count):
    """Return the begin and the end of `count` consecutive steps, chosen to contain the most failed steps."""
    windows = [steps[first : first + count] for first in range(max(1, len(steps) - count + 1))]
    window = max(windows, key=lambda window: sum(step.outcome == "failed" for step in window))
    return min(step.begin for step in window), max(step.end for step in window)
