"""Figures of 35_schedules: which rank holds which layers, and the work of ranks that hold several stages."""

from collections.abc import Mapping, Sequence

from helpers.plots.pipelines import LOOKS, name_boxes, work_of_rows
from helpers.plots.style import TINTS, label_rows, new_axes

# Forward, gradient of the input, gradient of the weights: fill and ink, as in the figures of 34_pipelines.
_LOOKS = {"F": LOOKS["F"], "I": LOOKS["B"], "W": (TINTS[1], "black")}

Event = tuple[str, int, int, float, float]


def stages_on_ranks(ranks: int) -> None:
    """Draw the layers of a model in their order, with the rank that holds each layer, for three ways to place them."""
    layers = 2 * ranks
    ways = {
        "one stage on each rank": [layer // 2 for layer in range(layers)],
        "two stages, as a loop": [layer % ranks for layer in range(layers)],
        "two stages, as a V": [min(layer, layers - 1 - layer) for layer in range(layers)],
    }
    axes = new_axes("The same ranks can hold one stage or several stages", width=7.6, height=2.5)
    axes.grid(False)
    for row, holders in enumerate(ways.values()):
        for layer, rank in enumerate(holders):
            axes.barh(row, 0.94, left=layer + 0.03, height=0.62, color=TINTS[rank % 8], edgecolor="#404040")
            axes.text(layer + 0.5, row, f"rank {rank}", ha="center", va="center", fontsize=8)
    label_rows(axes, list(range(len(ways))), list(ways))
    axes.set_xticks([layer + 0.5 for layer in range(layers)], [f"layer {layer}" for layer in range(layers)], fontsize=8)
    axes.tick_params(axis="x", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_ylim(len(ways) - 0.4, -0.6)


def ranks_at_work(title: str, steps: Mapping[str, Sequence[Sequence[Event]]]) -> None:
    """Draw the work of each rank during a step: a box for each forward, I and W, with its micro-batch's number.

    `steps` maps a heading to the events of each rank: kind ("F", "I", "W"), which of the rank's layers, micro-batch,
    begin and end in seconds. Each step begins at 0 with its first event, and all steps share one axis.
    """
    axes = work_of_rows(title, steps, row="rank", width=8.6, draw_box=_box)
    name_boxes(axes, {"forward": _LOOKS["F"][0], "I": _LOOKS["I"][0], "W": _LOOKS["W"][0]})


def _box(axes, event, left, width, top):
    kind, chunk, number, *_ = event
    fill, ink = _LOOKS[kind]
    axes.barh(top + 0.5, width, left=left, height=0.9, color=fill, edgecolor="white", linewidth=0.5, zorder=2)
    if chunk:
        axes.barh(top + 0.88, width, left=left, height=0.14, color="black", zorder=3)
    axes.text(left + width / 2, top + 0.47, str(number), color=ink, fontsize=6, ha="center", va="center", zorder=4)
