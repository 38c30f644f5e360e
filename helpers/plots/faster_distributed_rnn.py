"""Figures of 25_faster_distributed_rnn: when trainer and server compute during a step, and tokens per second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.patches import Patch

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, new_axes

if TYPE_CHECKING:
    from helpers.measure.stopwatch import Step

_LOOKS = {
    "forward": {"facecolor": "#B5D6EC"},
    "backward": {"facecolor": BLUE},
    "optimizer step of both": {"facecolor": GREEN, "hatch": "---"},
    "RPC: nobody computes": {"facecolor": RED, "hatch": "///"},
}
# The label of a bar, by the class of the part.
_NAMES = {"Embedding": "table", "Linear": "decoder", "DecoderWithLoss": "decoder, loss", "CrossEntropyLoss": "loss"}
_SHARES = {
    "computes": {"facecolor": BLUE},
    "waits for the other": {"facecolor": "#D9D9D9"},
    "optimizer step of both": _LOOKS["optimizer step of both"],
    "RPC": _LOOKS["RPC: nobody computes"],
}

_VERSIONS = {
    "one process": {"facecolor": "#D9D9D9"},
    "first": {"facecolor": RED, "hatch": "///"},
    "second": {"facecolor": BLUE},
}


def rpc_steps(steps: Mapping[str, Step]) -> None:
    """Draw what trainer and server compute during a step, and the time in which neither computes between their lanes.

    `steps` maps a heading to a step of the trainer.
    """
    axes = new_axes("One step", height=0.9 + 1.4 * len(steps))
    axes.grid(False, axis="y")
    places, names = [], []
    for number, (heading, step) in enumerate(steps.items()):
        top = 4.5 * number
        axes.text(0, top - 0.05, heading, fontsize="small", fontweight="bold")
        both = [entry for entry in step.here if entry.what == "optimizer"]  # the call ends when both have stepped
        for place, entries in ((1, step.here), (3, [*step.there, *both])):
            for entry in entries:
                look = next((name for name in _LOOKS if entry.what.endswith(name.split()[0])), "forward")
                _bar(axes, entry.begin - step.begin, entry.end - step.begin, top + place, look)
                middle = 1e3 * ((entry.begin + entry.end) / 2 - step.begin)
                part = entry.what.split()[0]
                height = top + place + (-0.6 if place == 1 else 0.65)
                axes.text(middle, height, _NAMES.get(part, part), ha="center", va="center", fontsize=7)
        for begin, end in _gaps(step):
            _bar(axes, begin - step.begin, end - step.begin, top + 2, "RPC: nobody computes")
        places += [top + place for place in (1, 2, 3)]
        names += ["trainer", "between", "server"]
    axes.set_ylim(4.5 * len(steps) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_yticks(places, names, fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time since the step began (ms)")
    handles = [Patch(label=name, **look) for name, look in _LOOKS.items()]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize="small")


def shares_by_rank(shares: Mapping[str, Mapping[str, float]]) -> None:
    """Draw a bar for each rank, divided into the seconds of a step that each kind of activity takes.

    `shares[rank]` maps the name of each kind to its seconds.
    """
    axes = new_axes("Where the time of a step goes", height=0.9 + 0.55 * len(shares))
    axes.grid(False, axis="y")
    for place, seconds in enumerate(shares.values()):
        left = 0.0
        for what, look in _SHARES.items():
            axes.barh(place, 1e3 * seconds[what], left=1e3 * left, height=0.6, edgecolor="white", **look)
            left += seconds[what]
    axes.set_yticks(range(len(shares)), list(shares))
    axes.invert_yaxis()
    axes.set_xlabel("time (ms)")
    handles = [Patch(label=name, **look) for name, look in _SHARES.items()]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize="small")


def step_times(seconds: Mapping[str, Mapping[str, float]], tokens: int) -> None:
    """Draw the tokens per second of one process, of the first and of the second version, for each kind of link.

    `seconds` maps a link to the step time of each version, by name; a step reads `tokens` tokens.
    """
    axes = new_axes("Tokens per second", height=3.4)
    axes.grid(False, axis="x")
    for number, (version, look) in enumerate(_VERSIONS.items()):
        for place, times in enumerate(seconds.values()):
            where = place + 0.27 * (number - 1)
            speed = tokens / times[version]
            axes.bar(where, speed, width=0.25, label="" if place else version, edgecolor="white", **look)
            axes.annotate(f"{speed:,.0f}", (where, speed), (0, 2), textcoords="offset points", ha="center")
    axes.set_xticks(range(len(seconds)), list(seconds))
    axes.set_ylabel("tokens per second")
    axes.axhline(0, color=GUIDE["color"], linewidth=0.8)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _gaps(step):
    """Return the intervals in which neither rank computes, as (begin, end) pairs."""
    gaps, until = [], step.begin
    computed = sorted((entry.begin, entry.end) for entry in [*step.here, *step.there])
    for begin, end in [*computed, (step.end, step.end)]:
        if begin > until:
            gaps.append((until, begin))
        until = max(until, end)
    return gaps


def _bar(axes, begin, end, place, look):
    style = {"edgecolor": "white", "linewidth": 0.4, "zorder": 2, **_LOOKS[look]}
    axes.broken_barh([(1e3 * begin, 1e3 * (end - begin))], (place - 0.4, 0.8), **style)
