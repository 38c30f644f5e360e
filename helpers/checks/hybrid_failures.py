"""Exercises of 32_hybrid_failures: a consistent checkpoint, old checkpoints, the rate of the table.

The trainers call `my_save` and `my_table_rate`, and rank 0 calls `tidy`.
"""

import os
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc

from helpers.checks.exam import AnswerError, Wrong, answer, exercise, near, number, plain, show, times_in_words
from helpers.checks.hybrid_ddp_rpc import kept
from helpers.checks.learner import learners_module
from helpers.checks.patching import replaced
from helpers.checks.rpc_judging import one_line_errors, require_rpc

_LATE = 0.3  # seconds by which each trainer steps later than the trainer before it
_SLOW = 0.3  # seconds that the server takes to write the table
RESTART = "Call `fresh_ranks()`, run the cell of your answer again, then this check."

_writing = threading.Lock()

# For `tidy`: the files of a folder, the number in its file `latest` (None: there is no such file), and what is old.
_FOLDERS = (
    (["dense-10", "table-10", "dense-20", "table-20"], 20, ["dense-10", "table-10"]),
    (["dense-20", "table-20", "dense-30"], 20, []),
    (["dense-90", "table-90", "dense-100", "table-100", "table-110"], 100, ["dense-90", "table-90"]),
    (["dense-20", "table-20", "table-10.by-server", "table-30.by-server"], 20, ["table-10.by-server"]),
    (["dense-10", "table-10"], None, []),
    (["dense-10", "table-10", "dense-20", "table-20", "losses-10"], 20, ["dense-10", "table-10"]),
)
_MORE_TRAINERS = 6  # for `my_table_rate`: the value of `trainers` in the last calls


def _judge_saves(returned):
    """Return the sentence of success if the checkpoints of all trainers are right, or raise `Wrong`."""
    trainers = len(returned) - 2  # the last two are master and server
    together, alone = returned[0][0], returned[trainers - 1][1]
    for what, last, saves in (
        (f"When {trainers} trainers called `my_save`", 1, together),
        (f"When only trainer {trainers - 1} called `my_save`, in a group of its own", 2, alone),
    ):
        if fault := fault_of_save(what, last, saves):
            raise Wrong(fault)
    return "The server wrote the table after all updates of the step, and `latest` was written last."


@exercise(together=_judge_saves, restart=RESTART)
def my_save(exam):
    """Check `my_save(model, number, group)`: a consistent checkpoint, whose parts are written by their owners.

    Trainer 1 steps late, the server writes slowly, and the trainers train on as soon as the answer returns.
    """
    exam.on_rank(require_rpc, "my_save")
    if exam.rank < exam.n - 2:
        exam.on_rank(_prepare_saves)
        together = exam.on_rank(_save_together)
        return together, exam.on_rank(_save_alone, exam.rank == exam.n - 3)
    return None


@exercise
def tidy(exam):
    """Check `tidy(folder)`: it deletes the files of checkpoints older than the latest, and no other file."""
    if exam.rank == 0:
        for files, last, old in _FOLDERS:
            deleted = exam.on_rank(_tidy, files, last)
            what = "no file `latest`" if last is None else f"{last} in `latest`"
            exam.require(
                deleted == old,
                f"In a folder with log.txt, {', '.join(files)}, and {what}, `tidy` deleted "
                f"{_listed(deleted)}, expected {_listed(old)}.",
            )
    return "`tidy` deleted only files of checkpoints that are older than the latest complete checkpoint."


def _listed(files):
    return ", ".join(files) or "nothing"


@exercise(restart=RESTART)
def my_table_rate(exam):
    """Check `my_table_rate(members)`: fewer trainers move the table as far in a batch as all trainers do at 0.5."""
    if exam.rank < exam.n - 2:
        for trainers in (exam.n - 2, _MORE_TRAINERS):
            for members in range(trainers, 0, -1):
                rate, expected = exam.on_rank(_table_rate, members, trainers), 0.5 * trainers / members
                left = f"{members} of {trainers} trainers left"
                if trainers != exam.n - 2:
                    left = f"`trainers` = {trainers} and `members` = {members}"
                who = f"With {left}, `my_table_rate` returned {show(rate)}"
                exam.require(number(rate) is not None, f"{who}, expected a learning rate.")
                exam.require(
                    near(rate, expected, 1e-9),
                    f"{who}, so a batch moves the table {(number(rate) or 0) / expected:.2f} times as far as before, "
                    "expected 1.00 times.",
                )
    return "A batch moves the table equally far with any number of trainers."


