"""Figures of 28_hybrid_ddp_rpc: the roles of the ranks, and a training with several trainers."""

import math
from collections.abc import Sequence

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, new_axes, subplots

_LOOKS = (
    {"color": BLUE, "linestyle": "-"},
    {"color": RED, "linestyle": "--"},
    {"color": GREEN, "linestyle": "-."},
    {"color": "#404040", "linestyle": ":"},
)

# The look of a text on a line, whose background hides the line.
_ON_LINE = {
    "ha": "center",
    "va": "center",
    "fontsize": "small",
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5},
}


def roles(trainers: int) -> None:
    """Draw the ranks of a hybrid training with this number of trainers, and the messages in the order of a step."""
    axes = new_axes("Trainers call the server by RPC, and all-reduce among themselves", height=3.9)
    others = "rank 1" if trainers == 2 else f"ranks 1 to {trainers - 1}"
    axes.set_axis_off()
    axes.set_xlim(-0.05, 10.45)
    axes.set_ylim(-0.1, 6.9)
    _box(axes, (0, 0, 1.5, 6), f"rank {trainers}\nmaster")
    _box(axes, (3.9, 3.4, 1.7, 2.6), "rank 0\ntrainer:\ndense layer")
    _box(axes, (3.9, 0, 1.7, 2.6), f"{others}\ntrainer:\ndense layer")
    _box(axes, (8.9, 0, 1.5, 6), f"rank {trainers + 1}\nserver:\ntable")
    for bottom in (0, 3.4):
        _message(axes, (1.5, bottom + 1.8), (3.9, bottom + 1.8), "starts an epoch", GREEN, ":")
        _message(axes, (3.9, bottom + 0.8), (1.5, bottom + 0.8), "reports", GREEN, ":")
        _message(axes, (5.6, bottom + 2.25), (8.9, bottom + 2.25), "1  words", BLUE, "-")
        _message(axes, (8.9, bottom + 1.6), (5.6, bottom + 1.6), "2  vectors", BLUE, "-")
        _message(axes, (5.6, bottom + 0.95), (8.9, bottom + 0.95), "4  vectors' gradients", BLUE, "-")
        _message(axes, (5.6, bottom + 0.3), (8.9, bottom + 0.3), "5  optimizer step", BLUE, "-")
    _message(axes, (4.75, 3.4), (4.75, 2.6), "", RED, "--", style="<->")
    axes.text(5.0, 3.0, "3  all-reduce of dense gradients", color=RED, va="center", fontsize="small")
    axes.plot((0.75, 0.75, 9.65), (6, 6.6, 6.6), color=GREEN, linestyle=":", linewidth=1.5)
    _message(axes, (9.65, 6.6), (9.65, 6), "", GREEN, ":")
    axes.text(5.2, 6.6, "creates the table", color=GREEN, **_ON_LINE)


def trainers_learn(reports: Sequence[tuple[int, float, float]]) -> Figure:
    """Return a figure of a training: the loss of each trainer in the upper panel, the accuracy in the lower panel.

    A report has a trainer's number, its mean loss over an epoch, and its accuracy in validation, from 0 to 1.
    """
    figure, all_axes = subplots(2, 1, figsize=(7.2, 4.8), sharex=True)
    plt.close(figure)  # the caller shows the figure, and updates it during the training
    for place, (axes, label) in enumerate(zip(all_axes, ("loss (cross-entropy)", "correct (fraction)"), strict=True)):
        for trainer in sorted({report[0] for report in reports}):
            values = [report[place + 1] for report in reports if report[0] == trainer]
            look = _LOOKS[trainer % len(_LOOKS)]
            axes.plot(range(1, len(values) + 1), values, label=f"trainer {trainer}", **look)
        guessing = (math.log(6), 1 / 6)[place]
        axes.axhline(guessing, **GUIDE)
        look = {"color": GUIDE["color"], "ha": "right", "va": "bottom", "fontsize": "small"}
        axes.text(0.99, guessing, "guessing", transform=axes.get_yaxis_transform(), **look)
        axes.set_ylabel(label)
        if place == 0:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=[1, 2, 5]))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:g}"))
        else:
            axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
    title = "The loss falls in training, and correct answers rise in validation"
    all_axes[0].set_title(title, loc="left", fontsize="medium", fontweight="bold")
    if reports:
        all_axes[0].legend(frameon=False)
    all_axes[1].set_xlabel("epoch")
    return figure


def _box(axes: Axes, place, text):
    """Draw a rank as a box: left end, bottom, width, height, and the text in it."""
    left, bottom, width, height = place
    axes.add_patch(Rectangle((left, bottom), width, height, facecolor="white", edgecolor="#404040"))
    axes.text(left + width / 2, bottom + height / 2, text, ha="center", va="center")


def _message(axes: Axes, begin, end, text, colour, line, style="->"):
    """Draw a message between two boxes, with its text on the line."""
    look = {"arrowstyle": style, "color": colour, "linestyle": line, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, begin, arrowprops=look)
    axes.text((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2, text, color=colour, **_ON_LINE)
