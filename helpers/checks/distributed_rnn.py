"""Exercises of 25_distributed_rnn: a trainer on rank 0, and a server."""

import time
from contextlib import redirect_stderr
from types import SimpleNamespace
from typing import NamedTuple

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.nn.api.remote_module import RemoteModule
from torch.distributed.optim import DistributedOptimizer

from helpers.checks import cut_model
from helpers.checks.cut_model import close, is_pair, kind
from helpers.checks.exam import AnswerError, answer, exercise, near, number, show, times_in_words
from helpers.checks.patching import replaced
from helpers.checks.rpc_judging import autograd_context, one_line_errors, require_rpc
from helpers.torch_parts import workers

_WORDS, _WIDTH, _COLUMNS, _ROWS = 7, 4, 3, 5
_CALLS = 2
_ORDINALS = ("first", "second")  # of the windows
_STEPS, _RATE, _MOMENTUM = 3, 0.5, 0.9
_NAMES = ["the table", *4 * ["the LSTM"], *2 * ["the decoder"]]  # of the owner's part, for each parameter
_CLIPPED = ["the table", *2 * ["the decoder"]]  # of the check of `clip`, for each parameter
_IN_VAIN = "RPC ran for more than set timeout"


@exercise
def MyModel(exam):
    """Check `MyModel`: logits, hidden states and gradients of one process, with two calls of the server."""
    exam.on_rank(require_rpc, "MyModel")
    if exam.rank == 0:
        _, shape_of_table = exam.on_rank(cut_model.make, "MyModel", [])[0]
        one = cut_model.one_process(*shape_of_table)
        exam.on_rank(cut_model.start_from, [parameter.detach() for parameter in one.parameters()])
        cut_model.compare_windows(exam, one, "forward", _require_logits)
    return "Logits, hidden states and gradients equal those of one process, with two calls in each forward pass."


@exercise
def my_step(exam):
    """Check `my_step(model, optimizer, words, targets, hidden)`: it trains on two ranks as one process does."""
    exam.on_rank(require_rpc, "my_step")
    if exam.rank == 0:
        one = cut_model.one_process(_WORDS, _WIDTH)
        optimizer = torch.optim.SGD(one.parameters(), lr=_RATE, momentum=_MOMENTUM)
        exam.on_rank(_new_model, [parameter.detach() for parameter in one.parameters()])
        hidden = None
        for number in range(_STEPS):
            words = torch.randint(_WORDS, (_ROWS, _COLUMNS))
            targets = torch.randint(_WORDS, (_ROWS, _COLUMNS))
            step = exam.on_rank(_step, words, targets, hidden)
            loss, hidden = _step_of_one_process(one, optimizer, words, targets, hidden)
            _require_first_half(exam, step, number, loss, one)
            _require_second_half(exam, step, number, hidden, one)
            if exam.fault:
                break
    return f"Losses, gradients, weights and hidden states equal those of one process in all {_STEPS} steps."


@exercise
def set_training(exam):
    """Check `set_training(model, training)`: all three parts switch dropout on or off, and no part travels."""
    exam.on_rank(require_rpc, "set_training")
    if exam.rank == 0:
        for training in (False, True):
            modes, travelled = exam.on_rank(_set_training, training)
            for name, mode in modes.items():
                exam.require(
                    mode == training,
                    f"After `set_training(model, {training})`, {name} has `training == {mode}`, expected {training}.",
                )
            exam.require(
                not travelled,
                f"In `set_training(model, {training})` {' and '.join(travelled)} travelled with all their parameters, "
                "expected no module in a message: `train` returns the module.",
            )
    return "All three parts switch between training and evaluation, and no module travels."


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
            norm, norms, gradients = exam.on_rank(_clip, values, words, limit)
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
            for name, gradient, parameter in zip(_CLIPPED, gradients, parameters, strict=True):
                exam.require(
                    close(gradient, parameter.grad, 1e-5),
                    f"The norms are right, but a gradient of {name} differs from the gradient of one process.",
                )
    return "The gradients of both ranks equal those of one process, above the limit and below it."


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
            listed = exam.on_rank(cut_model.make, "TwoLayers", [_WIDTH, "trainer"])
            owners = {found[0] for found in listed if isinstance(found, tuple)}
            exam.require(
                owners == {"trainer"},
                f"With the owner `trainer`, the parameters are owned by {' and '.join(sorted(owners))}, expected all "
                "on the trainer: use the argument `owner`.",
            )
            exam.on_rank(cut_model.make, "TwoLayers", [_WIDTH, owner])
        if not exam.fault:
            exam.on_rank(cut_model.start_from, [parameter.detach() for parameter in one.parameters()])
            _compare_layers(exam, one)
    return f"Both layers compute and learn as nn.LSTM does, the second one on {owner}."


