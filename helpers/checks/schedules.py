"""Exercises of 35_schedules: stages on ranks, an order with a backward in two parts, and enough micro-batches."""

from helpers.checks.exam import counted, exercise, near, show
from helpers.checks.orders import asked_orders, require_order, require_room


@exercise
def my_stages(exam):
    """Check `my_stages(rank, ranks, each, shape)`: the stages go round the ranks, or turn back at both ends."""
    for ranks, each in ((4, 2), (3, 3), (2, 4), (5, 1), (1, 3)):
        for shape in ("loop", "V"):
            for rank in range(ranks):
                stages = [_stage_of_round(rank, ranks, j, shape) for j in range(each)]
                result = exam.call(rank, ranks, each, shape)
                if not exam.require(
                    isinstance(numbers := _listed(result), list) and numbers == stages,
                    f"With {_size(ranks, each)} and shape={shape!r}, rank {rank} got {_said(result)}, "
                    f"expected {stages}.",
                ):
                    return ""
    return "Each rank holds its stages, in a loop and in a V."


@exercise
def my_split_order(exam):
    """Check `my_split_order(stage, stages, m)`: with I and W apart, a bubble of (p - 1)/(3m + p - 1).

    Every rank returns the orders of all stages. All actions take equally long.
    """
    ticks = {"F": 1, "I": 1, "W": 1}
    advice = "While a stage waits for its last gradients, let it do Ws that it has postponed."
    for stages, m in ((4, 8), (2, 3), (3, 3), (5, 7), (1, 2)):
        orders = asked_orders(exam, "my_split_order", stages, m)
        if require_order(exam, orders, m, ticks, 3 * m + stages - 1, advice):
            require_room(exam, orders, m, "W", [stages] * stages)
    return "The bubble is (p - 1) / (3m + p - 1): every stage waits only while the pipeline fills."


@exercise
def enough(exam):
    """Check `enough(ranks, each, most)`: the smallest multiple of `ranks` with a bubble of at most `most`."""
    for ranks, each, most in ((4, 2, 0.1), (4, 1, 0.1), (8, 4, 0.05), (3, 2, 0.25), (16, 2, 0.5), (1, 2, 0.1)):
        m = ranks
        while (ranks - 1) > most * (each * m + ranks - 1) * (1 + 1e-12):
            m += ranks
        result = exam.call(ranks, each, most)
        exam.require(
            near(result, m),
            f"With {_size(ranks, each)} and a bubble of at most {most:.0%}, rank {exam.rank} returned {show(result)}, "
            f"expected {m}.",
        )
    return "You found the smallest number of micro-batches."


def _size(ranks, each):
    return f"{counted(ranks, 'rank')}, {counted(each, 'stage')} on each"


def _stage_of_round(rank, ranks, number, shape):
    """Return the stage that a rank gets in a round of the stages over the ranks."""
    backwards = shape == "V" and number % 2 == 1
    return ranks * number + (ranks - 1 - rank if backwards else rank)


def _listed(result):
    """Return the numbers of a list, a tuple or a range as a list, and any other result as it is."""
    return list(result) if isinstance(result, list | tuple | range) else result


def _said(result):
    """Describe a result; a short list of numbers in full."""
    numbers = _listed(result)
    short = isinstance(numbers, list) and len(numbers) <= 12 and all(isinstance(number, int) for number in numbers)
    return str(numbers) if short else show(result)
