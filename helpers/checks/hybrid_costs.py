"""Checks of the exercises of 24_hybrid_costs_and_failures: the bytes of a batch, and a table on two owners."""

from helpers.checks.distributed_rnn import NO_RPC
from helpers.checks.judging import Run, Verdict, Wrong, judge
from helpers.checks.rpc_judging import call_with_rpc, in_one_line, rpc_runs

_COLUMNS = 16
# Words per bag, of batches that tell the mistakes apart: one of them has an empty bag.
_BATCHES = ((3, 4, 5), (1, 1), (2, 0, 7, 1), (10,) * 20)
_ROWS = 40
_OWNERS = ("server", "master")
_SAME_VECTOR = (
    "`forward` returns one vector for two different rows. "
    "Do two owners make their part from the same seed, or does one word count on both owners?"
)
_gradient_bytes = []  # on the owner of a watched table


def bytes_of(world) -> Verdict:
    """Check `bytes_of(words, offsets)`: payload to the server and back, of forward and backward of a batch."""

    def check(runs):
        what, cases = runs[0].result
        if what:
            raise Wrong(what)
        for lengths, mine, counted in cases:
            bags, words = len(lengths), sum(lengths)
            for way, said, true in zip(("to the server", "to the trainer"), mine, counted, strict=True):
                if said != true:
                    hint = _hint(way, said, bags, words)
                    raise Wrong(
                        f"For {words} words in {bags} bags, {true} bytes went {way}, and `bytes_of` says {said}.{hint}"
                    )
        return f"The bytes of all {len(cases)} batches are right, to the server and to the trainer."

    return judge(world, "bytes_of", check, _run_bytes_of)


def split_table(world) -> Verdict:
    """Check `SplitTable(rows, owners)`: a table by rows on two owners, with the sums and gradients of a single one."""

    def check(runs):
        what, rows_on = runs[0].result
        if what:
            raise Wrong(what)
        places = " and ".join(f"{rows} rows on {owner}" for owner, rows in rows_on.items())
        return f"With {places}, sums and gradients are those of one table of {_ROWS} rows."

    return judge(world, "SplitTable", check, _run_split_table)


def _hint(way, said, bags, words):
    vector = 4 * _COLUMNS
    hints = {
        8 * (bags + words): "Backward sends something, too.",
        4 * (bags + words): "A word and an offset are 64-bit numbers, and backward sends something, too.",
        4 * (bags + words) + vector * bags: "A word and an offset are 64-bit numbers.",
        8 * words: "The offsets and the gradient are missing.",
        8 * words + vector * bags: "The offsets are missing.",
        vector * words: "One vector for each bag travels, not one for each word.",
        8 * (bags + words) + vector * words: "One gradient for each bag travels, not one for each word.",
        vector * bags: "Words and offsets go there, too. Or is the pair in the wrong order?",
        2 * vector * bags: "A vector is 16 numbers of 4 bytes, and its gradient goes the other way.",
        8 * (bags + words) + 2 * vector * bags: "The vectors themselves come back.",
        2 * vector * words: "One vector for each bag travels, not one for each word.",
    }
    if way == "to the trainer":
        for total in (8 * (bags + words), 8 * words, vector * bags):
            hints.pop(total, None)
    return f" {hints[said]}" if said in hints else ""


def _run_bytes_of():
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc
    from torch import nn
    from torch.distributed.nn.api.remote_module import RemoteModule

    from helpers.measure import calls

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer0":
        return Run(None, [], "")
    table = RemoteModule("server/cpu", nn.EmbeddingBag, (_ROWS, _COLUMNS), {"mode": "sum", "sparse": True})
    reference = table.get_module_rref()
    rpc.rpc_sync(reference.owner(), _watch, (reference,))
    cases = []
    for lengths in _BATCHES:
        words, offsets = _batch(lengths)
        run, _ = call_with_rpc("bytes_of", [words.clone(), offsets.clone()])
        if run.error:
            return run
        try:
            mine = [int(number) for number in run.result]
        except (TypeError, ValueError):
            mine = []
        if len(mine) != 2:
            target = "the target is a pair of numbers: bytes to the server, bytes to the trainer"
            return run._replace(result=(f"`bytes_of` returned {_brief(run.result)}, and {target}.", []))
        with dist_autograd.context() as context, calls.recorded() as made:
            vectors = table.forward(words, offsets)
            dist_autograd.backward(context, [vectors.sum()])
        sent = sum(call.sent for call in made) + rpc.rpc_sync(reference.owner(), _take_gradient_bytes)
        cases.append((lengths, mine, (sent, sum(call.received for call in made))))
    return run._replace(result=("", cases))


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
            return f"{rows} of {_ROWS} rows are on {owner}, and the target is {_ROWS // 2} on each owner.", {}
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


def _brief(value):
    return repr(value) if isinstance(value, int | float | None) else f"a {type(value).__name__}"


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


def _watch(reference):
    """On the server: note from now on the bytes of the gradients that come to this table's output."""
    table = reference.local_value()
    forward = table.forward  # a RemoteModule calls this, past all hooks of modules

    def watched(words, offsets):
        vectors = forward(words, offsets)
        vectors.register_hook(lambda gradient: _gradient_bytes.append(gradient.nbytes))
        return vectors

    table.forward = watched


def _take_gradient_bytes():
    taken = sum(_gradient_bytes)
    _gradient_bytes.clear()
    return taken
