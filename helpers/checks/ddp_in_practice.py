"""Exercises of 14_ddp_in_practice."""

import builtins
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_, parameters_to_vector
from torch.utils.data import DistributedSampler, TensorDataset

from helpers.checks.exam import AnswerError, Wrong, answer, exercise, number, show
from helpers.checks.judging import CUT_OFF
from helpers.checks.learner import learners_module
from helpers.checks.small_model import new_data, new_model
from helpers.measure.traffic import handed_over
from helpers.torch_parts import load_dynamo

_FEATURES, _CLASSES = 4, 2
_DARK, _BRIGHT = torch.full((3, _FEATURES), 0.1), torch.full((3, _FEATURES), 0.9)
_BATCHES = {
    "dark images": _DARK,
    "bright images": _BRIGHT,
    "dark and bright images in one batch": torch.cat([_DARK[:1], _BRIGHT]),  # its mean is bright
}


@exercise
def my_same(exam):
    """Check `my_same(tensor)`: every rank says whether the tensor is the same on all ranks, sending a few numbers.

    It is called with equal tensors, with one bit changed or two elements swapped on one rank, with another tensor on
    each rank, and with a bf16 tensor and a transposed one.
    """
    rank, n = exam.rank, exam.n
    for case, changed, how in (
        ("all ranks hold the same", None, ""),
        ("one bit has changed on the last rank", n - 1, "bit"),
        ("two numbers have swapped places on rank 1", 1, "swap"),
        ("one bit has changed on rank 0", 0, "bit"),
        ("each rank holds another tensor", rank, "own"),
        ("all ranks hold the same bf16 tensor", None, "bf16"),
        ("all ranks hold the same transposed tensor", None, "transposed"),
    ):
        tensor = torch.arange(1.0, 257.0)
        if how == "bf16":
            tensor = tensor.bfloat16()
        elif how == "transposed":
            tensor = tensor.view(8, 32).T
        elif rank == changed:
            _change(tensor, how, rank)
        result, sent, _ = exam.on_rank(_call_and_count, "my_same", tensor)
        exam.require(
            sent < 512,
            f"Rank {rank} sent {sent} bytes, expected fewer than 512, half of a tensor of 256 float32 values.",
        )
        verdict, expected = _as_bool(result), changed is None
        exam.require(verdict is expected, f"When {case}, rank {rank} returned {show(verdict)}, expected {expected}.")
    return "Every rank knows whether all hold the same, and only a few numbers were sent."


_EPOCH, _SIZE, _LEFT = 2, 3, 8  # of the saved run: its epoch, its batches, and the images of a rank in an epoch


@exercise(also=["my_remaining", "my_save"])
def my_resume(exam):
    """Check `my_remaining(run)`, `my_save(path, run)` and `my_resume(path, run)`, in this order."""
    rank = exam.rank
    for batch in (0, 1, 2):
        result, order, order_of_epoch_0 = exam.on_rank(_remaining, batch)
        expected = order[batch * _SIZE :]
        hint = ""
        if batch and result == order:
            hint = " (These are all images of the epoch.)"
        elif result == order_of_epoch_0[batch * _SIZE :]:
            hint = " (This is the order of epoch 0.)"
        exam.require(
            result == expected,
            f"After {batch} batches of {_SIZE} images in epoch {_EPOCH}, `my_remaining` on rank {rank} returned "
            f"{result}, expected {expected}.{hint}",
        )
    saved = exam.on_rank(_save_and_resume)
    exam.require(
        saved["exists"], f"When `my_save` returned on rank {rank}, the file did not exist yet. Which call waits for it?"
    )
    exam.require(saved["unchanged"], f"On rank {rank} `my_save` changed the run, expected that it only reads it.")
    files, expected = saved["files"], ["checkpoint.pt"] if rank == 0 else []
    wanted = "only checkpoint.pt" if rank == 0 else "that only rank 0 writes"
    exam.require(files == expected, f"Rank {rank} left the files {', '.join(files) or 'none'}, expected {wanted}.")
    for name, (resumed, right) in saved["numbers"].items():
        exam.require(resumed == right, f"After `my_resume`, on rank {rank} {name} is {resumed}, expected {right}.")
    for name, is_equal in saved["equal"].items():
        exam.require(is_equal, f"After `my_resume`, on rank {rank} the {name} differ from the saved run's.")
    own, of_rank_0 = saved["generator"]
    exam.require(
        own or not of_rank_0,
        f"After `my_resume`, the generator of rank {rank} is in the state of rank 0's generator, expected its own.",
    )
    exam.require(
        own, f"After `my_resume`, the generator of rank {rank} is in another state than when the run was saved."
    )
    return "Every rank resumes with weights, momentum and position, its own generator, and the images that are left."


