"""The checks of 03_collectives: each accepts the solution, and says what is wrong with other answers."""

import textwrap

import pytest
from answers import cell, says

from helpers import World, checks
from helpers.checks.judging import RESTART


def skeleton(function):
    return cell("03_collectives.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/03_collectives.ipynb", f"def {function}(")


# A shorter timeout than the learner's: a deadlock takes as long.
SETUP = cell("03_collectives.ipynb", "init_process_group(").replace("timedelta(seconds=10)", "timedelta(seconds=4)")


# ---------------------------------------------------------------- mean_of_all


def test_mean_solution(world):
    assert says(checks.collectives.mean, world, solution("mean")) == (
        "Solved. Every rank returned 3.0, after one all_reduce."
    )


def test_mean_skeleton(world):
    assert says(checks.collectives.mean, world, skeleton("mean")) == "Not yet. Rank 0 returned 1.0, expected 3.0."


def test_mean_as_a_number_of_numpy(world):
    answer = """
        def mean(numbers):
            parts = torch.tensor([numbers.sum(), len(numbers)])
            dist.all_reduce(parts)
            return parts[0].numpy() / parts[1].numpy()
    """
    assert says(checks.collectives.mean, world, answer) == "Solved. Every rank returned 3.0, after one all_reduce."


@pytest.mark.parametrize(
    "answer",
    [
        """
        def mean(numbers):
            both = torch.stack([numbers.sum(), torch.tensor(float(numbers.numel()))])
            dist.all_reduce(both, op=dist.ReduceOp.SUM)
            total, count = both.tolist()
            return total / count
        """,
        """
        def mean(numbers):
            both = torch.ones(2) * len(numbers)
            both[0] = sum(numbers)
            dist.all_reduce(both, async_op=True).wait()
            return float(both[0]) / int(both[1])
        """,
    ],
)
def test_mean_in_other_styles(world, answer):
    assert says(checks.collectives.mean, world, answer).startswith("Solved. ")


def test_mean_of_the_means(world):
    answer = """
        def mean(numbers):
            result = numbers.mean()
            dist.all_reduce(result, op=dist.ReduceOp.AVG)
            return result
    """
    assert says(checks.collectives.mean, world, answer) == "Not yet. Rank 0 returned 2.5, expected 3.0."


def test_mean_in_two_calls(world):
    answer = """
        def mean(numbers):
            total, count = numbers.sum(), torch.tensor(len(numbers))
            dist.all_reduce(total)
            dist.all_reduce(count)
            return (total / count).item()
    """
    assert says(checks.collectives.mean, world, answer) == (
        "Not yet. Rank 0 called 2 all_reduce, expected 1 all_reduce."
    )


def test_mean_by_gathering(world):
    answer = """
        def mean(numbers):
            sums = [torch.zeros(2) for _ in range(n)]
            dist.all_gather(sums, torch.tensor([numbers.sum(), len(numbers)]))
            total, count = sum(sums)
            return (total / count).item()
    """
    assert says(checks.collectives.mean, world, answer) == (
        "Not yet. Rank 0 called 1 all_gather, expected 1 all_reduce."
    )


def test_mean_weighted_by_the_count_where_there_are_no_numbers(world):
    answer = """
        def mean(numbers):
            parts = torch.tensor([numbers.mean() * len(numbers), len(numbers)])
            dist.all_reduce(parts)
            return (parts[0] / parts[1]).item()
    """
    assert says(checks.collectives.mean, world, answer) == (
        "Not yet. When rank 0 holds no numbers, rank 0 returned nan, expected 3.3333."
    )


def test_mean_without_the_ranks_that_have_no_numbers(broken_world):
    answer = """
        def mean(numbers):
            if len(numbers) == 0:
                return 0.0
            parts = torch.tensor([numbers.sum(), len(numbers)])
            dist.all_reduce(parts)
            return (parts[0] / parts[1]).item()
    """
    assert says(checks.collectives.mean, broken_world, answer) == (
        f"Not yet. Deadlock: the group's timeout ended the wait on these ranks: 1, 2, 3. {RESTART}"
    )


def test_mean_that_returns_nothing(world):
    assert says(checks.collectives.mean, world, "def mean(numbers):\n    pass") == (
        "Not yet. Rank 0 returned None, expected 3.0."
    )


def test_an_answer_that_raises(world):
    answer = """
        def mean(numbers):
            return 1 / (len(numbers) - 1)
    """
    assert says(checks.collectives.mean, world, answer) == "Not yet. Rank 0 raised ZeroDivisionError: division by zero"


# ---------------------------------------------------------------- transposed


