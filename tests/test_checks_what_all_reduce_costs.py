"""The checks of 06_what_all_reduce_costs: each accepts the solution, and says what is wrong with other answers."""

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
    return cell("06_what_all_reduce_costs.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/06_what_all_reduce_costs.ipynb", f"def {function}(")


SETUP = "\n".join(
    [
        cell("06_what_all_reduce_costs.ipynb", "init_process_group("),
        cell("06_what_all_reduce_costs.ipynb", "def pass_on("),
        cell("06_what_all_reduce_costs.ipynb", "def ring_all_reduce("),
        cell("solutions/06_what_all_reduce_costs.ipynb", "def exchange("),
    ]
)


def says(check, world, answer):
    """Define an answer on every rank, and return what the check says."""
    world.view.execute(textwrap.dedent(answer))
    return repr(check(world))


# ---------------------------------------------------------------- crossover


def test_crossover_solution(world):
    assert says(checks.crossover, world, solution("crossover")) == (
        "Solved. Every rank found where tree and ring take equally long, from 4 to 1000 ranks."
    )


def test_crossover_skeleton(world):
    assert says(checks.crossover, world, skeleton("crossover")) == (
        "Not yet. For 4 ranks, 50 µs and 1 Gbit/s rank 0 returned 25000, and the target is 5000 bytes."
    )


RIGHT_CROSSOVERS = {
    "solved on paper": """
        def crossover(n, alpha, beta):
            rounds = (n - 1).bit_length()
            return round(alpha * beta * n * (n - 1 - rounds) / (n * rounds - n + 1))
        """,
    "searched for": """
        def crossover(n, alpha, beta):
            rounds = 2 * (n - 1).bit_length()
            size = 1.0
            while rounds * (alpha + size / beta) < 2 * (n - 1) * (alpha + size / n / beta):
                size *= 1.002
            return size
        """,
    "a tensor": """
        def crossover(n, alpha, beta):
            rounds = torch.tensor(2.0 * (n - 1).bit_length(), dtype=torch.float64)
            return (2 * (n - 1) - rounds) * alpha * beta / (rounds - 2 * (n - 1) / n)
        """,
}


@pytest.mark.parametrize("answer", RIGHT_CROSSOVERS.values(), ids=RIGHT_CROSSOVERS)
def test_crossover_in_another_way(world, answer):
    assert says(checks.crossover, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("rounds", "bytes_of_the_ring", "found"),
    [
        pytest.param("(n - 1).bit_length()", "2 * (n - 1) / n", "50000", id="only up the tree"),
        pytest.param("2 * (n - 1).bit_length()", "0", "3125", id="a ring without bytes"),
        pytest.param("2 * (n - 1).bit_length()", "2 * (n - 1)", "-6250", id="a ring of whole tensors"),
    ],
)
def test_crossover_that_is_wrong(world, rounds, bytes_of_the_ring, found):
    answer = f"""
        def crossover(n, alpha, beta):
            rounds = {rounds}
            return (2 * (n - 1) - rounds) * alpha * beta / (rounds - {bytes_of_the_ring})
    """
    assert says(checks.crossover, world, answer) == (
        f"Not yet. For 4 ranks, 50 µs and 1 Gbit/s rank 0 returned {found}, and the target is 5000 bytes."
    )


def test_crossover_without_a_result(world):
    answer = "def crossover(n, alpha, beta):\n    print(alpha * beta * n)"
    assert says(checks.crossover, world, answer) == (
        "Not yet. For 4 ranks, 50 µs and 1 Gbit/s rank 0 returned None, and the target is 5000 bytes."
    )


# ---------------------------------------------------------------- timed


def test_timed_solution(world):
    assert says(checks.timed, world, solution("timed")).startswith("Solved. All ranks returned 0.1")


def test_timed_skeleton(world):
    verdict = says(checks.timed, world, skeleton("timed"))
    assert verdict == "Not yet. Rank 0 began before the last rank had come. Nobody waited for it."


RIGHT_STOPWATCHES = {
    "objects": """
        def timed(algorithm, tensor):
            everybody = [None] * n
            dist.all_gather_object(everybody, rank)
            begin = time.monotonic()
            algorithm(tensor)
            dist.all_gather_object(everybody, time.monotonic() - begin)
            return max(everybody)
        """,
    "a barrier at both ends, and the time of rank 0": """
        def timed(algorithm, tensor):
            dist.barrier()
            seconds = torch.tensor([-time.perf_counter()], dtype=torch.float64)
            algorithm(tensor)
            dist.barrier()
            seconds += time.perf_counter()
            dist.broadcast(seconds, src=0)
            return seconds
        """,
    "32 bits": """
        def timed(algorithm, tensor):
            dist.all_reduce(torch.ones(1))
            begin = time.perf_counter()
            algorithm(tensor)
            seconds = torch.tensor(time.perf_counter() - begin)
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            return seconds.item()
        """,
}


@pytest.mark.parametrize("answer", RIGHT_STOPWATCHES.values(), ids=RIGHT_STOPWATCHES)
def test_timed_in_another_way(world, answer):
    assert says(checks.timed, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param("ReduceOp.MAX", "ReduceOp.MIN", "and the slowest of them took 0.1", id="the fastest"),
        pytest.param("dist.all_reduce(seconds, op=dist.ReduceOp.MAX)", "pass", "one number for all", id="each its own"),
        pytest.param(
            "    dist.barrier()\n    start = time.perf_counter()",
            "    start = time.perf_counter()\n    dist.barrier()",
            "Somebody's clock ran while another one was missing.",
            id="the clock before the barrier",
        ),
        pytest.param("    algorithm(tensor)", "    pass", "Rank 0 called the algorithm 0 times", id="nothing"),
        pytest.param("    return seconds.item()", "", "Rank 0 returned None", id="no result"),
        pytest.param("    dist.barrier()", "", "Nobody waited for it.", id="no barrier"),
    ],
)
def test_timed_that_is_wrong(world, right, wrong, verdict):
    answer = solution("timed")
    assert answer.count(right) == 1
    found = says(checks.timed, world, answer.replace(right, wrong))
    assert found.startswith("Not yet. ") and verdict in found


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
            ("crossover", checks.crossover),
            ("timed", checks.timed),
            ("all_gather", checks.recursive_doubling),
            ("halving_doubling", checks.halving_doubling),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
