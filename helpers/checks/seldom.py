"""Exercises of 17_seldom: local SGD, DiLoCo's outer step, and what an average of weights leaves out."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from helpers.checks.exam import answer, called, exercise, show, times_in_words
from helpers.checks.small_model import new_data, new_model
from helpers.measure.traffic import handed_over

_BATCHES, _RATE = 7, 0.1
_LENGTH = 6  # of the vectors of weights


@exercise
def my_local_sgd(exam):
    """Check `my_local_sgd(model, optimizer, batches, period, synchronise)`: first its steps, then its rounds."""
    rank, n = exam.rank, exam.n
    alone, calls, used, one_at_a_time = exam.on_rank(_train, rank, n, _BATCHES + 1)
    expected, _ = _trained(rank, n, _BATCHES + 1)
    exam.require(used == _BATCHES, f"Rank {rank} used {used} of {_BATCHES} batches, expected all of them.")
    exam.require(
        not calls,
        f"With a period longer than the training, rank {rank} called `synchronise` {times_in_words(len(calls))}, "
        "expected no call.",
    )
    exam.require(
        _close(alone, expected),
        f"With a period longer than the training, on rank {rank} the weights are off by {_off(alone, expected)}, "
        f"expected {_BATCHES} steps of this rank alone.",
    )
    exam.require(
        one_at_a_time,
        f"The weights are right, but rank {rank} fetched a batch before it had taken the step on the previous batch. "
        "Fetch one batch, take its step, then fetch the next batch.",
    )
    for period in (3, 1):
        weights, calls, *_ = exam.on_rank(_train, rank, n, period)
        expected, expected_calls = _trained(rank, n, period)
        where = f"With a period of {period} and {_BATCHES} batches,"
        if not exam.require(
            len(calls) == len(expected_calls),
            f"{where} rank {rank} called `synchronise` {times_in_words(len(calls))}, expected {len(expected_calls)}.",
        ):
            continue
        for place, ((start, own), (right_start, right_own)) in enumerate(zip(calls, expected_calls, strict=True)):
            in_round = f"{where} at the end of round {place + 1} on rank {rank}"
            exam.require(
                _close(own, right_own),
                f"{in_round} `own` is off by {_off(own, right_own)}, expected the weights after {period} steps from "
                "the weights that `synchronise` returned last.",
            )
            exam.require(
                _close(start, right_start),
                f"{in_round} `start` is off by {_off(start, right_start)}, expected the weights from which the round "
                "started, in a vector of its own.",
            )
        exam.require(
            _close(weights, expected),
            f"{where} on rank {rank} the weights are off by {_off(weights, expected)} at the end, expected the model "
            "to continue from the weights that `synchronise` returned.",
        )
    return "Every rank trained on its batches, and continued after each round from what `synchronise` returned."


@exercise
def my_outer_step(exam):
    """Check `my_outer_step(start, own, velocity, eta, mu)`: the average, then the rate, then Nesterov momentum."""
    rank, n = exam.rank, exam.n
    vectors = _vectors(n)
    mean_of_own = vectors.mean(dim=0)
    start, velocity = torch.linspace(-1, 1, _LENGTH), torch.linspace(2, 3, _LENGTH)
    cases = (
        ("With eta = 1 and mu = 0", torch.zeros(_LENGTH), (1.0, 0.0), "the mean of `own` over the ranks"),
        ("With eta = 0.5 and mu = 0", torch.zeros(_LENGTH), (0.5, 0.0), "half of the way to the mean"),
        ("With a velocity of zeros, eta = 0.7 and mu = 0.9", torch.zeros(_LENGTH), (), "start - eta * (g + mu * v)"),
        ("With a velocity, eta = 0.7 and mu = 0.9", velocity, (), "start - eta * (g + mu * v)"),
    )
    for where, before, options, words in cases:
        eta, mu = options or (0.7, 0.9)
        right_velocity = mu * before + start - mean_of_own
        right_start = start - eta * (start - mean_of_own + mu * right_velocity)
        arguments = [start.clone(), vectors[rank].clone(), before.clone()]
        result = exam.call(*arguments, *options)
        if not exam.require(
            _are_vectors(result),
            f"Rank {rank} returned {_kinds(result)}, expected two vectors of {_LENGTH} elements: the next start and "
            "the next velocity.",
        ):
            continue
        new_start, new_velocity = result
        if mu:  # otherwise no start depends on the velocity
            exam.require(
                _close(new_velocity, right_velocity),
                f"{where}, on rank {rank} the new velocity is {_rounded(new_velocity)}, expected mu * v + g, "
                f"{_rounded(right_velocity)}.",
            )
        exam.require(
            _close(new_start, right_start),
            f"{where}, on rank {rank} the new start is {_rounded(new_start)}, expected {words}, "
            f"{_rounded(right_start)}.",
        )
        exam.require(
            exam.collectives == {"all_reduce": 1},
            f"The values are right. Rank {rank} called {called(exam.collectives)}, expected 1 all_reduce.",
        )
        exam.require(
            all(map(torch.equal, arguments, (start, vectors[rank], before))),
            f"The values are right, but rank {rank} changed an argument, expected all arguments to stay unchanged.",
        )
    return "Every rank returned the same start and velocity, after one all_reduce."


@exercise
def pooled_statistics(exam):
    """Check `pooled_statistics(norm)`: the mean and the variance over the samples of all ranks."""
    rank, n = exam.rank, exam.n
    means = torch.arange(1.0, n + 1)[:, None] * torch.tensor([1.0, -2.0])
    variances = torch.arange(1.0, n + 1)[:, None] * torch.tensor([0.5, 1.0])
    right_mean = means.mean(dim=0)
    right_variance = variances.mean(dim=0) + means.var(dim=0, unbiased=False)
    result = exam.on_rank(_pooled, means[rank], variances[rank])
    mean, variance = result
    exam.require(
        _close(mean, right_mean),
        f"On rank {rank} `running_mean` is {_rounded(mean)}, expected the mean over the ranks, {_rounded(right_mean)}.",
    )
    exam.require(
        _close(variance, right_variance),
        f"`running_mean` is right. On rank {rank} `running_var` is {_rounded(variance)}, expected "
        f"{_rounded(right_variance)}: the mean of the variances plus the variance of the means.",
    )
    count = sum(exam.collectives.values())
    exam.require(
        count <= 2,
        f"The statistics are right. Rank {rank} called {called(exam.collectives)}, expected at most 2 collectives.",
    )
    return "Every rank holds the mean and the variance over the samples of all ranks."


@exercise
def streamed_average(exam):
    """Check `streamed_average(own, number, fragments)`: the mean of one fragment, with only this fragment sent."""
    rank, n = exam.rank, exam.n
    vectors = _vectors(n)
    for turn, fragments in ((0, 3), (5, 3), (2, 4), (1, 1)):
        place = turn % fragments
        expected = list(vectors[rank].tensor_split(fragments))
        expected[place] = vectors.mean(dim=0).tensor_split(fragments)[place]
        expected = torch.cat(expected)
        own = vectors[rank].clone()
        where = f"With number = {turn} and fragments = {fragments},"
        result, sizes = exam.on_rank(_streamed, own, turn, fragments)
        exam.require(
            _close(result, expected),
            f"{where} rank {rank} returned {_rounded(result)}, expected {_rounded(expected)}.",
        )
        size = 4 * len(vectors[rank].tensor_split(fragments)[place])
        exam.require(
            sizes[:-1] == [size],
            f"{where} the values are right. Rank {rank} passed {sizes[:-1]} bytes, expected {[size]}.",
        )
        exam.require(sizes[-1], f"The values are right, but rank {rank} changed `own`, expected it unchanged.")
    return "Every rank averaged only the fragment whose turn it was, with one all_reduce of this fragment."


def _vectors(n):
    """Return a vector of weights for each of n ranks."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(n, _LENGTH, generator=generator)


