"""Broken trainings: the scripts of notebooks/faulty, dealt out as numbered cases, and run on the ranks of a world."""

import random
import re
import time
from pathlib import Path

from helpers.faults import EXAMPLE, FAULTS, mended
from helpers.errors import WorldError

_FOLDER = Path(__file__).parent.parent / "notebooks" / "faulty"
_SECONDS_ALONE = 60
_SECONDS_TO_LOOK = 4  # after which a case that has not ended is left running
RUNNING = "still running"
_dealt = {}  # the cases of this notebook, by their numbers


class Case:
    """A broken training: its number and its `script`, which shows with line numbers.

    `right` are the numbers that one process comes to when nothing is wrong, `chosen` the rank that the script names so.
    """

    def __init__(self, number: int, name: str, chosen: int, right: list[float]):
        self.number, self.name, self.chosen, self.right = number, name, chosen, right
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
    chance = random.Random(seed)
    names = [EXAMPLE, *chance.sample(sorted(FAULTS.keys() - {EXAMPLE}), len(FAULTS) - 1)]
    right = _alone(world, names)
    _dealt.clear()
    for number, name in enumerate(names):
        _dealt[number] = Case(number, name, chance.randrange(world.size), right[name])
    return dict(_dealt)


def dealt() -> dict[int, Case]:
    """Return the cases that this notebook has dealt out, none before that."""
    return dict(_dealt)


def start(world, script: str):
    """Run a script on fresh ranks, as `%%px --noblock` runs a cell; return ipyparallel's result, which can be waited for.

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

    What has not ended by then runs on.
    """
    answer = start(world, case.script)
    answer.wait(_SECONDS_TO_LOOK)
    said = {}
    for rank, what in enumerate(outcomes(answer)):
        said.setdefault(what, []).append(rank)
    for what, ranks in said.items():
        print(f"ranks {', '.join(map(str, ranks))}: {what}" if ranks[1:] else f"rank {ranks[0]}: {what}")
    print(f"one process, nothing wrong: {case.right}")


def outcomes(answer) -> list[str]:
    """Return what each rank has come to: what it has printed, the error that has ended it, or that it still runs."""
    time.sleep(0.1 if answer.ready() else 0)  # what it has printed comes by another way
    found = []
    for rank in range(len(answer.msg_ids)):
        answered = answer.metadata[rank]
        if answered["status"] is None:
            found.append(RUNNING)
        elif answered["error"]:
            kind, text = answered["error"].ename, answered["error"].evalue
            found.append(f"{kind}: {text.splitlines()[0] if text else ''}")
        else:
            found.append(answered["stdout"].strip())
    return found


def _alone(world, names):
    """Return for each name the result of the mended script when one process runs it; the ranks are fresh then."""
    world.restart()
    only = world.view.client[world.view.targets[0]]
    right = {}
    for name in names:
        world.new_store()
        only.execute(_LEAVE, silent=True).get(_SECONDS_ALONE)
        only.execute(mended(name, script(name)), silent=True).get(_SECONDS_ALONE)
        right[name] = only.pull("result", block=True)
    world.restart()
    return right


_LEAVE = """
import os, warnings
import torch.distributed as dist
if dist.is_initialized():
    dist.destroy_process_group()
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
warnings.simplefilter("ignore")  # of a function that is to go
"""
