"""Exercises of 27_several_trainers: a step in turn, staleness, a checkpoint, and classes that two threads use at once.

Rank 0 is a trainer, and the last rank is the server.
"""

import os
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

from helpers.checks.exam import AnswerError, answer, exercise, plain, show
from helpers.checks.judging import RESTART
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import error_in_one_line, one_line_errors, require_rpc

_SECONDS = 0.2  # of a slow step, so that two steps at the same time overlap for certain
_PATIENCE = 5  # seconds for something that takes less than one


@exercise
def my_step_in_turn(exam):
    """Check `my_step_in_turn(context, parameter)`: a step of SGD on the owner, which waits for its turn."""
    exam.on_rank(require_rpc, "my_step_in_turn")
    if exam.rank == 0:
        fault = _fault_of(*exam.on_rank(_step_of_the_answer))
        exam.require(not fault, fault)
    return "The step waits for its turn, and loses nothing that came before."


@exercise
def my_staleness(exam):
    """Check `my_staleness(log)`: the updates of other trainers between the read of a trainer and its update."""
    if exam.rank == 0:
        for events, expected in _LOGS:
            log = [(f"trainer{number}", event, 0.5 * place) for place, (number, event) in enumerate(events)]
            result, is_unchanged = exam.on_rank(_staleness, log)
            history = ", ".join(f"trainer{number} {event}" for number, event in events)
            exam.require(
                isinstance(result, list | tuple) and list(result) == expected,
                f"For the log [{history}] it returned {result}, expected {expected}.",
            )
            exam.require(is_unchanged, "`my_staleness` changed the log, expected it unchanged: the figure draws it.")
    return "Each update counts the updates of other trainers since its read."


@exercise
def MyCheckpoint(exam):
    """Check `MyCheckpoint(path)`: a file that is always complete, and values restored on their owners."""
    exam.on_rank(require_rpc, "MyCheckpoint")
    if exam.rank == 0:
        _require_checkpoint(exam)
    return "The file was complete at every moment, and `restore` copied the values of both ranks into the new model."


@exercise
def SharedOptimizer(exam):
    """Check `SharedOptimizer(parameters, optimizer)`: a step uses only the gradients of its own context."""
    exam.on_rank(require_rpc, "SharedOptimizer")
    if exam.rank == 0:
        noted = exam.on_rank(_two_steps)
        exam.require(
            not noted.hung,
            f"A step did not end, expected every step to end: is the lock released even after an error? {RESTART}",
        )
        exam.require(noted.steps == 2, f"For two calls of `step` the optimizer made {noted.steps} steps, expected 2.")
        exam.require(not noted.together, "Two steps of the optimizer ran at the same time, expected one after another.")
        exam.require(
            not noted.replaced,
            "While the optimizer made one trainer's step, the gradients of another trainer replaced its gradients.",
        )
        for place, (value, expected) in enumerate(zip(noted.values, (-3.0, -1.0), strict=True)):
            is_old = place == 1 and value == 2 * expected
            reason = " It had no gradient in the second context." if is_old else ""
            exam.require(
                value == expected, f"After two steps parameter {place} is {value:g}, expected {expected:g}.{reason}"
            )
    return "Each step took the gradients of its own context, and no two were under way at the same time."


@exercise
def Bounded(exam):
    """Check `Bounded(values, limit)`: it refuses gradients that are too old, even if two come at the same time."""
    exam.on_rank(require_rpc, "Bounded")
    if exam.rank == exam.n - 1:
        _require_bounds(exam)
        if not exam.fault:
            _require_one_at_a_time(exam)
    return (
        "Updates that were too old were refused, one update ran at a time, and `read` returned matching values and "
        "versions."
    )


# ---------------------------------------------------------------- my_step_in_turn

_GRADIENTS = [2.0, -1.0, 3.0]


def fault_of_step(step) -> str:
    """Have the server take a step, and return its fault in words, or an empty string. Runs on a trainer."""
    return _fault_of(*_taken_by_server(step))


def _fault_of(early, kept, value, values):
    return _fault_of_turn(early, kept, value) or _fault_of_values(values)


def _fault_of_turn(early, kept, value):
    if kept:
        return "The step still holds `turn`, expected it to release the lock."
    if value == 10:
        return "The step has subtracted nothing: the value is 10, expected 9."
    if early:
        return "The step changed the values while another thread held `turn`, expected it to wait for its turn."
    if value == -1:
        return (
            "The step read the values before its turn, and overwrote an update that came meanwhile: the value is -1, "
            "expected 9."
        )
    if value != 9:
        return f"The value is {value:g}, expected 9: the 10 that came meanwhile, minus the gradient of 1."
    return ""


