"""Figures of 10_inside_ddp: the buckets of DistributedDataParallel."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots.style import TINTS, new_axes

_GAP = 0.03  # between buckets, as a fraction of all bytes
_HEIGHT = 0.5
_LEAST = 0.08  # a name fits into a bar above this fraction of all bytes


def buckets(rows: Mapping[str, Sequence[Mapping[str, int]]]) -> None:
    """Draw the buckets of each row, from left to right in the order in which they are sent.

    `rows` maps the name of a row to its buckets; a bucket maps the names of its parameters to their bytes, in the order
    of the bucket. The parameters of a layer, whose names are the same up to the last dot, are drawn as one block.
    """
    axes = new_axes("What travels together, in the order of sending", height=0.9 + 0.7 * len(rows))
    axes.grid(False)
    total = max(sum(sum(bucket.values()) for bucket in row) for row in rows.values())
    layers = sorted({_layer(name) for row in rows.values() for bucket in row for name in bucket})
    tints = {layer: TINTS[number % len(TINTS)] for number, layer in enumerate(layers)}
    for place, row in enumerate(rows.values()):
        left = 0.0
        for bucket in row:
            _draw(axes, _by_layer(bucket), left, place - _HEIGHT / 2, tints, total)
            left += sum(bucket.values()) + _GAP * total
    most = max(map(len, rows.values()))
    axes.set_xlim(-0.005 * total, total * (1.005 + _GAP * (most - 1)))
    axes.set_ylim(len(rows) - 0.55, -0.6)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlabel(f"bytes ({total:,} in each row); a frame is a bucket, a tint is a layer")


def _draw(axes: Axes, layers, left, top, tints, total):
    """Draw a bucket, given as the bytes of its layers, beginning at `left`."""
    begin = left
    for layer, size in layers.items():
        axes.add_patch(Rectangle((left, top), size, _HEIGHT, facecolor=tints[layer]))
        inside = size > _LEAST * total
        place = (left + size / 2, top + _HEIGHT / 2) if inside else (left, top - 0.03)
        look = {"ha": "center", "va": "center"} if inside else {"ha": "left", "va": "bottom"}
        axes.text(*place, layer, fontsize="small", **look)
        left += size
    axes.add_patch(Rectangle((begin, top), left - begin, _HEIGHT, fill=False, linewidth=1.6))


def _by_layer(bucket):
    """Return the bytes of each layer of a bucket, in the order of the layers' first parameters."""
    layers = {}
    for name, size in bucket.items():
        layers[_layer(name)] = layers.get(_layer(name), 0) + size
    return layers


def _layer(name):
    return name.rpartition(".")[0] or name
