"""Figures of 40_tensor_parallel: two layers split by columns and by rows, and half of a block between f and g."""

from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle

from helpers.plots.style import BLUE, RED, TINTS, new_axes

_GAP = 1.8  # between two matrices
_WIDTH, _HIDDEN, _TOKENS = 2.0, 4.0, 1.4  # the sides of the matrices
_WHOLE = "#D9D9D9"

# Half of a block: the place, the width and the name of each activation or function, from left to right.
_STATIONS = [(0.0, 1.5, "x"), (2.3, 1.5, "norm"), (6.5, 1.7, "columns"), (9.0, 1.7, "rows"), (13.4, 1.5, "+ x")]
_FUNCTIONS = {"f": 5.1, "g": 12.0}  # and their places
# What f and g do, forward and backward.
_WORK = {
    "tensor parallel": {"f": ("nothing", "all_reduce"), "g": ("all_reduce", "nothing")},
    "sequence parallel": {"f": ("all_gather", "reduce_scatter"), "g": ("reduce_scatter", "all_gather")},
}


def halves_of_block(ranks: int) -> None:
    """Draw half of a block with tensor parallel and with sequence parallel: who has what, and what f and g do.

    An activation has a colour for each rank, side by side when it is split along the width, and one below the other
    when it is split along the tokens. It is grey when every rank has the whole activation.
    """
    axes = new_axes("Sequence parallel also splits what is outside f and g", width=7.8, height=3.7)
    axes.set_axis_off()
    axes.set(xlim=(-0.2, 15.1), ylim=(7.6, -1.3))
    for top, (heading, work) in zip((0.0, 4.2), _WORK.items(), strict=True):
        axes.text(-0.1, top - 0.75, heading, fontsize=9, fontweight="bold", va="center")
        for left, width, name in _STATIONS:
            inside = name in ("columns", "rows")
            along_tokens = not inside and heading == "sequence parallel"
            _activation(axes, left, top, width, ranks if inside else 1, ranks if along_tokens else 1)
            axes.text(left + width / 2, top + 1.55, name, ha="center", va="center", fontsize=8)
        for name, place in _FUNCTIONS.items():
            forward, backward = work[name]
            axes.add_patch(Circle((place, top + 0.6), 0.42, facecolor="white", edgecolor="black", zorder=3))
            axes.text(place, top + 0.6, name, ha="center", va="center", fontsize=10, zorder=4)
            axes.text(place, top - 0.15, f"→ {forward}", ha="center", va="center", fontsize=8, color=BLUE)
            axes.text(place, top + 1.5, f"← {backward}", ha="center", va="center", fontsize=8, color=RED)
        axes.annotate("", (13.4, top + 0.6), (1.5, top + 0.6), arrowprops={"arrowstyle": "->"}, zorder=0)
        axes.plot([0.75, 0.75, 14.15, 14.15], [top + 1.85, top + 2.2, top + 2.2, top + 1.85], color="#767676", lw=1)
    axes.text(-0.1, 7.2, "→ forward", fontsize=8, color=BLUE)
    axes.text(2.4, 7.2, "← backward", fontsize=8, color=RED)


def _activation(axes, left, top, width, columns, rows):
    """Draw an activation as columns or rows, in a colour for each rank, or as one grey box."""
    for part in range(columns * rows):
        size = width / columns, 1.2 / rows
        corner = left + (part % columns) * size[0], top + (part // columns) * size[1]
        colour = TINTS[part % len(TINTS)] if columns * rows > 1 else _WHOLE
        axes.add_patch(Rectangle(corner, *size, facecolor=colour, edgecolor="black", linewidth=0.8, zorder=2))


def two_cut_layers(ranks: int) -> None:
    """Draw x, a layer split by columns, the hidden values, a layer split by rows, and y, in a colour for each rank."""
    axes = new_axes("Split by columns and then by rows, two layers need one sum", width=8.4, height=2.9)
    axes.set_axis_off()
    matrices = [
        ("x", "on every rank", _WIDTH, _TOKENS, 1, 1),
        ("A", "by columns", _HIDDEN, _WIDTH, ranks, 1),
        ("hidden = gelu(x A)", "nothing sent", _HIDDEN, _TOKENS, ranks, 1),
        ("B", "by rows", _WIDTH, _HIDDEN, 1, ranks),
        ("y", "on every rank", _WIDTH, _TOKENS, 1, 1),
    ]
    signs = ("·", "→", "·", "Σ →", "")  # the sign after each matrix
    left = 0.0
    for (name, how, width, height, columns, rows), sign in zip(matrices, signs, strict=True):
        _draw(axes, left, width, height, columns, rows)
        axes.text(left + width / 2, height / 2 + 0.2, name, ha="center", va="bottom", fontsize=9)
        axes.text(left + width / 2, -height / 2 - 0.2, how, ha="center", va="top", fontsize=8, color="#404040")
        axes.text(left + width + _GAP / 2, 0, sign, ha="center", va="center", fontsize=13)
        left += width + _GAP
    axes.set(xlim=(-0.2, left - _GAP + 0.2), ylim=(-_HIDDEN / 2 - 0.9, _HIDDEN / 2 + 0.9), aspect="equal")


def _draw(axes: Axes, left, width, height, columns, rows):
    """Draw a matrix at mid-height of the picture, split into columns or rows that are numbered by rank."""
    cut = columns * rows > 1
    for rank in range(columns * rows):
        corner = left + (rank % columns) * width / columns, height / 2 - (rank // columns + 1) * height / rows
        colour = TINTS[rank % len(TINTS)] if cut else _WHOLE
        size = width / columns, height / rows
        axes.add_patch(Rectangle(corner, *size, facecolor=colour, edgecolor="black", linewidth=0.8))
        if cut:
            middle = corner[0] + size[0] / 2, corner[1] + size[1] / 2
            axes.text(*middle, str(rank), ha="center", va="center", fontsize=8)