def _fault_of_values(values):
    expected = [-2 * gradient for gradient in _GRADIENTS]
    if values == expected:
        return ""
    return (
        f"Two steps with the gradients {_GRADIENTS} changed three zeros to {values}, expected {expected}: subtract "
        "`gradient`, and do not change it."
    )


def _step_of_the_answer():
    with one_line_errors():
        return _taken_by_server(vars(learners_module())["my_step_in_turn"])


def _taken_by_server(step):
    """Have the server take a step with a gradient of 1, and return what `taken` does.

    If the step is right, the values of another parameter after two steps with `_GRADIENTS` follow, otherwise None.
    """
    found = _with_gradients([1.0], taken, step)
    return *found, None if _fault_of_turn(*found) else _with_gradients(_GRADIENTS, taken_twice, step)


def _with_gradients(gradients, function, step):
    """Have the server run `taken` or `taken_twice` on a new parameter with these gradients."""
    parameter = rpc.rpc_sync("server", new_parameter, (len(gradients),))
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("server", weighted_sum_of, (parameter, gradients))
        dist_autograd.backward(context, [loss])
        return rpc.rpc_sync("server", function, (step, context, parameter))


def new_parameter(size):
    """Return a parameter of zeros. Runs on the server."""
    return rpc.RRef(torch.zeros(size, requires_grad=True))


def weighted_sum_of(parameter, weights):
    """Return the sum of a parameter's values, each times its weight. Runs on the server."""
    return parameter.local_value() @ torch.tensor(weights)


def taken_twice(step, context, parameter):
    """Take two steps, and return the values afterwards. Runs on the server."""
    step(context, parameter)
    step(context, parameter)
    return parameter.local_value().tolist()


def taken(step, context, parameter):
    """Hold `turn` while a step begins, add 10 to the values, and release `turn`. Runs on the server.

    Returns whether the values had changed before, whether the step kept `turn`, and the value in the end.
    """
    turn = vars(learners_module())["turn"]
    values = parameter.local_value()
    errors = []

    def begin():
        try:
            step(context, parameter)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=begin, daemon=True)
    with turn:
        thread.start()
        thread.join(0.5)  # times out if the step waits for its turn
        early = values[0].item() != 0
        values.detach().add_(10)
    thread.join(_PATIENCE)
    kept = turn.locked()
    if kept:
        turn.release()  # for later steps
    if errors:
        raise errors[0]
    return early, kept, values[0].item()


# ---------------------------------------------------------------- my_staleness

_R, _U, _F = "reads", "updates", "fails"
# Logs, each with the staleness of its updates.
_LOGS = (
    ([(0, _R), (0, _U), (0, _R), (0, _U)], [0, 0]),
    ([(0, _R), (1, _R), (1, _U), (0, _U)], [0, 1]),
    ([(0, _R), (1, _R), (1, _U), (1, _R), (1, _U), (2, _R), (0, _U), (2, _U)], [0, 0, 2, 1]),
    ([(1, _R), (0, _R), (0, _U), (1, _F), (1, _R), (0, _R), (1, _U), (0, _F), (0, _R), (0, _U)], [0, 0, 0]),
    ([(0, _R), (1, _R), (2, _R), (1, _F), (2, _U), (1, _R), (1, _U), (0, _U)], [0, 0, 2]),
)


def _staleness(log):
    """Return the result of `my_staleness`, and whether the log is unchanged."""
    before = list(log)
    return answer("my_staleness", [log]), log == before


# ---------------------------------------------------------------- MyCheckpoint

_SAVED = {"trainer": [5.0], "server": [1.0, 2.0]}  # the values of the parameters of each owner
_STARTS = {"trainer": [0.0], "server": [0.0, 0.0]}
_LOSSES = [4.0, 3.0, 2.0]


class Restored(NamedTuple):
    """What `save` did to the file, what `restore` returned, and the values of both models afterwards."""

    wrote: bool
    survived: bool
    replaced: bool
    in_words: str
    losses: list | None
    hidden: list | None
    saved: dict[str, list[float]]
    restored: dict[str, list[float]]


