"""The figure of 30_hybrid_costs: the step time against the number of rows of an embedding table."""

from collections.abc import Mapping

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from helpers.plots.style import BLUE, GREEN, RED, label_durations, new_axes, note

_LOOKS = (
    {"color": RED, "marker": "s", "linestyle": "--"},
    {"color": BLUE, "marker": "o", "linestyle": "-"},
    {"color": GREEN, "marker": "^", "linestyle": ":"},
)


def table_sizes(times: Mapping[tuple[str, int], float]) -> None:
    """Draw the step time against the number of rows of the embedding table, a line for each kind of step.

    `times` maps a pair (kind, number of rows) to the step time in seconds.
    """
    axes = new_axes("The time of a step, by the size of the table")
    kinds = dict.fromkeys(kind for kind, _ in times)
    for kind, look in zip(kinds, _LOOKS, strict=False):
        points = [(rows, seconds) for (of, rows), seconds in times.items() if of == kind]
        axes.plot(*zip(*points, strict=True), label=kind, linewidth=2, markersize=7, **look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rows, _: f"{rows:,.0f}"))
    label_durations(axes.yaxis)
    axes.set_ylim(1e-3, 5 * max(times.values()))
    most = max(rows for _, rows in times)
    first, second, *_ = (times[kind, most] for kind in kinds)
    note(axes, f"{first / second:.0f} times", (most, (first * second) ** 0.5), (-58, 0))
    axes.annotate(
        "",
        (most, second),
        (most, first),
        arrowprops={"arrowstyle": "<->", "color": "#404040", "shrinkA": 5, "shrinkB": 5},
    )
    axes.set_xlabel("rows of the table, 16 columns")
    axes.set_ylabel("time of a step")
    axes.legend(frameon=False, loc="upper left")
