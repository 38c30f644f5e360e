"""Figures of 29_hybrid_proof: two races, distances from one process, and many backward passes."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from helpers.plots.style import BLUE, GREEN, RED, TINTS, label_rows, new_axes, subplots

_BLACK, _GREY = "#404040", "#767676"
_SMALL = {"ha": "center", "va": "center", "fontsize": "small"}
_LOOKS = (
    {"color": GREEN, "linestyle": "-"},
    {"color": BLUE, "linestyle": "--"},
    {"color": RED, "linestyle": ":"},
    {"color": _BLACK, "linestyle": "-."},
)
_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1}
_AT_THE_EDGE = {"ha": "right", "va": "center", "fontsize": "small", "color": _BLACK, "zorder": 4}
_TIMES_OF_MEDIAN = 3  # a pass that lasts longer is cut off at the edge, and its end is written there
_LEAST = 1e-17  # a logarithmic axis cannot show 0, the difference of equal values

# The parts of a step: begin, end, kind, text. The upper panel has an early read, and the lower panel a lost update.
_EARLY = (
    ((0, 1.3, "read", "reads"), (1.3, 3.2, "compute", "computes"), (3.2, 4.5, "write", "steps"))
    + ((5.0, 6.3, "early", "reads"), (6.3, 8.2, "compute", "computes")),
    ((0, 1.3, "read", "reads"), (1.3, 3.2, "compute", "computes"), (3.2, 6.6, "wait", "is late"))
    + ((6.6, 7.9, "late", "steps"),),
)
_LOST = (
    ((0.4, 1.7, "read", "reads 5"), (1.7, 3.6, "compute", "adds 1"), (3.6, 5.0, "write", "writes 6")),
    ((1.0, 2.3, "read", "reads 5"), (2.3, 5.4, "compute", "adds 2"), (5.4, 6.8, "write", "writes 7")),
)
_KINDS = {
    "read": {"facecolor": TINTS[0]},
    "compute": {"facecolor": TINTS[4]},
    "write": {"facecolor": TINTS[5], "hatch": "///"},
    "wait": {"facecolor": "white", "linestyle": ":"},
    "early": {"facecolor": TINTS[0], "edgecolor": RED, "linewidth": 2.5, "zorder": 3},
    "late": {"facecolor": TINTS[5], "hatch": "///", "edgecolor": RED, "linewidth": 2.5, "zorder": 3},
}


def two_races() -> None:
    """Draw an early read and a lost update: what two trainers do over time in each of these races."""
    figure, (upper, lower) = subplots(2, 1, figsize=(7.2, 3.9))
    title = "Two races separate hybrid training from one process"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    _race(
        upper, "An early read: trainer 0 reads the table for batch 2 before trainer 1 has stepped for batch 1", _EARLY
    )
    _race(lower, "A lost update: both steps read 5, so the value in the table is 7 at the end, expected 8", _LOST)
    for batch, middle in ((1, 2.2), (2, 6.6)):
        upper.text(middle, 1.5, f"batch {batch}", color=_GREY, **_SMALL)


def distances_from_one_process(by_variant: Mapping[str, Sequence[float]]) -> None:
    """Draw how far the weights of each variant of a training are from those of one process, at every step."""
    far = sum(distances[-1] > 1e-8 for distances in by_variant.values())
    near = " and ".join(variant for variant, distances in by_variant.items() if distances[-1] <= 1e-8)
    title = f"Only {near} stays with one process: {far} of {len(by_variant)} variants leave it"
    axes = new_axes(title if near else "No variant stays with one process", height=3.8)
    steps = max(map(len, by_variant.values()))
    ends = {variant: max(distances[-1], _LEAST) for variant, distances in by_variant.items()}
    places = _apart([math.log10(end) for end in ends.values()], 0.8)
    for (variant, distances), look, place in zip(by_variant.items(), _LOOKS, places, strict=False):
        values = [max(distance, _LEAST) for distance in distances]
        axes.plot(range(1, len(values) + 1), values, linewidth=2, **look)
        axes.text(steps * 1.02, 10**place, variant, color=look["color"], va="center", fontsize="small")
    axes.set_yscale("log")
    axes.set_xlim(0, steps * 1.18)
    axes.set_xticks(range(0, steps + 1, max(1, steps // 8)))
    axes.set_xlabel("step")
    axes.set_ylabel("largest difference")


def backward_passes(passes: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Draw backward passes of one trainer, a row for each pass, with a panel for each group of passes.

    A pass maps its events to their times in seconds: "backward begins", "backward ends", "all-reduce begins",
    "all-reduce ends", "gradient leaves" and "gradient arrives".
    """
    every = [events for group in passes.values() for events in group]
    first = sum(events["all-reduce begins"] < events["gradient leaves"] for events in every)
    figure, panels = subplots(1, len(passes), figsize=(7.2, 3.9), squeeze=False)
    ends = [1e3 * (events["backward ends"] - events["backward begins"]) for events in every]
    limit = min(max(ends), _TIMES_OF_MEDIAN * median(ends)) * 1.03
    title = f"The all-reduce begins before the gradient leaves in {first} of {len(every)} passes"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    for axes, (name, group) in zip(panels[0], passes.items(), strict=True):
        axes.set_title(name, loc="left", fontsize="small")
        for row, events in enumerate(group):
            _pass(axes, row, {event: 1e3 * (time - events["backward begins"]) for event, time in events.items()})
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0", axis="x")
        axes.set_axisbelow(True)
        label_rows(axes, range(len(group)), [str(row + 1) for row in range(len(group))])
        for row, events in enumerate(group):
            if (end := 1e3 * (events["backward ends"] - events["backward begins"])) > limit:
                axes.text(limit, row, f"until {end:.0f} ms \N{RIGHTWARDS ARROW}", bbox=_WHITE, **_AT_THE_EDGE)
        axes.set_xlim(0, limit)
        axes.set_ylim(len(group) - 0.4, -0.6)
        axes.set_xlabel("time since the backward pass began (ms)")
    panels[0][0].set_ylabel("backward pass")
    figure.legend(handles=_handles(), loc="outside lower center", ncols=2, frameon=False, fontsize="small")


