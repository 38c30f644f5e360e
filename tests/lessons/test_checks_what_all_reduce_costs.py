"""The checks of 06_what_all_reduce_costs: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import World, checks


def skeleton(function):
    return cell("06_what_all_reduce_costs.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/06_what_all_reduce_costs.ipynb", f"def {function}(")


SETUP = "\n".join(
    [
        cell("06_what_all_reduce_costs.ipynb", "init_process_group("),
        cell("06_what_all_reduce_costs.ipynb", "def ring_all_reduce("),
        cell("solutions/06_what_all_reduce_costs.ipynb", "def exchange("),
    ]
)


# ---------------------------------------------------------------- crossover


def test_crossover_solution(world):
    assert says(checks.what_all_reduce_costs.crossover, world, solution("crossover")) == (
        "Solved. Every rank found the size for which the tree and the ring take equally long, from 4 to 1000 ranks."
    )


def test_crossover_skeleton(world):
    assert says(checks.what_all_reduce_costs.crossover, world, skeleton("crossover")) == (
        "Not yet. For 4 ranks, 50 µs and 8 ns per byte, rank 0 returned 25000, expected 5000 bytes."
    )


RIGHT_CROSSOVERS = {
    "solved on paper": """
        def crossover(n, alpha, beta):
            rounds = (n - 1).bit_length()
            return round(alpha / beta * n * (n - 1 - rounds) / (n * rounds - n + 1))
        """,
    "searched for": """
        def crossover(n, alpha, beta):
            rounds = 2 * (n - 1).bit_length()
            size = 1.0
            while rounds * (alpha + size * beta) < 2 * (n - 1) * (alpha + size / n * beta):
                size *= 1.002
            return size
        """,
    "a tensor": """
        def crossover(n, alpha, beta):
            rounds = torch.tensor(2.0 * (n - 1).bit_length(), dtype=torch.float64)
            return (2 * (n - 1) - rounds) * alpha / beta / (rounds - 2 * (n - 1) / n)
        """,
}


@pytest.mark.parametrize("answer", RIGHT_CROSSOVERS.values(), ids=RIGHT_CROSSOVERS)
def test_crossover_in_another_way(world, answer):
    assert says(checks.what_all_reduce_costs.crossover, world, answer).startswith("Solved. ")


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
            return (2 * (n - 1) - rounds) * alpha / beta / (rounds - {bytes_of_the_ring})
    """
    assert says(checks.what_all_reduce_costs.crossover, world, answer) == (
        f"Not yet. For 4 ranks, 50 µs and 8 ns per byte, rank 0 returned {found}, expected 5000 bytes."
    )


def test_crossover_without_a_result(world):
    answer = "def crossover(n, alpha, beta):\n    print(n * alpha / beta)"
    assert says(checks.what_all_reduce_costs.crossover, world, answer) == (
        "Not yet. For 4 ranks, 50 µs and 8 ns per byte, rank 0 returned None, expected 5000 bytes."
    )


# ---------------------------------------------------------------- timed


def test_timed_solution(world):
    assert says(checks.what_all_reduce_costs.timed, world, solution("timed")).startswith(
        "Solved. All ranks returned 0.1"
    )


def test_timed_skeleton(world):
    verdict = says(checks.what_all_reduce_costs.timed, world, skeleton("timed"))
    assert verdict == (
        "Not yet. Rank 0 began before the last rank had arrived, expected after it. Call a barrier first."
    )


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
    assert says(checks.what_all_reduce_costs.timed, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param("ReduceOp.MAX", "ReduceOp.MIN", "expected at least 0.1", id="the fastest"),
        pytest.param(
            "dist.all_reduce(seconds, op=dist.ReduceOp.MAX)", "pass", "the same number on every rank", id="each its own"
        ),
        pytest.param(
            "    dist.barrier()\n    start = time.perf_counter()",
            "    start = time.perf_counter()\n    dist.barrier()",
            "Start the clock after all ranks have arrived.",
            id="the clock before the barrier",
        ),
        pytest.param("    algorithm(tensor)", "    pass", "Rank 0 called the algorithm 0 times", id="nothing"),
        pytest.param("    return seconds.item()", "", "Rank 0 returned None", id="no result"),
        pytest.param("    dist.barrier()", "", "Call a barrier first.", id="no barrier"),
    ],
)
def test_timed_that_is_wrong(world, right, wrong, verdict):
    answer = solution("timed")
    assert answer.count(right) == 1
    found = says(checks.what_all_reduce_costs.timed, world, answer.replace(right, wrong))
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- two_levels

