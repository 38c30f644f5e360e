"""Checks of what the learner writes in 30_ranks_come_and_go, and of its exercises."""

import uuid

from helpers.checks.ddp_in_practice import handed_over
from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_GRACE = 0.6
_SECONDS_BETWEEN = 0.2  # by which one rank signs later than the others, and in time
_SECONDS_TO_MEET = 30
_NUMBERS = 256  # in the state of a training


def my_quorum(world) -> Verdict:
    """Check `my_quorum(store, name, grace)`: all get one list, of those who have signed within the grace."""
    last = world.size - 1

    def check(runs):
        for late, what in enumerate([f"Rank {last} never came", f"Rank {last} signed when the others had their list"]):
            results = [run.result[late] for run in runs if run.result[late] is not None]
            for rank, (result, _) in enumerate(results):
                if not isinstance(result, list) or not all(isinstance(name, int) for name in result):
                    raise Wrong(f"Rank {rank} returned {result!r}, and the target is a list of names, as in [0, 2].")
                if last in result and rank < last:
                    raise Wrong(f"{what}, and rank {rank} has it on its list, {result}.")
            first = min(signed for _, signed in results[:last])
            for rank, (_, signed) in enumerate(results[:last]):
                # How long a busy machine lets a rank wait is not the answer's fault.
                if signed - first < _GRACE * 2 / 3 and rank not in results[0][0]:
                    raise Wrong(
                        f"Rank {rank} signed {signed - first:.1f} s after the first one, the grace is {_GRACE} s, and "
                        f"the list of rank 0 is {results[0][0]}."
                    )
            for rank, (result, _) in enumerate(results):
                if result != results[0][0]:
                    raise Wrong(f"{what}; rank 0 returned {results[0][0]}, and rank {rank} {result}.")
        return "All ranks have the same list, of those who signed in time, and nobody waited for who never came."

    return judge(world, "my_quorum", check, _run_quorum, uuid.uuid4().hex, group_of_its_own=True)


def my_loss(world) -> Verdict:
    """Check `my_loss(losses, batch, n)`: under DDP, its gradient is that of the mean over the batch."""

    def check(runs):
        for case, (batch, parts, target, _) in enumerate(runs[0].result):
            results = [run.result[case][3] for run in runs]
            off = abs(sum(results) / len(runs) - target)
            if not off < 1e-9:
                raise Wrong(
                    f"With {batch} examples, dealt out as {parts}, the gradient after DDP's average is "
                    f"{sum(results) / len(runs):.4f}, and the target is {target:.4f}."
                )
        return "However the batch is dealt out, DDP's average is the gradient of the mean over the batch."

    return judge(world, "my_loss", check, _run_weighed)


def catch_up(world) -> Verdict:
    """Check `catch_up(step, state)`: all return the state of the furthest; when all are level, none is sent."""
    cases = [
        "rank 1 is new",
        "all but the last rank are behind",
        "all are level",
        "each rank has got to another step",
    ]

    def check(runs):
        for case, what in enumerate(cases):
            for rank, run in enumerate(runs):
                result, target, sent = run.result[case]
                if result != target:
                    raise Wrong(f"When {what}, rank {rank} returned {result}, and the target is {target}.")
                if sent and what == "all are level":
                    raise Wrong(f"When {what}, rank {rank} handed over {sent} bytes, and nobody needs a state.")
        return "Every rank has the state of the furthest, and none is sent when nobody needs one."

    return judge(world, "catch_up", check, _run_caught_up)