def _require_checkpoint(exam):
    found = exam.on_rank(_saved_and_restored)
    exam.require(found.wrote, "`save` left no file at `path`, expected the checkpoint there.")
    exam.require(
        found.survived,
        "The second `save` raised an error while it wrote, and the first checkpoint is gone, expected it to stay "
        "complete: write another file, and then call `os.replace`.",
    )
    exam.require(
        found.replaced,
        "`save` changed the old file, so the file at `path` is incomplete for a moment, expected a new file in its "
        "place: write another file, and then call `os.replace`.",
    )
    exam.require(not found.in_words, f"`restore` returned {found.in_words}, expected a pair: losses and hidden state.")
    exam.require(found.losses == _LOSSES, f"`restore` returned the losses {found.losses}, expected {_LOSSES}.")
    exam.require(
        found.hidden == [1.5, 2.5],
        f"`restore` returned a hidden state with the values {found.hidden}, expected the values at `save`, [1.5, 2.5].",
    )
    exam.require(
        found.saved == {owner: [value + 10 for value in values] for owner, values in _SAVED.items()},
        f"After `restore` the saved model has the values {found.saved}, expected it to stay unchanged.",
    )
    for owner, values in _SAVED.items():
        now = found.restored[owner]
        reason = " These are the values before `restore`." if now == _STARTS[owner] else ""
        reason = " These are later values of the saved model." if now == [v + 10 for v in values] else reason
        exam.require(
            now == values, f"After `restore` the parameters of the {owner} are {now}, expected {values}.{reason}"
        )


class _Parts:
    """A model with two parameters on the server and one on this rank."""

    def __init__(self, values):
        self.local = [torch.tensor(value, requires_grad=True) for value in values["trainer"]]
        self.remote = [rpc.rpc_sync("server", parameter_of, (value,)) for value in values["server"]]

    def parameter_rrefs(self):
        first, *others = self.remote
        return [first, *map(rpc.RRef, self.local), *others]

    def values(self):
        server = [rpc.rpc_sync("server", value_of, (reference,)) for reference in self.remote]
        return {"trainer": [parameter.item() for parameter in self.local], "server": server}

    def add(self, amount):
        for parameter in self.local:
            parameter.detach().add_(amount)
        for reference in self.remote:
            rpc.rpc_sync("server", add_to, (reference, amount))


class _Unsavable:
    def __reduce__(self):
        raise RuntimeError("the process has died while it wrote the file")


def _saved_and_restored() -> Restored:
    """Save a model three times, once with an error, and copy the file; change and save the model; restore the copy.

    Runs on a trainer.
    """
    folder = tempfile.mkdtemp(prefix="checkpoint-")
    path = os.path.join(folder, "checkpoint.pt")
    trained, fresh = _Parts(_SAVED), _Parts(_STARTS)
    try:
        with one_line_errors():
            answer("MyCheckpoint", [path]).save(trained, _LOSSES[:1], None)
        if not os.path.exists(path):
            return Restored(False, True, True, "", None, None, {}, {})
        with open(path, "rb") as old:
            first = old.read()
            with suppress(Exception):
                answer("MyCheckpoint", [path]).save(trained, [*_LOSSES, _Unsavable()], None)
            survived = _content(path) == first
            with one_line_errors():
                answer("MyCheckpoint", [path]).save(trained, list(_LOSSES), _hidden())
            old.seek(0)
            replaced = old.read() == first
        trained.add(10)
        with one_line_errors():
            copy = shutil.copy(path, os.path.join(folder, "copy.pt"))
            answer("MyCheckpoint", [path]).save(trained, _LOSSES[1:], None)
        result = _restored(copy, fresh)
        return Restored(True, survived, replaced, *_pair_in(result), trained.values(), fresh.values())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _restored(path, model):
    """Return what the learner's `restore` returns for a copy of a checkpoint."""
    try:
        with one_line_errors():
            return answer("MyCheckpoint", [path]).restore(model)
    except AnswerError as error:
        if "FileNotFoundError" in str(error):
            why = "The check restored a copy of the file at `path`, expected one file that holds everything."
            raise AnswerError(f"{error}. {why}") from error
        raise


def _hidden():
    return [torch.tensor([1.5]), torch.tensor([2.5])]


def _content(path):
    with suppress(OSError), open(path, "rb") as file:
        return file.read()
    return None