RIGHT_TWO_LEVELS = {
    "by the ring of one level": """
        def ring(ranks, size, alpha, beta):
            return 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * size * beta

        def two_levels(h, m, size, alpha, inside, across):
            return ring(m, size, alpha, inside) + ring(h, size / m, alpha, across * m)
    """,
    "as a tensor": """
        def two_levels(h, m, size, alpha, inside, across):
            halves = 2 * torch.tensor([m - 1.0, h - 1.0])
            per_byte = torch.tensor([inside / m, across / h])
            return (halves * (alpha + size * per_byte)).sum()
    """,
    "step by step": """
        def two_levels(h, m, size, alpha, inside, across):
            seconds = 0
            for _ in range(2 * (m - 1)):
                seconds += alpha + size / m * inside
            for _ in range(2 * (h - 1)):
                seconds += alpha + m * (size / m / h) * across
            return seconds
    """,
}


def test_two_levels_solution(world):
    assert says(checks.what_all_reduce_costs.two_levels, world, solution("two_levels")) == (
        "Solved. Every rank found the time of the three rings, from 2 to 128 hosts."
    )


@pytest.mark.parametrize("answer", RIGHT_TWO_LEVELS.values(), ids=RIGHT_TWO_LEVELS)
def test_two_levels_in_other_ways(world, answer):
    assert says(checks.what_all_reduce_costs.two_levels, world, answer).startswith("Solved. ")


def test_two_levels_skeleton(world):
    assert says(checks.what_all_reduce_costs.two_levels, world, skeleton("two_levels")) == (
        "Not yet. For 2 hosts of 4 ranks, 1 MiB, 10 µs, 0.1 ns per byte inside and 1 ns per byte across, rank 0 "
        "returned 1.975 ms, expected 1.286 ms."
    )


WRONG_TWO_LEVELS = {
    "the chunks do not share the NIC": ("size * across", "size / m * across"),
    "no latency within a host": ("2 * (m - 1) * alpha +", ""),
    "no latency between hosts": ("2 * (h - 1) * alpha +", ""),
    "within a host only one way": ("2 * (m - 1) / m * size", "(m - 1) / m * size"),
    "every rank sends the whole tensor across": ("size * across", "size * m * across"),
}


@pytest.mark.parametrize(("right", "wrong"), WRONG_TWO_LEVELS.values(), ids=WRONG_TWO_LEVELS)
def test_two_levels_wrong(world, right, wrong):
    answer = solution("two_levels")
    assert answer.count(right) == 1
    assert says(checks.what_all_reduce_costs.two_levels, world, answer.replace(right, wrong)).startswith(
        "Not yet. For 2 hosts of 4 ranks"
    )


# ---------------------------------------------------------------- checks.what_all_reduce_costs.my_tree_reduce

TREE_REDUCE = """
    def my_tree_reduce(tensor):
        received = torch.empty_like(tensor)
        reach = 1
        while reach < n:
            if rank % (2 * reach) == reach:
                dist.send(tensor, rank - reach)
            if rank % (2 * reach) == 0 and rank + reach < n:
                dist.recv(received, rank + reach)
                tensor += received
            reach *= 2
"""


def test_tree_reduce(world):
    assert says(checks.what_all_reduce_costs.my_tree_reduce, world, TREE_REDUCE) == (
        "Solved. Rank 0 holds the sum after 2 rounds, and every other rank sent one message."
    )