def majority(world) -> Verdict:
    """Check `majority(store, name, grace, last)`: the members, or None when not more than half of `last` are there."""
    n = world.size
    newcomers = [*range((n - 1) // 2), n - 1]
    cases = [
        ("all have signed", list(range(n)), list(range(n)), True),
        ("only rank 0 has signed", [0], list(range(n)), n == 1),
        ("all but the last rank have signed", list(range(n - 1)), list(range(n)), 2 * (n - 1) > n),
        ("half have signed", list(range(n // 2)), list(range(n // 2 * 2)), False),
        (f"{newcomers} have signed, of which {n - 1} is new", newcomers, list(range(n - 1)), False),
        (f"all have signed, of which {n - 1} is new", list(range(n)), list(range(n - 1)), True),
    ]

    def check(runs):
        for case, (what, signed, last, goes_on) in enumerate(cases):
            target = signed if goes_on else None
            for rank, run in enumerate(runs):
                if not run.result[case][1]:
                    raise Wrong(f"Rank {rank} did not call `quorum(store, name, grace)`.")
                if run.result[case][0] != target:
                    raise Wrong(
                        f"When {what}, and the last group was {last}, rank {rank} returned {run.result[case][0]}, "
                        f"and the target is {target}."
                    )
        return "Nobody goes on without more than half of the last group, so no two groups ever do."

    return judge(world, "majority", check, _run_majority, [(signed, last) for _, signed, last, _ in cases])


def _run_quorum(token):
    """For each of two cases, return what this rank got and when it signed; None where it did not come."""
    import os
    import time
    from datetime import timedelta

    import torch.distributed as dist

    name, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    base = dist.TCPStore(*address, is_master=False, timeout=timedelta(seconds=_SECONDS_TO_MEET))
    results = []
    for late in (False, True):
        meeting = dist.PrefixStore(f"{token} {late}", base)
        signed = []

        class Noted(dist.PrefixStore):
            """A store that notes when this rank first writes to it."""

            def set(self, *arguments, signed=signed):
                signed.append(time.monotonic())
                return super().set(*arguments)

            def add(self, *arguments, signed=signed):
                signed.append(time.monotonic())
                return super().add(*arguments)

            def compare_set(self, *arguments, signed=signed):
                signed.append(time.monotonic())
                return super().compare_set(*arguments)

        if name == n - 1:
            if not late:
                results.append(None)
                continue
            meeting.wait([f"done {other}" for other in range(n - 1)])
        else:
            meeting.set(f"there {name}", "")
            meeting.wait([f"there {other}" for other in range(n - 1)])
        if name == 1:
            time.sleep(_SECONDS_BETWEEN)
        run = call_answer("my_quorum", [Noted("quorum", meeting), name, _GRACE])
        meeting.set(f"done {name}", "")
        if run.error:
            for what in ("there", "done"):  # nobody shall wait for this rank in the other case
                dist.PrefixStore(f"{token} {True}", base).set(f"{what} {name}", "")
            waited = "wait timeout" in run.error
            return Run(None, [], "TimeoutError: it waited for what nobody writes" if waited else run.error)
        results.append((run.result, signed[0] if signed else float("inf")))
    return Run(results, [], "")


def _run_weighed():
    import torch
    import torch.distributed as dist

    rank, n, results = dist.get_rank(), dist.get_world_size(), []
    for batch in (4 * n, 4 * n + 1, n - 1):
        examples = torch.arange(1.0, batch + 1).double() ** 2
        weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
        run = call_answer("my_loss", [weight * examples[rank::n], batch, n])
        if run.error:
            return run
        if not isinstance(run.result, torch.Tensor) or run.result.numel() != 1:
            return Run(None, [], "TypeError: `my_loss` returned no tensor with one number")
        (gradient,) = torch.autograd.grad(run.result.sum(), weight, allow_unused=True)
        parts = [len(examples[part::n]) for part in range(n)]
        results.append((batch, parts, examples.mean().item(), 0.0 if gradient is None else gradient.item()))
    return Run(results, [], "")


def _run_caught_up():
    import torch
    import torch.distributed as dist

    rank, n, results = dist.get_rank(), dist.get_world_size(), []
    one_is_new = [7, 0] + [7] * (n - 2)
    one_is_ahead = [7] * (n - 1) + [8]
    for steps in (one_is_new, one_is_ahead, [7] * n, [3 + (r + 2) % n for r in range(n)]):
        state = torch.full((_NUMBERS,), float(steps[rank]))
        with handed_over() as sizes:
            run = call_answer("catch_up", [steps[rank], state])
        if run.error:
            return run
        result = run.result
        if not isinstance(result, torch.Tensor) or result.shape != state.shape:
            return Run(None, [], "TypeError: `catch_up` returned no state")
        here = f"the state of step {result[0].item():g}" if (result == result[0]).all() else "a mixture of states"
        sent = sum(sizes) * (sum(sizes) >= state.nbytes / 2)
        results.append((here, f"the state of step {max(steps)}", sent))
    return Run(results, [], "")


def _run_majority(cases):
    import os

    import torch.distributed as dist

    import __main__

    name, results, own = int(os.environ["RANK"]), [], vars(__main__).get("quorum")
    for signed, last in cases:
        calls = []

        def listed(store, name, grace, signed=signed, calls=calls):
            calls.append(name)
            return list(signed)

        __main__.quorum = listed
        try:
            run = call_answer("majority", [dist.HashStore(), name, 0.0, list(last)])
        finally:
            __main__.quorum = own
        if run.error:
            return run
        results.append((run.result, bool(calls)))
    return Run(results, [], "")
