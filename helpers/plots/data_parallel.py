"""Figures of 08_data_parallel: one step of n copies of a model, and the losses of the ranks and of one process."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from helpers.plots.style import BLUE, GUIDE, MODEL, TINTS, new_axes, note

_COLUMNS = {"batch": 0.35, "copy of the model": 1.9, "gradient of\nthe shard": 3.3, "mean": 4.6, "new weight": 5.9}
_ARROW = {"arrowstyle": "-|>", "color": "#404040", "shrinkA": 2, "shrinkB": 2}


def data_parallel_step(
    shards: Sequence[Sequence[float]], gradients: Sequence[float], mean: float, weight: float
) -> None:
    """Draw one step of data parallel training: a row for each rank, with its shard of the batch and its gradient.

    `shards` and `gradients` have an entry for each rank, `mean` is the mean of the gradients, and `weight` is the
    weight of every copy before the step. The step subtracts the mean. All shards have the same length.
    """
    n = len(shards)
    axes = new_axes("Each rank computes its own gradient, and all take the same step", width=7.4, height=1.1 + 0.42 * n)
    axes.set_axis_off()
    axes.set(xlim=(-0.4, 6.5), ylim=(n - 0.4, -1.3))
    batch, model, gradient, average, result = _COLUMNS.values()
    middle = (n - 1) / 2
    for name, place in _COLUMNS.items():
        axes.text(place, -0.75, name, ha="center", va="center", fontsize=9, fontweight="bold")
    for rank, shard in enumerate(shards):
        tint = TINTS[rank % len(TINTS)]
        for column, sample in enumerate(shard):
            _box(axes, batch + 0.45 * (column - (len(shard) - 1) / 2), rank, f"{sample:g}", tint)
        _box(axes, model, rank, f"rank {rank}: w = {weight:g}", "white")
        _box(axes, gradient, rank, f"{gradients[rank]:g}", tint)
        _box(axes, result, rank, f"w = {weight - mean:g}", "white")
        _arrow(axes, (batch + 0.45, rank), (model - 0.6, rank))
        _arrow(axes, (model + 0.6, rank), (gradient - 0.25, rank))
        _arrow(axes, (gradient + 0.25, rank), (average - 0.3, middle))
        _arrow(axes, (average + 0.3, middle), (result - 0.45, rank))
    _box(axes, average, middle, f"{mean:g}", "#FFFFFF", linewidth=2)


def _box(axes: Axes, x, y, text, colour, linewidth=0.8):
    """Write a text in a box of this colour."""
    box = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": "#404040", "linewidth": linewidth}
    axes.text(x, y, text, ha="center", va="center", fontsize=9, bbox=box, zorder=3)


def _arrow(axes: Axes, start, end):
    axes.annotate("", end, start, arrowprops=_ARROW)


def loss_curves(one_process: Sequence[float], mean: Sequence[float], by_rank: Sequence[Sequence[float]]) -> None:
    """Draw the loss at every step of one process and of each rank on its own shard, and the mean over the ranks."""
    axes = new_axes("The mean loss of the ranks is the loss of one process", height=3.2)
    for losses in by_rank:
        axes.plot(losses, color=GUIDE["color"], linewidth=0.8, alpha=0.6)
    axes.plot(one_process, **MODEL)
    every = max(1, len(mean) // 30)
    axes.plot(
        mean, linestyle="", marker="o", markersize=5, markerfacecolor="none", color=BLUE, markevery=every, zorder=3
    )
    last, falling = len(mean) - 1, len(mean) // 3
    note(axes, "thin: each rank, on its own shard", (last // 2, max(losses[last // 2] for losses in by_rank)), (8, 24))
    note(
        axes,
        "circles: mean over the ranks\nline: one process, on the global batch",
        (falling, one_process[falling]),
        (16, 10),
    )
    axes.set_xlabel("step (number of global batches)")
    axes.set_ylabel("loss (cross-entropy)")
    axes.set_ylim(bottom=0)
