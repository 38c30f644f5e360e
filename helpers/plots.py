"""Every figure of the course, in one style, drawn from plain data."""

from collections.abc import Sequence

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

# Of the colours of Okabe and Ito, which people with any kind of colour vision tell apart.
BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"

# What a series is says how it looks, and no two of them differ by colour alone.
MEASURED = {"color": BLUE, "marker": "o", "linestyle": "", "markersize": 7, "zorder": 3}
MODEL = {"color": RED, "linestyle": "-", "linewidth": 2}
LIMIT = {"color": GREEN, "marker": "s", "linestyle": "--", "linewidth": 2, "markersize": 5}
GUIDE = {"color": "#767676", "linestyle": ":", "linewidth": 1.5}


def message_cost(
    sizes: Sequence[float], measured: Sequence[float], limit: Sequence[float], alpha: float, beta: float
) -> None:
    """Draw the time of a message against its size: measured, by the model alpha + size / beta, and the limit.

    `sizes`, in bytes, increase; `measured` and `limit` are the times of these messages and `alpha` is a time, all in
    seconds; `beta` is in bytes per second.
    """
    axes = new_axes("A small message costs the latency α, a large one its bytes / β")
    first, last, knee = sizes[0], sizes[-1], alpha * beta
    many = np.geomspace(first, last, 200)
    model = f"model: t = α + bytes / β,\nα = {duration(alpha)}, β = {beta / 1e9:.2g} GB/s"
    axes.loglog(sizes, measured, label="measured: send and recv, gloo", **MEASURED)
    axes.loglog(many, alpha + many / beta, label=model, **MODEL)
    axes.loglog(sizes, limit, label="limit: a bare TCP socket", **LIMIT)

    floor = min(*measured, *limit) / 3
    axes.set_ylim(bottom=floor)
    axes.plot([first, last], [alpha, alpha], **GUIDE)
    axes.plot([floor * beta, last], [floor, last / beta], **GUIDE)
    axes.plot([knee, knee], [floor, alpha], **GUIDE)
    note(axes, "α", (last, alpha), shift=(-8, 5))
    note(axes, f"αβ = {data_size(knee)}", (knee, floor), shift=(6, 5))

    axes.set_xlabel("size of the message (bytes)")
    axes.set_ylabel("time of one message (seconds)")
    label_sizes(axes.xaxis)
    label_durations(axes.yaxis)
    axes.legend(loc="upper left", frameon=False)


def new_axes(title: str, width: float = 7.2, height: float = 4.4) -> Axes:
    """Return the axes of a new figure, of this size in inches, which a notebook shows when the cell ends."""
    # White also where JupyterLab is dark.
    _, axes = plt.subplots(figsize=(width, height), dpi=110, layout="constrained", facecolor="white")
    axes.set_title(title, loc="left", pad=12, fontsize="medium", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E0E0E0")
    axes.set_axisbelow(True)
    return axes


def note(axes: Axes, text: str, place: tuple[float, float], shift: tuple[float, float]) -> None:
    """Write a text beside a place of the data, shifted by so many points to the right and up."""
    axes.annotate(text, place, shift, textcoords="offset points", color="#404040")


def label_sizes(axis: Axis) -> None:
    """Label a logarithmic axis of bytes in B, KiB, MiB and GiB."""
    axis.set_major_locator(LogLocator(base=16, subs=[4], numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda size, _: data_size(size)))


def label_durations(axis: Axis) -> None:
    """Label a logarithmic axis of seconds in µs, ms and s."""
    axis.set_major_locator(LogLocator(base=10, numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))


def data_size(size: float) -> str:
    """Return a number of bytes with a unit, as in 64 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1000:
            return f"{_digits(size)} {unit}"
        size /= 1024
    return f"{_digits(size)} GiB"


def duration(seconds: float) -> str:
    """Return a number of seconds with a unit, as in 50 µs."""
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 0.995:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds * 1e6)} µs"


def _digits(number):
    return f"{number:.0f}" if number >= 9.95 else f"{number:.2g}"
