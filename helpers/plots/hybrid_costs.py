"""Figures of 30_hybrid_costs: the messages of a step, its phases, and step times by number and size of the tables."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from helpers.plots.style import BLUE, GREEN, RED, TINTS, label_durations, new_axes

_LOOKS = (
    {"color": RED, "marker": "s", "linestyle": "--"},
    {"color": BLUE, "marker": "o", "linestyle": "-"},
    {"color": GREEN, "marker": "^", "linestyle": ":"},
)
_PHASES = {
    "forward": {"facecolor": "#B5D6EC"},
    "backward": {"facecolor": BLUE},
    "optimizer": {"facecolor": GREEN, "hatch": "---"},
}
_WAITS = {"facecolor": "#F1F1F1", "edgecolor": "#A0A0A0", "hatch": "///"}
_TRAINER, _SERVER = 1, 0  # heights of the lanes of a step
# For each phase: what the trainer does before its request, the request, the server's work, the answer, and what the
# trainer does with the answer.
_ROUND_TRIPS = (
    ("", "words,\noffsets", "looks up", "vectors", "dense layer,\nloss"),
    ("dense layer", "gradients", "goes on with\nbackward", "done", ""),
    ("", "step", "updates", "done", ""),
)


def hybrid_round_trips() -> None:
    """Draw the messages between a trainer and the server during a step of the hybrid model."""
    axes = new_axes("In each of its three phases, a trainer waits once for the server", height=2.7)
    axes.axis("off")
    axes.set_xlim(-1.15, 10.9)
    axes.set_ylim(-0.75, 1.35)
    for lane, name, tint in ((_TRAINER, "trainer", TINTS[0]), (_SERVER, "server", TINTS[1])):
        axes.axhspan(lane - 0.28, lane + 0.28, facecolor=tint, alpha=0.35)
        axes.text(-1.05, lane, name, va="center", fontweight="bold")
    left = 0.2
    works = {"facecolor": "white", "edgecolor": "#404040"}
    for phase, (before, request, work, answer, after) in zip(_PHASES, _ROUND_TRIPS, strict=True):
        begin = left
        if before:
            _box(axes, left, 1.2, _TRAINER, before, **works)
            left += 1.2
        _box(axes, left, 2.4, _TRAINER, "waits", **_WAITS)
        _box(axes, left + 0.5, 1.4, _SERVER, work, **works)
        _arrow(axes, (left + 0.05, _TRAINER - 0.2), (left + 0.5, _SERVER + 0.2), request, "left")
        _arrow(axes, (left + 1.9, _SERVER + 0.2), (left + 2.35, _TRAINER - 0.2), answer, "right")
        left += 2.4
        if after:
            _box(axes, left, 1.2, _TRAINER, after, **works)
            left += 1.2
        axes.annotate("", (begin, -0.42), (left, -0.42), arrowprops={"arrowstyle": "<->", "color": "#404040"})
        axes.text((begin + left) / 2, -0.62, phase, ha="center", va="center", fontsize="small")
        left += 0.3


def hybrid_phases(title: str, times: Mapping[int, Sequence[float]]) -> None:
    """Draw the seconds of forward, backward and optimizer as a bar for each number of words in the batch."""
    axes = new_axes(title, height=2.1)
    axes.grid(False, axis="y")
    names = [f"{words:,} word{'s' if words > 1 else ''}" for words in times]
    for place, of_batch in enumerate(times.values()):
        left = 0.0
        for (phase, look), seconds in zip(_PHASES.items(), of_batch, strict=True):
            axes.barh(place, 1e3 * seconds, 0.7, left, edgecolor="white", **look)
            label = f"{phase}\n{1e3 * seconds:.1f} ms"
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            axes.text(left + 500 * seconds, place, label, ha="center", va="center", fontsize="small", bbox=box)
            left += 1e3 * seconds
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("step time (ms)")


def lookup_times(title: str, times: Mapping[tuple[str, int], float]) -> None:
    """Draw the step time against the number of tables, a line for each variant of the lookup.

    `times` maps a pair (variant, number of tables) to the step time in seconds.
    """
    axes = new_axes(title, height=3.6)
    _lines(axes, {key: 1e3 * seconds for key, seconds in times.items()})
    numbers = sorted({number for _, number in times})
    axes.set_xticks(numbers)
    axes.set_xlim(right=1.2 * numbers[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tables on the server")
    axes.set_ylabel("step time (ms)")


def table_sizes(title: str, times: Mapping[tuple[str, int], float]) -> None:
    """Draw the step time against the number of rows of the embedding table, a line for each kind of step.

    `times` maps a pair (kind, number of rows) to the step time in seconds.
    """
    axes = new_axes(title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _lines(axes, times)
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rows, _: f"{rows:,.0f}"))
    label_durations(axes.yaxis)
    axes.set_ylim(min(1e-3, min(times.values())), 2 * max(times.values()))
    axes.set_xlim(right=8 * max(rows for _, rows in times))
    axes.set_xlabel("rows of the table, 16 columns")
    axes.set_ylabel("step time")


def _lines(axes: Axes, times: Mapping[tuple[str, int], float]):
    """Draw a line for each kind in the keys of `times`, with its name behind its last point."""
    lines = {}
    for (kind, place), value in times.items():
        lines.setdefault(kind, []).append((place, value))
    lowest = min(lines, key=lambda kind: lines[kind][-1][1])
    for (kind, points), look in zip(lines.items(), _LOOKS, strict=False):
        axes.plot(*zip(*points, strict=True), linewidth=2, markersize=7, **look)
        # Names above their points, and the lowest name below its point, so that close lines have readable names.
        side = {"va": "top"} if kind == lowest else {"va": "bottom"}
        style = {"color": look["color"], "fontsize": "small", "textcoords": "offset points", **side}
        axes.annotate(kind.replace(", ", ",\n"), points[-1], (9, 0), **style)


def _box(axes, left, width, lane, text, **look):
    axes.broken_barh([(left, width)], (lane - 0.2, 0.4), linewidth=0.8, zorder=2, **look)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5} if "hatch" in look else None
    axes.text(left + width / 2, lane, text, ha="center", va="center", fontsize=7, zorder=3, bbox=box)


def _arrow(axes, begin, end, text, side):
    """Draw a message, with its content on one side of the arrow: the text begins or ends there."""
    axes.annotate("", end, begin, arrowprops={"arrowstyle": "-|>", "color": RED, "shrinkA": 0, "shrinkB": 0}, zorder=4)
    middle = (begin[0] + end[0]) / 2 + {"left": 0.1, "right": -0.1}[side]
    axes.text(middle, 0.5, text, ha=side, va="center", fontsize=7, color=RED)
