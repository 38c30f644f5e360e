"""Exercises of 26_faster_distributed_rnn, with a trainer on rank 0 and a server: results, and bytes sent."""

import threading
import time

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.nn.api.remote_module import RemoteModule

from helpers.checks import cut_model
from helpers.checks.cut_model import COLUMNS, DIFFERENT, ROWS, close, is_pair, kind
from helpers.checks.exam import counted, exercise, near
from helpers.checks.rpc_judging import answer_with_rpc, one_line_errors, require_rpc

_WORDS, _WIDTH = 1000, 16  # in the vocabulary, and values in a vector
_FEW_BYTES = 64


@exercise
def MyFewBytes(exam):
    """Check `MyFewBytes`: losses and gradients of one process, and no more bytes in a forward pass than they need."""
    exam.on_rank(require_rpc, "MyFewBytes")
    if exam.rank == 0:
        window = _compare_with_one_process(exam, "MyFewBytes")
        _require_few_bytes(exam, window)
    return "Losses and gradients are those of one process, and a forward pass moves only the bytes that it needs."


@exercise
def MyHalves(exam):
    """Check `MyHalves`: results of one process, and the decoder works on a half while the trainer runs the other."""
    exam.on_rank(require_rpc, "MyHalves")
    if exam.rank == 0:
        window = _compare_with_one_process(exam, "MyHalves", _watch)
        met, lstm_runs = exam.on_rank(_watched)
        decoder_calls = [call for call in window.calls if call.sent >= 4 * _WIDTH * ROWS]
        for part, count in (("decoder", len(decoder_calls)), ("LSTM", len(lstm_runs))):
            exam.require(
                count == 2,
                f"The results are right, and the {part} ran {counted(count, 'time')} for a window, "
                "expected 2 times: once for each half.",
            )
        exam.require(
            met and all(met),
            "The second call of the decoder began after the first loss had come back, expected both calls to be "
            "under way at the same time: use `forward_async`, and wait after the second call.",
        )
        if not exam.fault:
            exam.require(
                decoder_calls[0].begin < lstm_runs[1],
                "The LSTM ran both halves before the first call of the decoder, expected this call before the LSTM "
                "runs the second half.",
            )
        _require_few_bytes(exam, window)
    return "The results are those of one process, and the decoder works on one half while the LSTM runs the other."


@exercise
def loss_on_server(exam):
    """Check `loss_on_server(decoder, output, targets)`: the server computes the loss, and no logits travel."""
    exam.on_rank(require_rpc, "loss_on_server")
    logits = 4 * ROWS * COLUMNS * _WORDS
    received = 0
    if exam.rank == 0:
        torch.manual_seed(0)
        decoder = nn.Linear(_WIDTH, _WORDS)
        output = torch.randn(ROWS, COLUMNS, _WIDTH)
        targets = torch.randint(_WORDS, (ROWS, COLUMNS))
        values = [parameter.detach() for parameter in decoder.parameters()]
        loss, made, gradients, is_plain = exam.on_rank(_loss_on_server, values, output, targets)
        output.requires_grad_()
        expected = nn.functional.cross_entropy(decoder(output).flatten(0, 1), targets.flatten())
        expected.backward()
        if exam.require(
            isinstance(loss, torch.Tensor) and loss.numel() == 1,
            f"`loss_on_server` returned {kind(loss)}, expected the loss, a tensor with one element.",
        ):
            exam.require(near(loss, expected.item()), f"The loss is {loss.item():.4f}, expected {expected.item():.4f}.")
        received = sum(call.received for call in made)
        of_which = f", of which the logits are {logits}" if received >= logits else ""
        exam.require(
            received <= _FEW_BYTES,
            f"The trainer received {received} bytes{of_which}, expected {_FEW_BYTES} at most.",
        )
        for name, gradient, tensor in zip(
            ("the output", "the weight", "the bias"), gradients, (output, *decoder.parameters()), strict=True
        ):
            exam.require(close(gradient, tensor.grad, 1e-5), f"The loss is right, but the gradient of {name} is wrong.")
        exam.require(
            is_plain,
            "Loss and gradients are right, but the decoder's `forward` is no longer the `forward` of nn.Linear, "
            "expected the decoder unchanged: have the owner call a function of yours.",
        )
    return f"The loss and all gradients are right, and the trainer received {received} bytes instead of {logits}."


