"""Checks of 26_hybrid_failures: a checkpoint brings all weights back, and a repeated request is executed once."""

import io
import threading
import time
import uuid

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge, missing
from helpers.checks.rpc_judging import NO_RPC, in_one_line, rpc_runs

_SECONDS = 0.2  # that the function of a request takes, so that the same request comes while it is under way


def my_checkpoint(world) -> Verdict:
    """Check `my_checkpoint(model, number)`: from a file, a new model comes back to where the old one was."""

    def check(runs):
        if runs[0].result:
            raise Wrong(runs[0].result)
        return "All weights, here and on the server, come back from the file, and the number of the next step, too."

    return judge(world, "my_checkpoint", check, _run_my_checkpoint)


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


_STEPS = 3  # before the checkpoint


def _run_my_checkpoint():
    import torch.distributed.rpc as rpc

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer0":
        return Run(None, [], "")
    run = call_answer("my_checkpoint", [_trained(_STEPS), _STEPS])
    fault = "" if run.error else _fault_of_checkpoint(run.result)
    return run._replace(result=fault, error=in_one_line(run.error), messages=[])


def _trained(steps):
    """Return a model of trainer 0 alone after so many steps; it has a table of its own."""
    import torch

    import __main__

    lesson = vars(__main__)
    torch.manual_seed(0)
    model = lesson["HybridModel"](lesson["new_table"](), lesson["alone"], "cpu")
    optimizer = lesson["new_optimizer"](lesson["references"](model))
    for number in range(steps):
        lesson["step"](model, optimizer, lesson["batch"](range(32 * number, 32 * number + 32)))
    return model


def _fault_of_checkpoint(saved):
    import torch

    import __main__

    references = vars(__main__)["references"]
    if not isinstance(saved, list | tuple) or len(saved) != 2:
        of_what = "None" if saved is None else f"a {type(saved).__name__}"
        return f"`my_checkpoint` returned {of_what}, expected a pair: `number` and a list of all weights."
    other = _trained(0)
    owned = references(other)
    try:
        file = io.BytesIO()
        torch.save(saved, file)
        number, weights = torch.load(io.BytesIO(file.getvalue()))
        if len(weights) != len(owned):
            return f"The list has {len(weights)} tensors, expected one for each of the {len(owned)} RRefs of the model."
        for reference, values in zip(owned, weights, strict=True):
            reference.remote().detach().rpc_sync().copy_(values)
    except Exception as error:
        return f"The checkpoint cannot be saved, read and written back: {in_one_line(str(error))}"
    for reference, expected in zip(owned, references(_trained(_STEPS)), strict=True):
        if not torch.equal(reference.to_here(), expected.to_here()):
            return f"Weights on {reference.owner_name()} came back otherwise than they were after {_STEPS} steps."
    return "" if number == _STEPS else f"The checkpoint says that step {number} is next, expected {_STEPS}."


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
