"""Exercises of 21_distributed_autograd: rank 0 trains a model that is on worker1, as a whole or in part."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

from helpers.checks.exam import AnswerError, counted, exercise, near, show
from helpers.checks.patching import replaced
from helpers.checks.rpc_judging import answer_with_rpc, one_line_errors
from helpers.checks.small_model import CLASSES, FEATURES, compare_gradients, loss, new_data, new_model

_CUT = 2  # how many layers of the small model are in its first part
_PIECES = 3, 7, 5  # samples
_RATE = 0.1
_STEPS, _SAMPLES = 2, 12
_OPTIMIZER = {"lr": 0.3, "momentum": 0.9}  # of the steps, so that a step must use the optimizer that it gets
_IN_VAIN = "RPC ran for more than set timeout"
_SHORT = {"AccumulateGrad": "w", "SendRpcBackward": "Send", "RecvRpcBackward": "Recv"}


def whole_graph(parts: Sequence[tuple]) -> Mapping[str, set[str]]:
    """Return for each function of a graph over several ranks the set of functions that it passes a gradient to.

    `parts` has each rank's names, edges, and functions of sent and received messages. A name in the result is the
    short name of a function and its rank, such as "Recv 0", so it must occur once on a rank. "w 0" is the function of a
    weight, which passes nothing on.
    """
    shown = [
        [f"{_SHORT.get(name, name.removesuffix('Backward0'))} {rank}" for name in names]
        for rank, (names, *_) in enumerate(parts)
    ]
    sent_at = {number: shown[rank][place] for rank, part in enumerate(parts) for number, place in part[2].items()}
    followers = {}
    for own, (_, edges, _, received) in zip(shown, parts, strict=True):
        for begin, end in edges:
            followers.setdefault(own[begin], set()).add(own[end])
        for number, place in received.items():
            followers.setdefault(own[place], set()).add(sent_at[number])
    return followers


@exercise
def my_step(exam):
    """Check `my_step(net, optimizer, inputs, labels)`: it trains a model on worker1 for a step and returns the loss."""
    if exam.rank == 0:
        batches = [new_data(step, _SAMPLES) for step in range(_STEPS)]
        trained = exam.on_rank(_train_on_worker1, batches)
        expected = _train_here(batches)
        exam.require(trained.runs, "worker1 did not run `forward`, expected one call in each step.")
        _require_first_half(exam, trained, expected)
        exam.require(
            _same(trained.weights, expected.weights),
            f"After {_STEPS} steps the weights on worker1 differ, expected the weights of one process.",
        )
        for step, (result, loss_there) in enumerate(zip(trained.results, expected.results, strict=True)):
            exam.require(
                near(result, loss_there),
                f"Step {step} returned {show(result)}, expected the loss, {loss_there:.4f}.",
            )
        most = 4 * _SAMPLES * (FEATURES + CLASSES)
        exam.require(
            max(trained.payloads) <= most,
            f"A step moved {max(trained.payloads)} bytes of tensors in calls, expected {most} at most: the inputs and "
            "the scores.",
        )
    return f"After {_STEPS} steps the weights on worker1 are those of one process."


@exercise
def backward_by_hand(exam):
    """Check `backward_by_hand(first, second, inputs, labels)`: right gradients in `.grad`, and no context anywhere."""
    if exam.rank == 0:
        for seed in (2, 3):  # an answer that uses the graph of the first call again fails in the second call
            data = new_data(seed, 12)
            trained = exam.on_rank(_train_both_parts, "backward_by_hand", data)
            _require_gradients(exam, trained, [data])
            opened = counted(trained.contexts, "context")
            exam.require(trained.contexts == 0, f"You opened {opened}, expected plain RPC without a context.")
            if exam.fault:
                break
    return "Both workers hold the gradients of one process, and no context was opened."


@exercise
def accumulate(exam):
    """Check `accumulate(first, second, batches)`: right gradients in `.grad`, from a context for each batch."""
    expected = len(_PIECES)
    if exam.rank == 0:
        batches = [new_data(seed, samples) for seed, samples in enumerate(_PIECES)]
        trained = exam.on_rank(_train_both_parts, "accumulate", [batches])
        _require_gradients(exam, trained, batches)
        opened = counted(trained.contexts, "context")
        exam.require(trained.contexts == expected, f"You opened {opened}, expected {expected}, one for each batch.")
    return f"Both workers hold the gradients of all samples, from {counted(expected, 'context')}."


@exercise
def train_frozen(exam):
    """Check `train_frozen(first, second, inputs, labels)`: a step of `first`, and none of `second`."""
    if exam.rank == 0:
        data = new_data(2, 12)
        trained = exam.on_rank(_train_both_parts, "train_frozen", data)
        begun, whole = new_model(), new_model()
        loss(whole, [data]).backward()
        torch.optim.SGD(whole[:_CUT].parameters(), lr=_RATE).step()
        exam.require(trained.needed, "worker1 did not run `second`, expected one call.")
        exam.require(
            _same(trained.second.weights, _weights(begun[_CUT:])),
            "The weights of `second` changed, expected them to stay.",
        )
        exam.require(
            not _same(trained.first.weights, _weights(begun[:_CUT])),
            "The weights of `first` did not change, expected a step.",
        )
        exam.require(
            _same(trained.first.weights, _weights(whole[:_CUT])),
            "The weights of `first` differ, expected the weights of one process after the step.",
        )
        exam.require(
            not any(trained.needed),
            "worker1 computed gradients for the weights of `second`, expected none.",
        )
    return "`first` made its step, and worker1 computed no gradient for the weights of `second`."


class _Training(NamedTuple):
    """What `my_step` made of a model: the weights afterwards, and the results of the steps.

    `gradients` are the gradients of the last context of the first step that held any; there are none without a context
    or a backward pass. `runs` counts the forward passes on worker1, and `payloads` the bytes of tensors in the calls of
    each step.
    """

    weights: list[torch.Tensor]
    results: list
    gradients: list[torch.Tensor]
    runs: int = 0
    payloads: Sequence[int] = ()


class _Part(NamedTuple):
    """The weights and the gradients of one part of a model."""

    weights: list[torch.Tensor]
    gradients: list[torch.Tensor | None]


class _Trained(NamedTuple):
    """A model in two parts after training.

    `needed` says for each call of the second part whether its weights needed gradients; `contexts` is how many contexts
    of distributed autograd the learner's function opened.
    """

    first: _Part
    second: _Part
    needed: list[bool]
    contexts: int


def _require_gradients(exam, trained, batches):
    whole = new_model()
    loss(whole, batches).backward()
    parts = ("worker0", trained.first, slice(None, _CUT)), ("worker1", trained.second, slice(_CUT, None))
    for worker, part, layers in parts:
        module = new_model()[layers]
        for parameter, weight, gradient in zip(module.parameters(), *part, strict=False):
            parameter.data = weight
            parameter.grad = gradient
        difference = compare_gradients(module, whole[layers])
        exam.require(not difference, f"On {worker} {difference} those of one process, expected equal gradients.")


def _require_first_half(exam, trained, expected):
    """Require gradients in a context, and then new weights, so that an answer without a step knows its first half."""
    if not _same(trained.weights, _weights(new_model())):
        return
    exam.require(
        trained.gradients,
        "No context held the gradients of the weights on worker1, expected a forward and a backward pass in a context.",
    )
    exam.require(
        _same(trained.gradients, expected.gradients),
        "The gradients in the context differ, expected the gradients of one process.",
    )
    exam.refuse(
        "The first half is right: the context holds the gradients of one process. "
        f"The weights on worker1 did not change, expected {_STEPS} steps of the optimizer, each in the same context."
    )


def _train_here(batches) -> _Training:
    """Train the small model in this process, with a step for each batch."""
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), **_OPTIMIZER)
    losses, gradients = [], []
    for batch in batches:
        optimizer.zero_grad()
        batch_loss = loss(model, [batch])
        batch_loss.backward()
        gradients = gradients or [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        losses.append(batch_loss.item())
    return _Training(_weights(model), losses, gradients)


def new_whole():
    """Return the small model. At each call it notes whether its weights need gradients."""
    module = new_model()
    module.needed = []
    module.forward = partial(_forward, module)
    return module


def new_second():
    """Return the second part of the model. At each call it notes whether its weights need gradients."""
    module = new_model()[_CUT:]
    module.needed = []
    module.forward = partial(_forward, module)
    return module


def _forward(module, hidden):
    module.needed.append(any(parameter.requires_grad for parameter in module.parameters()))
    return type(module).forward(module, hidden)


def next_context():
    """Return the number of a new context on this rank; the next context has the number after it."""
    with dist_autograd.context() as context_id:
        return context_id


def parameter_rrefs(net):
    """Return an RRef to each parameter of a module. Runs on its owner."""
    return [rpc.RRef(parameter) for parameter in net.local_value().parameters()]


def state_of_whole(net):
    """Return the weights of a module, and how often it ran. Runs on its owner."""
    return _weights(net.local_value()), len(net.local_value().needed)


def gradients_in_context(net, context_id):
    """Return the gradients of a module's weights in a context, none if one is missing. Runs on its owner."""
    gradients = dist_autograd.get_gradients(context_id)
    parameters = list(net.local_value().parameters())
    return [gradients[parameter] for parameter in parameters] if all(p in gradients for p in parameters) else []


