"""Figures of the lesson actors: requests to an object and messages to an actor, and the age of each batch."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import FancyBboxPatch

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, TINTS, new_axes

_GREY = "#404040"
_REQUESTS = 4
_LOOKS = (
    {"color": RED, "marker": "s"},
    {"color": BLUE, "marker": "o"},
    {"color": GREEN, "marker": "^"},
    {"color": "#767676", "marker": "x"},
    {"color": "black", "marker": "+"},
)


def object_and_actor() -> None:
    """Draw a sketch: on the left four threads enter an object at once, on the right one thread empties a mailbox."""
    axes = new_axes("Many threads enter an object, one thread enters an actor", height=2.9)
    axes.set_axis_off()
    axes.set(xlim=(0, 12.4), ylim=(-0.5, 5))
    axes.text(2.5, 4.6, "an object over RPC", ha="center", fontweight="bold", fontsize=9)
    _box(axes, (3.9, 0.2), (1.2, 3.6), "object")
    axes.text(9.3, 4.6, "an actor", ha="center", fontweight="bold", fontsize=9)
    _box(axes, (10.9, 0.2), (1.2, 3.6), "object")
    _box(axes, (7.7, 0.2), (1.2, 3.6), "")
    axes.text(8.3, -0.35, "mailbox", ha="center", fontsize=9)
    for number in range(_REQUESTS):
        height = 3.4 - 0.93 * number
        _message(axes, 0.4, height, number)
        _arrow(axes, (0.7, height), (3.75, height))
        _message(axes, 6.2, height, number)
        _arrow(axes, (6.5, height), (7.9, height))
        _message(axes, 8.3, height, number)
    axes.text(2.2, -0.35, "a server thread for each request", ha="center", fontsize=9)
    _arrow(axes, (9.05, 2.0), (10.75, 2.0))
    axes.text(9.9, 2.2, "one thread", ha="center", fontsize=9)


def ages_of_batches(at_steps: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    """Draw the age of each batch against the step that used it; `at_steps` has the pairs of each generator."""
    axes = new_axes("The batches of the slow generator are the oldest", height=3.2)
    for (name, pairs), look in zip(at_steps.items(), _LOOKS, strict=False):
        steps, ages = zip(*pairs, strict=True) if pairs else ((), ())
        axes.plot(steps, ages, linestyle="", label=name, markersize=5, **look)
    axes.axhline(0, **GUIDE)
    axes.set_xlabel("step of the trainer")
    axes.set_ylabel("age of its batch (steps)")
    axes.figure.legend(loc="outside lower center", ncols=len(at_steps), frameon=False)


def _box(axes, corner, size, text):
    look = {"boxstyle": "round,pad=0.08", "facecolor": "white", "edgecolor": _GREY}
    axes.add_patch(FancyBboxPatch(corner, *size, **look))
    axes.text(corner[0] + size[0] / 2, corner[1] + size[1] / 2, text, ha="center", va="center", fontsize=9)


def _message(axes, left, height, number):
    look = {"boxstyle": "square,pad=0.25", "facecolor": TINTS[number], "edgecolor": _GREY, "linewidth": 0.8}
    axes.text(left, height, str(number), ha="center", va="center", fontsize=8, bbox=look, zorder=3)


def _arrow(axes, begin, end):
    arrow = {"arrowstyle": "->", "color": _GREY, "linewidth": 1.4}
    axes.annotate("", end, begin, arrowprops=arrow)
