"""Figure of 45_in_your_own_job: the collectives of all ranks side by side, from their flight records."""

from collections.abc import Sequence
from string import ascii_uppercase

from matplotlib.patches import Rectangle

from helpers.plots.style import RED, TINTS, new_axes


def flight_records(calls: Sequence[Sequence[str]], number: int) -> None:
    """Draw a row of squares for each rank: a square for each of its calls, with a letter for each distinct call.

    `calls[rank]` has the calls of a rank as text. A frame marks the first call that differs, `number`, counted from 1.
    """
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
