"""The recovery of 33_hybrid_recovery is right, whichever rank is killed, and whenever."""

import os
import random
import signal
import time

import ipyparallel as ipp
import pytest
from lesson_files import ROOT, at_night

from benchmarks import lesson
from helpers import World
from helpers.course import NOTEBOOKS

NOTEBOOK = "33_hybrid_recovery.ipynb"
MARK = "# for fresh ranks, too"
MARK_OF_MODULE = "# hybrid_training.py, for fresh ranks, too\n"
STEPS = 300
SECONDS = 2.0  # from the beginning of a training, within which the kill comes
SECONDS_TO_RESUME = 0.15  # in which the ranks regroup and resume, at the beginning of a training
SECONDS_TO_RECOVER = 90
TRAINERS, MASTER, SERVER = [0, 1], 2, 3


def kills():
    """Return (rank, seconds after the beginning) of each kill: the first three always, the others at night."""
    dice = random.Random(31)
    first = [(1, 0.9), (MASTER, 1.0), (SERVER, 1.1)]
    others = [(dice.randrange(4), round(dice.uniform(0, SECONDS), 2)) for _ in range(20)]
    early = [(rank, round(dice.uniform(0, SECONDS_TO_RESUME), 3)) for rank in (0, 1, MASTER, SERVER) * 2]
    early += [(rank, seconds / 1000) for seconds in (1, 2, 3, 4) for rank in TRAINERS]  # gloo connects
    return [*first, *map(at_night, [*others, *early])]


def test_the_module_has_the_marked_cells_of_the_lesson_in_their_order():
    cells = lesson.marked("32_hybrid_failures.ipynb", MARK_OF_MODULE)
    module = (ROOT / "notebooks/hybrid_training.py").read_text()
    texts = [cell.removeprefix(MARK_OF_MODULE).strip() for cell in cells]
    imports, *rest = module.split("\n\n\n", 1)
    assert texts and "\n\n\n".join(texts) == "".join(rest).strip()


@pytest.fixture(scope="module")
def world():
    world = World(4, preload=["torch._dynamo", "torch.distributed.optim"])
    yield world
    world.stop()


@pytest.mark.parametrize("victim_and_seconds", kills(), ids=str)
def test_a_kill_at_any_moment_ends_in_the_weights_of_one_process(world, victim_and_seconds):
    victim, seconds = victim_and_seconds
    begin_with_fresh_ranks(world, forget=True)
    training = start_on(world, MASTER, STEPS)
    time.sleep(seconds)
    os.kill(world.pids[victim], signal.SIGKILL)
    if victim == MASTER:
        start_on(world, SERVER, STEPS).get(SECONDS_TO_RECOVER)
    elif victim == SERVER:
        training.wait(SECONDS_TO_RECOVER)
        begin_with_fresh_ranks(world)
        start_on(world, MASTER, STEPS).get(SECONDS_TO_RECOVER)
    else:
        training.get(SECONDS_TO_RECOVER)
    living = [trainer for trainer in TRAINERS if trainer != victim]
    assert all(world.call("is_right", STEPS, targets=living))
    assert not any(world.call("is_right", STEPS - 1, targets=living))


def begin_with_fresh_ranks(world, forget=False):
    """Replace all ranks, and run the lesson's cells for fresh ranks; with `forget`, there is no checkpoint."""
    world.restart()
    world.view.execute(f"import sys; sys.path.append({str(NOTEBOOKS)!r})", block=True)  # for the modules
    for cell in lesson.marked(NOTEBOOK, MARK):
        world.view.execute(cell, block=True)
    if forget:
        world.call(forget_checkpoint, targets=0)


def forget_checkpoint():
    import os
    import tempfile

    path = f"{tempfile.gettempdir()}/latest"
    if os.path.exists(path):
        os.remove(path)


def start_on(world, rank, steps):
    """Have a rank drive the training, and do not wait for it."""
    return world.view.client[rank].apply_async(ipp.Reference("run"), steps)
