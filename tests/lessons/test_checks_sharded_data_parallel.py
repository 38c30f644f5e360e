"""The checks of 31_sharded_data_parallel: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import checks

NAME = "31_sharded_data_parallel.ipynb"
SETUP = "\n".join(cell(f"solutions/{NAME}", text) for text in ("init_process_group(", "def exchange(", "class Unit"))
SETUP += "\n" + cell(f"solutions/{NAME}", "def when_complete(")


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


CHECKS = {
    "my_zero1": (
        checks.sharded_data_parallel.my_zero1,
        "Each rank keeps the state of its shards, and all have the weights",
    ),
    "my_zero3": (
        checks.sharded_data_parallel.my_zero3,
        "Each rank keeps its shards only, and all train as one process does.",
    ),
    "thrifty": (
        checks.sharded_data_parallel.thrifty,
        "Each rank keeps its shards only, and all train as one process does.",
    ),
    "largest": (
        checks.sharded_data_parallel.largest,
        "Each number fits, counted over tensors of that size, and one more parameter would",
    ),
}


@pytest.mark.parametrize("function", CHECKS)
def test_solution(world, function):
    check, words = CHECKS[function]
    assert says(check, world, solution(function)).startswith(f"Solved. {words}")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("my_zero1", "Not yet. The optimizer of rank 0 keeps 44568 bytes, expected 11136, twice its shards."),
        (
            "my_zero3",
            "Not yet. In step 0, after the update, rank 0 holds 39000 bytes. Its shards, their gradients and states "
            "take 22272, a whole layer 3712.",
        ),
        (
            "thrifty",
            "Not yet. In step 0, after the update, rank 0 holds 39000 bytes. Its shards, their gradients and states "
            "take 22272, a whole layer 3712.",
        ),
        ("largest", "Not yet. With 1600 bytes, 4 ranks and zero1 rank 0 could have more than 100 parameters: 101 take"),
    ],
)
def test_skeleton(world, function, message):
    assert says(CHECKS[function][0], world, skeleton(function)).startswith(message)


# ---------------------------------------------------------------- my_zero1

RIGHT_ZERO1 = {
    "by the library": """
        def my_zero1(units):
            optimizer = adam([unit.shard for unit in units])
            def update():
                for unit in units:
                    unit.shard.grad = torch.empty_like(unit.shard)
                    dist.reduce_scatter_tensor(unit.shard.grad, unit.take_gradient() / n)
                optimizer.step()
                for unit in units:
                    dist.all_gather_into_tensor(unit.full, unit.shard.clone())
            return optimizer, update
        """,
    "each shard sent by its rank": """
        def my_zero1(units):
            optimizer = adam([unit.shard for unit in units])
            def update():
                for unit in units:
                    flat = unit.take_gradient()
                    for place, chunk in enumerate(flat.chunk(n)):
                        dist.reduce(chunk, place)
                    unit.shard.grad = flat.chunk(n)[rank] / n
                optimizer.step()
                for unit in units:
                    for place, chunk in enumerate(unit.full.chunk(n)):
                        dist.broadcast(chunk, place)
            return optimizer, update
        """,
    "with one vector for the model": """
        def my_zero1(units):
            optimizer = adam([torch.cat([unit.shard for unit in units])])
            (mine,) = optimizer.param_groups[0]["params"]
            def update():
                mine.grad = torch.cat([reduce_scatter(unit.take_gradient()) for unit in units]) / n
                optimizer.step()
                for unit, part in zip(units, mine.split([len(unit.shard) for unit in units])):
                    all_gather(part, unit.full)
            return optimizer, update
        """,
}


@pytest.mark.parametrize("answer", RIGHT_ZERO1.values(), ids=RIGHT_ZERO1)
def test_zero1_in_another_way(world, answer):
    assert says(checks.sharded_data_parallel.my_zero1, world, answer).startswith("Solved. ")


ZERO1 = """
    def my_zero1(units):
        optimizer = adam([unit.{what} for unit in units])
        def update():
            for unit in units:
                {gradient}
            optimizer.step()
            for unit in units:
                {after}
        return {result}
