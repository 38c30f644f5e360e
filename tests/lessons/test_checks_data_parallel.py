"""The checks of 08_data_parallel: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import World, checks
from helpers.checks.judging import RESTART

NAME = "08_data_parallel.ipynb"


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


SETUP = "\n".join(
    [
        # A shorter timeout than the learner's: a deadlock takes as long.
        cell(NAME, "init_process_group(").replace("seconds=10", "seconds=4"),
        cell(NAME, "def sgd("),
    ]
)


# ---------------------------------------------------------------- average_gradients

AVERAGE = """
    def average_gradients(model, images):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= {}
"""


def test_average_solution(world):
    assert says(checks.data_parallel.average_gradients, world, solution("average_gradients")) == (
        "Solved. On every rank the gradients are those of one process, with equal shares and with unequal ones."
    )


def test_average_skeleton(world):
    assert says(checks.data_parallel.average_gradients, world, skeleton("average_gradients")) == (
        "Not yet. On rank 0 the gradients are 4.00 times those of one process on all images."
    )


def test_average_over_the_ranks_of_sums(world):
    assert says(checks.data_parallel.average_gradients, world, AVERAGE.format("n")) == (
        "Not yet. On rank 0 the gradients are 3.00 times those of one process on all images."
    )


def test_average_of_equal_shares(world):
    assert says(checks.data_parallel.average_gradients, world, AVERAGE.format("n * len(images)")) == (
        "Not yet. With as many images on every rank it is right. With r + 1 images on rank r, on rank 0 the gradients "
        "are 2.50 times those of one process on all images."
    )


def test_average_that_forgets_the_other_ranks(world):
    answer = """
        def average_gradients(model, images):
            for parameter in model.parameters():
                parameter.grad /= len(images)
    """
    assert says(checks.data_parallel.average_gradients, world, answer) == (
        "Not yet. On rank 0 the gradient of 0.weight differs from those of one process on all images."
    )


def test_average_that_forgets_a_parameter(world):
    answer = AVERAGE.format("n * len(images)").replace("model.parameters()", "list(model.parameters())[1:]")
    assert says(checks.data_parallel.average_gradients, world, answer) == (
        "Not yet. On rank 0 the gradient of 0.weight differs from those of one process on all images."
    )


def test_average_that_loses_the_gradients(world):
    answer = """
        def average_gradients(model, images):
            model.zero_grad()
    """
    assert says(checks.data_parallel.average_gradients, world, answer) == (
        "Not yet. On rank 0 the gradient of 0.weight is None, unlike those of one process on all images."
    )


def test_average_on_one_rank_only(broken_world):
    answer = AVERAGE.format("n").replace("model.parameters()", "list(model.parameters())[: 6 * (rank == 0)]")
    assert says(checks.data_parallel.average_gradients, broken_world, answer) == (
        f"Not yet. Deadlock: the group's timeout ended the wait on these ranks: 0. {RESTART}"
    )
    assert says(checks.data_parallel.average_what_is_there, broken_world, solution("average_what_is_there")) == (
        f"Not yet. An earlier attempt has broken the process group. {RESTART}"
    )


# ---------------------------------------------------------------- mean_gradients

SYNCHRONISE = """
    def my_synchronise(model):
        for parameter in model.parameters():
            {}
"""
BY_ONE_BUCKET = """
    def my_synchronise(model):
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) / n
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat, [parameter.grad for parameter in model.parameters()])
"""
BY_GATHERING = """
    def my_synchronise(model):
        for parameter in model.parameters():
            everybody = [torch.empty_like(parameter.grad) for _ in range(n)]
            dist.all_gather(everybody, parameter.grad)
            parameter.grad = torch.stack(everybody).mean(dim=0)