@exercise
def looked_up(exam):
    """Check `looked_up(table, words)`: each distinct row and its gradient travel once, in half the bytes."""
    exam.on_rank(require_rpc, "looked_up")
    received = 0
    if exam.rank == 0:
        torch.manual_seed(0)
        weight = torch.randn(_WORDS, _WIDTH, requires_grad=True)
        words = torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS) % DIFFERENT * 3
        scales = torch.randn(ROWS, COLUMNS, _WIDTH)
        vectors, made, gradient, weight_after = exam.on_rank(_looked_up, weight.detach(), words, scales)
        expected = weight[words]
        (expected * scales).sum().backward()
        exam.require(
            getattr(vectors, "shape", ()) == expected.shape and vectors.dtype == torch.float32,
            f"`looked_up` returned {kind(vectors)}{_of_type(vectors)}, expected a tensor of shape "
            f"{tuple(expected.shape)} and type torch.float32.",
        )
        received = sum(call.received for call in made)
        expected_bytes = 2 * DIFFERENT * _WIDTH
        exam.require(
            received <= expected_bytes,
            f"The trainer received {received} bytes for {ROWS * COLUMNS} words, {DIFFERENT} of them different, "
            f"expected {expected_bytes}.",
        )
        if not exam.fault:
            far = (vectors - expected).abs().max().item()
            exam.require(
                far <= 0.02,
                f"The vectors differ from the table's by up to {far:.2f}, expected at most 0.02, the effect of "
                "rounding.",
            )
        exam.require(
            weight_after.dtype == weight.dtype and torch.equal(weight_after, weight),
            "The vectors are right, but `looked_up` changed the weight of the table, expected it unchanged: round the "
            "rows, not the module.",
        )
        exam.require(
            gradient is not None and gradient.numel() > 0,
            "The vectors are right, but no gradient reaches the table.",
        )
        right = gradient is not None and torch.allclose(gradient.to(weight.dtype), weight.grad, rtol=0.1, atol=0.1)
        exam.require(right, "The vectors are right, but the gradient of the table is wrong.")
    return f"The vectors and the gradient are right up to rounding, and the trainer received {received} bytes."


def _compare_with_one_process(exam, name, prepare=None):
    """Run windows through the learner's model `name` and through one process; return the outcome of the last window."""
    exam.on_rank(cut_model.make, name, [_WORDS, _WIDTH])
    one = cut_model.one_process(_WORDS, _WIDTH)
    exam.on_rank(cut_model.start_from, [parameter.detach() for parameter in one.parameters()])
    if prepare:
        exam.on_rank(prepare)
    return cut_model.compare_windows(exam, one, "loss", _require_loss)


def _require_few_bytes(exam, window):
    """Require that a forward pass moves no logits, and each distinct row once."""
    logits = 4 * ROWS * COLUMNS * _WORDS
    received = sum(call.received for call in window.calls)
    exam.require(
        received < logits,
        f"The results are right, but the trainer received {received} bytes, of which the logits are {logits}, "
        "expected no logits: let the decoder return the loss.",
    )
    needed = (8 + 4 * _WIDTH) * (DIFFERENT + ROWS * COLUMNS) + 4
    moved = sum(call.sent + call.received for call in window.calls)
    exam.require(
        moved <= 1.01 * needed,
        f"The loss comes from the server, but a forward pass moves {moved} bytes, expected {needed}: for "
        f"{ROWS * COLUMNS} words, {DIFFERENT} of them different, the table has to send {DIFFERENT} rows.",
    )


def _require_loss(exam, window, number, expected):
    """Require the loss of a window, with a graph."""
    if not exam.require(
        is_pair(window.result), f"`loss` returned {kind(window.result)}, expected a pair: loss and hidden state."
    ):
        return
    loss = window.result[0]
    if exam.require(
        isinstance(loss, torch.Tensor) and loss.numel() == 1,
        f"`loss` returned {kind(loss)} and the hidden state, expected the loss first: a tensor with one value.",
    ):
        exam.require(
            near(loss, expected.item(), 1e-4 * expected.item()),
            f"The loss of window {number} is {loss.item():.4f}, expected {expected.item():.4f}.",
        )
        exam.require(
            loss.requires_grad, "The losses have no graph, expected a graph: without a graph there are no gradients."
        )