"""
SCATTER = "unit.shard.grad = reduce_scatter(unit.take_gradient()) / n"
GATHER = "all_gather(unit.shard, unit.full)"


@pytest.mark.parametrize(
    ("what", "gradient", "after", "result", "message"),
    [
        ("shard", SCATTER, GATHER, "optimizer, update", "Solved. "),
        (
            "shard",
            SCATTER,
            "pass",
            "optimizer, update",
            "After step 0 the parameters of rank 0 differ from those of one process by up to 0.0",
        ),
        (
            "shard",
            "unit.shard.grad = unit.take_gradient().chunk(n)[rank]",
            GATHER,
            "optimizer, update",
            "After step 0 the parameters of rank 0 differ from those of one process by up to 0.0",
        ),
        (
            "shard",
            "flat = unit.take_gradient(); dist.all_reduce(flat); unit.shard.grad = flat.chunk(n)[rank] / n",
            GATHER,
            "optimizer, update",
            "In step 0 rank 0 called all_reduce: a shard of the sum is enough.",
        ),
        (
            "shard",
            "flat = unit.take_gradient(); all_gather(reduce_scatter(flat), flat); "
            "unit.shard.grad = flat.chunk(n)[rank] / n",
            GATHER,
            "optimizer, update",
            "In step 0 rank 0 sent 50112 bytes, expected 33408 at most.",
        ),
        (
            "shard",
            SCATTER + "; unit.shard.grad[0] = float('nan')",
            GATHER,
            "optimizer, update",
            "After step 0 the parameters of rank 0 differ from those of one process by up to nan.",
        ),
        ("shard", SCATTER, GATHER, "update", "Rank 0: my_zero1 returned a function, not an optimizer and a function."),
    ],
)
def test_zero1(world, what, gradient, after, result, message):
    answer = ZERO1.format(what=what, gradient=gradient, after=after, result=result)
    begin = "" if message == "Solved. " else "Not yet. "
    assert says(checks.sharded_data_parallel.my_zero1, world, answer).startswith(begin + message)


def test_a_check_that_needs_the_lesson_says_so(world):
    world.view.execute("kept = Unit; del Unit")
    said = says(checks.sharded_data_parallel.my_zero1, world, solution("my_zero1"))
    world.view.execute("Unit = kept")
    assert said == "Not yet. Rank 0: there is no `Unit`: run the cells of the lesson down to this one."


# ---------------------------------------------------------------- my_zero3 and thrifty

ZERO3 = """
    def {name}(units):
        def finish(unit):
            {finish}
        def launch(unit):
            if unit.full.untyped_storage().nbytes() == 0:
                unit.full.untyped_storage().resize_(unit.full.nbytes)
                unit.work = dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)
        def fetch(unit):
            launch(unit)
            unit.work.wait()
        {extra}
        for unit in units:
            unit.shard = {shard}
            free(unit)
            unit.layer.register_forward_pre_hook(lambda *_, unit=unit: {before})
            unit.layer.register_forward_hook(lambda *_, unit=unit: {after})
            unit.layer.register_full_backward_pre_hook(lambda *_, unit=unit: {before_backward})
            when_complete(unit, finish)
        {more}
        optimizer = adam([unit.shard for unit in units])
        return optimizer, optimizer.step
