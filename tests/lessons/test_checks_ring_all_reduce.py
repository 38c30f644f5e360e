"""The checks of 05_ring_all_reduce: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import World, checks


def skeleton(function):
    return cell("05_ring_all_reduce.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/05_ring_all_reduce.ipynb", f"def {function}(")


SETUP = "\n".join(
    [
        # A deadlock is not waited for as long as in the notebook.
        cell("05_ring_all_reduce.ipynb", "init_process_group(").replace("seconds=10", "seconds=4"),
        cell("05_ring_all_reduce.ipynb", "def pass_on(").partition("\nmust_agree")[0],
        cell("05_ring_all_reduce.ipynb", "def ring_of_the_lesson(") + "\nring_all_reduce = ring_of_the_lesson",
    ]
)


# ---------------------------------------------------------------- my_ring

BY_BATCH = """
def by_batch(outgoing, incoming):
    ends = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]
    for work in dist.batch_isend_irecv(ends):
        work.wait()

"""
SUM = "[[10.0, 20.0, 30.0, 40.0], [50.0, 60.0, 70.0, 80.0], [90.0, 100.0, 110.0, 120.0], [130.0, 140.0, 150.0, 160.0]]"


def test_my_ring_solution(world):
    assert says(checks.ring_all_reduce.my_ring, world, solution("my_ring")) == (
        "Solved. Every rank holds the sum, and every rank sent one chunk a step."
    )


def test_my_ring_skeleton(world):
    assert says(checks.ring_all_reduce.my_ring, world, skeleton("my_ring")) == (
        "Not yet. Rank 0 received 0 messages, expected one in each of 3 steps of the reduce-scatter."
    )


def test_my_ring_with_only_its_first_half(world):
    answer = solution("my_ring")
    first_half = answer[: answer.rindex("    for step")]
    assert says(checks.ring_all_reduce.my_ring, world, first_half) == (
        "Not yet. The reduce-scatter is right: each rank finishes one chunk. After the all-gather rank 0 holds "
        "[1.0, 2.0, 3.0, 4.0] in chunk 0, expected [10.0, 20.0, 30.0, 40.0]."
    )


@pytest.mark.parametrize(
    "changes",
    [
        [("rank - step", "rank - step - 1")],  # everybody begins one chunk earlier
        [("pass_on(", "by_batch("), ("def my_ring", BY_BATCH + "def my_ring")],
        [("step) % n", "step + n) % n")],
    ],
    ids=["another first chunk", "a batch", "another formula"],
)
def test_my_ring_in_other_styles(world, changes):
    answer = solution("my_ring")
    for old, new in changes:
        assert old in answer
        answer = answer.replace(old, new)
    assert says(checks.ring_all_reduce.my_ring, world, answer).startswith("Solved. ")


def test_my_ring_that_posts_its_receives_first(world):
    answer = """
        def my_ring(tensor):
            chunks = tensor.tensor_split(n)
            received = [torch.empty_like(chunks[(rank - step - 1) % n]) for step in range(2 * (n - 1))]
            works = [dist.irecv(chunk, left) for chunk in received]
            for step in range(2 * (n - 1)):
                work = dist.isend(chunks[(rank - step) % n], right)
                works[step].wait()
                work.wait()
                mine = chunks[(rank - step - 1) % n]
                mine.copy_(mine + received[step] if step < n - 1 else received[step])
        """
    assert says(checks.ring_all_reduce.my_ring, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(
            "mine += received",
            "mine.copy_(received)",
            f"After 3 steps rank 0 holds [[1.0, 2.0, 3.0, 4.0], [10.0, 12.0, 14.0, 16.0], [27.0, 30.0, 33.0, 36.0], "
            f"[52.0, 56.0, 60.0, 64.0]], expected one chunk of the sum: one of {SUM}.",
            id="copies",
        ),
        pytest.param(
            "pass_on(chunks[(rank - step + 1) % n], chunks[(rank - step) % n])",
            "pass_on(chunks[(rank - step) % n], chunks[(rank - step - 1) % n])",
            "The reduce-scatter is right: each rank finishes one chunk. After the all-gather rank 0 holds ",
            id="an all-gather of what is not finished",
        ),
        pytest.param(
            "received = buffer[: len(mine)]",
            "received = buffer",
            "Rank ",
            id="chunks that are all as long as the first",
        ),
        pytest.param("        mine += received", "        mine + received", "After 3 steps rank 0 holds ", id="lost"),
        pytest.param("        mine += received", "        missing += received", "Rank 0 raised ", id="an error"),
    ],
)
def test_my_ring_that_is_wrong(broken_world, old, new, message):
    answer = solution("my_ring")
    assert answer.count(old) == 1
    said = says(checks.ring_all_reduce.my_ring, broken_world, answer.replace(old, new))
    assert said.startswith(f"Not yet. {message}"), said


def test_my_ring_with_bytes_of_a_ring_of_whole_tensors(world):
    answer = """
        def my_ring(tensor):
            passing, received = tensor.clone(), torch.empty_like(tensor)
            for step in range(n - 1):
                pass_on(passing, received)
                tensor += received
                passing, received = received, passing
        """
    assert says(checks.ring_all_reduce.my_ring, world, answer) == (
        "Not yet. Rank 0 sent 192 bytes, and the ring sends 96: 96 too many."
    )


# ---------------------------------------------------------------- reduce_scatter


def test_reduce_scatter_solution(world):
    assert says(checks.ring_all_reduce.reduce_scatter, world, solution("reduce_scatter")) == (
        "Solved. Rank r holds chunk r of the sum, and every rank sent 48 bytes."
    )


def test_reduce_scatter_skeleton(world):
    assert says(checks.ring_all_reduce.reduce_scatter, world, skeleton("reduce_scatter")) == (
        "Not yet. Rank 0 holds [1.0, 2.0, 3.0, 4.0], expected [10.0, 20.0, 30.0, 40.0]."
    )


@pytest.mark.parametrize(
    "changes",
    [
        [("dist.recv(received, left)", "dist.irecv(received, left).wait()")],
        [
            (
                "work = dist.isend(chunks[(rank - step) % n], right)",
                "send = dist.P2POp(dist.isend, chunks[(rank - step) % n], right)",
            ),
            (
                "dist.recv(received, left)",
                "works = dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, received, left)])",
            ),
            ("work.wait()", "[work.wait() for work in works]"),
        ],
        [
            ("tensor.tensor_split(n)", "list(tensor.clone().chunk(n))"),
            ("mine += received", "mine = chunks[(rank - step - 1) % n] = mine + received"),
        ],
    ],
    ids=["irecv", "a batch", "new tensors"],
)
def test_reduce_scatter_in_other_styles(world, changes):
    answer = solution("reduce_scatter")
    for old, new in changes:
        assert old in answer
        answer = answer.replace(old, new)
    assert says(checks.ring_all_reduce.reduce_scatter, world, answer).startswith("Solved. ")


def test_reduce_scatter_in_a_ring_of_whole_tensors(world):
    answer = """
        def reduce_scatter(tensor):
            passing, received = tensor.clone(), torch.empty_like(tensor)
            for step in range(n - 1):
                pass_on(passing, received)
                tensor += received
                passing, received = received, passing
            return tensor.tensor_split(n)[rank]
    """
    assert says(checks.ring_all_reduce.reduce_scatter, world, answer) == (
        "Not yet. Rank 0 sent 192 bytes, and a reduce-scatter sends 48: 144 too many."
    )


def test_reduce_scatter_with_a_step_too_many(world):
    answer = """
        def reduce_scatter(tensor):
            chunks = tensor.tensor_split(n)
            received = torch.empty_like(chunks[0])
            for step in range(n - 1):
                pass_on(chunks[(rank - step) % n], received)
                chunks[(rank - step - 1) % n].add_(received)
            pass_on(chunks[right], received)
            return received
    """
    assert says(checks.ring_all_reduce.reduce_scatter, world, answer) == (
        "Not yet. Rank 0 sent 64 bytes, and a reduce-scatter sends 48: 16 too many."
    )


def test_reduce_scatter_of_an_all_reduce(world):
    answer = """
        def reduce_scatter(tensor):
            ring_all_reduce(tensor)
            return tensor.tensor_split(n)[rank]
    """
    assert says(checks.ring_all_reduce.reduce_scatter, world, answer) == (
        "Not yet. Rank 0 sent 96 bytes, and a reduce-scatter sends 48: 48 too many."
    )


def test_reduce_scatter_of_one_rank_that_sends_more(world):
    answer = (
        solution("reduce_scatter")
        + """
