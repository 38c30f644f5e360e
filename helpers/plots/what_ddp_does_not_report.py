"""Figures of 14_what_ddp_does_not_report: what DDP sends of the state of the ranks, and how replicas differ."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from helpers.plots.style import BLUE, RED, TINTS, new_axes

# A part of a rank's state, what DDP sends of it, and the arrow between the ranks.
_STATE = [
    ("weights", "broadcast from rank 0, once", "-|>"),
    ("gradients", "averaged in every step", "<|-|>"),
    ("buffers", "broadcast from rank 0", "-|>"),
    ("optimizer's state", "nothing is sent", ""),
    ("random generator", "nothing is sent", ""),
    ("order of the data", "nothing is sent", ""),
]
_WIDTH, _RIGHT = 2.3, 6.1  # of a box, and the place of rank 1's boxes


def state_of_ranks() -> None:
    """Draw the state of two ranks on which the next step depends, and arrows for what DDP sends of it."""
    axes = new_axes("Of this state, DDP sends only weights, gradients and buffers", width=7.2, height=2.9)
    axes.set_axis_off()
    axes.set(xlim=(-0.1, _RIGHT + _WIDTH + 0.1), ylim=(len(_STATE) - 0.1, -0.75))
    for rank, left in enumerate((0, _RIGHT)):
        axes.text(left + _WIDTH / 2, -0.35, f"rank {rank}", ha="center", va="center", fontsize=9, fontweight="bold")
    for row, (name, sent, arrow) in enumerate(_STATE):
        middle = row + 0.4
        for left in (0, _RIGHT):
            look = {"facecolor": TINTS[0]} if arrow else {"facecolor": "white", "linestyle": "--"}
            axes.add_patch(Rectangle((left, row), _WIDTH, 0.8, edgecolor="#404040", linewidth=0.8, **look))
            axes.text(left + _WIDTH / 2, middle, name, ha="center", va="center", fontsize=9)
        if arrow:
            ends = (_RIGHT - 0.1, middle), (_WIDTH + 0.1, middle)
            axes.annotate("", *ends, arrowprops={"arrowstyle": arrow, "color": "#404040"})
        box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0}
        axes.text((_WIDTH + _RIGHT) / 2, middle, sent, ha="center", va="center", fontsize=8, bbox=box)


def drifting_bias(differences: Mapping[str, Sequence[float]]) -> None:
    """Draw the difference of a bias between two ranks after each step, a line for each training."""
    axes = new_axes("Averaged gradients leave the difference as it is", width=7.2, height=2.8)
    looks = ({"color": BLUE, "marker": "o"}, {"color": RED, "marker": "s", "linestyle": "--"})
    for (name, of_training), look in zip(differences.items(), looks, strict=True):
        steps = range(1, len(of_training) + 1)
        axes.plot(steps, of_training, markersize=4, **look)
        axes.text(len(of_training) + 0.4, of_training[-1], name, color=look["color"], va="center", fontsize=9)
    highest = max(max(of_training) for of_training in differences.values())
    axes.set(xlim=(0.5, 25.5), ylim=(0, 1.25 * highest), xlabel="step", ylabel="rank 1 minus rank 0")
    axes.set_xticks([1, 5, 10, 15, 20])
