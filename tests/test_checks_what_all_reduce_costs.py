"""The checks of 05_what_all_reduce_costs: each accepts the solution, and says what is wrong with other answers."""

import textwrap
from pathlib import Path

import nbformat
import pytest

from helpers import World, checks

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def cell(path, contains):
    """Return the `%%px` cell of a notebook that contains a text, without its first line."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / path, as_version=4).cells if cell.cell_type == "code"]
    (found,) = [source for source in cells if source.startswith("%%px") and contains in source]
    return found.partition("\n")[2]


def skeleton(function):
    return cell("05_what_all_reduce_costs.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/05_what_all_reduce_costs.ipynb", f"def {function}(")


SETUP = "\n".join(
    [
        cell("05_what_all_reduce_costs.ipynb", "init_process_group("),
        cell("05_what_all_reduce_costs.ipynb", "def ring_all_reduce("),
        cell("solutions/05_what_all_reduce_costs.ipynb", "def exchange("),
    ]
)


def says(check, world, answer):
    """Define an answer on every rank, and return what the check says."""
    world.view.execute(textwrap.dedent(answer))
    return repr(check(world))


# ---------------------------------------------------------------- recursive_doubling


def test_recursive_doubling_solution(world):
    assert says(checks.recursive_doubling, world, solution("all_gather")) == (
        "Solved. Ranks 0 to 3 hold the tensors of them all, after 2 messages from each."
    )


def test_recursive_doubling_skeleton(world):
    assert says(checks.recursive_doubling, world, skeleton("all_gather")) == (
        "Not yet. Rank 0 holds [10.0, 11.0, 12.0, 13.0] in chunk 1, and the target is [20.0, 21.0, 22.0, 23.0]."
    )


def test_recursive_doubling_that_is_a_ring(world):
    answer = """
        def all_gather(tensor, m):
            chunks = [tensor if other == rank else torch.empty_like(tensor) for other in range(m)]
            for step in range(m - 1):
                pass_on(chunks[(rank - step) % m], chunks[(rank - step - 1) % m])
            return torch.cat(chunks)
    """
    assert says(checks.recursive_doubling, world, answer) == (
        "Not yet. Rank 0 sent 3 messages, and recursive doubling sends 2: 1 too many."
    )


def test_recursive_doubling_of_the_whole_tensor_in_every_round(world):
    answer = """
        def all_gather(tensor, m):
            gathered = torch.zeros(m, len(tensor))
            gathered[rank] = tensor
            distance = 1
            while distance < m:
                received = torch.empty_like(gathered)
                exchange(gathered, received, rank ^ distance)
                gathered += received
                distance *= 2
            return gathered
    """
    assert says(checks.recursive_doubling, world, answer) == (
        "Not yet. Rank 0 sent 128 bytes, and recursive doubling sends 48: 80 too many."
    )


def test_recursive_doubling_with_a_round_too_many(world):
    answer = """
        def all_gather(tensor, m):
            distance = 1
            while distance < m:
                received = torch.empty_like(tensor)
                exchange(tensor, received, rank ^ distance)
                tensor = torch.cat([tensor, received] if rank & distance == 0 else [received, tensor])
                distance *= 2
            exchange(tensor, torch.empty_like(tensor), rank ^ 1)
            return tensor
    """
    assert says(checks.recursive_doubling, world, answer) == (
        "Not yet. Rank 0 sent 112 bytes, and recursive doubling sends 48: 64 too many."
    )


def test_recursive_doubling_in_the_order_of_arrival(world):
    answer = solution("all_gather").replace(
        "[tensor, received] if rank < partner else [received, tensor]", "[tensor, received]"
    )
    assert says(checks.recursive_doubling, world, answer) == (
        "Not yet. Rank 1 holds [20.0, 21.0, 22.0, 23.0] in chunk 0, and the target is [10.0, 11.0, 12.0, 13.0]."
    )


# ---------------------------------------------------------------- halving_doubling


def test_halving_doubling_solution(world):
    assert says(checks.halving_doubling, world, solution("halving_doubling")) == (
        "Solved. Ranks 0 to 3 hold the sum of them all, after 4 messages from each."
    )


def test_halving_doubling_skeleton(world):
    assert says(checks.halving_doubling, world, skeleton("halving_doubling")) == (
        "Not yet. Rank 0 holds [4.0, 8.0, 12.0, 16.0] in chunk 0, and the target is [10.0, 20.0, 30.0, 40.0]."
    )


def test_halving_doubling_that_is_a_ring(world):
    answer = """
        def halving_doubling(tensor, m):
            ring_all_reduce(tensor)
    """
    assert says(checks.halving_doubling, world, answer) == (
        "Not yet. Rank 0 sent 6 messages, and halving-doubling sends 4: 2 too many."
    )


def test_halving_doubling_that_is_a_ring_with_a_step_too_many(world):
    answer = """
        def halving_doubling(tensor, m):
            ring_all_reduce(tensor)
            pass_on(tensor[:4], torch.empty(4))
    """
    assert says(checks.halving_doubling, world, answer) == (
        "Not yet. Rank 0 sent 112 bytes, and halving-doubling sends 96: 16 too many."
    )


def test_halving_doubling_in_a_ring_of_whole_tensors(world):
    answer = """
        def halving_doubling(tensor, m):
            ring_of_whole_tensors(tensor)
    """
    assert says(checks.halving_doubling, world, answer) == (
        "Not yet. Rank 0 sent 192 bytes, and halving-doubling sends 96: 96 too many."
    )


def test_halving_doubling_of_whole_tensors(world):
    answer = """
        def halving_doubling(tensor, m):
            distance, received = 1, torch.empty_like(tensor)
            while distance < m:
                exchange(tensor, received, rank ^ distance)
                tensor += received
                distance *= 2
    """
    assert says(checks.halving_doubling, world, answer) == (
        "Not yet. Rank 0 sent 128 bytes, and halving-doubling sends 96: 32 too many."
    )


def test_halving_doubling_that_only_halves(world):
    answer = solution("halving_doubling").partition("    for distance, part, given")[0]
    assert says(checks.halving_doubling, world, answer).startswith("Not yet. Rank 0 holds [")


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [
            ("all_gather", checks.recursive_doubling),
            ("halving_doubling", checks.halving_doubling),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
