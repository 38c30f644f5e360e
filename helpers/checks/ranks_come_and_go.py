"""Exercises of 40_ranks_come_and_go: a quorum, meetings of processes that come and go, and the state they share."""

import functools
import inspect
import os
import time
import uuid
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from helpers.checks.exam import AnswerError, Wrong, answer, errors_of_answer, exercise, show
from helpers.checks.judging import SECONDS_TO_ANSWER
from helpers.checks.learner import learners_module
from helpers.checks.patching import replaced
from helpers.measure.traffic import handed_over

_GRACE = 0.6
# The grace of each case of the quorum, and the delay with which rank 1 signs, still within the grace.
_GRACES = (_GRACE, 0.2), (1.0, 0.6)
_SECONDS_TO_MEET = 30
_SECONDS_TO_FORM_A_GROUP = 4
_ELEMENTS = 256  # in the state of a training
_attempt = {}  # on a rank: the prefix of this attempt, because the store keeps the keys of earlier attempts


def _begin_attempt(world):
    """Give all ranks a prefix for this attempt, unless a rank is busy, which the verdict reports."""
    if all(state.state == "idle" for state in world.where()):
        world.view.apply_async(_name_attempt, uuid.uuid4().hex).get(SECONDS_TO_ANSWER)


def _name_attempt(name):
    _attempt["name"] = name


def _judge_quorum(returned):
    """Return the sentence of success if all lists hold the processes that signed in time, or raise `Wrong`."""
    last = len(returned) - 1
    late_one = _incarnation(last)
    signatures = {_incarnation(rank) for rank in range(len(returned))}
    for late, what in enumerate([f"Rank {last} never signed", f"Rank {last} signed after the others returned"]):
        grace, _ = _GRACES[late]
        results = [of_rank[late] for of_rank in returned if of_rank[late] is not None]
        for rank, (result, *_) in enumerate(results[:last]):
            if late_one in result:
                raise Wrong(f"{what}, but rank {rank} returned {result}, expected a list without {late_one!r}.")
        first = min(signed for _, signed, *_ in results[:last])
        for rank, (_, signed, *_) in enumerate(results[:last]):
            # On a busy machine a rank may sign late, which is not the answer's fault.
            if signed - first < grace * 3 / 4 and _incarnation(rank) not in results[0][0]:
                raise Wrong(
                    f"Rank {rank} signed {signed - first:.1f} s after the first rank, within the grace of {grace} s, "
                    f"but rank 0 returned {results[0][0]}, expected a list with {_incarnation(rank)!r}."
                )
        for rank, (result, *_) in enumerate(results):
            if result != results[0][0]:
                raise Wrong(
                    f"{what}: rank 0 returned {results[0][0]}, rank {rank} returned {result}, expected the same."
                )
            if result != sorted(set(result)):
                raise Wrong(f"Rank {rank} returned {result}, expected a sorted list, with each incarnation once.")
            if unknown := set(result) - signatures:
                raise Wrong(f"Rank {rank} returned {result}, but no process has the incarnation {min(unknown)!r}.")
    for rank, of_rank in enumerate(returned):
        _judge_proposals(rank, filter(None, of_rank))
    return (
        "All ranks returned the list of the processes that signed in time, and no rank waited for a process that never "
        "signed."
    )


def _judge_proposals(rank, results):
    """Raise `Wrong` if a rank left no list in the store, or set the list in a way that races with other ranks."""
    for _, _, decided, races in results:
        if not decided:
            raise Wrong(
                f"After `my_quorum` on rank {rank} the store has no key `members`, expected the list there: later "
                "processes look for this key."
            )
        if races:
            raise Wrong(
                f"Rank {rank} looked for the key `members` and then set it in a second call. Another process may set "
                "it in between, expected one call of `compare_set`."
            )


