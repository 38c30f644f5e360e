"""A drill rather than a measurement: a rank of a training is killed at a random moment, and the others go on.

The code of the ranks is that of ranks_come_and_go. Each time the survivors have to end with the weights of one process,
and at the end of it all no process and no file may be left but those that multiprocessing keeps for the next world.
"""

import os
import random
import signal
import time
from statistics import median

import ipyparallel as ipp
from tqdm import tqdm

from benchmarks import interrupts, lesson
from helpers import World
from helpers.measure import interruption

MOMENTS = 20
STEPS = 300
_NOTEBOOK = "40_ranks_come_and_go.ipynb"
_SECONDS = 2.5  # from the beginning of a training, within which the kill comes
_SECONDS_TO_GO_ON = 90


def rows() -> list[list]:
    """Kill a rank so many times, and return a row of what became of it."""
    cells = cells_of_ranks()
    world = World(4)
    interruption.run_cells(world, range(4), cells, SEED=0)
    outcomes = []
    for number in tqdm(range(MOMENTS), desc="kills"):
        outcomes.append(kill_once(world, str(number), cells, random.uniform(0, _SECONDS)))
    world.stop()
    went_on = sum(went_on for went_on, _ in outcomes)
    seconds = [seconds for _, seconds in outcomes if seconds is not None]
    return [
        [
            f"a rank of 4 killed at {MOMENTS} random moments",
            f"went on to the right weights {went_on} times",
            f"left: {interrupts.what_is_left() or 'nothing'}",
            "",
        ],
        [
            f"from the kill to the next step, {len(seconds)} kills in the middle of a training",
            f"{median(seconds):.2f} s",
            f"at most {max(seconds):.2f} s",
            "",
        ],
    ]


def cells_of_ranks() -> list[str]:
    """Return the cells of the lesson that every new rank runs."""
    return lesson.marked(_NOTEBOOK, interruption.MARK)


def kill_once(world: World, run: str, cells: list[str], seconds: float) -> tuple[bool, float | None]:
    """Have the ranks train, kill one after so many seconds, and bring it back when the others have ended.

    Return whether all the others ended with the weights of one process, and the seconds from the kill to their first
    step without it, None when the training had not begun or was over.
    """
    world.view.apply_sync(ipp.Reference("begin"), run)
    victim = random.randrange(world.size)
    others = [rank for rank in range(world.size) if rank != victim]
    training = world.view.client[others].apply_async(ipp.Reference("train"), STEPS)
    world.view.client[victim].apply_async(ipp.Reference("train"), STEPS)
    time.sleep(seconds)
    os.kill(world.pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    histories = training.get(_SECONDS_TO_GO_ON)
    world.view.client[others].execute("right = training.step, equals_single_process(training)", block=True)
    went_on = world.view.client[others]["right"] == [(STEPS, True)] * len(others)
    steps = [(when, members) for history in histories for _, when, members in history]
    names = [{int(process.partition(".")[0]) for process in members} for _, members in steps]
    after = [
        when - killed for (when, _), alive in zip(steps, names, strict=True) if when > killed and victim not in alive
    ]
    world.restart(rank=victim)
    interruption.run_cells(world, [victim], cells, SEED=0)
    return went_on, min(after) if after and min(steps)[0] < killed else None
