"""Figures of 37_pipedream: a pipeline that drains at every flush, and the loss with stale weights."""

from collections.abc import Sequence

from helpers.plots.pipelines import IDLE, LOOKS, name_boxes
from helpers.plots.style import GUIDE, MEASURED, MODEL, label_rows, new_axes

_TICKS = {"F": 1, "B": 2}


def flushed_pipeline(stages: int, steps: int) -> None:
    """Draw steps of 1F1B on paper, one after the other, with as many micro-batches in each step as there are stages."""
    axes = new_axes("At every flush the pipeline drains", width=7.6, height=0.9 + 0.36 * (stages + 1))
    axes.grid(False)
    length = 3 * (2 * stages - 1)
    for stage in range(stages):
        axes.barh(stage, steps * length, height=0.9, left=0, color=IDLE, zorder=1)
    for kind, number, stage, begin in _boxes(stages):
        fill, ink = LOOKS[kind]
        for step in range(steps):
            left, width = step * length + begin, _TICKS[kind]
            axes.barh(stage, width, left=left, height=0.9, color=fill, edgecolor="white", linewidth=0.6, zorder=2)
            text = str(step * stages + number)
            axes.text(left + width / 2, stage, text, color=ink, fontsize=6, ha="center", va="center", zorder=3)
    for step in range(1, steps + 1):
        axes.axvline(step * length, **GUIDE)
        axes.text(step * length - 0.3, -0.7, "flush, update", ha="right", fontsize="small", color="#404040")
    axes.set_ylim(stages - 0.4, -1.2)
    label_rows(axes, list(range(stages)), [f"stage {stage}" for stage in range(stages)])
    axes.set_xlim(right=steps * length)
    axes.set_xticks([])
    axes.set_xlabel("time")
    name_boxes(axes, {"forward": LOOKS["F"][0], "backward": LOOKS["B"][0]}, idle="idle")


def stale_losses(prompt: Sequence[float], stale: Sequence[float]) -> None:
    """Draw the loss of each batch, for one process and for a pipeline whose weights are stale."""
    axes = new_axes("With stale weights the loss falls some batches later", height=3.2)
    axes.plot(list(prompt), **MODEL)
    axes.plot(list(stale), **MEASURED)
    place = len(stale) // 6
    axes.annotate("PipeDream", (place, stale[place]), (10, 6), textcoords="offset points", color=MEASURED["color"])
    axes.annotate(
        "one process", (place, prompt[place]), (-8, -14), textcoords="offset points", ha="right", color=MODEL["color"]
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch")
    axes.set_ylabel("loss (mean squared error)")


def _boxes(stages):
    """Return kind, micro-batch, stage and first tick of every action in a step of 1F1B."""
    orders = []
    for stage in range(stages):
        ahead = stages - stage
        order = [("F", number) for number in range(ahead)]
        for number in range(stages):
            order += [("B", number)] + [("F", ahead + number)] * (ahead + number < stages)
        orders.append(order)
    boxes, ends, free = [], {}, [0] * stages
    while any(orders):
        for stage, order in enumerate(orders):
            while order:
                kind, number = order[0]
                before = stage - 1 if kind == "F" else stage + 1
                if 0 <= before < stages and (kind, number, before) not in ends:
                    break
                begin = max(free[stage], ends.get((kind, number, before), 0))
                free[stage] = ends[kind, number, stage] = begin + _TICKS[kind]
                boxes.append((kind, number, stage, begin))
                order.pop(0)
    return boxes
