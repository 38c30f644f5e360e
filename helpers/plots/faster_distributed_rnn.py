"""Figures of 26_faster_distributed_rnn: the chain of a step, when each rank computes, and tokens per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from matplotlib.patches import Patch

from helpers.plots.style import BLUE, GREEN, RED, TINTS, label_rows, new_axes

if TYPE_CHECKING:
    from helpers.measure.stopwatch import Entry, Step

_FORWARD, _BACKWARD = {"facecolor": "#B5D6EC"}, {"facecolor": BLUE}
_LOOKS = {
    "forward": _FORWARD,
    "backward": _BACKWARD,
    "optimizer": {"facecolor": GREEN, "hatch": "---"},
    "waits while the other computes": {"facecolor": "#F1F1F1", "edgecolor": "#A0A0A0", "hatch": "..."},
    "neither computes: RPC": {"facecolor": RED, "hatch": "///"},
}
_WORKS, _WAITS = 0.8, 0.3  # heights of bars
_SMALL = {"ha": "center", "va": "center", "fontsize": 7}
# The label of a bar, by the class of the part.
_NAMES = {
    "Embedding": "table",
    "Linear": "decoder",
    "CrossEntropyLoss": "loss",
    "DecoderWithLoss": "decoder, loss",
    "MyDecoder": "decoder, loss",
}
_TRAINER, _SERVER = 1, 0  # heights of the lanes of a chain
_CHAIN = (
    ("table", _SERVER, _FORWARD),
    ("LSTM", _TRAINER, _FORWARD),
    ("decoder", _SERVER, _FORWARD),
    ("loss", _TRAINER, _FORWARD),
    ("loss", _TRAINER, _BACKWARD),
    ("decoder", _SERVER, _BACKWARD),
    ("LSTM", _TRAINER, _BACKWARD),
    ("table", _SERVER, _BACKWARD),
)
_MESSAGES = (
    "vectors",
    "output",
    "logits",
    "",
    "gradient of\nthe logits",
    "gradient of\nthe output",
    "gradient of\nthe vectors",
)
_VARIANTS = {
    "one process": {"facecolor": "#D9D9D9"},
    "logits": {"facecolor": RED, "hatch": "///"},
    "few bytes": {"facecolor": BLUE},
    "in halves": {"facecolor": GREEN, "hatch": "---"},
}


def step_chain() -> None:
    """Draw the parts of a split model in the order in which a step computes them, and the messages between them."""
    axes = new_axes("A step is a chain: seven times, a rank waits for a message from the other", height=2.9)
    axes.axis("off")
    axes.set_xlim(-2.5, 7.6)
    axes.set_ylim(-0.75, 1.6)
    for lane, name, colour in ((_TRAINER, "trainer", TINTS[0]), (_SERVER, "server", TINTS[1])):
        axes.axhspan(lane - 0.3, lane + 0.3, facecolor=colour, alpha=0.35)
        axes.text(-2.4, lane, name, va="center", fontweight="bold")
    axes.text(-0.95, _TRAINER, "words", ha="center", va="center", fontsize="small")
    _message(axes, (-0.9, _TRAINER - 0.2), (-0.1, _SERVER + 0.2))
    for place, (part, lane, look) in enumerate(_CHAIN):
        text = "white" if look is _BACKWARD else "black"
        box = {"boxstyle": "round,pad=0.4", "edgecolor": "#404040", **look}
        axes.text(place, lane, part, ha="center", va="center", fontsize="small", color=text, bbox=box, zorder=3)
    for place, ((_, lane, _), (_, next_lane, _)) in enumerate(pairwise(_CHAIN)):
        side, rise = (0.1, 0.2) if next_lane > lane else (0.1, -0.2) if next_lane < lane else (0.35, 0.0)
        _message(axes, (place + side, lane + rise), (place + 1 - side, next_lane - rise))
        axes.text(
            place + 0.5, 0.5, _MESSAGES[place], bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}, **_SMALL
        )
    axes.text(1.5, -0.65, "forward pass", ha="center", fontsize="small")
    axes.text(5.5, -0.65, "backward pass", ha="center", fontsize="small")
    axes.axvline(3.5, color="#767676", linestyle=":", linewidth=1)


def rpc_steps(title: str, steps: Mapping[str, Step]) -> None:
    """Draw what trainer and server compute during a step, and between their lanes the time in which neither computes.

    `steps` maps a heading to a step of the trainer.
    """
    axes = new_axes(title, height=1.0 + 1.4 * len(steps))
    axes.grid(False, axis="y")
    places, names = [], []
    for number, (heading, step) in enumerate(steps.items()):
        top = 4.5 * number
        axes.text(0, top - 0.05, heading, fontsize="small", fontweight="bold")
        lanes = {1: step.trainer, 3: step.server}
        nobody = _gaps([*step.trainer, *step.server], step)
        for place, entries in lanes.items():
            for begin, end in _gaps(entries, step, nobody):
                _bar(axes, begin - step.begin, end - step.begin, top + place, "waits while the other computes", _WAITS)
            for entry in entries:
                _bar(axes, entry.begin - step.begin, entry.end - step.begin, top + place, entry.what.split()[-1])
            height = top + place + (-0.6 if place == 1 else 0.65)
            for what, run in groupby(sorted(entries, key=lambda entry: entry.begin), key=lambda entry: entry.what):
                _label(axes, what, list(run), step.begin, height)
        for begin, end in nobody:
            _bar(axes, begin - step.begin, end - step.begin, top + 2, "neither computes: RPC")
        places += [top + place for place in (1, 2, 3)]
        names += ["trainer", "between", "server"]
    axes.set_ylim(4.5 * len(steps) - 0.5, -0.5)
    label_rows(axes, places, names)
    axes.set_xlabel("time since the step began (ms)")
    handles = [Patch(label=name, **look) for name, look in _LOOKS.items()]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize="small")


def tokens_per_second(title: str, runs: Mapping[str, Mapping[str, Sequence[float]]], tokens: int) -> None:
    """Draw the tokens per second of each variant and kind of link: the fastest run as a bar, each run as a stroke.

    `runs` maps a link to the seconds of every run of each variant; a step reads `tokens` tokens.
    """
    rows = sum(len(variants) + 1.2 for variants in runs.values())
    axes = new_axes(title, height=0.9 + 0.3 * rows)
    axes.grid(False, axis="y")
    top, places, names = 0.0, [], []
    for link, variants in runs.items():
        axes.text(0, top + 0.1, link, fontsize="small", fontweight="bold", va="center")
        for place, (variant, look) in enumerate(_VARIANTS.items()):
            height, seconds = top + 1 + place, variants[variant]
            speed = tokens / min(seconds)
            axes.barh(height, speed, height=0.7, edgecolor="white", **look)
            axes.plot([tokens / run for run in seconds], [height] * len(seconds), "|", color="black", markersize=5)
            axes.annotate(
                f"{speed:,.0f}", (speed, height), (5, 0), textcoords="offset points", va="center", fontsize="small"
            )
            places.append(height)
            names.append(variant)
        top += len(variants) + 1.2
    axes.set_ylim(top - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_yticks(places, names, fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("tokens per second: bar = fastest run, stroke = each run")


def _gaps(entries: Sequence[Entry], step: Step, others: Sequence[tuple[float, float]] = ()):
    """Return the intervals of a step, as (begin, end) pairs, that neither an entry nor one of the `others` covers."""
    gaps, until = [], step.begin
    covered = sorted([*others, *((entry.begin, entry.end) for entry in entries)])
    for begin, end in [*covered, (step.end, step.end)]:
        if begin > until:
            gaps.append((until, begin))
        until = max(until, end)
    return gaps


def _bar(axes, begin, end, place, look, height=_WORKS):
    style = {"edgecolor": "white", "linewidth": 0.4, "zorder": 2, **_LOOKS[look]}
    axes.broken_barh([(1e3 * begin, 1e3 * (end - begin))], (place - height / 2, height), **style)


def _label(axes, what, run, origin, height):
    """Name a part below or above its bars, of which there are several if it ran on the halves of a window."""
    name = _NAMES.get(part := what.split()[0], part)
    middle = 1e3 * ((min(entry.begin for entry in run) + max(entry.end for entry in run)) / 2 - origin)
    axes.text(middle, height, name if len(run) == 1 else f"{name} (halves)", **_SMALL)


def _message(axes, begin, end):
    axes.annotate("", end, begin, arrowprops={"arrowstyle": "->", "color": "#404040", "shrinkA": 0, "shrinkB": 0})
