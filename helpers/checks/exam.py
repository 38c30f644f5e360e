"""Define exercises: functions that run on every rank, call the learner's function, and say what is wrong with it.

    @exercise
    def mean(exam):
        \"\"\"Check `mean(numbers)`: every rank gets the mean of the numbers of all ranks.\"\"\"
        expected = (2 * exam.n + 1) / 3
        result = exam.call(torch.full((exam.rank + 1,), exam.rank + 1.0))
        exam.require(near(result, expected), f"Rank {exam.rank} returned {show(result)}, expected {show(expected)}.")
        return f"Every rank returned {show(expected)}."

The exercise has the name of the function or class that the learner writes. If a requirement fails, the exam records it
and the exercise continues, because the other ranks may need the calls that follow. The learner sees the earliest
requirement that failed on any rank; if it failed on several ranks, the sentence of the lowest of them. If no
requirement failed, the learner sees the sentence that the exercise returned. `helpers.checks.judging` decides this.

In a notebook the exercise runs in the process of the rank (`sit_here`). Grading runs it in a process that answers
cannot reach (`helpers.grade.outside`). Then only the arguments and results of `exam.call` and `exam.on_rank` travel
between this process and the rank.
"""

import functools
import importlib
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import NamedTuple

import numpy as np
import torch

from helpers.checks.learner import learners_module
from helpers.measure.traffic import collectives, recorded

_COURSE = __name__.partition(".")[0] + "."
_OF_RREF = "Name a method, such as `rpc_sync().forward(...)`; on the owner, `local_value()` returns the object."
_HINTS = {  # by a text of the error: what to try
    "Could not find autograd context": "Use a context inside its `with` block.",
    "Already have an autograd context": "Only one context can be open: the training step opens it, by `with`.",
    "'RRefProxy' object is not callable": "Name a method, such as `rpc_sync().forward(...)`.",
    "PyRRef' object is not callable": _OF_RREF,
    "PyRRef' object has no attribute": _OF_RREF,
    "_Optimizer' object has no attribute 'zero_grad'": "Zero nothing: the gradients disappear with the context.",
    "positional argument: 'context_id'": "`step` of a `DistributedOptimizer` takes the context.",
    "cannot pickle 'generator' object": "RPC cannot send a generator: return a list.",
    "'RemoteModule' object has no attribute '_backward_hooks'": "Call the `forward` of the module.",
    "'tuple' object does not support item assignment": "Name the element first, as in `a = b[0]`, then change `a`.",
    "broadcast shape": "The changed tensor has fewer elements than its operand. Should the operand be a slice?",
    "NoneType": "A collective returns None, and a `grad` is None until a backward pass reaches a tensor that needs it.",
    "must have same reduction dim": "A layer does not take the split that the layer before it leaves.",
    "invalid input tensor list size, must be world size": "`reduce_scatter` takes one tensor for each rank.",
    "through the graph a second time": "Does it differentiate a graph twice, or keep a tensor of an earlier call?",
    "One of the differentiated Tensors does not require grad": "The inputs of the model need no gradient.",
    "backward(): incompatible function arguments": "`dist_autograd.backward` takes the context and a list of tensors.",
    "graphTask_ INTERNAL ASSERT": "Inside a context, start the backward pass by `dist_autograd.backward`.",
    "for parallelize_plan, <class": "The plan takes objects: call the class, as in `ColwiseParallel()`.",
    "all_to_all_single(): incompatible function arguments": "Split sizes are lists of integers: try `tolist`.",
    "outputShape[0] * worldSize == inputShape[0]": "Pass the output first: it has 1/n of the input's elements.",
}


class Run(NamedTuple):
    """One call of the learner's function on one rank: its point-to-point messages, and its collectives by name.

    The messages are those of `traffic.recorded`, the collectives those of `traffic.collectives`.
    """

    messages: list
    collectives: Counter


class Asked(NamedTuple):
    """The outcome of a function of the course in the learner's process.

    It has the result, the calls of the learner's function, the error that the learner's function raised, and the
    traceback of an error that the function of the course raised itself.
    """

    result: object
    runs: list[Run]
    error: str = ""
    failure: str = ""


class Outcome(NamedTuple):
    """The outcome of an exercise on one rank.

    `runs` are the calls of the learner's function. `error` has the class and the text of the error that the learner's
    function raised, and is empty if it raised none. `fault` is the first requirement that failed: the number of
    requirements before it, and its sentence. `returned` is the result of the exercise. `failure` is the traceback of an
    error that the exercise raised itself, often because the learner's function did something wrong on another rank.
    """

    runs: list[Run]
    error: str
    fault: tuple[int, str] | None
    returned: object
    failure: str = ""

    @property
    def messages(self) -> list:
        """The messages of all calls."""
        return [message for run in self.runs for message in run.messages]


class AnswerError(Exception):
    """The learner's code raised an error; the text has the class and the text of that error."""


class _Failure(Exception):
    """A function of the course raised an error in the learner's process; the text is the traceback of that error."""


class Wrong(Exception):
    """An answer is wrong; the text is the sentence for the learner."""


