"""Checks of the exercises of 25_hybrid_costs: an optimizer for each part, and a table on two owners."""

from helpers.checks.judging import Run, Verdict, Wrong, judge
from helpers.checks.rpc_judging import NO_RPC, call_with_rpc, in_one_line, rpc_runs

_COLUMNS = 16
# Words per bag, of batches that tell the mistakes apart: one of them has an empty bag.
_BATCHES = ((3, 4, 5), (1, 1), (2, 0, 7, 1), (10,) * 20)
_ROWS = 40
_OWNERS = ("server", "master")
_SAME_VECTOR = (
    "`forward` returns one vector for two different rows. "
    "Do two owners make their part from the same seed, does one word count on both owners, or do the offsets not fit "
    "the words of each owner?"
)
_RATE = 0.07
_PARTS = ("table", "weight of the dense layer", "bias of the dense layer")
_KINDS = ("SparseAdam", "Adam", "Adam")


def two_optimizers(world) -> Verdict:
    """Check `two_optimizers(model, lr)`: SparseAdam for the table and Adam for the dense layer, with one `step`."""

    def check(runs):
        if runs[0].result:
            raise Wrong(runs[0].result)
        return f"After {len(_BATCHES)} steps both parts are where SparseAdam and Adam bring them in one process."

    return judge(world, "two_optimizers", check, _run_two_optimizers)


def SplitTable(world) -> Verdict:
    """Check `SplitTable(rows, owners)`: a table by rows on two owners, with the sums and gradients of a single one."""

    def check(runs):
        what, rows_on = runs[0].result
        if what:
            raise Wrong(what)
        places = " and ".join(f"{rows} rows on {owner}" for owner, rows in rows_on.items())
        return f"With {places}, sums and gradients are those of one table of {_ROWS} rows."

    return judge(world, "SplitTable", check, _run_split_table)


def _run_two_optimizers():
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc
    from torch.distributed.nn.api.remote_module import RemoteModule
    from torch.nn.functional import cross_entropy, embedding_bag

    import __main__

    lesson = vars(__main__)
    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer0":
        return Run(None, [], "")
    table = RemoteModule("server/cpu", lesson["Table"], (_ROWS,))
    model = lesson["HybridModel"](table, lesson["alone"], "cpu")
    begin = _weights(model)
    own_table, own_dense, own_bias = (values.clone().requires_grad_() for values in begin)
    optimizers = torch.optim.SparseAdam([own_table], lr=_RATE), torch.optim.Adam([own_dense, own_bias], lr=_RATE)
    run, _ = call_with_rpc("two_optimizers", [model, _RATE])
    if run.error:
        return run
    for lengths in _BATCHES:
        words, offsets = _batch(lengths)
        label = torch.arange(len(lengths)) % 6
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [cross_entropy(model(words, offsets), label)])
            try:
                run.result.step(context)
            except Exception as error:
                return run._replace(result=None, error=in_one_line(f"{type(error).__name__}: {error}"))
        vectors = embedding_bag(words, own_table, offsets, mode="sum", sparse=True)
        cross_entropy(vectors @ own_dense.T + own_bias, label).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        after = _weights(model)
        goals = own_table, own_dense, own_bias
        for part, kind, old, new, goal in zip(_PARTS, _KINDS, begin, after, goals, strict=True):
            if new.equal(old):
                return run._replace(result=f"In a step the {part} has not moved.")
            if not new.allclose(goal, atol=1e-4):
                return run._replace(result=f"In a step the {part} has moved, but not as with {kind} at this rate.")
        begin = after
    return run._replace(result="")


def _weights(model):
    """Return the weights of a hybrid model: table, dense layer, and its bias."""
    table = model.table.remote_parameters()[0].to_here().detach().clone()
    dense = model.dense.module
    return table, dense.weight.detach().clone(), dense.bias.detach().clone()


