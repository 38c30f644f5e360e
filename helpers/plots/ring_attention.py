"""Figures of 47_ring_attention: a sketch of the ring, the owner of each chunk of scores, and the work in each step."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from helpers.plots.ring_all_reduce import place_on_ring
from helpers.plots.style import TINTS, subplots

_SHADES = ("white", "#D6E9F5", "#A9D0E8", "#6FAFD6", "#3C8FC2")  # for 0 to 4 pieces of a block


def ring_of_blocks(size: int) -> None:
    """Draw the first two steps of ring attention: the queries in each rank, and its block of keys and values."""
    figure, panels = subplots(1, 2, figsize=(7.4, 3.9))
    figure.suptitle(
        "Queries stay on their rank, keys and values travel", x=0.01, ha="left", fontsize="medium", fontweight="bold"
    )
    for step, axes in enumerate(panels):
        axes.set_axis_off()
        axes.set(xlim=(-1.75, 1.75), ylim=(-1.6, 1.6), aspect="equal")
        axes.text(0, 0, f"step {step}", ha="center", va="center", fontsize=11)
        for rank in range(size):
            owner = (rank - step) % size
            here, there = (place_on_ring(place, size, 0.95) for place in (rank, rank + 1))
            style = {"arrowstyle": "-|>", "shrinkA": 24, "shrinkB": 24, "color": "#404040"}
            axes.annotate("", there, here, arrowprops={**style, "connectionstyle": "arc3,rad=-0.2"})
            node = {"boxstyle": "circle,pad=0.45", "facecolor": TINTS[rank % len(TINTS)], "edgecolor": "black"}
            axes.text(*here, f"rank {rank}\nQ {rank}", ha="center", va="center", fontsize=8, bbox=node)
            block = {"boxstyle": "round,pad=0.25", "facecolor": TINTS[owner % len(TINTS)], "edgecolor": "black"}
            across, up = place_on_ring(rank, size, 1.42)
            axes.text(1.05 * across, up, f"K, V {owner}", ha="center", va="center", fontsize=8, bbox=block)


def causal_chunks(orders: Mapping[str, Sequence[int]]) -> None:
    """Draw the pieces of causal attention, chunk by chunk, in the colour and with the number of their rank.

    `orders` maps the name of an order to the rank of each chunk, from the first chunk of the sequence to the last. A
    panel's title says how many pieces a rank has.
    """
    chunks = len(next(iter(orders.values())))
    side = 0.3 * chunks + 1.1
    for axes, (order, ranks) in zip(_panels(len(orders), side, side), orders.items(), strict=True):
        axes.set_title(f"{order}: {_pieces_of_a_rank(ranks)} pieces a rank", fontsize=9, fontweight="bold", pad=8)
        for row, rank in enumerate(ranks):
            for column in range(row + 1):
                _cell(axes, column, row, str(rank), TINTS[rank % len(TINTS)])
        axes.set(xlim=(-0.03, chunks + 0.03), ylim=(chunks + 0.03, -0.03), aspect="equal")
        places = [chunk + 0.5 for chunk in range(chunks)]
        axes.set_xticks(places, range(chunks))
        axes.set_yticks(places, range(chunks))
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("chunk of keys", fontsize=9)
        axes.set_ylabel("chunk of queries", fontsize=9)


def ring_work(work: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Draw a grid of ranks and steps for each order, with the number of pieces that each rank computes in each step.

    `work[order][rank][step]` is a number from 0 to 4. Below each step is the largest number, which
    decides how long the step takes.
    """
    size = len(next(iter(work.values())))
    panels = _panels(len(work), 0.5 * size + 1.4, 0.42 * size + 1.5)
    for axes, (order, ranks) in zip(panels, work.items(), strict=True):
        slowest = [max(step) for step in zip(*ranks, strict=True)]
        axes.set_title(f"{order}:\n{sum(slowest)} pieces one after another", fontsize=10, fontweight="bold", pad=8)
        for rank, steps in enumerate(ranks):
            for step, pieces in enumerate(steps):
                _cell(axes, step, rank, str(pieces or ""), _SHADES[pieces])
        for step, pieces in enumerate(slowest):
            _cell(axes, step, size + 0.3, str(pieces), "#F2CF7F")
        axes.set(xlim=(-0.03, size + 0.03), ylim=(size + 1.35, -0.03), aspect="equal")
        axes.set_xticks([step + 0.5 for step in range(size)], range(size))
        rows = [rank + 0.5 for rank in range(size)]
        axes.set_yticks([*rows, size + 0.8], [*(f"rank {rank}" for rank in range(size)), "slowest"])
        axes.tick_params(length=0, labelsize=9)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("step of the ring", fontsize=9)


def _pieces_of_a_rank(ranks):
    """Return the number of pieces of every rank, such as "9", or the range of these numbers, such as "3 to 15"."""
    pieces = dict.fromkeys(ranks, 0)
    for row, rank in enumerate(ranks):
        pieces[rank] += row + 1
    fewest, most = min(pieces.values()), max(pieces.values())
    return str(most) if fewest == most else f"{fewest} to {most}"


def _panels(number, width, height):
    """Return the axes of this number of panels, each of this size in inches, side by side in one figure."""
    return subplots(1, number, figsize=(number * width, height), squeeze=False)[1][0]


def _cell(axes, left, top, text, colour):
    axes.add_patch(Rectangle((left, top), 1, 1, facecolor=colour, edgecolor="#404040", linewidth=0.8))
    axes.text(left + 0.5, top + 0.5, text, ha="center", va="center", fontsize=9)
