"""Figures of 02_point_to_point."""

from collections.abc import Sequence

import numpy as np

from helpers.plots.style import (
    GUIDE,
    LIMIT,
    MEASURED,
    MODEL,
    data_size,
    duration,
    label_durations,
    label_sizes,
    new_axes,
    note,
)


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
