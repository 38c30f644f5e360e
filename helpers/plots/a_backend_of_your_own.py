"""The figure of 07_a_backend_of_your_own: the bandwidth of the transports between the ranks of one machine."""

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
    """Draw the bus bandwidth of each kind of all-reduce against the size of the tensor; the last entry is the limit.

    `sizes` are in bytes; `bandwidths[name]` has the bandwidth for each size in bytes per second. Each name is at the
    end of its line, moved a little where two names would overlap.
    """
    axes = new_axes("One machine: what sockets carry, and what memory carries", width=7.2)
    looks = [*_LOOKS[: len(bandwidths) - 1], {**LIMIT, "marker": "", "linestyle": ":"}]
    ends = []
    for look, (name, line) in zip(looks, bandwidths.items(), strict=True):
        axes.loglog(sizes, np.array(line) / 1e9, **look)
        ends.append((line[-1] / 1e9, name, look["color"]))
    bottom, top = axes.get_ylim()
    apart = (top / bottom) ** 0.06  # the height of a line of text, as a factor
    height = 0.0
    for end, name, color in sorted(ends):
        height = max(end, height * apart)
        place = (sizes[-1], height)
        axes.annotate(name, place, (8, 0), textcoords="offset points", va="center", color=color, fontweight="bold")
    axes.set_xlabel("size of the tensor (bytes)")
    axes.set_ylabel("bus bandwidth (GB/s)")
    axes.set_xlim(right=sizes[-1] * 1.1)
    axes.set_xticks(sizes, [data_size(size) for size in sizes])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