def _start_of_next(start, mean_of_own):
    """Return weights that depend on both, so that a wrong start is noticed."""
    return mean_of_own + 0.5 * (mean_of_own - start)


def _trained(rank, n, period):
    """Return the weights of a rank, and the arguments of `synchronise` on this rank, as one process computes them."""
    models = [new_model() for _ in range(n)]
    optimizers = [_optimizer(model) for model in models]
    start, calls = _weights(models[0]), []
    for count in range(1, _BATCHES + 1):
        for other, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            inputs, labels = _batch(other, count)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        if count % period == 0:
            calls.append((start, _weights(models[rank])))
            start = _start_of_next(start, torch.stack([_weights(model) for model in models]).mean(dim=0))
            for model in models:
                nn.utils.vector_to_parameters(start.clone(), model.parameters())
    return _weights(models[rank]), calls


def _optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=_RATE, momentum=0.5)


def _batch(rank, count):
    return new_data(100 * rank + count, 8)


def _weights(model):
    return parameters_to_vector(model.parameters()).detach().clone()


def _close(result, expected):
    return isinstance(result, torch.Tensor) and result.shape == expected.shape and _off(result, expected) < 1e-4


def _off(result, expected):
    if not isinstance(result, torch.Tensor) or result.shape != expected.shape:
        return float("inf")
    return round((result - expected).abs().max().item(), 5)


def _rounded(vector):
    return [round(element, 3) for element in vector.flatten().tolist()] if hasattr(vector, "tolist") else show(vector)


def _are_vectors(result):
    return (
        isinstance(result, tuple | list)
        and len(result) == 2
        and all(isinstance(part, torch.Tensor) and part.shape == (_LENGTH,) for part in result)
    )


def _kinds(result):
    return ", ".join(map(show, result)) if isinstance(result, tuple | list) else show(result)


# The functions below run next to the learner's code.


def _train(rank, n, period):
    """Return the weights after training, the arguments of each `synchronise`, and how many batches were used.

    Then follows whether each batch was fetched after the step of the batch before.
    """
    model = new_model()
    optimizer = _optimizer(model)
    calls, fetched = [], []

    def batches():
        for count in range(1, _BATCHES + 1):
            fetched.append(_weights(model))
            yield _batch(rank, count)

    def synchronise(start, own):
        total = own.detach().clone()
        calls.append((start.detach().clone(), total.clone()))
        torch.distributed.all_reduce(total)
        return _start_of_next(start.detach(), total / n)

    answer("my_local_sgd", [model, optimizer, batches(), period, synchronise])
    one_at_a_time = not any(torch.equal(*two) for two in pairwise(fetched))
    return _weights(model), calls, len(fetched), one_at_a_time


def _pooled(mean, variance):
    norm = nn.BatchNorm1d(2)
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    answer("pooled_statistics", [norm])
    return norm.running_mean.clone(), norm.running_var.clone()


def _streamed(own, turn, fragments):
    """Return the result, the bytes of each call, and whether the argument is unchanged."""
    before = own.clone()
    with handed_over() as sizes:
        result = answer("streamed_average", [own, turn, fragments])
    return result, [*sizes, torch.equal(own, before)]