def _pair_in(result):
    """Return the result of `restore` in words if it is no pair, and the losses and hidden state of the pair."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        return show(plain(result)), None, None
    losses, hidden = result
    losses = list(losses) if isinstance(losses, tuple | list) else losses
    is_state = isinstance(hidden, tuple | list) and all(isinstance(part, torch.Tensor) for part in hidden)
    return "", losses, [part.item() for part in hidden] if is_state else hidden


def parameter_of(value):
    """Return an RRef to a new parameter with one value. Runs on the server."""
    return rpc.RRef(torch.tensor(value, requires_grad=True))


def value_of(reference):
    """Return the value of a parameter. Runs on the server."""
    return reference.local_value().item()


def add_to(reference, amount):
    """Add an amount to a parameter. Runs on the server."""
    reference.local_value().detach().add_(amount)


# ---------------------------------------------------------------- SharedOptimizer


class Noted(NamedTuple):
    """The result of two steps: the notes of the optimizer, the values of the parameters, and whether a step hung."""

    steps: int
    together: bool
    replaced: bool
    values: list[float]
    hung: bool


def _two_steps() -> Noted:
    """Have the server make two steps with the learner's object at the same time. Runs on rank 0."""
    owner = rpc.remote("server", ParameterOwner)
    if error := rpc.rpc_sync("server", error_of, (owner,)):
        raise AnswerError(error)
    errors, ended = [], []
    first_has_begun = threading.Event()

    def step(scale, with_second):
        try:
            errors.append(_step(owner, scale, with_second, first_has_begun))
            ended.append(scale)
        except RuntimeError as error:
            if "timeout" not in str(error):
                errors.append(error_in_one_line(error))

    threads = [threading.Thread(target=step, args=arguments, daemon=True) for arguments in ((1.0, True), (2.0, False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * _PATIENCE)
    if any(errors):
        raise AnswerError(next(filter(None, errors)))
    return Noted(*rpc.rpc_sync("server", noted_by, (owner,)), hung=len(ended) < 2)


def _step(owner, scale, with_second, first_has_begun):
    """Have the owner make a step, and return its error; the second step comes while the first one is under way."""
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("server", loss_of, (owner, scale, with_second))
        dist_autograd.backward(context, [loss])
        if with_second:
            call = rpc.rpc_async("server", step_of, (owner, context), timeout=_PATIENCE)
            time.sleep(_SECONDS / 2)
            first_has_begun.set()
            return call.wait()
        first_has_begun.wait(_PATIENCE)
        return rpc.rpc_sync("server", step_of, (owner, context), timeout=_PATIENCE)


class ParameterOwner:
    """Two parameters, the learner's object, and an optimizer that notes its calls. Lives on the server."""

    def __init__(self):
        self.parameters = [torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)]
        self.optimizer = _watched(self.parameters)
        self.error = ""
        try:
            self.answer = vars(learners_module())["SharedOptimizer"](self.parameters, self.optimizer)
        except Exception as error:
            self.error = error_in_one_line(error)


def _watched(parameters):
    """Return an optimizer with slow steps, which note whether another step overlaps them."""

    # Each exercise makes a class: torch replaces `step` in the class of an optimizer, and grading would take that for
    # a change by the answer.
    class Watched(torch.optim.SGD):
        steps = 0
        under_way = 0
        together = False
        replaced = False

        def step(self):
            self.steps += 1
            self.under_way += 1
            self.together |= self.under_way > 1
            before = [parameter.grad for parameter in parameters]
            time.sleep(_SECONDS)
            now = [parameter.grad for parameter in parameters]
            self.replaced |= any(mine is not other for mine, other in zip(before, now, strict=True))
            super().step()
            self.under_way -= 1

    return Watched(parameters, lr=1.0)


def error_of(owner):
    """Return the error raised by the class of the learner, or an empty string."""
    return owner.local_value().error


def loss_of(owner, scale, with_second):
    """Return a loss with the gradient `scale` for the first parameter, and the same or none for the second."""
    first, second = owner.local_value().parameters
    return scale * (first.sum() + second.sum() if with_second else first.sum())


def step_of(owner, context):
    """Have the learner's object make a step, and return its error or an empty string."""
    try:
        owner.local_value().answer.step(context)
    except Exception as error:
        return error_in_one_line(error)
    return ""


def noted_by(owner):
    """Return the notes of the optimizer, and the values of the parameters."""
    owner = owner.local_value()
    noted = owner.optimizer
    return noted.steps, noted.together, noted.replaced, [parameter.item() for parameter in owner.parameters]


# ---------------------------------------------------------------- Bounded


class Update(NamedTuple):
    """The result of an update, as true or false and in words, and the result of `read` afterwards."""

    made: bool
    answer: str
    value: float
    version: int


class AtOnce(NamedTuple):
    """The result of two updates at the same time.

    `accepted` of them were made, `value` is what they left, and `torn` the value and version that do not belong
    together, if `read` has returned such a pair.
    """

    hung: bool
    accepted: int
    value: float
    torn: tuple[float, int] | None


# (a gradient and its version, whether the update is made, the value and the version afterwards)
_UPDATES = ((1, 0, True, -1, 1), (3, 0, True, -4, 2), (1, 0, False, -4, 2), (2, 2, True, -6, 3))


def _require_bounds(exam):
    """Require the right results for a single thread, with an object that has a limit of 1."""
    no_pair, updates, kept = exam.on_rank(_updates_by_one_thread, [update[:2] for update in _UPDATES])
    exam.require(not no_pair, f"`read` returned {no_pair}, expected a pair: values and version.")
    for found, (gradient, version, made, value, now) in zip(updates, _UPDATES, strict=False):
        age = now - made - version
        behind = f"With a limit of 1, an update that was {'one update' if age == 1 else f'{age} updates'} old"
        exam.require(found.made == made, f"{behind} returned {found.answer}, expected {made}.")
        exam.require(
            found.value == value, f"{behind}, with a gradient of {gradient}, left {found.value:g}, expected {value}."
        )
        exam.require(found.version == now, f"{behind} left version {found.version}, expected {now}.")
    exam.require(kept == 0, "The values that `read` returned change with later updates, expected a copy.")


def _require_one_at_a_time(exam):
    """Require that one of two updates at the same time is too old, and that `read` waits for the other update."""
    found = exam.on_rank(_updates_at_once)
    exam.require(
        not found.hung, f"An update did not end, expected every update to end: is the lock released? {RESTART}"
    )
    accepted = "both were" if found.accepted == 2 else "neither was"
    exam.require(
        found.accepted == 1,
        f"With a limit of 0, two updates with gradients of the same version came at the same time, and {accepted} "
        "made, expected one: after the first update, the second is too old.",
    )
    exam.require(
        found.value == -1,
        f"After an update by 1 and a refused update, the value 0 has become {found.value:g}, expected -1.",
    )
    if found.torn:
        value, version = found.torn
        exam.refuse(
            f"`read` returned {value:g} as the value of version {version}, while an update was under way, expected "
            f"{-version}."
        )


def _updates_by_one_thread(gradients):
    """Make updates with these gradients, each with its version.

    Returns what `read` returned first if that is no pair, otherwise ""; the result of each update; and, as it is in the
    end, the value that `read` returned first.
    """
    with one_line_errors():
        bounded = answer("Bounded", [_slow_zeros(), 1])
        pair = bounded.read()
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], torch.Tensor):
            return show(plain(pair)), [], 0
        updates = []
        for gradient, version in gradients:
            made = bounded.update(torch.full((1,), float(gradient)), version)
            values, now = bounded.read()
            updates.append(Update(bool(made), show(plain(made)), values.item(), now))
        return "", updates, pair[0].item()


