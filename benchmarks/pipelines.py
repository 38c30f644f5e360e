"""The bubble of a pipeline, measured with layers that sleep, beside the formula: both schedules of 34_pipelines."""

import ipyparallel as ipp

from benchmarks import lesson
from helpers import World

NOTEBOOK = "34_pipelines.ipynb"
TURNS = 3
STAGES = (2, 4)
MICRO_BATCHES = (1, 2, 4, 8)
SCHEDULES = {"gpipe": "GPipe", "order_of_the_lesson": "1F1B"}
DEFINITIONS = [
    "Layer",
    "send",
    "finish",
    "forward",
    "backward_of_the_lesson",
    "gradients",
    "sleep",
    "Sleep",
    "SlowLayer",
    "run",
    "step",
    *SCHEDULES,
]
# A forward of one sample sleeps 20 ms, so that what messages cost is little beside it.
SETUP = """
width, samples, works, events, slowness = 8, 24, [], [], 1
seconds = {"F": 0.020, "B": 0.040}
inputs, targets = torch.randn(2, samples, width, dtype=torch.float64)
stage = SlowLayer(rank)
backward = backward_of_the_lesson

def timed(schedule, m):
    step(schedule, m)
    return events[0][2], events[-1][3]
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    table = []
    for stages in STAGES:
        world = World(stages)
        try:
            world.view.execute(lesson.setup(NOTEBOOK) + "\n" + lesson.definitions(NOTEBOOK, *DEFINITIONS) + SETUP)
            for schedule, name in SCHEDULES.items():
                table += [_row(world, schedule, name, m) for m in MICRO_BATCHES]
        finally:
            world.stop()
    return table


def _row(world, schedule, name, m):
    formula = (world.size - 1) / (m + world.size - 1)
    share = min(_bubble(world, schedule, m) for _ in range(TURNS))  # what disturbs makes it larger
    what = f"bubble, {name}, {world.size} stages, m = {m}"
    return [what, f"{share:.1%}", f"{formula:.1%}, the formula", f"{share / formula:.3f}"]


def _bubble(world, schedule, m):
    times = world.view.apply_async(ipp.Reference("timed"), ipp.Reference(schedule), m).get()
    begin = min(begin for begin, _ in times)
    end = max(end for _, end in times)
    return 1 - 24 * 0.060 / (end - begin)
