"""The checks of 17_distributed_autograd: each accepts the solution, and says what is wrong with other answers."""

import textwrap

import pytest
from answers import cell, says

from helpers import checks


def skeleton(function):
    return cell("17_distributed_autograd.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/17_distributed_autograd.ipynb", f"def {function}(")


SETUP = cell("17_distributed_autograd.ipynb", "init_rpc(")
IN_VAIN = (
    "Not yet. Rank 0 raised RuntimeError: a call has timed out. "
    "A backward that waits for a gradient in vain ends like this."
)


# ---------------------------------------------------------------- backward_by_hand


def test_backward_by_hand_solution(world):
    assert says(checks.distributed_autograd.backward_by_hand, world, solution("backward_by_hand")) == (
        "Solved. Both workers hold the gradients of one process, and no context was opened."
    )


def test_backward_by_hand_skeleton(world):
    assert says(checks.distributed_autograd.backward_by_hand, world, skeleton("backward_by_hand")) == (
        "Not yet. On worker0 the gradient of 0.weight is None, unlike those of one process."
    )


CUT_BY_DETACH = """
    kept = []

    def forward_there(second, hidden):
        kept[:] = hidden.requires_grad_(), second.local_value()(hidden)
        return kept[1].detach()

    def backward_there(gradient):
        torch.autograd.backward(kept[1], gradient)
        return kept[0].grad

    def backward_by_hand(first, second, inputs, labels):
        hidden = first(inputs)
        scores = rpc.rpc_sync("worker1", forward_there, (second, hidden.detach())).requires_grad_()
        loss = torch.nn.functional.cross_entropy(scores, labels)
        (gradient,) = torch.autograd.grad(loss, scores)
        hidden.backward(rpc.rpc_async("worker1", backward_there, (gradient,)).wait())
"""
LOSS_ON_WORKER_1 = """
    def gradient_of(second, hidden, labels):
        hidden.requires_grad_()
        torch.nn.functional.cross_entropy(second.local_value()(hidden), labels).backward()
        return hidden.grad

    def backward_by_hand(first, second, inputs, labels):
        hidden = first(inputs)
        hidden.backward(rpc.rpc_sync("worker1", gradient_of, (second, hidden.detach(), labels)))
"""


@pytest.mark.parametrize("answer", [CUT_BY_DETACH, LOSS_ON_WORKER_1], ids=["cut by detach", "loss on worker 1"])
def test_backward_by_hand_in_other_styles(world, answer):
    assert says(checks.distributed_autograd.backward_by_hand, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'kept["scores"].backward(gradient)',
            'kept["scores"].sum().backward()',
            "On worker0 the gradient of 0.weight differs from those of one process.",
        ),
        (
            "hidden.backward(rpc",
            "(rpc",
            "On worker0 the gradient of 0.weight is None, unlike those of one process.",
        ),
        (
            'kept["scores"].backward(gradient)',
            'kept["hidden"].grad, = torch.autograd.grad(kept["scores"], kept["hidden"], gradient)',
            "On worker1 the gradient of 2.weight is None, unlike those of one process.",
        ),
        ("cross_entropy(scores, labels)", "cross_entropy(scores, labels, reduction='sum')", None),
        ("scores.grad,", "score.grad,", "Rank 0 raised NameError: name 'score' is not defined"),
    ],
    ids=["ignores the gradient", "stops at worker0", "only passes on", "sum", "misspelt"],
)
def test_wrong_backward_by_hand(world, old, new, message):
    answer = solution("backward_by_hand")
    assert old in answer
    message = message or "On worker0 the gradients are 12.00 times those of one process."
    assert says(checks.distributed_autograd.backward_by_hand, world, answer.replace(old, new)) == f"Not yet. {message}"


def test_backward_by_hand_with_a_context(world):
    answer = solution("accumulate") + textwrap.dedent("""
        def backward_by_hand(first, second, inputs, labels):
            accumulate(first, second, [(inputs, labels)])
    """)
    assert says(checks.distributed_autograd.backward_by_hand, world, answer) == (
        "Not yet. You opened 1 context, expected plain RPC without one."
    )


# ---------------------------------------------------------------- accumulate


def test_accumulate_solution(world):
    assert says(checks.distributed_autograd.accumulate, world, solution("accumulate")) == (
        "Solved. Both workers hold the gradients of all samples, from 3 contexts."
    )


