"""The checks of 12_uneven_ranks: each accepts the solution, and says what is wrong with other answers."""

import textwrap

import pytest
from answers import cell, says

from helpers import World, checks
from helpers.checks.judging import RESTART

NAME = "12_uneven_ranks.ipynb"


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


# A shorter timeout than the learner's: a deadlock takes as long.
SETUP = cell(NAME, "init_process_group(").replace("seconds=10", "seconds=4")


# ---------------------------------------------------------------- mean_of_present

MEAN = """
    def my_mean(gradient, has_data):
        {}
"""


def test_mean_skeleton(world):
    assert says(checks.uneven_ranks.my_mean, world, skeleton("my_mean")) == (
        "Not yet. When all ranks have data, rank 0 returned 1.0, expected 2.5."
    )


@pytest.mark.parametrize(
    "lines",
    [
        "pair = torch.tensor([gradient.item() * has_data, float(has_data)]); dist.all_reduce(pair);"
        " return pair[0] / pair[1]",
        "total = gradient if has_data else torch.zeros(1); count = torch.tensor([1.0 * has_data]);"
        " dist.all_reduce(total); dist.all_reduce(count); return total / count",
        "all_of = [None] * n; dist.all_gather_object(all_of, gradient.item() if has_data else None);"
        " there = [x for x in all_of if x is not None]; return sum(there) / len(there)",
    ],
)
def test_mean(world, lines):
    assert says(checks.uneven_ranks.my_mean, world, MEAN.format(lines)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "total = gradient * has_data; dist.all_reduce(total); return total / n",
            "When only the last rank has data, rank 0 returned 1.0, expected 4.0.",
        ),
        (
            "dist.all_reduce(gradient); return gradient / n",
            "When only the last rank has data, rank 0 returned 751.0, expected 4.0.",
        ),
        (
            "total = gradient * has_data; dist.all_reduce(total); return total",
            "When all ranks have data, rank 0 returned 10.0, expected 2.5.",
        ),
        ("return None", "When all ranks have data, rank 0 returned None, expected 2.5."),
    ],
)
def test_no_mean(world, lines, message):
    assert says(checks.uneven_ranks.my_mean, world, MEAN.format(lines)) == f"Not yet. {message}"


# ---------------------------------------------------------------- straggler

STRAGGLER = """
    def straggler(seconds):
        everywhere = [None] * n
        dist.all_gather_object(everywhere, seconds)
        {}
"""


def test_straggler_solution(world):
    assert says(checks.uneven_ranks.straggler, world, solution("straggler")) == (
        "Solved. Every rank named each of the 4 stragglers, and none where there was none."
    )


def test_straggler_skeleton(world):
    assert says(checks.uneven_ranks.straggler, world, skeleton("straggler")) == (
        "Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 0 returned None, expected 0."
    )


@pytest.mark.parametrize(
    "body",
    [
        "every = [torch.zeros(1) for _ in range(n)]\ndist.all_gather(every, torch.tensor([float(seconds)]))\n"
        "values, ranks = torch.cat(every).sort()\nreturn ranks[0].item() if 2 * values[0] <= values[1] else None",
        "every = torch.zeros(n, dtype=torch.float64)\nevery[rank] = seconds\ndist.all_reduce(every)\n"
        "least = int(every.argmin())\nothers = [s for r, s in enumerate(every.tolist()) if r != least]\n"
        "if every[least] > min(others) / 2:\n    return None\nreturn least",
        "pairs = [None] * n\ndist.all_gather_object(pairs, (seconds, rank))\n"
        "(least, who), (following, _), *_ = sorted(pairs)\nreturn who if least / following <= 0.5 else None",
    ],
    ids=["sorted tensors", "a sum of places", "pairs"],
)
def test_straggler_in_other_styles(world, body):
    answer = "def straggler(seconds):\n" + textwrap.indent(body, "    ")
    assert says(checks.uneven_ranks.straggler, world, answer).startswith("Solved. ")


def test_straggler_that_communicates_most(world):
    answer = STRAGGLER.format("return everywhere.index(max(everywhere))")
    assert says(checks.uneven_ranks.straggler, world, answer) == (
        "Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 0 returned 1, expected 0."
    )


def test_straggler_always(world):
    answer = STRAGGLER.format("return everywhere.index(min(everywhere))")
    assert says(checks.uneven_ranks.straggler, world, answer) == (
        "Not yet. When the ranks communicate for 1, 1, 1, 1 s, rank 0 returned 0, expected None."
    )


@pytest.mark.parametrize(
    ("compared_with", "message"),
    [
        ("max(everywhere)", "0.2, 0.3, 1, 1 s, rank 0 returned 0, expected None."),
        ("sum(everywhere) / n", "0.2, 0.3, 1, 1 s, rank 0 returned 0, expected None."),
        ("2 * 0.9 * sorted(everywhere)[1]", "0.6, 1, 1, 1 s, rank 0 returned 0, expected None."),
        ("2 * 0.3 * sorted(everywhere)[1]", "0.4, 1, 1, 1 s, rank 0 returned None, expected 0."),
    ],
)
def test_straggler_compared_with_something_else(world, compared_with, message):
    least = "everywhere.index(min(everywhere))"
    answer = STRAGGLER.format(f"return {least} if min(everywhere) <= {compared_with} / 2 else None")
    assert says(checks.uneven_ranks.straggler, world, answer) == f"Not yet. When the ranks communicate for {message}"


