"""The checks of 14_scaling: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import checks

NAME = "14_scaling.ipynb"
SETUP = ""


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


# ---------------------------------------------------------------- communicating

RING = "def my_communicating(k, alpha, beta, payload):\n    return {}"


def test_ring_skeleton(world):
    assert says(checks.scaling.my_communicating, world, skeleton("my_communicating")) == (
        "Not yet. With no latency, 4 ranks and 100 bytes at 1 byte per second, rank 0 returned None, expected 150."
    )


@pytest.mark.parametrize(
    "formula",
    [
        "2 * (k - 1) * alpha + 2 * (k - 1) / k * payload / beta",
        "2 * (k - 1) * (alpha + payload / k / beta)",
        "sum(alpha + payload / (k * beta) for step in range(2 * (k - 1)))",
    ],
)
def test_ring(world, formula):
    assert says(checks.scaling.my_communicating, world, RING.format(formula)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (
            "(k - 1) * (alpha + payload / k / beta)",
            "With no latency, 4 ranks and 100 bytes at 1 byte per second, rank 0 returned 75, expected 150.",
        ),
        (
            "2 * (k - 1) * (alpha + payload / beta)",
            "With no latency, 4 ranks and 100 bytes at 1 byte per second, rank 0 returned 600, expected 150.",
        ),
        (
            "2 * alpha + 2 * (k - 1) / k * payload / beta",
            "With infinite bandwidth, 4 ranks and a latency of 1 s, rank 0 returned 2, expected 6.",
        ),
        (
            "2 * k * (alpha + payload / k / beta)",
            "With no latency, 4 ranks and 100 bytes at 1 byte per second, rank 0 returned 200, expected 150.",
        ),
    ],
)
def test_no_ring(world, formula, message):
    assert says(checks.scaling.my_communicating, world, RING.format(formula)) == f"Not yet. {message}"


# ---------------------------------------------------------------- warm_up

RATE = "def my_rate(number, warm_up, base, k):\n    return {}"


def test_rate_skeleton(world):
    assert says(checks.scaling.my_rate, world, skeleton("my_rate")) == (
        "Not yet. In step 0 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned None, expected 0.1."
    )


@pytest.mark.parametrize(
    "formula",
    [
        "base + (k * base - base) * min(1, number / warm_up)",
        "base * (1 + (k - 1) * number / warm_up) if number < warm_up else k * base",
        "min(k * base, base + number * (k - 1) * base / warm_up)",
    ],
)
def test_rate(world, formula):
    assert says(checks.scaling.my_rate, world, RATE.format(formula)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (
            "k * base",
            "In step 0 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0.8, expected 0.1.",
        ),
        (
            "k * base * min(1, number / warm_up)",
            "In step 0 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0, expected 0.1.",
        ),
        (
            "base + (k - 1) * base * number / warm_up",
            "In step 11 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0.87, expected 0.8.",
        ),
        (
            "base if number < warm_up else k * base",
            "In step 1 of a warm-up of 10, from 0.1 to 8 times it, rank 0 returned 0.1, expected 0.17.",
        ),
    ],
)
def test_no_rate(world, formula, message):
    assert says(checks.scaling.my_rate, world, RATE.format(formula)) == f"Not yet. {message}"


# ---------------------------------------------------------------- machines and fastest


@pytest.mark.parametrize("function", ["machines", "fastest"])
def test_solutions(world, function):
    check = getattr(checks.scaling, function)
    assert says(check, world, solution("machines") + "\n" + solution(function)).startswith("Solved. ")
    assert says(check, world, skeleton(function)).startswith("Not yet. ")


MACHINES = """
    def machines(compute, alpha, beta, payload, least):
        def efficiency(k):
            {}
        return {}
"""
EFFICIENCY = "return compute / (compute + 2 * (k - 1) * (alpha + payload / k / beta))"


@pytest.mark.parametrize(
    ("body", "result", "verdict"),
    [
        (EFFICIENCY, "max(k for k in range(1, 1025) if efficiency(k) >= least)", "Solved. "),
        (EFFICIENCY, "sum(efficiency(k) >= least for k in range(1, 1025))", "Solved. "),
        (EFFICIENCY, "next((k - 1 for k in range(1, 1025) if efficiency(k) < least), 1024)", "Solved. "),
        (EFFICIENCY, "next((k for k in range(1, 1025) if efficiency(k) < least), 1024)", "Not yet. With 0.02 s"),
        (EFFICIENCY, "max(k for k in range(1, 10000) if efficiency(k) >= least)", "Not yet. With "),
        (EFFICIENCY.replace(" / k", ""), "max(k for k in range(1, 1025) if efficiency(k) >= least)", "Not yet. With "),
        (EFFICIENCY.replace("alpha + ", ""), "max(k for k in range(1, 1025) if efficiency(k) >= least)", "Not yet. "),
    ],
)
def test_machines(world, body, result, verdict):
    assert says(checks.scaling.machines, world, MACHINES.format(body, result)).startswith(verdict)


FASTEST = """
    def fastest(compute, alpha, beta, payload):
        def time(k):
            {}
        return {}
"""
TIME = "return compute / k + 2 * (k - 1) * (alpha + payload / k / beta)"


@pytest.mark.parametrize(
    ("body", "result", "verdict"),
    [
        (TIME, "min(range(1, 1025), key=time)", "Solved. "),
        (TIME, "sorted((time(k), k) for k in range(1, 1025))[0][1]", "Solved. "),
        (TIME, "int(__import__('numpy').argmin([time(k) for k in range(1, 1025)])) + 1", "Solved. "),
        (TIME, "min(range(1024), key=lambda k: time(k + 1))", "Not yet. "),
        (TIME, "1", "Not yet. With 0.02 s of computing"),
        (TIME.replace("compute / k", "compute"), "min(range(1, 1025), key=time)", "Not yet. With "),
        (TIME, "min(time(k) for k in range(1, 1025))", "Not yet. Rank 0 returned "),
    ],
)
def test_fastest(world, body, result, verdict):
    assert says(checks.scaling.fastest, world, FASTEST.format(body, result)).startswith(verdict)
