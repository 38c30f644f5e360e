"""The figures of 12_fewer_bytes: a gradient in three sizes, and what hooks save and cost."""

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots.style import BLUE, GREEN, RED, TINTS, new_axes, subplots

# Hooks differ by marker as well as by colour.
_LOOKS = (("o", BLUE), ("s", GREEN), ("D", "#56B4E9"), ("^", "#E69F00"), ("v", RED), ("X", "#767676"), ("P", "#CC79A7"))
_SHIFTS = [-3, 9, -15, 21, -27, 33]  # vertical shifts of a name, in points; the first free place is used

_SIDE = 2.56  # of the sketched matrix of 256 x 256 entries in 32 bits
_THIN = _SIDE * 16 / 256  # of 16 columns or rows


def compressed_gradients() -> None:
    """Draw a gradient of 256 x 256 entries in 32 bits, in 16 bits and as a product with r = 16, by area."""
    title = "16 bits are half of a gradient; for r = 16, P and Q are an eighth of it"
    axes = new_axes(title, width=7.8, height=3.0)
    axes.set_axis_off()
    axes.set(xlim=(-0.3, 11.8), ylim=(3.5, -0.35), aspect="equal")
    top = 0.3
    _box(axes, "M", 0, top, _SIDE, _SIDE, TINTS[0])
    _box(axes, "M", 3.5, top, _SIDE / 2, _SIDE, TINTS[0])
    _box(axes, "", 6.0, top, _THIN, _SIDE, TINTS[1])
    _box(axes, "", 6.3, 0, _SIDE, _THIN, TINTS[1])
    axes.text(5.9, top + _SIDE / 2, "P", fontsize=9, ha="right", va="center")
    axes.text(6.4 + _SIDE, _THIN / 2, "$Q^T$", fontsize=9, va="center")
    missed = {"facecolor": "none", "edgecolor": "#404040", "linestyle": "--", "linewidth": 0.8}
    axes.add_patch(Rectangle((6.3, top), _SIDE, _SIDE, **missed))
    axes.text(6.3 + _SIDE / 2, top + _SIDE / 2, "$M - PQ^T$", fontsize=9, ha="center", va="center")
    places = (10.0, top + _SIDE / 2), (6.4 + _SIDE, top + _SIDE / 2)
    axes.annotate("", *places, arrowprops={"arrowstyle": "->", "color": "#404040"})
    axes.text(10.1, top + _SIDE / 2, "added to M\nin the next step", fontsize=8, va="center")
    captions = {_SIDE / 2: "32 bits", 3.5 + _SIDE / 4: "16 bits", 7.5: "low rank: P and Q travel, the rest stays"}
    for x, text in captions.items():
        axes.text(x, top + _SIDE + 0.15, text, fontsize=8, ha="center", va="top")


def compression(sizes: Mapping[str, int], losses: Mapping[str, float], seconds: Mapping[str, Sequence[float]]) -> None:
    """Draw the loss of each hook against its bytes on the left, and on the right the durations of its steps.

    All three map the names of the hooks: to the bytes of a step, to the loss after training, and to the durations. A
    bar marks the median of the durations.
    """
    _, (left, right) = subplots(1, 2, figsize=(8.8, 3.6), width_ratios=(1, 1))
    left.set(xscale="log", xlabel="bytes in a step", ylabel="loss after training")
    left.set(xlim=(min(sizes.values()) / 1.4, max(sizes.values()) * 5), ylim=(0, max(losses.values()) * 1.12))
    right.set(
        xlabel="duration of each step (ms), and the median", ylim=(len(sizes) - 0.5, -0.5), yticks=range(len(sizes))
    )
    right.set_yticklabels(sizes)
    left.figure.draw_without_rendering()  # places the axes
    named = []
    for row, ((marker, colour), name) in enumerate(zip(_LOOKS, sizes, strict=False)):
        look = {"marker": marker, "color": colour, "linestyle": ""}
        place = sizes[name], losses[name]
        left.plot(*place, **look, markersize=8, zorder=3)
        named.append(_name(left, name, place, named))
        durations = [1e3 * value for value in seconds[name]]
        right.plot(durations, [row] * len(durations), **look, markersize=5, markerfacecolor="none")
        right.vlines(median(durations), row - 0.3, row + 0.3, color="#404040", linewidth=2)
    right.set_xlim(left=0)
    most, least = max(sizes.values()), min(sizes.values())
    medians = [1e3 * median(values) for values in seconds.values()]
    for axes, title in (
        (left, f"{most / least:.0f} times fewer bytes, but a higher loss"),
        (right, f"Medians from {max(medians):.0f} ms down to {min(medians):.0f} ms"),
    ):
        axes.set_title(title, loc="left", pad=10, fontsize="medium", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
        axes.set_axisbelow(True)


def _box(axes: Axes, text, x, y, width, height, colour):
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="#404040", linewidth=0.8))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9)


def _name(axes: Axes, name, place, named):
    """Write a name to the right of a point, where no name has been written, and return the place in points."""
    x, y = axes.transData.transform(place) * 72 / axes.figure.dpi
    shift = next((s for s in _SHIFTS if all(abs(x - left) > 90 or abs(y + s - at) > 10 for left, at in named)), 0)
    axes.annotate(name, place, (8, shift), textcoords="offset points", fontsize="small", color="#404040")
    return x, y + shift
