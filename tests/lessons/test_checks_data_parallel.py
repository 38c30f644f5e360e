"""The checks of 08_data_parallel: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import World, checks
from helpers.checks.judging import RESTART

NAME = "08_data_parallel.ipynb"


def skeleton(name):
    return cell(NAME, definition(name))


def solution(name):
    return cell(f"solutions/{NAME}", definition(name))


def definition(name):
    return "class MyBucket:" if name == "MyBucket" else f"def {name}("


# A shorter timeout than the learner's, because a test of a deadlock waits for it.
SETUP = cell(NAME, "init_process_group(").replace("seconds=10", "seconds=4")


# ---------------------------------------------------------------- my_synchronise

SYNCHRONISE = """
    def my_synchronise(model):
        for parameter in model.parameters():
            {}
"""
BY_ONE_BUCKET = """
    def my_synchronise(model):
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) / n
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat, [parameter.grad for parameter in model.parameters()])
"""
BY_GATHERING = """
    def my_synchronise(model):
        for parameter in model.parameters():
            everybody = [torch.empty_like(parameter.grad) for _ in range(n)]
            dist.all_gather(everybody, parameter.grad)
            parameter.grad = torch.stack(everybody).mean(dim=0)
"""


def test_mean_solution(world):
    assert says(checks.data_parallel.my_synchronise, world, solution("my_synchronise")) == (
        "Solved. Every rank holds the mean of all gradients, which is the gradient that one process would compute."
    )


def test_mean_skeleton(world):
    assert says(checks.data_parallel.my_synchronise, world, skeleton("my_synchronise")) == (
        "Not yet. Rank 0 still has the gradients of its own shard."
    )


@pytest.mark.parametrize(
    "answer",
    [
        SYNCHRONISE.format("dist.all_reduce(parameter.grad); parameter.grad /= n"),
        SYNCHRONISE.format("parameter.grad /= n; dist.all_reduce(parameter.grad)"),
        SYNCHRONISE.format("dist.all_reduce(parameter.grad); parameter.grad = parameter.grad / dist.get_world_size()"),
        BY_ONE_BUCKET,
        BY_GATHERING,
    ],
)
def test_mean(world, answer):
    assert says(checks.data_parallel.my_synchronise, world, answer) == (
        "Solved. Every rank holds the mean of all gradients, which is the gradient that one process would compute."
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("dist.all_reduce(parameter.grad)", "On rank 0 the gradients are 4.00 times the mean over all ranks."),
        ("parameter.grad /= n", "On rank 0 the gradient of 0.weight differs from the mean over all ranks."),
        ("dist.all_reduce(parameter.grad / n)", "Rank 0 still has the gradients of its own shard."),
        (
            "dist.all_reduce(parameter.grad, op=dist.ReduceOp.MAX)",
            "On rank 0 the gradient of 0.weight differs from the mean over all ranks.",
        ),
        (
            "dist.broadcast(parameter.grad, src=0)",
            "Rank 0 still has the gradients of its own shard.",
        ),
        (
            "dist.all_reduce(parameter.data); parameter.data /= n",
            "Rank 0 still has the gradients of its own shard.",
        ),
    ],
)
def test_no_mean(world, lines, message):
    assert says(checks.data_parallel.my_synchronise, world, SYNCHRONISE.format(lines)).startswith(f"Not yet. {message}")


def test_mean_on_rank_0_only(broken_world):
    answer = SYNCHRONISE.format("dist.all_reduce(parameter.grad) if rank == 0 else None")
    assert says(checks.data_parallel.my_synchronise, broken_world, answer).startswith(
        "Not yet. Deadlock: the group's timeout ended"
    )
    assert says(checks.data_parallel.average_what_is_there, broken_world, solution("average_what_is_there")) == (
        f"Not yet. An earlier attempt has broken the process group. {RESTART}"
    )


# ---------------------------------------------------------------- MyBucket

BUCKET = """
    class MyBucket:
        def __init__(self, parameters):
            self.parameters = list(parameters)
            self.sizes = [parameter.numel() for parameter in self.parameters]
            self.flat = self.parameters[0].new_zeros(sum(self.sizes))
            self.parts = dict(zip(self.parameters, self.flat.split(self.sizes)))

        def take(self, parameter):
            self.parts[parameter].copy_(parameter.grad.flatten() / n)

        def launch(self):
            self.work = dist.all_reduce(self.flat, async_op=True)

        def finish(self):
            self.work.wait()
            for parameter in self.parameters:
                parameter.grad = self.parts[parameter].view_as(parameter)