def test_tree_reduce_with_messages_that_do_not_wait(world):
    answer = TREE_REDUCE.replace("dist.send(tensor, rank - reach)", "dist.isend(tensor, rank - reach).wait(); return")
    assert says(checks.what_all_reduce_costs.my_tree_reduce, world, answer).startswith("Solved. ")


def test_tree_reduce_from_the_farthest(world):
    answer = """
        def my_tree_reduce(tensor):
            received = torch.empty_like(tensor)
            for reach in (2, 1):
                if reach <= rank < 2 * reach:
                    dist.send(tensor, rank - reach)
                elif rank < reach and rank + reach < n:
                    dist.recv(received, rank + reach)
                    tensor += received
    """
    assert says(checks.what_all_reduce_costs.my_tree_reduce, world, answer).startswith("Solved. ")


def test_tree_reduce_solution(world):
    assert says(checks.what_all_reduce_costs.my_tree_reduce, world, solution("my_tree_reduce")) == (
        "Solved. Rank 0 holds the sum after 2 rounds, and every other rank sent one message."
    )


def test_tree_reduce_skeleton(world):
    assert says(checks.what_all_reduce_costs.my_tree_reduce, world, skeleton("my_tree_reduce")) == (
        "Not yet. Rank 0 holds [1.0, 2.0, 3.0, 4.0], expected [10.0, 20.0, 30.0, 40.0]."
    )


def test_tree_reduce_that_does_not_add(world):
    answer = TREE_REDUCE.replace("tensor += received", "tensor.copy_(received)")
    assert says(checks.what_all_reduce_costs.my_tree_reduce, world, answer).startswith(
        "Not yet. Rank 0 holds [4.0, 8.0, 12.0, 16.0]"
    )


def test_tree_reduce_without_a_tree(world):
    answer = """
        def my_tree_reduce(tensor):
            if rank:
                return dist.send(tensor, 0)
            received = torch.empty_like(tensor)
            for peer in range(1, n):
                dist.recv(received, peer)
                tensor += received
    """
    assert says(checks.what_all_reduce_costs.my_tree_reduce, world, answer) == (
        "Not yet. The sum is right. Rank 0 received 3 messages, expected 2: one in each round of the tree."
    )


def test_tree_reduce_by_a_chain(world):
    answer = """
        def my_tree_reduce(tensor):
            received = torch.empty_like(tensor)
            if rank < n - 1:
                dist.recv(received, rank + 1)
                tensor += received
            if rank:
                dist.send(tensor, rank - 1)
    """
    assert says(checks.what_all_reduce_costs.my_tree_reduce, world, answer) == (
        "Not yet. The sum is right. Rank 0 received 1 message, expected 2: one in each round of the tree."
    )


def test_tree_reduce_by_a_collective(world):
    assert says(
        checks.what_all_reduce_costs.my_tree_reduce,
        world,
        "def my_tree_reduce(tensor):\n    dist.reduce(tensor, dst=0)",
    ) == ("Not yet. The sum is right. Rank 1 sent 0 messages, expected 1.")


# ---------------------------------------------------------------- halving_doubling


def test_halving_doubling_solution(world):
    assert says(checks.what_all_reduce_costs.halving_doubling, world, solution("halving_doubling")) == (
        "Solved. Ranks 0 to 3 hold the sum over these ranks, after 4 messages from each."
    )