def without_waste(tensor, solve=reduce_scatter):
    mine = solve(tensor)
    if rank == 2:
        dist.send(mine[:1], 3)
    if rank == 3:
        dist.recv(torch.empty(1), 2)
    return mine

reduce_scatter = without_waste
"""
    )
    assert says(checks.ring_all_reduce.reduce_scatter, world, answer) == (
        "Not yet. Rank 2 sent 52 bytes, and a reduce-scatter sends 48: 4 too many."
    )


def test_reduce_scatter_as_it_stands_in_the_ring(world):
    answer = """
        def reduce_scatter(tensor):
            chunks = tensor.tensor_split(n)
            received = torch.empty_like(chunks[0])
            for step in range(n - 1):
                pass_on(chunks[(rank - step) % n], received)
                chunks[(rank - step - 1) % n].add_(received)
            return chunks[right]
    """
    assert says(checks.ring_all_reduce.reduce_scatter, world, answer) == (
        "Not yet. Rank 0 holds [50.0, 60.0, 70.0, 80.0], expected [10.0, 20.0, 30.0, 40.0]."
    )


def test_reduce_scatter_by_the_library(world):
    answer = """
        def reduce_scatter(tensor):
            dist.all_reduce(tensor)
            return tensor.tensor_split(n)[rank]
    """
    assert says(checks.ring_all_reduce.reduce_scatter, world, answer) == (
        "Not yet. Rank 0 sent 0 bytes, and a reduce-scatter sends 48: 48 too few."
    )


def test_reduce_scatter_that_returns_something_else(world):
    assert says(checks.ring_all_reduce.reduce_scatter, world, "def reduce_scatter(tensor):\n    pass") == (
        "Not yet. Rank 0 returned None, expected a tensor of 4 elements."
    )
    assert says(checks.ring_all_reduce.reduce_scatter, world, "def reduce_scatter(tensor):\n    return tensor") == (
        "Not yet. Rank 0 holds 16 elements, expected 4."
    )


# ---------------------------------------------------------------- two_way_ring


def test_two_way_ring_solution(world):
    assert says(checks.ring_all_reduce.two_way_ring, world, solution("two_way_ring")) == (
        "Solved. Every rank holds the sum, and sent 48 bytes each way, both ways at once."
    )


def test_two_way_ring_skeleton(world):
    assert says(checks.ring_all_reduce.two_way_ring, world, skeleton("two_way_ring")) == (
        "Not yet. Rank 0 sent 6 messages, and a ring in both directions sends 12: 6 too few."
    )


@pytest.mark.parametrize(
    "changes",
    [
        [
            (
                "works.append(dist.isend(chunks[(place - step) % n], target))",
                "works.append(dist.P2POp(dist.isend, chunks[(place - step) % n], target))",
            ),
            ("works.append(dist.irecv(received, source))", "works.append(dist.P2POp(dist.irecv, received, source))"),
            ("for work in works:", "for work in dist.batch_isend_irecv(works):"),
        ],
        [("tensor.tensor_split(2)", "(tensor[: len(tensor) // 2], tensor[len(tensor) // 2 :])")],
        [("(rank, -rank), (right, left), (left, right)", "(rank, n - rank), (right, left), (left, right)")],
    ],
    ids=["a batch", "slices", "places from 1 to n"],
)
def test_two_way_ring_in_other_styles(world, changes):
    answer = solution("two_way_ring")
    for old, new in changes:
        assert old in answer
        answer = answer.replace(old, new)
    assert says(checks.ring_all_reduce.two_way_ring, world, answer).startswith("Solved. ")


def test_two_way_ring_of_two_rings_to_the_right(world):
    answer = """
        def two_way_ring(tensor):
            for half in tensor.tensor_split(2):
                ring_all_reduce(half)
    """
    assert (
        says(checks.ring_all_reduce.two_way_ring, world, answer)
        == "Not yet. Rank 0 sent 96 bytes to rank 1, expected 48."
    )


def test_two_way_ring_that_takes_turns(world):
    answer = """
        def two_way_ring(tensor):
            global rank, left, right
            first, second = tensor.tensor_split(2)
            ring_all_reduce(first)
            rank, left, right = -rank, right, left
            ring_all_reduce(second)
            rank, left, right = -rank, right, left
    """
    assert says(checks.ring_all_reduce.two_way_ring, world, answer) == (
        "Not yet. Rank 0 waited for one way before it sent the other, in step 1. (dist.send waits.)"
    )


def test_two_way_ring_that_takes_turns_and_waits_for_its_sends_in_the_end(world):
    answer = """
        def two_way_ring(tensor):
            halves, works = [half.tensor_split(n) for half in tensor.tensor_split(2)], []
            for chunks, place, target, source in zip(halves, (rank, -rank), (right, left), (left, right)):
                for step in range(2 * (n - 1)):
                    mine = chunks[(place - step - 1) % n]
                    received = torch.empty_like(mine)
                    work = dist.irecv(received, source)
                    works.append(dist.isend(chunks[(place - step) % n].clone(), target))
                    work.wait()
                    mine.copy_(mine + received if step < n - 1 else received)
            for work in works:
                work.wait()
    """
    assert says(checks.ring_all_reduce.two_way_ring, world, answer) == (
        "Not yet. Rank 0 waited for one way before it sent the other, in step 1. (dist.send waits.)"
    )


def test_two_way_ring_of_whole_tensors(world):
    answer = """
        def two_way_ring(tensor):
            passing, received = tensor.clone(), torch.empty_like(tensor)
            for step in range(n - 1):
                pass_on(passing, received)
                tensor += received
                passing, received = received, passing
    """
    assert says(checks.ring_all_reduce.two_way_ring, world, answer) == (
        "Not yet. Rank 0 sent 192 bytes, and a ring in both directions sends 96: 96 too many."
    )


def test_two_way_ring_with_a_step_too_many(world):
    answer = solution("two_way_ring").replace("range(2 * (n - 1))", "range(2 * n - 1)")
    assert says(checks.ring_all_reduce.two_way_ring, world, answer) == (
        "Not yet. Rank 0 sent 112 bytes, and a ring in both directions sends 96: 16 too many."
    )


def test_two_way_ring_that_stops_half_way(world):
    answer = solution("two_way_ring").replace("range(2 * (n - 1))", "range(n - 1)")
    assert says(checks.ring_all_reduce.two_way_ring, world, answer).startswith("Not yet. Rank 0 holds [")


def test_two_way_ring_that_all_begin_with_send(broken_world):
    answer = """
        def two_way_ring(tensor):
            dist.send(tensor[:8], right)
            dist.recv(tensor[:8], left)
    """
    assert says(checks.ring_all_reduce.two_way_ring, broken_world, answer).startswith("Not yet. Deadlock: ")


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [
            ("reduce_scatter", checks.ring_all_reduce.reduce_scatter),
            ("two_way_ring", checks.ring_all_reduce.two_way_ring),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