"""
IN_ORDER = "In step 1, which takes the gradients in the order of the parameters, "
REVERSED = "In step 2, which takes the gradients in the opposite order of the parameters, "
TAKE = "self.parts[parameter].copy_(parameter.grad.flatten() / n)"
ONE_BEHIND_THE_OTHER = """
            at = getattr(self, "at", 0)
            self.flat[at : at + parameter.numel()] = parameter.grad.flatten() / n
            self.at = (at + parameter.numel()) % len(self.flat)
"""


def changed(*changes):
    """Return the bucket with each text of `changes` replaced by the text after it."""
    answer = BUCKET
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert answer.count(old) == 1, old
        answer = answer.replace(old, new)
    return answer


def test_bucket_solution(world):
    assert says(checks.data_parallel.MyBucket, world, solution("MyBucket")) == (
        "Solved. One all-reduce averages all gradients, and the bucket can be used again in the next step."
    )


def test_bucket_skeleton(world):
    assert says(checks.data_parallel.MyBucket, world, skeleton("MyBucket")) == (
        "Not yet. On rank 0 `flat` is None, expected a tensor of 124 elements, as many as the parameters have together."
    )


def test_bucket_of_the_lesson(world):
    answer = cell(NAME, "class BucketOfTheLesson").replace("BucketOfTheLesson", "MyBucket")
    assert says(checks.data_parallel.MyBucket, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    "answer",
    [
        changed(
            "self.work = dist.all_reduce(self.flat, async_op=True)",
            "dist.all_reduce(self.flat)",
            "self.work.wait()",
            "",
        ),
        changed(" / n)", ")", "self.work.wait()", "self.work.wait(); self.flat /= n"),
        changed("parameter.grad = self", "parameter.grad[:] = self"),
    ],
    ids=["blocking", "divided at the end", "copied back"],
)
def test_bucket(world, answer):
    assert says(checks.data_parallel.MyBucket, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(
            changed("self.parameters[0].new_zeros(sum(self.sizes))", "torch.zeros(sum(self.sizes))"),
            "On rank 0 `flat` has dtype torch.float32, expected torch.float64, the dtype of the parameters.",
            id="dtype",
        ),
        pytest.param(
            changed("self.work.wait()", "pass"),
            f"{IN_ORDER}rank 0 still has its own gradients, divided by 4, after `finish`. Does `finish` wait for the "
            "all-reduce?",
            id="no wait",
        ),
        pytest.param(
            changed(
                "self.parameters[0].new_zeros(sum(self.sizes))",
                "self.parameters[0].new_zeros(4)",
                "self.sizes))",
                "[1] * 4))",
            ),
            "Rank 0 raised RuntimeError: output with shape [1] doesn't match the broadcast shape [48]",
            id="slices too small",
        ),
        pytest.param(
            changed(TAKE, "self.flat = self.flat[:4]"),
            "On rank 0 `flat` is a tensor of shape [4], expected a tensor of 124 elements",
            id="too small",
        ),
        pytest.param(
            changed(TAKE, "pass"),
            f"{IN_ORDER}`flat` on rank 0 does not hold the rank's gradients, divided by 4, after `take`.",
            id="nothing taken",
        ),
        pytest.param(
            changed(" / n)", ")"),
            f"{IN_ORDER}on rank 0 the gradients are 4.00 times the mean over all ranks.",
            id="sum",
        ),
        pytest.param(
            changed("parameter.grad = self.parts[parameter].view_as(parameter)", "pass"),
            f"{IN_ORDER}on rank 0 the gradient of 0.weight differs from the mean over all ranks.",
            id="not given back",
        ),
        pytest.param(
            changed(TAKE, ONE_BEHIND_THE_OTHER.strip()),
            f"{REVERSED}on rank 0 the gradient of 0.weight differs from the mean over all ranks.",
            id="only in order",
        ),
        pytest.param(
            changed(
                "self.work = dist.all_reduce(self.flat, async_op=True)",
                "for part in self.parts.values(): self.work = dist.all_reduce(part, async_op=True)",
            ),
            f"{IN_ORDER}rank 0 called 6 all_reduce, expected 1 all_reduce.",
            id="a call for each",
        ),
    ],
)
def test_no_bucket(world, answer, message):
    verdict = says(checks.data_parallel.MyBucket, world, answer)
    assert verdict.startswith(f"Not yet. {message}"), verdict


# ---------------------------------------------------------------- mean_over_tokens

TOKENS = """
    def mean_over_tokens(model, micro_batches):
        mine = sum(mask.sum() for *_, mask in micro_batches)
        everybody = mine.clone()
        dist.all_reduce(everybody)
        for inputs, labels, mask in micro_batches:
            losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
            {}.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
