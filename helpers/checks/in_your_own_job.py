"""Checks of 36_in_your_own_job: records compared, an alarm round a block, and the cause among the echoes."""

import os
import pickle
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from helpers.checks.judging import CUT_OFF, Run, Verdict, Wrong, call_answer, judge, missing

_SECONDS_OF_ALARM = 0.8
_SECONDS_TO_WAIT = 2.5  # of a rank for one that is late
_SECONDS_OF_A_GROUP = 1

# ---------------------------------------------------------------- records compared


def my_difference(world) -> Verdict:
    """Check `my_difference(calls)`: where the calls of all ranks differ first, and which rank made which of them."""

    def check(runs):
        for rank, run in enumerate(runs):
            for case, calls, (error, answer) in run.result:
                if error:
                    raise Wrong(f"{case}: my_difference raised {error}")
                _require_difference(f"{case}: on rank {rank}", _place(calls), answer)
        return "Wherever the records part, it names the place and, for each call, the ranks that made it."

    return judge(world, "my_difference", check, _run_difference)


def _require_difference(where, target, answer):
    if target is None:
        if answer is not None:
            raise Wrong(f"{where} my_difference returned {answer}, and the target is None.")
        return
    try:
        number, ranks_of = answer
        ranks_of = {call: list(ranks) for call, ranks in ranks_of.items()}
    except (TypeError, ValueError, AttributeError):
        raise Wrong(f"{where} my_difference returned {answer}, and the target is a number and a dictionary.") from None
    if number != target[0]:
        raise Wrong(f"{where} my_difference found call {number}, and the target is call {target[0]}.")
    for call, ranks in target[1].items():
        if ranks_of.get(call) != ranks:
            made = f"made {call!r}" if call else "had no call left"
            named = ranks_of.get(call)
            raise Wrong(f"{where} ranks {ranks} {made} at call {number}, and my_difference names {named}.")
    if len(ranks_of) > len(target[1]):
        raise Wrong(f"{where} my_difference has a call that nobody made at call {number}: {list(ranks_of)}.")


def _place(calls):
    """Return the answer that is the target."""
    for place in range(max(map(len, calls))):
        made = [rank_calls[place] if place < len(rank_calls) else None for rank_calls in calls]
        if len(set(made)) > 1:
            return place + 1, {call: [r for r, other in enumerate(made) if other == call] for call in made}
    return None


def _run_difference():
    import torch
    import torch.distributed as dist

    last, one = dist.get_world_size() - 1, torch.ones(1)
    # A group for each rank alone, in which no difference keeps anybody waiting.
    alone = [dist.new_group([rank]) for rank in range(last + 1)][dist.get_rank()]
    rank = dist.get_rank()
    cases = {
        "All ranks alike": [one, one],
        "A rank with another shape": [one, torch.ones(2) if rank == last else one, one],
        "A rank with one call less": [one, one] if rank == 0 else [one, one, one],
        "A rank without any call": [] if rank == last else [one],
        "All ranks different": [one, one, one, torch.ones(rank + 1)],
        "A rank with a call too many": [one, torch.ones(3), one] if rank == last else [one, one],
    }
    found = []
    for case, tensors in cases.items():
        before = len(_recorded(alone))
        for tensor in tensors:
            dist.all_reduce(tensor.clone(), group=alone)
        own = [f"all_reduce of {entry['input_sizes'][0]}" for entry in _recorded(alone)[before:]]
        calls = [None] * (last + 1)
        dist.all_gather_object(calls, own)
        run = call_answer("my_difference", [calls])
        if run.error == missing("my_difference"):
            return run
        found.append((case, calls, (run.error.partition("\n")[0], run.result)))
    return Run(found, [], "")


def _recorded(group):
    from helpers.measure.torch_parts import flight_records

    return [entry for entry in flight_records() if entry["process_group"][0] == group.group_name]


# ---------------------------------------------------------------- an alarm


def my_alarm(world) -> Verdict:
    """Check `my_alarm(seconds, path)`: a block that takes longer has its record written meanwhile, and no other one."""
    late = world.size - 1

    def check(runs):
        for rank, run in enumerate(runs):
            waited, quick, failed = run.result
            if quick.error or waited.error:
                raise Wrong(f"Rank {rank} raised {(quick.error or waited.error).splitlines()[0]}")
            if not failed.error.startswith("ZeroDivisionError"):
                let_out = failed.error or "nothing"
                raise Wrong(f"On rank {rank} the block raised a ZeroDivisionError, and my_alarm let out {let_out}.")
            if quick.result:
                raise Wrong(f"On rank {rank} a block ended in time, and a record was written.")
            if failed.result:
                raise Wrong(f"On rank {rank} a block ended with an error, in time, and a record was written.")
            if rank != late:
                _require_record(rank, *waited.result)
        return "Whoever waited has left its record while it waited, and nobody else."

    return judge(world, "my_alarm", check, _run_alarm, late)


