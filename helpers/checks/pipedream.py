"""Exercises of 37_pipedream: a backward with stashed weights, a delayed step, how stale weights are, and the bubble."""

import torch
from torch.nn.functional import mse_loss

from helpers.checks.exam import answer, exercise, near, number, show

_WIDTH, _SAMPLES, _RATE = 4, 6, 1.0
_ORDERS = [
    ("F0 B0 F1 B1", 1),
    ("F0 F1 B0 F2 B1 B2", 1),
    ("F0 F1 F2 B0 F3 B1 F4 B2 B3 B4", 1),
    ("F0 F1 F2 B2 B1 B0", 1),
    ("F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5", 3),
    ("F0 F1 F2 F3 B0 B1 B2 B3", 2),
    ("F1 F0 B1 B0", 1),
    ("F0 F1 F2 F3 B3 B2 B1 B0", 2),
    ("", 1),
]
_BUBBLES = [(4, 0.25), (4, 0.5), (16, 0.05), (2, 0.1), (8, 0.3), (1, 0.1)]


@exercise
def my_stashed_backward(exam):
    """Check `my_stashed_backward(x, output, used, newest)`: stashed weights give the gradient, the newest the update.

    Two batches use the same stashed weights, and the newest weights differ.
    """
    for batch, outcome in enumerate(exam.on_rank(_two_backwards, exam.rank, exam.n)):
        used, newest, gradients = _expected(batch, exam.rank, exam.n)
        fault = _fault_of_weights(outcome, used, newest, gradients, _expected(0, exam.rank, exam.n)[2])
        exam.require(not fault, f"Stage {exam.rank}, batch {batch}: {fault}")
    return "Every stage has the gradients of the stashed weights, and has updated its newest weights."


@exercise
def my_delayed_step(exam):
    """Check `my_delayed_step(versions, delays, inputs, targets)`: old weights give the gradient of the newest ones."""
    for delays in ([0, 0, 0], [2, 0, 1], [1, 4, 0]):
        versions = [[_weights(10 * stage + age) for age in range(4)] for stage in range(3)]
        inputs, targets = _drawn(5, 2, _SAMPLES, _WIDTH)
        used = [of_stage[max(0, 3 - delay)] for of_stage, delay in zip(versions, delays, strict=True)]
        loss = mse_loss(_through(used, inputs), targets)
        gradients = torch.autograd.grad(loss, [tensor for weights in used for tensor in weights])
        result, kept = exam.on_rank(_delayed, versions, delays, inputs, targets)
        case = f"With the delays {delays}, rank {exam.rank}"
        if not exam.require(
            isinstance(result, list | tuple) and len(result) == 2,
            f"{case} returned {show(result)}, expected the loss and the list of new weights.",
        ):
            break
        exam.require(
            near(result[0], loss.item(), within=1e-9),
            f"{case} returned the loss {show(result[0])}, expected {loss.item():.4f}: a stage with delay d uses its "
            "weights of d updates ago, or else its oldest weights.",
        )
        exam.require(
            not isinstance(result[0], torch.Tensor),
            f"{case} returned the loss as a tensor, expected a number, as in `loss.item()`.",
        )
        exam.require(
            kept,
            f"{case} changed `versions`, expected new tensors in a new list: the caller appends them to `versions`.",
        )
        for stage in range(3):
            expected = _stepped(versions[stage][-1], gradients[2 * stage : 2 * stage + 2])
            fault = _fault_of_step(result[1], stage, versions[stage], used[stage], expected)
            exam.require(not fault, f"{case} returned the right loss. {fault}")
    return "The loss is that of the old weights, and their gradients update the newest weights."


@exercise
def staleness(exam):
    """Check `staleness(order, m)`: for each micro-batch, the updates between its forward and its own update."""
    for text, m in _ORDERS:
        order = [(action[0], int(action[1:])) for action in text.split()]
        expected = _stale(order, m)
        result = exam.call(list(order), m)
        numbers = _numbers(result)
        shown = show(result) if numbers is None else numbers
        exam.require(
            numbers == expected,
            f"For the order {text or '[]'} and m = {m}, rank {exam.rank} returned {shown}, expected {expected}.",
        )
    return "Every micro-batch has the right number of updates, even in unusual orders."


@exercise
def enough_micro_batches(exam):
    """Check `enough_micro_batches(stages, most)`: the fewest micro-batches with a bubble of at most `most`."""
    for stages, most in _BUBBLES:
        expected = next(m for m in range(1, 1000) if _bubble(stages, m) <= most + 1e-12)
        result = exam.call(stages, most)
        m = number(result)
        has_bubble = m is not None and m == int(m) and m > 0
        bubble = f", where the bubble is {_bubble(stages, m):.3f}" if has_bubble else ""
        exam.require(
            m == expected,
            f"With {stages} stages and a bubble of at most {most}, rank {exam.rank} returned {show(result)}{bubble}, "
            f"expected {expected}, where the bubble is {_bubble(stages, expected):.3f}.",
        )
    return "Every number of micro-batches is the smallest that is enough."


