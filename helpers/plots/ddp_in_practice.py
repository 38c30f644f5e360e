"""Figures of 15_ddp_in_practice: a run that is resumed, and when a compiled model sends its buckets."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from helpers.plots.style import GUIDE, TINTS, new_axes

_LOOKS = {"backward": TINTS[0], "bucket": "#F3B58C"}


_STEPS, _SAVED, _EPOCH = 40, 17, 13  # of the lesson's runs: all steps, the steps before the file, the steps of an epoch


def saved_and_resumed() -> None:
    """Draw an unbroken run, and a run that is saved in the middle of an epoch and resumed from the file."""
    axes = new_axes("A resumed run should end where the unbroken run ends", width=7.2, height=2.4)
    bars = [
        (0, 0, _STEPS, "unbroken run", 0),
        (1, 0, _SAVED, "run that stops", 1),
        (2, _SAVED, _STEPS, "resumed run", 2),
    ]
    for row, first, last, name, tint in bars:
        look = {"facecolor": TINTS[tint], "edgecolor": "#404040", "linewidth": 0.8}
        axes.add_patch(Rectangle((first, row - 0.36), last - first, 0.72, **look))
        axes.text((first + last) / 2, row, f"{name}: {last - first} steps", ha="center", va="center", fontsize=9)
    for epoch in range(1, 1 + _STEPS // _EPOCH):
        axes.axvline(epoch * _EPOCH, zorder=0, **GUIDE)
        axes.text((epoch - 0.5) * _EPOCH, -0.62, f"epoch {epoch - 1}", ha="center", va="center", fontsize=8)
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0}
    axes.text(_SAVED + 0.5, 1, "saves one file", ha="left", va="center", fontsize=9)
    axes.text(_SAVED - 0.5, 2, "loads this file", ha="right", va="center", fontsize=9, bbox=box)
    axes.set(xlim=(0, _STEPS + 0.5), ylim=(2.5, -0.85), xlabel="step", yticks=[])
    axes.grid(visible=False)


def backward_and_buckets(events: Mapping[str, Sequence[str]]) -> None:
    """Draw the events of a backward pass in their order, a row for each model.

    `events` maps the name of a model to its events: "backward" when a compiled graph has finished, "bucket" when DDP
    sends a bucket.
    """
    most = max(map(len, events.values()))
    height = 0.55 * len(events) + 1.0
    axes = new_axes("One graph sends all buckets at its end", width=7.2, height=height)
    for row, of_model in enumerate(events.values()):
        for place, event in enumerate(of_model):
            hatch = "///" if event == "bucket" else None
            look = {"facecolor": _LOOKS[event], "edgecolor": "#404040", "linewidth": 0.8, "hatch": hatch}
            axes.add_patch(Rectangle((place + 0.03, row - 0.36), 0.94, 0.72, **look))
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0} if hatch else None
            axes.text(place + 0.5, row, event, ha="center", va="center", fontsize=8, bbox=box)
    axes.set(xlim=(0, most), ylim=(len(events) - 0.5, -0.5), xlabel="events on rank 0, in their order", xticks=[])
    axes.set_yticks(range(len(events)), list(events))
    axes.grid(visible=False)
    axes.tick_params(length=0)
