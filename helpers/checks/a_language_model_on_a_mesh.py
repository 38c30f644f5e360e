"""Exercises of 50_a_language_model_on_a_mesh: a plan, a step that accumulates and clips, memory, and validation.

They build on names that the cells of the lesson define: `new_model`, `shard`, `batch`, `loss_of` and the mesh `line`.
"""

import warnings
from collections import Counter
from types import SimpleNamespace

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from helpers.checks.exam import answer, called, errors_of_answer, exercise, near, number, show
from helpers.checks.fully_shard import flat_parameters
from helpers.checks.learner import learners_module
from helpers.measure.traffic import collectives

_ATTENTION = {"q": 0, "k": 0, "v": 0, "out": 1}  # each matrix, and the dimension of its weight that is split
_MLP = {"up": 0, "down": 1}
_GATHER, _SCATTER = "all_gather_into_tensor", "reduce_scatter_tensor"
_MICRO_BATCHES = 3
# Elements in matrices and in norms, replicas, shards, tensor ranks.
_MODELS = ((9600, 0, 1, 4, 1), (9600, 480, 1, 2, 1), (9600, 0, 2, 4, 1), (9600, 480, 1, 2, 4), (96_000, 480, 4, 8, 2))


@exercise
def my_plan(exam):
    """Check `my_plan()`: attention, then the MLP, then the whole model, with the loss and gradients of one process."""
    keys = exam.on_rank(_keys)
    if not exam.require(
        isinstance(keys, list), f"Rank {exam.rank}: `my_plan` returned {show(keys)}, expected a dict of styles."
    ):
        return None
    for name, matrices in (("attention", _ATTENTION), ("mlp", _MLP)):
        _require_half(exam, name, matrices)
        if exam.fault is not None:
            return None
    _require_model(exam)
    return "The loss and all gradients equal those of one process. A block's forward pass gathers and scatters twice."


def _keys():
    """Return the keys of the learner's plan, or the plan itself if it is not a dict of styles."""
    plan = answer("my_plan", [])
    is_plan = isinstance(plan, dict) and all(isinstance(style, ParallelStyle) for style in plan.values())
    return list(plan) if is_plan else plan


def _require_half(exam, name, matrices):
    """Require that the plan splits the attention or the MLP of a block, with own tokens before and behind it."""
    who = f"Rank {exam.rank}, `{name}` of a block:"
    for matrix, (shape, part) in exam.on_rank(_parts, name, list(matrices)).items():
        expected = list(shape)
        expected[matrices[matrix]] //= exam.n
        exam.require(
            part == expected, f"{who} the weight of `{matrix}` has the shape {part} on a rank, expected {expected}."
        )
    if exam.fault is not None:
        return
    half = SimpleNamespace(**exam.on_rank(_half, name, list(matrices)))
    exam.require(
        half.output_shape == half.expected_shape,
        f"{who} its output has the shape {half.output_shape} on a rank, expected {half.expected_shape}, only its "
        "own tokens. `output_layouts` says how the last layer returns its sums.",
    )
    exam.require(half.is_right, f"{who} its output differs from the output of one process.")
    exam.require(not half.wrong, f"{who} the gradient of `{half.wrong}` differs from the gradient of one process.")
    exam.require(
        half.calls == {_GATHER: 1, _SCATTER: 1},
        f"{who} the forward pass calls {called(half.calls)}, expected 1 {_GATHER}, 1 {_SCATTER}. "
        "`PrepareModuleInput` turns the input of a whole module into a DTensor once.",
    )


def _parts(name, matrices):
    """Return the shapes of the weights of a block's attention or MLP: each weight, and its part on this rank."""
    split = _split_half(name)
    weights = {matrix: split.get_submodule(matrix).weight for matrix in matrices}
    return {matrix: (list(weight.shape), list(_local(weight).shape)) for matrix, weight in weights.items()}


