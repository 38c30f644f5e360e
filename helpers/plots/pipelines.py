"""Figures of 34_pipelines and the lessons after it: stages, their schedule, the bubble, and what a stage keeps."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from helpers.plots.style import BLUE, GUIDE, MEASURED, MODEL, RED, TINTS, label_rows, new_axes

# A forward is light with a dark number, a backward is dark with a light number.
LOOKS = {"F": ("#B5D6EC", "black"), "B": (BLUE, "white")}
IDLE = "#F1F1F1"  # where a stage waits
_HEADING = 1.0  # the height of the line above the rows of a step
_OUTLINE = {"fill": False, "edgecolor": RED, "linewidth": 1.8}

Event = tuple[str, int, float, float]


def stages_of_a_model(stages: int) -> None:
    """Draw a model split into stages, a box for each, with the messages that stages exchange."""
    axes = new_axes("Each stage exchanges messages only with its neighbours", width=7.6, height=1.9)
    axes.set_axis_off()
    axes.set(xlim=(-1.1, stages - 0.3), ylim=(-0.6, 0.55))
    for stage in range(stages):
        look = {"boxstyle": "round,pad=0.6", "facecolor": TINTS[stage % 8], "edgecolor": "#404040"}
        axes.text(stage, 0, f"stage {stage}\nlayer {stage}", ha="center", va="center", fontsize=9, bbox=look, zorder=3)
    for stage in range(-1, stages - 1):
        _message(axes, stage + 0.3, stage + 0.7, 0.14, color=BLUE, linestyle="-")
    for stage in range(stages - 1):
        _message(axes, stage + 0.7, stage + 0.3, -0.14, color=RED, linestyle="--")
    axes.text(-0.9, 0.14, "inputs", ha="center", va="center", fontsize=9, color=BLUE)
    axes.text(stages - 0.72, 0, "targets,\nloss", ha="left", va="center", fontsize=9, color="#404040")
    middle = (stages - 1) / 2
    axes.text(middle, 0.38, "forward: activations (solid)", ha="center", color=BLUE, fontsize=9)
    axes.text(middle, -0.5, "backward: gradients of the activations (dashed)", ha="center", color=RED, fontsize=9)


def pipeline_steps(title: str, steps: Mapping[str, Sequence[Sequence[Event]]], outline: bool = False) -> None:
    """Draw the work of each stage during a step: a box for each forward and backward, with its micro-batch's number.

    `steps` maps a heading to the events of each stage: kind ("F", "B"), micro-batch, begin and end in seconds. Each
    step begins at 0 with the first event of any stage, and all steps share one axis. `outline` marks the boxes of each
    step's critical path.
    """
    outlined = {event for events_by_stage in steps.values() for event in critical_path(events_by_stage)}

    def draw_box(axes, event, left, width, top):
        _box(axes, event, left, width, top)
        if outline and tuple(event) in outlined:
            axes.barh(top + 0.5, width, left=left, height=0.9, zorder=4, **_OUTLINE)

    axes = work_of_rows(title, steps, row="stage", width=7.6, draw_box=draw_box)
    name_boxes(axes, {"forward": LOOKS["F"][0], "backward": LOOKS["B"][0]}, outline="critical path" if outline else "")


def critical_path(events_by_stage: Sequence[Sequence[Event]]) -> list[Event]:
    """Return the events that decide how long a step takes, from the first to the last.

    Each event waits for the event before it: of the same stage, or of the neighbour that sends its message.
    """
    of_stage = [sorted(map(tuple, events), key=lambda event: event[-1]) for events in events_by_stage]
    stage = max(range(len(of_stage)), key=lambda stage: of_stage[stage][-1][-1])
    path = [of_stage[stage][-1]]
    while True:
        kind, number, *_ = path[0]
        sender = stage - 1 if kind == "F" else stage + 1
        before = [(event, stage) for event in of_stage[stage] if event[-1] < path[0][-1]][-1:]
        if 0 <= sender < len(of_stage):
            before += [(event, sender) for event in of_stage[sender] if event[:2] == (kind, number)]
        if not before:
            return path
        event, stage = max(before, key=lambda candidate: candidate[0][-1])
        path.insert(0, event)


def work_of_rows(
    title: str, steps: Mapping[str, Sequence[Sequence[tuple]]], row: str, width: float, draw_box: Callable
) -> Axes:
    """Draw each step under its heading, with a row for each stage or rank, and return the axes.

    Every event ends with its begin and its end. `draw_box(axes, event, left, width, top)` draws an event in the row
    below `top`, in milliseconds.
    """
    rows = sum(len(events_by_row) + _HEADING for events_by_row in steps.values())
    axes = new_axes(title, width=width, height=1.0 + 0.3 * rows)
    axes.grid(False)
    places, names, top = [], [], 0.0
    for heading, events_by_row in steps.items():
        origin = min(event[-2] for events in events_by_row for event in events)
        end = max(event[-1] for events in events_by_row for event in events)
        top += _HEADING
        axes.text(0, top - 0.25, heading, fontsize="small", fontweight="bold")
        for number, events in enumerate(events_by_row):
            axes.barh(top + 0.5, 1e3 * (end - origin), height=0.9, color=IDLE, zorder=1)
            for event in events:
                draw_box(axes, event, 1e3 * (event[-2] - origin), 1e3 * (event[-1] - event[-2]), top)
            places.append(top + 0.5)
            names.append(f"{row} {number}")
            top += 1
    axes.set_ylim(top, 0.4)
    label_rows(axes, places, names)
    axes.set_xlabel("time since the step began (ms)")
    return axes


def name_boxes(axes: Axes, colours: Mapping[str, str], idle: str = "bubble", outline: str = "") -> None:
    """Name the colours of the boxes, the idle time and the outlined boxes in a legend below the figure."""
    handles = [Patch(facecolor=colour, label=name) for name, colour in (colours | {idle: IDLE}).items()]
    if outline:
        handles.append(Patch(label=outline, **_OUTLINE))
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize="small")


def bubbles(measured: Mapping[str, Mapping[int, float]], formula: Mapping[int, float]) -> None:
    """Draw the bubble fraction of a step against the number of micro-batches, measured and by the formula.

    `measured` maps the name of a schedule to its fractions, 0 to 1, by the number of micro-batches.
    """
    axes = new_axes("More micro-batches shrink the bubble", height=3.6)
    axes.plot(list(formula), list(formula.values()), **MODEL)
    looks = (MEASURED, {**MEASURED, "marker": "s", "color": "#404040", "markerfacecolor": "none", "markersize": 10})
    for (name, shares), look, rise in zip(measured.items(), looks, (18, 4), strict=False):
        axes.plot(list(shares), list(shares.values()), **look)
        fewest = min(shares)
        place = (fewest, shares[fewest])
        axes.annotate(f"{name}, measured", place, (12, rise), textcoords="offset points", color=look["color"])
    places = list(formula)
    axes.annotate(
        "formula", (places[-2], formula[places[-2]]), (-14, -14), textcoords="offset points", ha="right", color=RED
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [str(number) for number in formula])
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set_xlabel("micro-batches")
    axes.set_ylabel("idle fraction of a step")


def kept_over_time(kept: Mapping[str, Sequence[int]]) -> None:
    """Draw the number of micro-batches that a stage keeps after each of its actions, a line for each schedule."""
    axes = new_axes("On stage 0 GPipe keeps all micro-batches, 1F1B a few", height=3.0)
    looks = ({"color": RED, "linestyle": "--"}, {"color": BLUE, "linestyle": "-"})
    for (name, numbers), look in zip(kept.items(), looks, strict=False):
        actions = range(len(numbers) + 1)
        axes.step(actions, [0, *numbers], where="post", linewidth=2, **look)
        most = max(numbers)
        place = numbers.index(most) + 1
        where = {"textcoords": "offset points", "ha": "right", "color": look["color"]}
        axes.annotate(f"{name}: {most}", (place, most), (-4, 2), **where)
    axes.axhline(0, color=GUIDE["color"], linewidth=0.8)
    axes.set_ylim(0, 1.25 * max(map(max, kept.values())))
    axes.set_xlabel("forwards and backwards done")
    axes.set_ylabel("micro-batches kept")


def _message(axes, begin, end, height, **look):
    axes.annotate("", (end, height), (begin, height), arrowprops={"arrowstyle": "->", "linewidth": 1.6, **look})


def _box(axes, event, left, width, top):
    kind, number, *_ = event
    fill, ink = LOOKS[kind]
    axes.barh(top + 0.5, width, left=left, height=0.9, color=fill, edgecolor="white", linewidth=0.6, zorder=2)
    axes.text(left + width / 2, top + 0.5, str(number), color=ink, fontsize=7, ha="center", va="center", zorder=3)