def state_of_second(second):
    """Return the parameters of the second part, and its notes of each call. Runs on its owner."""
    return _part(second.local_value()), second.local_value().needed


class _Context(dist_autograd.context):
    """A context that notes at its end the gradients of the model on worker1."""

    net = None
    noted: ClassVar[list] = []

    def __enter__(self):
        self.number = super().__enter__()
        return self.number

    def __exit__(self, kind, *error):
        if kind is None:
            _Context.noted.append(rpc.rpc_sync("worker1", gradients_in_context, args=(_Context.net, self.number)))
        super().__exit__(kind, *error)


def _train_on_worker1(batches) -> _Training:
    """Have `my_step` train a model on worker1."""
    with one_line_errors():
        net = rpc.remote("worker1", new_whole)
        # torch asks for the type of an object before its first call; with rpc_async, a thread that is in no context
        # then makes the call.
        net.rpc_sync().zero_grad()
        references = rpc.rpc_sync("worker1", parameter_rrefs, args=(net,))
        optimizer = DistributedOptimizer(torch.optim.SGD, references, **_OPTIMIZER)
    _Context.net = net
    results, payloads, gradients = [], [], []
    for batch in batches:
        _Context.noted.clear()
        with replaced([(dist_autograd, "context", _Context)]):
            result, made = answer_with_rpc("my_step", [net, optimizer, *batch])
        results.append(result.detach() if isinstance(result, torch.Tensor) else result)
        calls = [call for call in made if call.function != gradients_in_context.__name__]
        payloads.append(sum(call.sent + call.received for call in calls))
        gradients.append(next(filter(None, reversed(_Context.noted)), []))
    _Context.net = None
    weights, runs = rpc.rpc_sync("worker1", state_of_whole, args=(net,))
    return _Training(weights, results, gradients[0], runs, payloads)


