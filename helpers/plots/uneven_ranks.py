"""The figures of 13_uneven_ranks: a sketch of uneven ranks, and steps whose waiting differs from their transfer."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from helpers.measure.intervals import Interval
from helpers.plots.style import BLUE, RED, TINTS, label_rows, new_axes

_LOOKS = {
    "loading": {"facecolor": "#767676"},
    "forward": {"facecolor": "#B5D6EC"},
    "backward": {"facecolor": BLUE},
    "waiting": {"facecolor": "white", "edgecolor": "#404040", "hatch": "xxx"},
    "transfer": {"facecolor": RED},
}
_COMMUNICATION = ("waiting", "transfer")
_GAP, _HEADING = 0.5, 1.5  # the heights of a gap below a rank and of a heading, where a lane has height 1


def two_kinds_of_uneven() -> None:
    """Draw a sketch of four ranks: on the left with unequal numbers of batches, on the right with one late rank."""
    axes = new_axes("Ranks differ in how many batches they have, or in how long a batch takes", width=7.8, height=2.4)
    axes.set_axis_off()
    axes.set(xlim=(-1.2, 13.2), ylim=(4.2, -1.0))
    axes.text(0, -0.4, "unequal numbers of batches", fontsize=9, fontweight="bold")
    axes.text(7.2, -0.4, "unequal times for one batch", fontsize=9, fontweight="bold")
    for rank in range(4):
        axes.text(-0.2, rank + 0.4, f"rank {rank}", fontsize=8, ha="right", va="center")
        for batch in range(rank + 1):
            _box(axes, f"batch {batch}", 1.4 * batch, rank, 1.3, TINTS[0])
        _box(axes, "loading", 7.2, rank, 3.6 if rank == 3 else 1.3, TINTS[4])
        _box(axes, "batch 0", 10.9 if rank == 3 else 8.6, rank, 1.3, TINTS[0])


def waiting_and_transfer(title: str, steps: Mapping[str, Sequence[Sequence[Interval]]]) -> None:
    """Draw what each rank does in a step: its computation above, its waiting (hatched) and its transfers below.

    `steps` maps a heading to the intervals of each rank, named "loading", "forward", "backward", "waiting" or
    "transfer". Each step begins at 0 with the first interval of any of its ranks, and all steps share one axis.
    """
    lanes = sum(_HEADING + len(ranks) * (2 + _GAP) for ranks in steps.values())
    axes = new_axes(title, width=7.2, height=1.1 + 0.17 * lanes)
    axes.grid(False, axis="y")
    places, names, top = [], [], 0.0
    for heading, ranks in steps.items():
        origin = min(interval.begin for intervals in ranks for interval in intervals)
        top += _HEADING
        axes.text(0, top - 0.3, heading, fontsize="small", fontweight="bold")
        for rank, intervals in enumerate(ranks):
            for name, begin, end in intervals:
                lane = top + 1 if name in _COMMUNICATION else top
                axes.broken_barh([(1e3 * (begin - origin), 1e3 * (end - begin))], (lane, 1), zorder=2, **_LOOKS[name])
            places.append(top + 1)
            names.append(f"rank {rank}")
            top += 2 + _GAP
    axes.set_ylim(top, 0)
    label_rows(axes, places, names)
    axes.set_xlabel("time since the step began (ms)")
    handles = [Patch(label=name, **look) for name, look in _LOOKS.items()]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)


def _box(axes: Axes, text, x, y, width, colour):
    axes.broken_barh([(x, width)], (y, 0.8), facecolor=colour, edgecolor="#404040", linewidth=0.8)
    axes.text(x + width / 2, y + 0.4, text, ha="center", va="center", fontsize=8)
