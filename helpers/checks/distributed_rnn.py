"""Checks of the exercises of 20_distributed_rnn."""

from helpers.checks.cut_model import MyModel as MyModel
from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge, missing
from helpers.checks.rpc_judging import NO_RPC, in_one_line, rpc_runs

_WORDS, _WIDTH, _COLUMNS, _ROWS = 7, 4, 3, 5


def clip(world) -> Verdict:
    """Check `clip(context, references, limit)`: it clips by the norm of all gradients, on whichever ranks they are."""

    def check(runs):
        for limit, norm, true_norm, gradients, true_gradients in runs[0].result:
            if not isinstance(norm, float | int):
                raise Wrong(f"`clip` returned a {type(norm).__name__}, and the target is the norm, a number.")
            if abs(norm - true_norm) > 1e-4 * true_norm:
                raise Wrong(f"`clip` returned {norm:.4f}, and the norm of all gradients was {true_norm:.4f}.")
            where = f"With a norm of {true_norm:.4f} and a limit of {limit:.4f}"
            for name, mine in gradients.items():
                if abs(mine - true_gradients[name]) > 1e-4 * true_gradients[name]:
                    raise Wrong(
                        f"{where}, the gradients on {name} have norm {mine:.4f} afterwards, and the target is "
                        f"{true_gradients[name]:.4f}."
                    )
        return "The gradients of both ranks are those of one process, above the limit and below it."

    return judge(world, "clip", check, _run_clip)


def TwoLayers(world) -> Verdict:
    """Check `TwoLayers(width, owner)`: an LSTM of two layers, of which the second one is on another rank."""

    def check(runs):
        owner, owners, wrong, findings = runs[0].result
        if wrong:
            raise Wrong(wrong)
        expected = ["trainer"] * 4 + [owner] * 4
        if len(owners) != 8:
            raise Wrong(f"`parameter_rrefs` returned {len(owners)} parameters, and the target is 8.")
        for number, (mine, true) in enumerate(zip(owners, expected, strict=True)):
            if mine != true:
                raise Wrong(f"Parameter {number} of 8 is owned by {mine}, and the target is {true}.")
        for what in findings:
            raise Wrong(f"{what} of nn.LSTM with two layers.")
        return f"Both layers compute and learn as nn.LSTM does, the second one on {owner}."

    return judge(world, "TwoLayers", check, _run_two_layers)


def _call(function, arguments) -> Run:
    run = call_answer(function, arguments)
    return run._replace(error=in_one_line(run.error))


def _run_clip():
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc
    from torch import nn
    from torch.distributed.nn.api.remote_module import RemoteModule

    import __main__

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer":
        # Nothing runs here, but a cell that has not been run on this rank is noticed.
        return Run(None, [], "" if hasattr(__main__, "clip") else missing("clip"))
    torch.manual_seed(0)
    table, decoder = nn.Embedding(_WORDS, _WIDTH), nn.Linear(_WIDTH, _WORDS)
    remote = RemoteModule("server", nn.Embedding, (_WORDS, _WIDTH))
    rpc.rpc_sync("server", _write, (remote.remote_parameters()[0], table.weight.detach()))
    references = remote.remote_parameters() + [rpc.RRef(parameter) for parameter in decoder.parameters()]
    words, found = torch.arange(_WORDS), []
    for factor in (0.5, 2.0):
        table.zero_grad()
        decoder.zero_grad()
        nn.functional.cross_entropy(decoder(table(words)), words).backward()
        everything = [*table.parameters(), *decoder.parameters()]
        limit = factor * nn.utils.get_total_norm([parameter.grad for parameter in everything]).item()
        true_norm = nn.utils.clip_grad_norm_(everything, limit).item()
        parts = {"server": table.parameters(), "trainer": decoder.parameters()}
        true_gradients = {name: _norm([p.grad for p in part]) for name, part in parts.items()}
        with dist_autograd.context() as context:
            loss = nn.functional.cross_entropy(decoder(remote(words)), words)
            dist_autograd.backward(context, [loss])
            run = _call("clip", [context, references, limit])
            if run.error.startswith("KeyError: tensor("):
                run = run._replace(error="KeyError: this rank has no gradient of that parameter; its owner has.")
            if run.error:
                return run
            norm = run.result.item() if isinstance(run.result, torch.Tensor) else run.result
            gradients = {name: rpc.rpc_sync(name, _norm_of_gradients, (context,)) for name in parts}
        found.append((limit, norm, true_norm, gradients, true_gradients))
    return run._replace(result=found)


