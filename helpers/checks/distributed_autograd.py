"""Checks of 17_distributed_autograd: a model on worker1, and one of two parts of which the second is there."""

import os
from functools import partial

from helpers.checks.judging import Run, Verdict, Wrong, judge
from helpers.checks.rpc_judging import on_first_rank
from helpers.checks.small_model import CLASSES, FEATURES, compare_gradients, loss, new_data, new_model

_CUT = 2  # the layers of the small model that are the first part
_PIECES = 3, 7, 5  # samples
_RATE = 0.1
_STEPS, _SAMPLES = 2, 12
_IN_VAIN = "RPC ran for more than set timeout"


def backward_by_hand(world) -> Verdict:
    """Check `backward_by_hand(first, second, inputs, labels)`: right gradients in `.grad`, and no context anywhere."""

    def check(runs):
        found = runs[0].result
        _require_gradients(found)
        if found["contexts"]:
            raise Wrong(f"You opened {_count(found['contexts'], 'context')}, and the target is plain RPC without one.")
        return "Both workers hold the gradients of one process, and no context was opened."

    return judge(world, "backward_by_hand", check, _run_backward_by_hand)


def accumulate(world) -> Verdict:
    """Check `accumulate(first, second, batches)`: right gradients in `.grad`, from a context for each batch."""

    def check(runs):
        found, target = runs[0].result, len(_PIECES)
        _require_gradients(found)
        if found["contexts"] != target:
            opened = _count(found["contexts"], "context")
            raise Wrong(f"You opened {opened}, and the target is {target}, one for each batch.")
        return f"Both workers hold the gradients of all samples, from {_count(target, 'context')}."

    return judge(world, "accumulate", check, _run_accumulate)


def my_step(world) -> Verdict:
    """Check `my_step(net, optimizer, inputs, labels)`: a step of a model on worker1, which returns the loss."""

    def check(runs):
        moved, right, payload, losses = runs[0].result
        if not moved:
            raise Wrong("The weights on worker1 have not changed.")
        if not right:
            raise Wrong(f"After {_STEPS} steps the weights on worker1 are not those of one process.")
        for step, (returned, true) in enumerate(losses):
            if not isinstance(returned, float) or abs(returned - true) > 1e-4:
                raise Wrong(f"Step {step} returned {returned}, and the target is the loss, {true:.4f}.")
        most = 4 * _SAMPLES * (FEATURES + CLASSES)
        if payload > most:
            raise Wrong(f"A step moved {payload} bytes of tensors in calls, and the inputs and scores have {most}.")
        return f"After {_STEPS} steps the weights on worker1 are those of one process."

    return judge(world, "my_step", check, _run_remote_step)


def train_frozen(world) -> Verdict:
    """Check `train_frozen(first, second, inputs, labels)`: a step of the first part, and of the second one none."""

    def check(runs):
        found = runs[0].result
        if not found["called"]:
            raise Wrong("`second` was never called on worker1.")
        if found["second moved"]:
            raise Wrong("The weights of `second` have changed.")
        if not found["first moved"]:
            raise Wrong("The weights of `first` have not changed.")
        if not found["first right"]:
            raise Wrong("The weights of `first` are not those that one process has after the step.")
        if found["needed"]:
            raise Wrong("worker1 computed gradients for the weights of `second`, and they do not need any.")
        return "`first` made its step, and worker1 computed no gradient for the weights of `second`."

    return judge(world, "train_frozen", check, _run_frozen)


def new_second():
    """Return the second part of the model, which notes of each call whether its weights needed gradients."""
    module = new_model()[_CUT:]
    module.needed = []
    module.forward = partial(_forward, module)
    return module


def _forward(module, hidden):
    module.needed.append(any(parameter.requires_grad for parameter in module.parameters()))
    return type(module).forward(module, hidden)


def gradients(second):
    """Return on the owner of a module the gradients that are in `.grad`."""
    return [parameter.grad for parameter in second.local_value().parameters()]


def weights(second):
    """Return on the owner of a module its weights, and whether they needed gradients, for each call of it."""
    module = second.local_value()
    return [parameter.detach() for parameter in module.parameters()], module.needed


def next_context():
    """Return the number that the next context of this rank would have had."""
    import torch.distributed.autograd as dist_autograd

    with dist_autograd.context() as number:
        return number


def _require_gradients(found):
    for worker in ("worker0", "worker1"):
        if found[worker]:
            raise Wrong(f"On {worker} {found[worker]} those of one process.")


def _run_backward_by_hand():
    return _run_gradients("backward_by_hand", [new_data(2, 12)], lambda data: data[0])