def _split_half(name):
    """Return the attention or the MLP of a block, split by the learner's plan for it."""
    plan = {key: style for key, style in answer("my_plan", []).items() if name in key.split(".")}
    return getattr(_parallelized(vars(learners_module()), plan).blocks[-1], name)


def _half(name, matrices):
    """Split the attention or the MLP of a block by the learner's plan, and return what it returns and calls."""
    lesson = vars(learners_module())
    rank, n = lesson["rank"], lesson["n"]
    whole = getattr(lesson["new_model"](torch.float64).blocks[-1], name)
    split = _split_half(name)
    torch.manual_seed(7)
    x = torch.randn(2, 2 * n, whole.get_submodule(matrices[0]).in_features, dtype=torch.float64)
    expected = whole(x)
    expected.square().sum().backward()
    expected = expected.detach().chunk(n, 1)[rank]

    own_tokens = DTensor.from_local(x.chunk(n, 1)[rank].contiguous(), lesson["line"], [Shard(1)])
    with errors_of_answer():
        with CommDebugMode() as calls:
            output = _local(split(own_tokens))
        is_right = output.shape == expected.shape and bool(torch.allclose(output, expected, rtol=0, atol=1e-10))
        output.square().sum().backward()
        wrong = _first_wrong_gradient(whole, split) if is_right else ""
    return {
        "output_shape": list(output.shape),
        "expected_shape": list(expected.shape),
        "is_right": is_right,
        "wrong": wrong,
        "calls": _counts(calls),
    }


def _require_model(exam):
    """Require that the whole plan gives the loss and the gradients of one process, with two calls in each block."""
    model = SimpleNamespace(**exam.on_rank(_model))
    layers, who = model.layers, f"Attention and MLP are right. Rank {exam.rank}:"
    for name, (kept, elements) in model.kept.items():
        exam.require(
            kept * exam.n == elements,
            f"{who} it keeps {kept} of the {elements} elements of `{name}.weight`, expected {elements // exam.n}.",
        )
    exam.require(
        near(model.loss, model.expected, 1e-10),
        f"{who} the loss is {show(model.loss)}, expected {show(model.expected)}, the loss of one process. Between the "
        "layers a rank has only its own tokens, and `head` returns all logits.",
    )
    exam.require(
        not model.wrong,
        f"{who} the loss is right, but the gradient of `{model.wrong}` differs from the gradient of one process. A "
        "norm that is not in the plan gets only the gradient of the rank's own tokens.",
    )
    each = 2 * layers + 2
    exam.require(
        model.calls == {_GATHER: each, _SCATTER: each},
        f"{who} the results are right. In the forward pass the model calls {called(model.calls)}, expected {each} "
        f"{_GATHER}, {each} {_SCATTER}.",
    )