@dataclass(frozen=True)
class Foreign:
    """A placeholder for an object that is not plain data; it shows as the object's type."""

    type_name: str

    def __repr__(self):
        return f"a {self.type_name}"


class Exam:
    """One rank's part in an exercise: its number `rank`, the world size `n`, and calls of the learner's function."""

    def __init__(self, name: str, rank: int, n: int, ask: Callable):
        self.rank = rank
        self.n = n
        self.runs: list[Run] = []
        self.fault: tuple[int, str] | None = None
        self._name = name
        self._ask = ask
        self._required = 0

    def call(self, *arguments, watch: torch.Tensor | None = None, then: str = "") -> object:
        """Call the learner's function on this rank, and return its result as plain data.

        Parts of the result that are not plain data become a `Foreign`. The function may change tensors and modules
        among the arguments. With `watch`, each message records the content of this tensor at the time when the message
        was posted. `then` names a function of the lesson, such as a function that waits for all messages. It is called
        afterwards if the rank has it.
        """
        return self.on_rank(answer, self._name, arguments, watch, then)

    def on_rank(self, function: Callable, *arguments) -> object:
        """Run a function of the course in the process of the learner's code, and return its result as plain data.

        Use it only if plain data is not enough, because an answer can deceive a function that runs in the same process.
        `function` must be a function of a module, and must call the learner's function through `answer`.
        """
        asked = self._ask(function, arguments)
        self.runs += asked.runs
        if asked.error:
            raise AnswerError(asked.error)
        if asked.failure:
            raise _Failure(asked.failure)
        return asked.result

    def require(self, holds: object, sentence: str) -> bool:
        """Record the sentence if `holds` is false and no earlier requirement has failed; return whether it holds."""
        if not holds and self.fault is None:
            self.fault = self._required, sentence
        self._required += 1
        return bool(holds)

    def refuse(self, sentence: str) -> None:
        """Record the sentence, as `require` does for a requirement that fails."""
        self.require(False, sentence)

    @property
    def messages(self) -> list:
        """The messages of the last call."""
        return self.runs[-1].messages

    @property
    def collectives(self) -> Counter:
        """The collectives of the last call, by name."""
        return self.runs[-1].collectives


class Exercise:
    """An exercise of a lesson. Call it with a world to have the learner's function judged."""

    def __init__(
        self,
        function,
        *,
        also=(),
        together=None,
        ranks=slice(None),
        before=None,
        own_group=False,
        restart="",
        actors=False,
    ):
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self.module = function.__module__
        self.also = also
        self.together = together
        self.ranks = ranks
        self.before = before
        self.own_group = own_group
        self.restart = restart
        self.actors = actors

    def __call__(self, world):
        """Judge the learner's function on the ranks of a world, and return the verdict.

        Raises `WorldError` when `world` is not a world.
        """
        from helpers.checks.judging import verdict  # imported here because it imports this module

        return verdict(world, self)

    def ranks_of(self, size: int) -> range:
        """Return the ranks that take part in a world of this size."""
        return range(size)[self.ranks]

    def sit(self, rank: int, n: int, ask: Callable) -> Outcome:
        """Run the exercise as one rank; `ask(function, arguments)` runs a function in the learner's process."""
        exam = Exam(self.name, rank, n, ask)
        error, returned, failure = "", None, ""
        try:
            returned = self.function(exam)
        except AnswerError as raised:
            error = str(raised)
        except _Failure as raised:
            failure = str(raised)
        except Exception:
            failure = traceback.format_exc()
        return Outcome(exam.runs, error, exam.fault, returned, failure)


def exercise(function=None, **options):
    """Make an `Exercise` of a function that takes an `Exam` and returns the sentence of a solved exercise.

    Options: `also` has the names of other functions that the learner writes and that pass together with this one.
    `together` is a function that judges the results of the exercise on all ranks, given as a list in rank order; it
    returns the sentence of a solved exercise, or raises `Wrong`. `ranks` is a slice of the ranks that take part.
    `before` is a function that is called with the world before the exercise. `own_group` says that the learner's
    function gets or makes a new group, so that a broken default group does not matter. `restart` is the sentence that
    says how this lesson gets working ranks again. `actors` says that threads of actors may stay on the ranks, which are
    then never idle.
    """
    if function is None:
        return functools.partial(Exercise, **options)
    return Exercise(function, **options)


def sit_here(module: str, name: str) -> Outcome:
    """Run an exercise on this rank, in the process of the learner's code."""
    found = getattr(importlib.import_module(module), name)
    return found.sit(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), ask_here)


_runs: list[Run] = []  # the calls of the learner's function during the current `ask_here`


def ask_here(function: Callable, arguments: Sequence) -> Asked:
    """Run a function of the course in this process."""
    _runs.clear()
    try:
        return Asked(plain(function(*arguments)), list(_runs))
    except AnswerError as error:
        return Asked(None, list(_runs), error=str(error))
    except Exception:
        return Asked(None, list(_runs), failure=traceback.format_exc())


