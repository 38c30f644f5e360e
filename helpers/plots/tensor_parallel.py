"""The figure of 45_tensor_parallel: two layers, split by columns and by rows."""

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots.style import TINTS, new_axes

_GAP = 1.8  # between two matrices
_WIDTH, _HIDDEN, _TOKENS = 2.0, 4.0, 1.4  # the sides of the matrices
_WHOLE = "#D9D9D9"


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
