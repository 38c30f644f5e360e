"""The checks in mid-lesson of 23_hybrid_ddp_rpc and 24_hybrid_proof: each accepts what is right and nothing else."""

import textwrap

import pytest
from answers import NOTEBOOKS, cell, code_cells, says

import helpers.world
from helpers import World, checks

LESSON, PROOF = "23_hybrid_ddp_rpc.ipynb", "24_hybrid_proof.ipynb"


@pytest.fixture
def world(worlds):
    """Four ranks that have run the setup of both solutions, the same for all tests of this module."""
    if not worlds or helpers.world._current is not worlds[-1]:
        worlds.append(World(4))
        worlds[-1].view.execute(f"import sys; sys.path.append({str(NOTEBOOKS)!r})", silent=True)
        setup, imports = cell(f"solutions/{LESSON}", "start("), cell(f"solutions/{PROOF}", "start(")
        for source in (setup, imports.replace("start(rpc", "# start(rpc")):
            worlds[-1].view.execute(source, silent=True)
    return worlds[-1]


def solution(name):
    (found,) = [
        source.partition("\n")[2]
        for path in (LESSON, PROOF)
        for source in code_cells(f"solutions/{path}")
        if f"def {name}(" in source
    ]
    return found


FORWARD = "Solved. The numbers are those of one process."


@pytest.mark.parametrize(
    "answer",
    [
        solution("my_forward"),
        """
        def my_forward(model, words, offsets):
            vectors = model.table.forward_async(words, offsets).wait()
            return model.dense(vectors.to(model.device))
        """,
    ],
    ids=["solution", "asynchronous"],
)
def test_my_forward_that_is_right(world, answer):
    assert says(checks.hybrid_ddp_rpc.my_forward, world, answer) == FORWARD


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("return None", "On trainer 0 `my_forward` returned None, expected a tensor of shape (2, 6)."),
        ("return [1.0]", "On trainer 0 `my_forward` returned a list of 1, expected a tensor of shape (2, 6)."),
        (
            "return model.table.forward(words, offsets)",
            "On trainer 0 `my_forward` returned a tensor of shape (2, 16), ",
        ),
        (
            "return -model.dense(model.table.forward(words, offsets))",
            "On trainer 0 `my_forward` returned other numbers",
        ),
        ("return model.dense(model.table(words, offsets))", "Rank 0 raised "),
    ],
)
def test_my_forward_that_is_wrong(world, line, message):
    answer = f"def my_forward(model, words, offsets):\n    {line}"
    assert says(checks.hybrid_ddp_rpc.my_forward, world, answer).startswith(f"Not yet. {message}")


def test_my_references_solution(world):
    assert says(checks.hybrid_ddp_rpc.my_references, world, solution("my_references")) == (
        "Solved. The list has the parameter of the table and both parameters of the dense layer."
    )


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[]", "On trainer 0 the list is empty, expected an RRef of each parameter."),
        (
            "model.table.remote_parameters()",
            "On trainer 0 the owners of the RRefs in the list are ['server'], expected",
        ),
        ("list(model.dense.parameters())", "On trainer 0 the list has a Parameter, expected RRefs only."),
        (
            "model.table.remote_parameters() + [rpc.RRef(1), rpc.RRef(2)]",
            "On trainer 0 the local RRefs hold something else, expected both parameters of the dense layer.",
        ),
        ("None", "On trainer 0 `my_references` returned None, expected a list."),
        ("list(model.parameters())", "Rank 0 raised ValueError"),
    ],
)
def test_my_references_that_are_wrong(world, returned, message):
    answer = f"def my_references(model):\n    return {returned}"
    assert says(checks.hybrid_ddp_rpc.my_references, world, answer).startswith(f"Not yet. {message}")


def test_my_hybrid_step_solution(world):
    assert says(checks.hybrid_ddp_rpc.my_hybrid_step, world, solution("my_hybrid_step")) == (
        "Solved. Both parts of the model take the step of their gradients, and the loss is returned."
    )


STEP = """
def my_hybrid_step(model, optimizer, data):
    with dist_autograd.context() as context:
        loss = forward_backward(model, context, data)
        {}
    return {}
"""


@pytest.mark.parametrize(
    ("step", "returned", "message"),
    [
        ("pass", "loss", "The dense layer of trainer 0 has not moved, expected one step along its gradient."),
        (
            "optimizer.step(context); optimizer.step(context)",
            "loss",
            "The dense layer of trainer 0 has moved, but not by",
        ),
        (
            "new_optimizer(references(model)[1:], lr=1.0).step(context)",
            "loss",
            "The table of trainer 0 has not moved, expected one step along its gradient.",
        ),
        ("optimizer.step(context)", "None", "On trainer 0 `my_hybrid_step` returned None, expected the loss"),
        ("optimizer.step(context)", "2 * loss", "On trainer 0 `my_hybrid_step` returned "),
        ("optimizer.step()", "loss", "Rank 0 raised TypeError"),
    ],
)
def test_my_hybrid_step_that_is_wrong(world, step, returned, message):
    assert says(checks.hybrid_ddp_rpc.my_hybrid_step, world, STEP.format(step, returned)).startswith(
        f"Not yet. {message}"
    )


TURNS = """
def my_turns(optimizer, context):
    for turn in range(trainers):
        {before}
        if rank == turn:
            optimizer.step(context)
    {after}
"""


def test_my_turns_solution(world):
    assert says(checks.hybrid_proof.my_turns, world, solution("my_turns")) == (
        "Solved. The trainers step in the order of their ranks, and none goes on before the last one has stepped."
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (cell(PROOF, "def my_turns("), "Trainer 1 stepped before trainer 0 had stepped, expected it to wait."),
        (TURNS.format(before="pass", after="dist.barrier()"), "Trainer 1 stepped before trainer 0 had stepped"),
        (TURNS.format(before="dist.barrier()", after="pass"), "A trainer returned before the last one had stepped"),
        ("def my_turns(optimizer, context):\n    dist.barrier()", "Trainer 0 took 0 steps, expected one."),
        ("def my_turns(optimizer, context):\n    optimizer.walk()", "Rank 0 raised AttributeError"),
    ],
    ids=["skeleton", "no barrier before", "no barrier after", "no step", "an error"],
)
def test_my_turns_that_are_wrong(world, answer, message):
    assert says(checks.hybrid_proof.my_turns, world, textwrap.dedent(answer)).startswith(f"Not yet. {message}")


def test_before_rpc_has_been_started(world):
    world.restart()
    world.view.execute("def my_forward(*_): pass\ndef my_references(_): pass\ndef my_turns(*_): pass", silent=True)
    for check in (
        checks.hybrid_ddp_rpc.my_forward,
        checks.hybrid_ddp_rpc.my_references,
        checks.hybrid_ddp_rpc.my_hybrid_step,
        checks.hybrid_proof.my_turns,
    ):
        assert repr(check(world)).startswith("Not yet. The model is not there: run all cells from `World` on")
    world.stop()
