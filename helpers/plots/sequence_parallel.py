"""The figure of 46_sequence_parallel: half of a block between f and g, with and without sequence parallelism."""

from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle

from helpers.plots.style import TINTS, new_axes

_WHOLE = "#D9D9D9"
# The place, the width and the name of each activation, from left to right, and the places of the functions.
_STATIONS = [(0.0, 1.5, "x"), (2.3, 1.5, "norm"), (6.5, 1.7, "columns"), (9.0, 1.7, "rows"), (13.4, 1.5, "+ x")]
_FUNCTIONS = {"f": 5.1, "g": 12.0}
# What each function calls in the forward and in the backward pass; the lesson asks for those with a question mark.
_COLLECTIVES = {
    "tensor parallel": {"f": ("nothing", "all-reduce"), "g": ("all-reduce", "nothing")},
    "sequence parallel": {"f": ("all-gather", "?"), "g": ("reduce-scatter", "?")},
}


def tokens_of_block(ranks: int) -> None:
    """Draw half of a block with tensor parallel and with sequence parallel, and which rank has which part.

    An activation has a colour for each rank, side by side when it is split along the width, and one below the other
    when it is split along the tokens. It is grey when every rank has the whole activation.
    """
    axes = new_axes("Sequence parallel also splits what is outside f and g", width=7.8, height=3.3)
    axes.set_axis_off()
    axes.set(xlim=(-0.2, 15.1), ylim=(6.3, -1.3))
    for top, heading in ((0.0, "tensor parallel"), (3.8, "sequence parallel")):
        axes.text(-0.1, top - 0.6, heading, fontsize=9, fontweight="bold", va="center")
        for left, width, name in _STATIONS:
            inside = name in ("columns", "rows")
            along_tokens = not inside and heading == "sequence parallel"
            _activation(axes, left, top, width, ranks if inside else 1, ranks if along_tokens else 1)
            axes.text(left + width / 2, top + 1.5, name, ha="center", va="center", fontsize=8)
        for name, place in _FUNCTIONS.items():
            axes.add_patch(Circle((place, top + 0.6), 0.42, facecolor="white", edgecolor="black", zorder=3))
            axes.text(place, top + 0.6, name, ha="center", va="center", fontsize=10, zorder=4)
            forward, backward = _COLLECTIVES[heading][name]
            axes.text(place, top - 0.15, f"forward: {forward}", ha="center", va="center", fontsize=7)
            axes.text(place, top + 1.35, f"backward: {backward}", ha="center", va="center", fontsize=7)
        axes.annotate("", (13.4, top + 0.6), (1.5, top + 0.6), arrowprops={"arrowstyle": "->"}, zorder=0)
        axes.plot([0.75, 0.75, 14.15, 14.15], [top + 1.75, top + 2.1, top + 2.1, top + 1.75], color="#767676", lw=1)


def _activation(axes: Axes, left, top, width, columns, rows):
    """Draw an activation as columns or rows, in a colour for each rank, or as one grey box."""
    for part in range(columns * rows):
        size = width / columns, 1.2 / rows
        corner = left + (part % columns) * size[0], top + (part // columns) * size[1]
        colour = TINTS[part % len(TINTS)] if columns * rows > 1 else _WHOLE
        axes.add_patch(Rectangle(corner, *size, facecolor=colour, edgecolor="black", linewidth=0.8, zorder=2))
