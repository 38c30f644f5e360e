"""Figures of 08_ddp_in_practice: throughput on this machine, and efficiency on many machines by the model."""

from collections.abc import Mapping, Sequence

from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from helpers.plots.style import BLUE, GREEN, GUIDE, LIMIT, MEASURED, MODEL, RED, new_axes, note

# Fills and lines of the bands: no two of them differ by colour alone.
_BANDS = (
    {"color": RED, "linestyle": "--", "hatch": "///"},
    {"color": GREEN, "linestyle": "-.", "hatch": "..."},
    {"color": BLUE, "linestyle": (0, (5, 1, 1, 1, 1, 1)), "hatch": "\\\\\\"},
)


def throughput(measured: Mapping[str, Mapping[int, float]], model: Mapping[int, float], cores: int) -> None:
    """Draw images per second against the number of ranks, and a line where the ranks have used up the cores.

    `measured[name]` has a number for each number of ranks, of two settings at most, of which the last one is what
    `model` predicts.
    """
    axes = new_axes("More ranks than cores bring nothing, a slow link takes", height=3.6)
    looks = {**LIMIT, "linestyle": ""}, MEASURED
    for look, (name, points) in zip(looks[-len(measured) :], measured.items(), strict=True):
        axes.plot(list(points), list(points.values()), label=f"measured, {name}", **look)
    axes.plot(list(model), list(model.values()), label="model, paced links", **MODEL)
    if cores <= max(model):
        axes.axvline(cores, **GUIDE)
    axes.set_ylim(bottom=0, top=1.15 * max(max(points.values()) for points in measured.values()))
    if cores <= max(model):
        note(axes, f"{cores} cores", (cores, 0), shift=(5, 5))
    axes.set_xlabel("ranks, all on this machine")
    axes.set_ylabel("throughput (images per second)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")


def extrapolation(
    machines: Sequence[int], modelled: Mapping[str, Sequence[tuple[float, float]]], measured: Mapping[int, float]
) -> None:
    """Draw the efficiency of many machines by the model: for each link a band, from no overlap to full overlap.

    `modelled[name]` has a pair of efficiencies for each number of machines, `measured` a single one for a few of them.
    """
    axes = new_axes("Model, not measurement: efficiency, one rank on each machine", height=3.8)
    for look, (name, rows) in zip(_BANDS, modelled.items(), strict=False):
        low, high = zip(*rows, strict=True)
        line = {"color": look["color"], "linestyle": look["linestyle"]}
        axes.fill_between(machines, low, high, alpha=0.25, linewidth=0, facecolor=look["color"], hatch=look["hatch"])
        axes.plot(machines, low, label=f"model, {name}", linewidth=2, **line)
        axes.plot(machines, high, linewidth=1, **line)
    axes.plot(list(measured), list(measured.values()), label="measured, links paced", **MEASURED)
    axes.set_xscale("log", base=2)
    axes.set_xticks(machines[::2])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.set_xlabel("machines (lower edge of a band: no overlap, upper edge: full overlap)")
    axes.set_ylabel("efficiency (throughput of k / k times that of 1)")
    axes.set_ylim(0, 1.05)
    axes.figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
