"""Figures of 25_hybrid_ddp_rpc: the roles of the ranks, a training with several trainers, and one backward pass."""

import math
from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, new_axes, subplots

_LOOKS = (
    {"color": BLUE, "linestyle": "-"},
    {"color": RED, "linestyle": "--"},
    {"color": GREEN, "linestyle": "-."},
    {"color": "#404040", "linestyle": ":"},
)


def roles(trainers: int) -> None:
    """Draw the ranks of a hybrid training with this number of trainers, and the messages between them."""
    axes = new_axes(f"{trainers} trainers, a server and a master", height=3.9)
    others = "rank 1: trainer" if trainers == 2 else f"ranks 1 to {trainers - 1}: trainers"
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 6.2)
    places = {
        f"rank {trainers}: master": (5, 5.5),
        "rank 0: trainer\ndense layer": (1.6, 3),
        f"{others}\ndense layer": (8.4, 3),
        f"rank {trainers + 1}: server\ntable": (5, 0.6),
    }
    for text, place in places.items():
        box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "#404040"}
        axes.text(*place, text, ha="center", va="center", bbox=box, zorder=3)
    master, left, right, server = places.values()
    _arrow(axes, master, left, GREEN, ":", both=True)
    _arrow(axes, master, right, GREEN, ":", both=True)
    _arrow(axes, master, server, GREEN, ":")
    _arrow(axes, left, server, BLUE, "-", both=True)
    _arrow(axes, right, server, BLUE, "-", both=True)
    look = {"arrowstyle": "<->", "color": RED, "linestyle": "--", "linewidth": 2}
    axes.annotate("", (7.45, 3), (2.55, 3), arrowprops=look)
    axes.text(2.3, 4.5, "← starts\nreports → (RPC)", color=GREEN, ha="center")
    axes.text(7.7, 4.5, "starts →\n← reports (RPC)", color=GREEN, ha="center")
    axes.text(5.1, 4.2, "makes the\ntable (RPC)", color=GREEN, ha="left", va="center")
    axes.text(3.1, 2.85, "all-reduce of\ndense gradients", color=RED, va="top")
    axes.text(1.2, 1.4, "words, gradients →\n← vectors (RPC)", color=BLUE, ha="center")
    axes.text(8.8, 1.4, "← words, gradients\nvectors → (RPC)", color=BLUE, ha="center")


def trainers_learn(reports: Sequence[tuple[int, float, float]]) -> Figure:
    """Return a figure of a training: the loss of each trainer in the upper panel, the accuracy in the lower panel.

    A report has a trainer's number, its mean loss over an epoch, and its accuracy in validation, from 0 to 1.
    """
    figure, all_axes = subplots(2, 1, figsize=(7.2, 4.8), sharex=True)
    plt.close(figure)  # the caller shows the figure, and updates it during the training
    for place, (axes, label) in enumerate(zip(all_axes, ("loss (cross-entropy)", "right (share)"), strict=True)):
        for trainer in sorted({report[0] for report in reports}):
            values = [report[place + 1] for report in reports if report[0] == trainer]
            look = _LOOKS[trainer % len(_LOOKS)]
            axes.plot(range(1, len(values) + 1), values, label=f"trainer {trainer}", **look)
        axes.axhline((math.log(6), 1 / 6)[place], label="guessing", **GUIDE)
        axes.set_ylabel(label)
        if place == 0:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
    title = "Training loss, and right answers in validation"
    all_axes[0].set_title(title, loc="left", fontsize="medium", fontweight="bold")
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


def _arrow(axes: Axes, begin, end, colour, style, both=False):
    look = {"arrowstyle": "<->" if both else "->", "color": colour, "linestyle": style, "linewidth": 2}
    axes.annotate("", end, begin, arrowprops={**look, "shrinkA": 26, "shrinkB": 26})
