"""The checks of notebook 16 accept the solutions, and refuse the skeletons and plausible wrong answers, saying why."""

import textwrap
from pathlib import Path

import nbformat
import pytest

from helpers import checks
from helpers.checks.judging import RESTART

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

SETUP = """
import os, threading, warnings
import torch
import torch.distributed.rpc as rpc

warnings.filterwarnings("ignore", message="You are using a Backend")
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=10, _transports=["uv"], _channels=["basic"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n, rpc_backend_options=options)
lock = threading.Lock()
"""

FREE = "@rpc.functions.async_execution"
ASK = """
{}
def my_ask(worker, function):
    {}
"""

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


THEN = "return rpc.rpc_async(worker, function).then(lambda answered: {})"
WAITED = (
    "Not yet. The answers are right, but a server thread of worker1 waited inside `my_ask`, expected none to wait: "
    "return a future instead."
)
EXPECTED = "expected (1, 4): the rank that runs it, and what the function returned."
ASKED_BY_A_THREAD = """future = torch.futures.Future()
    asking = threading.Thread(target=lambda: future.set_result((rank, rpc.rpc_sync(worker, function))))
    asking.start()
    return future
"""


@pytest.mark.parametrize(
    ("decorator", "body", "verdict"),
    [
        (FREE, THEN.format("(rank, answered.value())"), "Solved. my_ask returned (1, 4), and no server thread"),
        (FREE, ASKED_BY_A_THREAD, "Solved. my_ask returned (1, 4), and no server thread"),
        ("", "return rank, rpc.rpc_sync(worker, function)", WAITED),
        (FREE, THEN.format("(rank, rpc.rpc_sync(worker, function))"), WAITED),
        (
            FREE,
            "asked = rpc.rpc_async(worker, function); asked.wait(); return asked.then(lambda a: (rank, a.value()))",
            WAITED,
        ),
        (FREE, THEN.format("answered.value()"), f"Not yet. my_ask returned 4, {EXPECTED}"),
        (FREE, THEN.format("(answered.value(), rank)"), f"Not yet. my_ask returned (4, 1), {EXPECTED}"),
        (FREE, "return rpc.rpc_async(worker, function)", f"Not yet. my_ask returned 4, {EXPECTED}"),
    ],
)
def test_my_ask(world, decorator, body, verdict):
    said = check(world, checks.rpc_threads_and_failures.my_ask, ASK, decorator, body)
    assert said.startswith(verdict), said


@pytest.mark.parametrize(("decorator", "pair"), [("", "(rank, answered.value())"), (FREE, "(rank, answered)")])
def test_my_ask_that_sends_a_future(world, decorator, pair):
    said = check(world, checks.rpc_threads_and_failures.my_ask, ASK, decorator, THEN.format(pair))
    assert said == (
        "Not yet. worker1 tried to send a future, expected a pair: is `my_ask` decorated, and does its future get the "
        "answer itself?"
    )


def test_my_ask_is_accepted(world):
    check(world, checks.rpc_threads_and_failures.my_ask, ASK, FREE, THEN.format("(rank, answered.value())"))
    assert "my_ask" in world.accepted


def test_my_ask_that_returns_no_future(world):
    answer = check(world, checks.rpc_threads_and_failures.my_ask, ASK, FREE, "return rank, 4")
    assert answer.startswith("Not yet. Rank 0 raised RuntimeError: ") and "must return a torch.futures.Future" in answer


def test_my_ask_that_is_missing(world):
    world.view.execute("globals().pop('my_ask', None)")
    assert repr(checks.rpc_threads_and_failures.my_ask(world)) == (
        "Not yet. Rank 0 has no function `my_ask`: run the cell that defines it, then this check."
    )


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (COLLECT.format(EMPTIED, ONE_RUN, "result"), "Solved. 4 calls of run answered 12 callers."),
        (
            "def ask(self, x): return self.run([x])[0]",
            "Not yet. ask answered a caller early, expected no answer before 3 callers have asked.",
        ),
        (COLLECT.format(EMPTIED, ONE_RUN, "result").replace("with self.lock", "if True"), "Not yet. "),
        (
            COLLECT.format(EMPTIED, ONE_RUN, "results"),
            "Not yet. The caller with 0 got a list of 3, expected 0: the result for its own value.",
        ),
        (
            COLLECT.format("batch = self.asked", ONE_RUN, "result"),
            "Not yet. 12 callers asked, and some got no answer within 8 s, expected an answer for each: does each "
            "full batch fill all its futures?",
        ),
        (
            COLLECT.format(EMPTIED, "[self.run([x])[0] for x, _ in batch]", "result"),
            "Not yet. run was called with [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] values, expected [3, 3, 3, 3].",
        ),
        (
            BLOCKING,
            "Not yet. The answers are right, but a server thread of worker1 waited inside `ask`, expected none to "
            "wait: return a future instead.",
        ),
    ],
)
def test_batches(world, body, verdict):
    said = check(world, checks.rpc_threads_and_failures.Batcher, BATCHER, body)
    assert said.startswith(verdict) if verdict == "Not yet. " else said == verdict


def test_batches_after_threads_were_starved(broken_world):
    never = "def ask(self, x): self.full.wait()"
    assert check(broken_world, checks.rpc_threads_and_failures.Batcher, BATCHER, never) == (
        "Not yet. 12 callers asked, and some got no answer within 8 s, expected an answer for each: does each "
        "full batch fill all its futures?"
    )
    assert repr(checks.rpc_threads_and_failures.Batcher(broken_world)) == f"Not yet. Rank 1 is serving. {RESTART}"


