"""Exercises of 49_three_dimensions: the ranks of a group, a step, the norm, messages between stages, and ZeRO.

They use names that the cells of the lesson define: `own_part`, `run_block`, `group`, `SPLIT` and the batch.
"""

import itertools

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

from helpers.checks.exam import answer, errors_of_answer, exercise, near, number, relatively_close, show
from helpers.checks.learner import learners_module
from helpers.checks.patching import replaced
from helpers.measure.traffic import by_group, recorded

_EXACT = 1e-10
_AXES = "data", "pipeline", "tensor"
_HANDED = {
    "tensor": "the step sent its tensor group",
    "data": "the step sent its data group",
    "pipeline": "the step sent other stages",
}
_BILLION = 10**9
# Parameters, ranks, stage of ZeRO, bytes of room on each.
_TRAININGS = (
    (7 * _BILLION, 8, 0, 80 * _BILLION),
    (76 * _BILLION, 1024, 0, 80 * _BILLION),
    (76 * _BILLION, 1024, 1, 80 * _BILLION),
    (76 * _BILLION, 1024, 2, 80 * _BILLION),
    (76 * _BILLION, 1024, 3, 80 * _BILLION),
    (20 * _BILLION, 6, 1, 60 * _BILLION),
    (76 * _BILLION, 8, 3, 80 * _BILLION),
    (_BILLION, 1, 2, 16 * _BILLION),
)


