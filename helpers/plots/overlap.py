"""The figure of 09_overlap, the timeline of a step, which later notebooks also draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, new_axes

if TYPE_CHECKING:  # this imports torch, which the other figures do not need
    from helpers.measure.timeline import Interval

# The heights of a lane (each rank has two), of the gap below each rank, and of the heading of a step.
_LANE, _GAP, _HEADING = 1.0, 0.5, 1.5
# The look of each kind of interval; all collectives have the look of the last kind.
_COMMUNICATION = "communication"
_LOOKS = {
    "forward": {"facecolor": "#B5D6EC"},
    "backward": {"facecolor": BLUE},
    "optimizer": {"facecolor": GREEN, "hatch": "---"},
    "wait": {"facecolor": "white", "edgecolor": "#404040", "hatch": "xxx"},
    "other": {"facecolor": "#767676", "hatch": "///"},
    _COMMUNICATION: {"facecolor": RED},
}


def step_timeline(title: str, steps: Mapping[str, Sequence[Sequence[Interval]]]) -> None:
    """Draw each rank's activity during a step as bars: its computation above, its communication below.

    `steps` maps a heading to the intervals of each rank, as `timeline.recorded` lists them. Each step begins at 0 with
    the first interval of any of its ranks, and all steps share one axis. Intervals named "forward", "backward", "wait"
    and "optimizer" have looks of their own; collectives, such as "gloo:all_reduce", share a look, and all other names
    share another. Collectives that run at the same time share the height of their lane. An interval within another
    interval, such as an optimizer's step within backward, has half its height.
    """
    lanes = sum(2 * len(ranks) * _LANE + len(ranks) * _GAP + _HEADING for ranks in steps.values())
    axes = new_axes(title, width=7.2, height=1.1 + 0.17 * lanes)
    axes.grid(False, axis="y")
    places, names, kinds, top = [], [], set(), 0.0
    for heading, ranks in steps.items():
        origin = min(interval.begin for intervals in ranks for interval in intervals)
        top += _HEADING
        axes.text(0, top - 0.3, heading, fontsize="small", fontweight="bold")
        for rank, intervals in enumerate(ranks):
            kinds |= _draw_rank(axes, intervals, origin, top)
            places.append(top + _LANE)
            names.append(f"rank {rank}")
            top += 2 * _LANE + _GAP
        if heading != list(steps)[-1]:
            axes.axhline(top, color=GUIDE["color"], linewidth=0.8)
    axes.set_ylim(top, 0)
    axes.set_xlim(left=0)
    axes.set_yticks(places, names, fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time since the step began (ms)")
    handles = [Patch(label=kind, **_look(kind)) for kind in _LOOKS if kind in kinds]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)


def _draw_rank(axes: Axes, intervals, origin, top):
    """Draw the two lanes of a rank, from `top` down, and return the kinds of its intervals."""
    computed = [interval for interval in intervals if _kind(interval.name) != _COMMUNICATION]
    for interval in sorted(computed, key=lambda interval: interval.begin - interval.end):
        around = [i for i in computed if i.begin <= interval.begin and interval.end <= i.end and i is not interval]
        height = _LANE / 2 if around else _LANE
        _bar(axes, interval, origin, top + _LANE - height, height)
    communicated = [interval for interval in intervals if _kind(interval.name) == _COMMUNICATION]
    rows = _rows(communicated)
    height = _LANE / max(1, len(rows))
    for number, row in enumerate(rows):
        for interval in row:
            _bar(axes, interval, origin, top + _LANE + number * height, height)
    return {_kind(interval.name) for interval in intervals}


def _bar(axes, interval, origin, top, height):
    begin, duration = 1e3 * (interval.begin - origin), 1e3 * (interval.end - interval.begin)
    axes.broken_barh([(begin, duration)], (top, height), zorder=2, **_look(_kind(interval.name)))


def _rows(intervals):
    """Distribute the intervals over as few rows as possible, so that intervals in one row do not overlap."""
    rows = []
    for interval in sorted(intervals, key=lambda interval: interval.begin):
        for row in rows:
            if row[-1].end <= interval.begin:
                row.append(interval)
                break
        else:
            rows.append([interval])
    return rows


def _kind(name):
    if ":" in name:
        return _COMMUNICATION
    if name.startswith("Optimizer."):  # as torch.optim itself names a step
        return "optimizer"
    return name if name in _LOOKS else "other"


def _look(kind):
    return {"edgecolor": "white", "linewidth": 0.4, **_LOOKS[kind]}
