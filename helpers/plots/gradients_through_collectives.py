"""Figures of 42_gradients_through_collectives: what autograd has recorded on each rank, and where that ends."""

from matplotlib.patches import FancyBboxPatch

from helpers.plots.style import RED, TINTS, new_axes

_GREY = "#404040"
_STEPS = {"weights": 0.0, "own rows": 2.2, "rows of all": 6.0, "loss": 8.2}
_HALF = 0.75  # of the width of a box


def where_autograd_ends(size: int, collective: str) -> None:
    """Draw forward passes that meet in a collective, a lane for each rank, and how far each backward pass gets."""
    axes = new_axes(f"The backward pass of each rank ends at the {collective}", height=0.9 + 0.8 * size)
    axes.set_axis_off()
    axes.set(xlim=(-2.2, 9.2), ylim=(size - 0.35, -0.75))
    band = FancyBboxPatch(
        (3.55, -0.4), 1.1, size - 0.2, boxstyle="round,pad=0.08", facecolor="white", edgecolor="black"
    )
    axes.add_patch(band)
    axes.text(4.1, (size - 1) / 2, collective, rotation=90, ha="center", va="center", fontfamily="monospace")
    for rank in range(size):
        axes.text(-1.2, rank, f"rank {rank}", ha="right", va="center", color=_GREY)
        for name, place in _STEPS.items():
            look = {"boxstyle": "round,pad=0.3", "facecolor": TINTS[rank % 8], "edgecolor": _GREY}
            axes.text(place, rank, name, ha="center", va="center", fontsize=9, bbox=look, zorder=3)
        for begin, end in ((0.0, 2.2), (2.2, 4.25), (3.95, 6.0), (6.0, 8.2)):
            _arrow(axes, rank - 0.12, begin + _HALF, end - _HALF, color=_GREY, linestyle="-")
        for begin, end in ((8.2, 6.0), (6.0, 3.95)):
            _arrow(axes, rank + 0.14, begin - _HALF, end + _HALF, color=RED, linestyle="--")
        axes.plot([4.9], [rank + 0.14], marker="x", color=RED, markersize=9, markeredgewidth=2.4, zorder=5)
    axes.text(8.2, -0.6, "forward: solid", ha="center", color=_GREY, fontsize=9)
    axes.text(8.2, size - 0.4, "backward: dashed", ha="center", color=RED, fontsize=9)


def _arrow(axes, height, begin, end, **look):
    axes.annotate("", (end, height), (begin, height), arrowprops={"arrowstyle": "->", "linewidth": 1.5, **look})
