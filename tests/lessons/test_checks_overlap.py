"""The checks of 09_overlap: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import World, checks
from helpers.checks.judging import RESTART

NAME = "09_overlap.ipynb"


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


def definitions(contains):
    """Return what a cell of the notebook defines, without the call or the assert at its end."""
    source = cell(NAME, contains)
    return source.partition("\nas_one_process(")[0].partition("\nassert ")[0]


SETUP = "\n".join(
    [
        cell(NAME, "init_process_group("),
        cell(NAME, "def sgd("),
        cell(NAME, "class Bucket"),
        cell(NAME, "def one_bucket("),
        cell(NAME, "def buckets_by_layer("),
        cell(NAME, "def hooks_of_the_lesson("),
        "when_full = hooks_of_the_lesson",
        definitions("def overlapped("),
    ]
)


# ---------------------------------------------------------------- my_hooks

LAST, FIRST = "the bucket of the last layers", "the bucket of the first layer"
HOOKS = """
    def my_hooks(bucket, launch):
        taken = []
        def hook(parameter):
            {}
        for parameter in bucket.views:
            parameter.register_post_accumulate_grad_hook(hook)
"""


def test_hooks_solution(world):
    assert says(checks.overlap.my_hooks, world, solution("my_hooks")) == (
        "Solved. In each step, every rank launched each bucket once, as soon as all gradients were in the bucket."
    )


def test_hooks_skeleton(world):
    assert says(checks.overlap.my_hooks, world, skeleton("my_hooks")) == (
        f"Not yet. In step 1, rank 0 did not launch {LAST}, expected one launch in every step."
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "taken.append(parameter); len(taken) == len(bucket.views) and"
            " ([bucket.take(p) for p in taken], taken.clear(), launch(bucket))",
            "Solved. ",
        ),
        (
            "bucket.take(parameter); taken.append(parameter); len(taken) % len(bucket.views) == 0 and launch(bucket)",
            "Solved. ",
        ),
        (
            "bucket.take(parameter); taken.append(parameter); len(taken) == len(bucket.views) and launch(bucket)",
            f"Not yet. In step 2, rank 0 did not launch {LAST}, expected one launch in every step.",
        ),
        (
            "bucket.take(parameter); launch(bucket)",
            f"Not yet. In step 1, rank 0 launched {LAST} 4 times, expected one launch in every step.",
        ),
        (
            "bucket.take(parameter); taken.append(parameter); len(taken) % len(bucket.views) == 1 and launch(bucket)",
            f"Not yet. In step 1, rank 0 launched {LAST} before all of its gradients were taken,"
            " expected a full bucket.",
        ),
        (
            "taken.append(parameter); len(taken) % len(bucket.views) == 0 and launch(bucket)",
            f"Not yet. In step 1, rank 0 launched {LAST} before all of its gradients were taken,"
            " expected a full bucket.",
        ),
        (
            "bucket.take(parameter); taken.append(parameter);"
            " len(taken) % len(bucket.views) == 0 and launch(parameter)",
            "Not yet. Rank 0 raised TypeError: launch got a Parameter, expected the bucket of `my_hooks`",
        ),
        (
            "nothing",
            "Not yet. Rank 0 raised NameError: name 'nothing' is not defined",
        ),
    ],
)
def test_hooks(world, body, message):
    assert says(checks.overlap.my_hooks, world, HOOKS.format(body)).startswith(message)


def test_hooks_of_two_buckets_that_share_what_was_taken(world):
    answer = HOOKS.format("bucket.take(parameter); taken.append(parameter); len(taken) == 4 and launch(bucket)")
    answer = answer.replace("        taken = []\n", "").replace(
        "my_hooks(bucket, launch)", "my_hooks(bucket, launch, taken=[])"
    )
    assert says(checks.overlap.my_hooks, world, answer) == (
        f"Not yet. In step 1, rank 0 did not launch {FIRST}, expected one launch in every step."
    )


def test_hooks_that_launch_at_the_end_of_backward(world):
    answer = HOOKS.format(
        "bucket.take(parameter); taken.append(parameter);"
        " len(taken) % len(bucket.views) == 0 and"
        " torch.autograd.Variable._execution_engine.queue_callback(lambda: launch(bucket))"
    )
    assert says(checks.overlap.my_hooks, world, answer) == (
        f"Not yet. In step 1, rank 0 launched {LAST} after backward had computed the gradients of the first layer, "
        "expected a launch as soon as the bucket is full."
    )


# ---------------------------------------------------------------- buckets_by_size


def test_buckets_solution(world):
    assert says(checks.overlap.buckets_by_size, world, solution("buckets_by_size")) == (
        "Solved. Every rank has filled its buckets as DDP does, from the last parameter to the first."
    )


def test_buckets_skeleton(world):
    assert says(checks.overlap.buckets_by_size, world, skeleton("buckets_by_size")) == (
        "Not yet. Bucket 0 of rank 0 ends with 16 bytes, before it has reached the limit of 1200."
    )


BUCKETS = """
    def buckets_by_size(parameters, limit):
        buckets, size = [[]], 0
        for parameter in {order}:
            if size >= limit:
                buckets.append([])
                size = 0
            buckets[-1].append(parameter)
            size += parameter.{size}
        return {result}