def test_accumulate_skeleton(world):
    assert says(checks.distributed_autograd.accumulate, world, skeleton("accumulate")) == (
        "Not yet. On worker0 the gradient of 0.weight is None, unlike those of one process."
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (', reduction="sum") / samples', ") * len(labels) / samples"),
        (
            "        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient",
            "        if parameter.grad is None:\n            parameter.grad = torch.zeros_like(parameter)\n"
            "        parameter.grad += gradient",
        ),
        ("            keep(context_id)\n", '            rpc.rpc_async("worker0", keep, args=(context_id,)).wait()\n'),
    ],
    ids=["means by their weight", "from zeros", "both by RPC"],
)
def test_accumulate_in_other_styles(world, old, new):
    answer = solution("accumulate")
    assert old in answer
    assert says(checks.distributed_autograd.accumulate, world, answer.replace(old, new)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "            keep(context_id)\n",
            "",
            "On worker0 the gradient of 0.weight is None, unlike those of one process.",
        ),
        (
            'rpc.rpc_sync("worker1", keep, args=(context_id,))',
            "pass",
            "On worker1 the gradient of 2.weight is None, unlike those of one process.",
        ),
        (
            " if parameter.grad is None else parameter.grad + gradient",
            "",
            "On worker0 the gradient of 0.weight differs from those of one process.",
        ),
        (
            ', reduction="sum") / samples',
            ") / len(batches)",
            "On worker0 the gradient of 0.weight differs from those of one process.",
        ),
        (
            ', reduction="sum") / samples',
            ', reduction="sum")',
            "On worker0 the gradients are 15.00 times those of one process.",
        ),
        (
            "for inputs, labels in batches:",
            "for inputs, labels in [map(torch.cat, zip(*batches))]:",
            "You opened 1 context, expected 3, one for each batch.",
        ),
    ],
    ids=["not on worker0", "not on worker1", "the last one", "mean of means", "sum", "in one"],
)
def test_wrong_accumulate(world, old, new, message):
    answer = solution("accumulate")
    assert old in answer
    assert says(checks.distributed_autograd.accumulate, world, answer.replace(old, new)) == f"Not yet. {message}"


def test_accumulate_that_asks_for_parameters_in_the_context(world):
    answer = solution("accumulate") + textwrap.dedent("""
        def weight(second):
            return second.local_value()[0].weight.sum()
    """)
    begin = "            scores = second"
    log = '        rpc.rpc_sync("worker1", weight, args=(second,))\n'
    assert begin in answer
    world.view.execute("rpc._set_rpc_timeout(3)")
    verdict = says(checks.distributed_autograd.accumulate, world, answer.replace(begin, f"    {log}{begin}"))
    world.view.execute("rpc._set_rpc_timeout(10)")
    assert verdict == IN_VAIN
    assert says(checks.distributed_autograd.accumulate, world, solution("accumulate")).startswith("Solved.")


# ---------------------------------------------------------------- frozen


def test_frozen_solution(world):
    assert says(checks.distributed_autograd.train_frozen, world, solution("train_frozen")) == (
        "Solved. `first` made its step, and worker1 computed no gradient for the weights of `second`."
    )


def test_frozen_skeleton(world):
    assert says(checks.distributed_autograd.train_frozen, world, skeleton("train_frozen")) == (
        "Not yet. The weights of `first` have not changed."
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "    module.local_value().requires_grad_(False)",
            "    for parameter in module.local_value().parameters():\n        parameter.requires_grad = False",
        ),
        ('rpc.rpc_sync("worker1", freeze, args=(second,))', "second.rpc_sync().requires_grad_(False)"),
        ('rpc.rpc_sync("worker1", freeze, args=(second,))', 'rpc.remote("worker1", freeze, (second,)).to_here()'),
    ],
    ids=["each parameter", "by the RRef", "by remote"],
)
def test_frozen_in_other_styles(world, old, new):
    answer = solution("train_frozen")
    assert old in answer
    assert says(checks.distributed_autograd.train_frozen, world, answer.replace(old, new)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'rpc.rpc_sync("worker1", freeze, args=(second,))',
            "pass",
            "worker1 computed gradients for the weights of `second`, and they do not need any.",
        ),
        (
            'rpc.rpc_sync("worker1", freeze, args=(second,))',
            "second.to_here().requires_grad_(False)",
            "worker1 computed gradients for the weights of `second`, and they do not need any.",
        ),
        ("second.rpc_sync().forward", "second.to_here()", "`second` was never called on worker1."),
        ("lr=0.1", "lr=0.01", "The weights of `first` are not those that one process has after the step."),
        ("first(inputs)", "first(inputs).detach()", "Rank 0 raised RuntimeError: requires_grad not set on root"),
        ("optimizer.step(context_id)", "pass", "The weights of `first` have not changed."),
    ],
    ids=["leaves it out", "freezes a copy", "at home", "too slow", "detached", "no step"],
)
def test_wrong_frozen(world, old, new, message):
    answer = solution("train_frozen")
    assert old in answer
    assert says(checks.distributed_autograd.train_frozen, world, answer.replace(old, new)) == f"Not yet. {message}"