def _require_logits(exam, window, number, expected, expected_hidden):
    """Require the first half of a forward pass, up to the LSTM, and then the second half, the decoder."""
    asked = [call for call in window.calls if call.kind != "fetch" and not call.function.startswith("_")]
    fetched = any(call.kind == "fetch" for call in window.calls)
    exam.require(
        asked or not fetched,
        "`forward` fetched a module with `to_here`, expected calls of the module on the server: "
        "`rpc_sync().forward(...)`.",
    )
    exam.require(
        asked, f"`forward` called the server 0 times, expected {_CALLS} calls: first of the table, then of the decoder."
    )
    if not exam.require(
        is_pair(window.result),
        f"`forward` returned {kind(window.result)}, expected a pair: logits and hidden state.",
    ):
        return
    logits, hidden = window.result
    exam.require(
        is_pair(hidden) and all(close(*pair, 1e-5) for pair in zip(hidden, expected_hidden, strict=True)),
        f"The hidden state after the {_ORDINALS[number]} window differs from the hidden state of one process.",
    )
    exam.require(
        len(asked) > 1,
        "In the first window, table and LSTM are right. Now the second half: `forward` called the server once, "
        f"expected {_CALLS} calls.",
    )
    exam.require(len(asked) == _CALLS, f"`forward` called the server {len(asked)} times, expected {_CALLS} calls.")
    exam.require(
        isinstance(logits, torch.Tensor), f"`forward` returned {kind(logits)} as the logits, expected a tensor."
    )
    exam.require(
        close(logits, expected, 1e-5),
        f"The logits of the {_ORDINALS[number]} window differ from the logits of one process.",
    )
    exam.require(
        getattr(logits, "requires_grad", False),
        "The logits have no graph, expected a graph: without a graph there are no gradients.",
    )


def _step_of_one_process(one, optimizer, words, targets, hidden):
    """Make a step in this process; return the loss and the hidden state. The gradients stay in `.grad`."""
    table, lstm, decoder = one
    output, hidden = lstm(table(words), hidden)
    loss = nn.functional.cross_entropy(decoder(output).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), tuple(state.detach() for state in hidden)


def _require_first_half(exam, step, number, expected_loss, one):
    """Require a forward and a backward pass in a context: the loss and the gradients of one process."""
    times = len(step.in_context)
    exam.require(times == 1, f"In a step `model.forward` was called {times_in_words(times)}, expected once.")
    exam.require(
        all(step.in_context),
        "`model.forward` ran outside a context, expected a call inside `with dist_autograd.context() as context:`.",
    )
    exam.require(
        not step.left_open,
        "`my_step` left its context open, expected it to open the context by `with`, which also closes it.",
    )
    if not exam.require(
        is_pair(step.result), f"`my_step` returned {kind(step.result)}, expected a pair: the loss and the hidden state."
    ):
        return
    loss = step.result[0]
    exam.require(
        isinstance(loss, int | float), f"`my_step` returned {kind(loss)} as the loss, expected a number: `loss.item()`."
    )
    exam.require(
        near(loss, expected_loss, 1e-4), f"In step {number} the loss is {show(loss)}, expected {expected_loss:.4f}."
    )
    exam.require(
        any(gradient is not None for gradient in step.gradients),
        "The loss is right. The context ended without gradients, expected a gradient of each parameter: "
        "`dist_autograd.backward` is missing.",
    )
    for name, gradient, parameter in zip(_NAMES, step.gradients, one.parameters(), strict=False):
        exam.require(
            close(gradient, parameter.grad, 1e-5),
            f"In step {number} the loss is right, but a gradient of {name} differs from the gradient of one process.",
        )


