"""The checks of 32_fully_shard: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import checks

NAME = "32_fully_shard.ipynb"
SETUP = "import torch\n" + cell(f"solutions/{NAME}", "init_process_group(")
CHECKS = {
    "my_slice": (checks.fully_shard.my_slice, "Every rank knows its rows, and those of all others."),
    "my_clip": (checks.fully_shard.my_clip, "The gradients of all ranks are clipped by one norm, that of all shards."),
    "grouped": (checks.fully_shard.grouped, "As few units as possible, and none is larger than the limit."),
}


@pytest.mark.parametrize("function", CHECKS)
def test_solution(world, function):
    check, words = CHECKS[function]
    assert says(check, world, cell(f"solutions/{NAME}", f"def {function}(")) == f"Solved. {words}"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("my_slice", "Of 7 rows on 2 ranks rank 0 has rows 0 to 3, and rank 0 returned rows 0 to 2."),
        ("my_clip", "With a norm of "),
        ("grouped", "With layers of [4, 4, 4, 4] bytes and a limit of 8 rank 0 has 4 units, and 2 are enough."),
    ],
)
def test_skeleton(world, function, message):
    assert says(CHECKS[function][0], world, cell(NAME, f"def {function}(")).startswith(f"Not yet. {message}")


RIGHT = {
    "chunk": """
        def my_slice(rows, n, rank):
            chunks = torch.arange(rows).chunk(n)
            return chunks[rank].tolist() if rank < len(chunks) else []
        """,
    "counting down": """
        def my_slice(rows, n, rank):
            most, first = (rows + n - 1) // n, 0
            for _ in range(rank):
                first += min(most, rows - first)
            return range(first, first + min(most, rows - first))
        """,
    "row by row": """
        def my_slice(rows, n, rank):
            return [row for row in range(rows) if row // -(-rows // n) == rank]
        """,
    "the library clips": """
        def my_clip(parameters, most):
            torch.nn.utils.clip_grad_norm_(parameters, most)
        """,
    "norms of norms": """
        def my_clip(parameters, most):
            norms = torch.stack([parameter.grad.to_local().norm() for parameter in parameters])
            of_all = [torch.empty_like(norms) for _ in range(dist.get_world_size())]
            dist.all_gather(of_all, norms)
            norm = torch.cat(of_all).norm()
            if norm > most:
                for parameter in parameters:
                    parameter.grad.to_local().mul_(most / norm)
        """,
    "whole gradients": """
        def my_clip(parameters, most):
            norm = torch.cat([parameter.grad.full_tensor().flatten() for parameter in parameters]).norm().item()
            for parameter in parameters:
                parameter.grad = parameter.grad * min(1.0, most / norm)
        """,
    "from the last layer": """
        def grouped(sizes, limit):
            units, held = [[]], 0
            for layer in reversed(range(len(sizes))):
                if held + sizes[layer] > limit:
                    units.insert(0, [])
                    held = 0
                units[0].insert(0, layer)
                held += sizes[layer]
            return units
        """,
    "tuples": """
        def grouped(sizes, limit):
            units = ()
            for layer, size in enumerate(sizes):
                if units and sum(sizes[number] for number in units[-1]) + size <= limit:
                    units = (*units[:-1], (*units[-1], layer))
                else:
                    units = (*units, (layer,))
            return units
        """,
    "as far as it fits": """
        def grouped(sizes, limit):
            units, first = [], 0
            while first < len(sizes):
                end = max(end for end in range(first + 1, len(sizes) + 1) if sum(sizes[first:end]) <= limit)
                units.append(list(range(first, end)))
                first = end
            return units
        """,
}


@pytest.mark.parametrize("answer", RIGHT.values(), ids=RIGHT)
def test_in_another_way(world, answer):
    function = answer.split("def ")[1].split("(")[0]
    assert says(CHECKS[function][0], world, answer).startswith("Solved. ")


SLICE = """
    def my_slice(rows, n, rank):
        {lines}
"""


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "return range(rank, rows, n)",
            "Of 8 rows on 2 ranks rank 0 has rows 0 to 3, and rank 0 returned rows 0 to 6.",
        ),
        (
            "return range(-(-rows // n) * rank, -(-rows // n) * (rank + 1))",
            "Of 7 rows on 2 ranks rank 1 has rows 4 to 6, and rank 0 returned rows 4 to 7.",
        ),
        (
            "return range(rows * rank // n, rows * (rank + 1) // n)",
            "Of 7 rows on 2 ranks rank 0 has rows 0 to 3, and rank 0 returned rows 0 to 2.",
        ),
        ("return len(range(rows)[rank::n])", "Of 8 rows on 1 ranks rank 0 got 8 from rank 0, expected a range."),
    ],
)
def test_wrong_slices(world, lines, message):
    assert says(checks.fully_shard.my_slice, world, SLICE.format(lines=lines)).startswith(f"Not yet. {message}")


CLIP = """
    def my_clip(parameters, most):
        gradients = [parameter.grad.to_local() for parameter in parameters]
        {norm}
        for gradient in gradients:
            gradient.mul_({factor})
"""
ALL = "total = sum(g.square().sum() for g in gradients); dist.all_reduce(total); norm = total.sqrt()"
SUM = "norm = sum(g.square().sum() for g in gradients).sqrt(); dist.all_reduce(norm)"
NO_ROOT = "norm = sum(g.square().sum() for g in gradients); dist.all_reduce(norm)"


@pytest.mark.parametrize(
    ("norm", "factor", "times"),
    [
        (SUM, "(most / norm).clamp(max=1)", "expected 0.5000 times."),
        (ALL, "most / norm", "are 2.0000 times what they were, expected 1.0000 times."),
        (ALL, "(1 / norm).clamp(max=1)", "expected 0.5000 times."),
        (NO_ROOT, "(most / norm).clamp(max=1)", "expected 0.5000 times."),
    ],
)
def test_wrong_clip(world, norm, factor, times):
    said = says(checks.fully_shard.my_clip, world, CLIP.format(norm=norm, factor=factor))
    assert said.startswith("Not yet. With a norm of ") and said.endswith(times), said


def test_clip_that_takes_the_gradients_away(world):
    answer = """
        def my_clip(parameters, most):
            for parameter in parameters:
                parameter.grad = None
    """
    assert says(checks.fully_shard.my_clip, world, answer) == (
        "Not yet. After `my_clip` a parameter of rank 0 has no gradient."
    )


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("[list(range(len(sizes)))]", "With layers of [4, 4, 4, 4] bytes and a limit of 8 rank 0 has a unit [0,"),
        ("[list(range(2))]", "With layers of [4, 4, 4, 4] bytes and a limit of 8 rank 0 returned [[0, 1]]: each layer"),
        ("[[0, 2], [1, 3]]", "With layers of [4, 4, 4, 4] bytes and a limit of 8 rank 0 returned [[0, 2], [1, 3]]: e"),
        (
            "[[layer, layer + 1] for layer in range(0, len(sizes), 2)]",
            "With layers of [4, 4, 4, 4] bytes and a limit of 4",
        ),
        (
            "len(sizes)",
            "With layers of [4, 4, 4, 4] bytes and a limit of 8 rank 0 returned 4, expected a list of lists",
        ),
    ],
)
def test_wrong_groups(world, result, message):
    said = says(checks.fully_shard.grouped, world, f"def grouped(sizes, limit):\n    return {result}")
    assert said.startswith(f"Not yet. {message}"), said
