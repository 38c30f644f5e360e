"""Exercises of 10_inside_ddp."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from helpers import tap
from helpers.checks.exam import AnswerError, answer, called, errors_of_answer, exercise, near, plain, show
from helpers.checks.small_model import compare_gradients, loss, model_with_gradients, new_data, new_model
from helpers.measure.traffic import handed_over
from helpers.torch_parts import Future

_SAMPLES = 3
# full, sizes, n, alpha, beta
_ARRIVALS = {
    "one bucket and no latency": ([3.0], [8.0], 4, 0.0, 0.5),
    "one bucket and a latency": ([3.0], [8.0], 4, 0.25, 0.5),
    "two ranks": ([3.0], [8.0], 2, 0.25, 0.5),
    "a link that is idle between the buckets": ([1.0, 9.0], [2.0, 2.0], 2, 0.5, 1.0),
    "a bucket that is full before its predecessor has arrived": ([1.0, 2.0], [8.0, 2.0], 2, 0.5, 1.0),
    "a queue that ends before the last bucket": ([1.0, 2.0, 30.0], [4.0, 4.0, 2.0], 2, 0.5, 1.0),
    "bucket 1 full before bucket 0": ([6.0, 1.0], [2.0, 8.0], 2, 0.5, 1.0),
}


class Accumulated(NamedTuple):
    """What `accumulate_all` did: forward and backward passes, the bytes that it sent, and the gradients that it left.

    Each forward pass is given by its number of samples, each backward pass by "backward".
    """

    passes: list[int | str]
    sent: int
    gradients: list[torch.Tensor | None]


class Spied(NamedTuple):
    """A bucket: its parameters by name, what the hook noted, whether it waited, and what it returned if no future."""

    parameters: list[str]
    noted: list[str] | None
    waited: bool
    instead: str | None


class Hooked(NamedTuple):
    """The result of a hook: what it returned instead of a future (None for a future), and the model's gradients."""

    instead: list[str | None]
    gradients: list[torch.Tensor | None]


@exercise
def my_hook(exam):
    """Check `my_hook(sent, bucket)`: it notes the bucket's parameters, and launches the all-reduce of their mean.

    Step 1 has one bucket, and step 2 has several.
    """
    rank, n = exam.rank, exam.n
    data = [new_data(other, _SAMPLES) for other in range(n)]
    whole = new_model()
    loss(whole, data).backward()
    before = len(exam.runs)
    buckets, gradients = exam.on_rank(_spied_steps, data[rank])
    for bucket in buckets:
        exam.require(bucket.instead is None, f"Rank {rank} returned {bucket.instead}, expected a future.")
        exam.require(
            not bucket.waited,
            f"Rank {rank} waited in the hook, expected a hook that returns at once: the backward pass stands still "
            "until the hook returns.",
        )
        exam.require(
            bucket.noted == bucket.parameters,
            f"For a bucket that holds `{bucket.parameters[0]}`, rank {rank} appended {_in_words(bucket.noted)} to "
            "`sent`, expected one list of the bucket's parameters.",
        )
    difference = compare_gradients(model_with_gradients(gradients), whole)
    exam.require(not difference, f"On rank {rank} {difference} the mean over all ranks, expected equal gradients.")
    for run in exam.runs[before:]:
        exam.require(
            run.collectives == {"all_reduce": 1},
            f"Rank {rank} called {called(run.collectives)} for a bucket, expected 1 all_reduce.",
        )
    return "The hook noted the parameters of each bucket, and every rank has the mean gradients of all ranks."


@exercise
def my_last_arrival(exam):
    """Check `my_last_arrival(full, sizes, n, alpha, beta)`: when the last of several buckets has arrived."""
    for case, arguments in _ARRIVALS.items():
        full, sizes, ranks, alpha, beta = arguments
        result = exam.call(list(full), list(sizes), ranks, alpha, beta)
        expected = _last_arrival(*arguments)
        exam.require(
            near(result, expected),
            f"With {case}: full = {full}, sizes = {sizes}, n = {ranks}, alpha = {alpha}, beta = {beta}, rank "
            f"{exam.rank} returned {show(result)}, expected {expected:g}.",
        )
    return f"The last bucket arrives at the right time in all {len(_ARRIVALS)} cases."


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
        difference = compare_gradients(model_with_gradients(gradients), whole)
        exam.require(
            not difference,
            f"{times}, on rank {rank} {difference} those of one process on all batches, expected equal gradients.",
        )
        exam.require(
            passes == [_SAMPLES, "backward"] * parts,
            f"{times}, rank {rank} combined its batches, expected one batch at a time, each with its own backward "
            "pass.",
        )
    return f"With 3 batches and with 1, every rank sent {size} bytes and has the gradients of one process."


@exercise
def weigh(exam):
    """Check `weigh(samples, bucket)`, a communication hook that averages over samples rather than over ranks.

    The second call has different numbers of samples, with a different sum.
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
        difference = compare_gradients(model_with_gradients(gradients), whole)
        exam.require(
            not difference, f"With {case}, on rank {rank} {difference} those of one process, expected equal gradients."
        )
    return "Every sample has the same weight, whichever rank has it, after one all-reduce for each bucket."


def _last_arrival(full, sizes, n, alpha, beta):
    end = 0.0
    for begin, size in zip(full, sizes, strict=True):
        end = max(end, begin) + 2 * (n - 1) * (alpha + beta * size / n)
    return end


def _in_words(noted):
    return noted if isinstance(noted, str) else f"the list {noted}"


# The functions below run next to the learner's code.


def _spied_steps(data):
    """Compute gradients twice with the learner's hook; return a `Spied` for each bucket, and the gradients."""
    model, sent, spied, errors = new_model(), [], [], []
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def hook(sent, bucket):
        parameters, before, waits = [names[id(p)] for p in bucket.parameters()], len(sent), []
        try:
            with tap.subscribed(tap.Wait, begin=waits.append):
                result = answer("my_hook", [sent, bucket])
        except AnswerError as error:  # DDP would not pass it on
            errors.append(error)
            return _ready(bucket)
        is_future = isinstance(result, Future)
        instead = None if is_future else show(plain(result))
        spied.append(Spied(parameters, _noted(sent[before:], names), bool(waits), instead))
        return result if is_future else _ready(bucket)

    wrapped = DDP(model, bucket_cap_mb=0.0001)
    wrapped.register_comm_hook(sent, hook)
    _backward_twice(wrapped, data, errors)
    return spied, _gradients(model)


def _noted(entries, names):
    """Return the names of the parameters if the only entry is a collection of parameters; otherwise a description."""
    if len(entries) != 1:
        return f"{len(entries)} entries" if entries else "nothing"
    (entry,) = entries
    if not isinstance(entry, list | tuple):
        return "a single tensor" if isinstance(entry, torch.Tensor) else f"a {type(entry).__name__}"
    return [names.get(id(part), type(part).__name__) for part in entry]


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
    _backward_twice(model, data, errors)
    return Hooked(instead, _gradients(model))


def _backward_twice(model, data, errors):
    """Compute gradients twice, with several buckets in the second step; raise the first of the hook's errors."""
    for _ in range(2):
        model.zero_grad()
        try:
            with errors_of_answer():
                loss(model, [data]).backward()
        except AnswerError as error:
            if "isPyObject" in str(error):
                text = "TypeError: the future of your hook holds no tensor, expected a future of one tensor"
                raise AnswerError(text) from error
            raise
        if errors:
            raise errors[0]


def _ready(bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