def _require_second_half(exam, step, number, expected_hidden, one):
    """Require one step of the optimizer, the weights of one process, and a detached hidden state."""
    exam.require(
        step.updates == 1,
        f"The first half is right: the gradients are the gradients of one process. `optimizer.step` was called "
        f"{times_in_words(step.updates)} in a step, expected once.",
    )
    for name, weights, parameter in zip(_NAMES, step.weights, one.parameters(), strict=True):
        exam.require(
            close(weights, parameter.detach(), 1e-5),
            f"After step {number} the weights of {name} differ from the weights of one process.",
        )
    hidden = step.result[1] if is_pair(step.result) else None
    exam.require(
        is_pair(hidden) and all(close(*pair, 1e-5) for pair in zip(hidden, expected_hidden, strict=True)),
        f"The weights are right. The hidden state after step {number} differs from the hidden state of one process.",
    )
    exam.require(
        not any(getattr(state, "requires_grad", False) for state in hidden or ()),
        "The weights are right. The hidden state still has its graph, expected only its values: `detach` it.",
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
    for window in _ORDINALS:
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
            f"In the {window} window the output differs from nn.LSTM with two layers.",
        )
        for layer, hidden in enumerate(states):
            expected = [state[layer : layer + 1] for state in expected_hidden]
            exam.require(
                all(close(*pair, 1e-6) for pair in zip(hidden, expected, strict=True)),
                f"After the {window} window the hidden state of layer {layer} differs from nn.LSTM with two layers.",
            )
        cut_model.require_backward(exam, found)
        for place, (gradient, parameter) in enumerate(zip(found.gradients, one.parameters(), strict=False)):
            exam.require(
                close(gradient, parameter.grad, 1e-5),
                f"In the {window} window the gradient of parameter {place} differs from nn.LSTM with two layers.",
            )
        if exam.fault:
            break
        hidden = tuple(tuple(state.detach() for state in layer) for layer in states)


def _require_kinds(exam, result, window):
    """Require an output with a graph, and a pair of hidden states for each layer."""
    if not exam.require(
        is_pair(result),
        f"In the {window} window `forward` returned {kind(result)}, expected a pair: the output, and the hidden "
        "states of both layers.",
    ):
        return False
    output, states = result
    has_graph = exam.require(
        getattr(output, "requires_grad", False),
        f"In the {window} window the output has no graph, expected a graph: without a graph there are no gradients.",
    )
    pairs = exam.require(
        is_pair(states) and all(map(is_pair, states)),
        f"In the {window} window `forward` returned other hidden states, expected two pairs of tensors, one for each "
        "layer.",
    )
    return has_graph and pairs


# These functions run in the learner's process.


class _Step(NamedTuple):
    """The outcome of a step of the learner.

    `in_context` says of each forward pass whether it ran in a context, and `left_open` whether the learner left a
    context open; `gradients` are the gradients of the context
    at its end, `updates` counts the steps of the optimizer, and `weights` are the weights afterwards.
    """

    result: object
    in_context: list[bool]
    left_open: bool
    gradients: list[torch.Tensor | None]
    updates: int
    weights: list[torch.Tensor]


class _Model:
    """A model over two ranks that notes, for each forward pass, whether it ran in a context."""

    def __init__(self):
        self.table = RemoteModule("server", nn.Embedding, (_WORDS, _WIDTH))
        self.lstm = nn.LSTM(_WIDTH, _WIDTH)
        self.decoder = RemoteModule("server", nn.Linear, (_WIDTH, _WORDS))
        self.in_context = []

    def parameter_rrefs(self):
        local = [rpc.RRef(parameter) for parameter in self.lstm.parameters()]
        return self.table.remote_parameters() + local + self.decoder.remote_parameters()

    def forward(self, words, hidden=None):
        output, hidden = self.lstm(self.table(words), hidden)
        logits = self.decoder(output)
        self.in_context.append(logits.grad_fn is not None)  # outside, the answer is a leaf
        return logits, hidden


class _Optimizer(DistributedOptimizer):
    """A distributed optimizer that notes the gradients of the context at each step."""

    def step(self, context_id):
        """Note the gradients, and make the step."""
        _note_gradients(context_id)
        super().step(context_id)
        _learner.updates += 1


class _Context(dist_autograd.context):
    """A context that notes its gradients when it ends."""

    def __enter__(self):
        self.number = super().__enter__()
        _learner.open_contexts.append(self)
        return self.number

    def __exit__(self, kind, *error):
        _learner.open_contexts.remove(self)
        if kind is None:
            _note_gradients(self.number)
        super().__exit__(kind, *error)


_learner = SimpleNamespace()  # the model and the optimizer of the check, and what the learner's step did with them


def _note_gradients(context):
    """Note the gradients of a context, unless some have been noted in this step."""
    if all(gradient is None for gradient in _learner.gradients):
        _learner.gradients = [
            rpc.rpc_sync(reference.owner(), cut_model.gradient, (context, reference))
            for reference in _learner.references
        ]


def _new_model(values):
    """Make the model that the learner's step trains, and give it these parameters."""
    with one_line_errors(), redirect_stderr(None):  # the optimizer warns of TorchScript
        _learner.model = _Model()
        _learner.references = _learner.model.parameter_rrefs()
        for reference, value in zip(_learner.references, values, strict=True):
            rpc.rpc_sync(reference.owner(), cut_model.write, (reference, value))
        _learner.optimizer = _Optimizer(torch.optim.SGD, _learner.references, lr=_RATE, momentum=_MOMENTUM)