"""


def test_mean_solution(world):
    assert says(checks.data_parallel.my_synchronise, world, solution("my_synchronise")) == (
        "Solved. Every rank holds the mean gradients of all ranks, which are those of one process."
    )


def test_mean_skeleton(world):
    assert says(checks.data_parallel.my_synchronise, world, skeleton("my_synchronise")) == (
        "Not yet. Rank 0 still has the gradients of its own share."
    )


@pytest.mark.parametrize(
    "answer",
    [
        SYNCHRONISE.format("dist.all_reduce(parameter.grad); parameter.grad /= n"),
        SYNCHRONISE.format("parameter.grad /= n; dist.all_reduce(parameter.grad)"),
        SYNCHRONISE.format("dist.all_reduce(parameter.grad); parameter.grad = parameter.grad / dist.get_world_size()"),
        BY_ONE_BUCKET,
        BY_GATHERING,
    ],
)
def test_mean(world, answer):
    assert says(checks.data_parallel.my_synchronise, world, answer) == (
        "Solved. Every rank holds the mean gradients of all ranks, which are those of one process."
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("dist.all_reduce(parameter.grad)", "On rank 0 the gradients are 4.00 times the mean over all ranks."),
        ("parameter.grad /= n", "On rank 0 the gradient of 0.weight differs from the mean over all ranks."),
        ("dist.all_reduce(parameter.grad / n)", "Rank 0 still has the gradients of its own share."),
        (
            "dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX)",
            "On rank 0 the gradient of 0.weight differs from the mean over all ranks.",
        ),
        (
            "dist.broadcast(parameter.grad, src=0)",
            "Rank 0 still has the gradients of its own share.",
        ),
        (
            "dist.all_reduce(parameter.data); parameter.data /= n",
            "Rank 0 still has the gradients of its own share.",
        ),
    ],
)
def test_no_mean(world, lines, message):
    assert says(checks.data_parallel.my_synchronise, world, SYNCHRONISE.format(lines)).startswith(f"Not yet. {message}")


def test_mean_on_rank_0_only(broken_world):
    answer = SYNCHRONISE.format("dist.all_reduce(parameter.grad) if rank == 0 else None")
    assert says(checks.data_parallel.my_synchronise, broken_world, answer).startswith(
        "Not yet. Deadlock: the group's timeout ended"
    )


# ---------------------------------------------------------------- average_what_is_there

WHAT_IS_THERE = """
    def average_what_is_there(model):
        for parameter in model.parameters():
            {}
            dist.all_reduce(parameter.grad)
            parameter.grad /= n
"""
ZEROS = "if parameter.grad is None: parameter.grad = torch.zeros_like(parameter)"
IN_ONE_PIECE = """
    def average_what_is_there(model):
        mine = [parameter for parameter in model.parameters() if parameter.requires_grad]
        flat = torch.cat([torch.zeros(p.numel()).double() if p.grad is None else p.grad.flatten() for p in mine])
        dist.all_reduce(flat)
        for parameter, part in zip(mine, (flat / n).split([p.numel() for p in mine])):
            parameter.grad = part.view_as(parameter)
"""
BY_COUNTING = """
    def average_what_is_there(model):
        for parameter in filter(lambda p: p.requires_grad, model.parameters()):
            used = torch.tensor([parameter.grad is not None]).double()
            dist.all_reduce(used)
            if used > 0:
                grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_reduce(grad)
                parameter.grad = grad / {}
"""


def test_what_is_there_solution(world):
    assert says(checks.data_parallel.average_what_is_there, world, solution("average_what_is_there")) == (
        "Solved. Every rank has the gradients of one process, and the frozen parameters have none."
    )


def test_what_is_there_skeleton(world):
    verdict = says(checks.data_parallel.average_what_is_there, world, skeleton("average_what_is_there"))
    assert verdict.startswith("Not yet. Rank 0 raised TypeError: Invalid function argument.")


@pytest.mark.parametrize(
    "answer",
    [
        WHAT_IS_THERE.format("if not parameter.requires_grad: continue\n            " + ZEROS),
        IN_ONE_PIECE,
        BY_COUNTING.format("n"),
    ],
)
def test_what_is_there(world, answer):
    assert says(checks.data_parallel.average_what_is_there, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (WHAT_IS_THERE.format(ZEROS), "Rank 0 gave a gradient to 0.weight, which is frozen."),
        (
            BY_COUNTING.format("used"),
            "With the last layer used on rank 0 only, on rank 0 the gradient of 4.weight differs from those of one ",
        ),
        (
            IN_ONE_PIECE.replace("flat / n", "flat"),
            "With the last layer used on rank 0 only, on rank 0 the gradients are 4.00 times those of one process.",
        ),
        (
            "def average_what_is_there(model): pass",
            "With the last layer used on rank 0 only, on rank 0 the gradient",
        ),
    ],
)
def test_not_what_is_there(world, answer, message):
    verdict = says(checks.data_parallel.average_what_is_there, world, answer)
    assert verdict.startswith(f"Not yet. {message}"), verdict


def test_what_is_there_is_skipped_where_it_is_not(broken_world):
    answer = WHAT_IS_THERE.format("if parameter.grad is None: continue")
    assert says(checks.data_parallel.average_what_is_there, broken_world, answer) == (
        f"Not yet. Deadlock: the group's timeout ended the wait on these ranks: 0. {RESTART}"
    )


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for check in (checks.data_parallel.average_gradients, checks.data_parallel.average_what_is_there):
            assert says(check, world, solution(check.__name__)).startswith("Solved. ")
            assert says(check, world, skeleton(check.__name__)).startswith("Not yet. ")
    finally:
        world.stop()