def test_transpose_solution(world):
    assert says(checks.collectives.transpose, world, solution("transpose")) == (
        "Solved. Every rank returned its rows of the transposed matrix, after one all_to_all."
    )


def test_transpose_skeleton(world):
    assert says(checks.collectives.transpose, world, skeleton("transpose")) == (
        "Not yet. Rank 0 holds 1.0 in row 0, column 1, expected 100.0."
    )


@pytest.mark.parametrize(
    "answer",
    [
        """
        def transpose(rows):
            sent = [block.contiguous() for block in rows.T.chunk(n)]
            received = [torch.empty_like(block) for block in sent]
            dist.all_to_all(received, sent)
            return torch.cat(received, dim=1)
        """,
        """
        def transpose(rows):
            received = torch.empty(2 * n, 2)
            dist.all_to_all_single(received, rows.T.contiguous())
            return torch.hstack(received.split(2))
        """,
        """
        def transpose(rows):
            received = [torch.empty(2, 2) for _ in range(n)]
            dist.all_to_all(received, [rows[:, 2 * r : 2 * r + 2].contiguous() for r in range(n)])
            return torch.vstack(received).T
        """,
    ],
)
def test_transpose_in_other_styles(world, answer):
    assert says(checks.collectives.transpose, world, answer).startswith("Solved. ")


def test_transpose_within_the_blocks_only(world):
    answer = """
        def transpose(rows):
            return rows.view(2, n, 2).permute(2, 1, 0).reshape(2, 2 * n)
    """
    assert says(checks.collectives.transpose, world, answer) == (
        "Not yet. Rank 0 holds 2.0 in row 0, column 2, expected 200.0."
    )


def test_transpose_of_the_blocks_but_not_within_them(world):
    answer = """
        def transpose(rows):
            blocks = rows.view(2, n, 2).permute(1, 0, 2).contiguous()
            received = torch.empty_like(blocks)
            dist.all_to_all_single(received, blocks)
            return received.permute(1, 0, 2).reshape(2, 2 * n)
    """
    assert says(checks.collectives.transpose, world, answer) == (
        "Not yet. Rank 0 holds 1.0 in row 0, column 1, expected 100.0."
    )


def test_transpose_of_the_wrong_shape(world):
    assert says(checks.collectives.transpose, world, "def transpose(rows):\n    return rows.T") == (
        "Not yet. Rank 0 returned a tensor of shape [8, 2], expected a tensor of shape [2, 8]."
    )


def test_transpose_of_the_whole_matrix_on_every_rank(world):
    answer = """
        def transpose(rows):
            matrix = [torch.empty_like(rows) for _ in range(n)]
            dist.all_gather(matrix, rows)
            return torch.cat(matrix).T[2 * rank:2 * rank + 2]
    """
    assert says(checks.collectives.transpose, world, answer) == (
        "Not yet. Rank 0 called 1 all_gather, expected 1 all_to_all."
    )


# ---------------------------------------------------------------- sharded_step


def test_sharded_step_solution(world):
    assert says(checks.collectives.sharded_step, world, solution("sharded_step")) == (
        "Solved. Every rank returned the new weights, and updated only its own shard."
    )


def test_sharded_step_with_the_mean_by_the_operator(world):
    answer = """
        def sharded_step(weights, gradient, rate):
            share = torch.empty(2)
            dist.reduce_scatter_tensor(share, gradient, dist.ReduceOp.AVG)
            weights = weights.clone()
            weights[2 * rank : 2 * rank + 2] -= rate * share
            dist.all_gather_into_tensor(weights, weights[2 * rank : 2 * rank + 2].clone())
            return weights
    """
    assert says(checks.collectives.sharded_step, world, answer).startswith("Solved. ")


def test_sharded_step_with_one_tensor(world):
    answer = """
        def sharded_step(weights, gradient, rate):
            size = len(weights) // n
            mine = gradient.new_empty(size)
            dist.reduce_scatter_tensor(mine, gradient)
            share = weights[rank * size : (rank + 1) * size] - rate / n * mine
            result = torch.empty_like(weights)
            dist.all_gather_into_tensor(result, share)
            return result
    """
    assert says(checks.collectives.sharded_step, world, answer).startswith("Solved. ")


def test_sharded_step_in_place(world):
    answer = """
        def sharded_step(weights, gradient, rate):
            share = torch.empty(2)
            dist.reduce_scatter(share, [part / n for part in gradient.split(2)])
            parts = list(weights.split(2))
            dist.all_gather(parts, parts[rank].sub_(rate * share).clone())
            return weights
    """
    assert says(checks.collectives.sharded_step, world, answer).startswith("Solved. ")