def _run_split_table():
    import torch.distributed.rpc as rpc

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer0":
        return Run(None, [], "")
    run, _ = call_with_rpc("SplitTable", [_ROWS, list(_OWNERS)])
    if run.error:
        return run
    try:
        result = _try_split_table(run.result)
    except Exception as error:
        return run._replace(result=None, error=in_one_line(f"{type(error).__name__}: {error}"))
    return run._replace(result=result)


def _try_split_table(table):
    """Return what is wrong with the learner's table, in words, and the rows on each owner."""
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc

    parameters = table.remote_parameters()
    rows_on = dict.fromkeys(_OWNERS, 0)
    for parameter in parameters:
        owner = parameter.owner_name()
        rows_on[owner] = rows_on.get(owner, 0) + rpc.rpc_sync(parameter.owner(), _rows, (parameter,))
    for owner, rows in rows_on.items():
        most = (_ROWS + 1) // 2 + 2 if owner in _OWNERS else 0  # a row or two for padding is fine
        if rows > most or (owner in _OWNERS and rows < _ROWS // 2):
            wrong = f"By `remote_parameters`, {rows} of {_ROWS} rows are on {owner}"
            return f"{wrong}; the target is {_ROWS // 2} on each.", {}
    with torch.no_grad():
        weight = table.forward(torch.arange(_ROWS), torch.arange(_ROWS)).detach().clone()
    if weight.shape != (_ROWS, _COLUMNS):
        target = (_ROWS, _COLUMNS)
        return f"For {_ROWS} bags, `forward` returned shape {tuple(weight.shape)}, and the target is {target}.", {}
    if len(weight.unique(dim=0)) < _ROWS:
        return _SAME_VECTOR, {}
    for lengths in _BATCHES:
        words, offsets = _batch(lengths)
        true_weight = weight.clone().requires_grad_()
        true = torch.nn.functional.embedding_bag(words, true_weight, offsets, mode="sum")
        scales = torch.linspace(-1, 1, true.numel()).view_as(true) + 0.1
        (true * scales).sum().backward()
        with dist_autograd.context() as context:
            mine = table.forward(words, offsets)
            if mine.shape != true.shape:
                return f"For {len(lengths)} bags, `forward` returned shape {tuple(mine.shape)}.", {}
            for bag, (vector, true_vector) in enumerate(zip(mine, true, strict=True)):
                if not torch.allclose(vector, true_vector, atol=1e-4):
                    return f"With bags of {list(lengths)} words, bag {bag} is not the sum of its vectors.", {}
            if not mine.requires_grad:
                return "The sums are right, and no gradient comes to the owners.", {}
            dist_autograd.backward(context, [(mine * scales).sum()])
            for parameter in parameters:
                rpc.rpc_sync(parameter.owner(), _sgd, (context, parameter))
        with torch.no_grad():
            after = table.forward(torch.arange(_ROWS), torch.arange(_ROWS)).detach().clone()
        wrong = ((weight - after - true_weight.grad).abs().amax(dim=1) > 1e-4).nonzero().flatten().tolist()
        if wrong:
            what = "has not moved" if after[wrong[0]].equal(weight[wrong[0]]) else "has moved wrongly"
            return f"The sums are right, but in a step of SGD row {wrong[0]} {what}.", {}
        weight = after
    return "", rows_on


def _batch(lengths):
    """Return words from all over the table, and the offsets of bags of these lengths."""
    import torch

    lengths = torch.tensor(lengths)
    return torch.arange(lengths.sum()) * 27 % _ROWS, lengths.cumsum(0) - lengths


def _rows(reference):
    return len(reference.local_value())


def _sgd(context, reference):
    """On an owner: take a step of SGD with a parameter of this rank, at rate 1."""
    import torch
    import torch.distributed.autograd as dist_autograd

    parameter = reference.local_value()
    gradient = dist_autograd.get_gradients(context).get(parameter)
    if gradient is not None:
        with torch.no_grad():
            parameter.sub_(gradient)
