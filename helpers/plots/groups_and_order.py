"""Figures of 05_groups_and_order: a mesh of ranks, with a group for each row and for each column."""

from matplotlib.patches import FancyBboxPatch

from helpers.plots.style import BLUE, RED, TINTS, new_axes

_GAP = 1.6, 1.3  # between two columns and two rows


def mesh_of_ranks(rows: int, columns: int, names: tuple[str, str]) -> None:
    """Draw the ranks of a mesh row by row, with a band around each row and a dashed outline around each column.

    `names` are the mesh dimensions: the ranks of a column differ in the first, the ranks of a row in the second.
    """
    width, height = _GAP[0] * columns, _GAP[1] * rows
    title = f"{rows * columns} ranks in a mesh of {rows} x {columns} belong to {rows + columns} groups"
    axes = new_axes(title, width=7.2, height=0.85 * rows + 1.0)
    axes.set_axis_off()
    axes.set(xlim=(-1.9, width + 1.6), ylim=(height - 0.1, -1.25))
    for row in range(rows):
        _outline(axes, (-0.62, _GAP[1] * row - 0.4), (width - 0.36, 0.8), facecolor=TINTS[0], edgecolor="none")
        axes.text(-0.95, _GAP[1] * row, f"host {row}", ha="right", va="center", color="#404040")
        for column in range(columns):
            look = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "black", "linewidth": 0.8}
            place = _GAP[0] * column, _GAP[1] * row
            axes.text(*place, f"rank {row * columns + column}", ha="center", va="center", fontsize=9, bbox=look)
    for column in range(columns):
        corner, size = (_GAP[0] * column - 0.5, -0.55), (1.0, height - 0.2)
        _outline(axes, corner, size, facecolor="none", edgecolor=RED, linewidth=1.8, linestyle="--", zorder=4)
    across, along = names
    axes.text(width / 2 - _GAP[0] / 2, -0.95, f'"{across}": a group for each column', ha="center", color=RED)
    axes.text(width - 0.75, height / 2 - _GAP[1] / 2, f'"{along}":\na group\nfor each row', va="center", color=BLUE)


def _outline(axes, corner, size, **look):
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=0.08", **look))