@exercise
def my_members(exam):
    """Check `my_members(rank, layout, axis)`: the ranks that differ from this one along that axis only.

    The check asks every rank about itself and about one other rank, in every layout.
    """
    layouts, asked_about = _layouts(exam.n), [exam.rank, (exam.rank + exam.n // 2) % exam.n]
    for layout, axis, rank in itertools.product(layouts, _AXES, asked_about):
        result = exam.call(rank, layout, axis)
        members = _numbers(result)
        expected = _line(rank, layout, axis)
        if members != expected:
            exam.refuse(
                f"In the layout {_name(layout)}, for rank {rank} along {axis}, rank {exam.rank} returned "
                f"{show(result) if members is None else members}, expected {expected}."
            )
            break
    return f"Every rank found the members of its groups in {len(layouts)} layouts."


def _numbers(result):
    """Return the numbers in a list or tuple as a list; None for anything else."""
    return [number(value) for value in result] if isinstance(result, list | tuple) else None


@exercise
def my_step(exam):
    """Check `my_step(blocks, layout)`: it leaves the gradients of one process, in one layout after another.

    The first three layouts are the stages of the task, with one axis each. A rank sends only its replica's samples
    through its blocks, and hands over no byte twice.
    """
    stages = [((axis, exam.n),) for axis in ("tensor", "data", "pipeline")]
    in_order = [layout for layout in _layouts(exam.n) if _in_order(layout)]
    layouts = stages + [layout for layout in in_order if len(layout) == len(in_order[-1])][-2:]  # several axes at once
    gradients, cuts, batch = exam.on_rank(_step_of_one_process)
    for place, layout in enumerate(layouts):
        # After a wrong step the ranks may wait for one another, which would hide what was wrong.
        if not exam.on_rank(_on_any_rank, exam.fault is not None):
            done = ("", "Stage 1 is right. ", "Stages 1 and 2 are right. ", "All stages are right. ")[min(place, 3)]
            _require_step(exam, layout, _shares(gradients, cuts, exam.rank, layout), batch, done)
    return f"The gradients equal the gradients of one process in {len(layouts)} layouts, up to {_name(layouts[-1])}."


def _require_step(exam, layout, expected, batch, done):
    """Require that a step in a layout leaves the gradients `expected`, a dictionary by name for each block."""
    where = f"{done}In the layout {_name(layout)}, on rank {exam.rank},"
    samples, gradients, times = exam.on_rank(_step_in, layout)
    share = batch // dict(layout).get("data", 1)
    exam.require(samples <= share, f"{where} {samples} samples went through a block, expected {share}.")
    for block, (found, right) in enumerate(zip(gradients, expected, strict=True)):
        for name, gradient in right.items():
            difference = _difference(found.get(name), gradient)
            exam.require(not difference, f"{where} the gradient of `{name}` in its block {block} is {difference}.")
    for axis, factor in times.items():
        exam.require(factor == 1, f"{where} {_HANDED[axis]} {factor:.3g} times the necessary bytes, expected 1 time.")


def _difference(found, expected):
    """Return in words how a gradient differs from the expected one; nothing if it does not."""
    if found is None:
        return "None, expected the gradient of one process"
    if relatively_close(found, expected, _EXACT):
        return ""
    factor = (found.norm() / expected.norm()).item()
    if relatively_close(found, factor * expected, _EXACT):
        return f"{factor:.3g} times the gradient of one process, expected equal gradients"
    return "wrong, expected the gradient of one process"


def _step_of_one_process():
    """Return the gradients of the full model by block and name, the dimension of each split, and the batch size."""
    lesson = learners_module()
    blocks = lesson.own_part(())
    out = lesson.batch_BSD
    for weights in blocks:
        out = lesson.run_block(out, weights, None)
    mse_loss(out, lesson.target_BSD).backward()
    return _gradients(blocks), lesson.SPLIT, len(lesson.batch_BSD)


def _step_in(layout):
    """Return what `my_step` does in a layout: samples through each block, gradients, and bytes of each axis.

    The bytes of an axis are divided by the bytes that every step must hand over. Axes that are switched off are left
    out.
    """
    samples = []
    lesson = learners_module()
    run_block = lesson.run_block

    def counted(x_BSD, weights, tensor):
        samples.append(len(x_BSD))
        return run_block(x_BSD, weights, tensor)

    blocks = lesson.own_part(layout)
    with replaced([(lesson, "run_block", counted)]), recorded() as messages, by_group() as handed:
        answer("my_step", [blocks, layout])
    sent = sum(message.bytes for message in messages if message.sent)
    return sum(samples) // len(blocks), _gradients(blocks), _times_the_bytes(layout, blocks, handed, sent)


def _times_the_bytes(layout, blocks, handed, sent):
    rank = dist.get_rank()
    activations = learners_module().batch_BSD.nbytes // dict(layout).get("data", 1)
    stages, data, tensor = (_line(rank, layout, axis) for axis in ("pipeline", "data", "tensor"))
    expected = {
        "tensor": 4 * len(blocks) * activations,
        "data": sum(weight.nbytes for block in blocks for weight in block.values()),
        "pipeline": activations * ((rank != stages[0]) + (rank != stages[-1])),
    }
    bytes_of = {"tensor": handed[tuple(tensor)], "data": handed[tuple(data)], "pipeline": sent}
    return {axis: bytes_of[axis] / expected[axis] for axis, _ in layout}


def _gradients(blocks):
    return [{name: weight.grad for name, weight in block.items()} for block in blocks]


def _on_any_rank(flag):
    """Return whether the flag is set on any rank."""
    flags = torch.tensor(float(flag))
    with errors_of_answer():
        dist.all_reduce(flags)
    return flags.item() > 0


@exercise
def global_norm(exam):
    """Check `global_norm(blocks, layout)`: the norm of the gradient of the whole model, on every rank."""
    rank = exam.rank
    layouts = [layout for layout in _layouts(exam.n) if _in_order(layout)]
    weights, cuts = exam.on_rank(_full_model)
    torch.manual_seed(1)
    gradients = [{name: torch.randn_like(weight) for name, weight in block.items()} for block in weights]
    expected = sum(gradient.pow(2).sum() for block in gradients for gradient in block.values()).sqrt().item()
    for layout in layouts:
        blocks = _shares(weights, cuts, rank, layout)
        for block, share in zip(blocks, _shares(gradients, cuts, rank, layout), strict=True):
            for name, weight in block.items():
                block[name] = weight.clone().requires_grad_()
                block[name].grad = share[name].clone()
        norm, changed = exam.on_rank(_norm, blocks, layout)
        exam.require(
            near(norm, expected, within=1e-9 * expected),
            f"In the layout {_name(layout)}, rank {rank} returned {_shown_norm(norm)}, expected {expected:.4f}.",
        )
        exam.require(
            not changed,
            f"The norm is right. In the layout {_name(layout)}, rank {rank} changed the gradient of `{changed}`, which "
            "the optimizer still needs.",
        )
    return f"Every rank returned the norm of the full gradient, in {len(layouts)} layouts."


def _norm(blocks, layout):
    """Return the norm of an answer, and the name of a weight whose gradient it changed, or nothing."""
    before = [{name: weight.grad.clone() for name, weight in block.items()} for block in blocks]
    norm = answer("global_norm", [[dict(block) for block in blocks], layout])
    for block, copies in zip(blocks, before, strict=True):
        for name, copy in copies.items():
            if block[name].grad is None or not torch.equal(block[name].grad, copy):
                return norm, name
    return norm, ""


def _shown_norm(norm):
    if number(norm) is not None:
        return f"{number(norm):.4f}"
    return show(norm.item() if isinstance(norm, torch.Tensor) and norm.numel() == 1 else norm)


def _full_model():
    """Return the weights of the full model, by block and name, and the dimension in which each is split."""
    lesson = learners_module()
    weights = [{name: weight.detach() for name, weight in block.items()} for block in lesson.own_part(())]
    return weights, lesson.SPLIT


@exercise
def send_slice(exam):
    """Check `send_slice` and `receive_slices`: each tensor rank sends its slice, and all receive the full output."""
    rank, ranks = exam.rank, exam.n // 2
    is_first = rank < ranks
    whole = torch.arange(4.0 * ranks * 6, dtype=torch.float64).reshape(4 * ranks, 2, 3) + 1
    partner = rank + ranks if is_first else rank - ranks
    layout = ("pipeline", 2), ("tensor", ranks)
    given = whole.clone() if is_first else torch.zeros_like(whole)
    name = "send_slice" if is_first else "receive_slices"
    result, handed = exam.on_rank(_between_stages, name, given, partner, layout)
    if is_first:
        sent = sum(message.bytes for message in exam.messages if message.sent and message.peer >= ranks)
        sent += sum(size for members, size in handed.items() if min(members) < ranks <= max(members))
        exam.require(
            sent == whole.nbytes // ranks,
            f"Rank {rank} sent {sent} bytes to the next stage, expected {whole.nbytes // ranks}, which is "
            f"1/{ranks} of {whole.nbytes} bytes.",
        )
    else:
        exam.require(
            getattr(result, "shape", None) == whole.shape and bool((result == whole).all()),
            f"Rank {rank} returned {_differing(result, whole)}, expected the output of rank {partner}.",
        )
    return f"Every rank of the next stage received the full output, and each of {ranks} ranks sent 1/{ranks} of it."


def _differing(result, expected):
    """Return in words what a rank returned instead of the expected tensor."""
    if getattr(result, "shape", None) == expected.shape:
        return "other values"
    return f"shape {tuple(result.shape)}" if isinstance(result, torch.Tensor) else show(result)


def _between_stages(name, given, partner, layout):
    """Return the result of `send_slice` or `receive_slices`, and the bytes handed to collectives, by their ranks."""
    with by_group() as handed:
        result = answer(name, [given, partner, learners_module().group("tensor", layout)])
    return result, handed


@exercise
def model_parallel_size(exam):
    """Check `model_parallel_size(parameters, gpus, stage, room)`: the smallest number of ranks that share a replica."""
    for parameters, gpus, stage, room in _TRAININGS:
        result = exam.call(parameters, gpus, stage, room)
        expected = _model_parallel_size(parameters, gpus, stage, room)
        needs = ""
        if expected is not None:
            needs = f", which leaves {_states(parameters, gpus, stage, expected) / _BILLION:.1f} GB"
        exam.require(
            result is None if expected is None else number(result) == expected,
            f"For {parameters / _BILLION:g} billion parameters, {gpus} GPUs with room for {room / _BILLION:g} GB and "
            f"ZeRO stage {stage}, rank {exam.rank} returned {show(result)}, expected {expected}{needs}.",
        )
    return f"Every rank found the smallest p · t for each of {len(_TRAININGS)} trainings."


def _layouts(n):
    """Return every layout of n ranks: each factorisation, with its axes in each order."""
    layouts = set()
    for sizes in itertools.product(range(1, n + 1), repeat=3):
        if sizes[0] * sizes[1] * sizes[2] == n:
            pairs = [pair for pair in zip(_AXES, sizes, strict=True) if pair[1] > 1]
            layouts.update(itertools.permutations(pairs))
    return sorted(layouts, key=lambda layout: (len(layout), layout))


def _in_order(layout):
    return [axis for axis, _ in layout] == sorted(axis for axis, _ in layout)


def _name(layout):
    return " x ".join(f"{axis} {size}" for axis, size in layout)


def _line(rank, layout, axis):
    """Return the ranks that differ from a rank along an axis only, and the rank itself."""
    stride, size = 1, 1
    for name, length in reversed(layout):
        if name == axis:
            size = length
            break
        stride *= length
    first = rank - rank // stride % size * stride
    return [first + step * stride for step in range(size)]


def _shares(whole, cuts, rank, layout):
    """Return the part of a rank in a layout, of tensors that are given for every block of the model."""
    size = dict(layout)
    stage = _line(rank, layout, "pipeline").index(rank)
    share = _line(rank, layout, "tensor").index(rank)
    per_stage = len(whole) // size.get("pipeline", 1)

    def cut(name, tensor):
        dimension = cuts[name]
        return tensor if dimension is None else tensor.chunk(size.get("tensor", 1), dimension)[share]

    blocks = whole[stage * per_stage : (stage + 1) * per_stage]
    return [{name: cut(name, tensor) for name, tensor in block.items()} for block in blocks]


def _states(parameters, gpus, stage, cuts):
    """Return the bytes of model states on each GPU, with ZeRO among the replicas."""
    replicas = gpus // cuts
    whole = sum((12, 2, 2)[stage:])
    return parameters * (whole + (16 - whole) / replicas) / cuts


def _model_parallel_size(parameters, gpus, stage, room):
    for cuts in range(1, gpus + 1):
        if gpus % cuts == 0 and _states(parameters, gpus, stage, cuts) <= room:
            return cuts
    return None
