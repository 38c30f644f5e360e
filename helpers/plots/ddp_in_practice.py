"""Figures of 14_ddp_in_practice: which state of the ranks DDP sends, and when a compiled model sends its buckets."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from helpers.plots.style import TINTS, new_axes

# A part of a rank's state, what DDP sends of it, and the arrow between the ranks.
_STATE = [
    ("weights", "broadcast from rank 0, once", "-|>"),
    ("gradients", "averaged in every step", "<|-|>"),
    ("buffers", "broadcast from rank 0", "-|>"),
    ("optimizer's state", "nothing is sent", ""),
    ("random generator", "nothing is sent", ""),
    ("position in the data", "nothing is sent", ""),
]
_WIDTH, _RIGHT = 2.3, 6.1  # of a box, and the place of rank 1's boxes
_LOOKS = {"backward": TINTS[0], "bucket": "#F3B58C"}


def state_of_ranks() -> None:
    """Draw the state of two ranks on which the next step depends, and arrows for what DDP sends of it."""
    axes = new_axes("DDP sends weights, gradients and buffers, and nothing else", width=7.2, height=2.9)
    axes.set_axis_off()
    axes.set(xlim=(-0.1, _RIGHT + _WIDTH + 0.1), ylim=(len(_STATE) - 0.1, -0.75))
    for rank, left in enumerate((0, _RIGHT)):
        axes.text(left + _WIDTH / 2, -0.35, f"rank {rank}", ha="center", va="center", fontsize=9, fontweight="bold")
    for row, (name, sent, arrow) in enumerate(_STATE):
        middle = row + 0.4
        for left in (0, _RIGHT):
            look = {"facecolor": TINTS[0]} if arrow else {"facecolor": "white", "linestyle": "--"}
            axes.add_patch(Rectangle((left, row), _WIDTH, 0.8, edgecolor="#404040", linewidth=0.8, **look))
            axes.text(left + _WIDTH / 2, middle, name, ha="center", va="center", fontsize=9)
        if arrow:
            ends = (_RIGHT - 0.1, middle), (_WIDTH + 0.1, middle)
            axes.annotate("", *ends, arrowprops={"arrowstyle": arrow, "color": "#404040"})
        box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0}
        axes.text((_WIDTH + _RIGHT) / 2, middle, sent, ha="center", va="center", fontsize=8, bbox=box)


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