"""
RIGHT = {
    "finish": f"{SCATTER}; free(unit)",
    "extra": "pass",
    "shard": "unit.shard.clone()",
    "before": "gather(unit)",
    "after": "free(unit)",
    "before_backward": "gather(unit)",
    "more": "pass",
}
AHEAD = (
    "[unit.layer.register_forward_pre_hook(lambda *_, following=following: launch(following)) "
    "for unit, following in zip(units, units[1:])]"
)
RIGHT_ZERO3 = {
    "as in the lesson": {},
    "the library gathers": {"before": "fetch(unit)", "before_backward": "fetch(unit)"},
    "fetched ahead": {"before": "fetch(unit)", "before_backward": "fetch(unit)", "more": AHEAD},
    "the last layer stays for backward": {
        "before": "fetch(unit)",
        "before_backward": "fetch(unit)",
        "after": "None if unit is units[-1] else free(unit)",
    },
    "the mean is a copy": {
        "finish": "unit.shard.grad = reduce_scatter(unit.take_gradient()).div_(n).clone(); free(unit)"
    },
}


@pytest.mark.parametrize("changes", RIGHT_ZERO3.values(), ids=RIGHT_ZERO3)
@pytest.mark.parametrize("name", ["my_zero3", "thrifty"])
def test_zero3_in_another_way(world, name, changes):
    answer = ZERO3.format(name=name, **{**RIGHT, **changes})
    assert says(CHECKS[name][0], world, answer).startswith("Solved. ")


WRONG_ZERO3 = {
    "a view of a gradient": (
        {"finish": "unit.shard.grad = reduce_scatter(unit.take_gradient()).div_(n); free(unit)"},
        "In step 0, after the update, rank 0 holds 39000 bytes. Its shards, their gradients and states take 22272",
    ),
    "whole after forward": (
        {"after": "None", "before": "fetch(unit)", "before_backward": "None"},
        "In step 1, in the forward of layer 3, rank 0 holds",
    ),
    "whole after backward": ({"finish": SCATTER}, "In step 0, after the update, rank 0 holds 44568 bytes."),
    "the last layer is never freed": (
        {"finish": f"{SCATTER}; unit is units[-1] or free(unit)"},
        "In step 0, after the update, rank 0 holds 26008 bytes.",
    ),
    "the sum instead of the mean": (
        {"finish": "unit.shard.grad = reduce_scatter(unit.take_gradient()).clone(); free(unit)"},
        "After step 0 the parameters of rank 0 differ from those of one process by up to",
    ),
    "all-reduce": (
        {
            "finish": "flat = unit.take_gradient(); dist.all_reduce(flat); "
            "unit.shard.grad = flat.chunk(n)[rank] / n; free(unit)"
        },
        "In step 0 rank 0 called all_reduce: a shard of the sum is enough.",
    ),
    "gathered once more": (
        {"before": "[gather(unit), gather(unit)].clear()"},
        "In step 0 rank 0 sent 66816 bytes, expected 50112 at most.",
    ),
    "not gathered for backward": ({"before_backward": "None"}, "Rank 0 raised RuntimeError: "),
}


@pytest.mark.parametrize(("changes", "message"), WRONG_ZERO3.values(), ids=WRONG_ZERO3)
@pytest.mark.parametrize("name", ["my_zero3", "thrifty"])
def test_wrong_zero3(world, name, changes, message):
    answer = ZERO3.format(name=name, **{**RIGHT, **changes})
    assert says(CHECKS[name][0], world, answer).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- largest

RIGHT_LARGEST = {
    "halving": """
        def largest(memory, n, stage):
            sharded = {"data parallel": 0, "zero1": 12, "zero2": 14, "zero3": 16}[stage]
            low, high = 0, memory * n
            while low < high:
                middle = (low + high + 1) // 2
                fits = (16 - sharded) * middle + sharded * -(-middle // n) <= memory
                low, high = (middle, high) if fits else (low, middle - 1)
            return low
        """,
    "by whole rows of n": """
        def largest(memory, n, stage):
            sharded = {"data parallel": 0, "zero1": 12, "zero2": 14, "zero3": 16}[stage]
            whole = 16 - sharded
            rows, rest = divmod(memory, n * whole + sharded)
            if whole == 0:
                return rows * n
            return rows * n + max(0, (rest - sharded) // whole)
        """,
    "from above": """
        def largest(memory, n, stage):
            whole = {"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}[stage]
            def held(p):
                return whole * p + (16 - whole) * ((p + n - 1) // n)
            return next(p for p in range(memory * n, -1, -1) if held(p) <= memory)
        """,
}


@pytest.mark.parametrize("answer", RIGHT_LARGEST.values(), ids=RIGHT_LARGEST)
def test_largest_in_another_way(world, answer):
    assert says(checks.sharded_data_parallel.largest, world, answer).startswith("Solved. ")


LARGEST = """
    def largest(memory, n, stage):
        whole = {whole}[stage]
        return {result}
"""
WHOLE = '{"data parallel": 16, "zero1": 4, "zero2": 2, "zero3": 0}'


@pytest.mark.parametrize(
    ("whole", "result", "message"),
    [
        (
            WHOLE,
            "int(memory / (whole + (16 - whole) / n))",
            "With 1600 bytes, 4 ranks and zero2 the 290 parameters of rank 0",
        ),
        (
            WHOLE,
            "memory / (whole + (16 - whole) / n)",
            "With 1600 bytes, 4 ranks and data parallel rank 0 returned 100.0, ",
        ),
        (WHOLE, "memory // (whole or 16) * n", "With 1600 bytes, 4 ranks and data parallel the 400 parameters of rank"),
        (
            '{"data parallel": 16, "zero1": 2, "zero2": 2, "zero3": 0}',
            "next(p for p in range(memory * n, -1, -1) if whole * p + (16 - whole) * -(-p // n) <= memory)",
            "With 1600 bytes, 4 ranks and zero1 the 289 parameters of rank 0 take",
        ),
        (WHOLE, "-1", "With 1600 bytes, 4 ranks and data parallel rank 0 returned -1, expected an int, 0 or more."),
        (
            WHOLE,
            "10**12",
            "With 1600 bytes, 4 ranks and data parallel the 1000000000000 parameters of rank 0 take more",
        ),
        (WHOLE, "memory // 16 * n if whole < 16 else memory // 16", "With 1600 bytes, 4 ranks and zero1 the 400 para"),
    ],
)
def test_wrong_largest(world, whole, result, message):
    said = says(checks.sharded_data_parallel.largest, world, LARGEST.format(whole=whole, result=result))
    assert said.startswith(f"Not yet. {message}"), said
