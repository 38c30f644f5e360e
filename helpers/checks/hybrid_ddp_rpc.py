"""The exercises of 23_hybrid_ddp_rpc and 24_hybrid_proof: steps, a frozen table, and one rate for both parts.

helpers/checks/hybrid_parts.py has the checks of the other functions that these lessons go on with.
"""

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_STEPS = 4
_RATE = 0.5
_NUMBERS = list(range(48))  # of passages, which two to four trainers can share evenly
_shared = {}  # on a trainer, the table that trainer 0 has made for all


def frozen_step(world) -> Verdict:
    """Judge `frozen_step(model, optimizer, data)`: a step of a hybrid model that trains its dense layer only."""

    def check(runs):
        require_started(runs)
        for trainer, run in enumerate(of_trainers(runs)):
            moved, gradients, learned, right = run.result
            if moved:
                raise Wrong(f"After a step of trainer {trainer} the table is not what it was.")
            if gradients:
                raise Wrong(f"In {_STEPS} steps of trainer {trainer} {gradients} gradients came to the table.")
            if not learned:
                raise Wrong(f"The dense layer of trainer {trainer} has not moved in {_STEPS} steps.")
            if not right:
                raise Wrong(f"The dense layer of trainer {trainer} has moved, but not as in one process.")
        return "The dense layer learns, the table keeps every bit, and no gradient travels to the server."

    return judge(world, "frozen_step", check, _run_frozen_step)


def step_in_parts(world) -> Verdict:
    """Judge `step_in_parts(model, optimizer, parts)`: one step with a batch that comes in parts of different sizes."""

    def check(runs):
        require_started(runs)
        for trainer, run in enumerate(of_trainers(runs)):
            for part, (moved, right) in run.result["parts"].items():
                if not moved:
                    raise Wrong(f"The {part} of trainer {trainer} has not moved.")
                if not right:
                    raise Wrong(f"The {part} of trainer {trainer} is not where one step with all parts brings it.")
        return "Both parts of the model are where one step with the whole batch brings them."

    return judge(world, "step_in_parts", check, _run_step, "step_in_parts", True)


def my_hybrid_step(world) -> Verdict:
    """Judge `my_hybrid_step(model, optimizer, data)`: forward, backward and one step, in one context."""

    def check(runs):
        require_started(runs)
        for trainer, run in enumerate(of_trainers(runs)):
            for part, (moved, right) in run.result["parts"].items():
                if not moved:
                    raise Wrong(f"The {part} of trainer {trainer} has not moved, expected one step along its gradient.")
                if not right:
                    raise Wrong(f"The {part} of trainer {trainer} has moved, but not by one step along its gradient.")
            returned, loss = run.result["returned"], run.result["loss"]
            if not isinstance(returned, float) or abs(returned - loss) > 1e-5:
                raise Wrong(f"On trainer {trainer} `my_hybrid_step` returned {returned}, expected the loss {loss:.4f}.")
        return "Both parts of the model take the step of their gradients, and the loss is returned."

    return judge(world, "my_hybrid_step", check, _run_step, "my_hybrid_step", False)


def one_rate(world) -> Verdict:
    """Judge `one_rate(model, rate)`: an optimizer that trains both parts of a hybrid model at one rate."""

    def check(runs):
        require_started(runs)
        for trainer, run in enumerate(of_trainers(runs)):
            for part, times in run.result.items():
                if abs(times - 1) > 1e-6:
                    raise Wrong(f"On trainer {trainer} the {part} moves {times:.2f} times as far as in one process.")
        return "Both parts move as in one process."

    return judge(world, "one_rate", check, _run_one_rate)


def of_trainers(runs):
    """Return the runs of the trainers."""
    return runs[:-2]  # the last two are master and server


def require_started(runs):
    """Require that the trainers had what they needed to call the answer."""
    if runs[0].result is None:
        raise Wrong("The model is not there: run all cells from `World` on, that of your answer, then this check.")


def _run_frozen_step():
    import torch
    import torch.distributed as dist

    import __main__

    lesson = vars(__main__)
    if not dist.is_initialized() or "HybridModel" not in lesson:
        return Run(None, [], "")
    model = lesson["HybridModel"](lesson["new_table"]())
    at_the_table(model, _watch)
    optimizer = lesson["new_optimizer"](lesson["references"](model), torch.optim.SGD, 1.0)
    data = lesson["batch"](_share_of_trainer())
    dense, table = _weights(model)
    true_dense = _dense_of_one_process(model, table)
    for _ in range(_STEPS):
        run = call_answer("frozen_step", [model, optimizer, data])
        if run.error:
            return run
    dense_after, table_after = _weights(model)
    gradients = at_the_table(model, _gradients_of)
    moved, learned, right = not table.equal(table_after), not dense.equal(dense_after), dense_after.allclose(true_dense)
    return run._replace(result=(moved, gradients, learned, right), messages=[])


def _dense_of_one_process(model, table):
    """Return the dense weights after the steps of one process, with the passages of all trainers and that table."""
    from copy import deepcopy

    import torch

    import __main__

    rows, offsets, label = vars(__main__)["batch"](_NUMBERS)
    vectors = torch.nn.functional.embedding_bag(rows, table, offsets, mode="sum")
    dense = deepcopy(model.dense.module).cpu()
    optimizer = torch.optim.SGD(dense.parameters(), lr=1.0)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(dense(vectors), label).backward()
        optimizer.step()
    return dense.weight.detach()


