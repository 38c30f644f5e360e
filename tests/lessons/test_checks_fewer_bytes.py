"""The checks of 11_fewer_bytes: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import World, checks

NAME = "11_fewer_bytes.ipynb"


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


# The first DDP loads torch._dynamo, which takes seconds on a busy machine.
SETUP = "\n".join([cell(NAME, "init_process_group("), "import torch._dynamo", cell(NAME, "def round_to(")])


# ---------------------------------------------------------------- one_round

ROUND = """
    def my_round(matrix, right):
        {}
"""


def test_round_skeleton(world):
    assert says(checks.fewer_bytes.my_round, world, skeleton("my_round")) == (
        "Not yet. On rank 0 P and Q have the shapes ('NoneType', (9, 2)), expected ((12, 2), (9, 2))."
    )


@pytest.mark.parametrize(
    "lines",
    [
        "left = torch.linalg.qr(matrix @ right)[0]; return left, matrix.T @ left",
        "left, _ = torch.linalg.qr(torch.mm(matrix, right)); return [left, (left.T @ matrix).T]",
        "left = torch.linalg.svd(matrix @ right, full_matrices=False)[0]; return left, matrix.T @ left",
    ],
)
def test_round(world, lines):
    assert says(checks.fewer_bytes.my_round, world, ROUND.format(lines)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("left = matrix @ right; return left, matrix.T @ left", "On rank 0 the columns of P are not orthonormal."),
        (
            "left = torch.linalg.qr(matrix @ right)[0]; return left, right",
            "On rank 0 the product of P and Q is off by ",
        ),
        (
            "left = torch.linalg.qr(matrix @ right)[0]; return left, torch.linalg.qr(matrix.T @ left)[0]",
            "On rank 0 the product of P and Q is off by ",
        ),
        (
            "left = torch.linalg.qr(matrix @ right)[0]; return left, left.T @ matrix",
            "On rank 0 P and Q have the shapes ((12, 2), (2, 9)), expected ((12, 2), (9, 2)).",
        ),
    ],
)
def test_no_round(world, lines, message):
    assert says(checks.fewer_bytes.my_round, world, ROUND.format(lines)).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- scaled

SCALED = """
    def scaled(state, bucket):
        largest = bucket.buffer().abs().max()
        {}
        work = dist.all_reduce((bucket.buffer() / largest / n).{}, async_op=True)
        return work.get_future().then(lambda done: done.value()[0].float() * largest)
