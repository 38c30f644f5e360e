"""Broken trainings: the scripts of notebooks/faulty, as numbered cases, and how they run on the ranks of a world."""

import random
import re
import time

from helpers.course import NOTEBOOKS
from helpers.errors import WorldError
from helpers.faults import EXAMPLE, FAULTS, mended

_FOLDER = NOTEBOOKS / "faulty"
_SECONDS_ALONE = 60
_SECONDS_TO_LOOK = 3
_SECONDS_TO_STAND_STILL = 1
_MOST_SECONDS_TO_LOOK = 15
_SECONDS_FOR_OUTPUT = 10
_dealt = {}  # number: case of this notebook


class Case:
    """A broken training: its number and its `script`; its representation is the script with line numbers.

    `right` has the results of one process without the fault. `chosen` is the value of the script's variable `chosen`.
    """

    def __init__(self, number: int, name: str, chosen: int):
        self.number, self.name, self.chosen = number, name, chosen
        self.right: list[float] = []
        self.script = script(name, chosen)

    def line(self, text: str) -> int:
        """Return the number of the only line that contains this text."""
        (number,) = [number for number, line in enumerate(self.script.splitlines(), start=1) if text in line]
        return number

    def is_silent(self, rank: int) -> bool:
        """Return whether the script leaves the result of this rank empty, because another rank has the result."""
        return "if rank == chosen else []" in self.script and rank != self.chosen

    def __repr__(self):
        lines = enumerate(self.script.splitlines(), start=1)
        return "\n".join([f"Case {self.number}", *(f"{number:3}  {line}".rstrip() for number, line in lines)])


def script(name: str, chosen: int = 0) -> str:
    """Return the script of this name; if it has a variable `chosen`, set it to this rank."""
    return re.sub(r"^chosen = 0\b", f"chosen = {chosen}", (_FOLDER / f"{name}.py").read_text().rstrip(), flags=re.M)


def deal(world, seed: int) -> dict[int, Case]:
    """Return the cases by number: case 0, the example, and the other cases in an order that the seed chooses.

    The seed also chooses the rank at fault if a case has only one. A single process runs each case without its fault,
    to find the expected results. Raises `WorldError` when all ranks are on one host.
    """
    if len(world.hosts) < 2:
        raise WorldError(f"A case needs ranks on two hosts: world = World({world.size}, hosts=2).")
    cases = shuffled(seed, world.size)
    _find_out_what_is_right(world, cases)
    _dealt.clear()
    _dealt.update({case.number: case for case in cases})
    return dict(_dealt)


def shuffled(seed: int, size: int) -> list[Case]:
    """Return the cases in the order of a seed, for `size` ranks; their expected results are not known yet."""
    chance = random.Random(seed)
    names = [EXAMPLE, *chance.sample(sorted(FAULTS.keys() - {EXAMPLE}), len(FAULTS) - 1)]
    return [Case(number, name, chance.randrange(size)) for number, name in enumerate(names)]


def dealt() -> dict[int, Case]:
    """Return the cases that this notebook has dealt, none before the first `deal`."""
    return dict(_dealt)


def start(world, script: str):
    """Run a script on new ranks, as `%%px --noblock` runs a cell, and return ipyparallel's result.

    `world.where()`, `world.history()` and `world.post_mortem()` count the lines of the script from 1.
    """
    world.restart()
    return world.start(script)


def run(world, case: Case) -> None:
    """Run a case on new ranks for a few seconds, and print the result of each rank, and the result of one process.

    If ranks are still running when no rank makes progress any more, leave them running.
    """
    answer = start(world, case.script)
    end = time.monotonic() + _MOST_SECONDS_TO_LOOK
    answer.wait(_SECONDS_TO_LOOK)
    before = None
    while not answer.ready() and (now := _progress(world)) != before and time.monotonic() < end:
        before = now
        answer.wait(_SECONDS_TO_STAND_STILL)
    error_of = errors(answer)
    ranks_by_outcome = {}
    for rank, metadata in enumerate(answer.metadata):
        outcome = metadata["stdout"].strip() if metadata["status"] else "still running"
        ranks_by_outcome.setdefault(error_of.get(rank, outcome), []).append(rank)
    for outcome, ranks in ranks_by_outcome.items():
        print(f"{'ranks' if ranks[1:] else 'rank'} {', '.join(map(str, ranks))}: {outcome}")
    print(f"one process, without the fault: {case.right}")


def _progress(world):
    """Return where each rank is, and how many collectives it has called, because a loop returns to the same places."""
    places = [(state.state, state.call, state.line_number) for state in world.where()]
    return places, {rank: len(calls) for rank, calls in world.history().calls.items()}


def errors(answer) -> dict[int, str]:
    """Return, for each rank whose script ended in an error, the kind and the first line of that error.

    When all ranks ended, wait for their output, which may arrive after the message that a rank ended.
    """
    if answer.ready():
        answer.wait_for_output(_SECONDS_FOR_OUTPUT)
    raised = {rank: metadata["error"] for rank, metadata in enumerate(answer.metadata) if metadata["error"]}
    return {rank: f"{error.ename}: {error.evalue.partition(chr(10))[0]}" for rank, error in raised.items()}


def _find_out_what_is_right(world, cases):
    """Set `right` of each case: have a single process run its script without the fault, and then restart the ranks."""
    world.restart()
    alone = world.view.client[world.view.targets[0]]
    for case in cases:
        world.new_store()
        alone.execute(_BE_ALONE, silent=True).get(_SECONDS_ALONE)
        alone.execute(mended(case.name, script(case.name)), silent=True).get(_SECONDS_ALONE)
        case.right = alone.pull("result", block=True)
    world.restart()


_BE_ALONE = """
import os
import torch.distributed as dist
if dist.is_initialized():
    dist.destroy_process_group()
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
"""