@exercise(before=_begin_attempt, together=_judge_quorum, own_group=True)
def my_quorum(exam):
    """Check `my_quorum(store, me, grace)`: all ranks return one list, of the processes that signed in time.

    The answer is called twice: first the last rank never signs, then it signs after the others have returned.
    """
    returned = exam.on_rank(_quorum, exam.rank, exam.n)
    for result, *_ in filter(None, returned):
        exam.require(
            isinstance(result, list) and all(isinstance(name, str) for name in result),
            f"Rank {exam.rank} returned {show(result)}, expected a list of incarnations, as in ['0.1', '2.1'].",
        )
    return returned


@exercise(before=_begin_attempt, own_group=True)
def my_meeting(exam):
    """Check `my_meeting(store)`: the processes in the list of the quorum form the default group, in its order.

    A quorum of the check returns a list without the last rank, and not in the order of the ranks. Before the meeting
    every rank is in a group of its own.
    """
    rank, n = exam.rank, exam.n
    members = [*range(1, n - 1), 0]
    result, asked, grace, left, made, size, place, total = exam.on_rank(_meeting, rank, members, n)
    listed = [_incarnation(member) for member in members]
    exam.require(asked, f"Rank {rank} did not call `quorum(store, me, GRACE)`.")
    exam.require(grace, f"Rank {rank} did not pass the store, `me` and `GRACE` to `quorum`, in this order.")
    exam.require(result == listed, f"Rank {rank} returned {result}, expected the list of the quorum, {listed}.")
    if rank not in members:
        exam.require(
            size is None,
            f"Rank {rank} is in a group of {size} after the meeting, but the list {listed} lacks its incarnation "
            f"{_incarnation(rank)!r}, expected it to leave its group and to make no other.",
        )
    elif exam.require(
        size == len(members),
        f"Rank {rank} is {f'in a group of {size}' if size else 'in no group'} after the meeting, expected a group of "
        f"the {len(members)} processes in the list.",
    ):
        expected = members.index(rank)
        exam.require(
            place == expected,
            f"The process {_incarnation(rank)!r} has rank {place} after the meeting, expected {expected}, its index "
            f"in {listed}.",
        )
        exam.require(total == len(members), f"An all-reduce of ones gave {total}, expected {len(members)}.")
        for with_timeout, in_meeting in made:
            exam.require(with_timeout, f"Rank {rank} made a group without the timeout, expected `timeout=TIMEOUT`.")
            exam.require(
                in_meeting,
                f"Rank {rank} made its group with keys that the next meeting would find in the store, expected "
                '`dist.PrefixStore("group", store)`.',
            )
    exam.require(
        left,
        f"Rank {rank} was still in its group when it called `quorum`, expected it to leave first: the other ranks may "
        "wait for it in an all-reduce, and would sign too late.",
    )
    return "The processes in the list are one group, each at its place in the list, and a late process is in no group."


@exercise(own_group=True)
def my_meet(exam):
    """Check `my_meet()`: the process goes to the first meeting that is not over, until a list has its incarnation.

    The check provides the meetings: each is a function that returns a list and sets the key of the meeting.
    """
    rank = exam.rank
    for what, over, lacking, expected in [
        ("no meeting is over", 0, [], [0]),
        ("the meetings 0 to 2 are over", 3, [], [3]),
        ("the list of meeting 0 is decided without this process", 0, [0], [0, 1]),
        ("meeting 0 is over, and the lists of 1 and 2 are decided without this process", 1, [1, 2], [1, 2, 3]),
    ]:
        result, visited, announced = exam.on_rank(_meet, rank, over, lacking)
        case = f"When {what}, rank {rank}"
        exam.require(
            visited == expected,
            f"{case} took part in the meetings {visited}, expected {expected}.",
        )
        exam.require(
            announced == expected,
            f"{case} set the key `a rank has arrived` before the meetings {announced}, expected {expected}.",
        )
        wanted = [expected[-1], [_incarnation(rank)]]
        exam.require(
            isinstance(result, list | tuple) and list(result) == wanted,
            f"{case} returned {result if isinstance(result, list | tuple) else show(result)}, expected the number and "
            f"the list of its last meeting, {wanted[0]} and {wanted[1]}.",
        )
    return "Every rank went to the first meeting that was not over, and went on until it was a member."