def fault_of_save(what: str, last: int, save: "Saved") -> str:
    """Return a sentence that says what is wrong with a checkpoint, or "" if nothing is."""
    if save.waited_for_others:
        return (
            f"{what}, the trainer waited for trainers outside its group, expected a wait for the members of `group` "
            f"only: pass `group` to each collective. {RESTART}"
        )
    if len(save.tables) != 1:
        return (
            f"{what}, the server ran `save_table` {times_in_words(len(save.tables))}, expected once: the first trainer "
            "of the group requests it."
        )
    number_of_table, at_begin, at_end, _ = save.tables[0]
    if number_of_table != last:
        return f"{what} with the number {last}, the table got the number {show(number_of_table)}, expected {last}."
    if at_begin < save.updates:
        return (
            f"{what}, the server saved the table after {at_begin} of {save.updates} updates of the step, expected "
            f"after all {save.updates}: wait until all trainers of the group have stepped."
        )
    if at_end > save.updates:
        return (
            f"{what}, a trainer updated the table while the server wrote the file, expected no update before the file "
            "is complete: wait for the server."
        )
    if save.missing:
        return (
            f"{what} with the number {last}, it did not write {save.missing}, expected the files table-{last}, "
            f"dense-{last} and latest."
        )
    if not save.dense_is_right:
        return f"{what}, `dense-{last}` has wrong keys or values, expected the dense layer's state after the step."
    if save.latest != last:
        return f"{what}, `latest` holds {show(save.latest)}, expected {last}."
    if save.before_latest:
        return (
            f"{what}, `latest` was written before {save.before_latest}, expected it to be written last: if the job "
            "dies between the two, `latest` names an incomplete checkpoint."
        )
    if save.in_place:
        return (
            f"{what}, `latest` was overwritten in place, expected a new file that is renamed to `latest`, so that no "
            "rank reads a half-written file: use `write`."
        )
    return ""


# On a trainer, the functions below run in the process of the learner's code.


class Saved(NamedTuple):
    """A checkpoint: how many updates the table had got in the step, and what `save_table` and the files show.

    `tables` has (number, updates at the beginning, updates at the end, the content of `latest` before the table was
    written) of each call of `save_table` on the server.
    """

    updates: int
    tables: list
    missing: str
    latest: object
    dense_is_right: bool
    before_latest: str
    waited_for_others: bool = False
    in_place: bool = False  # whether `latest`, which existed, was overwritten instead of replaced


def _table_rate(members, trainers):
    """Return the answer's rate in a lesson with this number of trainers."""
    lesson = learners_module()
    if "trainers" not in vars(lesson):
        return answer("my_table_rate", [members])
    with replaced([(lesson, "trainers", trainers)]):
        return answer("my_table_rate", [members])


def _prepare_saves():
    """Give the trainers a model with one table, and all ranks an empty folder."""
    lesson = vars(learners_module())
    with one_line_errors():
        if dist.get_rank() == 0:
            folder = tempfile.mkdtemp()
            table = lesson["new_table"]()
            for name in _workers():
                rpc.rpc_sync(name, keep, (table, folder))
        dist.barrier()
        _new_model(dist.group.WORLD)


def _new_model(group):
    lesson = vars(learners_module())
    kept["model"] = lesson["HybridModel"](kept["table"], group, "cpu")
    kept["optimizer"] = lesson["new_optimizer"](lesson["references"](kept["model"]))


def _workers():
    trainers = dist.get_world_size()
    return [*[f"trainer{trainer}" for trainer in range(trainers)], "server"]


def keep(table, folder):
    """Keep a table, and have the lesson write its files to this folder, and the server count updates."""
    kept["table"], kept["folder"] = table, folder
    kept["saves"] = []