def _run_accumulate():
    return _run_gradients(
        "accumulate", [new_data(seed, size) for seed, size in enumerate(_PIECES)], lambda data: [data]
    )


def _run_gradients(function, data, arguments):
    """Have rank 0 call the learner's function, and find out what is wrong with the gradients on both workers."""

    def judge_gradients(first, second, rpc):
        whole, there = new_model(), new_model()[_CUT:]
        loss(whole, data).backward()
        grads = rpc.rpc_sync("worker1", gradients, args=(second,))
        for parameter, gradient in zip(there.parameters(), grads, strict=True):
            parameter.grad = gradient
        return {
            "worker0": compare_gradients(first, whole[:_CUT]),
            "worker1": compare_gradients(there, whole[_CUT:]),
        }

    return _run(function, arguments(data), judge_gradients)


def _run_frozen():
    data = new_data(2, 12)

    def judge_weights(first, second, rpc):
        import torch

        old, whole = new_model(), new_model()
        loss(whole, [data]).backward()
        torch.optim.SGD(whole[:_CUT].parameters(), lr=_RATE).step()
        there, needed = rpc.rpc_sync("worker1", weights, args=(second,))
        mine = list(first.parameters())
        return {
            "called": bool(needed),
            "needed": any(needed),
            "second moved": not _same(there, old[_CUT:].parameters()),
            "first moved": not _same(mine, old[:_CUT].parameters()),
            "first right": _same(mine, whole[:_CUT].parameters()),
        }

    return _run("train_frozen", data, judge_weights)


def parameter_rrefs(net):
    """Return on the owner of a module an RRef to each of its parameters."""
    import torch.distributed.rpc as rpc

    return [rpc.RRef(parameter) for parameter in net.local_value().parameters()]


def weights_of(net):
    """Return on the owner of a module its weights."""
    return [parameter.detach() for parameter in net.local_value().parameters()]


def _run_remote_step():
    """Have rank 0 take steps of a model on worker1, beside the same steps of one process."""
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    import torch
    import torch.distributed.rpc as rpc
    from torch.distributed.optim import DistributedOptimizer

    net = rpc.remote("worker1", new_model)
    # torch asks for the type of an object before its first call; behind rpc_async the call is then made by a thread
    # that is in no context.
    net.rpc_sync().zero_grad()
    references = rpc.rpc_sync("worker1", parameter_rrefs, args=(net,))
    optimizer = DistributedOptimizer(torch.optim.SGD, references, lr=_RATE)
    whole = new_model()
    local_optimizer = torch.optim.SGD(whole.parameters(), lr=_RATE)
    losses, payloads = [], []
    for step in range(_STEPS):
        data = new_data(step, _SAMPLES)
        run = on_first_rank("my_step", [net, optimizer, *data])
        if run.error:
            return run
        returned, made = run.result
        local_optimizer.zero_grad()
        true = loss(whole, [data])
        true.backward()
        local_optimizer.step()
        payloads.append(sum(call.sent + call.received for call in made))
        losses.append((_number(returned), true.item()))
    there = rpc.rpc_sync("worker1", weights_of, args=(net,))
    moved, right = not _same(there, new_model().parameters()), _same(there, whole.parameters())
    return Run((moved, right, max(payloads), losses), [], "")


def _number(result):
    """Return a number, also one in a tensor, as a float, and anything else by the name of its type."""
    try:
        return float(result)
    except (TypeError, ValueError):
        return "None" if result is None else f"a {type(result).__name__}"


def _run(function, arguments, look):
    """Have rank 0 call the learner's function with a model in two parts, and return what `look` finds afterwards."""
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    import torch.distributed.rpc as rpc

    try:
        second = rpc.remote("worker1", new_second)
        before = [next_context(), rpc.rpc_sync("worker1", next_context)]
    except RuntimeError as error:  # RPC has not been initialised, or a context is open
        return Run(None, [], f"RuntimeError: {error}")
    first = new_model()[:_CUT]
    run = on_first_rank(function, [first, second, *arguments])
    if run.error:
        why = "RuntimeError: a call has timed out. A backward that waits for a gradient in vain ends like this."
        return run._replace(error=why) if _IN_VAIN in run.error else run
    try:
        after = [next_context(), rpc.rpc_sync("worker1", next_context)]
    except RuntimeError as error:  # a context is still open
        return run._replace(error=f"RuntimeError: {error}")
    found = look(first, second, rpc)
    found["contexts"] = sum(after) - sum(before) - 2
    return run._replace(result=found)


def _same(mine, true):
    import torch

    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(mine, true, strict=True))


def _count(number, thing):
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
