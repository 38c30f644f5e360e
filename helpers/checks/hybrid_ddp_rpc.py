"""Exercises of 28_hybrid_ddp_rpc: forward, references and step of a hybrid model, a frozen table, a batch in parts.

The first ranks are the trainers, the last two are master and server. The model for the learner's function
stays in the trainer's process, which returns only its weights.
"""

from types import SimpleNamespace
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.nn.functional import cross_entropy, embedding_bag, linear

from helpers import devices
from helpers.checks.exam import AnswerError, answer, errors_of_answer, exercise, near, plain, show
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import one_line_errors

_NUMBERS = list(range(36))  # of passages, which two to four trainers can share evenly; a batch of the lesson has 48
_RATE = 0.7  # of the optimizer, neither the default of the lesson nor 1
_STEPS = 4


class Weights(NamedTuple):
    """The weights of a hybrid model: the weight and the bias of the dense layer, and the weight of the table."""

    dense: torch.Tensor
    bias: torch.Tensor
    table: torch.Tensor


@exercise
def my_forward(exam):
    """Check `my_forward(model, words, offsets)`: the answers of a hybrid model to a batch of two bags."""
    if takes_part(exam, needs="new_table"):
        weights = exam.on_rank(_make_parts)
        words, offsets, _ = exam.on_rank(batch, [3, 7])  # the lesson shows passages 0 and 1
        result, has_gradient = exam.on_rank(_forward, words, offsets)
        expected = _forward_of_one_process(weights, words, offsets)
        shape, who = tuple(expected.shape), f"On trainer {exam.rank} `my_forward`"
        if exam.require(
            hasattr(result, "shape"), f"{who} returned {show(result)}, expected a tensor of shape {shape}."
        ) and exam.require(
            tuple(result.shape) == shape,
            f"{who} returned a tensor of shape {tuple(result.shape)}, expected {shape}."
            + " The lookup is done, the dense layer is missing." * (tuple(result.shape) == (2, 16)),
        ):
            exam.require(
                torch.allclose(torch.as_tensor(result).to(expected), expected),
                f"{who} returned wrong values, expected those of one process with the same weights.",
            )
            exam.require(
                has_gradient,
                f"{who} returned the right values, but a backward pass from them does not reach the table, expected a "
                "gradient of the table on the server. Does a line end the graph?",
            )
    return "The values are equal to those of one process."


@exercise
def my_references(exam):
    """Check `my_references(model)`: RRefs of all parameters of a hybrid model, here and on the server."""
    if takes_part(exam):
        exam.on_rank(make)
        found = exam.on_rank(_references)
        who = f"On trainer {exam.rank}"
        exam.require(not found.no_list, f"{who} `my_references` returned {found.no_list}, expected a list.")
        exam.require(found.owners or found.strangers, f"{who} the list is empty, expected an RRef to each parameter.")
        exam.require(
            not found.strangers, f"{who} the list has a {', '.join(found.strangers[:1])}, expected RRefs only."
        )
        here = f"trainer{exam.rank}"
        halves = {owner: (found.owners.count(owner), count) for owner, count in (("server", 1), (here, 2))}
        right = [f" The number of RRefs on {owner} is right." for owner, (has, count) in halves.items() if has == count]
        for owner, (has, count) in halves.items():
            exam.require(
                has == count,
                f"{who} the list has {has} RRefs to parameters on {owner}, expected {count}.{''.join(right)}",
            )
        others = sorted(set(found.owners) - halves.keys())
        exam.require(not others, f"{who} the list has RRefs to parameters on {', '.join(others)}, expected none there.")
        exam.require(
            found.are_of_dense,
            f"{who} the local RRefs hold other objects, expected both parameters of the dense layer.",
        )
        exam.require(
            not found.instead,
            f"{who} the RRef on server holds {found.instead}, expected the parameter of the model's table.",
        )
    return "The list has the parameter of the table and both parameters of the dense layer."


