"""Exercises of 33_hybrid_recovery: the three stages of a recovery, a repeated request.

The trainers call `my_regroup`, the master calls `my_living` and `my_resume`. Trainer 0 asks the server to call `once`.
"""

import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc

from helpers.checks.exam import AnswerError, answer, exercise, near, number, plain, show, times_in_words
from helpers.checks.hybrid_ddp_rpc import kept, weight_of_table, weights_of
from helpers.checks.hybrid_failures import RESTART, group_alone, timed_out
from helpers.checks.judging import SECONDS_TO_ANSWER
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import one_line_errors, require_rpc

_SECONDS = 0.2  # for the function of a request, so that the same request comes again while it runs
_SILENCE = 1.2  # the timeout in seconds with which the answer asks silent workers; the lesson itself uses 2 s
_SECONDS_TO_END = 5  # for a call of `once`
_NO_END = f"no end after {_SECONDS_TO_END} s"  # instead of the result of such a call
_WAITED = "waited"  # instead of the size of a group or the result of an answer, if a wait ended with a timeout


class RequestCase(NamedTuple):
    """Requests (pairs of a name and a value), how often the function is expected to run, and the expected results.

    `together` says whether the requests come at once. The function is one of the functions in `_try`; the result of a
    request whose function raised an error is the text of the error. `new_tensors` says that each request hands over the
    value in a tensor of its own, as each call by RPC does.
    """

    what: str
    requests: list[tuple[str, int]]
    times: int
    results: list[int | str | None]
    together: bool = False
    function: str = "double"
    new_tensors: bool = False


_turns = threading.Condition()

_CASES = (
    RequestCase("For one request,", [("a", 1)], 1, [2]),
    RequestCase("For a request that came three times, one after the other,", [("a", 2)] * 3, 1, [4, 4, 4]),
    RequestCase("For two requests with the same function and arguments,", [("a", 3), ("b", 3)], 2, [6, 6]),
    RequestCase(
        "For a request that came twice, of a function that returns None,",
        [("a", 4)] * 2,
        1,
        [None] * 2,
        function="nothing",
    ),
    RequestCase(
        "For a request that came twice, of a function that raises an error,",
        [("a", 8)] * 2,
        1,
        ["ValueError(8)"] * 2,
        function="error",
    ),
    RequestCase("For a request that came three times, all at once,", [("a", 5)] * 3, 1, [10, 10, 10], together=True),
    RequestCase(
        "For two requests at once, each of which came twice,",
        [("a", 6), ("b", 7)] * 2,
        2,
        [12, 14] * 2,
        together=True,
    ),
    RequestCase(
        "For a request that came twice at once, of a function that raises an error,",
        [("a", 9)] * 2,
        1,
        ["ValueError(9)"] * 2,
        together=True,
        function="error",
    ),
    RequestCase("For a request that came twice, with a tensor,", [("a", 1)] * 2, 1, [2, 2], new_tensors=True),
)


@exercise(restart=RESTART)
def my_living(exam):
    """Check `my_living(names, seconds)`: the workers that answer in time, all asked at the same time."""
    exam.on_rank(require_rpc, "my_living")
    trainers = exam.n - 2
    if exam.rank == trainers:
        names = ["server", *[f"trainer{trainer}" for trainer in range(trainers)], "master"]
        silent = [*names[2 : 1 + trainers], "server"]  # the notebook may be asking rank 0
        for stopped in ([], ["trainer1"], silent):
            for _ in range(3):
                alive, seconds, stayed, left = exam.on_rank(_ask_all, names, stopped)
                if stayed:
                    break
            else:
                continue  # each time a stopped rank was woken too early, so the result says nothing
            expected = [name for name in names if name not in stopped]
            who = f"When {' and '.join(stopped) or 'no rank'} {'are' if len(stopped) > 1 else 'is'} silent,"
            returned = alive if isinstance(alive, list) else show(alive)
            exam.require(alive == expected, f"{who} `my_living` returned {returned}, expected {expected}.")
            exam.require(
                left == names,
                f"{who} `my_living` changed its list `names` to {left}, expected no change: a silent worker may "
                "answer the next time.",
            )
            if not exam.require(
                0.95 * _SILENCE * bool(stopped) < seconds < 1.6 * _SILENCE,
                f"{who} `my_living(names, {_SILENCE})` took {seconds:.1f} s, expected about "
                f"{_SILENCE if stopped else 0} s: give each call the timeout, and call all workers before you wait.",
            ):
                break  # another such wait would last until the timeout of RPC
    return "The list has the workers that answered, and silent workers cost the timeout only once."


