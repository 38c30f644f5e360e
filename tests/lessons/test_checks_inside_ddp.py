"""The checks of 10_inside_ddp: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import World, checks
from helpers.checks.judging import RESTART

NAME = "10_inside_ddp.ipynb"


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


# A shorter timeout than the learner's: a deadlock takes as long.
SETUP = "\n".join(
    [
        cell(NAME, "init_process_group(").replace("seconds=10", "seconds=4"),
        cell(NAME, "def average_of_the_lesson("),
        "average = average_of_the_lesson",
    ]
)


# ---------------------------------------------------------------- averaging

FUTURE = """
    def my_average(tensor):
        {}
"""


def test_average_solution(world):
    assert says(checks.inside_ddp.my_average, world, solution("my_average")) == (
        "Solved. The future holds the mean over all ranks, on every rank."
    )


def test_average_skeleton(world):
    assert says(checks.inside_ddp.my_average, world, skeleton("my_average")) == (
        "Not yet. On rank 0 the future holds [0.0, 4.0, 1.0], expected the means [3.0, 2.5, 1.0]."
    )


@pytest.mark.parametrize(
    "lines",
    [
        "work = dist.all_reduce(tensor.div_(n), async_op=True);"
        " return work.get_future().then(lambda done: done.value()[0])",
        "work = dist.all_reduce(tensor, async_op=True);"
        " return work.get_future().then(lambda done: done.value()[0] / n)",
        "dist.all_reduce(tensor); ready = torch.futures.Future(); ready.set_result(tensor / n); return ready",
    ],
)
def test_average(world, lines):
    assert says(checks.inside_ddp.my_average, world, FUTURE.format(lines)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "work = dist.all_reduce(tensor, async_op=True);"
            " return work.get_future().then(lambda done: done.value()[0])",
            "On rank 0 the future holds [12.0, 10.0, 4.0], expected the means [3.0, 2.5, 1.0].",
        ),
        (
            "return dist.all_reduce(tensor.div_(n), async_op=True).get_future()",
            "Rank 0 returned the future of a list, expected the future of a tensor.",
        ),
        (
            "work = dist.all_reduce(tensor.div_(n), async_op=True); work.wait(); return tensor",
            "Rank 0 returned a tensor of shape [3], expected the future of a tensor.",
        ),
        (
            "work = dist.all_reduce(tensor / n, async_op=True); work.wait();"
            " ready = torch.futures.Future(); ready.set_result(tensor); return ready",
            "On rank 0 the future holds [0.0, 4.0, 1.0], expected the means [3.0, 2.5, 1.0].",
        ),
    ],
)
def test_no_average(world, lines, message):
    assert says(checks.inside_ddp.my_average, world, FUTURE.format(lines)) == f"Not yet. {message}"


# ---------------------------------------------------------------- accumulate_all

ACCUMULATE = """
    def accumulate_all(model, parts):
        for number, (inputs, labels) in enumerate(parts, start=1):
            with model.no_sync() if {} else nullcontext():
                {}