@exercise
def my_hybrid_step(exam):
    """Check `my_hybrid_step(model, optimizer, data)`: forward, backward and one step, in one context."""
    if takes_part(exam):
        who = f"of trainer {exam.rank}"
        share, expected_weights, before = _share_and_step(exam)
        returned, after = exam.on_rank(_step, "my_hybrid_step", _NUMBERS[exam.rank :: exam.n - 2])
        loss = loss_of_one_process(before, share).item()
        the = "The loss is right, but the" if near(returned, loss, 1e-5) else "The"
        for part, old, new, expected in _parts(before, after, expected_weights):
            exam.require(not new.equal(old), f"{the} {part} {who} has not moved, expected one step along its gradient.")
            exam.require(
                new.allclose(expected), f"{the} {part} {who} has moved, but not by one step along its gradient."
            )
        exam.require(
            near(returned, loss, 1e-5),
            f"Both parts moved as expected, but on trainer {exam.rank} `my_hybrid_step` returned {show(returned)}, "
            f"expected the loss {loss:.4f}.",
        )
    return "Both parts of the model take the step of their gradients, and the loss is returned."


@exercise
def frozen_step(exam):
    """Check `frozen_step(model, optimizer, data)`: a step of a hybrid model that trains its dense layer only."""
    if takes_part(exam):
        who = f"of trainer {exam.rank}"
        before = exam.on_rank(make)
        after, gradients = exam.on_rank(_frozen_steps, _NUMBERS[exam.rank :: exam.n - 2])
        expected = _dense_of_one_process(before, exam.on_rank(batch, _NUMBERS))
        exam.require(
            after.table.equal(before.table),
            f"{_STEPS} steps {who} have changed the table, expected the same bits as before.",
        )
        exam.require(not gradients, f"In {_STEPS} steps {who}, {gradients} gradients reached the table, expected none.")
        exam.require(
            not after.dense.equal(before.dense),
            f"The dense layer {who} has not moved in {_STEPS} steps, expected {_STEPS} steps.",
        )
        exam.require(
            after.dense.allclose(expected),
            f"The dense layer {who} has moved, but not as in one process with the whole batch.",
        )
    return "The dense layer learns, the table keeps every bit, and no gradient travels to the server."


@exercise
def step_in_parts(exam):
    """Check `step_in_parts(model, optimizer, parts)`: one step with a batch that comes in parts of different sizes.

    No message to the server may have more passages than the largest part.
    """
    if takes_part(exam):
        who = f"of trainer {exam.rank}"
        _, expected_weights, before = _share_and_step(exam)
        numbers = _NUMBERS[exam.rank :: exam.n - 2]
        parts = [numbers[:5], numbers[5:6], numbers[6:]]
        after, largest = exam.on_rank(_step_in_parts, parts)
        for part, old, new, expected in _parts(before, after, expected_weights):
            exam.require(not new.equal(old), f"The {part} {who} has not moved, expected one step with all parts.")
            exam.require(new.allclose(expected), f"The {part} {who} has moved, but not by one step with all parts.")
        most = max(map(len, parts))
        exam.require(
            largest <= most,
            f"Both parts of the model moved as expected, but a message {who} to the server had {largest} passages, "
            f"expected at most {most}: the largest part of the batch.",
        )
    return "Both parts of the model took the step of the whole batch."


def takes_part(exam, needs: str = "HybridModel") -> bool:
    """Return whether this rank is a trainer in the trainers' group, and the lesson has defined what it needs there.

    Otherwise a trainer is refused.
    """
    return exam.rank < exam.n - 2 and exam.require(
        exam.on_rank(is_started, needs),
        "The ranks have no model: run all cells from `World` on, the cell of your answer, then this check.",
    )


def loss_of_one_process(weights: Weights, data) -> torch.Tensor:
    """Return the loss of a batch in one process with these weights."""
    words, offsets, label = data
    return cross_entropy(_forward_of_one_process(weights, words, offsets), label)


