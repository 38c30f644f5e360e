"""Figures of 08_fewer_bytes: what compressed gradients cost and gain."""

from collections.abc import Mapping

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from helpers.plots.style import BLUE, GREEN, RED, SmallFigure, data_size

# Hooks differ by marker beside colour.
_LOOKS = (("o", BLUE), ("s", GREEN), ("D", "#56B4E9"), ("^", "#E69F00"), ("v", RED), ("X", "#767676"), ("P", "#CC79A7"))


def compression(hooks: Mapping[str, tuple[float, float, float, float]]) -> None:
    """Draw error, time and loss of each hook against the bytes that it sends in a step.

    `hooks[name]` holds the bytes that a rank gives to all-reduce in a step, the relative error of the gradients, the
    time of a step in seconds and the loss after training.
    """
    figure, all_axes = plt.subplots(
        1, 3, figsize=(9.6, 3.6), dpi=110, FigureClass=SmallFigure, layout="constrained", facecolor="white"
    )
    labels = ("error of the gradients", "time of a step (ms)", "loss (cross-entropy)")
    for place, (axes, label) in enumerate(zip(all_axes, labels, strict=True), start=1):
        for (marker, colour), (name, values) in zip(_LOOKS, hooks.items(), strict=False):
            height = values[place] * (1e3 if place == 2 else 1)
            axes.plot(values[0], height, marker=marker, color=colour, markersize=8, linestyle="", label=name, alpha=0.9)
        axes.set_xscale("log")
        sizes = [size for size, *_ in hooks.values()]
        axes.set_xlim(min(sizes) / 1.6, max(sizes) * 1.6)
        axes.xaxis.set_major_locator(LogLocator(base=4, numticks=8))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: data_size(size)))
        axes.set_title(label, loc="left", fontsize="medium", fontweight="bold")
        axes.set_xlabel("bytes of a step")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
        axes.set_axisbelow(True)
        top = max(values[place] for values in hooks.values()) * (1e3 if place == 2 else 1)
        if place == 1:
            axes.set_yscale("symlog", linthresh=1e-4)
        axes.set_ylim(0, top * (3 if place == 1 else 1.15))
    handles, names = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