class _LateOptimizer:
    """Step after this many seconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    def step(self, context):
        time.sleep(self.seconds)
        kept["optimizer"].step(context)


def _step(late):
    lesson = vars(learners_module())
    with one_line_errors():
        lesson["step"](kept["model"], _LateOptimizer(late), lesson["batch"](range(dist.get_rank(), 24, 4)))


def _save(number, group, updates, function="my_save"):
    """Call the answer after a step, and train on; return what it saved, on the first trainer of the group."""
    table = kept["model"].table.get_module_rref()
    first = dist.get_rank(group) == 0
    if first:
        rpc.rpc_sync("server", watch_saves, (table,))
    latest = Path(kept["folder"], "latest")
    before = latest.open("rb") if latest.exists() else None
    try:
        dist.barrier(group)
        _step(_LATE * dist.get_rank(group))
        dense = {name: values.clone() for name, values in kept["model"].dense.module.state_dict().items()}
        with one_line_errors(), replaced([(learners_module().job, "folder", kept["folder"])]):
            answer(function, [kept["model"], number, group])
        _step(0)
        dist.barrier(group)
    finally:
        tables = rpc.rpc_sync("server", saves_watched) if first else []
    dist.barrier(group)  # before another trainer watches
    in_place = before is not None and os.fstat(before.fileno()).st_nlink > 0
    return _read_save(number, tables, dense, updates)._replace(in_place=in_place) if first else None


def saved_at_will(function: str) -> "Saved | None":
    """Have trainers that take no turns save by a function of the lesson; return what trainer 0 finds."""
    _prepare_saves()
    return _save(1, dist.group.WORLD, dist.get_world_size(), function)


def _save_together():
    return _save(1, dist.group.WORLD, dist.get_world_size())


def _save_alone(calls):
    """Call the answer on one trainer, in a group of this trainer alone, as after a death.

    All trainers make such a group, because torch names a group also by the number of the groups of a process.
    """
    with one_line_errors():
        group = group_alone()
        if not calls:
            return None
        _new_model(group)
    try:
        return _save(2, group, 1)
    except AnswerError as error:
        if not timed_out(error):
            raise
        return Saved(1, [], "", None, False, "", waited_for_others=True)


def timed_out(error: AnswerError) -> bool:
    """Return whether a wait of the answer ended with the timeout of a group."""
    return "timed out" in str(error).lower()


def group_alone():
    """Return a group of this trainer alone, as after the death of all others; all trainers call this."""
    return dist.new_group([dist.get_rank()], timeout=timedelta(seconds=5), use_local_synchronization=True)


def _read_save(number, tables, dense, updates):
    paths = {name: Path(kept["folder"], name) for name in (f"table-{number}", f"dense-{number}", "latest")}
    missing = ", ".join(name for name, path in paths.items() if not path.exists())
    if missing:
        return Saved(updates, tables, missing, None, False, "")
    times = {name: path.stat().st_mtime_ns for name, path in paths.items()}
    written = {name: _read(path) for name, path in paths.items()}
    right = isinstance(written[f"dense-{number}"], dict) and written[f"dense-{number}"].keys() == dense.keys()
    right = right and all(torch.equal(written[f"dense-{number}"][name], values) for name, values in dense.items())
    late = {name for name, when in times.items() if when > times["latest"]}
    if any(latest == number for *_, latest in tables):  # another trainer may have written `latest` again
        late.add(f"table-{number}")
    before = " and ".join(name for name in times if name in late)
    return Saved(updates, tables, "", plain(written["latest"]), right, before)


def _read(path):
    try:
        return torch.load(path)
    except Exception as error:
        return str(error)


def watch_saves(table):
    """Have the server note each call of the lesson's `save_table`, and write slowly, into the folder of the check."""
    lesson = learners_module()
    kept["before"] = lesson.save_table, lesson.job.folder
    weight = table.local_value().weight
    first = weight._version
    saves = kept["saves"] = []

    def slow_save_table(table, number):
        at_begin = weight._version - first
        with _writing:  # two trainers that save at once would write one file
            time.sleep(_SLOW)
            latest = plain(_read(Path(kept["folder"], "latest")))
            kept["before"][0](table, number)
            saves.append((plain(number), at_begin, weight._version - first, latest))

    lesson.save_table, lesson.job.folder = slow_save_table, kept["folder"]


def saves_watched():
    """Return the calls of `save_table` since `watch_saves`, and let the server write as before."""
    lesson = learners_module()
    with _writing:  # until a call for which the answer did not wait has ended
        lesson.save_table, lesson.job.folder = kept["before"]
        return kept["saves"]


# On rank 0, the function below runs in the process of the learner's code.


def _tidy(files, last):
    """Make a folder with these files, call the answer, and return the names of the files that are gone, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        for file in [*files, "log.txt"]:
            torch.save(0, Path(folder, file))
        if last is not None:
            torch.save(last, Path(folder, "latest"))
        before = {path.name for path in Path(folder).iterdir()}
        answer("tidy", [folder])
        return sorted(before - {path.name for path in Path(folder).iterdir()})
