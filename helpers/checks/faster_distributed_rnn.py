"""Checks of the exercises of 21_faster_distributed_rnn: what is right, and with how many bytes."""

from helpers.checks.cut_model import MyStep as MyStep
from helpers.checks.judging import Run, Verdict, Wrong, judge
from helpers.checks.rpc_judging import NO_RPC, call_with_rpc, rpc_runs

_WORDS, _WIDTH, _ROWS, _COLUMNS = 1000, 16, 5, 4
_FEW_BYTES = 64


def loss_there(world) -> Verdict:
    """Check `loss_there(decoder, output, targets)`: the loss is made where the decoder is, and no logits travel."""
    logits = 4 * _ROWS * _COLUMNS * _WORDS

    def check(runs):
        what, loss, true_loss, received, gradients = runs[0].result
        if what:
            raise Wrong(what)
        if abs(loss - true_loss) > 1e-4:
            raise Wrong(f"The loss is {loss:.4f}, and the target is {true_loss:.4f}.")
        if received > _FEW_BYTES:
            more = f", of which the logits are {logits}" if received >= logits else ""
            raise Wrong(f"The trainer received {received} bytes{more}, and the target is {_FEW_BYTES} at most.")
        for name, right in gradients.items():
            if not right:
                raise Wrong(f"The loss is right, and the gradient of {name} is not.")
        return f"The loss and all gradients are right, and the trainer received {received} bytes instead of {logits}."

    return judge(world, "loss_there", check, _run_loss_there)


def looked_up(world) -> Verdict:
    """Check `looked_up(table, words)`: each different row travels once, in half of its bytes, there and back."""
    different = 8  # of the words of the check

    def check(runs):
        what, received, gradient_bytes, far, right = runs[0].result
        if what:
            raise Wrong(what)
        target = 2 * different * _WIDTH
        if received > target:
            raise Wrong(
                f"The trainer received {received} bytes for {_ROWS * _COLUMNS} words, {different} of them different, "
                f"and the target is {target}."
            )
        if far > 0.02:
            raise Wrong(f"The vectors are up to {far:.2f} away from those of the table; rounding explains 0.02.")
        if gradient_bytes is not None and gradient_bytes > 0 and not right:
            raise Wrong("The vectors are right, and the gradient of the table is not.")
        if not right:
            raise Wrong("The vectors are right, and no gradient comes to the table.")
        return f"The vectors and the gradient are right up to rounding, and the trainer received {received} bytes."

    return judge(world, "looked_up", check, _run_looked_up)


def _run_loss_there():
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc
    from torch import nn
    from torch.distributed.nn.api.remote_module import RemoteModule

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer":
        return Run(None, [], "")
    torch.manual_seed(0)
    decoder = nn.Linear(_WIDTH, _WORDS)
    remote = RemoteModule("server", nn.Linear, (_WIDTH, _WORDS))
    references = remote.remote_parameters()
    for reference, parameter in zip(references, decoder.parameters(), strict=True):
        reference.remote().detach().rpc_sync().copy_(parameter.detach())
    output = torch.randn(_ROWS, _COLUMNS, _WIDTH, requires_grad=True)
    targets = torch.randint(_WORDS, (_ROWS, _COLUMNS))
    true_loss = nn.functional.cross_entropy(decoder(output).flatten(0, 1), targets.flatten())
    true_loss.backward()
    true = {"the output": output.grad, "the weight": decoder.weight.grad, "the bias": decoder.bias.grad}
    output.grad = None
    with dist_autograd.context() as context:
        run, made = call_with_rpc("loss_there", [remote, output, targets])
        if run.error:
            return run
        loss = run.result
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            kind = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            wrong = f"`loss_there` returned {kind}, and the target is the loss, a tensor of one number."
            return run._replace(result=(wrong, 0, 0, 0, {}))
        gradients = dict.fromkeys(true)
        if loss.requires_grad:
            dist_autograd.backward(context, [loss.sum()])
            gradients["the output"] = dist_autograd.get_gradients(context).get(output)
            for name, reference in zip(("the weight", "the bias"), references, strict=True):
                gradients[name] = rpc.rpc_sync("server", _gradient, (context, reference))
    found = {name: _close(gradients[name], true[name], 1e-5) for name in true}
    received = sum(call.received for call in made)
    return run._replace(result=("", loss.item(), true_loss.item(), received, found))


def _run_looked_up():
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc
    from torch import nn
    from torch.distributed.nn.api.remote_module import RemoteModule

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "trainer":
        return Run(None, [], "")
    torch.manual_seed(0)
    remote = RemoteModule("server", nn.Embedding, (_WORDS, _WIDTH))
    (reference,) = remote.remote_parameters()
    weight = reference.to_here().detach().clone().requires_grad_()
    words = torch.arange(_ROWS * _COLUMNS).view(_ROWS, _COLUMNS) % 8 * 3
    scales = torch.randn(_ROWS, _COLUMNS, _WIDTH)
    true = weight[words]
    (true * scales).sum().backward()
    with dist_autograd.context() as context:
        run, made = call_with_rpc("looked_up", [remote, words])
        if run.error:
            return run
        vectors = run.result
        received = sum(call.received for call in made)
        if not isinstance(vectors, torch.Tensor) or vectors.shape != true.shape or vectors.dtype != torch.float32:
            kind = (
                f"a tensor of shape {tuple(vectors.shape)} and type {vectors.dtype}"
                if isinstance(vectors, torch.Tensor)
                else type(vectors).__name__
            )
            target = f"shape {tuple(true.shape)} and type torch.float32"
            return run._replace(result=(f"`looked_up` returned {kind}, and the target is {target}.", 0, 0, 0, False))
        far = (vectors - true).abs().max().item()
        gradient = None
        if vectors.requires_grad:
            dist_autograd.backward(context, [(vectors * scales).sum()])
            gradient = rpc.rpc_sync("server", _gradient, (context, reference))
    right = _close(gradient, weight.grad, 0.1)
    return run._replace(result=("", received, None if gradient is None else gradient.nbytes, far, right))


def _gradient(context, reference):
    import torch.distributed.autograd as dist_autograd

    return dist_autograd.get_gradients(context).get(reference.local_value())


def _close(mine, true, tolerance):
    import torch

    return mine is not None and torch.allclose(mine.to(true.dtype), true, rtol=tolerance, atol=tolerance)