_MIXED = {  # the dtype, the scale of the loss, and the ranks with an infinite loss
    "bf16": (torch.bfloat16, 1.0, False),
    "fp16 and a scale of 1024": (torch.float16, 1024.0, False),
    "fp16 and an image on rank 1 that overflows": (torch.float16, 1024.0, True),
}
# Of a result that was rounded a few times to the 8 bits of bf16, as in a loss outside of autocast; relative.
_ROUNDING = 0.05
_RATE = 0.1  # the learning rate: a step whose gradients were clipped moves the weights by this


@exercise
def my_step(exam):
    """Check `my_step(model, optimizer, scaler, images, labels, dtype)`: autocast, loss scaling and clipping."""
    rank, n = exam.rank, exam.n
    for case, (dtype, scale, overflows) in _MIXED.items():
        where = f"With {case}, on rank {rank}"
        result = exam.on_rank(_mixed_steps, rank, n, dtype, scale, overflows)
        exam.require(
            result["outputs"] == str(dtype),
            f"{where} the model's outputs are in {result['outputs']}, expected {dtype}: the forward pass runs under "
            "autocast.",
        )
        exam.require(
            not result["backward under autocast"],
            f"{where} the backward pass ran under autocast, expected that only the forward pass and the loss do.",
        )
        exam.require(
            abs(result["scaled"] / scale - 1) < 0.05,
            f"{where} the local gradient is {result['scaled']:.4g} times the gradient of the loss, expected "
            f"{scale:g}: `scaler` multiplies the loss.",
        )
        if overflows:
            exam.require(
                result["moved"][0] == 0,
                f"{where} the step moved the weights by {result['moved'][0]:.3g}, expected that it is skipped.",
            )
            exam.require(
                result["scale"] == scale / 2,
                f"{where} the scale is {result['scale']:g} after the step, expected {scale / 2:g}: "
                "the scaler is updated in every step.",
            )
            continue
        for place, (moved, off) in enumerate(zip(result["moved"], result["off"], strict=True)):
            expected = result["expected"][place]
            exam.require(
                off < _ROUNDING * expected,
                f"{where} step {place} moved the weights by {moved:.3g}, {off:.2g} away from where one process ends, "
                f"expected {expected:.3g}, with the gradients of this step only, unscaled and then clipped to a norm "
                "of 1.",
            )
        loss = number(result["loss"])
        exam.require(
            loss is not None and abs(loss / result["expected loss"] - 1) < _ROUNDING,
            f"{where} `my_step` returned {show(result['loss'])}, expected the loss of this rank, "
            f"{result['expected loss']:.4f}.",
        )
        exam.require(
            result["weights"] == "torch.float32", f"{where} the weights are in {result['weights']}, expected float32."
        )
    return "The forward pass ran in 16 bits, and each step followed the loss's clipped gradients, whatever its scale."


