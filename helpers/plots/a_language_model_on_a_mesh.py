"""Figures of 50_a_language_model_on_a_mesh: loss curves, and who computes and keeps what under four layouts."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from helpers.plots.style import BLUE, GREEN, GUIDE, LIMIT, MODEL, RED, TINTS, new_axes, note, subplots

_GREY = "#404040"
_MARKERS = (("o", BLUE), ("s", RED), ("^", GREEN), ("D", "#CC79A7"))
_EVERY = 4  # steps between two markers of a layout
_WINDOW = 25  # steps of a running mean


def layouts_of_ranks(n: int) -> None:
    """Draw n ranks under four layouts: rows are sequences, columns are columns of a matrix, colours are shards."""
    half = n // 2
    layouts = {  # rows, columns, the shard of each rank, and the ranks above a gap between hosts
        "fully_shard": (n, 1, list(range(n)), n),
        "tensor parallel": (1, n, list(range(n)), 1),
        f"both, on the mesh (2, {half})": (2, half, list(range(n)), 2),
        "hybrid, on two hosts": (n, 1, [rank % half for rank in range(n)], half),
    }
    figure, panels = subplots(1, len(layouts), figsize=(9.2, 3.0))
    figure.suptitle(
        "Four layouts split the sequences, the matrices, or both",
        x=0.01,
        ha="left",
        fontsize="medium",
        weight="bold",
    )
    for axes, (name, (rows, columns, shards, above)) in zip(panels, layouts.items(), strict=True):
        axes.set_title(name, fontsize=9)
        axes.set(xlim=(-0.12, 1.02), ylim=(1.14, -0.04), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        for rank in range(n):
            row, column = divmod(rank, columns)
            gap = 0.08 if row >= above else 0
            height = (1 if above >= rows else 0.92) / rows
            corner = column / columns, row * height + gap
            axes.add_patch(Rectangle(corner, 1 / columns, height, facecolor=TINTS[shards[rank]], edgecolor="black"))
            middle = corner[0] + 0.5 / columns, corner[1] + height / 2
            axes.text(*middle, f"rank {rank}" if columns < 3 else str(rank), ha="center", va="center", fontsize=9)
        axes.text(0.5, 1.04, "columns of each matrix", ha="center", va="top", fontsize=8, color=_GREY)
        axes.text(-0.04, 0.5, "sequences", ha="right", va="center", rotation=90, fontsize=8, color=_GREY)


def loss_of_one_process(losses: Sequence[float], bigram: float) -> None:
    """Draw the loss of each step as a dot, their running mean as a line, and the loss of a bigram model."""
    axes = new_axes("The trained model predicts better than a table of pairs of characters", height=3.6)
    running = [sum(losses[end - _WINDOW : end]) / _WINDOW for end in range(_WINDOW, len(losses) + 1)]
    axes.plot(losses, ".", color=BLUE, alpha=0.4, markersize=4)
    axes.plot(range(_WINDOW - 1, len(losses)), running, **MODEL)
    axes.axhline(bigram, **{**LIMIT, "marker": ""})
    note(axes, "bigram model", (len(losses), bigram), (-82, 5))
    for height, text, colour in ((0.9, f"line: the mean of {_WINDOW} steps", RED), (0.81, "dots: single steps", BLUE)):
        axes.text(0.3, height, text, color=colour, transform=axes.transAxes)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (cross-entropy per character)")


def curves_of_layouts(
    curves: Mapping[str, Sequence[float]], title: str = "The losses of four layouts lie on the curve of one process"
) -> None:
    """Draw the loss of the first training as a line, and the losses of the others as markers, each at other steps."""
    (first, line), *others = curves.items()
    axes = new_axes(title, height=3.6)
    axes.plot(line, color=GUIDE["color"], linewidth=1.5)
    middle = len(line) // 2
    note(axes, f"line: {first}", (middle, line[middle]), (10, 26))
    for number, ((name, losses), (marker, colour)) in enumerate(zip(others, _MARKERS, strict=False)):
        begin = number * _EVERY // len(others)
        axes.plot(
            range(begin, len(losses), _EVERY),
            losses[begin::_EVERY],
            linestyle="",
            marker=marker,
            color=colour,
            markersize=6,
            zorder=3,
            label=name,
        )
    axes.legend(frameon=False, fontsize="small")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step")
    axes.set_ylabel("loss (cross-entropy per character)")