def _updates_at_once() -> AtOnce:
    """Have two threads update an object with a limit of 0 at the same time, while a third thread reads."""
    with one_line_errors():
        bounded = answer("Bounded", [_slow_zeros(), 0])
    answers, torn = [], []

    def update():
        _slow.here = True
        answers.append(bounded.update(torch.ones(1), 0))

    threads = [threading.Thread(target=update, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    reader = threading.Thread(target=_read_until, args=(bounded, threads, torn), daemon=True)
    reader.start()
    for thread in [*threads, reader]:
        thread.join(_PATIENCE)
    if any(thread.is_alive() for thread in [*threads, reader]):
        return AtOnce(True, 0, 0.0, None)
    with one_line_errors():
        return AtOnce(False, sum(map(bool, answers)), bounded.read()[0].item(), torn[0] if torn else None)


def _read_until(bounded, threads, torn):
    """Read until the threads have ended, and note pairs in which the value does not belong to the version."""
    while any(thread.is_alive() for thread in threads):
        values, version = bounded.read()
        if values.item() != -version:
            torn.append((values.item(), version))
        time.sleep(0.001)


_slow = threading.local()


def _slow_zeros():
    """Return a tensor with one value, 0, with which a thread computes slowly if it has set `_slow.here`."""

    class Slow(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), options=None):
            result = super().__torch_function__(function, types, arguments, options or {})
            if getattr(_slow, "here", False):
                time.sleep(_SECONDS)
            return result

    return torch.zeros(1).as_subclass(Slow)
