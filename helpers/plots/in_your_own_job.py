"""Figures of 51_in_your_own_job: where a job can be observed, and the flight records of all ranks side by side."""

from collections.abc import Sequence
from itertools import zip_longest
from string import ascii_uppercase

from matplotlib.patches import Rectangle

from helpers.plots.style import BLUE, GREEN, RED, TINTS, new_axes

# For each source: who reads or writes it, what it shows, its place in the figure, and its colour.
_SOURCES = (
    ("py-spy reads the memory\nfrom outside", "the stacks, now", 2.0, BLUE),
    ("faulthandler writes to stderr\non a signal or an alarm", "the stacks, now or earlier", 1.3, GREEN),
    ("the flight recorder\nis written to a file", "the collectives so far", 0.6, RED),
    ("an error file for torchrun,\nif the process raised an error", "the error, with its traceback", -0.1, "#404040"),
)


def sources_of_a_job() -> None:
    """Draw a process of a job, and the four sources that tell what it does or did."""
    axes = new_axes("Four sources tell what a rank of a job does, without a notebook", height=3.3)
    axes.axis("off")
    axes.set_xlim(0, 10)
    axes.set_ylim(-0.6, 2.8)
    axes.add_patch(Rectangle((0.1, -0.4), 2.5, 3.1, facecolor=TINTS[0], alpha=0.4))
    axes.text(1.35, 2.45, "a rank of torchrun", ha="center", va="center", fontweight="bold", fontsize="small")
    parts = (
        "Python's stacks",
        "Python's stacks",
        "PyTorch's records\nof its collectives",
        "an error that\nends the process",
    )
    for part, (way, shows, height, colour) in zip(parts, _SOURCES, strict=True):
        axes.text(1.35, height - 0.1, part, ha="center", va="center", fontsize="small")
        arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.5}
        axes.annotate("", (6.9, height - 0.1), (2.7, height - 0.1), arrowprops=arrow)
        look = {"facecolor": "white", "edgecolor": "none", "pad": 2}
        axes.text(4.7, height - 0.1, way, ha="center", va="center", fontsize="small", color=colour, bbox=look)
        axes.text(7.05, height - 0.1, shows, va="center", fontsize="small")


def flight_records(calls: Sequence[Sequence[str]]) -> None:
    """Draw a row of squares for each rank: a square for each of its calls, with a letter for each distinct call.

    `calls[rank]` has the calls of a rank as text. A frame marks the first call that differs.
    """
    rows = enumerate(zip_longest(*calls), start=1)
    number = next(number for number, row in rows if len({*row}) > 1)
    kinds = list(dict.fromkeys(call for rank_calls in calls for call in rank_calls))
    longest = max(map(len, calls))
    height = 0.5 * len(calls) + 0.25 * len(kinds) + 1.2
    axes = new_axes(f"The ranks make different calls from call {number} on", width=7.2, height=height)
    for rank, rank_calls in enumerate(calls):
        for place, call in enumerate(rank_calls, start=1):
            kind = kinds.index(call)
            axes.add_patch(Rectangle((place - 0.45, rank - 0.4), 0.9, 0.8, facecolor=TINTS[kind % len(TINTS)]))
            axes.text(place, rank, ascii_uppercase[kind % 26], ha="center", va="center")
    frame = {"fill": False, "edgecolor": RED, "linewidth": 2.5}
    axes.add_patch(Rectangle((number - 0.5, -0.47), 1, len(calls) - 0.06, **frame))
    axes.set_xlim(0.4, longest + 0.6)
    axes.set_ylim(len(calls) - 0.4, -0.6)
    axes.set_xticks(range(1, longest + 1))
    axes.set_yticks(range(len(calls)), [f"rank {rank}" for rank in range(len(calls))])
    key = "\n".join(f"{ascii_uppercase[kind % 26]}: {call}" for kind, call in enumerate(kinds))
    axes.set_xlabel(f"number of the call\n\n{key}")
    axes.grid(visible=False)
    axes.tick_params(length=0)