def _drawn(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _weights(seed):
    """Return weight and bias of a layer, the same on every rank."""
    drawn = _drawn(seed, _WIDTH, _WIDTH + 1) / 2
    return [drawn[:, 1:].clone().requires_grad_(), drawn[:, 0].clone().requires_grad_()]


def _through(weights_of_stages, x):
    for weight, bias in weights_of_stages:
        x = (x @ weight.T + bias).tanh()
    return x


def _stepped(weights, gradients):
    pairs = zip(weights, gradients, strict=True)
    return [(weight - _RATE * gradient).detach() for weight, gradient in pairs]


def _expected(batch, rank, stages):
    """Return the weights that the forward of a batch used on a stage, its newest weights, and the right gradients."""
    weights = [_weights(stage) for stage in range(stages)]
    inputs, targets = _drawn(70 + batch, 2, _SAMPLES, _WIDTH)
    gradients = torch.autograd.grad(mse_loss(_through(weights, inputs), targets), weights[rank])
    return weights[rank], _weights(50 + 10 * batch + rank), gradients


def _forward(batch, rank, stages, used):
    """Return x and output of a stage, whose graph leads to the tensors `used`; on the last stage output is the loss."""
    inputs, targets = _drawn(70 + batch, 2, _SAMPLES, _WIDTH)
    x = _through([_weights(stage) for stage in range(rank)], inputs).detach().requires_grad_(rank > 0)
    output = _through([used], x)
    return x, mse_loss(output, targets) if rank == stages - 1 else output


def _two_backwards(rank, stages):
    """Return, for each of two batches: the learner's new weights, whether they can be trained, and what was changed."""
    used, _, _ = _expected(0, rank, stages)  # for both batches
    outcomes = []
    for batch in range(2):
        x, output = _forward(batch, rank, stages, used)
        newest = _expected(batch, rank, stages)[1]
        before = [tensor.detach().clone() for tensor in [*used, *newest]]
        result = answer("my_stashed_backward", [x, output, used, newest], then="finish")
        changed = [not torch.equal(*pair) for pair in zip(before, [*used, *newest], strict=True)]
        is_pair = isinstance(result, list | tuple) and len(result) == 2
        can_train = is_pair and all(getattr(tensor, "requires_grad", False) for tensor in result)
        outcomes.append((result, can_train, any(changed[:2]), any(changed[2:])))
    return outcomes


def _delayed(versions, delays, inputs, targets):
    """Return the result of `my_delayed_step`, and whether it left the versions as they were."""
    before = [[[tensor.detach().clone() for tensor in weights] for weights in of_stage] for of_stage in versions]
    result = answer("my_delayed_step", [versions, delays, inputs, targets])
    lengths = [len(of_stage) for of_stage in versions] == [len(of_stage) for of_stage in before]
    return result, lengths and all(
        _equal(weights, kept)
        for of_stage, of_stage_before in zip(versions, before, strict=True)
        for weights, kept in zip(of_stage, of_stage_before, strict=True)
    )


def _fault_of_weights(outcome, used, newest, gradients, gradients_of_first):
    """Return what is wrong with a stage's new weights, or ""."""
    result, can_train, used_changed, newest_changed = outcome
    shapes = [tensor.shape for tensor in newest]
    is_pair = isinstance(result, list | tuple) and [getattr(tensor, "shape", None) for tensor in result] == shapes
    if not is_pair:
        return f"it returned {show(result)}, expected a list of the two new weights."
    if used_changed or newest_changed:
        which = "used" if used_changed else "newest"
        return f"it changed `{which}` in place, expected new tensors: another batch may need that version."
    differences = {
        "the newest weights without an update": newest,
        "the forward pass's weights plus one update, so the updates in between are lost": _stepped(used, gradients),
        "weights after an update by the gradients of two batches, which add up in `.grad`": _stepped(
            newest, [one + other for one, other in zip(gradients, gradients_of_first, strict=True)]
        ),
        "the newest weights with the gradient added": _stepped(newest, [-gradient for gradient in gradients]),
    }
    if not _equal(result, _stepped(newest, gradients)):
        which = next((name for name, wrong in differences.items() if _equal(result, wrong)), "other weights")
        return f"it returned {which}, expected one update by the gradient of this batch."
    return (
        "" if can_train else "it returned weights without `requires_grad`, expected the weights that `updated` returns."
    )


def _fault_of_step(returned, stage, versions, used, expected):
    """Return what is wrong with the new weights of a stage after a delayed step, or ""."""
    if not isinstance(returned, list | tuple) or len(returned) != 3:
        return f"The new weights are {show(returned)}, expected a list with the weights of each stage."
    new = returned[stage]
    if _equal(new, expected):
        return ""
    newest = versions[-1]
    if _equal(new, newest):
        return f"The weights of stage {stage} are not updated, expected the newest weights minus the gradient."
    gradients = [(before - after).detach() / _RATE for before, after in zip(newest, expected, strict=True)]
    if _equal(new, _stepped(used, gradients)):
        return f"The update of stage {stage} starts from the old weights, expected the newest weights."
    return (
        f"The new weights of stage {stage} differ, expected the newest weights minus the gradient of the old weights."
    )


def _equal(tensors, expected):
    if not isinstance(tensors, list | tuple) or len(tensors) != len(expected):
        return False
    for tensor, other in zip(tensors, expected, strict=True):
        if not isinstance(tensor, torch.Tensor) or tensor.shape != other.shape:
            return False
        if not torch.allclose(tensor.detach().to(other.dtype), other.detach(), rtol=1e-9, atol=1e-12):
            return False
    return True


def _numbers(result):
    """Return an answer as a list of numbers, or None if it is something else."""
    if not isinstance(result, list | tuple | torch.Tensor) or not getattr(result, "shape", (1,)):
        return None
    return [number(part) for part in result]


def _stale(order, m):
    backwards, at_forward, stale = 0, {}, {}
    for kind, batch in order:
        if kind == "F":
            at_forward[batch] = backwards // m
        else:
            stale[batch] = backwards // m - at_forward[batch]
            backwards += 1
    return [stale[batch] for batch in sorted(stale)]


def _bubble(stages, m):
    return (stages - 1) / (m + stages - 1)
