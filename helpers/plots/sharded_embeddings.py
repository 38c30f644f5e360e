"""Figures of 31_sharded_embeddings: rows and their owners, loads of owners, and bytes at the busiest rank."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from helpers.plots.style import BLUE, GREEN, RED, TINTS, arrow_of_rank, data_size, new_axes, subplots

_GREY = "#404040"
_SIDE = 0.34  # of the box of an id
_NEEDED, _OWNERS, _BACK = 0.0, 4.2, 9.6  # where the columns begin


def rows_and_owners(ids: Sequence[Sequence[int]], rows: int) -> None:
    """Draw the ids that each rank needs, the owners with the ids asked of them, and the vectors back on the ranks.

    `ids[r]` are the ids that rank r needs. The owners have blocks of consecutive rows, all of the same size.
    """
    size = len(ids)
    block = rows // size
    axes = new_axes("Ids travel to the owners of the rows, and vectors come back", height=0.9 + 0.85 * size)
    axes.set_axis_off()
    asked = {owner: [] for owner in range(size)}
    for rank, needed in enumerate(ids):
        for place, row in enumerate(needed):
            for column, shape in ((_NEEDED, 0.34), (_BACK, 0.6)):
                _box(axes, column + _SIDE * place, rank, str(row), rank, shape)
            owner = row // block
            _box(axes, _OWNERS + 1.75 + _SIDE * len(asked[owner]), owner, str(row), rank, 0.34)
            asked[owner].append(row)
        for owner in sorted({row // block for row in needed}):
            arrow_of_rank(axes, (_NEEDED + _SIDE * len(needed) + 0.1, rank), (_OWNERS - 0.28, owner), rank)
            arrow_of_rank(axes, (_OWNERS + 3.6, owner), (_BACK - 0.1, rank), rank)
    for rank in range(size):
        axes.text(_NEEDED - 0.2, rank, f"rank {rank}", ha="right", va="center", color=_GREY)
        look = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.2}
        axes.add_patch(Rectangle((_OWNERS - 0.25, rank - 0.36), 3.8, 0.72, **look))
        own = ", ".join(str(row) for row in range(block * rank, block * (rank + 1)))
        axes.text(_OWNERS - 0.15, rank, f"rank {rank}: {own}", va="center", fontsize=9)
    for middle, text in ((0.45, "ids"), (_OWNERS + 1.6, "owners with their rows"), (_BACK + 0.45, "vectors")):
        axes.text(middle, -0.65, text, ha="center", color=_GREY, fontsize=9)
    axes.set(xlim=(-1.3, _BACK + 1.3), ylim=(size - 0.5, -0.9))


def loads_of_owners(loads: Sequence[Mapping[tuple[str, str], int]]) -> None:
    """Draw for each ownership how many rows each owner was asked for, with repeated ids and without.

    `loads[r][ownership, kind]` are the requests at rank r.
    """
    ownerships = list(dict.fromkeys(ownership for ownership, _ in loads[0]))
    kinds = sorted({kind for _, kind in loads[0]}, key=lambda kind: -_total(loads, kind))
    figure, panels = subplots(1, len(ownerships), figsize=(7.2, 3.0), sharey=True)
    title = "Modulo spreads the frequent rows over all owners"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, weight="bold")
    for axes, ownership in zip(panels, ownerships, strict=True):
        for shift, kind, colour in zip((-0.2, 0.2), kinds, (TINTS[0], BLUE), strict=True):
            heights = [of_rank[ownership, kind] for of_rank in loads]
            places = [rank + shift for rank in range(len(loads))]
            bars = axes.bar(places, heights, width=0.38, color=colour, edgecolor=_GREY, label=kind)
            axes.bar_label(bars, fontsize=7)
        axes.set_title(ownership.replace("_", " "), loc="left", fontsize=9)
        axes.set_xticks(range(len(loads)), [str(rank) for rank in range(len(loads))])
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("owner", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("rows asked for in a step", fontsize=9)
    panels[-1].legend(frameon=False, fontsize=9, loc="upper right")


def busiest_ranks(bytes_by_ranks: Mapping[int, Sequence[int]]) -> None:
    """Draw the bytes of a step at the busiest rank over the number of ranks.

    `bytes_by_ranks[n]` are the bytes at the busiest owner with blocks, at the busiest owner with modulo, and at a
    server.
    """
    axes = new_axes("With modulo an owner's bytes grow far more slowly than a server's", height=3.8)
    sizes = list(bytes_by_ranks)
    looks = {
        "owner, blocks": {"color": RED, "marker": "^", "linestyle": "--"},
        "owner, modulo": {"color": BLUE, "marker": "o", "linestyle": "-"},
        "server": {"color": GREEN, "marker": "s", "linestyle": ":"},
    }
    for (name, look), values in zip(looks.items(), zip(*bytes_by_ranks.values(), strict=True), strict=True):
        axes.plot(sizes, values, linewidth=2, markersize=6, **look)
        axes.text(1.08 * sizes[-1], values[-1], name, va="center", color=look["color"], fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_yticks(ticks := [2**power for power in (12, 14, 16, 18)], [data_size(tick) for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0.9 * sizes[0], 2.2 * sizes[-1])
    axes.set_xlabel("ranks", fontsize=9)
    axes.set_ylabel("sent and received in a step", fontsize=9)


def _total(loads, kind):
    return sum(of_rank[key] for of_rank in loads for key in of_rank if key[1] == kind)


def _box(axes, left, height, text, rank, tall):
    look = {"facecolor": TINTS[rank % len(TINTS)], "edgecolor": _GREY, "zorder": 3}
    axes.add_patch(Rectangle((left, height - tall / 2), _SIDE, tall, **look))
    axes.text(left + _SIDE / 2, height, text, ha="center", va="center", fontsize=8, zorder=4)