def gradients_of_one_process(weights: Weights, data) -> Weights:
    """Return the gradients of a batch in one process with these weights."""
    weights = Weights(*[values.clone().requires_grad_() for values in weights])
    return Weights(*torch.autograd.grad(loss_of_one_process(weights, data), weights))


def _forward_of_one_process(weights, words, offsets):
    return linear(embedding_bag(words, weights.table, offsets, mode="sum"), weights.dense, weights.bias)


def _share_and_step(exam):
    """Make a model; return the trainer's batch, and the weights after and before a step.

    The trainers share the dense layer, and each has a table of its own.
    """
    before = exam.on_rank(make)
    share = exam.on_rank(batch, _NUMBERS[exam.rank :: exam.n - 2])
    of_all = gradients_of_one_process(before, exam.on_rank(batch, _NUMBERS))
    own = gradients_of_one_process(before, share)
    step = Weights(of_all.dense, of_all.bias, own.table)
    return share, Weights(*[old - _RATE * gradient for old, gradient in zip(before, step, strict=True)]), before


def _parts(*weights):
    """Return (name, value in each of these weights) for the dense layer and the table."""
    return [(name, *[getattr(of, part) for of in weights]) for name, part in (("dense layer", "dense"), ("table",) * 2)]


def _dense_of_one_process(weights, data):
    """Return the weight of the dense layer after the steps of one process that leaves the table as it is."""
    for _ in range(_STEPS):
        gradients = gradients_of_one_process(weights, data)
        weights = Weights(weights.dense - _RATE * gradients.dense, weights.bias - _RATE * gradients.bias, weights.table)
    return weights.dense


# These functions run in the learner's process, on a trainer.

kept = {}  # the model that the learner's function gets


def is_started(needs: str) -> bool:
    """Return whether this rank is in the group of the trainers, and the lesson has defined this name there."""
    return dist.is_initialized() and needs in vars(learners_module())


def batch(numbers):
    """Return the batch of the passages of these numbers: words, offsets and labels."""
    return vars(learners_module())["batch"](numbers)


def make() -> Weights:
    """Make a hybrid model with a table of its own, and return the weights."""
    lesson = vars(learners_module())
    with one_line_errors():
        kept["model"] = lesson["HybridModel"](lesson["new_table"]())
        return weights_of(kept["model"])


def weights_of(model) -> Weights:
    """Return copies of the weights of a hybrid model."""
    dense = getattr(model.dense, "module", model.dense)  # of DDP
    own = [parameter.detach().cpu().clone() for parameter in (dense.weight, dense.bias)]
    return Weights(*own, at_the_table(model, weight_of_table))


def at_the_table(model, function, *arguments):
    """Have the owner of the table of a model call a function with the table's RRef, and return the result."""
    reference = model.table.get_module_rref()
    return rpc.rpc_sync(reference.owner(), function, (reference, *arguments))


def _make_parts() -> Weights:
    """Make what a hybrid model has, without DDP, and with a table that the master has made; return the weights."""
    device = devices.of_this_rank().device
    dense = torch.nn.Linear(16, 6).to(device)
    with one_line_errors():
        table = rpc.rpc_sync("master", vars(learners_module())["new_table"])
        kept["model"] = SimpleNamespace(table=table, dense=dense, device=device)
        return weights_of(kept["model"])


def _forward(words, offsets):
    """Return the result of the learner's function, and whether a backward pass from the result reaches the table."""
    with one_line_errors(), dist_autograd.context() as context:
        result = answer("my_forward", [kept["model"], words, offsets])
        if not isinstance(result, torch.Tensor):
            return result, False
        if result.requires_grad:
            with errors_of_answer():
                dist_autograd.backward(context, [result.sum()])
        return result.detach().cpu(), at_the_table(kept["model"], has_gradient, context)


