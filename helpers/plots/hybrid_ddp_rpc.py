"""Figures of 28_hybrid_ddp_rpc: the roles of the ranks, a training with several trainers, and one backward pass."""

import math
from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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
        else:
            axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
    title = "Loss in training, and correct answers in validation"
    all_axes[0].set_title(title, loc="left", fontsize="medium", fontweight="bold")
    if reports:
        all_axes[0].legend(frameon=False)
    all_axes[1].set_xlabel("epoch")
    return figure


def distances(by_version: Mapping[str, Sequence[float]]) -> None:
    """Draw how far the weights of a training are from one process at every step, a line for each version."""
    axes = new_axes("Distance of the dense weights from those of one process", height=3.6)
    looks = ((GREEN, "-"), (BLUE, "--"), (RED, ":"))
    for (version, by_step), (colour, style) in zip(by_version.items(), looks, strict=False):
        # A logarithmic axis cannot show 0, the difference of equal values.
        values = [max(value, 1e-17) for value in by_step]
        axes.plot(range(1, len(values) + 1), values, style, color=colour, linewidth=2, label=version)
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("largest difference")
    axes.legend(frameon=False, loc="center right")


def backward_pass(marks: Mapping[str, Mapping[str, float]]) -> None:
    """Draw one backward pass over several ranks, with a lane for each rank.

    `marks` maps each rank to the times of its events in seconds, by name. "... begins" and "... ends" become the ends
    of a bar; "gradient leaves" and "gradient of TRAINER arrives" become markers.
    """
    axes = new_axes("One backward pass", height=3.2)
    origin = min(time for of_rank in marks.values() for time in of_rank.values())
    looks = {"backward": (0.16, BLUE, ""), "all-reduce": (-0.16, RED, "///")}
    for lane, of_rank in enumerate(marks.values()):
        times = {name: 1e3 * (time - origin) for name, time in of_rank.items()}
        for name, (shift, colour, hatch) in looks.items():
            if f"{name} begins" in times:
                begin, end = times[f"{name} begins"], times[f"{name} ends"]
                look = {"color": colour, "hatch": hatch, "edgecolor": "white", "label": "" if lane else name}
                axes.barh(-lane + shift, end - begin, 0.3, begin, **look)
    for end, marker in (("leaves", "v"), ("arrives", "^")):
        points = [
            (1e3 * (time - origin), -lane)
            for lane, of_rank in enumerate(marks.values())
            for name, time in of_rank.items()
            if name.startswith("gradient") and name.endswith(end)
        ]
        look = {"marker": marker, "markersize": 9, "linestyle": "", "color": GREEN, "markeredgecolor": "white"}
        axes.plot(*zip(*points, strict=True), label=f"the vectors' gradient {end}", zorder=3, **look)
    _join(axes, marks, origin)
    axes.set_yticks([-lane for lane in range(len(marks))], marks)
    axes.set_ylim(-len(marks) + 0.4, 0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_xlim(left=0)
    axes.set_xlabel("time since the first backward began (ms)")
    axes.figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize="small")


def _join(axes: Axes, marks, origin):
    """Draw a line for each trainer's gradient, from where it leaves to where it arrives."""
    for lane, (trainer, of_rank) in enumerate(marks.items()):
        arrival = f"gradient of {trainer.replace(' ', '')} arrives"
        for other_lane, of_other in enumerate(marks.values()):
            if "gradient leaves" in of_rank and arrival in of_other:
                times = [1e3 * (time - origin) for time in (of_rank["gradient leaves"], of_other[arrival])]
                axes.plot(times, [-lane, -other_lane], color=GREEN, linewidth=1, zorder=2)


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