def _begin_turns(world):
    """Have all ranks forget the turns of an earlier attempt, unless a rank is busy, which the verdict reports."""
    if all(state.state == "idle" for state in world.where()):
        world.view.apply_async(forget_turns).get(SECONDS_TO_ANSWER)


@exercise(before=_begin_turns, own_group=True, restart=RESTART)
def my_regroup(exam):
    """Check `my_regroup(members)`: a new group of these trainers, made without the others, with a timeout of 5 s."""
    trainers = exam.n - 2
    if exam.rank < trainers:
        for members in ([exam.rank], list(range(trainers))):
            size, total = exam.on_rank(_regroup, members)
            who = f"On trainer {exam.rank}, `my_regroup({members})`"
            exam.require(
                size != _WAITED,
                f"{who} waited for trainers outside the list, expected a group that only its members make.",
            )
            exam.require(size is not None, f"{who} returned {show(total)}, expected a process group.")
            exam.require(
                size == len(members), f"{who} returned a group of size {size}, expected a group of size {len(members)}."
            )
            expected = float(sum(member + 1 for member in members))
            exam.require(
                near(total, expected),
                f"{who} returned a group whose all-reduce gave {show(total)}, expected {show(expected)}.",
            )
        seconds = exam.on_rank(_seconds_alone, exam.rank == 0 and exam.fault is None)
        exam.require(
            seconds is None or 3 < seconds < 8,
            f"Trainer 0 waited for {seconds or 0:.0f} s in its group for a member that never called `all_reduce`, "
            "expected an error after the group's timeout of 5 s.",
        )
    return "Only the members made each group, the groups work, and no wait lasted longer than the timeout."


@exercise(restart=RESTART)
def my_resume(exam):
    """Check `my_resume(members)`: members get the state of the latest checkpoint, with the table in a new place."""
    exam.on_rank(require_rpc, "my_resume")
    trainers = exam.n - 2
    if exam.rank == trainers:
        for steps, members in ((0, range(trainers)), (13, range(trainers)), (13, [trainers - 1])):
            expected = steps // 10 * 10
            who = f"After {steps} steps, `my_resume({list(members)})`"
            resumed = exam.on_rank(_resume, steps, list(members), trainers)
            if not exam.require(
                resumed.number != _WAITED,
                f"{who} did not end, because a member waited in `prepare` for another member until the group's "
                "timeout, expected all members to call `prepare` at the same time, as they do through "
                f"`call_trainers`. {RESTART}",
            ):
                break
            exam.require(
                number(resumed.number) == expected,
                f"{who} returned {show(resumed.number)}, expected {expected}.",
            )
            for trainer, state in zip(members, resumed.states, strict=True):
                exam.require(
                    state.is_new,
                    f"{who} left trainer {trainer} with its old table, expected a model with a new table: have each "
                    "member call `prepare`.",
                )
                exam.require(
                    state.table_is_right,
                    f"{who} gave trainer {trainer} a wrong table, expected the table after {expected} steps.",
                )
                exam.require(
                    state.dense_is_right,
                    f"{who} gave trainer {trainer} a wrong dense layer, expected the weights after {expected} steps.",
                )
            exam.require(
                not resumed.others,
                f"{who} gave a new model to trainer {', '.join(map(str, resumed.others))} as well, expected new models "
                "for members only.",
            )
            exam.require(
                resumed.old_is_same,
                f"{who} changed the old table, expected a new table with the weights of the file.",
            )
    return "Only the members got a new model, which has a new table and the state of the checkpoint."


@exercise
def once(exam):
    """Check `once(request, function, arguments)`: a request is executed once, however often it comes."""
    exam.on_rank(require_rpc, "once")
    if exam.rank == 0:
        outcomes = exam.on_rank(_ask_server, _CASES)
        for case, (times, results) in zip(_CASES, outcomes, strict=False):
            exam.require(
                times == case.times,
                f"{case.what} the function ran {times_in_words(times)}, expected {times_in_words(case.times)}.",
            )
            ended = "the calls of `once` ended with" if case.function == "error" else "`once` returned"
            exam.require(
                all(map(_is_result, results, case.results)), f"{case.what} {ended} {results}, expected {case.results}."
            )
    return "Each request ran once, even if it came again while it ran, and every caller got the result."


