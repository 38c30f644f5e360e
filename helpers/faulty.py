"""Broken trainings: the scripts of notebooks/faulty, dealt out as numbered cases, and run on the ranks of a world."""

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
_dealt = {}  # the cases of this notebook, by their numbers


class Case:
    """A broken training: its number and its `script`, which shows with line numbers.

    `right` are the numbers that one process comes to when nothing is wrong, `chosen` the rank that the script names so.
    """

    def __init__(self, number: int, name: str, chosen: int):
        self.number, self.name, self.chosen = number, name, chosen
        self.right: list[float] = []
        self.script = script(name, chosen)

    def line(self, text: str) -> int:
        """Return the number of the only line that has this text."""
        (number,) = [number for number, line in enumerate(self.script.splitlines(), start=1) if text in line]
        return number

    def is_silent(self, rank: int) -> bool:
        """Return whether the script leaves the result of this rank empty, because another has it."""
        return "if rank == chosen else []" in self.script and rank != self.chosen

    def __repr__(self):
        lines = enumerate(self.script.splitlines(), start=1)
        return "\n".join([f"Case {self.number}", *(f"{number:3}  {line}".rstrip() for number, line in lines)])


def script(name: str, chosen: int = 0) -> str:
    """Return the script of this name, in which `chosen` is this rank if it chooses one."""
    return re.sub(r"^chosen = 0\b", f"chosen = {chosen}", (_FOLDER / f"{name}.py").read_text().rstrip(), flags=re.M)


def deal(world, seed: int) -> dict[int, Case]:
    """Return the cases by their numbers: case 0, the example, and the twelve others, in an order that the seed chooses.

    The seed also chooses which rank is at fault, where one is. What each case should come to is found out here: a
    process runs it by itself, without its fault. Raises `WorldError` when all ranks are on one host.
    """
    if len(world.hosts) < 2:
        raise WorldError(f"A case needs ranks on two hosts: world = World({world.size}, hosts=2).")
    cases = shuffled(seed, world.size)
    _find_out_what_is_right(world, cases)
    _dealt.clear()
    _dealt.update({case.number: case for case in cases})
    return dict(_dealt)


def shuffled(seed: int, size: int) -> list[Case]:
    """Return the cases in the order of a seed, for so many ranks; what they should come to is not known yet."""
    chance = random.Random(seed)
    names = [EXAMPLE, *chance.sample(sorted(FAULTS.keys() - {EXAMPLE}), len(FAULTS) - 1)]
    return [Case(number, name, chance.randrange(size)) for number, name in enumerate(names)]


def dealt() -> dict[int, Case]:
    """Return the cases that this notebook has dealt out, none before that."""
    return dict(_dealt)


def start(world, script: str):
    """Run a script on fresh ranks, as `%%px --noblock` runs a cell, and return ipyparallel's result.

    `world.where()` and the like know the lines of the script by the numbers that they have in it.
    """
    world.restart()
    script = script.rstrip()
    world._cells.remember(script)
    answer = world.view.execute(script, silent=False, block=False)
    world._cells.sent(list(range(world.size)), answer.msg_ids)
    return answer


def run(world, case: Case) -> None:
    """Run a case on fresh ranks, for some seconds, and show what each rank has come to, and what one process does.

    What has not ended when no rank moves any more runs on.
    """
    answer = start(world, case.script)
    end = time.monotonic() + _MOST_SECONDS_TO_LOOK
    answer.wait(_SECONDS_TO_LOOK)
    before = None
    while not answer.ready() and (now := _progress(world)) != before and time.monotonic() < end:
        before = now
        answer.wait(_SECONDS_TO_STAND_STILL)
    ended_by = errors(answer)
    said = {}
    for rank, told in enumerate(answer.metadata):
        come_to = told["stdout"].strip() if told["status"] else "still running"
        said.setdefault(ended_by.get(rank, come_to), []).append(rank)
    for what, ranks in said.items():
        print(f"{'ranks' if ranks[1:] else 'rank'} {', '.join(map(str, ranks))}: {what}")
    print(f"one process, nothing wrong: {case.right}")


def _progress(world):
    """Return where each rank is, and how many collectives it has called: a loop comes back to the same places."""
    places = [(state.state, state.call, state.line_number) for state in world.where()]
    return places, {rank: len(calls) for rank, calls in world.history().calls.items()}


def errors(answer) -> dict[int, str]:
    """Return the kind and the first line of the error that has ended a rank, for each that was ended by one.

    What a rank has said may arrive after the word that it has ended, and is waited for when all have ended.
    """
    if answer.ready():
        answer.wait_for_output(_SECONDS_FOR_OUTPUT)
    told = {rank: metadata["error"] for rank, metadata in enumerate(answer.metadata) if metadata["error"]}
    return {rank: f"{error.ename}: {error.evalue.partition(chr(10))[0]}" for rank, error in told.items()}


def _find_out_what_is_right(world, cases):
    """Have one process run each script without its fault, all by itself; the ranks are fresh after that."""
    world.restart()
    alone = world.view.client[world.view.targets[0]]
    for case in cases:
        world.new_store()
        alone.execute(_BE_ALONE, silent=True).get(_SECONDS_ALONE)
        alone.execute(mended(case.name, script(case.name)), silent=True).get(_SECONDS_ALONE)
        case.right = alone.pull("result", block=True)
    world.restart()


_BE_ALONE = """
import os, warnings
import torch.distributed as dist
if dist.is_initialized():
    dist.destroy_process_group()
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
warnings.simplefilter("ignore")  # of a function that is to go
"""
