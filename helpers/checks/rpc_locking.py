"""Check that requests lock the number that they share, and not the work that they do not share."""

import itertools
import os
import time

from helpers.checks.judging import RESTART, Run, Verdict, Wrong, judge, missing
from helpers.checks.rpc_and_rref import Meeting
from helpers.checks.rpc_judging import in_one_line

_CALLERS = 4
_SECONDS_FOR_ALL = 12


class Desk:
    """The number that all requests of a worker share, and the work that each of them does by itself."""

    def __init__(self):
        self.number = 0
        self.writes = 0
        self.meeting = Meeting(_CALLERS)
        self.works = itertools.count()


_desks = [Desk()]


def my_record(world) -> Verdict:
    """Check `my_record(work, read, write)`: on worker1, requests at the same time work together and count right."""

    def check(runs):
        unanswered, number, writes, works, alone = runs[0].result
        if unanswered:
            raise Wrong(
                f"{unanswered} of {_CALLERS} requests got no answer within {_SECONDS_FOR_ALL} s, expected an answer "
                f"for each: does each request release the lock? {RESTART}"
            )
        if works != _CALLERS:
            raise Wrong(f"{_CALLERS} requests called `work` {_times(works)}, expected once each.")
        if alone:
            raise Wrong(
                "A request waited while another request did its work, expected all to work at the same time: hold the "
                "lock only for what the requests share."
            )
        if writes != _CALLERS:
            raise Wrong(f"{_CALLERS} requests called `write` {_times(writes)}, expected once each.")
        if number != _CALLERS:
            raise Wrong(
                f"{_CALLERS} requests at the same time counted to {number}, expected {_CALLERS}: do not let another "
                "request in between `read` and `write`."
            )
        return f"{_CALLERS} requests worked at the same time, and counted to {_CALLERS}."

    return judge(world, "my_record", check, _run)


def begin():
    """Give this worker a new `Desk`."""
    _desks[:] = [Desk()]


def work():
    """Return when all requests are in here at the same time, or when that takes too long."""
    desk = _desks[0]
    desk.meeting.join(next(desk.works))


def read():
    """Return the shared number, slowly: other requests run meanwhile."""
    number = _desks[0].number
    time.sleep(0.1)
    return number


def write(number):
    """Set the shared number, slowly."""
    time.sleep(0.05)
    _desks[0].writes += 1
    _desks[0].number = number


def tally():
    """Return the shared number, how often it was written, how often `work` was called, and who worked alone."""
    desk = _desks[0]
    return desk.number, desk.writes, next(desk.works), desk.meeting.alone()


def _run():
    import torch.distributed.rpc as rpc

    import __main__

    if not hasattr(__main__, "my_record"):
        return Run(None, [], missing("my_record"))
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    try:
        rpc.rpc_sync("worker1", begin)
        arguments = (work, read, write)
        asked = [
            rpc.rpc_async("worker1", __main__.my_record, args=arguments, timeout=_SECONDS_FOR_ALL)
            for _ in range(_CALLERS)
        ]
        return Run((_unanswered(asked), *rpc.rpc_sync("worker1", tally)), [], "")
    except Exception as error:
        return Run(None, [], in_one_line(f"{type(error).__name__}: {error}"))


def _unanswered(asked):
    """Wait for all requests, so that none runs into the next check; return how many got no answer in time.

    Raises the first error that is no timeout.
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
