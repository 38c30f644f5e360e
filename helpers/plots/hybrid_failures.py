"""Figures of 32_hybrid_failures and 33_hybrid_recovery: who waits for whom, and what ranks do after a death."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots.style import BLUE, GREEN, RED, TINTS, new_axes

_HEIGHT = 0.5
# Of the width of the figure: a shorter stage is drawn wider, and the next stage after it, so that both can be seen.
_SHORT = 0.012

# The look of each kind of bar. A rank that waits is drawn without a filling.
_LOOKS = {
    "trains": {"facecolor": BLUE, "alpha": 0.6},
    "waits": {"facecolor": "white", "edgecolor": "#404040", "hatch": "////"},
    "detect": {"facecolor": RED},
    "regroup": {"facecolor": TINTS[1], "edgecolor": "#404040"},
    "resume": {"facecolor": GREEN},
}

_TEXTS = {"detect": "white", "resume": "white"}  # the colours of texts in dark bars
_STAGES = ("detect", "regroup", "resume")

Mark = tuple[str, float, float, str]


def who_waits_for_whom(trainers: int) -> None:
    """Draw an arrow from each rank of a hybrid training to the ranks whose answers it waits for."""
    axes = new_axes("Every rank except the server waits for another rank", height=2.9)
    axes.set_axis_off()
    axes.set_xlim(-0.05, 10.45)
    axes.set_ylim(-0.1, 4.1)
    others = "trainer 1" if trainers == 2 else f"trainers 1\nto {trainers - 1}"
    boxes = {"master": (0, 1.4), "trainer 0": (4.3, 2.8), others: (4.3, 0), "server": (8.9, 1.4)}
    for name, corner in boxes.items():
        axes.add_patch(Rectangle(corner, 1.5, 1.2, facecolor=TINTS[4], edgecolor="#404040"))
        axes.text(corner[0] + 0.75, corner[1] + 0.6, name, ha="center", va="center")
    for middle in (3.4, 0.6):
        _wait(axes, (1.5, 2.0), (4.3, middle), GREEN, ":")
        _wait(axes, (5.8, middle), (8.9, 2.0), BLUE, "-")
    _wait(axes, (5.05, 2.8), (5.05, 1.2), RED, "--", style="<->")
    words = {"va": "center", "fontsize": "small"}
    axes.text(1.55, 3.4, "until ten steps\nare done", color=GREEN, ha="left", **words)
    axes.text(5.15, 2.0, "in an all-reduce", color=RED, ha="left", **words)
    axes.text(8.9, 3.4, "for vectors, gradients\nand the optimizer step", color=BLUE, ha="center", **words)


def _wait(axes: Axes, begin, end, color, line, style="->"):
    arrow = {"arrowstyle": style, "color": color, "linestyle": line, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, begin, arrowprops=arrow)


def three_stages() -> None:
    """Draw the idea of the recovery: a trainer dies, and the others detect it, regroup and resume."""
    stages = [("regroup", 4, 6, ""), ("resume", 6, 8, "")]
    rows = {
        "trainer 0": [("trains", -3, 0, ""), ("waits", 0, 2, ""), *stages, ("trains", 8, 11, "")],
        "trainer 1": [("trains", -3, 0, "")],
        "master": [("waits", 0, 2, ""), ("detect", 2, 4, ""), *stages],
        "server": [("resume", 6, 8, "")],
    }
    axes = _rows("Detect, regroup, resume: then the training goes on", rows, (-3, 11))
    for row, marks in enumerate(rows.values()):
        for mark in marks:
            _draw(axes, row, mark)
            _name_bar(axes, row, mark)
    _draw_death(axes, list(rows).index("trainer 1"))
    axes.set_xticks([])
    axes.set_xlabel("time")


def recovery(title: str, rows: Mapping[str, Sequence[Mark]], dead: str, died: float, until: float) -> None:
    """Draw what each rank did from half a second before a death until `until` seconds after it.

    `rows` maps the name of each rank to its marks: what it did, from when, until when, and the cause of the error in
    which this ended, or "". `dead` is the name of the rank that died, and `died` the time of its death.
    """
    begin = -0.06 * until
    kinds = set()
    axes = _rows(title, rows, (begin, until))
    for row, marks in enumerate(rows.values()):
        last = died + begin  # the end of the last stage that was drawn
        for what, start, end, cause in sorted(marks, key=lambda mark: mark[1]):
            kind = what if what in _STAGES else "waits" if cause else what
            if kind in _LOOKS and end > died + begin and start < died + until:
                if kind in _STAGES:
                    start = max(start, last)
                    end = last = max(end, start + _SHORT * until)
                _draw(axes, row, (kind, start - died, end - died, cause))
                kinds.add(kind)
        _name_causes(axes, row, [(end - died, cause) for _, _, end, cause in marks if cause and died < end], until)
    _draw_death(axes, list(rows).index(dead))
    _name_bars(axes, kinds)
    axes.set_xlabel("seconds after the death")


def _rows(title, rows, limits):
    axes = new_axes(title, width=8.2, height=0.55 * len(rows) + 1.6)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.7)
    axes.set_xlim(limits)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    return axes


def _draw(axes: Axes, row, mark):
    kind, begin, end, _ = mark
    above = 3 if kind in _STAGES else 2  # a short stage is drawn wider than it is
    axes.barh(row, end - begin, _HEIGHT, begin, zorder=above, **({"linewidth": 0.8} | _LOOKS[kind]))


def _name_bar(axes: Axes, row, mark):
    """Write what a bar shows into the bar, on white if the bar is hatched."""
    kind, begin, end, _ = mark
    look = {"backgroundcolor": "white"} if "hatch" in _LOOKS[kind] else {}
    axes.text((begin + end) / 2, row, kind, ha="center", va="center", color=_TEXTS.get(kind, "black"), **look)


def _draw_death(axes: Axes, row):
    axes.axvline(0, color=RED, linestyle=":", linewidth=1.5, zorder=3)
    axes.plot(0, row, marker="X", markersize=11, color=RED, markeredgecolor="white", zorder=4)


def _name_causes(axes: Axes, row, errors, until):
    """Write the causes of a rank's errors above its bars, and causes that come at about the same time side by side."""
    labels = {}
    for end, cause in sorted(errors):
        place = next((place for place in labels if end - place < 0.1 * until), end)
        if end < until and not any(cause in causes for causes in labels.values()):
            labels.setdefault(place, []).append(cause)
    for place, causes in labels.items():
        look = {"textcoords": "offset points", "va": "center", "fontsize": "small", "zorder": 5}
        axes.annotate(", ".join(causes), (place, row - 0.43), (0, 0), color="#202020", **look)


def _name_bars(axes: Axes, kinds):
    """Name the kinds of bars below the figure, because measured bars are too narrow for texts."""
    for kind, look in _LOOKS.items():
        if kind in kinds:
            axes.barh([0], [0], _HEIGHT, label=kind, **look)
    axes.figure.legend(loc="outside lower center", ncols=len(_LOOKS), frameon=False, fontsize="small")
