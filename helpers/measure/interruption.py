"""Kill a rank in the middle of a training, replace its process, and read from the histories what that cost."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ipyparallel import Reference

_REPORT = re.compile("ChildFailedError.*^={60,}$.*^={60,}$", re.M | re.S)  # torchrun's, once it is complete in the log
MARK = "# every new rank runs this cell"  # the first line of such a cell, below `%%px`


class Cost(NamedTuple):
    """What an interruption cost: the steps taken again, and the seconds until the first step that is new."""

    steps: int
    seconds: float

    def __str__(self):
        return f"{self.steps} steps and {self.seconds:.2f} s lost"


def start(world, ranks: Sequence[int], function: str, *arguments):
    """Have ranks call one of their functions, without waiting; `get` of the result returns a list in their order."""
    return world.view.client[list(ranks)].apply_async(Reference(function), *arguments)


def marked_cells(world, rank: int = 0) -> list[str]:
    """Return the cells with `MARK` that a rank has run, each once, in their order."""
    return world.cells(MARK, rank)


def run_cells(world, ranks: Iterable[int], cells: Iterable[str], **names) -> None:
    """Give ranks these variables, then run cells on them."""
    view = world.view.client[list(ranks)]
    view.push(names, block=True)
    for cell in cells:
        view.execute(cell, silent=False, block=True)


def replace(world, rank: int, cells: Iterable[str], **names) -> None:
    """Replace the process of a rank, give the new process these variables, and run cells on it."""
    world.restart(rank=rank)
    run_cells(world, [rank], cells, **names)


def replace_dead(world, **names) -> None:
    """Replace the processes of dead ranks; the new processes run the marked cells of a living rank."""
    dead = [state.rank for state in world.where() if state.state == "dead"]
    living = [rank for rank in range(world.size) if rank not in dead]
    for rank in dead:
        replace(world, rank, marked_cells(world, living[0]), **names)


def kill(world, rank: int, awaited_by: Iterable[int] = ()) -> float:
    """Kill a rank by SIGKILL as soon as other ranks wait for it in an all-reduce; return the moment.

    The moment is by `time.monotonic`, a clock that the processes of a machine share.
    """
    others = set(awaited_by)
    wait_for(lambda: all(_in_all_reduce(state) for state in world.where() if state.rank in others))
    os.kill(world.pids[rank], signal.SIGKILL)
    return time.monotonic()


def _in_all_reduce(state):
    return "all_reduce" in (state.call, state.arguments.get("in"))


def wait_for(holds: Callable[[], bool], seconds: float = 120, log: Path | None = None) -> None:
    """Wait until a condition holds.

    Raises `TimeoutError` after this many seconds, and `RuntimeError` as soon as the torchrun that writes into this log
    has given up and has written its report.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"what this cell waits for did not happen within {seconds:g} s")
        if log is not None and _REPORT.search(log.read_text()):
            raise RuntimeError(f"torchrun has given up:\n{log.read_text()}")
        time.sleep(0.01)


def cost(killed: float, step: int, rows: Iterable[Sequence]) -> Cost:
    """Return the cost of an interruption at a moment `killed`, after this many steps.

    Each row begins with the number of a step and the moment at which it ended.
    """
    later = sorted((moment, number) for number, moment, *_ in rows if moment > killed)
    seconds = min(moment for moment, number in later if number > step) - killed
    return Cost(step + 1 - later[0][1], seconds)


def steps_in(log: Path) -> list[tuple[int, float, int]]:
    """Return the number of each step in a file of steps, the moment of its end, and the number of ranks."""
    if not log.exists():
        return []
    lines = [line.split() for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(int(step), float(moment), int(ranks)) for step, moment, ranks in lines]