def _run_step(function, in_parts):
    """Call a step of the learner's with a trainer's share, whole or as a list of parts, and compare the weights."""
    import torch
    import torch.distributed as dist
    import torch.distributed.autograd as dist_autograd

    import __main__

    lesson = vars(__main__)
    if not dist.is_initialized() or "HybridModel" not in lesson:
        return Run(None, [], "")
    model = lesson["HybridModel"](lesson["new_table"]())
    optimizer = lesson["new_optimizer"](lesson["references"](model), torch.optim.SGD, 1.0)
    numbers = _share_of_trainer()
    rows, offsets, label = lesson["batch"](numbers)
    before = _weights(model)
    with dist_autograd.context() as context:
        loss = torch.nn.functional.cross_entropy(model(rows, offsets), label.to(model.device))
        dist_autograd.backward(context, [loss])
        gradients = (
            dist_autograd.get_gradients(context)[model.dense.module.weight].cpu().clone(),
            at_the_table(model, _gradient, context),
        )
    parts = [lesson["batch"](part) for part in (numbers[:5], numbers[5:6], numbers[6:])]
    run = call_answer(function, [model, optimizer, parts if in_parts else (rows, offsets, label)])
    if run.error:
        return run
    moves = {}
    for part, old, gradient, new in zip(("dense layer", "table"), before, gradients, _weights(model), strict=True):
        moves[part] = not new.equal(old), new.allclose(old - gradient)
    returned = run.result.item() if isinstance(run.result, torch.Tensor) else run.result
    return run._replace(result={"parts": moves, "returned": returned, "loss": loss.item()}, messages=[])


def _run_one_rate():
    import torch
    import torch.distributed as dist
    import torch.distributed.autograd as dist_autograd

    import __main__

    lesson = vars(__main__)
    if not dist.is_initialized() or "HybridModel" not in lesson:
        return Run(None, [], "")
    model = lesson["HybridModel"](_table_of_all())
    run = call_answer("one_rate", [model, _RATE])
    if run.error:
        return run
    optimizer = run.result
    copy = lesson["plain_copy"](model)
    dense, table = _weights(model)
    with dist_autograd.context() as context:
        lesson["forward_backward"](model, context, lesson["batch"](_share_of_trainer()))
        for turn in range(dist.get_world_size()):
            dist.barrier()
            if turn == dist.get_rank():
                try:
                    optimizer.step(context)
                except Exception as error:
                    run = run._replace(result=None, error=f"{type(error).__name__}: {error}")
        dist.barrier()
    if run.error:
        return run
    rows, offsets, label = lesson["batch"](_NUMBERS)
    torch.nn.functional.cross_entropy(copy["dense"](copy["table"](rows, offsets)), label).backward()
    dense_after, table_after = _weights(model)
    steps = {
        "dense layer": ((dense - dense_after) / _RATE, copy["dense"].weight.grad),
        "table": ((table - table_after) / _RATE, copy["table"].weight.grad.to_dense()),
    }
    times = {part: ((mine * true).sum() / (true * true).sum()).item() for part, (mine, true) in steps.items()}
    return Run(times, [], "")


def _table_of_all():
    """Return one table on the server, the same for all trainers."""
    import torch.distributed as dist
    import torch.distributed.rpc as rpc

    import __main__

    if dist.get_rank() == 0:
        _shared["table"] = vars(__main__)["new_table"]()
        for trainer in range(1, dist.get_world_size()):
            rpc.rpc_sync(f"trainer{trainer}", _share, (_shared["table"],))
    dist.barrier()
    return _shared["table"]


def _share_of_trainer():
    import torch.distributed as dist

    return _NUMBERS[dist.get_rank() :: dist.get_world_size()]


def _share(table):
    _shared["table"] = table


def _weights(model):
    dense = model.dense.module.weight.detach().cpu().clone()
    return dense, at_the_table(model, weight_of_table)


def at_the_table(model, function, *arguments):
    """Have the owner of the table of a model call a function with the table's RRef, and return the result."""
    import torch.distributed.rpc as rpc

    reference = model.table.get_module_rref()
    return rpc.rpc_sync(reference.owner(), function, (reference, *arguments))


def _gradient(reference, context):
    import torch.distributed.autograd as dist_autograd

    return dist_autograd.get_gradients(context)[reference.local_value().weight].to_dense()


def weight_of_table(reference):
    """On the owner: return a copy of the weights of a table."""
    return reference.local_value().weight.detach().clone()


def _watch(reference):
    """On the server: from now on count the gradients that come to this table."""
    table = reference.local_value()
    table.gradients, forward = 0, table.forward

    def count(gradient):
        table.gradients += 1

    def watched(words, offsets):
        vectors = forward(words, offsets)
        if vectors.requires_grad:
            vectors.register_hook(count)
        return vectors

    table.forward = watched  # a RemoteModule calls forward itself, so hooks of the module would not run


def _gradients_of(reference):
    return reference.local_value().gradients


from helpers.checks.hybrid_parts import my_forward as my_forward  # noqa: E402
from helpers.checks.hybrid_parts import my_references as my_references  # noqa: E402