@exercise(before=_begin_attempt, own_group=True)
def catch_up(exam):
    """Check `catch_up(step, state)`: all ranks return the newest state, which is sent only if needed.

    The ranks are in a new group of all ranks, and get another new group afterwards, because a deadlock breaks a group.
    """
    rank, n = exam.rank, exam.n
    exam.on_rank(_form_group, rank, n, "together", _SECONDS_TO_FORM_A_GROUP)
    try:
        _judge_catching_up(exam, rank, n)
    finally:
        exam.on_rank(_form_group, rank, n, "afterwards", _SECONDS_TO_MEET)
    return "Every rank returned the state of the most steps, and no rank sent a state that no other needed."


def _judge_catching_up(exam, rank, n):
    """Require the newest state in each case."""
    cases = {
        "rank 1 is new": [7, 0] + [7] * (n - 2),
        "the last rank is a step ahead": [7] * (n - 1) + [8],
        "all ranks are at the same step": [7] * n,
        "each rank is at a different step": [3 + (other + 2) % n for other in range(n)],
    }
    for case, steps in cases.items():
        result, sent = exam.on_rank(_caught_up, steps[rank])
        returned, expected = _in_words(result), f"the state of step {max(steps)}"
        exam.require(returned == expected, f"When {case}, rank {rank} returned {returned}, expected {expected}.")
        if case == "all ranks are at the same step":
            exam.require(
                sent < _state(0).nbytes / 2,
                f"When {case}, rank {rank} sent {sent} bytes, expected no state.",
            )


