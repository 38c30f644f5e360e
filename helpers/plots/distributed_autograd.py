"""Figures of 21_distributed_autograd: a loss over two ranks, and the recorded graph of a backward pass over ranks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Rectangle

from helpers.plots.style import BLUE, GUIDE, RED, TINTS, new_axes, subplots

# A rank's part of the graph: the names of its functions, the edges between them, the function of each message that the
# rank sent, and the function of each message that it received.
Part: TypeAlias = tuple[Sequence[str], Sequence[tuple[int, int]], Mapping[int, int], Mapping[int, int]]

_WITHIN = {"color": "#404040", "linestyle": "-", "linewidth": 1.3}
_MESSAGE = {"color": RED, "linestyle": "--", "linewidth": 1.8}
_FORWARD = {"color": BLUE, "linestyle": "-", "linewidth": 2}
_COLUMN, _ROW = 2.85, 0.6  # inches
_HEIGHT = 0.25  # half the height of a box, in rows
_WIDTH = 0.22  # half the width of a box, in columns
_COUNTER = (1 << 48) - 1  # the bits of a message's number that count; the bits above are the rank of the sender


def remote_product() -> None:
    """Draw two ranks with a weight each, a call from one to the other, and the gradients of the loss."""
    axes = new_axes("Gradients go back along the messages of the forward pass", height=3.1)
    axes.grid(False)
    axes.axis("off")
    axes.set(xlim=(0, 10), ylim=(0, 4.5))
    for left, rank in ((0, 0), (6.4, 1)):
        axes.add_patch(Rectangle((left, 0), 3.6, 4, facecolor=TINTS[rank], alpha=0.35, edgecolor="none"))
        axes.text(left + 1.8, 4.12, f"rank {rank}", ha="center", fontweight="bold")
    for x, y, text in (
        (1.8, 3.1, "weight w"),
        (1.8, 0.9, "loss = result²"),
        (8.2, 3.1, "weight w"),
        (8.2, 1.7, "result = w · x"),
    ):
        box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "#404040"}
        axes.text(x, y, text, ha="center", va="center", fontsize=9.5, bbox=box)
    for begin, end, label in (((2.55, 3.2), (7.2, 2.25), "x = w"), ((7.2, 1.6), (2.85, 1.1), "result")):
        middle = (begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2
        axes.text(middle[0], middle[1] + 0.15, label, ha="center", fontsize=9, color=BLUE)
        _arrow(axes, begin, end, _FORWARD)
        _arrow(axes, (end[0], end[1] - 0.35), (begin[0], begin[1] - 0.35), _MESSAGE)
    _arrow(axes, (8.05, 2.7), (8.05, 2.12), _FORWARD)
    _arrow(axes, (8.35, 2.12), (8.35, 2.7), _MESSAGE)
    handles = [
        Line2D([], [], label="forward pass: a value", **_FORWARD),
        Line2D([], [], label="backward pass: a gradient", **_MESSAGE),
    ]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2, frameon=False)


def autograd_graph(parts: Sequence[Part], weights: Sequence[tuple[float, float]]) -> None:
    """Draw the graph of a backward pass over several ranks, with a column for each rank, from the loss downwards.

    `parts[rank]` is the rank's part of the graph, and begins with the function of the loss on rank 0. Edges and
    messages give a function by its index in the rank's list of names. A gradient travels from the function that
    received a message in the forward pass to the function that sent it. `weights[rank]` is the rank's one weight and
    its gradient.
    """
    names = {(rank, place): name for rank, part in enumerate(parts) for place, name in enumerate(part[0])}
    within = [((rank, a), (rank, b)) for rank, part in enumerate(parts) for a, b in part[1]]
    sent_at = {message: (rank, place) for rank, part in enumerate(parts) for message, place in part[2].items()}
    messages = {
        ((rank, place), sent_at[message]): message
        for rank, part in enumerate(parts)
        for message, place in part[3].items()
        if message in sent_at
    }
    places = _places(names, [*within, *messages], len(parts))
    depth = max(y for _, y in places.values())
    size = {"figsize": (_COLUMN * len(parts) + 0.3, _ROW * (depth + 2.6))}
    _, axes = subplots(**size)
    count = len(messages)
    title = f"{count} messages carried tensors forward, and {count} gradients travel back"
    axes.set_title(title, loc="left", pad=10, fontsize="medium", fontweight="bold")
    for begin, end in within:
        _between(axes, places[begin], places[end], _WITHIN)
    for (begin, end), message in messages.items():
        _between(axes, places[begin], places[end], _MESSAGE)
        (x, y), (to_x, to_y) = places[begin], places[end]
        part = 0.45 if x < to_x else 0.64  # of the way: beside the box where the arrow begins
        label = x + part * (to_x - x), y + _HEIGHT + part * (to_y - y - 2 * _HEIGHT) - 0.16
        text = f"rank {message >> 48}, message {message & _COUNTER}"
        axes.text(*label, text, ha="center", va="bottom", fontsize=8.5, color=RED)
    for node, (x, y) in places.items():
        _draw_function(axes, names[node], x, y, weights[node[0]])
    axes.annotate("loss", (places[0, 0][0] - _WIDTH, places[0, 0][1]), (-10, 0), textcoords="offset points", **_LEFT)
    for rank in range(len(parts)):
        axes.text(rank, -0.85, f"rank {rank}", ha="center", va="center", fontweight="bold")
        if rank:
            axes.axvline(rank - 0.5, **GUIDE)
    axes.set(xlim=(-0.5, len(parts) - 0.5), ylim=(depth + 0.8, -1.2))
    axes.axis("off")
    handles = [
        Line2D([], [], label="a gradient stays on its rank", **_WITHIN),
        Line2D([], [], label="a gradient travels in a message", **_MESSAGE),
    ]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)


_LEFT = {"ha": "right", "va": "center", "fontweight": "bold", "fontsize": 10}


def _draw_function(axes: Axes, name: str, x: float, y: float, weight: tuple[float, float]) -> None:
    look = {"facecolor": _tint(name), "edgecolor": "#404040", "linewidth": 0.8, "zorder": 2}
    corner = x - _WIDTH, y - _HEIGHT
    axes.add_patch(FancyBboxPatch(corner, 2 * _WIDTH, 2 * _HEIGHT, "round,pad=0,rounding_size=0.03", **look))
    axes.text(x, y, name, ha="center", va="center", fontsize=9.5, fontfamily="monospace", zorder=3)
    if name == "AccumulateGrad":
        value, gradient = weight
        text = f"w = {value:g}, gradient {gradient:g}"
        axes.text(x, y + _HEIGHT + 0.08, text, ha="center", va="top", fontsize=9.5, zorder=3)


def _between(axes: Axes, begin, end, look) -> None:
    """Draw an arrow from the lower edge of one box to the upper edge of another box."""
    _arrow(axes, (begin[0], begin[1] + _HEIGHT), (end[0], end[1] - _HEIGHT), look)


def _arrow(axes: Axes, begin, end, look) -> None:
    arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 13, **look}
    axes.annotate("", end, begin, arrowprops=arrow)


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
