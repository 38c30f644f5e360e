"""Figures of 16_scaling: the idea, throughput, MFU on many GPUs, loss by batch size, training time by ranks."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from helpers.plots.style import BLUE, GREEN, GUIDE, LIMIT, MODEL, RED, TINTS, new_axes, note, subplots

_GREY = "#505050"


def fewer_and_longer_steps() -> None:
    """Draw a sketch: with more ranks steps are longer, fewer steps are needed, and the training time has a minimum."""
    ranks = np.arange(1, 17)
    step = 1 + 0.08 * (ranks - 1)
    steps = 1 / ranks + 0.12 * (1 - 1 / ranks)
    figure, panels = subplots(1, 3, figsize=(8.2, 2.3))
    panels[0].bar(ranks, np.ones(16), color=TINTS[0], label="computes")
    panels[0].bar(ranks, step - 1, bottom=1, color="white", edgecolor=_GREY, hatch="////", linewidth=0.5, label="waits")
    panels[0].legend(loc="lower right", fontsize="small")
    panels[1].plot(ranks, steps, color=BLUE, marker="o", markersize=4)
    panels[1].plot(ranks, 1 / ranks, **GUIDE)
    panels[1].annotate("steps = 1 / ranks", (16, 0.45), color="#767676", ha="right", fontsize="small")
    panels[2].plot(ranks, step * steps, color=RED, marker="s", markersize=4)
    titles = "Steps become longer,", "but fewer are needed,", "so there is a best number."
    for axes, title, name in zip(panels, titles, ("step time", "steps", "training time"), strict=True):
        axes.set_title(title, loc="left", fontsize="medium", fontweight="bold")
        axes.set(xlabel="ranks", ylabel=name, ylim=(0, None), yticks=[], xticks=(1, 4, 8, 12, 16))
        axes.spines[["top", "right"]].set_visible(False)


def throughput(
    title: str,
    batch: int,
    measured: Mapping[str, Mapping[int, float]],
    models: Mapping[str, Mapping[int, float]],
    cores: int,
) -> None:
    """Draw images per second against the number of ranks: measured, modelled, and ideal.

    `batch` is the number of images of each rank. `measured[name]` has the step time in seconds by the number of ranks,
    for two settings; `models[name]` has the predicted step times. The ideal is a multiple of the fastest single rank.
    """
    axes = new_axes(title, height=4.2)
    ranks = list(next(iter(measured.values())))
    looks = (GREEN, "s", "--"), (BLUE, "o", "-")
    ideal = batch / min(times[1] for times in measured.values())
    axes.plot(ranks, [ideal * k for k in ranks], **GUIDE)
    labels = [(ideal * ranks[-1], "ideal", GUIDE["color"])]
    for (colour, marker, line), (name, times) in zip(looks, measured.items(), strict=True):
        rates = [batch * k / times[k] for k in ranks]
        modelled = [batch * k / models[name][k] for k in ranks]
        axes.plot(ranks, rates, color=colour, marker=marker, linestyle="", markersize=7, zorder=3)
        axes.plot(ranks, modelled, color=colour, linestyle=line, linewidth=1.5)
        labels.append((modelled[-1], f"model, {name}", colour))
        labels.append((rates[-1], f"measured, {name}", colour))
    top = 1.08 * axes.get_ylim()[1]
    axes.set_ylim(0, top)
    _label_ends(axes, ranks[-1], labels, top)
    if cores < max(ranks):
        axes.axvline(cores, **GUIDE)
        note(axes, f"{cores} cores", (cores, 0.9 * top), shift=(5, 0))
    axes.set_xlim(0.9, ranks[-1] + 0.8 * (ranks[-1] - 1))
    axes.set_xticks(ranks)
    axes.set_xlabel("ranks, all on this machine")
    axes.set_ylabel("throughput (images per second)")


def mfu_by_gpus(title: str, gpus: Sequence[int], bands: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Draw the modelled MFU against the number of GPUs: for each link a band, from no overlap to full overlap."""
    axes = new_axes(title, height=4.0)
    looks = (RED, "////", "-", "s"), (BLUE, "....", "--", "o")
    for (colour, hatch, line, marker), (name, (low, high)) in zip(looks, bands.items(), strict=True):
        axes.fill_between(gpus, low, high, facecolor="white", edgecolor=colour, hatch=hatch, linewidth=0, alpha=0.5)
        for values in (low, high):
            axes.plot(gpus, values, color=colour, linestyle=line, marker=marker, markersize=4)
        place = len(gpus) // 2 if name == next(iter(bands)) else len(gpus) - 2
        middle = (low[place] + high[place]) / 2
        axes.text(
            gpus[place], middle, name, color=colour, ha="center", va="center", fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
        )  # fmt: skip
        for values, words in _ends(low, high):
            axes.annotate(
                words, (gpus[-1], values[-1]), (8, 0), textcoords="offset points", color=colour, va="center",
                fontsize="small",
            )  # fmt: skip
    axes.axhline(0.5, **GUIDE)
    note(axes, "ideal: 50 %, without communication", (gpus[0], 0.5), shift=(0, 5))
    axes.set_xscale("log", base=2)
    axes.set_xticks(gpus)
    axes.set_xlim(gpus[0] / 1.1, gpus[-1] * 3.4)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.set_ylim(0, 0.58)
    axes.set_xlabel("GPUs, which share a batch of 4,194,304 tokens")
    axes.set_ylabel("MFU (model, not measurement)")