class _References(NamedTuple):
    """The result of `my_references`: a description if it is no list, the types of non-RRefs, the owners of the RRefs.

    `are_of_dense` says whether the local RRefs are those of the dense layer's parameters. `instead` describes an object
    of the server that is not the table's parameter, and is empty if there is none.
    """

    no_list: str
    strangers: list[str]
    owners: list[str]
    are_of_dense: bool
    instead: str = ""


def _references() -> _References:
    with one_line_errors():
        returned = answer("my_references", [kept["model"]])
        if not isinstance(returned, list | tuple):
            return _References(show(plain(returned)), [], [], False)
        strangers = [type(reference).__name__ for reference in returned if not hasattr(reference, "owner_name")]
        rrefs = [reference for reference in returned if hasattr(reference, "owner_name")]
        local = {id(reference.local_value()) for reference in rrefs if reference.is_owner()}
        are_of_dense = local == {id(parameter) for parameter in kept["model"].dense.parameters()}
        on_server = [reference for reference in rrefs if reference.owner_name() == "server"]
        instead = [at_the_table(kept["model"], other_than_weight, reference) for reference in on_server]
        owners = [reference.owner_name() for reference in rrefs]
        return _References("", strangers, owners, are_of_dense, next(filter(None, instead), ""))


def _new_optimizer():
    """Return an optimizer of all parameters of the model."""
    lesson = vars(learners_module())
    with one_line_errors():
        return lesson["new_optimizer"](lesson["references"](kept["model"]), torch.optim.SGD, _RATE)


def _step(function, numbers):
    """Return the result of the learner's step with these passages, and the weights afterwards."""
    returned = answer(function, [kept["model"], _new_optimizer(), batch(numbers)])
    return returned, weights_of(kept["model"])


def _step_in_parts(parts):
    """Make a step with the passages of all parts; return the weights, and the passages of the largest lookup."""
    model, optimizer = kept["model"], _new_optimizer()
    at_the_table(model, watch)
    try:
        answer("step_in_parts", [model, optimizer, [batch(numbers) for numbers in parts]])
    except AnswerError as error:
        if "set timeout" in str(error):
            raise AnswerError(f"{error}. Does each part have a backward pass of its own?") from error
        raise
    return weights_of(model), at_the_table(model, largest_lookup_of)


def _frozen_steps(numbers):
    """Make steps with these passages; return the weights afterwards, and how many gradients came to the table."""
    model, optimizer, data = kept["model"], _new_optimizer(), batch(numbers)
    at_the_table(model, watch)
    for _ in range(_STEPS):
        answer("frozen_step", [model, optimizer, data])
    return weights_of(model), at_the_table(model, gradients_of)


# What runs on the server.


def weight_of_table(reference):
    """Return a copy of the weights of a table."""
    return reference.local_value().weight.detach().clone()


def has_gradient(reference, context) -> bool:
    """Return whether a context has a gradient of a table."""
    try:
        return reference.local_value().weight in dist_autograd.get_gradients(context)
    except RuntimeError:  # no call in this context came to this rank
        return False


def other_than_weight(reference, other) -> str:
    """Describe the object of an RRef, unless the object is the weight of the table."""
    found = other.local_value()
    if found is reference.local_value().weight:
        return ""
    return "another parameter" if isinstance(found, torch.nn.Parameter) else f"a {type(found).__name__}"


def watch(reference):
    """Start to count the gradients that come to this table, and the passages of its largest lookup."""
    table = reference.local_value()
    table.gradients, table.largest_lookup, forward = 0, 0, table.forward

    def count(gradient):
        table.gradients += 1

    def watched(words, offsets):
        table.largest_lookup = max(table.largest_lookup, len(offsets))
        vectors = forward(words, offsets)
        if vectors.requires_grad:
            vectors.register_hook(count)
        return vectors

    table.forward = watched  # a RemoteModule calls forward itself, so hooks of the module would not run


def gradients_of(reference):
    """Return how many gradients have come to a table that is watched."""
    return reference.local_value().gradients


def largest_lookup_of(reference):
    """Return how many passages the largest lookup in a watched table had."""
    return reference.local_value().largest_lookup
