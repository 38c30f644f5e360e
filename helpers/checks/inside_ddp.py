"""Exercises of 10_inside_ddp."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from helpers.checks.exam import AnswerError, answer, called, errors_of_answer, exercise, near, plain, show
from helpers.checks.small_model import compare_gradients, loss, new_data, new_model
from helpers.measure.traffic import handed_over
from helpers.torch_parts import Future

_SAMPLES = 3


class Accumulated(NamedTuple):
    """What `accumulate_all` did: forward and backward passes, the bytes that it sent, and the gradients that it left.

    Each forward pass is given by its number of samples, each backward pass by "backward".
    """

    passes: list[int | str]
    sent: int
    gradients: list[torch.Tensor | None]


class Hooked(NamedTuple):
    """The result of a hook: what it returned instead of a future (None for a future), and the model's gradients."""

    instead: list[str | None]
    gradients: list[torch.Tensor | None]


@exercise
def my_average(exam):
    """Check `my_average(tensor)`, which launches an all-reduce and returns the future of the mean over all ranks."""
    rank, n = exam.rank, exam.n
    value = exam.on_rank(_value_of_the_future, torch.tensor([2.0 * rank, 4.0 - rank, 1.0]))
    expected = [n - 1.0, 4.0 - (n - 1) / 2, 1.0]
    if exam.require(
        isinstance(value, torch.Tensor), f"Rank {rank} returned {value}, expected the future of a tensor."
    ) and exam.require(
        list(value.shape) == [len(expected)],
        f"On rank {rank} the future holds {show(value)}, expected a tensor of {len(expected)}.",
    ):
        numbers = value.tolist()
        exam.require(
            all(map(near, numbers, expected)),
            f"On rank {rank} the future holds {numbers}, expected the means {expected}.",
        )
    return "The future holds the mean over all ranks, on every rank."


@exercise
def accumulate_all(exam):
    """Check `accumulate_all(model, parts)`: gradients of the mean over all parts of all ranks, sent once.

    It is called with three parts, and then with one part. Either DDP or the answer itself may send the sum.
    """
    rank = exam.rank
    for parts in (3, 1):
        data = [[new_data(parts * other + part, _SAMPLES) for part in range(parts)] for other in range(exam.n)]
        passes, sent, gradients = exam.on_rank(_accumulate, data[rank])
        whole = new_model()
        loss(whole, sum(data, [])).backward()
        size = sum(parameter.nbytes for parameter in whole.parameters())
        times = f"With {parts} batch" + ("es" if parts > 1 else "")
        exam.require(sent == size, f"{times}, rank {rank} sent {sent} bytes of gradients, expected {size}.")
        difference = compare_gradients(_model_with(gradients), whole)
        exam.require(
            not difference,
            f"{times}, on rank {rank} {difference} those of one process on all batches, expected equal gradients.",
        )
        exam.require(
            passes == [_SAMPLES, "backward"] * parts,
            f"{times}, rank {rank} did not take one batch after the other, each with its backward.",
        )
    return f"With 3 batches and with 1, every rank sent {size} bytes and has the gradients of one process."


@exercise
def weigh(exam):
    """Check `weigh(samples, bucket)`, a communication hook that averages over samples rather than over ranks.

    The second call has other numbers of samples, with another sum.
    """
    rank, n = exam.rank, exam.n
    for case, shares in (
        ("r + 1 samples on rank r", [other + 1 for other in range(n)]),
        ("3 samples on rank 0 and 1 on each other rank", [3, *[1] * (n - 1)]),
    ):
        data = [new_data(other, share) for other, share in enumerate(shares)]
        before = len(exam.runs)
        instead, gradients = exam.on_rank(_train_with_hook, data[rank], shares[rank])
        for run, returned in zip(exam.runs[before:], instead, strict=True):
            exam.require(returned is None, f"Rank {rank} returned {returned}, expected a future.")
            exam.require(
                run.collectives == {"all_reduce": 1},
                f"Rank {rank} called {called(run.collectives)} for a bucket, expected 1 all_reduce.",
            )
        whole = new_model()
        loss(whole, data).backward()
        difference = compare_gradients(_model_with(gradients), whole)
        exam.require(
            not difference, f"With {case}, on rank {rank} {difference} those of one process, expected equal gradients."
        )
    return "Every sample has the same weight, whichever rank has it, after one all-reduce for each bucket."


def _model_with(gradients):
    model = new_model()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    return model


# The functions below run next to the learner's code.


def _value_of_the_future(tensor):
    """Return the tensor in the future that `my_average` returns, or a description of what else it returned."""
    future = answer("my_average", [tensor])
    if not isinstance(future, Future):
        return show(plain(future))
    with errors_of_answer():
        value = future.wait()
    return value if isinstance(value, torch.Tensor) else f"the future of a {type(value).__name__}"


def _accumulate(parts):
    model = DDP(new_model())
    model.register_comm_hook(None, _average)  # from Python, so that it counts
    passes = _watch(model.module)
    with handed_over() as sizes:
        answer("accumulate_all", [model, parts])
    return Accumulated(passes, sum(sizes), _gradients(model))


def _gradients(model):
    return [parameter.grad for parameter in model.parameters()]


def _watch(model):
    """Return a list of what a model does from now on: the number of samples of each forward, and each backward."""
    passes = []
    model.register_forward_pre_hook(lambda _, inputs: passes.append(len(inputs[0])))
    model[-1].bias.register_hook(lambda _: passes.append("backward"))
    return passes


def _average(_, bucket):
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def _train_with_hook(data, samples):
    """Compute gradients twice with the learner's hook, and return its results."""
    instead, errors = [], []

    def hook(samples, bucket):
        try:
            result = answer("weigh", [samples, bucket])
        except AnswerError as error:  # DDP would not pass it on
            errors.append(error)
            return _ready(bucket)
        instead.append(None if isinstance(result, Future) else show(plain(result)))
        return result if isinstance(result, Future) else _ready(bucket)

    model = DDP(new_model(), bucket_cap_mb=0.0001)
    model.register_comm_hook(samples, hook)
    for _ in range(2):  # several buckets from the second step on
        model.zero_grad()
        try:
            with errors_of_answer():
                loss(model, [data]).backward()
        except AnswerError as error:
            if "isPyObject" in str(error):
                text = "TypeError: the future of your hook holds no tensor, as that of `average` does"
                raise AnswerError(text) from error
            raise
        if errors:
            raise errors[0]
    return Hooked(instead, _gradients(model))


def _ready(bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
