"""Figures of 02_when_ranks_disagree: what each rank passes to its calls."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from helpers.plots.style import TINTS, subplots

_WIDTH, _ROW = 2.5, 0.42  # of a panel, and of a rank in it, in inches
_HEIGHT = 0.66  # of a box; a rank has 1


def passed_by_rank(panels: Mapping[str, Sequence[Sequence[tuple[str, float]]]], marked: int) -> None:
    """Draw a panel for each mismatch, with a row of boxes for every rank.

    `panels` maps the title of a panel to the rows of its ranks. A row has, for each box, its text and its width. The
    boxes of the rank `marked` have another colour and are hatched. Raises `ValueError` when other ranks differ too.
    """
    for title, rows in panels.items():
        usual = [row for rank, row in enumerate(rows) if rank != marked]
        if any(row != usual[0] for row in usual):
            raise ValueError(f"{title}: a rank besides rank {marked} differs from the other ranks, expected none")
    n = max(map(len, panels.values()))
    _, all_axes = subplots(1, len(panels), figsize=(_WIDTH * len(panels), 0.5 + _ROW * n), squeeze=False)
    for axes, (title, rows) in zip(all_axes.flat, panels.items(), strict=True):
        longest = max(sum(width for _, width in row) for row in rows)
        axes.set_axis_off()
        axes.set(xlim=(-0.35 * longest, 1.02 * longest), ylim=(n - 0.4, -0.6))
        axes.set_title(title, fontsize=10, fontweight="bold")
        for rank, row in enumerate(rows):
            axes.text(-0.05 * longest, rank, f"rank {rank}", ha="right", va="center", fontsize=8)
            look = {"facecolor": TINTS[5], "hatch": "///"} if rank == marked else {"facecolor": TINTS[0]}
            _draw_boxes(axes, rank, row, look)


def _draw_boxes(axes, rank, row, look):
    """Draw the boxes of a rank from left to right."""
    left = 0
    for text, width in row:
        place = left, rank - _HEIGHT / 2
        axes.add_patch(Rectangle(place, width, _HEIGHT, edgecolor="#404040", linewidth=1, **look))
        background = {"boxstyle": "round,pad=0.1", "facecolor": look["facecolor"], "edgecolor": "none"}
        axes.text(left + width / 2, rank, text, ha="center", va="center", fontsize=8, bbox=background)
        left += width
