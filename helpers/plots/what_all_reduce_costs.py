"""Figures of 06_what_all_reduce_costs: what each way to all-reduce takes, measured and by the model."""

from collections.abc import Mapping, Sequence

import numpy as np

from helpers.plots.style import (
    BLUE,
    GUIDE,
    LIMIT,
    MODEL,
    RED,
    data_size,
    duration,
    label_durations,
    label_sizes,
    new_axes,
    note,
    subplots,
)

# Seven series in one figure differ by their markers and lines, too. None has the colour of a limit.
_LOOKS = (
    {"color": "#767676", "marker": "x", "linestyle": ":"},
    {"color": "#CC79A7", "marker": "s", "linestyle": "--"},
    {"color": "#56B4E9", "marker": "D", "linestyle": "-."},
    {"color": "#E69F00", "marker": "v", "linestyle": (0, (6, 1, 1, 1, 1, 1))},
    {"color": BLUE, "marker": "o", "linestyle": "-"},
    {"color": RED, "marker": "^", "linestyle": (0, (5, 2))},
    {"color": "black", "marker": "+", "linestyle": (0, (1, 1))},
)


def all_reduce_times(
    sizes: Sequence[float], measured: Mapping[str, Sequence[float]], predicted: Mapping[str, Sequence[float]]
) -> None:
    """Draw the time of each algorithm against the size of the tensor, measured and predicted, in a panel of its own.

    `sizes` are in bytes, `measured[name]` and `predicted[name]` the times of all sizes in seconds. An algorithm without
    a prediction has only points. The measured times of the last algorithm are drawn into each panel, to compare, and
    those of all algorithms into one more panel, with the marks that they have in their own.
    """
    columns = 4
    panels = len(measured) + 1
    rows = -(-panels // columns)
    figure, all_axes = subplots(
        rows,
        columns,
        figsize=(9, 2.4 * rows + 0.5),
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    *_, (last, compared) = measured.items()
    for number, axes in enumerate(all_axes.flat):
        axes.set_visible(number < panels)
        axes.tick_params(labelbottom=number + columns >= panels)
    *_, together = all_axes.flat[:panels]
    together.set_title("all of them", loc="left", fontsize="small", fontweight="bold")
    for axes, look, (name, times) in zip(all_axes.flat, _LOOKS, measured.items(), strict=False):
        axes.set_title(name, loc="left", fontsize="small", fontweight="bold", fontfamily="monospace")
        if name != last:
            axes.loglog(sizes, compared, label=last, **{**GUIDE, "linestyle": "-", "linewidth": 1})
        if name in predicted:
            axes.loglog(sizes, predicted[name], label="predicted: α and β", **{**MODEL, "color": "black"})
        axes.loglog(sizes, times, label="measured", **{**look, "linestyle": "", "markersize": 5})
        together.loglog(sizes, times, **{**look, "markersize": 4, "linewidth": 1})
    for axes in all_axes.flat[:panels]:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
        label_sizes(axes.xaxis)
        label_durations(axes.yaxis)
        axes.tick_params(labelsize="small")
        axes.tick_params(axis="x", rotation=45)
    figure.supxlabel("size of the tensor (bytes)", fontsize="medium")
    figure.supylabel("time (seconds)", fontsize="medium")
    handles, labels = all_axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)


def bus_bandwidths(sizes: Sequence[float], bandwidths: Mapping[str, Sequence[float]], limit: float) -> None:
    """Draw the bus bandwidth of each algorithm against the size of the tensor, and the limit, all in bytes a second."""
    axes = new_axes("The bus bandwidth says how much of the limit an all-reduce has reached", width=8.2)
    for look, (name, bandwidth) in zip(_LOOKS, bandwidths.items(), strict=False):
        axes.semilogx(sizes, np.array(bandwidth) / 1e9, label=name, **look)
    look = {**LIMIT, "marker": "", "linestyle": "-"}
    axes.axhline(limit / 1e9, label="limit: all ranks only pass on", **look)
    axes.set_xlabel("size of the tensor (bytes)")
    axes.set_ylabel("bus bandwidth (GB/s)")
    axes.set_ylim(bottom=0)
    label_sizes(axes.xaxis)
    axes.figure.legend(loc="outside right center", frameon=False, fontsize="small")


def modelled_times(
    n: int,
    size: float | Sequence[float],
    alpha: float,
    beta: float,
    sizes: Sequence[float],
    times: Mapping[str, Sequence[float]],
) -> None:
    """Draw the time of each algorithm by the model against the size of the tensor, and list those at `size`.

    `sizes` and `size` are in bytes, `size` one or several, `times[name]` the times of all sizes in seconds, `alpha` is
    in seconds and `beta` in bytes a second.
    """
    setting = f"{n} ranks, α = {duration(alpha)}, β = {8 * beta / 1e9:.3g} Gbit/s"
    axes = new_axes(f"Model, not measurement: {setting}", width=8.2)
    listed = np.atleast_1d(size)
    for one in listed:
        axes.axvline(one, **GUIDE)
        note(axes, data_size(one), (one, 1e-6), shift=(5, 5))
    for look, (name, time) in zip(_LOOKS, times.items(), strict=False):
        at = np.exp(np.interp(np.log(listed), np.log(sizes), np.log(time)))
        label = " ".join(f"{duration(seconds):>7}" for seconds in at) + f"  {name}"
        axes.loglog(sizes, time, label=label, **{**look, "marker": ""}, linewidth=2)
    axes.set_xlabel("size of the tensor (bytes)")
    axes.set_ylabel("time by the model (seconds)")
    axes.set_xlim(sizes[0], sizes[-1])
    axes.set_ylim(1e-6, 1e4)
    label_sizes(axes.xaxis)
    label_durations(axes.yaxis)
    axes.figure.legend(
        loc="outside right center",
        frameon=False,
        title=" and ".join(map(data_size, listed)) + " take",
        prop={"family": "monospace", "size": 8},
    )
