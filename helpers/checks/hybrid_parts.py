"""Checks in mid-lesson of 23_hybrid_ddp_rpc and 24_hybrid_proof: the forward, the references and the turns."""

import os
import time

from helpers.checks.hybrid_ddp_rpc import at_the_table, of_trainers, require_started, weight_of_table
from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge
from helpers.checks.rpc_judging import in_one_line

_SECONDS = 0.05  # that a step of the last trainer takes; those of the trainers before it take longer


def my_forward(world) -> Verdict:
    """Judge `my_forward(model, words, offsets)`: the answers of a hybrid model to a batch of two bags."""
    check = _without_faults("The numbers are those of one process.")
    return judge(world, "my_forward", check, _run_my_forward)


def my_references(world) -> Verdict:
    """Judge `my_references(model)`: RRefs of all parameters of a hybrid model, here and on the server."""
    check = _without_faults("The list has the parameter of the table and both parameters of the dense layer.")
    return judge(world, "my_references", check, _run_my_references)


def my_turns(world) -> Verdict:
    """Judge `my_turns(optimizer, context)`: the trainers step one after another, and leave when all have stepped."""

    def check(runs):
        require_started(runs)
        if fault := fault_of_turns([run.result for run in of_trainers(runs)]):
            raise Wrong(fault)
        return "The trainers step in the order of their ranks, and none goes on before the last one has stepped."

    return judge(world, "my_turns", check, _run_my_turns)


def turns_noted(function: str):
    """On a trainer: call a function of the lesson, and return when its steps began and ended, and when it returned."""
    import __main__

    optimizer = _SlowOptimizer()
    vars(__main__)[function](optimizer, None)
    return optimizer.noted, time.monotonic()


def fault_of_turns(noted: list) -> str:
    """Return what is wrong with the turns that the trainers have taken, in words; "" when nothing is.

    `noted` has for each trainer what `turns_noted` returns there. All ranks are on one machine, and read one clock.
    """
    for trainer, (steps, _) in enumerate(noted):
        if len(steps) != 1:
            return f"Trainer {trainer} took {len(steps)} steps, expected one."
    steps = [steps[0] for steps, _ in noted]
    for trainer, ((_, end), (begin, _)) in enumerate(zip(steps, steps[1:], strict=False)):
        if begin < end:
            return f"Trainer {trainer + 1} stepped before trainer {trainer} had stepped, expected it to wait."
    if min(left for _, left in noted) < steps[-1][1]:
        return "A trainer returned before the last one had stepped, expected all to wait before the next batch."
    return ""


def _without_faults(sentence):
    """Return a check that wants "" from every trainer; anything else is what is wrong, in words."""

    def check(runs):
        require_started(runs)
        for trainer, run in enumerate(of_trainers(runs)):
            if run.result:
                raise Wrong(f"On trainer {trainer} {run.result}")
        return sentence

    return check


class _SlowOptimizer:
    """It notes when its step begins and ends; the steps of the first trainers are the slowest."""

    def __init__(self):
        self.noted = []

    def step(self, context):
        import torch.distributed as dist

        begin = time.monotonic()
        time.sleep(_SECONDS * (dist.get_world_size() - dist.get_rank()))
        self.noted.append((begin, time.monotonic()))


def _run_my_turns():
    import torch.distributed as dist

    if not dist.is_initialized():
        return Run(None, [], "")
    optimizer = _SlowOptimizer()
    run = call_answer("my_turns", [optimizer, None])
    return run._replace(result=(optimizer.noted, time.monotonic()), messages=[])


def _run_my_forward():
    from types import SimpleNamespace

    import torch
    import torch.distributed as dist
    import torch.distributed.rpc as rpc

    import __main__
    from helpers import devices

    lesson = vars(__main__)
    if not dist.is_initialized() or "new_table" not in lesson:
        return Run(None, [], "")
    device = devices.of_this_rank().device
    dense = torch.nn.Linear(16, 6).to(device)
    model = SimpleNamespace(table=rpc.rpc_sync("master", lesson["new_table"]), dense=dense, device=device)
    rows, offsets, _ = lesson["batch"]([0, 1])
    vectors = torch.nn.functional.embedding_bag(rows, at_the_table(model, weight_of_table), offsets, mode="sum")
    expected = dense(vectors.to(device))
    run = call_answer("my_forward", [model, rows, offsets])
    return run._replace(result=_fault_of_forward(run.result, expected), error=in_one_line(run.error), messages=[])


def _fault_of_forward(returned, expected):
    shape = tuple(expected.shape)
    if not hasattr(returned, "shape"):
        of_what = "None" if returned is None else f"a {type(returned).__name__}"
        return f"`my_forward` returned {of_what}, expected a tensor of shape {shape}."
    if tuple(returned.shape) != shape:
        return f"`my_forward` returned a tensor of shape {tuple(returned.shape)}, expected {shape}."
    if not returned.allclose(expected):
        return "`my_forward` returned other numbers than one process with the same weights, expected the same."
    return ""


def _run_my_references():
    import torch.distributed as dist

    import __main__

    lesson = vars(__main__)
    if not dist.is_initialized() or "HybridModel" not in lesson:
        return Run(None, [], "")
    model = lesson["HybridModel"](lesson["new_table"]())
    run = call_answer("my_references", [model])
    fault = "" if run.error else _fault_of_references(run.result, model)
    return run._replace(result=fault, error=in_one_line(run.error), messages=[])


def _fault_of_references(returned, model):
    own = f"trainer{os.environ['RANK']}"
    expected = ["server", own, own]
    if not isinstance(returned, list | tuple):
        return f"`my_references` returned a {type(returned).__name__}, expected a list."
    if not returned:
        return "the list is empty, expected an RRef of each parameter."
    strangers = [type(reference).__name__ for reference in returned if not hasattr(reference, "owner_name")]
    if strangers:
        return f"the list has a {strangers[0]}, expected RRefs only."
    owners = [reference.owner_name() for reference in returned]
    if sorted(owners) != expected:
        return f"the owners of the RRefs in the list are {owners}, expected {expected}."
    local = {id(reference.local_value()) for reference in returned if reference.is_owner()}
    if local != {id(parameter) for parameter in model.dense.parameters()}:
        return "the local RRefs hold something else, expected both parameters of the dense layer."
    return ""