def _ends(low, high):
    """Return the labels of a band's edges at their last points: one label where the edges nearly meet."""
    if high[-1] - low[-1] < 0.03:
        return [(low, "with and without overlap")]
    return [(high, "full overlap"), (low, "no overlap")]


def _label_logarithmic(axes, numbers, room):
    """Label these numbers on the horizontal axis, with room for names at their right, and 1, 2, 5 on the vertical."""
    axes.set_xticks(numbers)
    axes.set_xlim(numbers[0] / 1.2, numbers[-1] * room)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=[1, 2, 5]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))


def time_to_loss(title: str, curves: Mapping[str, Mapping[int, float]]) -> None:
    """Draw the seconds until a training reaches a loss against the number of ranks, a line for each model."""
    axes = new_axes(title, width=8.2, height=3.8)
    looks = {**MODEL, "marker": "o"}, {"color": BLUE, "marker": "^", "linewidth": 2, "linestyle": "--"}, GUIDE
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for look, (name, times) in zip(looks, curves.items(), strict=True):
        axes.plot(list(times), list(times.values()), **look)
        last = max(times)
        axes.annotate(
            name, (last, times[last]), (10, 0), textcoords="offset points", color=look["color"], va="center",
        )  # fmt: skip
    ranks = list(next(iter(curves.values())))
    _label_logarithmic(axes, ranks, 5)
    axes.set_xlabel("ranks, one on each machine, with 25 images each")
    axes.set_ylabel("seconds to the loss")


def batch_sizes(title: str, losses: Mapping[str, Mapping[int, float]]) -> None:
    """Draw the loss after training against the global batch size, a line for each rule for the learning rate.

    `losses[rule]` maps a batch size to the loss. Each line has its name at its right end.
    """
    axes = new_axes(title, width=8.2, height=4.1)
    looks = (LIMIT, {**MODEL, "marker": "o"}, {"color": BLUE, "linestyle": ":", "linewidth": 2, "marker": "^"})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ends = []
    for look, (rule, by_size) in zip(looks, losses.items(), strict=True):
        axes.plot(list(by_size), list(by_size.values()), **look)
        size, loss = list(by_size.items())[-1]
        ends.append([loss, size, rule, look["color"]])
    for number, (loss, size, rule, colour) in enumerate(sorted(ends)):
        below = number > 0 and loss < 1.3 * sorted(ends)[number - 1][0]
        shift = 5 if below else -5
        axes.annotate(rule, (size, loss), (10, shift), textcoords="offset points", color=colour, va="center")
    sizes = list(next(iter(losses.values())))
    _label_logarithmic(axes, sizes, 2.6)
    axes.set_xlabel("global batch (images in a step)")
    axes.set_ylabel("loss (cross-entropy)")
    above = axes.secondary_xaxis("top", functions=(lambda size: size / 25, lambda ranks: ranks * 25))
    above.set_xticks([size / 25 for size in sizes])
    above.xaxis.set_minor_locator(NullLocator())
    above.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.0f}"))
    above.set_xlabel("ranks with 25 images each")
    above.spines["top"].set_visible(False)


def _label_ends(axes, last, labels, top):
    """Write the labels to the right of the last point, from below, so that none covers another."""
    lowest = 0.0
    for value, words, colour in sorted(labels):
        place = max(value, lowest)
        axes.annotate(
            words, (last, value), (last * 1.04, place), color=colour, va="center", fontsize="small",
        )  # fmt: skip
        lowest = place + 0.055 * top