@exercise(own_group=True)
def majority(exam):
    """Check `majority(store, me, grace, last)`: the members, or None without more than half of `last`.

    The check replaces `quorum` with a function that returns a given list.
    """
    rank, n = exam.rank, exam.n
    last = [f"{name}.1" for name in range(n)]
    come_back = [f"{name}.2" for name in range(n // 2 + n % 2)] + last[n // 2 + n % 2 :]
    half = last[: n // 2 * 2]
    cases = [
        ("all have signed", last, last, True),
        ("only one process has signed", last[:1], last, n == 1),
        ("all but the last process have signed", last[:-1], last, 2 * (n - 1) > n),
        ("half have signed", half[: n // 2], half, False),
        ("half of the names belong to new processes", come_back, last, False),
        ("all and a new process have signed", [*last, f"{n}.1"], last, True),
        ("more than half have signed", last[: (n + 1) // 2], last[: n - 1], True),
    ]
    for what, signed, before, goes_on in cases:
        result, called = exam.on_rank(_majority, signed, before)
        expected = signed if goes_on else None
        exam.require(called, f"Rank {rank} did not call `quorum(store, me, grace)`.")
        exam.require(
            type(result) is type(expected) and result == expected,
            f"When {what}, {signed}, and the last group was {before}, rank {rank} returned "
            f"{result if isinstance(result, list) else show(result)}, expected {expected}.",
        )
    return "Only a list with more than half of the last group continues, so two disjoint lists cannot both continue."


class _NotedStore(dist.PrefixStore):
    """A store that notes when this rank writes to it, and whether it checks a key before it sets it.

    A rank that calls `add` may have an atomic way of its own to decide who sets the key.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.written = []
        self.checked = set()
        self.adds = self.races = False

    def check(self, keys):
        self.checked.update(keys)
        return super().check(keys)

    def set(self, *arguments):
        self.written.append(time.monotonic())
        self.races |= not self.adds and arguments[0] in self.checked
        return super().set(*arguments)

    def append(self, *arguments):
        self.written.append(time.monotonic())
        return super().append(*arguments)

    def add(self, *arguments):
        self.written.append(time.monotonic())
        self.adds = True
        return super().add(*arguments)

    def compare_set(self, *arguments):
        self.written.append(time.monotonic())
        return super().compare_set(*arguments)


def _quorum(name, n):
    """Return what `my_quorum` did in each of two cases, or None for a rank that is not called.

    This is the result, when the rank signed, whether the list is in the store, and whether two ranks may both set it.

    In the first case the last rank never signs; in the second it signs after the others have returned.
    """
    meetings = [_store_of_attempt(f"quorum {late}") for late in (False, True)]
    others = [other for other in range(n - 1) if other != name]
    results = []
    for late, meeting in enumerate(meetings):
        if name == n - 1:
            if not late:
                results.append(None)
                continue
            meeting.wait([f"done {other}" for other in others])
        else:
            meeting.set(f"there {name}", "")
            meeting.wait([f"there {other}" for other in others])
        grace, seconds = _GRACES[late]
        if name == 1:
            time.sleep(seconds)
        store = _NotedStore("quorum", meeting)
        try:
            result = answer("my_quorum", [store, _incarnation(name), grace])
        except AnswerError as error:
            meeting.set(f"done {name}", "")
            for what in ("there", "done"):  # no rank waits for this one in the other case
                meetings[-1].set(f"{what} {name}", "")
            if "wait timeout" in str(error):
                raise AnswerError("TimeoutError: it waited for a key that no rank sets") from error
            raise
        meeting.set(f"done {name}", "")
        results.append(
            (
                repr(result) if _has_bytes(result) else result,
                min(store.written, default=float("inf")),
                store.check(["members"]),
                store.races,
            )
        )
    return results


def _has_bytes(result):
    """Return whether an answer returned bytes or a list with bytes, which do not travel as plain data."""
    return isinstance(result, bytes) or isinstance(result, list) and any(isinstance(part, bytes) for part in result)


def _state(step):
    """Return the state of a training after this many steps; some elements grow with the steps, others shrink."""
    return step * torch.tensor([-1.0, 1.0]).repeat(_ELEMENTS // 2)


def _caught_up(step):
    """Return the result of `catch_up`, and the bytes of tensors that this rank sent."""
    with handed_over() as sizes:
        result = answer("catch_up", [step, _state(step)])
    return result, sum(sizes)


def _in_words(result):
    """Describe the state that an answer returned."""
    if not isinstance(result, torch.Tensor) or result.shape != _state(0).shape:
        return show(result)
    step = result[1].item()
    return f"the state of step {step:g}" if (result == _state(step)).all() else "a mixture of states"


def _majority(signed, last):
    """Return the result of `majority` with a `quorum` that returns `signed`, and whether it called `quorum`."""
    calls = []

    def quorum(store, me, grace):
        calls.append(me)
        return list(signed)

    with _names_of_lesson(quorum=quorum):
        return answer("majority", [dist.HashStore(), "0.1", 0.0, list(last)]), bool(calls)


def _meeting(name, members, n):
    """Return what `my_meeting` returned, how it called `quorum`, and the group of this rank afterwards.

    These are: the result, whether it called `quorum`, whether with the right arguments, whether outside a group, for
    each group that it made whether with the timeout and in the store of the meeting, the size of the group or None,
    this rank in it, and the sum of an all-reduce of ones. If the rank was in a group before, it is in a group of all
    ranks afterwards, which later exercises need.
    """
    was_in_group = dist.is_initialized()
    try:
        return _met(name, members)
    finally:
        if not dist.is_initialized():
            # After a group that could not be formed, torch counts groups from another number than on the other ranks.
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.destroy_process_group()
        if was_in_group:
            _form_group(name, n, "afterwards", _SECONDS_TO_MEET)


def _form_group(name, n, purpose, seconds):
    """Put this rank into a new group of all ranks, with a timeout of this many seconds."""
    if dist.is_initialized():
        dist.destroy_process_group()
    timeout, store = timedelta(seconds=seconds), _store_of_attempt(purpose)
    dist.init_process_group("gloo", store=store, rank=name, world_size=n, timeout=timeout)


def _met(name, members):
    if dist.is_initialized():
        dist.destroy_process_group()
    timeout = timedelta(seconds=_SECONDS_TO_FORM_A_GROUP)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    store, calls, left, made = _store_of_attempt("meeting"), [], [], []
    make = dist.init_process_group

    @functools.wraps(make)
    def init_process_group(*arguments, **options):
        if not calls:
            raise ValueError("it has no list yet, expected a call of `quorum(store, me, GRACE)` first")
        asked = inspect.signature(make).bind(*arguments, **options).arguments
        in_meeting = _is_inside(asked.get("store"), store)
        made.append((asked.get("timeout") == timeout, in_meeting))
        if (size := asked.get("world_size")) != len(members):
            raise ValueError(f"`world_size` is {size}, expected {len(members)}, the length of the list")
        # Another store may have the keys of an earlier attempt, on which the group would hang.
        asked |= {"init_method": None, "timeout": timeout} | ({} if in_meeting else {"store": store})
        return make(**asked)

    def quorum(*arguments):
        calls.append(arguments)
        left.append(not dist.is_initialized())
        return [_incarnation(member) for member in members]

    with (
        _names_of_lesson(quorum=quorum, me=_incarnation(name), GRACE=_GRACE, TIMEOUT=timeout),
        replaced([(dist, "init_process_group", init_process_group)]),
    ):
        result = answer("my_meeting", [store])
    as_asked = bool(calls) and calls[0][1:] == (_incarnation(name), _GRACE)
    size = place = total = None
    if dist.is_initialized():
        size, place, ones = dist.get_world_size(), dist.get_rank(), torch.ones(1)
        if size == len(members):
            with errors_of_answer():
                dist.all_reduce(ones)
        total = int(ones)
    return result, bool(calls), as_asked, all(left), made, size, place, total


def _is_inside(store, meeting):
    """Return whether a store is the store of the meeting, or has prefixes of its own inside that store."""
    while store is not meeting and isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store is meeting


class _Place(dist.PrefixStore):
    """The store of a meeting, which knows the number of the meeting."""

    def __init__(self, number, base):
        super().__init__(f"meeting {number}", base)
        self.number = number


def _meet(name, over, lacking):
    """Return the result of `my_meet`, the numbers of the meetings it took part in, and where it arrived before.

    The first `over` meetings are over. The lists of the meetings in `lacking` lack this process.
    """
    base, visited, announced = dist.HashStore(), [], []
    for number in range(over):
        _Place(number, base).set("members", "[]")

    def meeting(store):
        if len(visited) > over + len(lacking):
            raise RuntimeError(f"it visited the meetings {visited}, and did not end")
        visited.append(store.number)
        if store.check(["a rank has arrived"]):
            announced.append(store.number)
        store.set("members", "[]")
        return [] if store.number in lacking else [_incarnation(name)]

    with _names_of_lesson(meeting=meeting, place=lambda number: _Place(number, base), me=_incarnation(name)):
        return answer("my_meet", []), visited, announced


def _incarnation(name):
    """Return the incarnation of a rank in these checks; some ranks are not the first process with their name."""
    return f"{name}.{1 + name % 2}"


def _store_of_attempt(purpose):
    """Return a store that the ranks share, with a prefix that no earlier attempt used."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    base = dist.TCPStore(*address, is_master=False, timeout=timedelta(seconds=_SECONDS_TO_MEET))
    return dist.PrefixStore(f"{_attempt['name']} {purpose}", base)


@contextmanager
def _names_of_lesson(**names):
    """Give names of the lesson other values inside the block."""
    lesson = vars(learners_module())
    before = {name: lesson[name] for name in names if name in lesson}
    lesson.update(names)
    try:
        yield
    finally:
        for name in names:
            lesson.pop(name, None)
        lesson.update(before)