def _not_as_lstm(result):
    """Return what is wrong with the kinds of values that `forward` has returned, or an empty string."""
    import torch

    if not isinstance(result, tuple | list) or len(result) != 2:
        return f"`forward` returned a {type(result).__name__}, and the target is a pair: output, hidden states of both."
    output, states = result
    if not isinstance(output, torch.Tensor) or not output.requires_grad:
        return "the output has no graph, so nothing can be learnt from it."
    pairs = isinstance(states, tuple | list) and all(isinstance(layer, tuple | list) for layer in states)
    if not pairs or [len(layer) for layer in states] != [2, 2]:
        return "the hidden states are not two pairs of tensors, one for each layer."
    return ""


def _run_two_layers():
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc
    from torch import nn

    import __main__
    from helpers.measure.torch_parts import workers

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer":
        return Run(None, [], "" if hasattr(__main__, "TwoLayers") else missing("TwoLayers"))
    torch.manual_seed(0)
    whole = nn.LSTM(_WIDTH, _WIDTH, num_layers=2)
    owner = max(workers(), key=lambda worker: worker.id).name
    run = _call("TwoLayers", [_WIDTH, owner])
    if run.error:
        return run
    __main__._two_layers = layers = run.result  # `call_answer` calls what it finds there by name
    vars(__main__)["forward of TwoLayers"] = lambda *arguments: layers.forward(*arguments)
    vars(__main__)["parameter_rrefs of TwoLayers"] = lambda: layers.parameter_rrefs()
    listed = _call("parameter_rrefs of TwoLayers", [])
    if listed.error:
        return listed
    references, parameters = listed.result, list(whole.parameters())
    for place, reference in enumerate(references):
        if not hasattr(reference, "owner_name"):
            kind = type(reference).__name__
            wrong = f"`parameter_rrefs` returned a {kind} at place {place}, and the target is an RRef."
            return run._replace(result=(owner, [], wrong, []))
    owners = [reference.owner_name() for reference in references]
    if owners != ["trainer"] * 4 + [owner] * 4:
        return run._replace(result=(owner, owners, "", []))
    for number, (reference, parameter) in enumerate(zip(references, parameters, strict=True)):
        shape = tuple(rpc.rpc_sync(reference.owner(), _shape, (reference,)))
        if shape != tuple(parameter.shape):
            wrong = f"Parameter {number} of 8 has shape {shape}, and the target is {tuple(parameter.shape)}."
            return run._replace(result=(owner, owners, wrong, []))
        rpc.rpc_sync(reference.owner(), _write, (reference, parameter.detach()))
    found, hidden, true_hidden = [], [(None, None)], None
    for window in range(2):
        vectors = torch.randn(_ROWS, _COLUMNS, _WIDTH)
        true_output, true_hidden = whole(vectors, true_hidden)
        whole.zero_grad()
        true_output.pow(2).sum().backward()
        true_hidden = [state.detach() for state in true_hidden]
        with dist_autograd.context() as context:
            answer = _call("forward of TwoLayers", [vectors, *hidden])
            if answer.error:
                return answer
            if wrong := _not_as_lstm(answer.result):
                return run._replace(result=(owner, owners, f"In window {window} {wrong}", []))
            output, states = answer.result
            dist_autograd.backward(context, [output.pow(2).sum()])
            gradients = [rpc.rpc_sync(r.owner(), _gradient, (context, r)) for r in references]
        hidden = [tuple(tuple(state.detach() for state in layer) for layer in states)]
        if not torch.allclose(output, true_output, atol=1e-6):
            found.append(f"In window {window} the output is not that")
        for layer, pair in enumerate(hidden[0]):
            if not all(
                torch.allclose(mine[0], true[layer], atol=1e-6) for mine, true in zip(pair, true_hidden, strict=True)
            ):
                found.append(f"After window {window} the hidden state of layer {layer} is not that")
        for number, (mine, parameter) in enumerate(zip(gradients, parameters, strict=True)):
            if mine is None or not torch.allclose(mine, parameter.grad, atol=1e-5):
                found.append(f"In window {window} the gradient of parameter {number} is not that")
    return run._replace(result=(owner, owners, "", found))


def _write(reference, values):
    import torch

    with torch.no_grad():
        reference.local_value().copy_(values)


def _shape(reference):
    return list(reference.local_value().shape)


def _gradient(context, reference):
    import torch.distributed.autograd as dist_autograd

    return dist_autograd.get_gradients(context).get(reference.local_value())


def _norm_of_gradients(context):
    import torch.distributed.autograd as dist_autograd

    return _norm(dist_autograd.get_gradients(context).values())


def _norm(gradients):
    return sum((gradient**2).sum().item() for gradient in gradients) ** 0.5
