"""The checks of 15_rpc_and_rref: each accepts the solution, and says what is wrong with other answers."""

import textwrap

import pytest
from answers import cell, says

from helpers import World, checks
from helpers.checks.rpc_judging import in_one_line


def skeleton(function):
    return cell("15_rpc_and_rref.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/15_rpc_and_rref.ipynb", f"def {function}(")


SETUP = cell("solutions/15_rpc_and_rref.ipynb", "init_rpc(")


# ---------------------------------------------------------------- checks.rpc_and_rref.fan_out


def test_fan_out_solution(world):
    assert (
        says(checks.rpc_and_rref.fan_out, world, solution("fan_out"))
        == "Solved. 4 calls were under way at the same time."
    )


def test_fan_out_by_remote(world):
    answer = """
    def fan_out(function, x):
        return sum(r.to_here() for r in [rpc.remote(f"worker{rank}", function, (x,)) for rank in range(n)])
    """
    assert says(checks.rpc_and_rref.fan_out, world, answer).startswith("Solved.")


def test_fan_out_by_threads_that_wait(world):
    answer = """
    from concurrent.futures import ThreadPoolExecutor
    def fan_out(function, x):
        with ThreadPoolExecutor(n) as threads:
            return sum(threads.map(lambda other: rpc.rpc_sync(other, function, args=(x,)), range(n)))
    """
    assert says(checks.rpc_and_rref.fan_out, world, answer).startswith("Solved.")


def test_fan_out_by_then(world):
    answer = """
    def fan_out(function, x):
        futures = [rpc.rpc_async(f"worker{rank}", function, kwargs={"x": x}) for rank in reversed(range(n))]
        added = torch.futures.collect_all(futures).then(lambda done: sum(f.value() for f in done.value()))
        return added.wait()
    """
    assert says(checks.rpc_and_rref.fan_out, world, answer).startswith("Solved.")


def test_fan_out_by_too_few_threads(world):
    answer = """
    from concurrent.futures import ThreadPoolExecutor
    def fan_out(function, x):
        with ThreadPoolExecutor(n - 1) as threads:
            return sum(threads.map(lambda other: rpc.rpc_sync(other, function, args=(x,)), range(n)))
    """
    verdict = says(checks.rpc_and_rref.fan_out, world, answer)
    assert verdict.startswith("Not yet. worker3 was called after worker") and verdict.endswith(" had answered.")


def test_fan_out_skeleton(world):
    assert says(checks.rpc_and_rref.fan_out, world, skeleton("fan_out")) == (
        "Not yet. worker3 was called after worker0 had answered."
    )


def test_fan_out_that_waits_for_each(world):
    answer = """
        def fan_out(function, x):
            return sum(rpc.rpc_async(other, function, args=(x,)).wait() for other in range(n))
    """
    assert says(checks.rpc_and_rref.fan_out, world, answer) == "Not yet. worker3 was called after worker0 had answered."


def test_fan_out_without_rank_0(world):
    answer = """
        def fan_out(function, x):
            futures = [rpc.rpc_async(other, function, args=(x,)) for other in range(1, n)]
            return function(x) + sum(torch.futures.wait_all(futures))
    """
    assert says(checks.rpc_and_rref.fan_out, world, answer) == "Not yet. worker0 was called 0 times, expected once."


def test_fan_out_that_takes_the_mean(world):
    answer = """
        def fan_out(function, x):
            futures = [rpc.rpc_async(other, function, args=(x,)) for other in range(n)]
            return sum(torch.futures.wait_all(futures)) / n
    """
    assert says(checks.rpc_and_rref.fan_out, world, answer) == (
        "Not yet. Rank 0 returned [2.5, 5.0], expected [10.0, 20.0]."
    )


def test_fan_out_that_returns_the_futures(world):
    answer = """
        def fan_out(function, x):
            return torch.futures.collect_all([rpc.rpc_async(other, function, args=(x,)) for other in range(n)])
    """
    assert (
        says(checks.rpc_and_rref.fan_out, world, answer) == "Not yet. Rank 0 returned a Future, expected [10.0, 20.0]."
    )