def _is_result(result, expected):
    if isinstance(expected, str) or expected is None:
        return result == expected
    return number(result) == expected


# On a trainer, the functions below run in the process of the learner's code.


def _regroup(members):
    """Return the size of the answer's group, and the sum over its members of their rank plus 1.

    The trainers make groups of their own one after the other, because simultaneous calls could meet by chance.
    """
    kept.pop("group", None)
    with one_line_errors():
        for trainer in range(dist.get_world_size() if len(members) == 1 else 0):
            if dist.get_rank() != trainer:
                _wait_for_turn(trainer)
                continue
            try:
                kept["group"] = _answer_with_barrier(members)
            except AnswerError as error:
                if not timed_out(error):
                    raise
                return _WAITED, None
            finally:
                _end_turn(trainer)
        group = kept["group"] if len(members) == 1 else _answer_with_barrier(members)
        kept["group"] = group
        if not isinstance(group, dist.ProcessGroup):
            return None, plain(group)
        total = torch.tensor([dist.get_rank() + 1.0])
        if dist.get_world_size(group) == len(members):
            dist.all_reduce(total, group=group)
        return dist.get_world_size(group), total.item()


def _answer_with_barrier(members):
    """Call the answer, and let torch wait for all ranks that must call `new_group`, which it does only on request."""
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
    try:
        return answer("my_regroup", [members])
    finally:
        del os.environ["TORCH_DIST_INIT_BARRIER"]


def _wait_for_turn(trainer):
    """Wait until a trainer makes its group or fails."""
    with _turns:
        _turns.wait_for(lambda: trainer in kept["ended"], timeout=30)


def _end_turn(trainer):
    """Tell the other trainers that this trainer made its group or failed."""
    for other in range(dist.get_world_size()):
        rpc.rpc_sync(f"trainer{other}", note_turn, (trainer,))


def forget_turns():
    """Forget which trainers made their groups."""
    kept["ended"] = set()


def note_turn(trainer):
    """Record on this trainer that another trainer made its group or failed."""
    with _turns:
        kept["ended"].add(trainer)
        _turns.notify_all()


def _seconds_alone(waits):
    """Return how long a member waits in an all-reduce for absent members, at most 8 s; None if it need not."""
    group = kept.get("group")
    if not waits or not isinstance(group, dist.ProcessGroup) or dist.get_world_size(group) == 1:
        return None
    begin = time.monotonic()
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    while not work.is_completed() and time.monotonic() < begin + 8:
        time.sleep(0.05)
    return time.monotonic() - begin


# On the master, the functions below run in the process of the learner's code.


def _ask_all(names, stopped):
    """Call the answer while some workers are stopped.

    Return its result, how many seconds it took, whether the workers stayed stopped, and what it left of the names.
    """
    with one_line_errors():
        pids = [rpc.rpc_sync(name, os.getpid) for name in stopped]
        try:
            for pid in pids:
                _stop(pid)
            begin = time.monotonic()
            asked = list(names)
            alive = answer("my_living", [asked, _SILENCE])
            seconds = time.monotonic() - begin
            stayed = all(state == "T" for pid in pids for state in _states_of_threads(pid))
            return plain(alive), seconds, stayed, plain(asked)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