def _model():
    """Split the whole model by the learner's plan, and return its loss, its calls, and what a rank keeps of tables."""
    lesson = vars(learners_module())
    ids, targets = lesson["batch"](0)
    whole = lesson["new_model"](torch.float64)
    expected = lesson["loss_of"](whole, ids, targets)
    expected.backward()
    split = _parallelized(lesson, answer("my_plan", []))
    with errors_of_answer(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with CommDebugMode() as calls:
            loss = lesson["loss_of"](split, ids, targets)
        loss.backward()
        value = float(loss.full_tensor() if isinstance(loss, DTensor) else loss)
        is_right = near(value, expected.item(), 1e-10)
        wrong = _first_wrong_gradient(whole, split) if is_right else ""
    kept = {}
    for name in ("tokens", "positions", "head"):
        weight = split.get_submodule(name).weight
        kept[name] = _local(weight).numel(), weight.numel()
    return {
        "layers": len(split.blocks),
        "loss": value,
        "expected": expected.item(),
        "wrong": wrong,
        "calls": _counts(calls),
        "kept": kept,
    }


def _parallelized(lesson, plan):
    """Return a new model that is split by a plan; a key without a module is the learner's error."""
    with errors_of_answer(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="Parallelize plan key")
        return parallelize_module(lesson["new_model"](torch.float64), lesson["line"], plan)


def _first_wrong_gradient(whole, split):
    """Return the name of the first parameter whose gradient differs from the gradient of one process, or ""."""
    wrong = []
    for (name, true), parameter in zip(whole.named_parameters(), split.parameters(), strict=True):
        gradient = parameter.grad
        gradient = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
        if gradient is None or not torch.allclose(gradient, true.grad, rtol=0, atol=1e-10):
            wrong.append(name)
    return wrong[0] if wrong else ""


def _local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _counts(calls):
    return {str(name).split(".")[-1]: count for name, count in calls.get_comm_counts().items() if count}


@exercise
def my_step(exam):
    """Check `my_step(model, optimizer, micro_batches, most)`: steps of a `fully_shard` model and of a plain model.

    Two steps do not clip, and then one step of each model does.
    """
    rank = exam.rank
    free = SimpleNamespace(**exam.on_rank(_steps, 2, 1e6))
    for number_of_step, (returned, expected) in enumerate(zip(free.returned, free.losses, strict=True)):
        if number_of_step == 0:
            exam.require(
                near(returned, expected, 1e-9),
                f"Rank {rank} returned {show(returned)}, expected {show(expected)}, the mean loss of its "
                f"{_MICRO_BATCHES} micro-batches.",
            )
    first, second = free.factors
    exam.require(
        near(first, 1, 1e-8),
        f"Rank {rank}: without clipping the update is {show(first)} times the update of one process, expected 1. Use "
        f"the mean gradient of the {_MICRO_BATCHES} micro-batches.",
    )
    exam.require(
        near(second, 1, 1e-8),
        f"Rank {rank}: the first step is right, but the second update is {show(second)} times the expected update. "
        "Are gradients of the first step left over?",
    )
    exam.require(
        not free.left,
        f"The update is right. After it, {free.left} parameters of rank {rank} still have a gradient, expected none.",
    )
    clipped = SimpleNamespace(**exam.on_rank(_steps, 1, free.norm / 2))
    (factor,) = clipped.factors
    exam.require(
        near(factor, 1, 1e-5),
        f"Rank {rank}: with a gradient norm of {show(free.norm)} and a limit of {show(free.norm / 2)}, the update is "
        f"{show(factor)} times the expected update. Clip the norm of the gradients of all micro-batches and all ranks.",
    )
    exam.require(
        free.scatters == free.units,
        f"The update is right. In a step rank {rank} called {free.scatters} reduce_scatter, expected {free.units}: one "
        "for each unit, in the last micro-batch.",
    )
    if near(factor, 1, 1e-5):  # on all ranks or on none, because the updates of whole tensors are compared
        plain = SimpleNamespace(**exam.on_rank(_steps, 1, free.norm / 2, False))
        (factor,) = plain.factors
        exam.require(
            near(factor, 1, 1e-5),
            f"With `fully_shard` the step is right. Rank {rank}: on a model without `fully_shard` the update is "
            f"{show(factor)} times the expected update. Clip once, after the last micro-batch.",
        )
    return (
        f"The step with {_MICRO_BATCHES} micro-batches is the step of one process, clipped or not, and each unit "
        "reduces once."
    )


def _steps(steps, most, sharded=True):
    """Take steps with the learner's function and in one process; return the losses, updates and gradients left behind.

    An update that is no multiple of the expected update counts as 0 times the expected update.
    """
    lesson = vars(learners_module())
    rank, n = lesson["rank"], lesson["n"]
    whole = lesson["new_model"](torch.float64)
    model = lesson["new_model"](torch.float64)
    if sharded:
        model = lesson["shard"](model, lesson["line"])
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (whole, model)]
    result = {"returned": [], "losses": [], "factors": [], "norm": 0.0, "left": 0, "units": len(whole.blocks) + 1}
    for step in range(steps):
        batches = [lesson["batch"](50 + _MICRO_BATCHES * step + index) for index in range(_MICRO_BATCHES)]
        before = flat_parameters(whole)
        norm = _true_step(lesson, whole, optimizers[0], batches, most)
        result["norm"] = result["norm"] or norm
        share = slice(rank, None, n) if sharded else slice(None)
        own = [tuple(part[share] for part in micro_batch) for micro_batch in batches]
        with torch.no_grad():
            losses = [lesson["loss_of"](model, *micro_batch).item() for micro_batch in own]
        own_before = flat_parameters(model)
        with collectives() as calls:
            returned = answer("my_step", [model, optimizers[1], own, most])
        result["scatters"] = calls["reduce_scatter"]
        result["returned"].append(number(returned.detach() if isinstance(returned, torch.Tensor) else returned))
        result["losses"].append(sum(losses) / len(losses))
        result["left"] = sum(each.grad is not None and bool((each.grad != 0).any()) for each in model.parameters())
        result["factors"].append(_factor(flat_parameters(model) - own_before, flat_parameters(whole) - before))
    return result


