"""The checks of 03_collectives: each accepts the solution, and says what is wrong with other answers."""

import textwrap
from pathlib import Path

import nbformat
import pytest

from helpers import World, checks
from helpers.checks import judging
from helpers.checks.judging import RESTART

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def cell(path, contains):
    """Return the `%%px` cell of a notebook that contains a text, without its first line."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / path, as_version=4).cells if cell.cell_type == "code"]
    (found,) = [source for source in cells if source.startswith("%%px") and contains in source]
    return found.partition("\n")[2]


def skeleton(function):
    return cell("03_collectives.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/03_collectives.ipynb", f"def {function}(")


# A shorter timeout than the learner's: a deadlock takes as long.
SETUP = cell("03_collectives.ipynb", "init_process_group(").replace("timedelta(seconds=10)", "timedelta(seconds=4)")


def says(check, world, answer):
    """Define an answer on every rank, and return what the check says."""
    world.view.execute(textwrap.dedent(answer))
    return repr(check(world))


# ---------------------------------------------------------------- mean_of_all


def test_mean_solution(world):
    assert says(checks.mean_of_all, world, solution("mean")) == (
        "Solved. Every rank returned 3.0, after one all_reduce."
    )


def test_mean_skeleton(world):
    assert says(checks.mean_of_all, world, skeleton("mean")) == "Not yet. Rank 0 returned 1.0, and the target is 3.0."


def test_mean_as_a_number_of_numpy(world):
    answer = """
        def mean(numbers):
            parts = torch.tensor([numbers.sum(), len(numbers)])
            dist.all_reduce(parts)
            return parts[0].numpy() / parts[1].numpy()
    """
    assert says(checks.mean_of_all, world, answer) == "Solved. Every rank returned 3.0, after one all_reduce."


def test_mean_of_the_means(world):
    answer = """
        def mean(numbers):
            result = numbers.mean()
            dist.all_reduce(result, op=dist.ReduceOp.AVG)
            return result
    """
    assert says(checks.mean_of_all, world, answer) == "Not yet. Rank 0 returned 2.5, and the target is 3.0."


def test_mean_in_two_calls(world):
    answer = """
        def mean(numbers):
            total, count = numbers.sum(), torch.tensor(len(numbers))
            dist.all_reduce(total)
            dist.all_reduce(count)
            return (total / count).item()
    """
    assert says(checks.mean_of_all, world, answer) == (
        "Not yet. Rank 0 called 2 all_reduce, and the target is 1 all_reduce."
    )


def test_mean_by_gathering(world):
    answer = """
        def mean(numbers):
            sums = [torch.zeros(2) for _ in range(n)]
            dist.all_gather(sums, torch.tensor([numbers.sum(), len(numbers)]))
            total, count = sum(sums)
            return (total / count).item()
    """
    assert says(checks.mean_of_all, world, answer) == (
        "Not yet. Rank 0 called 1 all_gather, and the target is 1 all_reduce."
    )


def test_mean_weighted_by_the_count_where_there_are_no_numbers(world):
    answer = """
        def mean(numbers):
            parts = torch.tensor([numbers.mean() * len(numbers), len(numbers)])
            dist.all_reduce(parts)
            return (parts[0] / parts[1]).item()
    """
    assert says(checks.mean_of_all, world, answer) == (
        "Not yet. When rank 0 holds no numbers, rank 0 returned nan, and the target is 3.3333."
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
    assert says(checks.mean_of_all, broken_world, answer) == (
        f"Not yet. Deadlock: the group's timeout ended the wait on these ranks: 1, 2, 3. {RESTART}"
    )


def test_mean_that_returns_nothing(world):
    assert says(checks.mean_of_all, world, "def mean(numbers):\n    pass") == (
        "Not yet. Rank 0 returned None, and the target is 3.0."
    )


def test_an_answer_that_raises(world):
    answer = """
        def mean(numbers):
            return 1 / (len(numbers) - 1)
    """
    assert says(checks.mean_of_all, world, answer) == "Not yet. Rank 0 raised ZeroDivisionError: division by zero"


# ---------------------------------------------------------------- transposed


def test_transpose_solution(world):
    assert says(checks.transposed, world, solution("transpose")) == (
        "Solved. Every rank holds its rows of the transposed matrix, after one all_to_all."
    )


def test_transpose_skeleton(world):
    assert says(checks.transposed, world, skeleton("transpose")) == (
        "Not yet. Rank 0 holds 1.0 in row 0, column 1, and the target is 100.0."
    )


def test_transpose_within_the_blocks_only(world):
    answer = """
        def transpose(rows):
            return rows.view(2, n, 2).permute(2, 1, 0).reshape(2, 2 * n)
    """
    assert says(checks.transposed, world, answer) == (
        "Not yet. Rank 0 holds 2.0 in row 0, column 2, and the target is 200.0."
    )


def test_transpose_of_the_blocks_but_not_within_them(world):
    answer = """
        def transpose(rows):
            blocks = rows.view(2, n, 2).permute(1, 0, 2).contiguous()
            received = torch.empty_like(blocks)
            dist.all_to_all_single(received, blocks)
            return received.permute(1, 0, 2).reshape(2, 2 * n)
    """
    assert says(checks.transposed, world, answer) == (
        "Not yet. Rank 0 holds 1.0 in row 0, column 1, and the target is 100.0."
    )


def test_transpose_of_the_wrong_shape(world):
    assert says(checks.transposed, world, "def transpose(rows):\n    return rows.T") == (
        "Not yet. Rank 0 returned a tensor of shape [8, 2], and the target is a tensor of shape [2, 8]."
    )


def test_transpose_of_the_whole_matrix_on_every_rank(world):
    answer = """
        def transpose(rows):
            matrix = [torch.empty_like(rows) for _ in range(n)]
            dist.all_gather(matrix, rows)
            return torch.cat(matrix).T[2 * rank:2 * rank + 2]
    """
    assert says(checks.transposed, world, answer) == (
        "Not yet. Rank 0 called 1 all_gather, and the target is 1 all_to_all."
    )


# ---------------------------------------------------------------- grid_sums

GRID_SUMS = """
    def grid_sums(number):
        rows = [list(range(n))[first:first + 2] for first in range(0, n, 2)]
        columns = [list(range(n))[first::2] for first in (0, 1)]
        sums = []
        for members in {groups}:
            {make}
            if rank in members:
                sums.append(number.clone())
                dist.all_reduce(sums[-1], group=group)
        return sums