RIGHT_HALVING_DOUBLINGS = {
    "a function that calls itself": """
        def halving_doubling(tensor, m):
            def go_on(part, distance):
                if distance:
                    halves = part.tensor_split(2)
                    mine, given = halves if rank & distance == 0 else halves[::-1]
                    received = torch.empty_like(mine)
                    exchange(given, received, rank ^ distance)
                    mine += received
                    go_on(mine, distance // 2)
                    exchange(mine, given, rank ^ distance)
            go_on(tensor, m // 2)
        """,
    "indices, and messages that do not wait": """
        def halving_doubling(tensor, m):
            def swap(given, taken, peer):
                works = [dist.isend(tensor[given], peer), dist.irecv(received[taken], peer)]
                for work in works:
                    work.wait()
            first, last, distance = 0, len(tensor), m // 2
            received = torch.empty_like(tensor)
            path = []
            while distance > 0:
                middle = (first + last) // 2
                halves = [slice(first, middle), slice(middle, last)]
                mine = halves.pop(rank // distance % 2)
                swap(halves[0], mine, rank ^ distance)
                tensor[mine] += received[mine]
                path.append((mine, halves[0], rank ^ distance))
                first, last, distance = mine.start, mine.stop, distance // 2
            for mine, other, peer in path[::-1]:
                swap(mine, other, peer)
                tensor[other] = received[other]
        """,
    "the nearest first": """
        def halving_doubling(tensor, m):
            part, rounds = tensor, []
            for bit in range(m.bit_length() - 1):
                peer = rank ^ 1 << bit
                low, high = part.chunk(2)
                part, given = (low, high) if rank < peer else (high, low)
                received = torch.empty(part.shape)
                exchange(given.clone(), received, peer)
                part.add_(received)
                rounds.insert(0, (peer, part, given))
            for peer, part, given in rounds:
                exchange(part, given, peer)
        """,
}


@pytest.mark.parametrize("style", RIGHT_HALVING_DOUBLINGS)
def test_halving_doubling_in_other_styles(world, style):
    assert says(checks.what_all_reduce_costs.halving_doubling, world, RIGHT_HALVING_DOUBLINGS[style]).startswith(
        "Solved. "
    )


def test_halving_doubling_skeleton(world):
    assert says(checks.what_all_reduce_costs.halving_doubling, world, skeleton("halving_doubling")) == (
        "Not yet. Rank 0 holds [4.0, 8.0, 12.0, 16.0] in chunk 0, expected [10.0, 20.0, 30.0, 40.0]."
    )


def test_halving_doubling_that_is_a_ring(world):
    answer = """
        def halving_doubling(tensor, m):
            ring_all_reduce(tensor)
    """
    assert says(checks.what_all_reduce_costs.halving_doubling, world, answer) == (
        "Not yet. Rank 0 sent 6 messages, expected 4 for halving-doubling."
    )


def test_halving_doubling_that_is_a_ring_with_a_step_too_many(world):
    answer = """
        def halving_doubling(tensor, m):
            ring_all_reduce(tensor)
            pass_on(tensor[:4], torch.empty(4))
    """
    assert says(checks.what_all_reduce_costs.halving_doubling, world, answer) == (
        "Not yet. Rank 0 sent 112 bytes, expected 96 for halving-doubling."
    )


def test_halving_doubling_in_a_ring_of_whole_tensors(world):
    answer = """
        def halving_doubling(tensor, m):
            passing, received = tensor.clone(), torch.empty_like(tensor)
            for _ in range(m - 1):
                pass_on(passing, received)
                tensor += received
                passing, received = received, passing
    """
    assert says(checks.what_all_reduce_costs.halving_doubling, world, answer) == (
        "Not yet. Rank 0 sent 192 bytes, expected 96 for halving-doubling."
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
    assert says(checks.what_all_reduce_costs.halving_doubling, world, answer) == (
        "Not yet. Rank 0 sent 128 bytes, expected 96 for halving-doubling."
    )


def test_halving_doubling_that_only_halves(world):
    answer = solution("halving_doubling").partition("    for distance, part, given")[0]
    assert says(checks.what_all_reduce_costs.halving_doubling, world, answer).startswith("Not yet. Rank 0 holds [")


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [
            ("crossover", checks.what_all_reduce_costs.crossover),
            ("timed", checks.what_all_reduce_costs.timed),
            ("two_levels", checks.what_all_reduce_costs.two_levels),
            ("halving_doubling", checks.what_all_reduce_costs.halving_doubling),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
