"""Figures of 20_distributed_autograd: the graph of a backward pass over several ranks, and remote training."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from matplotlib.lines import Line2D

from helpers.plots.style import GUIDE, MEASURED, MODEL, RED, TINTS, new_axes, subplots

# A rank's part of the graph: the names of its functions, the edges between them, the function of each message that the
# rank sent, and the function of each message that it received.
Part: TypeAlias = tuple[Sequence[str], Sequence[tuple[int, int]], Mapping[int, int], Mapping[int, int]]

_WITHIN = {"color": "#404040", "linestyle": "-", "linewidth": 1.3}
_MESSAGE = {"color": RED, "linestyle": "--", "linewidth": 1.8}
_COLUMN, _ROW = 2.9, 0.62  # inches
_HEIGHT = 0.3  # half the height of a box, in rows


def autograd_graph(parts: Sequence[Part]) -> None:
    """Draw the graph of a backward pass over several ranks, with a column for each rank, from the loss downwards.

    `parts[rank]` is the rank's part of the graph. Edges and messages give a function by its index in the rank's list of
    names. A gradient travels from the function that received a message in the forward pass to the function that sent
    it.
    """
    names = {(rank, place): name for rank, part in enumerate(parts) for place, name in enumerate(part[0])}
    within = [((rank, a), (rank, b)) for rank, part in enumerate(parts) for a, b in part[1]]
    sent_at = {message: (rank, place) for rank, part in enumerate(parts) for message, place in part[2].items()}
    messages = [
        ((rank, place), sent_at[message])
        for rank, part in enumerate(parts)
        for message, place in part[3].items()
        if message in sent_at
    ]
    places = _places(names, within + messages, len(parts))
    depth = max(y for _, y in places.values())
    size = {"figsize": (_COLUMN * len(parts) + 0.4, _ROW * (depth + 1) + 1.0)}
    _, axes = subplots(**size)
    for edges, look in ((within, _WITHIN), (messages, _MESSAGE)):
        for begin, end in edges:
            (x, y), (to_x, to_y) = places[begin], places[end]
            arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 12, **look}
            axes.annotate("", (to_x, to_y - _HEIGHT), (x, y + _HEIGHT), arrowprops=arrow)
    for node, (x, y) in places.items():
        box = {"boxstyle": "round,pad=0.35", "facecolor": _tint(names[node]), "edgecolor": "#404040", "linewidth": 0.8}
        axes.text(x, y, names[node], ha="center", va="center", fontsize=8, fontfamily="monospace", bbox=box)
    for rank in range(len(parts)):
        axes.text(rank, -0.9, f"rank {rank}", ha="center", va="center", fontweight="bold")
        if rank:
            axes.axvline(rank - 0.5, **GUIDE)
    axes.set(xlim=(-0.5, len(parts) - 0.5), ylim=(depth + 0.5, -1.3))
    axes.axis("off")
    handles = [
        Line2D([], [], label="a gradient goes on within a rank", **_WITHIN),
        Line2D([], [], label="a gradient travels in a message", **_MESSAGE),
    ]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)


def remote_training(remote: Sequence[float], local: Sequence[float]) -> None:
    """Draw the loss at every step of a model trained on another rank and of the same model trained locally."""
    axes = new_axes("A model on another rank learns what it learns at home", height=3.2)
    axes.plot(local, label="local training", **MODEL)
    axes.plot(remote, label="model on node B, loss on node A", **{**MEASURED, "markersize": 5})
    axes.set_xlabel("step (number of batches)")
    axes.set_ylabel("loss (cross-entropy)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def _places(names, edges, ranks):
    """Return the place of each function; its row is the length of the longest path to it.

    Functions in the same row and on the same rank are next to each other.
    """
    rows = dict.fromkeys(names, 0)
    for _ in names:
        for begin, end in edges:
            rows[end] = max(rows[end], rows[begin] + 1)
    abreast = defaultdict(list)
    for node, row in rows.items():
        abreast[node[0], row].append(node)
    return {
        node: (rank - 0.5 + (number + 0.5) / len(nodes), row)
        for (rank, row), nodes in abreast.items()
        for number, node in enumerate(nodes)
    }


def _tint(name):
    if name in ("SendRpcBackward", "RecvRpcBackward"):
        return TINTS[5]
    return TINTS[2] if name == "AccumulateGrad" else TINTS[0]
