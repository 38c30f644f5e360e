"""The checks of notebook 16 accept the solutions, and refuse the skeletons and plausible wrong answers, saying why."""

import textwrap
from pathlib import Path

import nbformat
import pytest

from helpers import checks
from helpers.checks.judging import RESTART
from helpers.checks.rpc_locking import locked

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

SETUP = """
import os, threading, warnings
import torch
import torch.distributed.rpc as rpc

warnings.filterwarnings("ignore", message="You are using a Backend")
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=10, _transports=["uv"], _channels=["basic"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n, rpc_backend_options=options)
guard = threading.Lock()
"""

TOTAL = """
{}
def total(workers, function):
    {}
"""
FREE = "@rpc.functions.async_execution"
BY_A_THREAD = """future = torch.futures.Future()
    def ask_all():
        future.set_result(sum(rpc.rpc_sync(worker, function) for worker in workers))
    threading.Thread(target=ask_all).start()
    return future
"""
ASKED = "asked = [rpc.rpc_async(worker, function) for worker in workers]; "

BATCHER = """
class Batcher:
    def __init__(self, size, run):
        self.size, self.run = size, run
        self.asked, self.lock, self.full = [], threading.Lock(), threading.Event()

    {}
"""
COLLECT = """
    @rpc.functions.async_execution
    def ask(self, x):
        future, batch = torch.futures.Future(), []
        with self.lock:
            self.asked.append((x, future))
            if len(self.asked) == self.size:
                {}
        results = {}
        for (_, waiting), result in zip(batch, results):
            waiting.set_result({})
        return future
"""
EMPTIED = "batch, self.asked = self.asked, []"
ONE_RUN = "self.run([x for x, _ in batch]) if batch else []"
BLOCKING = """
    def ask(self, x):
        with self.lock:
            place = len(self.asked)
            self.asked.append(x)
            first = place - place % self.size
            if place == first:
                self.full = threading.Event()
            full = self.full
            if place == first + self.size - 1:
                full.results = self.run(self.asked[first:])
                full.set()
        full.wait()
        return full.results[place - first]
"""

ASK_ANY = """
def ask_any(workers, function, args):
    {}
"""
LATE = """
    import time
    for worker in workers:
        future = rpc.rpc_async(worker, function, args=args, timeout={})
        try:
            return future.wait()
        except RuntimeError as error:
            {}
    raise RuntimeError("nobody is left")
"""
IN_TURN = """
    failed = RuntimeError("no workers")
    for worker in workers:
        try:
            return rpc.rpc_sync(worker, function, args=args)
        except {} as error:
            failed = error
    {}
"""


def check(world, function, *cell, ranks=None):
    world.view.execute(cell[0].format(*cell[1:]), targets=ranks)
    return repr(function(world))


@pytest.mark.parametrize(
    ("decorator", "body", "verdict"),
    [
        (
            FREE,
            ASKED + "return torch.futures.collect_all(asked).then(lambda done: sum(a.value() for a in done.value()))",
            "Solved. total returned 10, and no server thread of worker1 waited for it.",
        ),
        (FREE, BY_A_THREAD, "Solved. total returned 10, and no server thread of worker1 waited for it."),
        (
            "",
            "return sum(rpc.rpc_sync(worker, function) for worker in workers)",
            "Not yet. The answers are right, but a server thread of worker1 waited inside `total` for others.",
        ),
        (
            FREE,
            ASKED + "future = torch.futures.Future(); future.set_result(sum(a.wait() for a in asked)); return future",
            "Not yet. The answers are right, but a server thread of worker1 waited inside `total` for others.",
        ),
        (
            FREE,
            ASKED + "return torch.futures.collect_all(asked).then(lambda done: len(done.value()))",
            "Not yet. total returned 4, and the target is 10.",
        ),
    ],
)
def test_total(world, decorator, body, verdict):
    assert check(world, checks.total_without_waiting, TOTAL, decorator, body) == verdict


def test_total_that_returns_a_number(world):
    answer = check(world, checks.total_without_waiting, TOTAL, FREE, "return 10")
    assert answer.startswith("Not yet. Rank 0 raised RuntimeError: ") and "must return a torch.futures.Future" in answer


def test_total_that_is_missing(world):
    world.view.execute("globals().pop('total', None)")
    assert repr(checks.total_without_waiting(world)) == (
        "Not yet. Rank 0 has no function `total`: run the cell that defines it, then this check."
    )


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (COLLECT.format(EMPTIED, ONE_RUN, "result"), "Solved. 12 callers were answered by 4 calls of run."),
        ("def ask(self, x): return self.run([x])[0]", "Not yet. ask answered a caller before 3 had asked."),
        (COLLECT.format(EMPTIED, ONE_RUN, "result").replace("with self.lock", "if True"), "Not yet. "),
        (
            COLLECT.format(EMPTIED, ONE_RUN, "results"),
            "Not yet. The caller with 0 got a list, and the target is 0.",
        ),
        (
            COLLECT.format("batch = self.asked", ONE_RUN, "result"),
            "Not yet. 12 callers asked, and some got no answer within 8 s.",
        ),
        (
            COLLECT.format(EMPTIED, "[self.run([x])[0] for x, _ in batch]", "result"),
            "Not yet. run was called with [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] values, and the target is [3, 3, 3, 3].",
        ),
        (
            BLOCKING,
            "Not yet. The answers are right, but a server thread of worker1 waited inside `ask` for others.",
        ),
    ],
)
def test_batches(world, body, verdict):
    said = check(world, checks.batches, BATCHER, body)
    assert said.startswith(verdict) if verdict == "Not yet. " else said == verdict


