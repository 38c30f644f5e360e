"""Figures of 22_distributed_rnn: where the model is split, and how its perplexity falls during training."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import mean

from IPython.display import Image
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from helpers.plots.style import BLUE, GUIDE, LIMIT, MEASURED, MODEL, TINTS, new_axes, png

_LINES = (":", "--", "-.")
_SMOOTHED = 20  # steps
_HEIGHTS = (3.35, 2.6, 1.35, 0.6)


def cut_model(carried: Mapping[str, Sequence[int]]) -> None:
    """Draw the parts of the language model on trainer and server, and the four messages of its forward pass.

    `carried` maps the name of each message, in order, to the shape of its tensor.
    """
    axes = new_axes("Forward: four messages; backward answers each float tensor with its gradient", height=3.3)
    axes.axis("off")
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 4.4)
    for left, name, colour in ((0, "trainer (rank 0)", TINTS[0]), (6.6, "server (rank 1)", TINTS[1])):
        axes.add_patch(plt.Rectangle((left, 0), 3.4, 4, facecolor=colour, alpha=0.35, edgecolor="none"))
        axes.text(left + 1.7, 4.1, name, ha="center", fontweight="bold")
    for place, text in (((1.7, 2), "LSTM"), ((8.3, 3), "EmbeddingTable"), ((8.3, 1), "Decoder")):
        box = {"boxstyle": "round,pad=0.6", "facecolor": "white", "edgecolor": "#404040"}
        axes.text(*place, text, ha="center", va="center", bbox=box)
    axes.text(0.25, 3.35, "words in", va="center")
    axes.text(0.25, 0.65, "loss out", va="center")
    for (name, shape), height, there in zip(carried.items(), _HEIGHTS, cycle([True, False]), strict=False):
        _arrow(axes, height, there, f"{name} ({', '.join(map(str, shape))})")


def perplexity_curve(
    training: Sequence[float], validation: Sequence[tuple[int, float]], baselines: Mapping[str, float]
) -> Image:
    """Return an image of a training, which the caller shows, and replaces as the training progresses.

    `training` has the perplexity of each step, `validation` pairs of a step and the perplexity in validation there.
    `baselines` maps names to perplexities that are drawn as lines.
    """
    axes = new_axes("Perplexity while the model trains")
    axes.set_yscale("log")
    axes.plot(training, color="#BBBBBB", linewidth=1, label="training, each step")
    ends = range(1, len(training) + 1)
    smoothed = [mean(training[max(0, end - _SMOOTHED) : end]) for end in ends]
    axes.plot(smoothed, label=f"training, mean of {_SMOOTHED} steps", **MODEL)
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


def _arrow(axes: Axes, height, there, label):
    begin, end = (3.5, 6.5) if there else (6.5, 3.5)
    colour = BLUE if there else LIMIT["color"]
    axes.annotate("", (end, height), (begin, height), arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 2})
    axes.text(5, height + 0.1, label, ha="center", fontsize="small")