def _train_both_parts(function, arguments) -> _Trained:
    """Have a function of the learner train a model whose second part is on worker1."""
    with one_line_errors():
        second = rpc.remote("worker1", new_second)
        before = _next_contexts()
    first = new_model()[:_CUT]
    try:
        answer_with_rpc(function, [first, second, *arguments])
    except AnswerError as error:
        if _IN_VAIN in str(error):
            why = "a call has timed out. A backward that waits for a gradient in vain ends like this."
            raise AnswerError(f"RuntimeError: {why}") from error
        raise
    with one_line_errors():
        after = _next_contexts()  # raises if a context is still open
    state, needed = rpc.rpc_sync("worker1", state_of_second, args=(second,))
    opened = sum(after) - sum(before) - len(after)
    return _Trained(_part(first), state, needed, opened)


def _next_contexts():
    return next_context(), rpc.rpc_sync("worker1", next_context)


def _part(module):
    return _Part(_weights(module), [parameter.grad for parameter in module.parameters()])


def _weights(module):
    return [parameter.detach() for parameter in module.parameters()]


def _same(weights, expected):
    return len(weights) == len(expected) and all(
        mine.shape == right.shape and torch.allclose(mine.float(), right, rtol=1e-4, atol=1e-6)
        for mine, right in zip(weights, expected, strict=True)
    )