NEXT_REPLICA = [
    (
        "return rpc.rpc_sync(workers[0], function, args=args)",
        "Not yet. The first worker was dead, and ask_any raised RuntimeError, expected it to ask the next worker.",
    ),
    (
        IN_TURN.format("Exception", "raise failed"),
        "Not yet. The function raised a ValueError, and ask_any asked 2 workers, expected only the first.",
    ),
    (
        IN_TURN.format("RuntimeError", "raise failed"),
        "Solved. ask_any passed over a dead worker and a slow worker, and let the function's own error through.",
    ),
    (
        LATE.format(0, "pass"),
        "Not yet. The first worker did not answer in time, and ask_any asked ['worker2'], expected ['worker2', "
        "'worker2'].",
    ),
]
NEXT_REPLICA_AT_NIGHT = [
    (
        "return [w.wait() for w in [rpc.rpc_async(w, function, args=args) for w in workers[1:]]][0]",
        "Not yet. The first worker was dead, and ask_any asked ['worker2', 'worker2'], expected "
        "['worker3', 'worker2'].",
    ),
    (
        IN_TURN.format("Exception", "raise RuntimeError from failed"),
        "Not yet. The function raised a ValueError, and ask_any raised RuntimeError, expected the ValueError.",
    ),
    (
        IN_TURN.format("RuntimeError", "return None"),
        "Not yet. All workers were dead, and ask_any returned None, expected a RuntimeError.",
    ),
    (
        LATE.format(2, "pass"),
        "Solved. ask_any passed over a dead worker and a slow worker, and let the function's own error through.",
    ),
    (
        LATE.format(2, "if 'timeout' in str(error): raise"),
        "Not yet. The first worker did not answer in time, and ask_any raised RuntimeError, expected it to ask the "
        "next worker.",
    ),
]


def test_next_replica(broken_world):
    for body, verdict in NEXT_REPLICA:
        assert check(broken_world, checks.rpc_threads_and_failures.ask_any, ASK_ANY, body, ranks=0) == verdict
    assert repr(checks.rpc_threads_and_failures.Batcher(broken_world)) == f"Not yet. Rank 3 is dead. {RESTART}"


@pytest.mark.nightly
def test_next_replica_with_other_answers(broken_world):
    for body, verdict in NEXT_REPLICA_AT_NIGHT:
        assert check(broken_world, checks.rpc_threads_and_failures.ask_any, ASK_ANY, body, ranks=0) == verdict


# ---------------------------------------------------------------- locked

SOLVED = "Solved. 4 requests worked at the same time, and counted to 4."
LOST = "counted to 1, expected 4: do not let another request in between `read` and `write`."


def cell(path):
    """Return the cell of a notebook in which the learner's function is defined, without its first line."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / path, as_version=4).cells if cell.cell_type == "code"]
    (found,) = [source for source in cells if source.startswith("%%px") and "def my_record(" in source]
    return found.partition("\n")[2]


def locked_says(world, answer):
    """Define an answer on every rank, and return what the check says."""
    world.view.execute(textwrap.dedent(answer))
    return repr(checks.rpc_threads_and_failures.my_record(world))


def record(*lines):
    """Return the function with these lines."""
    return "def my_record(work, read, write):\n    " + "\n    ".join(lines)


def test_locked_the_skeleton_and_the_solution(world):
    skeleton = locked_says(world, cell("16_rpc_threads_and_failures.ipynb"))
    assert skeleton == f"Not yet. 4 requests at the same time {LOST}"
    assert locked_says(world, cell("solutions/16_rpc_threads_and_failures.ipynb")) == SOLVED


@pytest.mark.parametrize(
    "lines",
    [
        ("work()", "lock.acquire()", "try:", "    write(read() + 1)", "finally:", "    lock.release()"),
        ("with lock:", "    write(1 + read())", "return work()"),
        ("done = work()", "with lock:", "    before = read()", "    write(before + 1)", "return done, before"),
    ],
)
def test_locked_right_in_other_styles(world, lines):
    assert locked_says(world, record(*lines)) == SOLVED


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("with lock:", "    work()", "    write(read() + 1)"), "A request waited while another request did its work"),
        (("work()", "with threading.Lock():", "    write(read() + 1)"), LOST),
        (("work()", "before = read()", "with lock:", "    write(before + 1)"), LOST),
        (("with lock:", "    write(read() + 1)"), "4 requests called `work` 0 times, expected once each."),
        (("work()",), "4 requests called `write` 0 times, expected once each."),
        (("work()", "with lock:", "    write(read() + missing)"), "NameError"),
    ],
)
def test_locked_wrong(world, lines, why):
    said = locked_says(world, record(*lines))
    assert said.startswith("Not yet. ") and why in said, said


def test_locked_a_lock_that_is_never_released(broken_world):
    said = locked_says(broken_world, record("work()", "lock.acquire()", "write(read() + 1)"))
    expected = (
        "3 of 4 requests got no answer within 12 s, expected an answer for each: does each request release the lock? "
    )
    expected += RESTART
    assert said == f"Not yet. {expected}"


def test_locked_without_the_function(world):
    said = locked_says(world, "globals().pop('my_record', None)")
    assert said == "Not yet. Rank 0 has no function `my_record`: run the cell that defines it, then this check."
