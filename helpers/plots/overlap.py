"""Figures of 09_overlap: a sketch of overlap, and timelines of steps, which later notebooks also draw."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from helpers.measure.intervals import Interval, exposed
from helpers.plots.style import BLUE, GREEN, GUIDE, RED, TINTS, label_rows, new_axes

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
_ROW = 4.1  # the height of a step of one rank
_HIDDEN, _EXPOSED = "#F3B58C", "#A34400"  # communication with and without computation at the same time

# The sketch: what a rank computes, and what it sends after the backward pass or during it, as name, begin, end.
_LAYERS = [("layer", 2.4 + 1.3 * place, 3.7 + 1.3 * place) for place in range(5)]
_SKETCHES = {
    "without overlap": [("bucket of all layers", 8.9, 13.4, "exposed")],
    "with overlap": [
        *[("bucket", 3.8 + 1.3 * place, 4.7 + 1.3 * place, "hidden") for place in range(4)],
        ("bucket", 9.0, 9.9, "exposed"),
    ],
}


def overlap_sketch() -> None:
    """Draw a sketch of two steps of a rank, without and with overlap: its computation above, its buckets below."""
    axes = new_axes("Buckets that travel during the backward pass are hidden", width=7.8, height=3.3)
    axes.set_axis_off()
    axes.set(xlim=(-1.9, 15.3), ylim=(6.2, -0.9))
    for top, (heading, sent) in zip((0, 3.4), _SKETCHES.items(), strict=True):
        end = max(end for _, _, end, _ in sent)
        axes.text(-1.8, top - 0.25, heading, fontsize=9, fontweight="bold", va="bottom")
        axes.text(5.65, top - 0.1, "backward pass", fontsize=8, ha="center", va="bottom", color=BLUE)
        for name, begin, until in [("forward", 0, 2.4), *_LAYERS, ("optimizer", end, end + 1.7)]:
            look = {"facecolor": {"forward": TINTS[7], "optimizer": TINTS[2]}.get(name, TINTS[0])}
            _named_bar(axes, name, begin, until, top, look)
        for name, begin, until, kind in sent:
            look = {"facecolor": _HIDDEN} if kind == "hidden" else {"facecolor": _EXPOSED}
            _named_bar(axes, name, begin, until, top + 1.1, look, "black" if kind == "hidden" else "white")
            if kind == "exposed":
                axes.text((begin + until) / 2, top + 2.15, "exposed", fontsize=8, ha="center", va="top")
        if heading == "with overlap":
            axes.text(6.2, top + 2.15, "hidden", fontsize=8, ha="center", va="top")
        for text, below in (("computes", 0.45), ("sends", 1.55)):
            axes.text(-0.2, top + below, text, fontsize=8, ha="right", va="center")


def _named_bar(axes, name, begin, end, top, look, colour="black"):
    axes.add_patch(Rectangle((begin, top), end - begin, 0.9, edgecolor="#404040", linewidth=0.8, **look))
    axes.text((begin + end) / 2, top + 0.45, name, fontsize=7.5, ha="center", va="center", color=colour)


def exposed_steps(title: str, steps: Mapping[str, Sequence[Interval]]) -> None:
    """Draw steps of one rank, with the communication that no computation hides darker, and its milliseconds.

    `steps` maps a heading to the intervals of a step, as `timeline.recorded` lists them. All steps share one axis, and
    each begins at 0. Above the computation, a triangle marks each interval named "gradient". Below it, a white line
    separates collectives where one of them begins; a dotted line marks the end of the backward pass.
    """
    axes = new_axes(title, width=7.6, height=1.3 + 0.66 * len(steps))
    axes.grid(False, axis="y")
    for number, (heading, intervals) in enumerate(steps.items()):
        top, origin = _ROW * number, min(interval.begin for interval in intervals)
        axes.text(0, top + 0.8, heading, fontsize="small", fontweight="bold")
        for interval in intervals:
            _draw_interval(axes, interval, origin, top + 1.7)
        pieces = exposed(intervals)
        for piece in pieces:
            bounds = 1e3 * (piece.begin - origin), 1e3 * (piece.end - piece.begin)
            axes.broken_barh([bounds], (top + 2.7, 1), facecolor=_EXPOSED, zorder=3)
        if pieces:
            text = f"{1e3 * sum(piece.end - piece.begin for piece in pieces):.0f} ms exposed"
            axes.annotate(
                text,
                (1e3 * (max(piece.end for piece in pieces) - origin), top + 3.2),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
                color=_EXPOSED,
            )
        end = max((interval.end for interval in intervals if interval.name == "backward"), default=origin)
        axes.plot([1e3 * (end - origin)] * 2, [top + 1.6, top + 3.8], **GUIDE, zorder=4)
    places = [_ROW * number + below for number in range(len(steps)) for below in (2.2, 3.2)]
    axes.set_yticks(places, ["computes", "sends"] * len(steps), fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(_ROW * len(steps), 0)
    axes.set_xlim(0, 1.15 * axes.get_xlim()[1])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time since the step began (ms)")
    axes.figure.legend(handles=_handles(steps), loc="outside lower center", ncols=4, frameon=False, fontsize="small")


def _draw_interval(axes, interval, origin, top):
    """Draw an interval: computation in the upper lane, communication in the lower lane, a gradient above both."""
    begin, kind = 1e3 * (interval.begin - origin), _kind(interval.name)
    if interval.name == "gradient":
        axes.plot(begin, top - 0.25, "v", color="black", markersize=4, zorder=4)
        return
    look = {"facecolor": _HIDDEN} if kind == _COMMUNICATION else _LOOKS[kind]
    lane = top + 1 if kind == _COMMUNICATION else top
    axes.broken_barh([(begin, 1e3 * (interval.end - interval.begin))], (lane, 1), zorder=2, edgecolor="none", **look)
    if kind == _COMMUNICATION:
        axes.plot([begin] * 2, [lane, lane + 1], color="white", linewidth=1.2, zorder=4)


def _handles(steps):
    """Return the entries of the legend for what occurs in these steps."""
    names = {interval.name for intervals in steps.values() for interval in intervals}
    kinds = {_kind(name) for name in names}
    handles = [Patch(label=kind, **_look(kind)) for kind in ("forward", "backward", "optimizer") if kind in kinds]
    if "gradient" in names:
        handles.append(Line2D([], [], color="black", marker="v", linestyle="", label="a gradient is complete"))
    if _COMMUNICATION in kinds:
        handles.append(Patch(facecolor=_HIDDEN, label="hidden communication"))
        handles.append(Patch(facecolor=_EXPOSED, label="exposed communication"))
    return [*handles, Line2D([], [], **GUIDE, label="end of backward")]


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
    label_rows(axes, places, names)
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
