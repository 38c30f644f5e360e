"""Exercises of 22_distributed_rnn: a trainer on rank 0, and a server."""

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.nn.api.remote_module import RemoteModule

from helpers.checks import cut_model
from helpers.checks.cut_model import close, is_pair, kind
from helpers.checks.exam import AnswerError, answer, exercise, near, number
from helpers.checks.rpc_judging import one_line_errors, require_rpc
from helpers.torch_parts import workers

_WORDS, _WIDTH, _COLUMNS, _ROWS = 7, 4, 3, 5
_CALLS = 2


@exercise
def MyModel(exam):
    """Check `MyModel`: logits, hidden states and gradients of one process, by two calls of the server."""
    exam.on_rank(require_rpc, "MyModel")
    if exam.rank == 0:
        _, shape_of_table = exam.on_rank(cut_model.make, "MyModel", [])[0]
        one = cut_model.one_process(*shape_of_table)
        exam.on_rank(cut_model.start_from, [parameter.detach() for parameter in one.parameters()])
        cut_model.compare_windows(exam, one, "forward", _require_logits)
    return "Logits, hidden states and gradients are those of one process, by two calls in each forward."


@exercise
def clip(exam):
    """Check `clip(context, references, limit)`: clip the gradients of all ranks by their global norm.

    The limit is half of that norm, and then twice the norm.
    """
    exam.on_rank(require_rpc, "clip")
    if exam.rank == 0:
        for factor in (0.5, 2.0):
            torch.manual_seed(0)
            table, decoder = nn.Embedding(_WORDS, _WIDTH), nn.Linear(_WIDTH, _WORDS)
            parameters = [*table.parameters(), *decoder.parameters()]
            words = torch.arange(_WORDS)
            nn.functional.cross_entropy(decoder(table(words)), words).backward()
            limit = factor * nn.utils.get_total_norm([parameter.grad for parameter in parameters]).item()
            expected_norm = nn.utils.clip_grad_norm_(parameters, limit).item()
            values = [parameter.detach() for parameter in parameters]
            norm, norms = exam.on_rank(_clip, values, words, limit)
            if exam.require(
                number(norm) is not None, f"`clip` returned {kind(norm)}, expected the norm of all gradients, a number."
            ):
                exam.require(
                    near(norm, expected_norm, 1e-4 * expected_norm),
                    f"`clip` returned {number(norm):.4f}, expected the norm of all gradients: {expected_norm:.4f}.",
                )
            for name, part in (("server", table), ("trainer", decoder)):
                expected = _norm(parameter.grad for parameter in part.parameters())
                exam.require(
                    near(norms[name], expected, 1e-4 * expected),
                    f"With a norm of {expected_norm:.4f} and a limit of {limit:.4f}, the gradients on {name} have norm "
                    f"{norms[name]:.4f} afterwards, expected {expected:.4f}.",
                )
    return "The gradients of both ranks are those of one process, above the limit and below it."


@exercise
def TwoLayers(exam):
    """Check `TwoLayers(width, owner)`: an LSTM of two layers, with the second layer on another rank."""
    owner = exam.on_rank(_last_worker)
    if exam.rank == 0:
        torch.manual_seed(0)
        one = nn.LSTM(_WIDTH, _WIDTH, num_layers=2)
        listed = exam.on_rank(cut_model.make, "TwoLayers", [_WIDTH, owner])
        _require_parameters(exam, listed, owner, one)
        if not exam.fault:
            exam.on_rank(cut_model.start_from, [parameter.detach() for parameter in one.parameters()])
            _compare_layers(exam, one)
    return f"Both layers compute and learn as nn.LSTM does, the second one on {owner}."


def _require_logits(exam, window, number, expected):
    """Require the calls of the server and the logits of a window."""
    asked = [call for call in window.calls if call.kind != "fetch" and not call.function.startswith("_")]
    exam.require(len(asked) == _CALLS, f"In one forward the server was asked {len(asked)} times, expected {_CALLS}.")
    if not exam.require(
        is_pair(window.result),
        f"`forward` returned {kind(window.result)}, expected a pair: logits and hidden state.",
    ):
        return
    logits = window.result[0]
    exam.require(close(logits, expected, 1e-5), f"The logits of window {number} differ, expected those of one process.")
    exam.require(
        getattr(logits, "requires_grad", False),
        "The logits have no graph, expected one: nothing can be learnt from them.",
    )


