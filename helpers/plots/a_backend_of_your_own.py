"""The figure of 07_a_backend_of_your_own: what the ways between the ranks of one machine carry."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.ticker import NullLocator

from helpers.plots.style import BLUE, LIMIT, RED, data_size, new_axes

_LOOKS = (
    {"color": RED, "marker": "s", "linestyle": "--"},
    {"color": BLUE, "marker": "o", "linestyle": "-"},
    {"color": "#CC79A7", "marker": "^", "linestyle": "-."},
)


def transports(sizes: Sequence[float], bandwidths: Mapping[str, Sequence[float]]) -> None:
    """Draw the bus bandwidth of each way to all-reduce against the size of the tensor; the last one is the limit.

    `sizes` are in bytes, `bandwidths[name]` those of all sizes in bytes a second. Each name stands at the end of its
    line, moved a little where two would meet.
    """
    axes = new_axes("One machine: what sockets carry, and what memory carries", width=7.2)
    looks = [*_LOOKS[: len(bandwidths) - 1], {**LIMIT, "marker": "", "linestyle": ":"}]
    ends = []
    for look, (name, line) in zip(looks, bandwidths.items(), strict=True):
        axes.semilogx(sizes, np.array(line) / 1e9, **look)
        ends.append((line[-1] / 1e9, name, look["color"]))
    top = max(max(line) for line in bandwidths.values()) / 1e9
    height = -np.inf
    for end, name, color in sorted(ends):
        height = max(end, height + 0.055 * top)
        axes.annotate(
            name, (sizes[-1], height), (8, 0), textcoords="offset points", va="center", color=color, fontweight="bold"
        )
    axes.set_xlabel("size of the tensor (bytes)")
    axes.set_ylabel("bus bandwidth (GB/s)")
    axes.set_ylim(bottom=0)
    axes.set_xlim(right=sizes[-1] * 1.1)
    axes.set_xticks(sizes, [data_size(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
