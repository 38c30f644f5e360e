"""Exercises of 43_sharded_data_parallel: stages of ZeRO, judged by their weights, bytes held and bytes sent."""

from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import mse_loss

from helpers.checks.exam import answer, errors_of_answer, exercise, show, times_in_words
from helpers.checks.learner import learners_module
from helpers.checks.patching import replaced
from helpers.measure import tensors, traffic

_LAYERS, _WIDTH, _SAMPLES, _STEPS = 6, 21, 2, 3
_RATE = 0.01
_STAGES = ("data parallel", "zero1", "zero2", "zero3")


@exercise
def my_zero1(exam):
    """Check `my_zero1(units)`: each rank's optimizer holds its shards only, and every rank gets all new parameters.

    The optimizer and the function that it returns train a model of six layers for three steps. The answer must send
    its bytes by the lesson's rings, because the lesson goes on with the answer and counts the bytes of these messages.
    """
    training = _training(exam, "my_zero1")
    if training:
        shards = 2 * training.whole // exam.n
        _require_weights(exam, [(step.in_shards, step.in_layers) for step in training.steps])
        exam.require(
            training.state <= shards + training.layer // 2,
            f"The optimizer of rank {exam.rank} keeps {training.state} bytes, expected {shards}: twice the bytes of "
            "its shards.",
        )
        _require_kept(exam, training, training.whole + shards // 2)
        _require_no_all_reduce(exam, training)
        all_reduce = 2 * (exam.n - 1) * training.whole // exam.n
        _require_traffic(exam, training, all_reduce, least=all_reduce)
    return "Each rank keeps the state of its shards, and all have the weights of one process."


@exercise
def my_zero3(exam):
    """Check `my_zero3(units)`: a rank keeps its shards only, and holds a layer whole only while it computes.

    The optimizer and the function that it returns train a model of six layers for three steps. The answer must fetch
    its layers by the lesson's `gather`, because the lesson goes on with the answer and another `gather`. It must keep
    its gradients until the next step, and send them by the lesson's ring, because the lesson counts both.
    """
    return _judge_sharded(exam, "my_zero3", gathers=2 * _LAYERS - 1, counted=True)  # the last layer may stay


@exercise
def thrifty(exam):
    """Check `thrifty(units)`, a variant of ZeRO-3 that forgets to free memory until the learner fixes it.

    The optimizer and the function that it returns train a model of six layers for three steps.
    """
    return _judge_sharded(exam, "thrifty")


@exercise
def largest(exam):
    """Check `largest(memory, n, stage)`: the most parameters that fit into the memory, at 16 bytes each, sharded."""
    for memory, n in ((1600, 4), (1000, 3), (999, 4), (4096, 8), (777, 1), (12345, 5)):
        for stage in _STAGES:
            result = exam.call(memory, n, stage)
            fault = _fault_of_largest(result, exam.rank, memory, n, stage)
            exam.require(not fault, f"With {memory} bytes, {n} ranks and {stage}, {fault}")
    return "Each number of parameters fits, and one more parameter would not fit."


class _Step(NamedTuple):
    """What a rank measured in a step: `held` pairs each moment with the bytes of all tensors of the training.

    `kept` is the bytes of parameters and gradients after the update.
    `gathers` is the number of calls of the lesson's `gather`.
    `in_shards` and `in_layers` are the largest differences from one process, in its shards and in its whole layers.
    """

    held: list
    kept: int
    sent: int
    collectives: dict
    gathers: int
    in_shards: float
    in_layers: float


class _Training(NamedTuple):
    """The steps of a training, and sizes in bytes: `state` is the optimizer's state, `layer` the largest layer."""

    whole: int
    layer: int
    state: int
    steps: list


def _training(exam, name):
    """Return the training by the learner's function, or fail the exam and return None if it did not train."""
    training = exam.on_rank(_train, name, exam.rank, exam.n)
    none = isinstance(training, str)
    exam.require(not none, f"Rank {exam.rank}: {training}")
    return None if none else training


def _judge_sharded(exam, name, gathers=0, counted=False):
    training = _training(exam, name)
    if training:
        _require_weights(exam, [(step.in_shards,) for step in training.steps])
        _require_no_all_reduce(exam, training)  # gloo may still hold its tensor, so before the memory
        _require_shards_only(exam, training)
        if counted:
            _require_kept(exam, training, 2 * training.whole // exam.n)
        for number, step in enumerate(training.steps):
            exam.require(
                step.gathers >= gathers,
                f"In step {number} rank {exam.rank} called `gather` {times_in_words(step.gathers)}, expected at "
                f"least {gathers} times: each layer is gathered for the forward pass and for the backward pass.",
            )
        sent = 3 * (exam.n - 1) * training.whole // exam.n
        of_last_layer = (exam.n - 1) * training.layer // exam.n
        _require_traffic(exam, training, sent, least=sent - of_last_layer if counted else 0)
    return "Each rank keeps only its shards, and all ranks train as one process does."


def _require_weights(exam, differences):
    """Require that after each step all differences from one process are tiny."""
    for number, of_step in enumerate(differences):
        for difference in of_step:
            exam.require(
                difference < 1e-12,
                f"After step {number} the parameters of rank {exam.rank} differ from the parameters of one process "
                f"by up to {difference:.2g}, expected less than 1e-12.",
            )


def _require_no_all_reduce(exam, training):
    for number, step in enumerate(training.steps):
        exam.require(
            not step.collectives.get("all_reduce"),
            f"In step {number} rank {exam.rank} called `all_reduce`, expected a call that gives it only its shard of "
            "the sum.",
        )


def _require_shards_only(exam, training):
    """Require that at every moment a rank holds little more than its shards, their gradients and states."""
    kept, layer = 4 * training.whole // exam.n, training.layer
    # A layer that is fetched ahead, and a copy of the gradients, are allowed.
    layers_allowed = {"forward": 2, "backward": 4, "update": 0}
    for number, step in enumerate(training.steps):
        for moment, held in step.held:
            most = kept + layers_allowed[moment.split()[0]] * layer + layer // 2
            exam.require(
                held <= most,
                f"In step {number}, {_in_words(moment)}, rank {exam.rank} holds {held} bytes, expected at most "
                f"{most}. Its shards, their gradients and the optimizer's state take {kept} bytes, and a whole layer "
                f"{layer}.",
            )


def _require_kept(exam, training, expected):
    """Require that a rank has its parameters and the gradients of its shards after the update, and nothing else."""
    for number, step in enumerate(training.steps):
        exam.require(
            step.kept <= expected,
            f"After step {number} rank {exam.rank} holds {step.kept} bytes of parameters and gradients, expected "
            f"{expected}: use `unit.shard` itself, and keep no gradients except the gradients of the shards. A "
            "gradient that is a view keeps the whole flat vector in memory: `/ n` makes a tensor of its own, and "
            "`.div_(n)` does not.",
        )
        exam.require(
            step.kept >= expected,
            f"After step {number} rank {exam.rank} holds {step.kept} bytes of parameters and gradients, expected "
            f"{expected}: leave each gradient in `unit.shard.grad` until the next step. The lesson counts them.",
        )


def _require_traffic(exam, training, expected, least=0):
    """Require that a step sends at most `expected` bytes, and at least `least`, by point-to-point calls."""
    for number, step in enumerate(training.steps):
        exam.require(
            step.sent <= expected,
            f"In step {number} rank {exam.rank} sent {step.sent} bytes, expected at most {expected}.",
        )
        exam.require(
            step.sent >= least,
            f"In step {number} rank {exam.rank} sent {step.sent} bytes by `isend`, expected at least {least}: use the "
            "lesson's `reduce_scatter` and `all_gather`, because the lesson counts the bytes of their messages.",
        )


def _in_words(moment):
    kind, _, number = moment.partition(" ")
    return "after the update" if kind == "update" else f"in the {kind} of layer {number}"


def _train(name, rank, n):
    """Train with the learner's function, and use hooks on its units to record the bytes that this process holds."""
    lesson = vars(learners_module())
    if "Unit" not in lesson:
        return "`Unit` is not defined. Run the cells of the lesson above this one."
    draw = torch.Generator().manual_seed(2)
    inputs, targets = torch.randn(2, _SAMPLES * n, _WIDTH, generator=draw, dtype=torch.float64)
    alone = _new_model()
    reference = torch.optim.Adam(alone.parameters(), lr=_RATE)
    before = tensors.alive()
    model = _new_model()
    units = [lesson["Unit"](layer) for layer in model]
    held, gathers = [], []
    _observe(units, lambda moment: held.append((moment, tensors.alive() - before)))
    with _listed_calls("gather", gathers):  # the answer may bind it now
        result = answer(name, [units])
    if not isinstance(result, tuple) or len(result) != 2 or not callable(result[1]):
        return f"{name} returned a {type(result).__name__}, expected an optimizer and a function."
    optimizer, update = result
    steps = []
    with errors_of_answer(), _listed_calls("gather", gathers):
        for _ in range(_STEPS):
            held.clear()
            gathers.clear()
            optimizer.zero_grad()
            reference.zero_grad()
            mse_loss(alone(inputs), targets).backward()
            reference.step()
            reference.zero_grad()
            before += tensors.nbytes(_state(reference)) * (not steps)  # Adam creates its state in the first step
            with traffic.recorded() as messages, traffic.collectives() as collectives:
                mse_loss(model(inputs[rank::n]), targets[rank::n]).backward()
                update()
            held.append(("update", tensors.alive() - before))
            sent = sum(message.bytes for message in messages if message.sent)
            differences = _differences(units, alone, rank)
            kept = tensors.nbytes(_parameters_and_gradients(units, optimizer))
            steps.append(_Step(list(held), kept, sent, dict(collectives), len(gathers), *differences))
        sizes = [unit.full.nbytes for unit in units]
        return _Training(sum(sizes), max(sizes), tensors.nbytes(_state(optimizer)), steps)


@contextmanager
def _listed_calls(name, calls):
    """Append to `calls` at each call of the lesson's function `name` in the block, if the lesson has defined it."""
    module = learners_module()
    if name not in vars(module):
        yield
        return
    function = vars(module)[name]

    def listed(*arguments, **options):
        calls.append(name)
        return function(*arguments, **options)

    with replaced([(module, name, listed)]):
        yield


def _new_model():
    """Return a model with the same weights at every call and on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = [nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Tanh()) for _ in range(_LAYERS)]
        return nn.Sequential(*layers).double()


def _observe(units, note):
    """Call `note` with a moment's name after the forward of each layer, and when its gradients are complete."""
    for number, unit in enumerate(units):
        parameters = list(unit.layer.parameters())

        def backward(_, number=number, parameters=parameters):
            if all(parameter.grad is not None for parameter in parameters):
                note(f"backward {number}")

        unit.layer.register_forward_hook(lambda *_, number=number: note(f"forward {number}"))
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(backward)


def _state(optimizer):
    return [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]


def _parameters_and_gradients(units, optimizer):
    """Return the tensors of the units and of the optimizer, and their gradients."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for unit in units:
        parameters += [unit.full, unit.shard, *unit.layer.parameters()]
    return parameters + [parameter.grad for parameter in parameters]


def _differences(units, alone, rank):
    """Return the largest differences from one process, in this rank's shards and in the layers that it holds whole."""
    shards, layers = [], []
    for unit, layer in zip(units, alone, strict=True):
        flat = torch.cat([parameter.detach().flatten() for parameter in layer.parameters()])
        first = rank * len(unit.shard)
        expected_shard = flat[first : first + len(unit.shard)]
        shards.append((unit.shard[: len(expected_shard)], expected_shard))  # the padding may hold anything
        if unit.full.untyped_storage().nbytes():
            layers += zip(unit.layer.parameters(), layer.parameters(), strict=True)
    return _largest_difference(shards), _largest_difference(layers)


def _largest_difference(pairs):
    differences = [(value - expected).detach().flatten() for value, expected in pairs]
    return torch.cat([torch.zeros(1), *differences]).abs().max().item()  # NaN if any difference is NaN


def _fault_of_largest(result, rank, memory, n, stage):
    """Return what is wrong with a number of parameters, in words; "" when nothing is."""
    if isinstance(result, bool) or not isinstance(result, int) or result < 0:
        return f"rank {rank} returned {show(result)}, expected an int, 0 or more."
    if result > memory * n:  # a parameter takes at least one byte a rank
        return f"rank {rank} returned {result}, expected fewer: they take more than {memory} bytes."
    held, one_more = (tensors.nbytes(_mixed(parameters, n, stage)) for parameters in (result, result + 1))
    if held > memory:
        return f"rank {rank} returned {result}, expected fewer: they take {held} bytes."
    if one_more <= memory:
        return f"rank {rank} returned {result}, expected more: {result + 1} parameters take {one_more} bytes."
    return ""


def _mixed(parameters, n, stage):
    """Return what a rank holds at the end of backward: model tensors in bfloat16, optimizer tensors in float32."""
    shard = -(-parameters // n)
    sharded = _STAGES.index(stage)
    lengths = [shard if sharded >= 3 else parameters, shard if sharded >= 2 else parameters]
    low = [torch.zeros(length, dtype=torch.bfloat16) for length in lengths]
    return low + [torch.zeros(shard if sharded else parameters) for _ in ("copy", "mean", "mean of squares")]
