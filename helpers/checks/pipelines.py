"""Exercises of 34_pipelines: backward through stages, the orders in which stages work, and their messages."""

from collections.abc import Iterable

import torch
from torch import nn

from helpers.checks.exam import answer, errors_of_answer, exercise, near, show
from helpers.checks.orders import asked_orders, kept_after_each, require_order, require_room

_WIDTH, _SAMPLES = 4, 6
_SENT_X = " The stage received its own output, expected the gradient of its output: send `x.grad` instead of `x`."


@exercise
def my_backward(exam):
    """Check `my_backward(x, output, targets)`: the gradients of every stage equal those of one process."""
    layers, inputs, targets = _pipeline(exam.n)
    nn.functional.mse_loss(nn.Sequential(*layers)(inputs), targets).backward()
    gradient, overwritten = exam.on_rank(_gradient_of_stage, exam.rank, exam.n)
    if exam.require(
        gradient is not None,
        f"The parameters of stage {exam.rank} have no gradient, expected the gradient of one process.",
    ):
        difference = _compared(gradient, _weight(layers[exam.rank]).grad)
        why = "" if _compared(gradient, _gradient_by_output(layers, inputs, exam.rank)) else _SENT_X
        if overwritten:
            why = f" Rank {exam.rank} changed `{overwritten}`, expected it unchanged: receive into a new tensor."
        exam.require(
            not difference, f"The gradient of stage {exam.rank} is {difference} the gradient of one process.{why}"
        )
    return "Every stage has the gradients of one process."


@exercise
def my_order(exam):
    """Check `my_order(stage, stages, m)`: as short as a schedule can be, with at most `stages - stage` kept.

    Every rank returns the orders of all stages. A backward takes twice as long as a forward.
    """
    advice = "How many forwards can a stage run before its first gradient can arrive?"
    for stages, m in ((4, 8), (2, 3), (3, 3), (4, 2), (1, 2)):
        orders = asked_orders(exam, "my_order", stages, m)
        if require_order(exam, orders, m, {"F": 1, "B": 2}, 3 * (m + stages - 1), advice):
            require_room(exam, orders, m, "B", [min(m, stages - stage) for stage in range(stages)])
    return (
        "No order ends sooner, and a stage keeps at most as many micro-batches as there are stages from it to the end."
    )


@exercise
def my_batches(exam):
    """Check `my_batches(order, stage, stages)`: no stage waits forever if the messages of a batch move together.

    Every rank translates the orders of all stages, and simulates their messages.
    """
    schedules = {"GPipe's order": _all_forward_first, "1F1B": _one_forward_one_backward}
    for stages, m in ((4, 8), (2, 4), (3, 2), (5, 5)):
        for name, order in schedules.items():
            orders = [order(stage, stages, m) for stage in range(stages)]
            batches = [_batches(plan) for plan in exam.on_rank(_asked_batches, orders)]
            fault = _fault_of_messages(orders, batches) or _fault_of_waiting(batches)
            if not exam.require(not fault, f"{name}, {stages} stages and {m} micro-batches: {fault}"):
                return ""
    return "No stage waits forever, with GPipe's order or with 1F1B."


@exercise
def most_micro_batches(exam):
    """Check `most_micro_batches(order, stages, bytes_each, memory)`: the largest m, up to 64, that fits on all stages.

    The check calls it with several schedules, each a function `order(stage, stages, m)`.
    """
    schedules = {
        "GPipe's order": _all_forward_first,
        "1F1B": _one_forward_one_backward,
        "pairs": _in_pairs,
        "a first micro-batch alone": _first_alone,
    }
    cases = ((4, 100, 650), (4, 100, 400), (4, 100, 399), (3, 64, 63), (2, 10, 10), (7, 100, 650))
    for stages, bytes_each, memory in cases:
        room = memory // bytes_each
        for name, order in schedules.items():
            fits = [
                m for m in range(1, 65) if all(max(kept_after_each(order(s, stages, m))) <= room for s in range(stages))
            ]
            expected = max(fits, default=0)
            result = exam.call(order, stages, bytes_each, memory)
            exam.require(
                near(result, expected),
                f"With {name}, {stages} stages, {bytes_each} bytes per micro-batch and {memory} bytes of memory, rank "
                f"{exam.rank} returned {show(result)}, expected {expected}.",
            )
    return (
        "You found the largest m that fits. GPipe's order needs memory for all m, 1F1B at most for one on each stage."
    )


def _pipeline(stages):
    """Return a layer for each stage, inputs and targets, the same on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        linears = [nn.Linear(_WIDTH, _WIDTH, dtype=torch.float64) for _ in range(stages)]
        inputs, targets = torch.randn(2, _SAMPLES, _WIDTH, dtype=torch.float64)
    # A layer keeps its output for the backward, as the lesson's layers do.
    return [nn.Sequential(linear, nn.Tanh()) for linear in linears], inputs, targets


def _weight(layer):
    return layer[0].weight


def _gradient_of_stage(rank, stages):
    """Return the gradient of this rank's weight after `my_backward`, and which argument it has changed, or "".

    The arguments have a graph.
    """
    layers, x, targets = _pipeline(stages)
    for layer in layers[:rank]:
        x = layer(x)
    x = x.detach().requires_grad_(rank > 0)
    output = layers[rank](x)
    arguments = {"x": x, "output": output, "targets": targets}
    before = {name: tensor.detach().clone() for name, tensor in arguments.items()}
    answer("my_backward", list(arguments.values()), then="finish")
    overwritten = (name for name, tensor in arguments.items() if not torch.equal(tensor, before[name]))
    return _weight(layers[rank]).grad, next(overwritten, "")


def _gradient_by_output(layers, x, rank):
    """Return the gradient of a stage's weight if the next stage sends `x`, the stage's own output."""
    output = nn.Sequential(*layers[: rank + 1])(x)
    (gradient,) = torch.autograd.grad(output, _weight(layers[rank]), output.detach())
    return gradient


def _compared(gradient, expected):
    """Return "" for equal gradients, the factor in words for proportional gradients, and "not" otherwise."""
    if torch.allclose(gradient, expected, rtol=1e-9):
        return ""
    factor = (gradient.norm() / expected.norm()).item()
    return (
        f"{factor:.2f} times, expected 1.00 times," if torch.allclose(gradient, factor * expected, rtol=1e-9) else "not"
    )


def _asked_batches(orders):
    """Return what the learner's function returns for the order of each stage; batches may come from a generator."""
    plans = []
    for stage, order in enumerate(orders):
        plan = answer("my_batches", [list(order), stage, len(orders)])
        with errors_of_answer():
            plans.append(
                [list(batch) if isinstance(batch, Iterable) else batch for batch in plan] if _many(plan) else plan
            )
    return plans