@exercise(own_group=True)
def forward(exam):
    """Check `forward(self, x)` of a model with a branch: same outputs and gradients, under DDP with no option."""
    rank, n, original = exam.rank, exam.n, _model(_forward)
    outputs, error, gradients = exam.on_rank(_outputs_and_gradients, rank)
    for (name, images), output in zip(_BATCHES.items(), outputs, strict=True):
        exam.require(
            _close(output, original(images)), f"On rank {rank} the output for {name} differs from the original output."
        )
    together = f"With a dark batch on rank 0 and bright ones elsewhere, on rank {rank}"
    exam.require(not error or CUT_OFF.search(error), f"{together} {error}")
    exam.require(not error, f"Under DDP, rank {rank} waited in vain for a gradient of another rank.")
    for other in range(n):  # two steps, and their mean over the ranks
        (2 / n * original(_BRIGHT if other else _DARK).sum()).backward()
    for (name, parameter), gradient in zip(original.named_parameters(), gradients, strict=True):
        exam.require(
            _close(gradient, parameter.grad, rtol=1e-3, atol=1e-5),
            f"{together} the gradient of {name} is not the mean over the ranks' batches.",
        )
    return "Outputs and gradients are the same, and every parameter takes part on every rank."


class Counting(nn.Module):
    """A model that predicts the class by the only feature of an image, and counts the images."""

    def __init__(self):
        super().__init__()
        self.register_buffer("evaluated", torch.zeros((), dtype=torch.long))

    def forward(self, images):
        """Return the scores of images, of shape (images, classes)."""
        self.evaluated += len(images)
        return nn.functional.one_hot(images[:, 0].long(), _CLASSES).double()


def _judge_together(returned):
    for images, case in _numbers_of_images(len(returned)):
        evaluated = sum(of_rank[images] for of_rank in returned)
        if evaluated < images:
            raise Wrong(f"{case} the ranks evaluated only {evaluated} of them, expected all.")
    return "Every rank returned the exact share, and evaluated no more than its own images."


