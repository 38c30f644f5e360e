"""Figures of 25_distributed_rnn: where the model is split, and how its perplexity falls during training."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import mean

from IPython.display import Image
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from helpers.plots.style import BLUE, GUIDE, MEASURED, MODEL, RED, TINTS, new_axes, png

_LINES = (":", "--", "-.")
_SMOOTHED = 20  # steps
_MESSAGES = ("words", "vectors", "output", "logits")  # of a forward pass, in order
_HEIGHTS = (3.55, 2.75, 1.6, 0.8)
_GRADIENT = 0.22  # below the message that a gradient answers
_FORWARD = {"color": BLUE, "linestyle": "-", "linewidth": 2}
_BACKWARD = {"color": RED, "linestyle": "--", "linewidth": 1.5}


def cut_model(sizes: Mapping[str, int] | None = None) -> None:
    """Draw the parts of the language model on trainer and server, and the messages of a training step.

    `sizes` maps the name of each message of the forward pass, "words", "vectors", "output" and "logits", to its bytes.
    """
    title = "In a step, four tensors go forward and three gradients come back"
    if sizes:
        title = f"The {max(sizes, key=sizes.get)} are by far the largest of the four tensors"
    axes = new_axes(title, height=3.3)
    axes.axis("off")
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 4.4)
    for left, name, colour in ((0, "trainer (rank 0)", TINTS[0]), (6.6, "server (rank 1)", TINTS[1])):
        axes.add_patch(plt.Rectangle((left, 0), 3.4, 4, facecolor=colour, alpha=0.35, edgecolor="none"))
        axes.text(left + 1.7, 4.1, name, ha="center", fontweight="bold")
    for place, text in (((1.7, 2.05), "LSTM"), ((8.3, 3.05), "embedding table"), ((8.3, 1.1), "decoder")):
        box = {"boxstyle": "round,pad=0.6", "facecolor": "white", "edgecolor": "#404040"}
        axes.text(*place, text, ha="center", va="center", bbox=box)
    axes.text(0.25, _HEIGHTS[0], "words in", va="center")
    axes.text(0.25, _HEIGHTS[-1] - _GRADIENT, "loss out", va="center")
    for name, height, there in zip(_MESSAGES, _HEIGHTS, cycle([True, False]), strict=False):
        label = f"{name}: {sizes[name]:,} bytes" if sizes else name
        axes.text(5, height + 0.1, label, ha="center", fontsize="small")
        _arrow(axes, height, there, _FORWARD)
        if name != "words":
            _arrow(axes, height - _GRADIENT, not there, _BACKWARD)
    handles = [
        Line2D([], [], label="forward pass", **_FORWARD),
        Line2D([], [], label="backward pass: gradient", **_BACKWARD),
    ]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2, frameon=False)


def perplexity_curve(
    training: Sequence[float], validation: Sequence[tuple[int, float]], baselines: Mapping[str, float]
) -> Image:
    """Return an image of a training, which the caller shows, and replaces as the training progresses.

    `training` has the perplexity of each step, `validation` pairs of a step and the perplexity in validation there.
    `baselines` maps names to perplexities that are drawn as lines.
    """
    axes = new_axes("Perplexity falls while the model trains")
    axes.set_yscale("log")
    axes.plot(training, color="#BBBBBB", linewidth=1, label="training, each step")
    ends = range(_SMOOTHED, len(training) + 1)
    smoothed = [mean(training[end - _SMOOTHED : end]) for end in ends]
    axes.plot([end - 1 for end in ends], smoothed, label=f"training, mean of {_SMOOTHED} steps", **MODEL)
    axes.plot(*zip(*validation, strict=True), **{**MEASURED, "linestyle": "-", "label": "validation"})
    for (name, perplexity), line in zip(baselines.items(), cycle(_LINES), strict=False):
        axes.axhline(perplexity, **{**GUIDE, "linestyle": line})
        end = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
        axes.annotate(f"{name}: {perplexity:.0f}", (1, perplexity), (0, 3), color=GUIDE["color"], **end)
    axes.set_xlabel("step")
    axes.set_ylabel("perplexity (words)")
    axes.set_yticks(ticks := [20, 50, 100, 200, 500, 1000], map(str, ticks))
    axes.minorticks_off()
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.93))
    drawn, size = png(axes.figure)
    plt.close(axes.figure)
    return Image(drawn, **size)


def _arrow(axes: Axes, height, there, look):
    begin, end = (3.5, 6.5) if there else (6.5, 3.5)
    axes.annotate("", (end, height), (begin, height), arrowprops={"arrowstyle": "->", **look})
