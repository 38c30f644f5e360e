"""The figure of 12_fewer_bytes: the step time that compressed gradients save, and the loss that they cost."""

from collections.abc import Mapping

from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from helpers.plots.style import BLUE, GREEN, RED, data_size, new_axes

# Hooks differ by marker as well as by colour.
_LOOKS = (("o", BLUE), ("s", GREEN), ("D", "#56B4E9"), ("^", "#E69F00"), ("v", RED), ("X", "#767676"), ("P", "#CC79A7"))
_SHIFTS = [-4, 9, -17, 22, -30, 35, -43, 48]  # vertical shifts of a name, in points; the first free place is used


def compression(hooks: Mapping[str, tuple[float, float, float, float]]) -> None:
    """Draw the loss of each hook against its step time, with its name and its bytes next to the point.

    `hooks[name]` has the bytes that a rank passes to all-reduce in a step, the relative error of the gradients, the
    step time in seconds and the loss after training.
    """
    axes = new_axes("Good is below and on the left: the time of a step, and the loss after training", width=8.2)
    times = [1e3 * seconds for _, _, seconds, _ in hooks.values()]
    losses = [loss for *_, loss in hooks.values()]
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 1.3, max(times) * 2.2)  # names are on the right
    axes.set_ylim(0, max(losses) * 1.1)
    axes.xaxis.set_major_locator(LogLocator(subs=[1, 2, 5]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.set_xlabel("time of a step on the slow link (ms)")
    axes.set_ylabel("loss (cross-entropy)")
    axes.figure.draw_without_rendering()  # places the axes
    named = []
    for (marker, colour), (name, (size, _, seconds, loss)) in zip(_LOOKS, hooks.items(), strict=False):
        place = 1e3 * seconds, loss
        axes.plot(*place, marker=marker, color=colour, markersize=9, linestyle="", zorder=3)
        x, y = axes.transData.transform(place) * 72 / axes.figure.dpi  # in points
        shift = next(s for s in _SHIFTS if all(abs(x - left) > 150 or abs(y + s - at) > 11 for left, at in named))
        named.append((x, y + shift))
        label = f"{name}, {data_size(size)}"
        axes.annotate(label, place, (9, shift), textcoords="offset points", fontsize="small", color="#404040")
