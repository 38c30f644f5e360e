"""Figure of 26_several_trainers: when each trainer was in a step, and which steps failed or were stale."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Patch

from helpers.plots.style import BLUE, RED, new_axes

_LOOKS = {
    "fresh": {"facecolor": "#B5D6EC"},
    "stale": {"facecolor": BLUE, "hatch": "---"},
    "fails": {"facecolor": RED, "hatch": "///"},
}
_SHOWN = 8  # steps of the slowest trainer


def trainer_steps(steps: Mapping[str, Sequence[tuple[float, float, str]]]) -> None:
    """Draw the first steps of each trainer as bars, and a line through all trainers where a step ended with an update.

    `steps` maps the name of a trainer to its steps. A step has its begin and end, in seconds on one clock, and its
    outcome: "fresh", "stale" or "fails".
    """
    start = min(own[0][0] for own in steps.values())
    until = max(own[:_SHOWN][-1][1] for own in steps.values())
    first = {name: [step for step in own if step[0] < until] for name, own in steps.items()}
    axes = new_axes("The steps of trainers that share a decoder", height=1.3 + 0.6 * len(steps))
    axes.grid(False, axis="y")
    for place, own in enumerate(first.values()):
        for begin, end, outcome in own:
            bar = 1e3 * (begin - start), 1e3 * (end - begin)
            axes.broken_barh([bar], (place - 0.3, 0.6), edgecolor="white", linewidth=0.8, zorder=2, **_LOOKS[outcome])
            if outcome != "fails":
                axes.axvline(1e3 * (end - start), color="#404040", linewidth=0.8, linestyle=":", zorder=3)
    axes.set_yticks(range(len(first)), list(first))
    axes.set_ylim(len(first) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("time since the first step began (ms)")
    handles = [Patch(label=f"step that {_said(name)}", **look) for name, look in _LOOKS.items()]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize="small")


def _said(outcome):
    return outcome if outcome == "fails" else f"is {outcome}"
