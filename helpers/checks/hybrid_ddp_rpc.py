"""The exercises of 22_hybrid_ddp_rpc: a frozen table, and one rate for both parts of a hybrid model."""

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_STEPS = 4
_RATE = 0.5
_TRAINERS = 2
_shared = {}  # on trainer 1, the table that trainer 0 has made for both


def frozen_step(world) -> Verdict:
    """Judge `frozen_step(model, optimizer, numbers)`: a step of a hybrid model that trains its dense layer only."""

    def check(runs):
        _require_started(runs)
        for trainer, run in enumerate(runs[:_TRAINERS]):
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


def one_rate(world) -> Verdict:
    """Judge `one_rate(model, rate)`: an optimizer that trains both parts of a hybrid model at one rate."""

    def check(runs):
        _require_started(runs)
        for trainer, run in enumerate(runs[:_TRAINERS]):
            for part, times in run.result.items():
                if abs(times - 1) > 1e-6:
                    raise Wrong(f"On trainer {trainer} the {part} moves {times:.2f} times as far as in one process.")
        return "Both parts move as in one process."

    return judge(world, "one_rate", check, _run_one_rate)


def _require_started(runs):
    if runs[0].result is None:
        raise Wrong("The model is not there: run all cells from `World` on, that of your answer, then this check.")


def _run_frozen_step():
    import torch.distributed as dist

    import __main__

    lesson = vars(__main__)
    if not dist.is_initialized() or "HybridModel" not in lesson:
        return Run(None, [], "")
    model = lesson["HybridModel"](_table_made_in_turn())
    _at_the_table(model, _watch)
    optimizer = lesson["new_optimizer"](model)
    numbers = [place for place in range(40) if place % _TRAINERS == dist.get_rank()]
    dense, table = _weights(model)
    true_dense = _dense_of_one_process(model, table)
    for _ in range(_STEPS):
        run = call_answer("frozen_step", [model, optimizer, numbers])
        if run.error:
            return run
    dense_after, table_after = _weights(model)
    gradients = _at_the_table(model, _gradients_of)
    moved, learned, right = not table.equal(table_after), not dense.equal(dense_after), dense_after.allclose(true_dense)
    return run._replace(result=(moved, gradients, learned, right), messages=[])


def _dense_of_one_process(model, table):
    """Return the dense weights after the steps of one process, with the passages of both trainers and that table."""
    from copy import deepcopy

    import torch

    import __main__

    rows, offsets, label = vars(__main__)["batch"](list(range(40)))
    vectors = torch.nn.functional.embedding_bag(rows, table, offsets, mode="sum")
    dense = deepcopy(model.dense.module).cpu()
    optimizer = torch.optim.SGD(dense.parameters(), lr=1.0)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(dense(vectors), label).backward()
        optimizer.step()
    return dense.weight.detach()


def _run_one_rate():
    import torch
    import torch.distributed as dist
    import torch.distributed.autograd as dist_autograd

    import __main__

    lesson = vars(__main__)
    if not dist.is_initialized() or "HybridModel" not in lesson:
        return Run(None, [], "")
    model = lesson["HybridModel"](_table_of_both())
    run = call_answer("one_rate", [model, _RATE])
    if run.error:
        return run
    optimizer = run.result
    copy = lesson["plain_copy"](model)
    dense, table = _weights(model)
    rank, numbers = dist.get_rank(), list(range(40))
    with dist_autograd.context() as context:
        lesson["forward_backward"](model, context, numbers[rank::_TRAINERS])
        for turn in range(_TRAINERS):
            dist.barrier()
            if turn == rank:
                try:
                    optimizer.step(context)
                except Exception as error:
                    run = run._replace(result=None, error=f"{type(error).__name__}: {error}")
        dist.barrier()
    if run.error:
        return run
    rows, offsets, label = lesson["batch"](numbers)
    torch.nn.functional.cross_entropy(copy["dense"](copy["table"](rows, offsets)), label).backward()
    dense_after, table_after = _weights(model)
    steps = {
        "dense layer": ((dense - dense_after) / _RATE, copy["dense"].weight.grad),
        "table": ((table - table_after) / _RATE, copy["table"].weight.grad.to_dense()),
    }
    times = {part: ((mine * true).sum() / (true * true).sum()).item() for part, (mine, true) in steps.items()}
    return Run(times, [], "")


def _table_made_in_turn():
    """Return a table for this trainer. Two made at the same time would share the server's generator, and differ."""
    import torch.distributed as dist
    import torch.distributed.rpc as rpc

    import __main__

    for turn in range(_TRAINERS):
        if turn == dist.get_rank():
            table = vars(__main__)["new_table"]()
            reference = table.get_module_rref()
            rpc.rpc_sync(reference.owner(), _weight, (reference,))  # now it is there
        dist.barrier()
    return table


def _table_of_both():
    """Return one table on the server, the same for both trainers."""
    import torch.distributed as dist
    import torch.distributed.rpc as rpc

    import __main__

    if dist.get_rank() == 0:
        _shared["table"] = vars(__main__)["new_table"]()
        rpc.rpc_sync("trainer1", _share, (_shared["table"],))
    dist.barrier()
    return _shared["table"]


def _share(table):
    _shared["table"] = table


def _weights(model):
    dense = model.dense.module.weight.detach().cpu().clone()
    return dense, _at_the_table(model, _weight)


def _at_the_table(model, function):
    import torch.distributed.rpc as rpc

    reference = model.table.get_module_rref()
    return rpc.rpc_sync(reference.owner(), function, (reference,))


def _weight(reference):
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