def test_frozen_that_trains_second(world):
    answer = """
        def parameters_there(module):
            return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]

        def train_frozen(first, second, inputs, labels):
            references = [rpc.RRef(parameter) for parameter in first.parameters()]
            references += rpc.rpc_sync("worker1", parameters_there, args=(second,))
            optimizer = DistributedOptimizer(torch.optim.SGD, references, lr=0.1)
            with dist_autograd.context() as context_id:
                scores = second.rpc_sync().forward(first(inputs))
                dist_autograd.backward(context_id, [torch.nn.functional.cross_entropy(scores, labels)])
                optimizer.step(context_id)
    """
    assert (
        says(checks.distributed_autograd.train_frozen, world, answer)
        == "Not yet. The weights of `second` have changed."
    )


# ---------------------------------------------------------------- all


def test_answer_that_leaves_a_context_open(broken_world):
    answer = """
        def accumulate(first, second, batches):
            dist_autograd._new_context()
    """
    assert says(checks.distributed_autograd.accumulate, broken_world, answer) == (
        "Not yet. Rank 0 raised RuntimeError: Already have an autograd context id for this thread."
    )


def test_nobody_has_started_rpc(broken_world):
    broken_world.restart()
    assert repr(checks.distributed_autograd.train_frozen(broken_world)) == (
        "Not yet. Rank 0 raised RuntimeError: RPC has not been initialized. Call torch.distributed.rpc.init_rpc first."
    )


# ---------------------------------------------------------------- remote_step

SETUP += "\nfrom torch import nn"
SOLVED = "Solved. After 2 steps the weights on worker1 are those of one process."
UNCHANGED = "Not yet. The weights on worker1 have not changed."


def my_step(*lines):
    """Return a function of a step with these lines in its context."""
    return "def my_step(net, optimizer, images, labels):\n    with dist_autograd.context() as context_id:\n        " + (
        "\n        ".join(lines)
    )


SCORES = "scores = net.rpc_sync().forward(images)"
LOSS = "loss = nn.functional.cross_entropy(scores, labels)"
BACKWARD = "dist_autograd.backward(context_id, [loss])"
STEP = "optimizer.step(context_id)"


def test_remote_step_skeleton_and_solution(world):
    assert says(checks.distributed_autograd.my_step, world, skeleton("my_step")) == UNCHANGED
    assert says(checks.distributed_autograd.my_step, world, solution("my_step")) == SOLVED


@pytest.mark.parametrize(
    "lines",
    [
        (SCORES, LOSS, BACKWARD, STEP, "return loss"),
        ("scores = net.rpc_async().forward(images).wait()", LOSS, BACKWARD, STEP, "return loss.item()"),
        ("scores = net.remote().forward(images).to_here()", LOSS, BACKWARD, STEP, "return loss.detach()"),
    ],
)
def test_remote_step_in_other_styles(world, lines):
    assert says(checks.distributed_autograd.my_step, world, my_step(*lines)) == SOLVED


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((SCORES, LOSS, BACKWARD, "return loss.item()"), UNCHANGED),
        (
            (SCORES, LOSS, BACKWARD, STEP, STEP, "return loss.item()"),
            "Not yet. After 2 steps the weights on worker1 are not those of one process.",
        ),
        (
            (SCORES, f"{LOSS} * len(labels)", BACKWARD, STEP, "return loss.item()"),
            "Not yet. After 2 steps the weights on worker1 are not those of one process.",
        ),
        ((SCORES, LOSS, BACKWARD, STEP), "Not yet. Step 0 returned None, expected the loss, "),
        (
            (SCORES, SCORES.replace("scores", "spare"), LOSS, BACKWARD.replace("loss", "loss + 0 * spare.sum()"), STEP)
            + ("return loss.item()",),
            "Not yet. A step moved 1152 bytes of tensors in calls, expected 576 at most: those of the inputs and "
            "scores.",
        ),
        (("scores = net.to_here()(images)", LOSS, BACKWARD, STEP, "return loss.item()"), UNCHANGED),
        ((SCORES, LOSS, "loss.backward()", STEP, "return loss.item()"), "Not yet. Rank 0 raised RuntimeError: "),
    ],
)
def test_wrong_remote_step(world, lines, message):
    assert says(checks.distributed_autograd.my_step, world, my_step(*lines)).startswith(message)


def test_remote_step_after_the_context(world):
    answer = my_step(SCORES, LOSS, BACKWARD) + "\n    optimizer.step(context_id)\n    return loss.item()"
    assert says(checks.distributed_autograd.my_step, world, answer).startswith("Not yet. Rank 0 raised RuntimeError: ")