"""
NOT_LAST = "number < len(parts)"
MEAN = "(cross_entropy(model(inputs), labels) / len(parts)).backward()"
OTHER_GRADIENTS = "the gradient of 0.weight differs from those of one process on all batches."


def test_accumulate_solution(world):
    assert says(checks.inside_ddp.accumulate_all, world, solution("accumulate_all")) == (
        "Solved. With 3 batches and with 1, every rank sent 496 bytes and has the gradients of one process."
    )


def test_accumulate_skeleton(world):
    assert says(checks.inside_ddp.accumulate_all, world, skeleton("accumulate_all")) == (
        "Not yet. With 3 batches, rank 0 sent 1488 bytes of gradients, expected 496."
    )


ACCUMULATED_IN_ANOTHER_WAY = {
    "its own all_reduce": """
        def accumulate_all(model, parts):
            for inputs, labels in parts:
                with model.no_sync():
                    (cross_entropy(model(inputs), labels) / len(parts)).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= n
        """,
    "its own all_reduce, on the bare model, in one tensor": """
        def accumulate_all(model, parts):
            for inputs, labels in parts:
                (cross_entropy(model.module(inputs), labels) / len(parts) / n).backward()
            flat = nn.utils.parameters_to_vector(parameter.grad for parameter in model.parameters())
            dist.all_reduce(flat)
            for parameter, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
                parameter.grad = part.view_as(parameter)
        """,
    "its own mean of the gradients of all ranks": """
        def accumulate_all(model, parts):
            for inputs, labels in parts:
                (cross_entropy(model.module(inputs), labels) / len(parts)).backward()
            for parameter in model.parameters():
                gathered = [torch.empty_like(parameter) for _ in range(n)]
                dist.all_gather(gathered, parameter.grad)
                parameter.grad = torch.stack(gathered).mean(0)
        """,
    "divided at the end": """
        def accumulate_all(model, parts):
            *most, last = parts
            with model.no_sync():
                for inputs, labels in most:
                    cross_entropy(model(inputs), labels).backward()
            cross_entropy(model(last[0]), last[1]).backward()
            for parameter in model.parameters():
                parameter.grad.div_(len(parts))
        """,
}


@pytest.mark.parametrize("answer", ACCUMULATED_IN_ANOTHER_WAY.values(), ids=ACCUMULATED_IN_ANOTHER_WAY)
def test_accumulate_in_another_way(world, answer):
    assert says(checks.inside_ddp.accumulate_all, world, answer).startswith("Solved. ")


def test_accumulate_a_sum(world):
    answer = ACCUMULATE.format(NOT_LAST, "cross_entropy(model(inputs), labels).backward()")
    assert says(checks.inside_ddp.accumulate_all, world, answer) == (
        "Not yet. With 3 batches, on rank 0 the gradients are 3.00 times those of one process on all batches."
    )


@pytest.mark.parametrize(
    "answer",
    [
        """
        def accumulate_all(model, parts):
            inputs, labels = map(torch.cat, zip(*parts))
            cross_entropy(model(inputs), labels).backward()
        """,
        """
        def accumulate_all(model, parts):
            losses = []
            for number, (inputs, labels) in enumerate(parts, start=1):
                with model.no_sync() if number < len(parts) else nullcontext():
                    losses.append(cross_entropy(model(inputs), labels) / len(parts))
            sum(losses).backward()
        """,
    ],
)
def test_accumulate_with_all_batches_in_memory(world, answer):
    assert says(checks.inside_ddp.accumulate_all, world, answer) == (
        "Not yet. With 3 batches, rank 0 did not take one batch after the other, each with its backward."
    )


def test_accumulate_in_silence_to_the_end(world):
    assert says(checks.inside_ddp.accumulate_all, world, ACCUMULATE.format("True", MEAN)) == (
        "Not yet. With 3 batches, rank 0 sent 0 bytes of gradients, expected 496."
    )


def test_accumulate_with_forward_outside(world):
    answer = """
        def accumulate_all(model, parts):
            for number, (inputs, labels) in enumerate(parts, start=1):
                loss = cross_entropy(model(inputs), labels) / len(parts)
                with model.no_sync() if number < len(parts) else nullcontext():
                    loss.backward()
    """
    assert says(checks.inside_ddp.accumulate_all, world, answer) == (
        "Not yet. With 3 batches, rank 0 sent 1488 bytes of gradients, expected 496."
    )


def test_accumulate_that_sends_the_first_batch(world):
    assert says(checks.inside_ddp.accumulate_all, world, ACCUMULATE.format("number > 1", MEAN)) == (
        f"Not yet. With 3 batches, on rank 0 {OTHER_GRADIENTS}"
    )


def test_accumulate_that_leaves_the_last_batch_out(world):
    answer = """
        def accumulate_all(model, parts):
            inputs, labels = (torch.cat(tensors) for tensors in zip(*parts[: max(1, len(parts) - 1)]))
            cross_entropy(model(inputs), labels).backward()
    """
    assert (
        says(checks.inside_ddp.accumulate_all, world, answer) == f"Not yet. With 3 batches, on rank 0 {OTHER_GRADIENTS}"
    )


def test_accumulate_for_three_only(world):
    answer = ACCUMULATE.format(NOT_LAST, "(cross_entropy(model(inputs), labels) / 3).backward()")
    assert says(checks.inside_ddp.accumulate_all, world, answer) == (
        "Not yet. With 1 batch, on rank 0 the gradients are 0.33 times those of one process on all batches."
    )


def test_accumulate_on_the_bare_model(world):
    answer = """
        def accumulate_all(model, parts):
            for inputs, labels in parts:
                (cross_entropy(model.module(inputs), labels) / len(parts)).backward()
    """
    assert says(checks.inside_ddp.accumulate_all, world, answer) == (
        "Not yet. With 3 batches, rank 0 sent 0 bytes of gradients, expected 496."
    )


# ---------------------------------------------------------------- weigh

WEIGH = """
    def weigh(samples, bucket):
        message = torch.cat([samples * bucket.buffer(), torch.tensor([float(samples)])])
        work = dist.all_reduce(message, async_op=True)
        return work.get_future().then(lambda done: {})
