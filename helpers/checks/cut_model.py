"""Checks of 20_distributed_rnn and 21_faster_distributed_rnn: a model on two ranks is the model of one process."""

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge, missing
from helpers.checks.rpc_judging import NO_RPC, call_with_rpc, in_one_line, rpc_runs

_ROWS, _COLUMNS, _WINDOWS = 5, 4, 2
_DIFFERENT = 8  # words in a window
_SIZE, _WIDTH = 1000, 16  # of MyStep: words in the vocabulary, and values in a vector
_CALLS = 2
_TIMEOUT = "RPC ran for more than set timeout"
_IN_VAIN = "Backward waited in vain for a gradient, expected one for each message: something is detached."
_NO_GRAPH = "have no graph, expected one: nothing can be learnt from them."


def MyModel(world) -> Verdict:
    """Check `MyModel`: logits, hidden states and gradients of one process, by two calls of the server."""

    def check(runs):
        if runs[0].result:
            raise Wrong(runs[0].result)
        return "Logits, hidden states and gradients are those of one process, by two calls in each forward."

    return judge(world, "MyModel", check, _run_cut_model)


def MyStep(world) -> Verdict:
    """Check `MyStep`: losses and gradients of one process, with as few bytes in a forward as they take."""
    needed = (8 + 4 * _WIDTH) * (_DIFFERENT + _ROWS * _COLUMNS) + 4

    def check(runs):
        wrong, moved = runs[0].result
        if wrong:
            raise Wrong(wrong)
        if moved > 1.01 * needed:
            raise Wrong(f"The model is the same, and its forward moves {moved / needed:.1f} times the bytes it needs.")
        return "Losses and gradients are those of one process, and a forward moves only the bytes it needs."

    return judge(world, "MyStep", check, _run_moved_cut)


def write(reference, values):
    """Set on its owner the values of a parameter."""
    reference.local_value().detach().copy_(values)


def shape(reference):
    """Return on its owner the shape of a parameter."""
    return list(reference.local_value().shape)


def gradient(context, reference):
    """Return on its owner the gradient of a parameter in a context, None if there is none."""
    import torch.distributed.autograd as dist_autograd

    return dist_autograd.get_gradients(context).get(reference.local_value())


def _run_cut_model():
    """Have the trainer run two windows through the learner's model and through one process, and say what differs."""
    run, model = _made("MyModel", [])
    if model is None:
        return run
    import torch.distributed.rpc as rpc

    first = model.parameter_rrefs()[0]
    one = _one_process(*rpc.rpc_sync(first.owner(), shape, (first,)))
    _start_from(one, model)
    run, _ = _same_in_all_windows(model, one, "forward", _wrong_logits)
    return run


def _run_moved_cut():
    """Have the trainer run two windows through the learner's step and through one process, and say what differs."""
    run, model = _made("MyStep", [_SIZE, _WIDTH])
    if model is None:
        return run
    one = _one_process(_SIZE, _WIDTH)
    _start_from(one, model)
    run, moved = _same_in_all_windows(model, one, "loss", _wrong_loss)
    return run if run.error else run._replace(result=(run.result, moved))


def _made(name, arguments):
    """Return the run that makes the learner's model, and the model on the trainer, None elsewhere and on an error."""
    import torch.distributed.rpc as rpc

    import __main__

    if not rpc_runs():
        return Run(None, [], NO_RPC), None
    if rpc.get_worker_info().name != "trainer":
        return Run(None, [], "" if hasattr(__main__, name) else missing(name)), None
    run = call_answer(name, arguments)
    return Run(None, [], in_one_line(run.error)), run.result


