"""Exercises of 41_back_by_torchrun: a loop that can be restarted, a loss for any number of ranks, and when to save."""

import math
import os
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path

import torch

from helpers.checks.exam import Wrong, answer, errors_of_answer, exercise, number, show
from helpers.checks.learner import learners_module
from helpers.checks.patching import replaced

_UNTIL = 60  # steps of a training
_EVERY = 25  # steps between two checkpoints


@exercise
def my_loop(exam):
    """Check `my_loop(training, path, goes_on)`: it loads, steps, and saves every 25 steps, on one rank and atomically.

    The check provides the training and its step. It judges the loop first without a file, then with a file. Each rank
    has a path of its own, so the check sees which rank writes.
    """
    _judge_first_start(exam, *exam.on_rank(_looped, None))
    _judge_restart(exam, *exam.on_rank(_looped, 30))
    return "The loop saved every 25 steps on one rank, by a rename, and continued from the checkpoint."


def _judge_first_start(exam, steps, saved, kept, removed, files):
    """Require the steps, checkpoints and files of a loop that starts without a checkpoint."""
    rank, case = exam.rank, "Without a checkpoint"
    exam.require(
        steps == list(range(_UNTIL)),
        f"{case}, rank {rank} took {_span(steps)}, expected the steps from 0 to {_UNTIL - 1}, as `goes_on` says.",
    )
    expected = [_EVERY, 2 * _EVERY] if rank == 0 else []
    if rank == 0:
        exam.require(
            saved == expected,
            f"{case}, rank 0 left checkpoints of the steps {saved} at `path`, expected {expected}: after every "
            f"{_EVERY}th step.",
        )
        exam.require(
            kept != 2 * _EVERY,
            "Rank 0 wrote the second checkpoint into the file of the first, expected a new file that it renames: "
            "otherwise a rank that is killed while it writes leaves a file that no rank can load.",
        )
        exam.require(
            len(files) <= 1,
            f"Rank 0 left {len(files)} files, {files}, expected only the checkpoint at `path`.",
        )
        exam.require(
            not removed,
            "Rank 0 removed the first checkpoint before the second was at `path`, expected `os.replace`, which does "
            "both at once: otherwise a rank that is killed in between leaves no checkpoint.",
        )
    else:
        exam.require(
            saved == [], f"Rank {rank} left checkpoints of the steps {saved}, expected none: only rank 0 may save."
        )
        exam.require(not files, f"Rank {rank} left the files {files}, expected none: only rank 0 may write.")


def _judge_restart(exam, steps, saved, *_):
    """Require the steps and checkpoints of a loop that finds a checkpoint of step 30."""
    rank, case = exam.rank, "With a checkpoint of step 30"
    exam.require(
        steps == list(range(30, _UNTIL)),
        f"{case}, rank {rank} took {_span(steps)}, expected the steps from 30 to {_UNTIL - 1}.",
    )
    expected = [30, 2 * _EVERY] if rank == 0 else [30]
    exam.require(
        saved == expected,
        f"{case}, the checkpoints at `path` on rank {rank} were of the steps {saved}, expected {expected}.",
    )


def _judge_gradients(returned):
    """Return the sentence of success if the mean of the gradients over all ranks is right, or raise `Wrong`."""
    n = len(returned)
    for batch, gradients in zip(_batches(n), zip(*returned, strict=True), strict=True):
        parts = [len(_examples(batch)[part::n]) for part in range(n)]
        mean, expected = sum(gradients) / n, _examples(batch).mean().item()
        if not abs(mean - expected) < 1e-9:
            raise Wrong(
                f"With {batch} examples, split as {parts}, the gradient after DDP's average is {mean:.4f}, "
                f"expected {expected:.4f}."
            )
    return "For every split of the batch, DDP's average is the gradient of the mean over the batch."


@exercise(together=_judge_gradients)
def my_loss(exam):
    """Check `my_loss(losses, batch, n)`: under DDP, its averaged gradient is the gradient of the batch's mean loss.

    The answer is called with 4n, 4n + 1 and n - 1 examples.
    """
    gradients = []
    for batch in _batches(exam.n):
        result, gradient = exam.on_rank(_gradient_of_loss, exam.rank, exam.n, batch)
        exam.require(
            gradient is not None,
            f"With {batch} examples, rank {exam.rank} returned {show(result)}, expected a tensor with one element.",
        )
        gradients.append(gradient)
    return gradients


