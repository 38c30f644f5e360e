"""Exercises of 15_ddp_in_practice."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_, parameters_to_vector
from torch.utils.data import DistributedSampler, TensorDataset

from helpers.checks.exam import AnswerError, Wrong, answer, exercise, number, show
from helpers.checks.patching import replaced
from helpers.checks.small_model import new_data, new_model
from helpers.torch_parts import load_dynamo

_FEATURES, _CLASSES = 4, 2
_EPOCH, _SIZE, _LEFT = 2, 3, 8  # of the saved run: its epoch, its batches, and the images of a rank in an epoch
_MIXED = {  # the dtype, the scale of the loss, and the ranks with an infinite loss
    "bf16": (torch.bfloat16, 1.0, False),
    "fp16 and a scale of 1024": (torch.float16, 1024.0, False),
    "fp16 and an image on rank 1 that overflows": (torch.float16, 1024.0, True),
}
# Of a result that was rounded a few times to the 8 bits of bf16, as in a loss outside of autocast; relative.
_ROUNDING = 0.05
_RATE = 0.1  # the learning rate: a step whose gradients were clipped moves the weights by this


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
            f"At batch {batch} of epoch {_EPOCH}, with {_SIZE} images a batch, `my_remaining` on rank {rank} returned "
            f"{result}, expected {expected}.{hint}",
        )
    saved = exam.on_rank(_save_and_resume)
    exam.require(
        saved["exists"],
        f"When `my_save` returned on rank {rank}, the file did not exist yet, expected the saved run. Which call "
        "waits for rank 0?",
    )
    exam.require(saved["unchanged"], f"On rank {rank} `my_save` changed the run, expected it unchanged.")
    files, expected = saved["files"], ["checkpoint.pt"] if rank == 0 else []
    wanted = "only checkpoint.pt" if rank == 0 else "none: only rank 0 writes"
    exam.require(files == expected, f"Rank {rank} left the files {', '.join(files) or 'none'}, expected {wanted}.")
    exam.require(
        saved["is_new"],
        f"Rank {rank} wrote into the file of an earlier save, expected a new file with a temporary name, which is then "
        "renamed: otherwise a rank may see half a file.",
    )
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
        own,
        f"After `my_resume`, the state of rank {rank}'s generator differs, expected its state when the run was saved.",
    )
    return "Every rank resumes with weights, momentum and position, its own generator, and the images that are left."


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
            f"{where} the backward pass ran under autocast, expected only the forward pass and the loss.",
        )
        exam.require(
            abs(result["scaled"] / scale - 1) < 0.05,
            f"{where} the local gradient is {result['scaled']:.4g} times the gradient of the loss, expected "
            f"{scale:g}: `scaler` multiplies the loss.",
        )
        exam.require(
            result["updated"], f"{where} `my_step` did not call `scaler.update()`, expected a call in every step."
        )
        if not result["updated"]:
            continue
        if overflows:
            exam.require(
                result["moved"][0] == 0,
                f"{where} the step moved the weights by {result['moved'][0]:.3g}, expected 0: on an overflow the step "
                "must be skipped.",
            )
            exam.require(
                result["scale"] == scale / 2,
                f"{where} the scale is {result['scale']:g} after the step, expected {scale / 2:g}: update the scaler "
                "in every step.",
            )
            continue
        for place, (moved, off) in enumerate(zip(result["moved"], result["off"], strict=True)):
            expected = result["expected"][place]
            exam.require(
                off < _ROUNDING * expected,
                f"{where} step {place} moved the weights by {moved:.3g}, and they are off by {off:.2g}, expected the "
                f"move of one process, {expected:.3g}. Use the gradients of this step only, unscaled and then clipped "
                "to a norm of 1.",
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

    It is called with a number of images that is a multiple of the number of ranks, with one image more, and with so few
    images that some ranks may have none.
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


def _numbers_of_images(n):
    """Return numbers of images for n ranks, each with the first words of its messages."""
    return [
        (images, f"With {words} number of images, {images},")
        for images, words in ((4 * n, "an even"), (4 * n + 1, "an uneven"), (n + 2, "a small"))
    ]


# The functions below run next to the learner's code.


class _Run:
    """A small run with the parts of the lesson's `Run` that the learner's functions use."""

    def __init__(self, seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = DDP(nn.Sequential(nn.Linear(_FEATURES, 3), nn.BatchNorm1d(3), nn.Linear(3, _CLASSES)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        images = TensorDataset(torch.zeros(_LEFT * dist.get_world_size(), _FEATURES))
        self.sampler = DistributedSampler(images, seed=5)
        self.size, self.epoch, self.batch = _SIZE, 0, 0

    def train(self, steps):
        """Take this many steps on random images."""
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
        run.train(1)
        right, right_generator = run.state(), torch.get_rng_state()
        dist.barrier()
        with replaced([(os, name, _slowly(getattr(os, name))) for name in ("rename", "replace")]):
            answer("my_save", [str(path), run])  # ranks that do not wait until the file has its name do not find it
        exists = path_of_rank_0.exists()
        unchanged = _equal(run.state(), right) and torch.equal(torch.get_rng_state(), right_generator)
        dist.barrier()
        earlier = _inode(path)
        run.train(1)
        right, right_generator = run.state(), torch.get_rng_state()
        answer("my_save", [str(path), run])
        dist.barrier()
        is_new = earlier is None or _inode(path) != earlier
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
        "is_new": is_new,
        "numbers": {
            "`run.epoch`": (new.epoch, run.epoch),
            "`run.batch`": (new.batch, run.batch),
            "the learning rate": tuple(group["lr"] for group in groups),
        },
        "equal": {name: _equal({"": resumed[name]}, {"": right[name]}) for name in right},
        "generator": [torch.equal(resumed_generator, generators[other]) for other in (rank, 0)],
    }


def _slowly(function):
    """Return the function, which takes longer."""

    def slow(*arguments, **options):
        time.sleep(0.3)
        return function(*arguments, **options)

    return slow


def _inode(path):
    """Return the number of a file, which stays the same until another file gets its name; None without a file."""
    return path.stat().st_ino if path.exists() else None


def _equal(state, other):
    """Return whether two states hold the same tensors under each name."""
    return all(torch.equal(a, b) for name in state for a, b in zip(state[name], other[name], strict=True))


class _CountingScaler(torch.amp.GradScaler):
    """A `GradScaler` that counts its updates."""

    updates = 0

    def update(self, new_scale=None):
        """Update the scale."""
        self.updates += 1
        super().update(new_scale)


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
    scaler = _CountingScaler("cpu", init_scale=scale, enabled=enabled)
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
        if scaler.updates == number_of_step:
            break  # the scaler would refuse the next step
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
        "updated": scaler.updates == (1 if overflows else 2),
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
