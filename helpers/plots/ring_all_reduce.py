"""Figures of 06_ring_all_reduce: who sends to whom, which chunk, and what each step of the ring changes."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots.collectives import chunk_grid, ranks_in
from helpers.plots.style import RED, TINTS, subplots
from helpers.plots.when_ranks_fail import draw_arrow, draw_rank

# frames[rank][step][chunk]: a rank's value of a chunk after this number of steps. The digits of the number say which
# ranks contributed to it: the last digit is from rank 0, the last but one from rank 1, and so on.
Frames = Sequence[Sequence[Sequence[float]]]

_COLUMNS = 4
_ROOMY = 5  # a ring of more ranks gets a larger panel
_SUMMANDS = 4  # a longer partial sum is labelled with its first and its last rank
_PANEL = 2.3  # the size of a panel of `who_sends`, in inches


def who_sends(routes: Mapping[str, Mapping[int, Sequence[int]]], size: int) -> None:
    """Draw a panel for each algorithm, with an arrow from every rank to each rank that it sends to.

    `routes` maps the title of a panel to its senders, and each of these to the ranks that it sends to. `size` is the
    number of ranks.
    """
    _, all_axes = subplots(1, len(routes), figsize=(_PANEL * len(routes), _PANEL + 0.3), squeeze=False)
    for axes, (title, receivers) in zip(all_axes.flat, routes.items(), strict=True):
        axes.set_axis_off()
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
        axes.set_title(title, fontsize=10, fontweight="bold")
        circles = [draw_rank(axes, rank, size, {"facecolor": TINTS[0]}) for rank in range(size)]
        for rank, peers in receivers.items():
            for peer in peers:
                draw_arrow(axes, circles[rank], circles[peer])


def ring_of_chunks(steps: Sequence[Sequence[int]]) -> None:
    """Draw a ring of ranks for each step of a reduce-scatter, and on each arrow the chunk and the ranks in its sum.

    `steps[step][rank]` is the chunk that a rank sends to its right neighbour, after it has added its own values.
    """
    size = len(steps[0])
    columns = min(_COLUMNS if size <= _ROOMY else _COLUMNS - 1, len(steps))
    rows = -(-len(steps) // columns)
    panel = 2.5 * max(1, size / _ROOMY)
    _, all_axes = subplots(rows, columns, figsize=(panel * columns, 1.04 * panel * rows), squeeze=False)
    for number, axes in enumerate(all_axes.flat):
        axes.set_axis_off()
        if number < len(steps):
            axes.set(xlim=(-1.55, 1.55), ylim=(-1.5, 1.5), aspect="equal")
            axes.set_title(f"step {number}: sums over {number + 1} rank{'s' * (number > 0)}", fontsize=10)
            for rank, chunk in enumerate(steps[number]):
                _draw_arrow(axes, rank, size, chunk, _summed([step.index(chunk) for step in steps[: number + 1]]))


def _summed(ranks):
    """Return the label of a partial sum to which these ranks have added their values, in this order."""
    return "+".join(map(str, ranks)) if len(ranks) <= _SUMMANDS else f"{ranks[0]}+…+{ranks[-1]}"


def _draw_arrow(axes, rank, size, chunk, summed):
    """Draw a rank, and an arrow to its right neighbour with the chunk that the rank sends and the ranks in its sum."""
    here, there = place_on_ring(rank, size), place_on_ring(rank + 1, size)
    style = {"arrowstyle": "-|>", "shrinkA": 17, "shrinkB": 17, "color": "#404040"}
    axes.annotate("", there, here, arrowprops={**style, "connectionstyle": "arc3,rad=-0.25"})
    axes.text(*here, f"rank\n{rank}", ha="center", va="center", fontsize=8, bbox=_ROUND)
    box = {"boxstyle": "round,pad=0.25", "facecolor": TINTS[chunk % 8], "edgecolor": "black", "linewidth": 0.6}
    label = f"chunk {chunk}:\n{summed}"
    axes.text(*place_on_ring(rank + 0.5, size, 1.17), label, ha="center", va="center", fontsize=8, bbox=box)


_ROUND = {"boxstyle": "circle,pad=0.3", "facecolor": "white", "edgecolor": "black"}


def place_on_ring(rank: float, size: int, radius: float = 1.0) -> tuple[float, float]:
    """Return the place of a rank: rank 0 at the top, the other ranks clockwise."""
    angle = np.pi / 2 - 2 * np.pi * rank / size
    return radius * np.cos(angle), radius * np.sin(angle)


def ring_storyboard(frames: Frames) -> None:
    """Draw every step of a ring all-reduce, rank by chunk; a thick frame marks a value that the step has changed.

    `frames[rank][step][chunk]` is a rank's value of a chunk after this number of steps. The digits of the number say
    which ranks contributed to it: the last digit is from rank 0, the last but one from rank 1, and so on.
    """
    size, steps = len(frames), len(frames[0])
    columns = min(_COLUMNS, steps)
    rows = -(-steps // columns)
    _, all_axes = subplots(
        rows,
        columns,
        figsize=(columns * (0.52 * size + 0.3) + 0.6, rows * (0.34 * size + 0.75)),
        squeeze=False,
    )
    for number, axes in enumerate(all_axes.flat):
        axes.set_visible(number < steps)
        if number < steps:
            _draw(axes, frames, number)
            if number % columns:
                axes.set_yticklabels([])


def ring_step(frames: Frames, step: int) -> None:
    """Draw the values of all ranks after `step` steps of a ring all-reduce, as one panel of `ring_storyboard`."""
    size = len(frames)
    shape = 0.7 * size + 1.2, 0.46 * size + 1.0
    _, axes = subplots(figsize=shape)
    _draw(axes, frames, step)


def _draw(axes: Axes, frames, step):
    values = [[int(number) for number in rank[step]] for rank in frames]
    chunk_grid(axes, values, [[ranks_in(number) for number in rank] for rank in values])
    axes.set_title(_name(step, len(frames)), fontsize=9, fontweight="bold", pad=6)
    for rank, row in enumerate(values):
        for chunk, number in enumerate(row):
            if step and number != frames[rank][step - 1][chunk]:
                inset = 0.05, 0.08
                axes.add_patch(
                    Rectangle(
                        (chunk + inset[0], rank + inset[1]),
                        1 - 2 * inset[0],
                        1 - 2 * inset[1],
                        facecolor="none",
                        edgecolor=RED,
                        linewidth=2.2,
                        zorder=4,
                    )
                )


def _name(step, size):
    if step == 0:
        return "before"
    return f"reduce-scatter, step {step - 1}" if step < size else f"all-gather, step {step - size}"