def _require_record(rank, written, ended, record):
    if written is None:
        raise Wrong(
            f"Rank {rank} waited for {_SECONDS_TO_WAIT} s, the alarm was set to {_SECONDS_OF_ALARM} s, and no record "
            "was written."
        )
    if written > ended:
        raise Wrong(f"Rank {rank} wrote its record after the block had ended. Who hangs for ever would write none.")
    if record is None:
        raise Wrong(f"What rank {rank} wrote is no flight record: pickle.loads does not read it.")
    if [13] not in record:
        raise Wrong(f"The record of rank {rank} has no all_reduce of 13 numbers, for which it was waiting.")


def _run_alarm(late):
    import torch
    import torch.distributed as dist

    import __main__
    from helpers.measure.torch_parts import without_compiler

    if "my_alarm" not in vars(__main__):
        return Run(None, [], missing("my_alarm"))
    group = dist.new_group(timeout=timedelta(seconds=10))
    with tempfile.TemporaryDirectory() as folder:
        waits, quick, fails = (Path(folder, name) for name in ("waits", "quick", "fails"))

        def wait():
            if dist.get_rank() == late:
                time.sleep(_SECONDS_TO_WAIT)
            with __main__.my_alarm(_SECONDS_OF_ALARM, str(waits)):
                dist.all_reduce(torch.ones(13), group=group)
                ended = time.time()
            return _written(waits), ended, _shapes(waits)

        def be_quick():
            with __main__.my_alarm(_SECONDS_OF_ALARM, str(quick)):
                pass

        def fail():
            with __main__.my_alarm(_SECONDS_OF_ALARM, str(fails)):
                return 1 / 0

        with without_compiler():
            waited, was_quick, failed = _called(wait), _called(be_quick), _called(fail)
            time.sleep(_SECONDS_OF_ALARM + 0.5)
        runs = [waited, was_quick._replace(result=quick.exists()), failed._replace(result=fails.exists())]
        return Run(runs, [], "")


def _called(function):
    try:
        return Run(function(), [], "")
    except Exception as error:
        return Run(None, [], f"{type(error).__name__}: {error}")


def _written(path):
    return os.path.getmtime(path) if path.exists() else None


def _shapes(path):
    try:
        return [shape for entry in pickle.loads(path.read_bytes())["entries"] for shape in entry["input_sizes"]]
    except Exception:
        return None


# ---------------------------------------------------------------- the cause among the echoes


def my_suspects(world) -> Verdict:
    """Check `my_suspects(errors)`: ranks with an error of their own; if all are echoes, those without a file."""

    def check(runs):
        for rank, run in enumerate(runs):
            for case, errors, target, (error, answer) in run.result:
                if error:
                    raise Wrong(f"{case}: my_suspects raised {error}")
                if answer is None or list(answer) != target:
                    said = "; ".join(f"rank {other}: {_short(text)}" for other, text in enumerate(errors))
                    raise Wrong(
                        f"{case}: on rank {rank} my_suspects returned {answer}, and the target is {target}. The errors "
                        f"were: {said}."
                    )
        return "An error of one's own comes before an echo, and silence before nothing at all."

    return judge(world, "my_suspects", check, _run_suspects)


def _run_suspects():
    import torch.distributed as dist

    last = dist.get_world_size() - 1
    cases = {
        "A rank fails by itself": (lambda: 1 / 0, [last]),
        "A rank sleeps": (lambda: time.sleep(1.5 * _SECONDS_OF_A_GROUP), [last]),
        "The disk of a rank does not answer": (_time_out, [last]),
        "Nobody fails": (None, []),
    }
    found = []
    for case, (fault, target) in cases.items():
        errors = [None] * (last + 1)
        dist.all_gather_object(errors, _error_of_this_rank(fault, last))
        run = call_answer("my_suspects", [list(errors)])
        if run.error == missing("my_suspects"):
            return run
        found.append((case, errors, target, (run.error.partition("\n")[0], run.result)))
    if last > 1:
        errors = ["ValueError: the batch is empty", *found[0][1][1:]]
        run = call_answer("my_suspects", [list(errors)])
        found.append(("Two ranks fail by themselves", errors, [0, last], (run.error.partition("\n")[0], run.result)))
    return Run(found, [], "")


def _error_of_this_rank(fault, faulty):
    """Return what ends this rank in a step in which this rank has this fault, or None when it has come to no error."""
    import torch
    import torch.distributed as dist

    group = dist.new_group(timeout=timedelta(seconds=10 if fault is None else _SECONDS_OF_A_GROUP))
    is_faulty = dist.get_rank() == faulty and fault is not None
    try:
        if is_faulty:
            fault()
            return None  # it slept until it was ended
        dist.all_reduce(torch.ones(1), group=group)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _time_out():
    raise OSError("Timed out reading the next batch")


def _short(text):
    if text is None:
        return "no file"
    return "an echo" if CUT_OFF.search(text) else text