def _require_parameters(exam, listed, owner, one):
    """Require RRefs of the parameters of both layers: `listed` has the owner and the shape of each."""
    for place, found in enumerate(listed):
        exam.require(
            isinstance(found, tuple), f"`parameter_rrefs` returned a {found} at place {place}, expected an RRef."
        )
    exam.require(len(listed) == 8, f"`parameter_rrefs` returned {len(listed)} parameters, expected 8.")
    if exam.fault:
        return
    for place, (found, _) in enumerate(listed):
        expected = "trainer" if place < 4 else owner
        exam.require(found == expected, f"Parameter {place} of 8 is owned by {found}, expected {expected}.")
    for place, ((_, found), parameter) in enumerate(zip(listed, one.parameters(), strict=True)):
        expected = tuple(parameter.shape)
        exam.require(tuple(found) == expected, f"Parameter {place} of 8 has shape {tuple(found)}, expected {expected}.")


def _compare_layers(exam, one):
    """Run windows through the learner's two layers and through one process. Stop at a window with a fault."""
    hidden, expected_hidden = (None, None), None
    for window in range(2):
        vectors = torch.randn(_ROWS, _COLUMNS, _WIDTH)
        expected_output, expected_hidden = one(vectors, expected_hidden)
        one.zero_grad()
        expected_output.pow(2).sum().backward()
        expected_hidden = [state.detach() for state in expected_hidden]
        found = exam.on_rank(cut_model.run_window, "forward", [vectors, hidden], 2 * expected_output.detach())
        if not _require_kinds(exam, found.result, window):
            break
        output, states = found.result
        exam.require(
            close(output, expected_output, 1e-6),
            f"In window {window} the output is not that of nn.LSTM with two layers.",
        )
        for layer, hidden in enumerate(states):
            expected = [state[layer : layer + 1] for state in expected_hidden]
            exam.require(
                all(close(*pair, 1e-6) for pair in zip(hidden, expected, strict=True)),
                f"After window {window} the hidden state of layer {layer} is not that of nn.LSTM with two layers.",
            )
        cut_model.require_backward(exam, found)
        for place, (gradient, parameter) in enumerate(zip(found.gradients, one.parameters(), strict=False)):
            exam.require(
                close(gradient, parameter.grad, 1e-5),
                f"In window {window} the gradient of parameter {place} is not that of nn.LSTM with two layers.",
            )
        if exam.fault:
            break
        hidden = tuple(tuple(state.detach() for state in layer) for layer in states)


def _require_kinds(exam, result, window):
    """Require an output with a graph, and a pair of hidden states for each layer."""
    if not exam.require(
        is_pair(result),
        f"In window {window} `forward` returned {kind(result)}, expected a pair: output, hidden states of both.",
    ):
        return False
    output, states = result
    has_graph = exam.require(
        getattr(output, "requires_grad", False),
        f"In window {window} the output has no graph, so nothing can be learnt from it.",
    )
    pairs = exam.require(
        is_pair(states) and all(map(is_pair, states)),
        f"In window {window} the hidden states are not two pairs of tensors, one for each layer.",
    )
    return has_graph and pairs


# These functions run in the learner's process.


def _clip(parameters, words, limit):
    """Return the result of `clip` on gradients of the server and the trainer, and their norms on each afterwards."""
    table, decoder = RemoteModule("server", nn.Embedding, (_WORDS, _WIDTH)), nn.Linear(_WIDTH, _WORDS)
    references = table.remote_parameters() + [rpc.RRef(parameter) for parameter in decoder.parameters()]
    for reference, values in zip(references, parameters, strict=True):
        rpc.rpc_sync(reference.owner(), cut_model.write, (reference, values))
    with dist_autograd.context() as context:
        dist_autograd.backward(context, [nn.functional.cross_entropy(decoder(table(words)), words)])
        try:
            with one_line_errors():
                norm = answer("clip", [context, references, limit])
        except AnswerError as error:
            if str(error).startswith("KeyError: tensor("):
                raise AnswerError("KeyError: this rank has no gradient of that parameter; its owner has.") from error
            raise
        return norm, {name: rpc.rpc_sync(name, _norm_of_gradients, (context,)) for name in ("server", "trainer")}


def _norm_of_gradients(context):
    return _norm(dist_autograd.get_gradients(context).values())


def _norm(gradients):
    return sum((gradient**2).sum().item() for gradient in gradients) ** 0.5


def _last_worker():
    """Return the name of the last worker."""
    require_rpc("TwoLayers")
    return max(workers(), key=lambda worker: worker.id).name
