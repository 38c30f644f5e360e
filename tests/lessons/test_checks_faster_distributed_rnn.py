"""The checks of 21_faster_distributed_rnn: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

import helpers.world
from helpers import World, checks

NAME = "21_faster_distributed_rnn.ipynb"


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


SETUP = cell(NAME, "import os, time") + "\n" + cell(NAME, "init_rpc(")


@pytest.fixture
def world(worlds):
    """A trainer and a server, the same for all tests of this module."""
    if not worlds or helpers.world._current is not worlds[-1]:
        worlds.append(World(2))
        worlds[-1].view.execute(SETUP, silent=True)
    return worlds[-1]


# ---------------------------------------------------------------- the step that the learner writes


def said_of(world, answer):
    """Return what the check says of this answer, the two classes of the skeleton."""
    world.view.execute(cell(NAME, "class First:"), silent=True)
    return says(checks.faster_distributed_rnn.MyStep, world, answer)


STEP = cell(f"solutions/{NAME}", "class MyStep(")
RIGHT = "Solved. Losses and gradients are those of one process, and a forward moves only the bytes it needs."
LOOKED_UP = "self.table.forward(rows)[places]"
SECOND_LOSS = "cross_entropy(logits.flatten(0, 1), targets.flatten())"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        (LOOKED_UP, "nn.functional.embedding(places, self.table.forward(rows))"),
        (SECOND_LOSS, "cross_entropy(logits.transpose(1, 2), targets)"),
        (SECOND_LOSS, "-logits.log_softmax(dim=2).gather(2, targets[..., None]).mean()"),
    ],
)
def test_my_step_that_is_right(world, old, new):
    assert said_of(world, STEP.replace(old, new)) == RIGHT


def test_my_step_of_the_lesson(world):
    assert said_of(world, cell(NAME, "class Second(").replace("Second", "MyStep")) == RIGHT


def test_my_step_skeleton(world):
    assert said_of(world, cell(NAME, "class MyStep(")) == (
        "Not yet. The model is the same, and its forward moves 41.0 times the bytes it needs."
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LOOKED_UP, "self.table.forward(words)", "The model is the same, and its forward moves 1.4 times the bytes"),
        (LOOKED_UP, "self.table.forward(rows)[places.flip(0)]", "The hidden state after window 0 differs"),
        (LOOKED_UP, "self.table.forward(rows).detach()[places]", "Backward waited in vain for a gradient, expected"),
        ("targets.flatten())", "targets.flatten()) / 2", "The loss of window 0 is "),
        ("(vectors, hidden)", "(vectors)", "The loss of window 1 is "),
        (
            "output, targets), hidden",
            "output, targets), None",
            "The hidden state after window 0 differs",
        ),
        ("output, targets), hidden", "output, targets).detach(), hidden", "The losses have no graph, expected one"),
        ("output, targets), hidden", "output, targets).item(), hidden", "`loss` returned a float and the hidden state"),
        (
            "output, targets), hidden",
            "output, targets)",
            "`loss` returned a tensor of shape (), expected a pair: loss and hidden",
        ),
        (
            "targets.flatten())",
            "targets.flatten()).detach().requires_grad_()",
            "Backward waited",
        ),
    ],
)
def test_my_step_that_is_wrong(world, old, new, message):
    assert STEP.replace(old, new) != STEP
    assert said_of(world, STEP.replace(old, new)).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- loss_there


def test_loss_there_solution(world):
    assert says(checks.faster_distributed_rnn.loss_there, world, solution("loss_there")) == (
        "Solved. The loss and all gradients are right, and the trainer received 4 bytes instead of 80000."
    )


def test_loss_there_skeleton(world):
    assert says(checks.faster_distributed_rnn.loss_there, world, skeleton("loss_there")) == (
        "Not yet. The trainer received 80000 bytes, of which the logits are 80000, expected 64 at most."
    )


@pytest.mark.parametrize(
    "change",
    [
        (
            "rpc.rpc_sync(reference.owner(), loss_on_owner, (reference, output, targets))",
            "rpc.rpc_async(reference.owner(), loss_on_owner, (reference, output, targets)).wait()",
        ),
        (
            "rpc.rpc_sync(reference.owner(), loss_on_owner, (reference, output, targets))",
            "rpc.remote(reference.owner(), loss_on_owner, (reference, output, targets)).to_here()",
        ),
        (
            "cross_entropy(logits.flatten(0, 1), targets.flatten())",
            "-logits.log_softmax(dim=2).gather(2, targets[..., None]).mean()",
        ),
    ],
    ids=["a future", "an RRef", "by hand"],
)
def test_loss_there_in_other_styles(world, change):
    answer = solution("loss_there").replace(*change)
    assert answer != solution("loss_there")
    assert says(checks.faster_distributed_rnn.loss_there, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("flatten(0, 1), targets.flatten())", "flatten(0, 1), targets.flatten()) * 2"), "The loss is 14."),
        (
            ("targets.flatten())", "targets.flatten(), reduction='none')"),
            "`loss_there` returned a tensor of shape (20,), expected the loss, a tensor of one number.",
        ),
        (
            ("output, targets))", "output.detach(), targets))"),
            "The loss is right, and the gradient of the output is not.",
        ),
        (("targets.flatten())", "targets.flatten()).detach()"), "The loss is right, and the gradient of the output "),
        (("targets.flatten())", "targets.flatten()).item()"), "`loss_there` returned a float, expected the "),
        (("reference.local_value()(", "missing("), "Rank 0 raised NameError(\"name 'missing' is not defined\") on"),
    ],
)
def test_loss_there_that_is_wrong(world, change, message):
    answer = solution("loss_there").replace(*change)
    assert answer != solution("loss_there")
    assert says(checks.faster_distributed_rnn.loss_there, world, answer).startswith(f"Not yet. {message}")


def test_loss_there_with_a_copy_of_the_decoder_here(world):
    answer = """
        def loss_there(decoder, output, targets):
            weight, bias = [reference.to_here() for reference in decoder.remote_parameters()]
            return cross_entropy((output @ weight.T + bias).flatten(0, 1), targets.flatten())
    """
    assert says(checks.faster_distributed_rnn.loss_there, world, answer) == (
        "Not yet. The trainer received 68000 bytes, expected 64 at most."
    )


# ---------------------------------------------------------------- looked_up


def test_looked_up_solution(world):
    assert says(checks.faster_distributed_rnn.looked_up, world, solution("looked_up")) == (
        "Solved. The vectors and the gradient are right up to rounding, and the trainer received 256 bytes."
    )


def test_looked_up_skeleton(world):
    assert says(checks.faster_distributed_rnn.looked_up, world, skeleton("looked_up")) == (
        "Not yet. The trainer received 1280 bytes for 20 words, 8 of them different, expected 256."
    )


@pytest.mark.parametrize(
    "change",
    [
        (".bfloat16()", ".half()"),
        (".float()[places]", ".to(torch.float32).index_select(0, places.flatten()).view(*words.shape, -1)"),
        (
            "return rpc.rpc_sync(reference.owner(), rows_in_half, (reference, rows)).float()[places]",
            "small = rpc.rpc_async(reference.owner(), rows_in_half, (reference, rows)).wait()\n"
            "    return torch.nn.functional.embedding(places, small.float())",
        ),
    ],
    ids=["fp16", "by index_select", "by embedding"],
)
def test_looked_up_in_other_styles(world, change):
    answer = solution("looked_up").replace(*change)
    assert answer != solution("looked_up")
    assert says(checks.faster_distributed_rnn.looked_up, world, f"import torch\n{answer}").startswith("Solved. ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            (".bfloat16()", ""),
            "The trainer received 512 bytes for 20 words, 8 of them different, expected 256.",
        ),
        (
            (".float()[places]", "[places]"),
            "`looked_up` returned a tensor of shape (5, 4, 16) and type torch.bfloat16, expected a tensor "
            "of shape (5, 4, 16) and type torch.float32.",
        ),
        (
            ("[places]", "[0 * places]"),
            "The vectors are up to ",
        ),
        ((".bfloat16()", ".detach().bfloat16()"), "The vectors are right, and no gradient comes to the table."),
        ((".float()[places]", ".float()[places] + 0 * missing"), "Rank 0 raised NameError: name 'missing' is not "),
    ],
)
def test_looked_up_that_is_wrong(world, change, message):
    answer = solution("looked_up").replace(*change)
    assert answer != solution("looked_up")
    assert says(checks.faster_distributed_rnn.looked_up, world, answer).startswith(f"Not yet. {message}")


def test_looked_up_with_every_copy_of_a_row(world):
    answer = solution("looked_up").replace("words.unique(return_inverse=True)", "words, ...")
    assert says(checks.faster_distributed_rnn.looked_up, world, answer) == (
        "Not yet. The trainer received 640 bytes for 20 words, 8 of them different, expected 256."
    )


def test_before_rpc_has_been_started():
    world = World(3)
    try:
        for check in (
            checks.faster_distributed_rnn.loss_there,
            checks.faster_distributed_rnn.looked_up,
            checks.distributed_rnn.clip,
            checks.distributed_rnn.TwoLayers,
        ):
            assert "RPC has not been initialized" in repr(check(world))
        world.view.execute(SETUP)
        for check in (checks.faster_distributed_rnn.loss_there, checks.faster_distributed_rnn.looked_up):
            assert says(check, world, solution(check.__name__)).startswith("Solved. ")
    finally:
        world.stop()