def test_sharded_step_skeleton(world):
    assert says(checks.collectives.sharded_step, world, skeleton("sharded_step")) == (
        "Not yet. On rank 0 weight 0 is -0.5, expected -1.25."
    )


def test_sharded_step_with_the_sum_of_the_gradients(world):
    answer = solution("sharded_step").replace(" / n", "")
    assert (
        says(checks.collectives.sharded_step, world, answer) == "Not yet. On rank 0 weight 0 is -5.0, expected -1.25."
    )


def test_sharded_step_that_sends_the_gradients_to_all(world):
    answer = """
        def sharded_step(weights, gradient, rate):
            dist.all_reduce(gradient, dist.ReduceOp.AVG)
            return weights - rate * gradient
    """
    assert says(checks.collectives.sharded_step, world, answer) == (
        "Not yet. The weights are right. Rank 0 called 1 all_reduce, expected "
        "1 reduce_scatter of the gradients and 1 all_gather of the weights."
    )


def test_sharded_step_that_returns_its_share_only(world):
    answer = """
        def sharded_step(weights, gradient, rate):
            share = torch.empty(2)
            dist.reduce_scatter(share, list(gradient.chunk(n)), dist.ReduceOp.AVG)
            return weights.chunk(n)[rank] - rate * share
    """
    assert says(checks.collectives.sharded_step, world, answer) == (
        "Not yet. Rank 0 returned a tensor of shape [2], expected 8 weights."
    )


# ---------------------------------------------------------------- checks.collectives.my_all_reduce


def test_the_lessons_own_two_halves(world):
    answer = cell("03_collectives.ipynb", "def two_halves(").partition("\n\n")[0]
    assert says(checks.collectives.my_all_reduce, world, answer.replace("two_halves", "my_all_reduce")) == (
        "Solved. Every rank returned all sums: one collective computed them, and the other brought them to all ranks."
    )


def test_two_halves_of_one_tensor(world):
    answer = """
        def my_all_reduce(chunks):
            mine = chunks[:1].clone()
            dist.reduce_scatter_tensor(mine, chunks)
            result = torch.empty_like(chunks)
            dist.all_gather_into_tensor(result, mine)
            return result
    """
    assert says(checks.collectives.my_all_reduce, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    "body",
    [
        "mine = chunks.new_zeros(1)\ndist.reduce_scatter(mine, list(chunks.chunk(n)))\n"
        "parts = [chunks.new_zeros(1) for _ in range(n)]\ndist.all_gather(parts, mine)\nreturn torch.cat(parts)",
        "mine = torch.empty_like(chunks[:1])\ndist.reduce_scatter(mine, [*chunks.split(1)], op=dist.ReduceOp.SUM)\n"
        "dist.all_gather([*chunks.split(1)], mine)\nreturn chunks",
    ],
    ids=["a list of parts", "in place"],
)
def test_two_halves_in_other_styles(world, body):
    answer = "def my_all_reduce(chunks):\n" + textwrap.indent(body, "    ")
    assert says(checks.collectives.my_all_reduce, world, answer).startswith("Solved. ")


def test_two_halves_skeleton(world):
    assert says(checks.collectives.my_all_reduce, world, skeleton("my_all_reduce")) == (
        "Not yet. Rank 0 returned [0, 0, 0, 0], expected [1111, 2222, 3333, 4444]."
    )


def test_one_half_only(world):
    answer = """
        def my_all_reduce(chunks):
            result = torch.zeros_like(chunks)
            dist.reduce_scatter(result[here], list(chunks.chunk(n)))
            return result
    """
    assert says(checks.collectives.my_all_reduce, world, answer) == (
        "Not yet. Rank 0 returned [1111, 0, 0, 0], expected [1111, 2222, 3333, 4444]."
    )


def test_the_halves_that_are_the_whole(world):
    answer = """
        def my_all_reduce(chunks):
            dist.all_reduce(chunks)
            return chunks
    """
    assert says(checks.collectives.my_all_reduce, world, answer) == (
        "Not yet. The sums are right. Rank 0 called 1 all_reduce, expected 1 reduce_scatter and 1 all_gather."
    )


def test_the_second_half_without_the_first(world):
    answer = """
        def my_all_reduce(chunks):
            parts = [torch.empty_like(chunks) for _ in range(n)]
            dist.all_gather(parts, chunks)
            return sum(parts)
    """
    assert says(checks.collectives.my_all_reduce, world, answer) == (
        "Not yet. The sums are right. Rank 0 called 1 all_gather, expected 1 reduce_scatter and 1 all_gather."
    )


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [
            ("mean", checks.collectives.mean),
            ("transpose", checks.collectives.transpose),
            ("sharded_step", checks.collectives.sharded_step),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