@exercise
def best_interval(exam):
    """Check `best_interval(save, between)`: the interval with the smallest sum of both losses, within 1 %."""
    for save, between in ((2, 3600), (30, 10800), (120, 86400)):
        result = exam.call(save, between)
        seconds, expected = number(result), math.sqrt(2 * save * between)
        exam.require(
            seconds is not None and abs(seconds - expected) <= 0.01 * expected,
            f"With {save} s for a checkpoint and {between} s between failures, rank {exam.rank} returned "
            f"{show(result)}, expected {expected:.0f} s.{_why(seconds, save, between)}",
        )
    return "The interval is √(2 · save · between): both losses are equal there."


def _why(seconds, save, between):
    """Say how much time an interval loses, and which of the two losses is larger."""
    if seconds is None or seconds <= 0:
        return ""
    saving, failing = save / seconds, seconds / (2 * between)
    return f" Your interval loses {saving:.1%} to checkpoints and {failing:.1%} to failures."


class _Counting:
    """A training whose state is its number of steps."""

    def __init__(self):
        self.step = 0

    def state(self):
        return torch.tensor([float(self.step), 7.0])

    def load(self, state):
        self.step = int(state[0])


def _looped(step_of_file):
    """Return what `my_loop` did, with a checkpoint of this step or without a checkpoint.

    These are: the steps it took; the steps of the checkpoints that lay at the path, in order; the step in the file of
    the first checkpoint at the end, which a link has kept; whether the checkpoint was removed; and the names of the
    files. Meanwhile each rank has the local rank 0, as on a host of its own.
    """
    folder = Path(tempfile.gettempdir(), f"check-{os.environ['RANK']}-{uuid.uuid4().hex}")
    folder.mkdir()
    path, link = folder / "checkpoint.pt", folder / "link"
    training, steps, saved, removed = _Counting(), [], [], []
    if step_of_file is not None:
        training.step = step_of_file
        torch.save(training.state(), path)
        training.step = 0

    def note_checkpoint():
        step = _step_in(path) if path.exists() else None
        if step is not None and step not in saved[-1:]:
            saved.append(step)

    def take_step(training):
        note_checkpoint()
        if path.exists() and not link.exists():
            os.link(path, link)
        if len(steps) > 2 * _UNTIL:
            raise RuntimeError(f"the loop took more than {2 * _UNTIL} steps, and `goes_on` is false at {_UNTIL}")
        steps.append(training.step)
        training.step += 1

    def remove(name, **options):
        if os.fspath(name) == str(path):
            removed.append(training.step)
        os_remove(name, **options)

    lesson, os_remove = vars(learners_module()), os.remove
    own = lesson.get("take_step")
    lesson["take_step"] = take_step
    try:
        with replaced([(os, "remove", remove), (os, "unlink", remove)]), _local_rank_0():
            answer("my_loop", [training, str(path), lambda training: training.step < _UNTIL])
        note_checkpoint()
        kept = _step_in(link) if link.exists() else None
        files = sorted(file.name for file in folder.iterdir() if file != link)
    finally:
        lesson.pop("take_step")
        if own:
            lesson["take_step"] = own
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    return steps, saved, kept, bool(removed), files


@contextmanager
def _local_rank_0():
    """Let this rank have the local rank 0 inside the block."""
    own = os.environ["LOCAL_RANK"]
    os.environ["LOCAL_RANK"] = "0"
    try:
        yield
    finally:
        os.environ["LOCAL_RANK"] = own


def _step_in(path):
    """Return the step in a checkpoint, None for a file of anything else."""
    try:
        state = torch.load(path)
        return int(state[0])
    except Exception:
        return None


def _span(steps):
    """Describe the steps that a loop took."""
    return f"the steps from {steps[0]} to {steps[-1]}" if steps else "no step"


def _batches(n):
    return 4 * n, 4 * n + 1, n - 1


def _examples(batch):
    return torch.arange(1.0, batch + 1).double() ** 2


def _gradient_of_loss(rank, n, batch):
    """Return the result of `my_loss` and its gradient; None as the gradient if the result is not a single element.

    The losses have an autograd graph.
    """
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    result = answer("my_loss", [weight * _examples(batch)[rank::n], batch, n])
    if not isinstance(result, torch.Tensor) or result.numel() != 1:
        return result, None
    with errors_of_answer():
        (gradient,) = torch.autograd.grad(result.sum(), weight, allow_unused=True)
    return result.detach(), 0.0 if gradient is None else gradient.item()