def answer(name: str, arguments: Sequence, watch: torch.Tensor | None = None, then: str = "") -> object:
    """Call the learner's function of this name in this process; call an autograd.Function through its `apply`.

    Raises `AnswerError` when the learner's function raises an error or is missing.
    """
    with recorded(watch) as messages, collectives() as calls:
        _runs.append(Run(messages, calls))
        lesson = vars(learners_module())
        if name not in lesson:
            raise AnswerError(missing(name))
        with errors_of_answer():
            found = lesson[name]
            is_autograd_function = isinstance(found, type) and issubclass(found, torch.autograd.Function)
            result = (found.apply if is_autograd_function else found)(*arguments)
            if then in lesson:
                lesson[then]()
            return result


@contextmanager
def errors_of_answer() -> Iterator[None]:
    """Turn an error inside the block, which runs the learner's code, into an `AnswerError`."""
    try:
        yield
    except AnswerError:
        raise
    except Exception as error:
        raise AnswerError(with_hint(f"{type(error).__name__}: {error}")) from error


def with_hint(error: str) -> str:
    """Return an error. An error that does not say what to do is cut to one line that says it.

    torch's text about an error on another worker has that error below its first line, and is returned as it is.
    """
    first_line = error.partition("\n")[0].removesuffix(" The following argument types are supported:")
    if "On WorkerInfo(" in first_line:
        return error
    for text, hint in _HINTS.items():
        if text in error:
            return f"{first_line.rstrip('.:! ')}. {hint}"
    return error


def missing(name: str) -> str:
    """Return the error of a rank that has no function of this name.

    It does not begin with the name of a class, so it differs from every error that the learner's function can raise.
    """
    return f"there is no function `{name}`"


def plain(value: object) -> object:
    """Return numbers, text, tensors, arrays and collections of these as plain data, and a `Foreign` for anything else.

    Records of the course, such as a `Message`, are also plain data.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        kind = type(value)._make if _is_record(value) else tuple
        return kind(map(plain, value))
    if isinstance(value, list | set | range):
        return (set if isinstance(value, set) else list)(map(plain, value))
    if isinstance(value, dict):
        return {plain(key): plain(part) for key, part in value.items()}
    if value is None or isinstance(value, bool | int | float | str | torch.Tensor | np.ndarray) or _is_record(value):
        return value
    return Foreign(type(value).__name__)


def _is_record(value):
    kind = type(value)
    return kind.__module__.startswith(_COURSE) and (hasattr(kind, "_fields") or is_dataclass(kind))


def number(value: object) -> int | float | None:
    """Return a number, or the only element of a tensor or array; None for anything else, and for a bool."""
    if isinstance(value, torch.Tensor | np.ndarray) and len(value.reshape(-1)) == 1:
        value = value.item()
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def near(value: object, expected: float, within: float = 1e-4) -> bool:
    """Return whether a value is a number, or a tensor of one, that differs from `expected` by less than `within`."""
    found = number(value)
    return found is not None and abs(found - expected) < within


def close(value: object, expected: torch.Tensor, within: float = 1e-10) -> bool:
    """Return whether a value is a tensor of the expected shape, and no element differs by more than `within`."""
    if not isinstance(value, torch.Tensor) or value.shape != expected.shape:
        return False
    return torch.allclose(value.double(), expected.double(), rtol=0, atol=within)


def relatively_close(value: torch.Tensor, expected: torch.Tensor, within: float) -> bool:
    """Return whether a tensor has the expected shape, and differs by at most `within` times the largest element."""
    return value.shape == expected.shape and bool((value - expected).abs().max() <= within * expected.abs().max())


def has_shape(value: object, expected: torch.Tensor) -> bool:
    """Return whether a value is a tensor of floating-point numbers with the shape of the expected tensor."""
    return isinstance(value, torch.Tensor) and value.shape == expected.shape and value.is_floating_point()


def rounded(tensor: torch.Tensor) -> list[float]:
    """Return the elements of a tensor as a list for a sentence, with four decimals."""
    return [round(element, 4) for element in tensor.flatten().tolist()]


def compared(value: object, expected: torch.Tensor, name: str) -> str:
    """Return in words how a value differs from the expected tensor, such as "2 times the gradient of x"."""
    if value is None:
        return f"no {name}"
    if getattr(value, "shape", None) == expected.shape:
        factor = ((value * expected).sum() / expected.square().sum()).item()
        if close(value, factor * expected):
            return f"{factor:.3g} times the {name}"
    return f"another {name}"


def show(value: object) -> str:
    """Return a short text for the result of an answer."""
    one = number(value)
    if one is not None:
        return str(round(one, 4))
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"a tensor of shape {list(value.shape)}" if hasattr(value, "shape") else str(value)


def called(counts: Counter) -> str:
    """Return a text that names the collectives, each with its count."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no collective"


def counted(count: int, thing: str) -> str:
    """Return a number of things in words, such as "1 message" or "2 messages"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def times_in_words(count: int) -> str:
    """Return "once", or a number and "times"."""
    return "once" if count == 1 else f"{count} times"
