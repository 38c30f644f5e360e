"""Figures of 11_a_ddp_of_your_own: what happens in a step of DDP, and two implementations side by side."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots.style import BLUE, GREEN, MODEL, RED, TINTS, new_axes, subplots

_COMPUTE, _SEND = 0.0, 1.3  # the tops of the two lanes
_HEIGHT = 0.8
# What a rank computes and what it sends: name, begin, end.
_COMPUTED = [
    ("forward", 2.0, 4.4, TINTS[7]),
    ("layer 4", 4.4, 5.6, TINTS[0]),
    ("layer 3", 5.6, 6.8, TINTS[0]),
    ("layer 2", 6.8, 8.0, TINTS[0]),
    ("layer 1", 8.0, 9.2, TINTS[0]),
    ("finish", 9.2, 11.9, "#FFFFFF"),
    ("optimizer", 11.9, 13.4, TINTS[2]),
]
_SENT = [
    ("1 broadcast", -0.9, 0.8),
    ("6 buffers", 0.95, 2.0),
    ("bucket 0", 6.8, 9.0),
    ("bucket 1", 9.2, 11.2),
    ("5 in use", 11.2, 11.9),
]
_NOTES = [  # a text, and the place to which it points
    ("3 hooks take each gradient", (5.6, _COMPUTE), (5.0, -0.75)),
    ("4 no_sync: only add up", (8.0, _COMPUTE), (9.2, -0.75)),
    ("2 buckets by size,\nfrom the last layer on", (6.9, _SEND + _HEIGHT), (4.6, 2.75)),
    ("3 launched in order", (9.2, _SEND + _HEIGHT), (8.6, 2.75)),
]


def step_of_ddp() -> None:
    """Draw the first training step of a rank: what it computes above, what it sends below, with six numbers."""
    axes = new_axes("Buckets are launched while the backward pass still computes", width=7.8, height=2.9)
    axes.set_axis_off()
    axes.set(xlim=(-2.5, 13.6), ylim=(3.3, -1.1))
    for name, begin, end, colour in _COMPUTED:
        _bar(axes, name, begin, end, _COMPUTE, facecolor=colour, hatch="///" if name == "finish" else None)
    for name, begin, end in _SENT:
        _bar(axes, name, begin, end, _SEND, facecolor="#F3B58C")
    axes.text(4.4 + 2.4, _COMPUTE - 0.12, "backward", ha="center", va="bottom", fontsize=8, color=BLUE)
    for text, place, at in _NOTES:
        axes.annotate(
            text, place, at, fontsize=8, ha="center", va="center", arrowprops={"arrowstyle": "-", "color": "#404040"}
        )
    for name, top in (("computes", _COMPUTE), ("sends", _SEND)):
        axes.text(-1.1, top + _HEIGHT / 2, name, ha="right", va="center", fontsize=9, fontweight="bold")


def _bar(axes: Axes, name, begin, end, top, **look):
    """Draw a bar from `begin` to `end` with its name; a name that is longer than its bar has two lines."""
    axes.add_patch(Rectangle((begin, top), end - begin, _HEIGHT, edgecolor="#404040", linewidth=0.8, **look))
    text = name.replace(" ", "\n") if len(name) > 6.5 * (end - begin) else name
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0} if look.get("hatch") else None
    axes.text((begin + end) / 2, top + _HEIGHT / 2, text, ha="center", va="center", fontsize=8, bbox=box)


def two_trainings(losses: Mapping[str, Sequence[float]], seconds: Mapping[str, Sequence[float]]) -> None:
    """Draw the loss curves of two trainings on the left, and on the right the duration of each of their steps.

    Both map a name to its values, in the same order. A bar marks the median of the durations.
    """
    _, (left, right) = subplots(1, 2, figsize=(7.6, 3.2), width_ratios=(3, 2))
    first, second = losses
    left.plot(losses[first], **MODEL, label=first)
    left.plot(losses[second], color=BLUE, marker="o", markerfacecolor="none", linestyle="", markersize=5, label=second)
    left.set(xlabel="step", ylabel="loss, mean over the ranks", ylim=(0, None))
    left.legend(frameon=False)
    for place, (values, colour) in enumerate(zip(seconds.values(), (RED, BLUE), strict=True)):
        ordered = sorted(1e3 * value for value in values)
        middle = ordered[len(ordered) // 2]
        spread = [place + 0.25 * (number / max(1, len(values) - 1) - 0.5) for number in range(len(values))]
        marker = "osD"[place]
        right.plot(spread, [1e3 * value for value in values], marker, color=colour, markerfacecolor="none")
        right.hlines(middle, place - 0.25, place + 0.25, color=GREEN, linewidth=2.5)
        right.annotate(f"median {middle:.0f} ms", (place, 0), (0, 6), textcoords="offset points", ha="center")
    right.set(xticks=range(len(seconds)), xlim=(-0.6, len(seconds) - 0.4), ylabel="duration of a step (ms)")
    right.set_xticklabels(seconds)
    right.set_ylim(bottom=0)
    for axes, title in ((left, "The losses are the same"), (right, "Step times of rank 0")):
        axes.set_title(title, loc="left", pad=10, fontsize="medium", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
        axes.set_axisbelow(True)
