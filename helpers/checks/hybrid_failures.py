"""Exercises of 31_hybrid_failures: a checkpoint brings all weights back, and a repeated request is executed once.

Trainer 0 calls `my_checkpoint`, and asks the server to call `once`.
"""

import io
import threading
import time
import uuid
from typing import NamedTuple

import torch
import torch.distributed.rpc as rpc

from helpers.checks.exam import answer, exercise, number, plain, show
from helpers.checks.hybrid_ddp_rpc import kept
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import in_one_line, one_line_errors, require_rpc

_SECONDS = 0.2  # for the function of a request, so that the same request comes again while it runs
_STEPS = 3  # before the checkpoint


class Case(NamedTuple):
    """Requests (pairs of a name and a value), how often the function is expected to run, and the expected results.

    `together` says whether the requests come at once, and `returns_none` whether their function returns None.
    """

    what: str
    requests: list[tuple[str, int]]
    times: int
    results: list[int | None]
    together: bool = False
    returns_none: bool = False


_CASES = (
    Case("For one request,", [("a", 1)], 1, [2]),
    Case("For a request that came three times, one after the other,", [("a", 2)] * 3, 1, [4, 4, 4]),
    Case("For two requests with the same function and arguments,", [("a", 3), ("b", 3)], 2, [6, 6]),
    Case(
        "For a request that came twice, of a function that returns None,",
        [("a", 4)] * 2,
        1,
        [None] * 2,
        returns_none=True,
    ),
    Case("For a request that came three times, all at once,", [("a", 5)] * 3, 1, [10, 10, 10], together=True),
    Case(
        "For two requests at once, each of which came twice,",
        [("a", 6), ("b", 7)] * 2,
        2,
        [12, 14] * 2,
        together=True,
    ),
)


@exercise
def my_checkpoint(exam):
    """Check `my_checkpoint(model, number)`: restored from a file, a new model equals the old one."""
    exam.on_rank(require_rpc, "my_checkpoint")
    if exam.rank == 0:
        expected = exam.on_rank(_train)
        saved = exam.on_rank(_save)
        if exam.require(
            isinstance(saved, list | tuple) and len(saved) == 2,
            f"`my_checkpoint` returned {_kind(saved)}, expected a pair: `number` and a list of all weights.",
        ):
            _require_all_back(exam, expected)
    return "The checkpoint restores the number of the next step and all weights, on trainer 0 and on the server."


@exercise
def once(exam):
    """Check `once(request, function, arguments)`: a request is executed once, however often it comes."""
    exam.on_rank(require_rpc, "once")
    if exam.rank == 0:
        outcomes = exam.on_rank(_ask_server, _CASES)
        for case, (times, results) in zip(_CASES, outcomes, strict=True):
            exam.require(
                times == case.times, f"{case.what} the function ran {_times(times)}, expected {_times(case.times)}."
            )
            exam.require(
                all(map(_is_result, results, case.results)),
                f"{case.what} `once` returned {results}, expected {case.results}.",
            )
    return "Each request runs once, even if it comes again while it runs, and every caller gets its result."


def _require_all_back(exam, expected):
    """Require that a new model has the expected weights, by owner, after the checkpoint has been written to it."""
    restored = exam.on_rank(_restore)
    exam.require(not restored.error, f"The checkpoint cannot be saved, read and written back: {restored.error}")
    exam.require(
        restored.listed == len(expected),
        f"The list has {restored.listed} tensors, expected one for each of the {len(expected)} RRefs of the model.",
    )
    for (_, values), (owner, right) in zip(restored.weights, expected, strict=False):
        exam.require(
            torch.equal(values, right),
            f"The restored weights on {owner} differ, expected the weights after {_STEPS} steps.",
        )
    exam.require(
        number(restored.number) == _STEPS,
        f"The checkpoint says that step {show(restored.number)} is next, expected {_STEPS}.",
    )


def _is_result(result, expected):
    return result is None if expected is None else number(result) == expected


def _kind(value):
    return f"{len(value)} values" if isinstance(value, list | tuple) else show(value)


def _times(count):
    return "once" if count == 1 else f"{count} times"


# On trainer 0, the functions below run in the process of the learner's code.


class Restored(NamedTuple):
    """The result of a restored checkpoint: an error, the number of the next step, and how many weights were listed.

    `weights` holds each weight of a new model, restored from the checkpoint, with its owner.
    """

    error: str
    number: object
    listed: int
    weights: list[tuple[str, torch.Tensor]]


def _train():
    """Train the model that will be saved, and return its weights, each with its owner."""
    lesson = vars(learners_module())
    with one_line_errors():
        kept["model"] = model = _new_model()
        optimizer = lesson["new_optimizer"](lesson["references"](model))
        for step in range(_STEPS):
            lesson["step"](model, optimizer, lesson["batch"](range(32 * step, 32 * step + 32)))
        return _weights(model)


def _new_model():
    """Return a model for trainer 0 alone, with a table of its own."""
    lesson = vars(learners_module())
    torch.manual_seed(0)
    return lesson["HybridModel"](lesson["new_table"](), lesson["alone"], "cpu")


def _weights(model):
    references = vars(learners_module())["references"](model)
    return [(reference.owner_name(), reference.to_here().detach().clone()) for reference in references]


def _save():
    with one_line_errors():
        kept["saved"] = answer("my_checkpoint", [kept["model"], _STEPS])
    return kept["saved"]


def _restore() -> Restored:
    """Write the checkpoint to a file, and restore a new model from it."""
    with one_line_errors():
        model = _new_model()
        references = vars(learners_module())["references"](model)
    try:
        file = io.BytesIO()
        torch.save(kept["saved"], file)
        step, weights = torch.load(io.BytesIO(file.getvalue()))
        if len(weights) == len(references):
            for reference, values in zip(references, weights, strict=True):
                reference.remote().detach().rpc_sync().copy_(values)
    except Exception as error:
        return Restored(in_one_line(str(error)), None, 0, [])
    return Restored("", step, len(weights), _weights(model))


def _ask_server(cases):
    """Have the server try the cases; return how often the function ran and the results, for each case."""
    with one_line_errors():
        return rpc.rpc_sync("server", try_cases, (cases,))


# The functions below run on the server.


def try_cases(cases):
    """Return how often the function ran and the results, for each case; raise the first error of the answer."""
    return [_try(case) for case in cases]


def _try(case):
    ran = []

    def double(value):
        ran.append(value)
        time.sleep(_SECONDS)
        return 2 * value

    def nothing(value):
        ran.append(value)

    names = {request: f"{request} of {uuid.uuid4()}" for request, _ in case.requests}
    results = [None] * len(case.requests)
    errors = []

    def call(place, request, value):
        function = nothing if case.returns_none else double
        try:
            results[place] = vars(learners_module())["once"](names[request], function, (value,))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(place, *request)) for place, request in enumerate(case.requests)]
    for thread in threads:
        thread.start()
        if not case.together:
            thread.join()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return len(ran), plain(results)