"""
SAME_NUMBER = "With 4 tokens in every micro-batch, on rank 0 "
PER_RANK = (
    "With the same number of tokens in every micro-batch, the answer is right. With 1, 3 and 8 tokens in the "
    "micro-batches of every rank, on rank 0 "
)
BETWEEN_RANKS = (
    "With the same number of tokens on every rank, the answer is right. With different numbers of tokens on the ranks, "
    "on rank 0 "
)


def test_tokens_solution(world):
    assert says(checks.data_parallel.mean_over_tokens, world, solution("mean_over_tokens")) == (
        "Solved. Every rank has the gradients of one process, whatever the lengths of the masks."
    )


def test_tokens_skeleton(world):
    verdict = says(checks.data_parallel.mean_over_tokens, world, skeleton("mean_over_tokens"))
    assert verdict == f"Not yet. {PER_RANK}the gradient of 0.weight differs from the gradients of one process."


@pytest.mark.parametrize(
    "loss",
    [
        "(losses[mask].sum() / everybody)",
        "(losses * mask / everybody).sum()",
        "(losses[mask].mean() * mask.sum() / everybody)",
    ],
)
def test_tokens(world, loss):
    assert says(checks.data_parallel.mean_over_tokens, world, TOKENS.format(loss)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        pytest.param("(losses[mask].sum() / mine / n)", f"{BETWEEN_RANKS}the gradient of 0.weight differs", id="B"),
        pytest.param("(losses[mask].mean() / len(micro_batches) / n)", f"{PER_RANK}the gradient of", id="A"),
        pytest.param("(losses[mask].sum() / everybody / n)", f"{SAME_NUMBER}the gradients are 0.25 times", id="C / n"),
        pytest.param("(losses[mask].sum() / mine)", f"{SAME_NUMBER}the gradients are 4.00 times", id="B * n"),
        pytest.param(
            "(losses.mean() / len(micro_batches) / n)", f"{SAME_NUMBER}the gradient of 0.weight", id="no mask"
        ),
        pytest.param("losses[mask].sum()", f"{SAME_NUMBER}the gradients are 48.00 times", id="sum"),
    ],
)
def test_no_mean_over_tokens(world, loss, message):
    verdict = says(checks.data_parallel.mean_over_tokens, world, TOKENS.format(loss))
    assert verdict.startswith(f"Not yet. {message}"), verdict


def test_tokens_averaged_on_rank_0_only(broken_world):
    answer = TOKENS.format("losses[mask].sum()").replace(
        "model.parameters()", "list(model.parameters())[: 6 * (rank == 0)]"
    )
    # The others count the tokens of their next micro-batches while rank 0 sends gradients. Rank 3 then gets more bytes
    # from rank 0 than it expects, and gloo aborts it.
    said = says(checks.data_parallel.mean_over_tokens, broken_world, answer)
    why = "gloo aborts a process if the calls of the ranks do not match."
    assert said == f"Not yet. Rank 3 is dead (SIGABRT). {why} {RESTART}"


# ---------------------------------------------------------------- average_what_is_there

WHAT_IS_THERE = """
    def average_what_is_there(model):
        for parameter in model.parameters():
            {}
            dist.all_reduce(parameter.grad)
            parameter.grad /= n