"""
MAKE = "group = dist.new_group(members, timeout=timedelta(seconds=4))"


def test_grid_sums_solution(world):
    assert says(checks.grid_sums, world, solution("grid_sums")) == (
        "Solved. Every rank holds the sums of its row and its column, after two all_reduces."
    )


def test_grid_sums_skeleton(world):
    assert says(checks.grid_sums, world, skeleton("grid_sums")) == (
        "Not yet. Rank 0 returned 1 for its row, and the target is 11."
    )


def test_grid_sums_in_the_wrong_order(world):
    assert says(checks.grid_sums, world, GRID_SUMS.format(groups="columns + rows", make=MAKE)) == (
        "Not yet. Rank 0 returned 101 for its row, and the target is 11."
    )


def test_grid_sums_of_the_rows_only(world):
    assert says(checks.grid_sums, world, GRID_SUMS.format(groups="rows", make=MAKE)) == (
        "Not yet. Rank 0 returned a list of 1, and the target is two tensors."
    )


def test_grid_sums_in_the_group_of_all(world):
    answer = """
        def grid_sums(number):
            row, column = number.clone(), number.clone()
            dist.all_reduce(row)
            dist.all_reduce(column)
            return row, column
    """
    assert says(checks.grid_sums, world, answer) == ("Not yet. Rank 0 returned 1111 for its row, and the target is 11.")


def test_grid_sums_by_gathering(world):
    answer = """
        def grid_sums(number):
            numbers = [torch.zeros_like(number) for _ in range(n)]
            dist.all_gather(numbers, number)
            first = rank - rank % 2
            return sum(numbers[first:first + 2]), sum(numbers[rank % 2::2])
    """
    assert says(checks.grid_sums, world, answer) == (
        "Not yet. Rank 0 called 1 all_gather, and the target is 2 all_reduce."
    )


def test_grid_sums_in_groups_that_only_their_members_make(broken_world, monkeypatch):
    monkeypatch.setattr(judging, "_SECONDS_TO_ANSWER", 6)
    make = f"if rank in members: {MAKE}"
    verdict = says(checks.grid_sums, broken_world, GRID_SUMS.format(groups="rows + columns", make=make))
    # Two groups meet under one name: who finds whom is a matter of luck.
    assert verdict.startswith("Not yet. ") and (RESTART in verdict or "for its" in verdict)


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.parametrize("size", [2, 5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [
            ("mean", checks.mean_of_all),
            ("transpose", checks.transposed),
            ("grid_sums", checks.grid_sums),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
