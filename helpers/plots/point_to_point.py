"""Figures of 03_point_to_point: a drawing of two messages, the token in the ring, and the cost of a message."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from helpers.plots.style import (
    BLUE,
    GREEN,
    GUIDE,
    LIMIT,
    MEASURED,
    MODEL,
    RED,
    TINTS,
    data_size,
    duration,
    label_durations,
    label_sizes,
    new_axes,
    note,
)

_BAR = 0.3  # height of a bar; the lanes of two ranks are 1 apart
_WORKS = {"facecolor": TINTS[0], "edgecolor": BLUE}
_WAITS = {"facecolor": "white", "edgecolor": "#767676", "hatch": "////"}


def two_messages(
    *, sent: tuple[float, float], received: tuple[float, float], sizes: tuple[float, float], alpha: float, beta: float
) -> None:
    """Draw two messages from rank 0 to rank 1 on a time line for each rank, and label the second message.

    Rank 0 calls `send` at the times `sent`, rank 1 calls `recv` at the times `received`. A message begins when both
    ranks have called, and takes `alpha + beta * size`. Times and sizes are in arbitrary units.
    """
    axes = _lanes("Each rank waits for the other; then the message takes α + β · bytes", ["rank 0", "rank 1"])
    begin = [0.0, 0.0]
    for number, (send, recv, size) in enumerate(zip(sent, received, sizes, strict=True)):
        start = max(send, recv)
        first, last = start + alpha, start + alpha + beta * size
        for rank, (call, called) in enumerate((("send", send), ("recv", recv))):
            _bar(axes, rank, begin[rank], called, _WORKS)
            _bar(axes, rank, called, last, _WAITS)
            away = -1 if rank == 0 else 1
            axes.text(called + 0.05, rank + 0.4 * away, call, va="center", fontfamily="monospace")
            begin[rank] = last
        top, bottom = _BAR / 2, 1 - _BAR / 2
        lasts = last - first
        axes.fill([start, start + lasts, last, first], [top, top, bottom, bottom], color=RED, alpha=0.75, linewidth=0)
        if number:
            axes.text((start + last) / 2, 0.5, "message", ha="center", va="center")
            _span(axes, start, first, 1.75, "α")
            _span(axes, first, last, 1.75, "β · bytes")
            for time in (start, first, last):
                axes.plot([time, time], [bottom if time > start else top, 1.75], zorder=0, **GUIDE)
    for rank in range(2):
        _bar(axes, rank, begin[rank], max(begin) + 1.2, _WORKS)
    axes.set(ylim=(2.2, -0.65), xlim=(0, max(begin) + 1.2))
    axes.set_xticks([])
    axes.set_xlabel("time")
    _legend(axes, "computes", "waits in a call")


def ring_of_waits(*, waits: Sequence[tuple[float, float]], works: Sequence[tuple[float, float]]) -> None:
    """Draw when each rank waited in `recv`, and when it worked on the token.

    `waits[rank]` and `works[rank]` are (begin, end) in seconds, on the same clock for all ranks.
    """
    size = len(waits)
    axes = _lanes("Only one rank works at a time", [f"rank {rank}" for rank in range(size)])
    origin = min(begin for begin, _ in [*waits, *works])
    for rank in range(size):
        for (begin, end), look in ((waits[rank], _WAITS), (works[rank], _WORKS)):
            _bar(axes, rank, begin - origin, end - origin, look)
    axes.set(ylim=(size - 0.5, -0.5), xlim=(0, None))
    axes.set_xlabel("time since the first call (s)")
    _legend(axes, "works on the token", "waits in recv")


def message_cost(
    sizes: Sequence[float], *, measured: Sequence[float], alpha: float, beta: float, limit: Sequence[float] = ()
) -> None:
    """Draw the time of a message against its size: measured, by the model alpha + beta * size, and as a limit if given.

    `sizes`, in bytes, increase; `measured` and `limit` are the times of these messages and `alpha` is a time, all in
    seconds; `beta` is in seconds per byte.
    """
    axes = new_axes("A small message costs the latency α, a large message β for each byte")
    sizes, measured = map(np.asarray, (sizes, measured))
    first, last, knee = sizes[0], sizes[-1], alpha / beta
    many = np.geomspace(first, last, 200)
    model = alpha + beta * many
    axes.loglog(sizes, measured, **MEASURED)
    axes.loglog(many, model, **MODEL)
    if len(limit):
        axes.loglog(sizes, limit, **LIMIT)
        _label(axes, "limit: a bare TCP socket", (first, min(limit[:3])), shift=(0, -20), color=GREEN)

    floor = min(*measured, *limit) / 4
    axes.set_ylim(bottom=floor)
    axes.plot([first, last], [alpha, alpha], **GUIDE)
    axes.plot([floor / beta, last], [floor, beta * last], **GUIDE)
    axes.plot([knee, knee], [floor, alpha], **GUIDE)
    note(axes, f"α = {duration(alpha)}", (last, alpha), shift=(-62, 5))
    note(axes, f"α/β = {data_size(knee)}", (knee, floor), shift=(6, 5))

    _label(axes, "measured: send and recv over gloo", (first, measured[:6].max()), shift=(0, 12), color=BLUE)
    middle = np.searchsorted(model, np.sqrt(alpha * model[-1]))
    of_model = f"model: α + β · bytes\nwith 1/β = {1e-9 / beta:.2g} GB/s"
    _label(axes, of_model, (many[middle], model[middle]), shift=(-12, 0), color=RED, ha="right")

    axes.set_xlabel("size of the message")
    axes.set_ylabel("time of one message")
    label_sizes(axes.xaxis)
    label_durations(axes.yaxis)


def _lanes(title: str, names: Sequence[str]) -> Axes:
    """Return axes with a lane for each name, the first name on top."""
    axes = new_axes(title, height=1.5 + 0.45 * len(names))
    axes.grid(False)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return axes


def _bar(axes, lane, begin, end, look):
    axes.broken_barh([(begin, end - begin)], (lane - _BAR / 2, _BAR), linewidth=0.8, zorder=2, **look)


def _span(axes, begin, end, height, text):
    """Draw a double arrow between two times, with a text below it."""
    arrow = {"arrowstyle": "<->", "color": "#404040", "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (end, height), (begin, height), arrowprops=arrow)
    axes.text((begin + end) / 2, height + 0.08, text, ha="center", va="top", color="#404040")


def _label(axes, text, place, shift, color, ha="left"):
    """Write a text next to a line, in the colour of the line."""
    axes.annotate(text, place, shift, textcoords="offset points", color=color, ha=ha)


def _legend(axes, works, waits):
    """Add a legend for the two kinds of bars below the axes."""
    handles = [Patch(label=works, **_WORKS), Patch(label=waits, **_WAITS)]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