"""
AGREE = "dist.all_reduce(largest, op=dist.ReduceOp.MAX)"


def test_scaled_solution(world):
    assert says(checks.fewer_bytes.scaled, world, solution("scaled")) == (
        "Solved. The gradients are right at every magnitude, and 124 numbers took 260 bytes."
    )


def test_scaled_skeleton(world):
    assert says(checks.fewer_bytes.scaled, world, skeleton("scaled")) == (
        "Not yet. With a loss multiplied by 1e-07, on rank 0 the gradients are 0.00 times those of one process."
    )


def test_scaled_by_the_largest_number_of_each_rank(world):
    verdict = says(checks.fewer_bytes.scaled, world, SCALED.format("largest.clamp_(min=1e-30)", "half()"))
    assert verdict.startswith("Not yet. With a loss multiplied by 1e-07, on rank 0 the gradient")


SCALED_IN_ANOTHER_WAY = {
    "the largest of both signs": """
        def scaled(state, bucket):
            ends = torch.stack([bucket.buffer().max(), -bucket.buffer().min()]).max()
            dist.all_reduce(ends, op=dist.ReduceOp.MAX)
            scale = ends if ends > 0 else torch.ones(())
            work = dist.all_reduce((bucket.buffer() / (scale * n)).to(torch.float16), async_op=True)
            return work.get_future().then(lambda done: done.value()[0].float() * scale)
        """,
    "by a power of two": """
        def scaled(state, bucket):
            largest = bucket.buffer().abs().max()
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
            power = 2.0 ** torch.log2(largest.clamp_(min=1e-30)).ceil()
            sent = (bucket.buffer() / power / n).half()
            dist.all_reduce(sent)
            future = torch.futures.Future()
            future.set_result(sent.float() * power)
            return future
        """,
    "by the sum of the largest": """
        def scaled(state, bucket):
            largest = bucket.buffer().abs().max()
            dist.all_reduce(largest)
            work = dist.all_reduce((bucket.buffer() / largest.clamp_(min=1e-30)).half(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0].float() * largest / n)
        """,
}


@pytest.mark.parametrize("answer", SCALED_IN_ANOTHER_WAY.values(), ids=SCALED_IN_ANOTHER_WAY)
def test_scaled_in_another_way(world, answer):
    assert says(checks.fewer_bytes.scaled, world, answer).startswith("Solved. ")


def test_scaled_by_the_largest_that_is_not_negative(world):
    answer = solution("scaled")
    assert answer.count(".abs()") == 1
    verdict = says(checks.fewer_bytes.scaled, world, answer.replace(".abs()", ""))
    assert verdict.startswith("Not yet. With one gradient that is not 0, and negative, on rank 0 the gradient")


def test_scaled_by_the_largest_number_of_rank_0(world):
    answer = SCALED.format("dist.broadcast(largest, src=0); largest.clamp_(min=1e-30)", "half()")
    verdict = says(checks.fewer_bytes.scaled, world, answer)
    assert verdict.startswith("Not yet. With a loss multiplied by 1e+06 on the last rank alone, on rank 0 the gradient")


def test_scaled_by_zero(world):
    assert says(checks.fewer_bytes.scaled, world, SCALED.format(AGREE, "half()")) == (
        "Not yet. With a loss multiplied by 0, on rank 0 the gradient of 0.weight differs from those of one process."
    )


def test_scaled_without_rounding(world):
    assert says(
        checks.fewer_bytes.scaled,
        world,
        SCALED.format(f"{AGREE}.clamp_(min=1e-30)".replace(").", "); largest."), "float()"),
    ) == ("Not yet. Rank 0 gave 508 bytes to all-reduce for 124 numbers in 3 buckets, expected at most 260.")


def test_scaled_for_small_gradients_only(world):
    answer = """
        def scaled(state, bucket):
            work = dist.all_reduce((bucket.buffer() / n * 2**20).half(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0].float() / 2**20)
    """
    assert says(checks.fewer_bytes.scaled, world, answer).startswith("Not yet. With a loss multiplied by ")


@pytest.mark.parametrize(
    "call", ["all_reduce(sent, async_op=True)", "all_reduce_coalesced([sent], async_op=True)"], ids=["", "coalesced"]
)
def test_scaled_in_bf16(world, call):
    answer = f"""
        def scaled(state, bucket):
            sent = (bucket.buffer() / n).bfloat16()
            future = torch.futures.Future()
            dist.{call}.wait()
            future.set_result(sent.float())
            return future
    """
    assert says(checks.fewer_bytes.scaled, world, answer) == (
        "Not yet. Rank 0 sent numbers of torch.bfloat16, expected torch.float16."
    )


# ---------------------------------------------------------------- coarse

COARSE = """
    def coarse(missed, bucket):
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            {}
            gradient.copy_(round_to(gradient))
        return default_hooks.allreduce_hook(None, bucket)
"""


def test_coarse_solution(world):
    assert says(checks.fewer_bytes.coarse, world, solution("coarse")) == (
        "Solved. Every number was rounded, and after 50 steps the sums are off by at most 0.06."
    )


def test_coarse_on_a_finer_grid(world):
    answer = """
        def coarse(missed, bucket):
            sent = round_to(bucket.buffer() * 4096)
            dist.all_reduce(sent)
            future = torch.futures.Future()
            future.set_result(sent / 4096 / n)
            return future
    """
    assert says(checks.fewer_bytes.coarse, world, answer) == (
        "Not yet. After one step rank 0 has finer gradients than rounding them to 1/64 can give."
    )


def test_coarse_skeleton(world):
    assert (
        says(checks.fewer_bytes.coarse, world, skeleton("coarse"))
        == "Not yet. Rank 0 sent numbers that have not been rounded."
    )


def test_coarse_without_feedback(world):
    verdict = says(checks.fewer_bytes.coarse, world, COARSE.format("pass"))
    assert verdict.startswith("Not yet. What arrived on rank 0 in 50 steps for ")
    assert verdict.endswith(", expected at most 0.06.")


def test_coarse_that_keeps_only_the_last_step(world):
    answer = COARSE.format(
        "missed[parameter], gradient = gradient - round_to(gradient), gradient + missed.get(parameter, 0)"
    )
    assert says(checks.fewer_bytes.coarse, world, answer).startswith("Not yet. ")


def test_coarse_by_bucket(world):
    """The first step has one bucket, and the second has several."""
    answer = """
        def coarse(missed, bucket):
            gradient = bucket.buffer()
            gradient += missed.get(bucket.index(), 0)
            missed[bucket.index()] = gradient - round_to(gradient)
            gradient.copy_(round_to(gradient))
            return default_hooks.allreduce_hook(None, bucket)
    """
    assert says(checks.fewer_bytes.coarse, world, answer).startswith(
        "Not yet. Rank 0 raised RuntimeError: The size of tensor"
    )


def test_coarse_that_returns_a_tensor(world):
    assert says(checks.fewer_bytes.coarse, world, "def coarse(missed, bucket):\n    return bucket.buffer()") == (
        "Not yet. Rank 0 raised TypeError: a hook returns a future, and this one a Tensor"
    )


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [("scaled", checks.fewer_bytes.scaled), ("coarse", checks.fewer_bytes.coarse)]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
