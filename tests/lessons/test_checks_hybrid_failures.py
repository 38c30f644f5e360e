"""The checks of 26_hybrid_failures: each accepts the solution, and says what is wrong with other answers."""

import textwrap

import pytest
from answers import NOTEBOOKS, cell

from helpers import World, checks

SOLUTION = cell("solutions/26_hybrid_failures.ipynb", "def once(")
START = cell("solutions/26_hybrid_failures.ipynb", "start(")
SETUP = f"import sys, threading; sys.path.append({str(NOTEBOOKS)!r})\n{START}"
RIGHT = "Solved. A request is executed once, also when it comes again at once, and every caller gets its result."


def says(world, answer):
    world.view.execute(textwrap.dedent(answer))
    return repr(checks.hybrid_failures.once(world))


@pytest.mark.parametrize(
    "answer",
    [
        SOLUTION,
        """
        from concurrent.futures import Future
        futures = {}
        def once(request, function, arguments):
            own = Future()
            first = futures.setdefault(request, own)
            if first is own:
                own.set_result(function(*arguments))
            return first.result()
        """,
        """
        import collections
        locks = collections.defaultdict(threading.Lock)
        guard = threading.Lock()
        done = {}
        def once(request, function, arguments):
            with guard:
                lock = locks[request]
            with lock:
                if request not in done:
                    done[request] = function(*arguments)
            return done[request]
        """,
    ],
    ids=["solution", "futures", "a lock for each request"],
)
def test_once_that_is_right(world, answer):
    assert says(world, answer) == RIGHT
    assert repr(checks.hybrid_failures.once(world)) == RIGHT  # again, with what the answer has kept


AGAIN = "For a request that came three times, one after the other, the function ran 3 times, expected once."


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (cell("26_hybrid_failures.ipynb", "def once("), AGAIN),
        (SOLUTION.replace("with guard:", "if True:"), "For a request that came three times, all at once, the function"),
        (
            SOLUTION.replace("request not in results", "results.get(request) is None"),
            "For a request that came twice, of a function that returns None, the function ran 2 times, expected ",
        ),
        (
            SOLUTION.replace("[request]", "[arguments]").replace("request not", "arguments not"),
            "For two requests with the same function and arguments, the function ran once, expected 2 times.",
        ),
        (
            SOLUTION.replace("        return results[request]", "            return results[request]"),
            "For a request that came three times, one after the other, `once` returned [4, None, None], expected",
        ),
        ("def once(request, function, arguments):\n    raise ValueError(request)", "Rank 0 raised "),
        ("del once", "Rank 0 has no function `once`: run the cell that defines it, then this check."),
    ],
    ids=["skeleton", "no lock", "None", "by arguments", "no result", "an error", "none"],
)
def test_once_that_is_wrong(world, answer, message):
    assert says(world, answer).startswith(f"Not yet. {message}")


CHECKPOINT = cell("solutions/26_hybrid_failures.ipynb", "def my_checkpoint(")
ALL_BACK = "Solved. All weights, here and on the server, come back from the file, and the number of the next step, too."


def checkpoint_says(world, answer):
    world.view.execute(textwrap.dedent(answer))
    return repr(checks.hybrid_failures.my_checkpoint(world))


@pytest.mark.parametrize(
    "answer",
    [
        CHECKPOINT,
        """
        import torch.distributed.rpc as rpc
        def my_checkpoint(model, number):
            calls = [rpc.rpc_async(reference.owner(), weight_of, (reference,)) for reference in references(model)]
            return [number, [call.wait() for call in calls]]
        def weight_of(reference):
            return reference.local_value().detach().clone()
        """,
    ],
    ids=["solution", "by calls"],
)
def test_my_checkpoint_that_is_right(world, answer):
    assert checkpoint_says(world, answer) == ALL_BACK


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (cell("26_hybrid_failures.ipynb", "def my_checkpoint("), "`my_checkpoint` returned None, expected a pair"),
        (
            "def my_checkpoint(model, number):\n    return number, [], model.dense.state_dict()",
            "`my_checkpoint` returned 3 values, expected a pair",
        ),
        (
            CHECKPOINT.replace("references(model)]", "references(model)[1:]]"),
            "The list has 2 tensors, expected one for",
        ),
        (CHECKPOINT.replace("weights = [", "weights = [0 * "), "Weights on server came back otherwise than they were"),
        (CHECKPOINT.replace("references(model)]", "references(model)[::-1]]"), "The checkpoint cannot be saved, read"),
        (
            CHECKPOINT.replace("return number,", "return number + 1,"),
            "The checkpoint says that step 4 is next, expected",
        ),
        (CHECKPOINT.replace("reference.to_here().detach()", "reference"), "The checkpoint cannot be saved, read"),
        (CHECKPOINT.replace("weights = [", "1 / 0\n    weights = ["), "Rank 0 raised ZeroDivisionError"),
    ],
    ids=["skeleton", "no pair", "no table", "zeros", "the other way round", "the number", "RRefs", "an error"],
)
def test_my_checkpoint_that_is_wrong(world, answer, message):
    assert checkpoint_says(world, answer).startswith(f"Not yet. {message}")


def test_before_rpc_has_been_started():
    world = World(4)
    try:
        assert "RPC has not been initialized" in repr(checks.hybrid_failures.once(world))
        assert "RPC has not been initialized" in repr(checks.hybrid_failures.my_checkpoint(world))
    finally:
        world.stop()
