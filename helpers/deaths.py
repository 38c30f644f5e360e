"""Kill ranks during a training, and say what each rank did and when it got an error: for lessons on hybrid failures.

The ranks record what they do with `marked`. The notebook calls the other functions, which use the current world. The
first ranks are trainers, then come a master and a server. A training writes a file dense-N for its checkpoint N.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ipyparallel import Reference

import helpers.world

FRESH = "for fresh ranks, too"  # in the first line of each cell that fresh ranks run again
STEPS = 400  # of a training in which a rank is killed
CHECKPOINT = 100  # after which the rank is killed
_SECONDS_TO_CHECKPOINT = 60

# The cause of an error, by a text that the error contains; the first text that fits counts.
_CAUSES = {"Timed out": "timeout of gloo", "gloo": "gloo", "set timeout": "timeout of RPC", "tensorpipe": "TensorPipe"}

Mark = tuple[str, float, float, str]
_marks: list[Mark] = []  # of this rank


@contextmanager
def marked(what: str) -> Iterator[None]:
    """Record what this rank does in the block: the name, the begin, the end, and the cause of an error that ends it.

    Times are those of `time.monotonic`, which all ranks of a machine share.
    """
    begin, error = time.monotonic(), ""
    try:
        yield
    except RuntimeError as caught:
        error = next((_CAUSES[text] for text in _CAUSES if text in str(caught)), str(caught))
        raise
    finally:
        _marks.append((what, begin, time.monotonic(), error))


def own_marks() -> list[Mark]:
    """Return the marks of this rank."""
    return _marks


def fresh_ranks(forget: bool = False) -> None:
    """Replace all ranks with new processes that run the cells for fresh ranks again; `forget` deletes all checkpoints.

    The cells come from an idle rank, whose list `In` has every cell that the rank has run.
    """
    world = helpers.world.current()
    idle = next(state.rank for state in world.where() if state.state == "idle")
    cells = [cell for cell in world.call(eval, "In", targets=idle) if FRESH in cell.partition("\n")[0]]
    latest = list(dict.fromkeys(reversed(cells)))[::-1]  # of equal cells only the last
    world.restart()
    for cell in latest:
        world.view.execute(cell + "\n", silent=False)  # as %%px sends it
    if forget:
        for pattern in ("dense-*", "table-*", "latest*"):
            for file in Path(world.folder).glob(pattern):
                file.unlink()


def start_on(rank: int, function: str, *arguments):
    """Have a rank call a function of the lesson, and return ipyparallel's result without waiting for it."""
    return helpers.world.current().view.client[rank].apply_async(Reference(function), *arguments)


def wait_for_checkpoint(number: int, training=None) -> None:
    """Wait until a trainer has written its file of the checkpoint of this number; or raise `TimeoutError`.

    If the result of a `training` is given and the training fails before that, raise its error at once.
    """
    file = Path(helpers.world.current().folder, f"dense-{number}")
    deadline = time.monotonic() + _SECONDS_TO_CHECKPOINT
    while not file.exists():
        if training is not None and training.ready() and not training.successful():
            training.get()  # raises the error
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"There was no file dense-{number} after {_SECONDS_TO_CHECKPOINT} s, expected a checkpoint every ten "
                "steps. Look at what the trainers do with world.where()."
            )
        time.sleep(0.01)


def kill(victim: int, function: str, how: signal.Signals = signal.SIGKILL):
    """Send a signal to a rank in the middle of a training, which the master starts on fresh ranks by `function(400)`.

    Return the time of the death and the result of the training, which may go on. The signal comes during
    the steps after checkpoint 100.
    """
    fresh_ranks(forget=True)
    training = start_on(_master(), function, STEPS)
    wait_for_checkpoint(CHECKPOINT, training=training)
    time.sleep(0.02)  # at the checkpoint no call is under way: the master is about to ask for the next ten steps
    died = time.monotonic()  # before the kill: a trainer may notice at once
    os.kill(helpers.world.current().pids[victim], how)
    return died, training


def watch_death(victim: int, function: str, how: signal.Signals = signal.SIGKILL):
    """Send a signal to a rank as `kill` does, and wait for the end of the training.

    Return the time of the death, the marks of all ranks, and who got an error. A rank that dies between two of its
    calls may leave a trainer with nothing to wait for: then another training begins, up to three in all.
    """
    for _ in range(3):
        died, training = kill(victim, function, how)
        training.wait(60)
        marks = marks_of_ranks(dead=victim)
        errors = errors_after(died, marks)
        if all(name in errors for name in marks if name.startswith("trainer") and marks[name]):
            break
    return died, marks, errors


def marks_of_ranks(dead: int | None = None) -> dict[str, list[Mark]]:
    """Return the marks of each rank by its name, such as "trainer 0"; a dead rank has none."""
    world = helpers.world.current()
    names = [f"trainer {trainer}" for trainer in range(_master())] + ["master", "server"]
    return {name: [] if rank == dead else world.call(own_marks, targets=rank) for rank, name in enumerate(names)}


def errors_after(died: float, marks: Mapping[str, Sequence[Mark]]) -> dict[str, tuple[str, float]]:
    """Return who got an error after the death: its cause, and after how many seconds.

    A call of the master counts as "master, call to trainer 1".
    """
    errors = {}
    for name, of_rank in marks.items():
        for what, _, end, cause in of_rank:
            if cause and end > died:
                who = f"master, call to trainer {what[-1]}" if " on " in what else name
                errors.setdefault(who, (cause, end - died))
    return errors


def first_of_trainers(errors: Mapping[str, tuple[str, float]]) -> tuple[str, float]:
    """Return the cause of the first error of a trainer, and after how many seconds the trainer got it."""
    return min((error for who, error in errors.items() if who.startswith("trainer")), key=lambda error: error[1])


def seconds_to_notice(errors: Mapping[str, tuple[str, float]]) -> float:
    """Return after how many seconds the first rank got an error."""
    return min(seconds for _, seconds in errors.values())


def _master():
    return helpers.world.current().size - 2
