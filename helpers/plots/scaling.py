"""Figures of 15_scaling: throughput here, modelled efficiency on many machines, and loss by batch size."""

from collections.abc import Mapping, Sequence

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from helpers.plots.style import BLUE, GREEN, GUIDE, LIMIT, MEASURED, MODEL, RED, new_axes, note

# Fills and lines of the bands; no two bands differ only by colour.
_BANDS = (
    {"color": RED, "linestyle": "--", "hatch": "///"},
    {"color": GREEN, "linestyle": "-.", "hatch": "..."},
    {"color": BLUE, "linestyle": (0, (5, 1, 1, 1, 1, 1)), "hatch": "\\\\\\"},
)


def throughput(batch: int, measured: Mapping[str, Mapping[int, float]], model: Mapping[int, float], cores: int) -> None:
    """Draw images per second against the number of ranks, and a line where the number of ranks reaches `cores`.

    `batch` is the number of images of each rank. `measured[name]` has the step time in seconds by the number of ranks,
    for two settings; `model` has the predicted step times for the second setting.
    """
    axes = new_axes("Images per second on this machine", height=3.6)

    def draw(times, **look):
        axes.plot(list(times), [batch * ranks / time for ranks, time in times.items()], **look)

    for look, (name, times) in zip(({**LIMIT, "linestyle": ""}, MEASURED), measured.items(), strict=True):
        draw(times, label=f"measured, {name}", **look)
    draw(model, label="model, paced links", **MODEL)
    axes.set_ylim(bottom=0, top=1.15 * axes.get_ylim()[1])
    if cores <= max(model):
        axes.axvline(cores, **GUIDE)
        note(axes, f"{cores} cores", (cores, 0), shift=(5, 5))
    axes.set_xlabel("ranks, all on this machine")
    axes.set_ylabel("throughput (images per second)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")


def extrapolation(
    machines: Sequence[int], times: Mapping[str, Sequence[tuple[float, float]]], measured: Mapping[int, float]
) -> None:
    """Draw the modelled efficiency of many machines: a band for each link, from no overlap to full overlap.

    `times[name]` has the modelled times of computation and of communication in seconds for each number of machines;
    `measured` has the measured efficiency for a few numbers of machines.
    """
    axes = new_axes("Model, not measurement: efficiency, one rank on each machine", height=3.8)
    for look, (name, rows) in zip(_BANDS, times.items(), strict=False):
        alone = sum(rows[0])
        low = [alone / (computing + communication) for computing, communication in rows]
        high = [alone / max(row) for row in rows]
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
    axes.set_ylabel("efficiency")
    axes.set_ylim(0, 1.05)
    axes.figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")


def batch_sizes(losses: Mapping[str, Mapping[int, float]]) -> None:
    """Draw the loss after training against the global batch size, a line for each rule for the learning rate.

    `losses[rule]` maps a batch size to the loss. Each line has its name at its right end.
    """
    axes = new_axes("Loss after the same number of epochs, by the size of the global batch", width=8.2, height=3.8)
    looks = (LIMIT, {**MODEL, "marker": "o"}, {"color": BLUE, "linestyle": ":", "linewidth": 2, "marker": "^"})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ends = []
    for look, (rule, by_size) in zip(looks, losses.items(), strict=True):
        axes.plot(list(by_size), list(by_size.values()), **look)
        size, loss = list(by_size.items())[-1]
        ends.append([loss, size, rule, look["color"]])
    for number, (loss, size, rule, colour) in enumerate(sorted(ends)):
        below = number > 0 and loss < 1.3 * sorted(ends)[number - 1][0]
        shift = 5 if below else -5
        axes.annotate(rule, (size, loss), (10, shift), textcoords="offset points", color=colour, va="center")
    sizes = list(next(iter(losses.values())))
    axes.set_xticks(sizes)
    axes.set_xlim(sizes[0] / 1.2, sizes[-1] * 2.6)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=[1, 2, 5]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.set_xlabel("global batch (images in a step)")
    axes.set_ylabel("loss (cross-entropy)")