def _step(words, targets, hidden) -> _Step:
    """Have the learner make a step with the model of the check."""
    _learner.model.in_context, _learner.gradients, _learner.updates = [], [], 0
    _learner.open_contexts = []
    try:
        with one_line_errors(), replaced([(dist_autograd, "context", _Context)]):
            result = answer("my_step", [_learner.model, _learner.optimizer, words, targets, hidden])
    except AnswerError as error:
        if _IN_VAIN in str(error):
            why = "a call has timed out. A backward pass that waits for a gradient in vain ends like this."
            raise AnswerError(f"RuntimeError: {why}") from error
        raise
    finally:
        left_open = list(_learner.open_contexts)
        for context in left_open:
            context.__exit__(None, None, None)  # so that the next context can begin
    weights = [rpc.rpc_sync(reference.owner(), _value, (reference,)) for reference in _learner.references]
    in_context, gradients, updates = _learner.model.in_context, _learner.gradients, _learner.updates
    return _Step(result, in_context, bool(left_open), gradients, updates, weights)


def _value(reference):
    """Return the value of a parameter. Runs on its owner."""
    return reference.local_value().detach()


class _Part(nn.Sequential):
    """A part with dropout, which switches slowly, and counts how often it is pickled."""

    travels = 0

    def train(self, mode=True):
        time.sleep(0.15)  # an answer that does not wait for its calls returns earlier
        return super().train(mode)

    def __getstate__(self):
        type(self).travels += 1
        return vars(self)


class _Table(_Part):
    def __init__(self):
        super().__init__(nn.Embedding(_WORDS, _WIDTH), nn.Dropout(0.5))


class _Decoder(_Part):
    def __init__(self):
        super().__init__(nn.Dropout(0.5), nn.Linear(_WIDTH, _WORDS))


def _mode(part):
    """Return on the owner of a part whether it trains, and how often it has been pickled since the last time."""
    module = part.local_value()
    travels, type(module).travels = type(module).travels, 0
    modes = {submodule.training for submodule in module.modules()}
    return modes.pop() if len(modes) == 1 else None, travels


def _set_training(training):
    """Have the learner switch a model; return whether each part trains, and the names of the parts that travelled."""
    table, decoder = rpc.remote("server", _Table), rpc.remote("server", _Decoder)
    model = SimpleNamespace(table=table, lstm=nn.LSTM(_WIDTH, _WIDTH, 2, dropout=0.5), decoder=decoder)
    with one_line_errors():
        for part in (table, decoder):
            part.rpc_sync().zero_grad()  # returns nothing, and waits for the part
        model.lstm.train(not training)
        for part in (table, decoder):
            rpc.rpc_sync(part.owner(), _switch, (part, not training))
        answer("set_training", [model, training])
        modes, travelled = {"the LSTM": model.lstm.training}, []
        for name, part in (("the table", table), ("the decoder", decoder)):
            modes[name], travels = rpc.rpc_sync(part.owner(), _mode, (part,))
            if travels:
                travelled.append(name)
    return modes, travelled


def _switch(part, training):
    """Switch a part on its owner."""
    part.local_value().train(training)


def _clip(parameters, words, limit):
    """Return the result of `clip` on gradients of both ranks, then the norm on each rank and all gradients."""
    table, decoder = RemoteModule("server", nn.Embedding, (_WORDS, _WIDTH)), nn.Linear(_WIDTH, _WORDS)
    references = table.remote_parameters() + [rpc.RRef(parameter) for parameter in decoder.parameters()]
    for reference, values in zip(references, parameters, strict=True):
        rpc.rpc_sync(reference.owner(), cut_model.write, (reference, values))
    with autograd_context() as context:
        dist_autograd.backward(context, [nn.functional.cross_entropy(decoder(table(words)), words)])
        try:
            with one_line_errors():
                norm = answer("clip", [context, references, limit])
        except AnswerError as error:
            if str(error).startswith("KeyError: tensor("):
                raise AnswerError("KeyError: this rank has no gradient of that parameter; its owner has.") from error
            raise
        norms = {name: rpc.rpc_sync(name, _norm_of_gradients, (context,)) for name in ("server", "trainer")}
        gradients = [rpc.rpc_sync(r.owner(), cut_model.gradient, (context, r)) for r in references]
        return norm, norms, gradients


def _norm_of_gradients(context):
    return _norm(dist_autograd.get_gradients(context).values())


def _norm(gradients):
    return sum((gradient**2).sum().item() for gradient in gradients) ** 0.5


def _last_worker():
    """Return the name of the last worker."""
    require_rpc("TwoLayers")
    return max(workers(), key=lambda worker: worker.id).name