def test_straggler_known_to_itself_only(world):
    answer = STRAGGLER.format("return rank if seconds < sorted(everywhere)[1] / 2 else None")
    assert says(checks.uneven_ranks.straggler, world, answer) == (
        "Not yet. When the ranks communicate for 0.2, 1, 1, 1 s, rank 1 returned None, expected 0."
    )


# ---------------------------------------------------------------- averages

AVERAGES = """
    def averages(gradients):
        longest = torch.tensor(len(gradients))
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        means = []
        for step in range(longest):
            message = torch.tensor([gradients[step].item(), 1.0]) if step < len(gradients) else torch.zeros(2)
            dist.all_reduce(message)
            means.append((message[0] / {}).item())
        return means
"""


def test_averages_solution(world):
    assert says(checks.uneven_ranks.averages, world, solution("averages")) == (
        "Solved. Every rank returned the means of all steps, [2.5, 13.0, 23.5, 34.0] with r + 1 gradients on rank r."
    )


def test_averages_that_ask_for_the_longest_list_first(world):
    assert says(checks.uneven_ranks.averages, world, AVERAGES.format("message[1]")).startswith("Solved. ")


AVERAGED_IN_ANOTHER_WAY = {
    "all lists at once": """
        def averages(gradients):
            everybody = [None] * n
            dist.all_gather_object(everybody, [gradient.item() for gradient in gradients])
            steps = range(max(map(len, everybody)))
            taking_part = [[numbers[step] for numbers in everybody if step < len(numbers)] for step in steps]
            return [sum(numbers) / len(numbers) for numbers in taking_part]
        """,
    "asking in every step": """
        def averages(gradients):
            means, waiting = [], list(gradients)
            while True:
                count = torch.tensor(float(bool(waiting)))
                dist.all_reduce(count)
                if count == 0:
                    return means
                number = waiting.pop(0).clone() if waiting else torch.zeros(1)
                dist.all_reduce(number)
                means.append(float(number / count))
        """,
}


@pytest.mark.parametrize("answer", AVERAGED_IN_ANOTHER_WAY.values(), ids=AVERAGED_IN_ANOTHER_WAY)
def test_averages_in_another_way(world, answer):
    assert says(checks.uneven_ranks.averages, world, answer).startswith("Solved. ")


def test_averages_that_end_when_the_sum_is_0(world):
    answer = """
        def averages(gradients):
            means, waiting = [], list(gradients)
            while True:
                message = torch.tensor([waiting.pop(0).item(), 1.0]) if waiting else torch.zeros(2)
                dist.all_reduce(message)
                if message[0] == 0:
                    return means
                means.append((message[0] / message[1]).item())
    """
    assert says(checks.uneven_ranks.averages, world, answer) == (
        "Not yet. With two gradients on every rank, of which the first add up to 0, rank 0 returned a list of 0, "
        "expected a list of 2."
    )


def test_averages_skeleton(world):
    assert says(checks.uneven_ranks.averages, world, skeleton("averages")) == (
        "Not yet. With r + 1 gradients on rank r, rank 0 returned a list of 1, expected a list of 4."
    )


def test_averages_over_all_ranks(world):
    assert says(checks.uneven_ranks.averages, world, AVERAGES.format("n")) == (
        "Not yet. With r + 1 gradients on rank r, rank 0 returned 9.75 for step 1, expected 13.0."
    )


def test_averages_as_tensors(world):
    answer = AVERAGES.format("message[1]").replace(".item())\n        return", ")\n        return")
    assert says(checks.uneven_ranks.averages, world, answer) == (
        "Not yet. With r + 1 gradients on rank r, rank 0 returned a Tensor for step 0, expected 2.5."
    )


def test_averages_of_the_shortest_list(world):
    answer = AVERAGES.format("message[1]").replace("MAX", "MIN")
    assert says(checks.uneven_ranks.averages, world, answer) == (
        "Not yet. With r + 1 gradients on rank r, rank 0 returned a list of 1, expected a list of 4."
    )


def test_averages_that_leave_early(broken_world):
    answer = """
        def averages(gradients):
            for gradient in gradients:
                dist.all_reduce(gradient)
            return [gradient.item() / n for gradient in gradients]
    """
    verdict = says(checks.uneven_ranks.averages, broken_world, answer)
    assert verdict.startswith("Not yet. Deadlock: ") and verdict.endswith(RESTART)


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [
            ("straggler", checks.uneven_ranks.straggler),
            ("averages", checks.uneven_ranks.averages),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