def test_an_answer_that_raises_elsewhere(world):
    answer = """
        def fail():
            raise ZeroDivisionError("on purpose")

        def fan_out(function, x):
            return rpc.rpc_sync("worker2", fail)
    """
    assert says(checks.rpc_and_rref.fan_out, world, answer) == (
        "Not yet. Rank 0 raised ZeroDivisionError('on purpose') on worker2"
    )


def test_an_answer_that_is_not_there(world):
    assert says(checks.rpc_and_rref.fan_out, world, "globals().pop('fan_out', None)") == (
        "Not yet. Rank 0 has no function `fan_out`: run the cell that defines it, then this check."
    )


# ---------------------------------------------------------------- stays_there


def test_stays_there_solution(world):
    assert says(checks.rpc_and_rref.scaled_total, world, solution("scaled_total")) == (
        "Solved. 1048576 bytes stayed on worker1, and 4 came to rank 0."
    )


def test_stays_there_skeleton(world):
    assert says(checks.rpc_and_rref.scaled_total, world, skeleton("scaled_total")) == (
        "Not yet. Rank 0 fetched 2097152 bytes of tensors, expected 64 at most."
    )


@pytest.mark.parametrize(
    "answer",
    [
        """
        def total(function, rref):
            return function(rref.local_value()).sum()

        def scaled_total(owner, load, scale):
            return rpc.rpc_sync(owner, total, (scale, rpc.remote(owner, load))).item()
        """,
        """
        def load_and_scale(load, scale):
            return scale(load())

        def scaled_total(owner, load, scale):
            scaled = rpc.remote(owner, load_and_scale, (load, scale))
            return scaled.remote().sum().to_here().item()
        """,
        """
        def scaled_total(owner, load, scale):
            there = rpc.remote(owner, load)
            return rpc.rpc_async(owner, total_there, (there, scale)).wait()

        def total_there(there, scale):
            return scale(there.to_here()).sum().item()
        """,
    ],
    ids=["the sum there", "one object", "to_here on the owner"],
)
def test_stays_there_in_other_styles(world, answer):
    assert says(checks.rpc_and_rref.scaled_total, world, answer).startswith("Solved. ")


def test_stays_there_by_to_here(world):
    answer = """
        def scaled_total(owner, load, scale):
            return scale(rpc.remote(owner, load).to_here()).sum().item()
    """
    assert says(checks.rpc_and_rref.scaled_total, world, answer) == (
        "Not yet. Rank 0 fetched 1048576 bytes of tensors, expected 64 at most."
    )


def test_stays_there_of_the_tensor_of_rank_0(world):
    answer = """
        def total(scale, tensor):
            return scale(tensor).sum().item()

        def scaled_total(owner, load, scale):
            return rpc.rpc_sync(owner, total, args=(scale, load()))
    """
    assert says(checks.rpc_and_rref.scaled_total, world, answer) == (
        "Not yet. Rank 0 sent 1048576 bytes of tensors, expected 64 at most."
    )


def test_stays_there_on_rank_0(world):
    answer = """
        def scaled_total(owner, load, scale):
            return scale(load()).sum().item()
    """
    assert says(checks.rpc_and_rref.scaled_total, world, answer) == "Not yet. worker1 was never called."


def test_stays_there_without_the_scale(world):
    answer = """
        def scaled_total(owner, load, scale):
            return rpc.remote(owner, load).rpc_sync().sum().item()
    """
    assert says(checks.rpc_and_rref.scaled_total, world, answer) == (
        "Not yet. Rank 0 returned 524288.0, expected 1048576.0."
    )


# ---------------------------------------------------------------- add_many


def test_add_many_solution(world):
    assert says(checks.rpc_and_rref.add_many, world, solution("add_many")) == (
        "Solved. The object on worker1 was updated 5 times, by calls through its RRef."
    )


def test_add_many_skeleton(world):
    assert says(checks.rpc_and_rref.add_many, world, skeleton("add_many")) == (
        "Not yet. The object on worker1 was updated 0 times, expected 5 times."
    )