"""


def test_weigh_solution(world):
    assert says(checks.inside_ddp.weigh, world, solution("weigh")) == (
        "Solved. Every sample has the same weight, whichever rank has it, after one all-reduce for each bucket."
    )


def test_weigh_skeleton(world):
    assert says(checks.inside_ddp.weigh, world, skeleton("weigh")) == (
        "Not yet. With r + 1 samples on rank r, on rank 0 the gradient of 0.weight differs from those of one process."
    )


def test_weigh_with_the_mean_number_of_samples(world):
    answer = WEIGH.format("done.value()[0][:-1] * n / done.value()[0][-1]")
    assert says(checks.inside_ddp.weigh, world, answer) == (
        "Not yet. With r + 1 samples on rank r, on rank 0 the gradients are 4.00 times those of one process."
    )


WEIGHED_IN_ANOTHER_WAY = {
    "waits": """
        def weigh(samples, bucket):
            message = torch.cat([torch.tensor([float(samples)]), bucket.buffer() * samples])
            dist.all_reduce(message)
            future = torch.futures.Future()
            future.set_result(bucket.buffer().copy_(message[1:] / message[0]))
            return future
        """,
    "double precision": """
        def weigh(samples, bucket):
            message = bucket.buffer().new_empty(bucket.buffer().numel() + 1, dtype=torch.float64)
            message[:-1] = bucket.buffer()
            message[-1] = 1
            work = dist.all_reduce(message.mul_(samples), async_op=True)
            return work.get_future().then(lambda done: (done.value()[0][:-1] / done.value()[0][-1]).float())
        """,
}


@pytest.mark.parametrize("answer", WEIGHED_IN_ANOTHER_WAY.values(), ids=WEIGHED_IN_ANOTHER_WAY)
def test_weigh_in_another_way(world, answer):
    assert says(checks.inside_ddp.weigh, world, answer).startswith("Solved. ")


def test_weigh_by_a_constant(world):
    """The check's first numbers of samples are known to whoever has read its sentence."""
    answer = """
        def weigh(samples, bucket):
            work = dist.all_reduce(bucket.buffer().mul_(samples / (n * (n + 1) / 2)), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])
    """
    assert says(checks.inside_ddp.weigh, world, answer) == (
        "Not yet. With 3 samples on rank 0 and 1 on each other rank, on rank 0 the gradients are 0.60 times those of "
        "one process."
    )


def test_weigh_with_two_collectives(world):
    answer = """
        def weigh(samples, bucket):
            count = torch.tensor(float(samples))
            dist.all_reduce(count)
            work = dist.all_reduce(bucket.buffer().mul_(samples / count), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])
    """
    assert says(checks.inside_ddp.weigh, world, answer) == (
        "Not yet. Rank 0 called 2 all_reduce for a bucket, expected 1 all_reduce."
    )


def test_weigh_without_the_others(world):
    answer = """
        def weigh(samples, bucket):
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future
    """
    assert says(checks.inside_ddp.weigh, world, answer) == (
        "Not yet. Rank 0 called no collective for a bucket, expected 1 all_reduce."
    )


def test_weigh_with_the_future_of_the_work(world):
    answer = """
        def weigh(samples, bucket):
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    """
    assert says(checks.inside_ddp.weigh, world, answer) == (
        "Not yet. Rank 0 raised TypeError: the future of your hook holds no tensor, as that of `average` does"
    )


def test_weigh_that_returns_a_tensor(world):
    answer = "def weigh(samples, bucket):\n    dist.all_reduce(bucket.buffer())\n    return bucket.buffer()"
    assert (
        says(checks.inside_ddp.weigh, world, answer)
        == "Not yet. Rank 0 returned a tensor of shape [124], expected a future."
    )


def test_weigh_that_raises(world):
    assert says(checks.inside_ddp.weigh, world, "def weigh(samples):\n    pass").startswith(
        "Not yet. Rank 0 raised TypeError: "
    )


def test_weigh_that_is_not_there(world):
    assert says(checks.inside_ddp.weigh, world, "globals().pop('weigh', None)") == (
        "Not yet. Rank 0 has no function `weigh`: run the cell that defines it, then this check."
    )


def test_weigh_on_one_rank_only(broken_world):
    answer = """
        def weigh(samples, bucket):
            if rank == 0:
                return average(bucket.buffer())
    """
    verdict = says(checks.inside_ddp.weigh, broken_world, answer)
    assert verdict.startswith("Not yet. Deadlock: ") and verdict.endswith(RESTART)


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [
            ("accumulate_all", checks.inside_ddp.accumulate_all),
            ("weigh", checks.inside_ddp.weigh),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
