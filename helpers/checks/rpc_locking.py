"""A check of 16_rpc_threads_and_failures: what requests share is locked, and what they do not share is not."""

import itertools
import os
import time

from helpers.checks.judging import RESTART, Run, Verdict, Wrong, judge, missing
from helpers.checks.rpc_and_rref import Meeting
from helpers.checks.rpc_judging import in_one_line

_CALLERS = 4
_SECONDS_FOR_ALL = 12


class Desk:
    """On worker1: the number that all requests share, slow to read and to write, and the work that they do not."""

    def __init__(self):
        self.number = 0
        self.writes = 0
        self.meeting = Meeting(_CALLERS)
        self.works = itertools.count()


_desks = [Desk()]


def locked(world) -> Verdict:
    """Check `record(work, read, write)`: on worker1, requests at the same time do the work together and count right."""

    def check(runs):
        unanswered, number, writes, works, alone = runs[0].result
        if unanswered:
            raise Wrong(
                f"{unanswered} of {_CALLERS} requests got no answer within {_SECONDS_FOR_ALL} s: does each one give "
                f"the lock back? {RESTART}"
            )
        if works != _CALLERS:
            raise Wrong(f"{_CALLERS} requests called work {_times(works)}, and the target is once each.")
        if alone:
            raise Wrong("A request had to wait for the work of another one: hold the lock only for what they share.")
        if writes != _CALLERS:
            raise Wrong(f"{_CALLERS} requests called write {_times(writes)}, and the target is once each.")
        if number != _CALLERS:
            raise Wrong(f"{_CALLERS} requests at the same time counted to {number}, and the target is {_CALLERS}.")
        return f"{_CALLERS} requests did their work at the same time, and counted to {_CALLERS}."

    return judge(world, "record", check, _run)


def begin():
    """Put a new desk on this worker."""
    _desks[:] = [Desk()]


def work():
    """Take part in the work of this worker's requests, which is done when all of them are at it."""
    desk = _desks[0]
    desk.meeting.join(next(desk.works))


def read():
    """Return the number on this worker's desk, slowly."""
    number = _desks[0].number
    time.sleep(0.1)
    return number


def write(number):
    """Put a number on this worker's desk, slowly."""
    time.sleep(0.05)
    _desks[0].writes += 1
    _desks[0].number = number


def what_became():
    """Return the number on this worker's desk, how often it was written and worked at, and who had to work alone."""
    desk = _desks[0]
    return desk.number, desk.writes, next(desk.works), desk.meeting.alone()


def _run():
    import torch.distributed.rpc as rpc

    import __main__

    if not hasattr(__main__, "record"):
        return Run(None, [], missing("record"))
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    try:
        rpc.rpc_sync("worker1", begin)
        arguments = (work, read, write)
        asked = [
            rpc.rpc_async("worker1", __main__.record, args=arguments, timeout=_SECONDS_FOR_ALL) for _ in range(_CALLERS)
        ]
        return Run((_unanswered(asked), *rpc.rpc_sync("worker1", what_became)), [], "")
    except Exception as error:
        return Run(None, [], in_one_line(f"{type(error).__name__}: {error}"))


def _unanswered(asked):
    """Wait for all requests, so that none is under way in the next check; return how many got no answer in time.

    Raises the first other error.
    """
    unanswered, errors = 0, []
    for future in asked:
        try:
            future.wait()
        except Exception as error:
            if "more than set timeout" in str(error):
                unanswered += 1
            else:
                errors.append(error)
    if errors:
        raise errors[0]
    return unanswered


def _times(number):
    return "once" if number == 1 else f"{number} times"