def test_batches_after_threads_were_starved(broken_world):
    never = "def ask(self, x): self.full.wait()"
    assert check(broken_world, checks.batches, BATCHER, never) == (
        "Not yet. 12 callers asked, and some got no answer within 8 s."
    )
    assert repr(checks.batches(broken_world)) == f"Not yet. Rank 1 is serving. {RESTART}"


def test_next_replica(broken_world):
    for body, verdict in (
        (
            "return rpc.rpc_sync(workers[0], function, args=args)",
            "Not yet. The first worker was dead, and ask_any raised RuntimeError instead of asking the next.",
        ),
        (
            "return [w.wait() for w in [rpc.rpc_async(w, function, args=args) for w in workers[1:]]][0]",
            "Not yet. ask_any asked ['worker2', 'worker2'], and the target is ['worker3', 'worker2'].",
        ),
        (
            IN_TURN.format("Exception", "raise failed"),
            "Not yet. The function raised a ValueError, and ask_any asked 2 workers.",
        ),
        (
            IN_TURN.format("Exception", "raise RuntimeError from failed"),
            "Not yet. The function raised a ValueError, and ask_any raised RuntimeError: ",
        ),
        (IN_TURN.format("RuntimeError", "return None"), "Not yet. All workers were dead, and ask_any returned None."),
        (
            IN_TURN.format("RuntimeError", "raise failed"),
            "Solved. A dead worker was passed over, a late one, too, and an error of the function was not.",
        ),
        (
            LATE.format(2, "pass"),
            "Solved. A dead worker was passed over, a late one, too, and an error of the function was not.",
        ),
        (LATE.format(0, "pass"), "Not yet. The first worker did not answer in time, and ask_any waited for it."),
        (
            LATE.format(2, "if 'timeout' in str(error): raise"),
            "Not yet. The first worker did not answer in time, and ask_any raised RuntimeError instead of asking the "
            "next.",
        ),
    ):
        assert check(broken_world, checks.next_replica, ASK_ANY, body, ranks=0) == verdict
    assert repr(checks.batches(broken_world)) == f"Not yet. Rank 3 is dead. {RESTART}"


# ---------------------------------------------------------------- locked

SOLVED = "Solved. 4 requests did their work at the same time, and counted to 4."


def cell(path):
    """Return the cell of a notebook in which the learner's function is defined, without its first line."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / path, as_version=4).cells if cell.cell_type == "code"]
    (found,) = [source for source in cells if source.startswith("%%px") and "def record(" in source]
    return found.partition("\n")[2]


def locked_says(world, answer):
    """Define an answer on every rank, and return what the check says."""
    world.view.execute(textwrap.dedent(answer))
    return repr(locked(world))


def record(*lines):
    """Return the function with these lines."""
    return "def record(work, read, write):\n    " + "\n    ".join(lines)


def test_locked_the_skeleton_and_the_solution(world):
    skeleton = locked_says(world, cell("16_rpc_threads_and_failures.ipynb"))
    assert skeleton == "Not yet. 4 requests at the same time counted to 1, and the target is 4."
    assert locked_says(world, cell("solutions/16_rpc_threads_and_failures.ipynb")) == SOLVED


@pytest.mark.parametrize(
    "lines",
    [
        ("work()", "guard.acquire()", "try:", "    write(read() + 1)", "finally:", "    guard.release()"),
        ("with guard:", "    write(1 + read())", "return work()"),
        ("done = work()", "with guard:", "    before = read()", "    write(before + 1)", "return done, before"),
    ],
)
def test_locked_right_in_other_styles(world, lines):
    assert locked_says(world, record(*lines)) == SOLVED


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("with guard:", "    work()", "    write(read() + 1)"), "A request had to wait for the work of another one"),
        (("work()", "with threading.Lock():", "    write(read() + 1)"), "counted to 1, and the target is 4."),
        (("work()", "before = read()", "with guard:", "    write(before + 1)"), "counted to 1, and the target is 4."),
        (("with guard:", "    write(read() + 1)"), "4 requests called work 0 times, and the target is once each."),
        (("work()",), "4 requests called write 0 times, and the target is once each."),
        (("work()", "with guard:", "    write(read() + missing)"), "NameError"),
    ],
)
def test_locked_wrong(world, lines, why):
    said = locked_says(world, record(*lines))
    assert said.startswith("Not yet. ") and why in said, said


def test_locked_a_lock_that_is_never_given_back(broken_world):
    said = locked_says(broken_world, record("work()", "guard.acquire()", "write(read() + 1)"))
    expected = f"3 of 4 requests got no answer within 12 s: does each one give the lock back? {RESTART}"
    assert said == f"Not yet. {expected}"


def test_locked_without_the_function(world):
    said = locked_says(world, "globals().pop('record', None)")
    assert said == "Not yet. Rank 0 has no function `record`: run the cell that defines it, then this check."
