"""The opening figure of 18_a_backend_of_your_own: what a collective passes through."""

from matplotlib.patches import FancyBboxPatch

from helpers.plots.style import BLUE, RED, TINTS, new_axes

_GREY = "#404040"
_SHARED = ("your training loop", "DistributedDataParallel", "torch.distributed: dist.all_reduce(tensor)")
_GLOO = ("gloo, a backend in C++", "its TCP connections")
_OWN = ("class Ring, in this notebook", "your sockets")


def behind_a_name() -> None:
    """Draw the layers between a training loop and the network, with gloo and with a backend of the learner's own."""
    axes = new_axes("Behind a name: torch calls the backend, and the backend talks to the other ranks", height=3.4)
    axes.set_axis_off()
    axes.set(xlim=(0, 10), ylim=(0, 5.4))
    for layer, text in enumerate(_SHARED):
        _box(axes, text, (1.2, 4.5 - layer), 7.6, TINTS[4])
    for left, name, layers, colour, tint in ((1.2, "gloo", _GLOO, BLUE, TINTS[0]), (5.4, "ring", _OWN, RED, TINTS[5])):
        middle = left + 1.7
        look = {"arrowstyle": "->", "color": colour, "linewidth": 1.8}
        axes.annotate("", (middle, 1.85), (middle, 2.5), arrowprops=look)
        axes.text(middle + 0.15, 2.15, f'"{name}"', color=colour, va="center", fontweight="bold", family="monospace")
        for layer, text in enumerate(layers):
            _box(axes, text, (left, 1.15 - layer), 3.4, tint)


def _box(axes, text, corner, width, colour):
    height = 0.62
    style = "round,pad=0.05"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=colour, edgecolor=_GREY))
    axes.text(corner[0] + width / 2, corner[1] + height / 2, text, ha="center", va="center", fontsize=9)
