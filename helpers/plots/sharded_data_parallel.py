"""Figures of 36_sharded_data_parallel: a flat vector and its shards, and the memory of a rank during a step."""

from collections.abc import Mapping, Sequence

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, TINTS, new_axes, subplots

# From the bottom up, with hatches that distinguish them in print.
_KINDS = {
    "optimizer's state": {"facecolor": TINTS[2], "edgecolor": GREEN, "hatch": "..."},
    "gradients": {"facecolor": TINTS[5], "edgecolor": RED, "hatch": "///"},
    "parameters": {"facecolor": TINTS[0], "edgecolor": BLUE},
}


def flat_vector(sizes: Mapping[str, int], shards: int) -> None:
    """Draw a flat vector: its parameters, with names and numbers of elements, and below them the shards."""
    padding = -sum(sizes.values()) % shards
    length = sum(sizes.values()) + padding
    axes = new_axes("The borders of the shards ignore the borders of the parameters", width=7.2, height=1.9)
    axes.grid(False)
    left = 0
    for (name, size), tint in zip(sizes.items(), TINTS, strict=False):
        axes.barh(1, size, left=left, height=0.8, color=tint, edgecolor="white")
        axes.text(left + size / 2, 1, f"{name}: {size}", ha="center", va="center", fontsize="small")
        left += size
    if padding:
        axes.barh(1, padding, left=left, height=0.8, facecolor="white", edgecolor="#767676", hatch="xxx")
        where = {"textcoords": "offset points", "ha": "right", "fontsize": "small"}
        axes.annotate(f"padding: {padding}", (length, 1.4), (0, 4), **where)
    shard = length // shards
    for rank in range(shards):
        axes.barh(0, shard, left=rank * shard, height=0.8, color="#E9E9E9", edgecolor="white")
        axes.text((rank + 0.5) * shard, 0, f"rank {rank}: {shard}", ha="center", va="center", fontsize="small")
        if rank:
            axes.plot([rank * shard] * 2, [-0.4, 1.4], **GUIDE)
    axes.set_xlim(0, length)
    axes.set_ylim(-0.5, 2)
    axes.axis("off")


def step_ledgers(ledgers: Mapping[str, Sequence[tuple[str, Sequence[int]]]], whole: int) -> None:
    """Draw the bytes that a rank holds during a step, a panel for each variant.

    `ledgers` maps the name of a variant to its moments in order. A moment has a name, and the bytes of parameters,
    gradients and optimizer's state. `whole`, the size of all parameters, is the unit of the heights.
    """
    columns = 2
    rows = -(-len(ledgers) // columns)
    size = (7.6, 0.7 + 2.1 * rows)
    figure, panels = subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    figure.suptitle("Each stage of ZeRO makes one more kind of memory smaller", x=0.01, ha="left", fontsize="medium")
    for panel in panels.flat[len(ledgers) :]:
        panel.axis("off")
    for panel, (name, moments) in zip(panels.flat, ledgers.items(), strict=False):
        _ledger(panel, name, moments, whole)
    for row in panels:
        row[0].set_ylabel("times B")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=len(labels), frameon=False)


def _ledger(axes, name, moments, whole):
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E0E0E0", axis="y")
    axes.set_axisbelow(True)
    places = range(len(moments))
    bottom = [0.0] * len(moments)
    for (kind, look), column in zip(_KINDS.items(), (2, 1, 0), strict=True):
        heights = [sizes[column] / whole for _, sizes in moments]
        axes.bar(places, heights, bottom=bottom, width=1, label=kind, linewidth=0.4, **look)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    most = max(bottom)
    axes.set_title(f"{name}: at most {most:.2f} B", loc="left", fontsize="small", fontweight="bold")
    axes.set_xticks(places, [moment for moment, _ in moments], rotation=90, fontsize="x-small")