@pytest.mark.parametrize(
    "body",
    [
        "for _ in range(times):\n    counter.rpc_sync().add(1)\nreturn counter.rpc_sync().get()",
        "for _ in range(times):\n    counter.remote().add(1).to_here()\nreturn counter.remote().get().to_here()",
        "calls = [counter.rpc_async().add(1) for _ in range(times)]\n"
        "torch.futures.collect_all(calls).wait()\nreturn counter.rpc_async().get().wait()",
    ],
    ids=["one by one", "by remote", "collected"],
)
def test_add_many_in_other_styles(world, body):
    answer = "def add_many(counter, times):\n" + textwrap.indent(body, "    ")
    assert says(checks.rpc_and_rref.add_many, world, answer).startswith("Solved. ")


def test_add_many_at_once(world):
    answer = """
        def add_many(counter, times):
            return counter.rpc_sync().add(times)
    """
    assert says(checks.rpc_and_rref.add_many, world, answer) == (
        "Not yet. The object on worker1 was updated once, expected 5 times."
    )


def test_add_many_and_one(world):
    answer = """
        def add_many(counter, times):
            for _ in range(times):
                counter.rpc_sync().add(1)
            return counter.rpc_sync().add(1)
    """
    assert says(checks.rpc_and_rref.add_many, world, answer) == (
        "Not yet. The object on worker1 was updated 6 times, expected 5 times."
    )


def test_add_many_that_does_not_wait(world):
    answer = """
        def add_many(counter, times):
            for _ in range(times):
                counter.rpc_async().add(1)
            return times
    """
    assert says(checks.rpc_and_rref.add_many, world, answer) == (
        "Not yet. Some updates had not been made when add_many returned: wait for their futures."
    )


def test_add_many_of_other_numbers(world):
    answer = """
        def add_many(counter, times):
            return [counter.rpc_sync().add(number) for number in range(times)][-1]
    """
    assert says(checks.rpc_and_rref.add_many, world, answer) == (
        "Not yet. The object on worker1 was updated by [0, 1, 2, 3, 4], expected [1, 1, 1, 1, 1]."
    )


def test_add_many_that_returns_another_sum(world):
    answer = """
        def add_many(counter, times):
            return sum(counter.rpc_sync().add(1) for _ in range(times))
    """
    assert says(checks.rpc_and_rref.add_many, world, answer) == "Not yet. Rank 0 returned 15, expected 5."


def test_add_many_on_the_owner(world):
    answer = """
        def there(counter, times):
            return [counter.local_value().add(1) for _ in range(times)][-1]

        def add_many(counter, times):
            return rpc.rpc_sync("worker1", there, args=(counter, times))
    """
    assert says(checks.rpc_and_rref.add_many, world, answer) == (
        "Not yet. `add` was called 0 times through the RRef, expected 5 times."
    )


# ---------------------------------------------------------------- around them


def test_without_rpc(broken_world):
    broken_world.restart()
    for function, check in [("fan_out", checks.rpc_and_rref.fan_out), ("add_many", checks.rpc_and_rref.add_many)]:
        assert says(check, broken_world, f"def {function}(*arguments):\n    pass") == (
            "Not yet. Rank 0 raised RuntimeError: "
            "RPC has not been initialized. Call torch.distributed.rpc.init_rpc first."
        )


def test_errors_in_one_line():
    assert in_one_line("") == ""
    assert in_one_line("ValueError: no\nand more") == "ValueError: no"
    assert in_one_line(
        "RuntimeError: KeyError: 'On WorkerInfo(id=1, name=trainer):\\nKeyError(\\'k\\')\\nTraceback (most recent"
    ).endswith("on trainer")
    assert in_one_line("RuntimeError: E: On WorkerInfo(id=1, name=ps):\nE('x')\nTraceback\n") == "E('x') on ps"


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 8])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP, silent=True)
        for function, check in [
            ("fan_out", checks.rpc_and_rref.fan_out),
            ("scaled_total", checks.rpc_and_rref.scaled_total),
            ("add_many", checks.rpc_and_rref.add_many),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