def _true_step(lesson, model, optimizer, batches, most):
    """Take the step of one process, and return the norm of its gradients."""
    optimizer.zero_grad()
    for micro_batch in batches:
        (lesson["loss_of"](model, *micro_batch) / len(batches)).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), most)
    optimizer.step()
    return norm.item()


def _factor(update, expected):
    """Return the factor between an update and the expected update, and 0.0 if they differ in direction."""
    factor = ((update * expected).sum() / expected.square().sum()).item()
    return factor if torch.allclose(update, factor * expected, rtol=0, atol=1e-6 * expected.abs().max().item()) else 0.0


@exercise
def bytes_of_a_rank(exam):
    """Check `bytes_of_a_rank(matrices, norms, replicate, shard, tensor)` for five models and meshes."""
    for matrices, norms, replicate, shard, tensor in _MODELS:
        expected = 16 * (matrices // tensor + norms) // shard
        result = exam.call(matrices, norms, replicate, shard, tensor)
        exam.require(
            near(result, expected, 0.5),
            f"With {matrices} elements in matrices, {norms} in norms, and a mesh of {replicate} replicas, {shard} "
            f"shards and {tensor} tensor ranks, rank {exam.rank} returned {show(result)}, expected {expected} bytes.",
        )
    return f"The bytes of a rank are right for {len(_MODELS)} models and meshes."


@exercise
def validation_loss(exam):
    """Check `validation_loss(model, ids, targets)`: the mean over all tokens, each sequence evaluated on one rank."""
    rank, n = exam.rank, exam.n
    for sequences in (2 * n, 2 * n + 1, n - 1):
        result, expected, evaluated = exam.on_rank(_validation, sequences)
        where = f"With {sequences} sequences, rank {rank}"
        exam.require(
            near(result, expected, 1e-9),
            f"{where} returned {show(result)}, expected {show(expected)}, the mean over all tokens. A rank may have "
            "fewer sequences than the others, or none.",
        )
        own = len(range(rank, sequences, n))
        exam.require(
            evaluated == own,
            f"The loss is right. {where} evaluated {evaluated} sequences, expected {own}, every n-th sequence.",
        )
    return "Every rank returned the mean over all tokens, even where some ranks have no sequence."


def _validation(sequences):
    """Return the loss of the learner's function, the loss of one process, and how many sequences a rank evaluated."""
    lesson = vars(learners_module())
    parts = [torch.cat(part)[:sequences] for part in zip(*map(lesson["batch"], (90, 91)), strict=True)]
    whole = lesson["new_model"](torch.float64)
    with torch.no_grad():
        expected = lesson["loss_of"](whole, *parts).item()
    model = lesson["shard"](whole, lesson["line"])
    evaluated = Counter()
    model.register_forward_pre_hook(lambda _, inputs: evaluated.update(sequences=len(inputs[0])))
    result = answer("validation_loss", [model, *parts])
    return number(result), expected, evaluated["sequences"]