def _one_process(size, width):
    """Return table, LSTM and decoder in one process."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.ModuleList([nn.Embedding(size, width), nn.LSTM(width, width), nn.Linear(width, size)])


def _start_from(one, model):
    import torch.distributed.rpc as rpc

    for reference, parameter in zip(model.parameter_rrefs(), one.parameters(), strict=True):
        rpc.rpc_sync(reference.owner(), write, (reference, parameter.detach()))


def _same_in_all_windows(model, one, method, wrong_result):
    """Return a run whose result says what differs from one process, and the bytes that a forward moved.

    `wrong_result` says what is wrong with what the learner's method returned and the calls that it made.
    """
    import torch
    import torch.distributed.autograd as dist_autograd

    import __main__

    # `call_with_rpc` calls by name what it finds there.
    vars(__main__)["the learner's method"] = lambda *arguments: getattr(model, method)(*arguments)
    table, lstm, decoder = one
    hidden = true_hidden = None
    for window in range(_WINDOWS):
        words = torch.randperm(_ROWS * _COLUMNS).reshape(_ROWS, _COLUMNS) % _DIFFERENT
        targets = torch.randint(_DIFFERENT, words.shape)
        output, true_hidden = lstm(table(words), true_hidden)
        true_logits = decoder(output)
        true_loss = torch.nn.functional.cross_entropy(true_logits.flatten(0, 1), targets.flatten())
        one.zero_grad()
        true_loss.backward()
        true_hidden = tuple(state.detach() for state in true_hidden)
        with dist_autograd.context() as context:
            given = [words, hidden] if method == "forward" else [words, targets, hidden]
            run, made = call_with_rpc("the learner's method", given)
            if run.error:
                return run, 0
            true = true_logits if method == "forward" else true_loss
            wrong = wrong_result(run.result, made, window, true) or _wrong_hidden(run.result[1], true_hidden, window)
            if wrong:
                return Run(wrong, [], ""), 0
            loss, hidden = run.result
            if method == "forward":
                loss = torch.nn.functional.cross_entropy(loss.flatten(0, 1), targets.flatten())
            if wrong := _wrong_gradients(context, loss, model, one):
                return Run(wrong, [], ""), 0
        hidden = tuple(state.detach() for state in hidden)
    return Run("", [], ""), sum(call.sent + call.received for call in made)


def _wrong_logits(result, made, window, true_logits):
    import torch

    asked = [call for call in made if call.kind != "fetch" and not call.function.startswith("_")]
    if len(asked) != _CALLS:
        return f"In one forward the server was asked {len(asked)} times, expected {_CALLS}."
    if not isinstance(result, tuple | list) or len(result) != 2:
        return f"`forward` returned a {type(result).__name__}, expected a pair: logits and hidden state."
    logits = result[0]
    if logits.shape != true_logits.shape or not torch.allclose(logits, true_logits, atol=1e-5):
        return f"The logits of window {window} differ, expected those of one process."
    return "" if logits.requires_grad else f"The logits {_NO_GRAPH}"


def _wrong_loss(result, made, window, true_loss):
    import torch

    if not isinstance(result, tuple | list) or len(result) != 2:
        return f"`loss` returned a {type(result).__name__}, expected a pair: loss and hidden state."
    loss = result[0]
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        return f"`loss` returned {_kind(loss)} and the hidden state, expected the loss first: a tensor with one value."
    if abs(loss.item() - true_loss.item()) > 1e-4 * true_loss.item():
        return f"The loss of window {window} is {loss.item():.4f}, expected {true_loss.item():.4f}."
    return "" if loss.requires_grad else f"The losses {_NO_GRAPH}"


def _kind(value):
    return f"a tensor of shape {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"


def _wrong_hidden(hidden, true_hidden, window):
    import torch

    pair = isinstance(hidden, tuple | list) and [type(state) for state in hidden] == 2 * [torch.Tensor]
    if not pair or not all(torch.allclose(a.cpu(), b, atol=1e-5) for a, b in zip(hidden, true_hidden, strict=True)):
        return f"The hidden state after window {window} differs, expected that of one process."
    return ""


def _wrong_gradients(context, loss, model, one):
    """Say what is wrong with the gradients that backward leaves on the owners, nothing if they are right."""
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc

    try:
        dist_autograd.backward(context, [loss])
    except RuntimeError as error:
        if _TIMEOUT in str(error):
            return _IN_VAIN
        raise
    names = ["the table", *4 * ["the LSTM"], *2 * ["the decoder"]]
    for name, reference, parameter in zip(names, model.parameter_rrefs(), one.parameters(), strict=True):
        mine = rpc.rpc_sync(reference.owner(), gradient, (context, reference))
        if mine is None or not torch.allclose(mine.cpu(), parameter.grad, atol=1e-5):
            return f"The results are right, and a gradient of {name} differs, expected that of one process."
    return ""