def _of_type(value):
    return f" and type {value.dtype}" if hasattr(value, "dtype") else ""


# These functions run in the process of the learner's code.

_lstm_runs = []  # when the learner's LSTM began to run, by `time.monotonic`
_SECONDS = 3  # for which the decoder holds a call at most, until a second call arrives: a busy machine may be slow


def _watch():
    """Have the learner's decoder hold a call until a second call arrives, and note when the LSTM runs."""
    _lstm_runs.clear()
    model = cut_model.learners_model()
    with one_line_errors():
        reference = model.decoder.get_module_rref()
        rpc.rpc_sync(reference.owner(), _hold_calls, (reference,))
        model.lstm.register_forward_pre_hook(lambda module, inputs: _lstm_runs.append(time.monotonic()))


def _watched():
    """Return for each call of the decoder whether a second call arrived, and when the LSTM ran on the last window."""
    runs, _lstm_runs[:] = list(_lstm_runs), []
    return rpc.rpc_sync("server", _take_pairs), runs[len(runs) // 2 :]


def _loss_on_server(parameters, output, targets):
    """Return the result of `loss_on_server` and its RPCs, the gradients of the output and of the parameters, and
    whether the decoder is unchanged.
    """
    decoder = _remote(nn.Linear, (_WIDTH, _WORDS), parameters)
    output = output.clone().requires_grad_()
    gradients = [None] * 3
    with dist_autograd.context() as context:
        loss, made = answer_with_rpc("loss_on_server", [decoder, output, targets])
        if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
            with one_line_errors():
                dist_autograd.backward(context, [loss.sum()])
            of_decoder = [
                rpc.rpc_sync("server", cut_model.gradient, (context, reference))
                for reference in decoder.remote_parameters()
            ]
            gradients = [dist_autograd.get_gradients(context).get(output), *of_decoder]
    return loss, made, gradients, rpc.rpc_sync("server", _is_plain, (decoder.get_module_rref(),))


def _looked_up(weight, words, scales):
    """Return the result of `looked_up`, its RPCs, the gradient of the table or None, and its weight afterwards."""
    table = _remote(nn.Embedding, (_WORDS, _WIDTH), [weight])
    (reference,) = table.remote_parameters()
    gradient = None
    with dist_autograd.context() as context:
        vectors, made = answer_with_rpc("looked_up", [table, words])
        if getattr(vectors, "shape", ()) == scales.shape and vectors.requires_grad:
            with one_line_errors():
                dist_autograd.backward(context, [(vectors * scales).sum()])
            gradient = rpc.rpc_sync("server", cut_model.gradient, (context, reference))
    return vectors, made, gradient, rpc.rpc_sync("server", _value, (reference,))


def _remote(module_class, arguments, parameters):
    """Return a module on the server, with these parameters."""
    remote = RemoteModule("server", module_class, arguments)
    for reference, values in zip(remote.remote_parameters(), parameters, strict=True):
        rpc.rpc_sync("server", cut_model.write, (reference, values))
    return remote


# These functions run on the server.


def _is_plain(reference):
    """Return whether a module is an nn.Linear, and uses its `forward`."""
    module = reference.local_value()
    return type(module) is nn.Linear and "forward" not in vars(module)


def _value(reference):
    """Return the values of a parameter."""
    return reference.local_value().detach()


_pairs = []  # for each call of the decoder, whether a second call arrived at the same time


def _hold_calls(reference):
    """Have the module hold each call until a second call arrives, for at most `_SECONDS`."""
    both = threading.Barrier(2)

    module = reference.local_value()
    forward = module.forward  # a RemoteModule calls this method, and no hooks of the module

    def held(*inputs):
        try:
            both.wait(_SECONDS)
            _pairs.append(True)
        except threading.BrokenBarrierError:
            _pairs.append(False)
        return forward(*inputs)

    module.forward = held


def _take_pairs():
    """Return for each call whether a second call arrived, and forget the calls."""
    taken, _pairs[:] = list(_pairs), []
    return taken