def _stop(pid):
    """Stop a process, and wait until it has stopped, because it may still answer for a moment."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while any(thread != "T" for thread in _states_of_threads(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _states_of_threads(pid):
    """Return the state of each thread of a process, on Linux; elsewhere the state of the process."""
    if not sys.platform.startswith("linux"):
        return ["T" if psutil.Process(pid).status() == psutil.STATUS_STOPPED else "R"]
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [text.rpartition(")")[2].split()[0] for text in texts]


class State(NamedTuple):
    """The state of a trainer after the answer resumed the training."""

    is_new: bool
    table_is_right: bool
    dense_is_right: bool


class Resumed(NamedTuple):
    """The result of the answer, the state of each member, the trainers that got a model without being a member."""

    number: object
    states: list[State]
    others: list[int]
    old_is_same: bool


def _resume(steps, members, number_of_trainers) -> Resumed:
    """Train this many steps with all trainers, and call the answer for some members."""
    lesson = vars(learners_module())
    trainers = range(number_of_trainers)
    workers = [*[f"trainer{trainer}" for trainer in trainers], "master", "server"]
    folder = tempfile.mkdtemp()
    here = lesson["job"].folder
    with one_line_errors():
        for name in workers:
            rpc.rpc_sync(name, use_folder, (folder,))
        try:
            table = lesson["new_table"]()
            lesson["call_trainers"](trainers, lesson["prepare"], table, 0)
            if steps:
                lesson["call_trainers"](trainers, lesson["train"], 0, steps)
            old = table.get_module_rref()
            before = rpc.rpc_sync("server", weight_of_table, (old,))
            for trainer in trainers:
                rpc.rpc_sync(f"trainer{trainer}", keep_model, (list(members),))
            try:
                returned = answer("my_resume", [members])
            except AnswerError as error:
                if not timed_out(error):
                    raise
                return Resumed(_WAITED, [], [], True)
            calls = [rpc.rpc_async(f"trainer{trainer}", state_of_trainer, (steps // 10 * 10,)) for trainer in trainers]
            states = torch.futures.wait_all(calls)
            same = torch.equal(before, rpc.rpc_sync("server", weight_of_table, (old,)))
        finally:
            for name in workers:
                rpc.rpc_sync(name, use_folder, (here,))
            for trainer in trainers:
                rpc.rpc_sync(f"trainer{trainer}", use_whole_group)
    others = [trainer for trainer in trainers if trainer not in members and states[trainer].is_new]
    return Resumed(plain(returned), [states[trainer] for trainer in members], others, same)


# The master has the trainers and the server call the functions below.


def use_folder(folder):
    """Have the lesson write and read its files in this folder."""
    learners_module().job.folder = folder


def use_whole_group():
    """Give a trainer the group of all trainers again."""
    learners_module().job.group = dist.group.WORLD


def keep_model(members):
    """Remember the model of a trainer, and give each trainer a group of its own if one member is alone."""
    kept["model"] = learners_module().job.model
    if len(members) == 1:
        learners_module().job.group = group_alone()


def state_of_trainer(number) -> State:
    """Compare the model of a trainer with the checkpoint of this number, or with a new model."""
    lesson = vars(learners_module())
    model = lesson["job"].model
    if model is kept["model"]:
        return State(False, False, False)
    if number:
        table, dense = (torch.load(f"{lesson['job'].folder}/{part}-{number}") for part in ("table", "dense"))
    else:
        table = lesson["Table"](len(lesson["words"])).weight.detach()
        torch.manual_seed(0)
        dense = torch.nn.Linear(16, 6).state_dict()
    own = model.dense.module.state_dict()
    return State(
        model.table is not kept["model"].table,
        torch.equal(weights_of(model).table, table),
        all(torch.equal(own[name], values) for name, values in dense.items()),
    )


# On trainer 0, the function below runs in the process of the learner's code.


def _ask_server(cases):
    """Have the server try the cases; return how often the function ran and the results, for each case."""
    with one_line_errors():
        return rpc.rpc_sync("server", try_cases, (cases,))


# The functions below run on the server.


def try_cases(cases):
    """Return how often the function ran and the results, for each case up to the first in which a call did not end.

    Raise the first error of the answer.
    """
    outcomes = []
    for case in cases:
        outcomes.append(_try(case))
        if _NO_END in outcomes[-1][1]:
            break  # the calls of the next case might wait for this call
    return outcomes


def _try(case):
    ran = []

    def double(value):
        ran.append(value)
        time.sleep(_SECONDS)
        return 2 * int(value)

    def nothing(value):
        ran.append(value)

    def error(value):
        ran.append(value)
        time.sleep(_SECONDS)
        raise ValueError(value)

    names = {request: f"{request} of {uuid.uuid4()}" for request, _ in case.requests}
    results = [_NO_END] * len(case.requests)
    errors = []

    def call(place, request, value):
        function = {"double": double, "nothing": nothing, "error": error}[case.function]
        argument = torch.tensor(value) if case.new_tensors else value
        try:
            results[place] = vars(learners_module())["once"](names[request], function, (argument,))
        except Exception as raised:
            if case.function == "error":
                results[place] = repr(raised)
            else:
                errors.append(raised)

    threads = []
    for place, request in enumerate(case.requests):
        threads.append(threading.Thread(target=call, args=(place, *request), daemon=True))
        threads[-1].start()
        if not case.together:
            threads[-1].join(_SECONDS_TO_END)
    for thread in threads:
        thread.join(_SECONDS_TO_END)
    if errors:
        raise errors[0]
    return len(ran), plain(results)