@exercise(together=_judge_together)
def accuracy(exam):
    """Check `accuracy(model, data)`: every rank returns the exact accuracy, with each image evaluated once.

    It is called with a number of images that is a multiple of the number of ranks, and with one image more.
    """
    rank, n, evaluated = exam.rank, exam.n, {}
    for images, case in _numbers_of_images(n):
        # The model is right on the first half only, so that an image that counts twice changes the accuracy.
        right = torch.arange(images) < images // 2
        data = TensorDataset(right.double()[:, None], torch.ones(images, dtype=torch.long))
        model = Counting()
        result = exam.call(model, data)
        evaluated[images] = model.evaluated.item()
        share, expected, most = number(result), (images // 2) / images, -(-images // n)
        exam.require(share is not None, f"Rank {rank} returned {show(result)}, expected a number.")
        exam.require(
            evaluated[images] <= most,
            f"{case} rank {rank} evaluated {evaluated[images]} of them, expected at most {most}.",
        )
        if share is not None:
            exam.require(
                abs(share - expected) <= 1e-6, f"{case} rank {rank} returned {share:.4f}, expected {expected:.4f}."
            )
    return evaluated


@exercise
def out_of_step(exam):
    """Check `out_of_step(model)`: every rank lists the ranks whose weights differ from rank 0's.

    It is called with equal weights, and with one bit changed or two weights swapped on one rank.
    """
    rank, n = exam.rank, exam.n
    for case, changed, how, expected in (
        ("no rank has changed", None, "", []),
        ("one bit has changed on the last rank", n - 1, "bit", [n - 1]),
        ("two weights have swapped places on rank 1", 1, "swap", [1]),
        ("a bit has changed on rank 0", 0, "bit", list(range(1, n))),
        ("the last bit of all has changed on the last rank", n - 1, "last bit", [n - 1]),
    ):
        model = _layers()
        size = sum(parameter.nbytes for parameter in model.parameters())
        if rank == changed:
            _change(model[2].bias.data if how == "last bit" else model[0].weight.data.view(-1), how, rank)
        result, sent, hashed = exam.on_rank(_call_and_count, "out_of_step", model)
        exam.require(sent < size / 4, f"Rank {rank} sent {sent} bytes, expected fewer than {size // 4}.")
        ranks = _listed(result)
        hint = " (`hash` of text and bytes differs between processes that start separately.)"
        exam.require(
            ranks == expected,
            f"When {case}, rank {rank} returned {ranks}, expected {expected}." + hint * hashed,
        )
    return "Every rank names the ranks that have drifted, and no weights were sent."


def _change(numbers, how, rank):
    """Change a tensor of one dimension in place."""
    if how == "swap":
        numbers[[0, _FEATURES + 1]] = numbers[[_FEATURES + 1, 0]]  # weights in different rows and columns
    elif how == "own":
        numbers += rank
    else:
        numbers[-1 if how == "last bit" else 0].nextafter_(torch.tensor(9.0))


def _as_bool(result):
    """Return a bool for True, False, 1 and 0, even in a tensor with one element, and anything else as it is."""
    if isinstance(result, torch.Tensor | np.ndarray) and len(result.reshape(-1)) == 1:
        result = result.item()
    return bool(result) if isinstance(result, int | float) and result in (0, 1) else result


def _listed(result):
    """Return as a list the ranks that an answer returned, and anything else as it is."""
    if isinstance(result, torch.Tensor | np.ndarray):
        return result.tolist()
    if isinstance(result, list | tuple | set):
        return [show(part) if number(part) is None else number(part) for part in result]
    return result


def _close(tensor, expected, **tolerances):
    """Return whether a value is a tensor that has the expected shape, dtype and, except for rounding, elements."""
    if not isinstance(tensor, torch.Tensor) or (tensor.shape, tensor.dtype) != (expected.shape, expected.dtype):
        return False
    return torch.allclose(tensor, expected, **tolerances)


def _numbers_of_images(n):
    """Return two numbers of images for n ranks, each with the first words of its messages."""
    return [
        (images, f"With {words} number of images, {images},")
        for images, words in ((4 * n, "an even"), (4 * n + 1, "an uneven"))
    ]


def _layers():
    """Return a model for `out_of_step`, identical in every call and on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(_FEATURES, 64), nn.ReLU(), nn.Linear(64, _CLASSES))


def _model(forward):
    """Return a model with the layers of the exercise, identical in every call and on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = type("Gated", (nn.Module,), {"forward": forward})()
        model.body, model.extra = nn.Linear(_FEATURES, _FEATURES), nn.Linear(_FEATURES, _FEATURES)
        return model


def _forward(self, x):
    """Compute what the exercise computes on one device."""
    hidden = self.body(x)
    return self.extra(hidden) if x.mean() > 0.5 else hidden


# The functions below run next to the learner's code.


class _Run:
    """A small run with what the learner's functions use of the lesson's `Run`."""

    def __init__(self, seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = DDP(nn.Sequential(nn.Linear(_FEATURES, 3), nn.BatchNorm1d(3), nn.Linear(3, _CLASSES)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        images = TensorDataset(torch.zeros(_LEFT * dist.get_world_size(), _FEATURES))
        self.sampler = DistributedSampler(images, seed=5)
        self.size, self.epoch, self.batch = _SIZE, 0, 0

    def train(self, steps):
        """Take so many steps on random images."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.randn(_SIZE, _FEATURES)).square().sum().backward()
            self.optimizer.step()
            self.batch += 1

    def state(self):
        """Return copies of all tensors that the next step depends on."""
        momentum = [self.optimizer.state[p].get("momentum_buffer") for p in self.model.parameters()]
        buffers = list(self.model.buffers())
        return {
            "weights": [p.detach().clone() for p in self.model.parameters()],
            "buffers of BatchNorm": [buffer.clone() for buffer in buffers],
            "momentum values": [torch.zeros(()) if value is None else value.clone() for value in momentum],
        }


def _orders(sampler):
    """Return the images of this rank in the saved epoch and in epoch 0."""
    orders = []
    for epoch in (_EPOCH, 0):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    return orders


def _remaining(batch):
    load_dynamo()
    dist.barrier()
    run = _Run(1)
    orders = _orders(run.sampler)
    run.epoch, run.batch = _EPOCH, batch
    result = answer("my_remaining", [run])
    try:
        result = [int(index) for index in result]
    except TypeError:
        result = show(result)
    return result, *orders


def _save_and_resume():
    load_dynamo()
    rank, generator = dist.get_rank(), torch.get_rng_state()
    folders = [None] * dist.get_world_size()
    dist.all_gather_object(folders, tempfile.mkdtemp(prefix="checkpoint-"))
    folder = Path(folders[rank])
    path, path_of_rank_0 = folder / "checkpoint.pt", Path(folders[0]) / "checkpoint.pt"
    try:
        torch.manual_seed(10 + rank)
        run = _Run(1)
        run.epoch = _EPOCH
        run.optimizer.param_groups[0]["lr"] = 0.05
        run.train(2)
        right, right_generator = run.state(), torch.get_rng_state()
        if rank == 0:  # other ranks that do not wait for the file do not find it
            run.optimizer.register_state_dict_pre_hook(lambda optimizer: time.sleep(0.3))
        dist.barrier()
        answer("my_save", [str(path), run])
        exists = path_of_rank_0.exists()
        unchanged = _equal(run.state(), right) and torch.equal(torch.get_rng_state(), right_generator)
        dist.barrier()
        files = sorted(file.name for file in folder.iterdir())
        if rank and path_of_rank_0.exists():
            shutil.copy(path_of_rank_0, path)
        new = _Run(2)
        torch.manual_seed(90 + rank)
        answer("my_resume", [str(path), new])
        resumed, resumed_generator = new.state(), torch.get_rng_state()
        generators = [torch.empty_like(right_generator) for _ in folders]
        dist.all_gather(generators, right_generator)
        buffers = [buffer.clone() for buffer in right["buffers of BatchNorm"]]
        for buffer in buffers:
            dist.broadcast(buffer, src=0)
        if _equal({"": resumed["buffers of BatchNorm"]}, {"": buffers}):
            right["buffers of BatchNorm"] = buffers  # DDP sends those of rank 0 in the next step
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        torch.set_rng_state(generator)
    groups = new.optimizer.param_groups[0], run.optimizer.param_groups[0]
    return {
        "exists": exists,
        "unchanged": unchanged,
        "files": files,
        "numbers": {
            "`run.epoch`": (new.epoch, run.epoch),
            "`run.batch`": (new.batch, run.batch),
            "the learning rate": tuple(group["lr"] for group in groups),
        },
        "equal": {name: _equal({"": resumed[name]}, {"": right[name]}) for name in right},
        "generator": [torch.equal(resumed_generator, generators[other]) for other in (rank, 0)],
    }


def _equal(state, other):
    """Return whether two states hold the same tensors under each name."""
    return all(torch.equal(a, b) for name in state for a, b in zip(state[name], other[name], strict=True))


def _mixed_steps(rank, n, dtype, scale, overflows):
    """Return what two steps of the learner's `my_step` did, or one step if an image overflows on rank 1."""
    load_dynamo()
    dist.barrier()
    enabled = dtype is torch.float16
    modules = new_model(), new_model()
    for module in modules:
        module[-1].weight.data *= 8  # so that the norm of the gradients is well above 1
    model, reference = DDP(modules[0]), modules[1]
    optimizer, alone = (torch.optim.SGD(m.parameters(), lr=_RATE) for m in (model, reference))
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=enabled)
    outputs, local, under_autocast = [], [], []

    def note_gradient(gradient):
        local.append(gradient.detach().clone())
        under_autocast.append(torch.is_autocast_enabled("cpu"))

    model.module[-1].register_forward_hook(lambda module, inputs, output: outputs.append(output))
    model.module[-1].bias.register_hook(note_gradient)
    moved, expected, off = [], [], []
    for number_of_step in range(1 if overflows else 2):
        data = [new_data(10 * number_of_step + other, 6) for other in range(n)]
        data = [(4 * images, labels) for images, labels in data]  # so that clipping matters
        images, labels = data[rank]
        if overflows and rank == 1:
            images = images * 1e6  # more than fp16 can hold
        before, start = _weights(model.module), _weights(reference)
        losses = _reference_step(reference, alone, data, dtype)
        loss = answer("my_step", [model, optimizer, scaler, images, labels, dtype])
        after, end = _weights(model.module), _weights(reference)
        moved.append((after - before).norm().item())
        expected.append((end - start).norm().item())
        off.append((after - end).norm().item())
    if not outputs or not local:
        raise AnswerError("`my_step` did not call the model and its backward pass.")
    (own,) = torch.autograd.grad(
        nn.functional.cross_entropy(bias := outputs[-1].detach().float().requires_grad_(), labels), bias
    )
    ratio = 1.0 * scale if overflows else (local[-1].norm() / own.sum(dim=0).norm()).item()
    return {
        "outputs": str(outputs[-1].dtype),
        "backward under autocast": any(under_autocast),
        "scaled": ratio,
        "moved": moved,
        "expected": expected,
        "off": off,
        "loss": loss,
        "expected loss": losses[rank],
        "scale": scaler.get_scale(),
        "weights": str(next(model.parameters()).dtype),
    }


def _reference_step(model, optimizer, data, dtype):
    """Take the step of all ranks in this process, and return the losses of the ranks."""
    optimizer.zero_grad()
    losses = []
    for images, labels in data:
        with torch.autocast("cpu", dtype):
            loss = nn.functional.cross_entropy(model(images), labels)
        (loss / len(data)).backward()
        losses.append(loss.item())
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return losses


def _weights(model):
    return parameters_to_vector(model.parameters()).detach().clone()


def _call_and_count(name, argument):
    """Return the result of a function, the bytes that it sent, and whether it hashed text or bytes."""
    with handed_over() as sizes, _hash_of_its_own() as hashed:
        result = answer(name, [argument])
    return result, sum(sizes), bool(hashed)


def _outputs_and_gradients(rank):
    """Return the outputs of the learner's `forward`, and the error and the gradients of two steps under DDP."""
    load_dynamo()
    dist.barrier()
    # A rank that waits in vain ends soon, and a right answer has enough time even on a busy machine.
    brief = dist.new_group(timeout=timedelta(seconds=8))
    model = _model(lambda layers, images: vars(learners_module())["forward"](layers, images))
    with torch.no_grad():
        outputs = [answer("forward", [model, images.clone()]) for images in _BATCHES.values()]
    error = ""
    try:
        wrapped = DDP(model, process_group=brief)
        for _ in range(2):
            wrapped(_BRIGHT if rank else _DARK).sum().backward()
    except Exception as raised:
        unused = "finished reduction" in str(raised)
        error = (
            "a parameter had no part in the loss, expected all to take part."
            if unused
            else f"{type(raised).__name__}: {raised}"
        )
    return outputs, error, [parameter.grad for parameter in model.parameters()]


@contextmanager
def _hash_of_its_own():
    """Give cells the `hash` that ranks would have under torchrun, and list the text and bytes that they hash.

    Python salts it for each process, but ranks that are forked share the salt.
    """
    hashed = []

    def salted(value):
        if not isinstance(value, str | bytes):
            return builtins.hash(value)
        hashed.append(value)
        return builtins.hash((os.getpid(), value))

    learners_module().hash = salted
    try:
        yield hashed
    finally:
        del learners_module().hash