"""


@pytest.mark.parametrize(
    ("order", "size", "result", "message"),
    [
        ("reversed(parameters)", "nbytes", "buckets", "Solved. "),
        (
            "reversed(parameters)",
            "numel()",
            "buckets",
            "Not yet. Bucket 0 of rank 0 goes on after it has reached 2384 bytes, and the limit is 1200.",
        ),
        (
            "parameters",
            "nbytes",
            "buckets",
            "Not yet. The buckets of rank 0 hold the parameters [[0, 1, 2], [3, 4, 5, 6, 7, 8]], "
            "expected from last to first.",
        ),
        (
            "reversed(parameters)",
            "nbytes",
            "buckets[:-1]",
            "Not yet. On rank 0 parameter 0 of 9 is in 0 buckets, expected 1.",
        ),
        ("reversed(parameters)", "nbytes", "[[]] + buckets", "Not yet. Bucket 0 of rank 0 is empty."),
        (
            "reversed(parameters)",
            "nbytes",
            "[len(bucket) for bucket in buckets]",
            "Not yet. Rank 0 returned a list of 2, expected a list of lists of parameters.",
        ),
        (
            "reversed(parameters)",
            "nbytes",
            "None",
            "Not yet. Rank 0 returned None, expected a list of lists of parameters.",
        ),
    ],
)
def test_buckets(world, order, size, result, message):
    answer = BUCKETS.format(order=order, size=size, result=result)
    assert says(checks.overlap.buckets_by_size, world, answer).startswith(message)


RIGHT_BUCKETS = {
    "looking back": """
        def buckets_by_size(parameters, limit):
            buckets = [[]]
            for parameter in reversed(parameters):
                if sum(p.nbytes for p in buckets[-1]) >= limit:
                    buckets.append([])
                buckets[-1].append(parameter)
            return buckets
        """,
    "tuples": """
        def buckets_by_size(parameters, limit):
            buckets, bucket = [], ()
            for parameter in parameters[::-1]:
                bucket += (parameter,)
                if sum(4 * p.numel() if p.dtype == torch.float32 else 8 * p.numel() for p in bucket) >= limit:
                    buckets.append(bucket)
                    bucket = ()
            return buckets + [bucket] * bool(bucket)
        """,
    "by DDP's own function": """
        def buckets_by_size(parameters, limit):
            last_first = parameters[::-1]
            numbers, _ = dist._compute_bucket_assignment_by_size(last_first, [limit])
            return [[last_first[number] for number in bucket] for bucket in numbers]
        """,
}


@pytest.mark.parametrize("answer", RIGHT_BUCKETS.values(), ids=RIGHT_BUCKETS)
def test_buckets_in_another_way(world, answer):
    assert says(checks.overlap.buckets_by_size, world, answer).startswith("Solved. ")


def test_buckets_that_stay_below_the_limit(world):
    answer = """
        def buckets_by_size(parameters, limit):
            buckets = [[]]
            for parameter in reversed(parameters):
                if buckets[-1] and sum(p.nbytes for p in [*buckets[-1], parameter]) > limit:
                    buckets.append([])
                buckets[-1].append(parameter)
            return buckets
    """
    assert says(checks.overlap.buckets_by_size, world, answer) == (
        "Not yet. Bucket 0 of rank 0 ends with 1184 bytes, before it has reached the limit of 1200."
    )


# ---------------------------------------------------------------- two_buckets

TWO = """
    def two_buckets(model, group=None):
        optimizer, parameters = sgd(model.parameters()), list(model.parameters())[::-1]
        buckets = [Bucket(parameters[:3], group), Bucket(parameters[3:], group)]
        for bucket in buckets:
            {hook}
        def update():
            for bucket in buckets:
                {finish}
            optimizer.step()
        return {result}