def _race(axes: Axes, title, lanes):
    axes.set_title(title, loc="left", fontsize="small")
    axes.axis("off")
    axes.set_xlim(-1.3, 8.4)
    axes.set_ylim(-0.5, 1.7)
    for trainer, parts in enumerate(lanes):
        lane = 1 - trainer
        axes.text(-0.1, lane, f"trainer {trainer}", ha="right", va="center", fontsize="small", fontweight="bold")
        for begin, end, kind, text in parts:
            axes.broken_barh([(begin, end - begin)], (lane - 0.32, 0.64), **({"edgecolor": _GREY} | _KINDS[kind]))
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if kind in ("write", "late") else None
            axes.text((begin + end) / 2, lane, text, bbox=box, zorder=4, **_SMALL)


def _apart(places, gap):
    """Return the places, moved so that they differ by at least `gap`; the highest stays."""
    order = sorted(range(len(places)), key=lambda index: -places[index])
    moved, last = list(places), math.inf
    for index in order:
        moved[index] = last = min(places[index], last - gap)
    return moved


def _pass(axes, row, times):
    axes.plot((0, times["backward ends"]), (row, row), color=_GREY, linewidth=1.5, zorder=1)
    begin, end = times["all-reduce begins"], times["all-reduce ends"]
    axes.broken_barh([(begin, end - begin)], (row - 0.3, 0.6), facecolor=TINTS[5], edgecolor=_GREY, hatch="///")
    axes.plot(times["gradient leaves"], row, **_marker("v"))
    axes.plot(times["gradient arrives"], row, **_marker("^"))


def _marker(shape):
    return {
        "marker": shape,
        "markersize": 7,
        "color": GREEN if shape == "v" else BLUE,
        "markeredgecolor": "white",
        "linestyle": "",
        "zorder": 3,
    }


def _handles():
    return [
        Line2D([], [], color=_GREY, linewidth=1.5, label="backward pass"),
        Patch(facecolor=TINTS[5], edgecolor=_GREY, hatch="///", label="all-reduce of the dense gradients"),
        Line2D([], [], label="the vectors' gradient leaves the trainer", **_marker("v")),
        Line2D([], [], label="the vectors' gradient arrives on the server", **_marker("^")),
    ]
