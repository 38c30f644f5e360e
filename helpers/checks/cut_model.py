"""A model on two ranks, run by windows, for the exercises of 25_distributed_rnn and 26_faster_distributed_rnn.

Rank 0 is the trainer. The functions that exercises run in its process keep the learner's model there.
"""

from typing import NamedTuple

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn

from helpers.checks.exam import Foreign, answer
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import answer_with_rpc, autograd_context, one_line_errors
from helpers.measure.calls import Call

ROWS, COLUMNS = 5, 4  # of a window
DIFFERENT = 8  # words in a window
_WINDOWS = 2
_METHOD = "the learner's method"
_TIMEOUT = "RPC ran for more than set timeout"


class Window(NamedTuple):
    """What the learner's model made of one window.

    `result` is what its method returned, and `calls` are its RPCs. `gradients` are the gradients of its parameters on
    their owners, none without a backward pass. `in_vain` tells whether the backward pass waited for a gradient until
    the timeout.
    """

    result: object
    calls: list[Call]
    in_vain: bool
    gradients: list[torch.Tensor | None]


_model = []  # the learner's, in the process of the trainer


def compare_windows(exam, one, method, require_result) -> Window:
    """Run windows through the learner's method and through one process, and return the outcome of the last window.

    The method is `forward`, which returns logits, or `loss`. `require_result(exam, window, number, expected)` judges
    the logits or the loss; for logits it also gets the expected hidden state. The first window with a fault is the last
    one.
    """
    table, lstm, decoder = one
    hidden = expected_hidden = None
    for number in range(_WINDOWS):
        words = torch.randperm(ROWS * COLUMNS).reshape(ROWS, COLUMNS) % DIFFERENT * 3  # no word is its place among them
        targets = torch.randint(DIFFERENT, words.shape)
        output, expected_hidden = lstm(table(words), expected_hidden)
        logits = decoder(output)
        logits.retain_grad()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        one.zero_grad()
        loss.backward()
        expected_hidden = [state.detach() for state in expected_hidden]
        if method == "forward":
            window = exam.on_rank(run_window, method, [words, hidden], logits.grad)
            require_result(exam, window, number, logits, expected_hidden)
        else:
            window = exam.on_rank(run_window, method, [words, targets, hidden], torch.tensor(1.0))
            require_result(exam, window, number, loss)
        hidden = window.result[1] if is_pair(window.result) else None
        exam.require(
            is_pair(hidden) and all(close(*pair, 1e-5) for pair in zip(hidden, expected_hidden, strict=True)),
            f"The hidden state after window {number} differs, expected the hidden state of one process.",
        )
        require_backward(exam, window)
        names = ["the table", *4 * ["the LSTM"], *2 * ["the decoder"]]
        expected = [parameter.grad for parameter in one.parameters()]
        for name, *pair in zip(names, window.gradients, expected, strict=False):
            exam.require(
                close(*pair, 1e-5),
                f"The results are right, but a gradient of {name} differs, expected the gradient of one process.",
            )
        if exam.fault:
            break
        # Another state than the model returned, so that a model that keeps its own state gives another result.
        hidden = tuple(-state.detach() for state in hidden)
        expected_hidden = tuple(-state for state in expected_hidden)
    return window


def require_backward(exam, window):
    """Require that no message of the backward pass is missing."""
    exam.require(
        not window.in_vain,
        "The backward pass waited in vain for a gradient, expected a gradient for each message: a tensor is detached.",
    )


def one_process(size, width):
    """Return table, LSTM and decoder in one process."""
    torch.manual_seed(0)
    return nn.ModuleList([nn.Embedding(size, width), nn.LSTM(width, width), nn.Linear(width, size)])


def is_pair(value):
    """Return whether a value is a tuple or list of two."""
    return isinstance(value, tuple | list) and len(value) == 2


def close(found, expected, tolerance):
    """Return whether a value is a tensor of the expected shape that differs from the expected one by rounding only."""
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        return False
    return torch.allclose(found.cpu().to(expected.dtype), expected, atol=tolerance)


def kind(value):
    """Return of which kind a value is, in words."""
    if value is None or isinstance(value, Foreign):
        return repr(value)
    return f"a tensor of shape {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"


# These functions run in the process of the learner's code.


def make(name, arguments) -> list[tuple[str, list[int]] | str]:
    """Make the learner's model, and return the owner and the shape of each parameter that it lists.

    In place of these stands the type of an object that is no RRef.
    """
    with one_line_errors():
        _model[:] = [answer(name, arguments)]
        listed = []
        for reference in _model[0].parameter_rrefs():
            if hasattr(reference, "owner_name"):
                listed.append((reference.owner_name(), rpc.rpc_sync(reference.owner(), shape, (reference,))))
            else:
                listed.append(type(reference).__name__)
        return listed


def learners_model():
    """Return the learner's model."""
    return _model[0]


def start_from(parameters):
    """Set the values of the parameters of the learner's model."""
    with one_line_errors():
        for reference, values in zip(_model[0].parameter_rrefs(), parameters, strict=True):
            rpc.rpc_sync(reference.owner(), write, (reference, values))


def run_window(method, arguments, weights) -> Window:
    """Run a window through the learner's model, and a backward pass if its result has a graph.

    The method returns a pair. The backward pass begins with `weights`, the gradient for the first of the two.
    """
    vars(learners_module())[_METHOD] = lambda *arguments: getattr(_model[0], method)(*arguments)  # found there by name
    with autograd_context() as context:
        result, made = answer_with_rpc(_METHOD, arguments)
        output = result[0] if is_pair(result) else None
        if not isinstance(output, torch.Tensor) or not output.requires_grad or output.numel() != weights.numel():
            return Window(result, made, False, [])
        with one_line_errors():
            try:
                dist_autograd.backward(context, [output.flatten() @ weights.flatten().to(output)])
            except RuntimeError as error:
                if _TIMEOUT in str(error):
                    return Window(result, made, True, [])
                raise
            references = _model[0].parameter_rrefs()
            gradients = [rpc.rpc_sync(reference.owner(), gradient, (context, reference)) for reference in references]
    return Window(result, made, False, gradients)


# What runs on the owner of a parameter.


def write(reference, values):
    """Set the values of a parameter. Runs on its owner."""
    reference.local_value().detach().copy_(values)


def shape(reference):
    """Return the shape of a parameter. Runs on its owner."""
    return list(getattr(reference.local_value(), "shape", ()))


def gradient(context, reference):
    """Return the gradient of a parameter in a context, None if there is none. Runs on its owner."""
    return dist_autograd.get_gradients(context).get(reference.local_value())