"""
ZEROS = "if parameter.grad is None: parameter.grad = torch.zeros_like(parameter)"
IN_ONE_PIECE = """
    def average_what_is_there(model):
        mine = [parameter for parameter in model.parameters() if parameter.requires_grad]
        flat = torch.cat([torch.zeros(p.numel()).double() if p.grad is None else p.grad.flatten() for p in mine])
        dist.all_reduce(flat)
        for parameter, part in zip(mine, (flat / n).split([p.numel() for p in mine])):
            parameter.grad = part.view_as(parameter)
"""
BY_COUNTING = """
    def average_what_is_there(model):
        for parameter in filter(lambda p: p.requires_grad, model.parameters()):
            used = torch.tensor([parameter.grad is not None]).double()
            dist.all_reduce(used)
            if used > 0:
                grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_reduce(grad)
                parameter.grad = grad / {}
"""


def test_what_is_there_solution(world):
    assert says(checks.data_parallel.average_what_is_there, world, solution("average_what_is_there")) == (
        "Solved. Every rank has the gradients of one process, and the frozen parameters have none."
    )


def test_what_is_there_skeleton(world):
    verdict = says(checks.data_parallel.average_what_is_there, world, skeleton("average_what_is_there"))
    assert verdict.startswith("Not yet. Rank 0 raised TypeError: Invalid function argument.")


@pytest.mark.parametrize(
    "answer",
    [
        WHAT_IS_THERE.format("if not parameter.requires_grad: continue\n            " + ZEROS),
        IN_ONE_PIECE,
        BY_COUNTING.format("n"),
    ],
)
def test_what_is_there(world, answer):
    assert says(checks.data_parallel.average_what_is_there, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (WHAT_IS_THERE.format(ZEROS), "Rank 0 gave a gradient to 0.weight, which is frozen."),
        (
            BY_COUNTING.format("used"),
            "Only rank 0 used the last layer, and on rank 0 the gradient of 4.weight differs from the ",
        ),
        (
            IN_ONE_PIECE.replace("flat / n", "flat"),
            "Only rank 0 used the last layer, and on rank 0 the gradients are 4.00 times the gradients of one process.",
        ),
        (
            "def average_what_is_there(model): pass",
            "Only rank 0 used the last layer, and on rank 0 the gradient",
        ),
    ],
)
def test_not_what_is_there(world, answer, message):
    verdict = says(checks.data_parallel.average_what_is_there, world, answer)
    assert verdict.startswith(f"Not yet. {message}"), verdict


def test_what_is_there_is_skipped_where_it_is_not(broken_world):
    answer = WHAT_IS_THERE.format("if parameter.grad is None: continue")
    assert says(checks.data_parallel.average_what_is_there, broken_world, answer) == (
        f"Not yet. Deadlock: the group's timeout ended the wait on these ranks: 0. {RESTART}"
    )


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for name in ("my_synchronise", "MyBucket", "mean_over_tokens", "average_what_is_there"):
            check = getattr(checks.data_parallel, name)
            assert says(check, world, solution(name)).startswith("Solved. ")
            assert says(check, world, skeleton(name)).startswith("Not yet. ")
    finally:
        world.stop()