def _many(value):
    return isinstance(value, Iterable) and not isinstance(value, str)


def _batches(plan):
    """Return the batches of a stage as lists of messages, without empty ones, or a description of another result."""
    if not isinstance(plan, list):
        return show(plan)
    batches = []
    for batch in plan:
        if not isinstance(batch, list):
            return f"a list with {batch!r}"
        messages = []
        for message in batch:
            try:
                verb, kind, number = message
                messages.append((str(verb), str(kind), int(number)))
            except (TypeError, ValueError, OverflowError):
                return f"a batch with {message!r}"
        if messages:
            batches.append(messages)
    return batches


def _fault_of_messages(orders, batches):
    """Return a sentence about the first stage whose messages are not the messages of its order, or ""."""
    for stage, (order, plan) in enumerate(zip(orders, batches, strict=True)):
        where = f"Stage {stage}"
        if isinstance(plan, str):
            return f"{where} got {plan}, expected a list of batches such as [('send', 'F', 0)]."
        place = {}
        for number, batch in enumerate(plan):
            for message in batch:
                if message in place:
                    return f"{where} has {message!r} twice, expected once."
                place[message] = number
        wanted = [message for action in order for message in _messages(*action, stage, len(orders))]
        for message in wanted:
            if message not in place:
                return f"{where} has no {message!r}, expected it once."
        if extra := sorted(place.keys() - set(wanted)):
            return f"{where} has {extra[0]!r}, expected no such message."
        if fault := _fault_of_places(order, place, stage, len(orders)):
            return f"{where} {fault}"
    return ""


def _fault_of_places(order, place, stage, stages):
    """Return the end of a sentence about an action that cannot be done between its messages, or ""."""
    earliest = 0  # the first batch that the stage has not posted when it does an action
    for kind, number in order:
        messages = _messages(kind, number, stage, stages)
        for message in messages:
            if message[0] == "receive":
                earliest = max(earliest, place[message] + 1)
        for message in messages:
            if message[0] == "send" and place[message] < earliest:
                return f"posts {message!r} before the tensor can be ready, expected this send in a later batch."
    return ""


def _messages(kind, number, stage, stages):
    """Return the messages of an action: what it needs from a neighbour, and what it sends to a neighbour."""
    source, target = (stage - 1, stage + 1) if kind == "F" else (stage + 1, stage - 1)
    messages = [("receive", kind, number)] if 0 <= source < stages else []
    return messages + ([("send", kind, number)] if 0 <= target < stages else [])


def _fault_of_waiting(batches):
    """Return a sentence about two neighbours of which each waits for the other forever, or ""."""
    queues = [[set(batch) for batch in plan] for plan in batches]
    moved = True
    while moved:
        moved = False
        for stage in range(len(queues) - 1):
            above, below = queues[stage][:1], queues[stage + 1][:1]
            for sender, receiver, kind in ((above, below, "F"), (below, above, "B")):
                for verb, of_kind, number in list(sender[0]) if sender and receiver else []:
                    if verb == "send" and of_kind == kind and ("receive", kind, number) in receiver[0]:
                        sender[0].remove((verb, kind, number))
                        receiver[0].remove(("receive", kind, number))
                        moved = True
        for plan in queues:
            while plan and not plan[0]:
                plan.pop(0)
    stuck = [sorted(plan[0]) if plan else [] for plan in queues]
    for stage, (above, below) in enumerate(zip(stuck, stuck[1:], strict=False)):
        downwards = [message for message in above if message[:2] in (("send", "F"), ("receive", "B"))]
        upwards = [message for message in below if message[:2] in (("send", "B"), ("receive", "F"))]
        if downwards and upwards:
            return (
                f"stage {stage} waits forever in {downwards[0]!r} and stage {stage + 1} in {upwards[0]!r}, expected "
                "every message to arrive. Which of their messages must move together?"
            )
    return ""


def _all_forward_first(stage, stages, m):
    return [("F", number) for number in range(m)] + [("B", number) for number in range(m)]


def _in_pairs(stage, stages, m):
    order = []
    for number in range(0, m, 2):
        pair = range(number, min(number + 2, m))
        order += [("F", i) for i in pair] + [("B", i) for i in pair]
    return order


def _first_alone(stage, stages, m):
    others = range(1, m)
    return [("F", 0), ("B", 0), *(("F", number) for number in others), *(("B", number) for number in others)]


def _one_forward_one_backward(stage, stages, m):
    ahead = min(stages - stage, m)
    order = [("F", number) for number in range(ahead)]
    for number in range(m):
        order.append(("B", number))
        if ahead + number < m:
            order.append(("F", ahead + number))
    return order
