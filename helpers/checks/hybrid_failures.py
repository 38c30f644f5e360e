"""Check of the exercise of 26_hybrid_failures: a request that is repeated is executed once."""

import threading
import time
import uuid

from helpers.checks.distributed_rnn import NO_RPC
from helpers.checks.judging import Run, Verdict, Wrong, judge, missing
from helpers.checks.rpc_judging import in_one_line, rpc_runs

_SECONDS = 0.2  # that the function of a request takes, so that the same request comes while it is under way


def once(world) -> Verdict:
    """Check `once(request, function, arguments)`: a request is executed once, however often it comes."""

    def check(runs):
        for what, times, wanted, results, expected in runs[0].result:
            if times != wanted:
                raise Wrong(f"{what} the function ran {_times(times)}, and the target is {_times(wanted)}.")
            if results != expected:
                raise Wrong(f"{what} `once` returned {results}, and the target is {expected}.")
        return "A request is executed once, also when it comes again at once, and every caller gets its result."

    return judge(world, "once", check, _run_once)


def _times(number):
    return "once" if number == 1 else f"{number} times"


def _run_once():
    import torch.distributed.rpc as rpc

    import __main__

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer0":
        return Run(None, [], "")
    if "once" not in vars(__main__):
        return Run(None, [], missing("once"))
    try:
        return Run(rpc.rpc_sync("server", _try_once), [], "")
    except Exception as error:
        return Run(None, [], in_one_line(f"{type(error).__name__}: {error}"))


def _try_once():
    """On the server: for each case return what it is, how often the function ran and should, results and the right."""
    import __main__

    ran = []

    def double(value):
        ran.append(value)
        time.sleep(_SECONDS)
        return 2 * value

    def nothing(value):
        ran.append(value)

    def case(what, requests, wanted, expected, together=False, function=double):
        ran.clear()
        names = {request: f"{request} of {uuid.uuid4()}" for request, _ in requests}
        results = [None] * len(requests)
        errors = []

        def call(place, request, value):
            try:
                results[place] = vars(__main__)["once"](names[request], function, (value,))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=call, args=(place, *request)) for place, request in enumerate(requests)]
        for thread in threads:
            thread.start()
            if not together:
                thread.join()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return what, len(ran), wanted, results, expected

    return [
        case("For one request,", [("a", 1)], 1, [2]),
        case("For a request that came three times, one after the other,", [("a", 2)] * 3, 1, [4, 4, 4]),
        case("For two requests with the same function and arguments,", [("a", 3), ("b", 3)], 2, [6, 6]),
        case(
            "For a request that came twice, of a function that returns None,",
            [("a", 4)] * 2,
            1,
            [None] * 2,
            function=nothing,
        ),
        case("For a request that came three times, all at once,", [("a", 5)] * 3, 1, [10, 10, 10], True),
        case("For two requests at once, each of which came twice,", [("a", 6), ("b", 7)] * 2, 2, [12, 14] * 2, True),
    ]