"""
LAUNCH, FINISH, RESULT = "when_full(bucket, Bucket.launch)", "bucket.finish()", "model, update"


def test_two_buckets_solution(world):
    assert says(checks.overlap.two_buckets, world, solution("two_buckets")) == (
        "Solved. Every rank has the weights of one process, and its first bucket travelled while backward still ran."
    )


def test_two_buckets_skeleton(world):
    assert says(checks.overlap.two_buckets, world, skeleton("two_buckets")) == (
        "Not yet. Rank 0 called all_reduce once in a step, expected twice."
    )


@pytest.mark.parametrize(
    ("hook", "finish", "result", "message"),
    [
        (LAUNCH, FINISH, RESULT, "Solved. "),
        (
            LAUNCH,
            "bucket.work.get_future().wait(); [setattr(p, 'grad', view) for p, view in bucket.views.items()]",
            RESULT,
            "Solved. ",
        ),
        (
            "pass",
            "[bucket.take(p) for p in bucket.views]; bucket.launch(); bucket.finish()",
            RESULT,
            "Not yet. Rank 0 launched its first bucket after backward had computed the last gradient.",
        ),
        (
            "when_full(bucket, lambda bucket: (bucket.launch(), bucket.finish()))",
            "pass",
            RESULT,
            "Not yet. Rank 0 waited for a bucket before backward had ended.",
        ),
        (
            LAUNCH,
            "bucket.work.wait()",
            RESULT,
            "Not yet. After step 0, the weights of rank 0 are not those of one process.",
        ),
        (
            LAUNCH,
            "bucket.work.wait() if bucket is buckets[0] else __import__('time').sleep(0.1)",
            RESULT,
            f"Not yet. Rank 0 waited for only one of its buckets. {RESTART}",
        ),
        (LAUNCH, FINISH, "update", "Not yet. Rank 0 returned a function, expected a model and a function."),
        (LAUNCH, FINISH, "model, nothing", "Not yet. Rank 0 raised NameError: name 'nothing' is not defined"),
    ],
)
def test_two_buckets(world, hook, finish, result, message):
    answer = TWO.format(hook=hook, finish=finish, result=result)
    assert says(checks.overlap.two_buckets, world, answer).startswith(message)


TWO_OF_DDP = """
    def two_buckets(model, group=None):
        model = DDP(model, process_group=group, bucket_cap_mb={})
        return model, sgd(model.parameters()).step
"""


def test_two_buckets_by_ddp(world):
    assert says(checks.overlap.two_buckets, world, TWO_OF_DDP.format(500 / 2**20)).startswith("Solved. ")


@pytest.mark.parametrize(("megabytes", "times"), [(25, "once"), (100 / 2**20, "3 times")])
def test_another_number_of_buckets_by_ddp(world, megabytes, times):
    assert says(checks.overlap.two_buckets, world, TWO_OF_DDP.format(megabytes)) == (
        f"Not yet. Rank 0 called all_reduce {times} in a step, expected twice."
    )


def test_two_buckets_with_one_for_each_layer(world):
    answer = """
        def two_buckets(model, group=None):
            return overlapped(model, group)
    """
    assert says(checks.overlap.two_buckets, world, answer) == (
        "Not yet. Rank 0 called all_reduce 3 times in a step, expected twice."
    )


def test_two_buckets_that_leave_a_gradient_out(world):
    answer = TWO.format(hook=LAUNCH, finish=FINISH, result=RESULT).replace("parameters[3:]", "parameters[4:]")
    assert says(checks.overlap.two_buckets, world, answer) == (
        "Not yet. The buckets of rank 0 hold 704 bytes, and the gradients 992."
    )


def test_two_buckets_that_do_not_count_anew(world):
    answer = solution("two_buckets").replace("missing[:] = ", "_ = ")
    assert says(checks.overlap.two_buckets, world, answer) == (
        "Not yet. Rank 0 did not call all_reduce in a step, expected twice."
    )


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for check in (checks.overlap.my_hooks, checks.overlap.buckets_by_size, checks.overlap.two_buckets):
            assert says(check, world, solution(check.__name__)).startswith("Solved. ")
            assert says(check, world, skeleton(check.__name__)).startswith("Not yet. ")
    finally:
        world.stop()
