"""The checks of 13_ddp_in_practice: each accepts the solution, and says what is wrong with other answers."""

import ipyparallel as ipp
import pytest
from answers import cell, says

from helpers import World, checks

NAME = "13_ddp_in_practice.ipynb"


def skeleton(function):
    return cell(NAME, f"%%px\ndef {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"%%px\ndef {function}(")


# A shorter timeout, so that a deadlock ends sooner.
SETUP = "\n".join(
    [
        cell(NAME, "init_process_group(").replace("seconds=10", "seconds=4"),
        cell(NAME, "def same_of_the_lesson(") + "\nsame = same_of_the_lesson",
        cell(NAME, "def in_step("),
    ]
)


# ---------------------------------------------------------------- same_everywhere

SAME = """
    def my_same(tensor):
        checksum = zlib.crc32(tensor.numpy().tobytes())
        {}
"""


def test_same_skeleton(world):
    verdict = says(checks.ddp_in_practice.my_same, world, skeleton("my_same"))
    assert verdict.startswith("Not yet. When all ranks hold the same, rank 0 returned ")
    assert verdict.endswith(", expected True.")


@pytest.mark.parametrize(
    "lines",
    [
        "ends = torch.tensor([checksum, -checksum]); dist.all_reduce(ends, op=dist.ReduceOp.MAX);"
        " return (ends[0] == -ends[1]).item()",
        "all_of = [None] * n; dist.all_gather_object(all_of, checksum); return len(set(all_of)) == 1",
        "of_0 = torch.tensor([checksum]); dist.broadcast(of_0, 0); off = (of_0 != checksum).long();"
        " dist.all_reduce(off); return off == 0",
        "low = torch.tensor(checksum); high = low.clone(); dist.all_reduce(low, dist.ReduceOp.MIN);"
        " dist.all_reduce(high, dist.ReduceOp.MAX); return bool(low == high)",
    ],
)
def test_same(world, lines):
    assert says(checks.ddp_in_practice.my_same, world, SAME.format(lines)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "top = torch.tensor(checksum); dist.all_reduce(top, dist.ReduceOp.MAX); return top.item() == checksum",
            "When one bit has changed on the last rank, rank ",
        ),
        (
            "of_0 = torch.tensor(checksum); dist.broadcast(of_0, 0); return of_0.item() == checksum",
            "When one bit has changed on the last rank, rank 0 returned True, expected False.",
        ),
        (
            "total = tensor.sum(); dist.all_reduce(total); return (total / n == tensor.sum()).item()",
            "When one bit has changed on the last rank, rank ",
        ),
        (
            "whole = tensor.clone(); dist.broadcast(whole, 0); return torch.equal(whole, tensor)",
            "Rank 0 handed over 1024 bytes: that is the tensor.",
        ),
        ("return True", "When one bit has changed on the last rank, rank 0 returned True, expected False."),
    ],
)
def test_not_the_same(world, lines, message):
    assert says(checks.ddp_in_practice.my_same, world, SAME.format(lines)).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- gated


def test_gated_solution(world):
    assert says(checks.ddp_in_practice.forward, world, solution("forward")) == (
        "Solved. Outputs and gradients are the same, and every parameter takes part on every rank."
    )


def test_gated_skeleton(world):
    assert says(checks.ddp_in_practice.forward, world, skeleton("forward")) == (
        "Not yet. With a dark batch on rank 0 and bright ones elsewhere, on rank 0 a parameter had no part in the loss."
    )


FORWARD = """
    def forward(self, x):
        hidden = self.body(x)
        {}
"""


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            "return hidden if x.mean() > 0.5 else hidden + 0 * self.extra(hidden)",
            "Not yet. On rank 0 the output for bright images is not that of the exercise.",
        ),
        ("return self.extra(hidden)", "Not yet. On rank 0 the output for dark images is not that of the exercise."),
        ("hidden + 0 * self.extra(hidden)", "Not yet. On rank 0 the output for dark images is not that of the"),
        ("return torch.where(x.mean() > 0.5, self.extra(hidden), hidden)", "Solved. "),
        ("return self.extra(hidden) if x.mean() > 0.5 else hidden + 0 * self.extra(hidden)", "Solved. "),
        ("return self.other(hidden)", "Not yet. Rank 0 raised AttributeError: 'Gated' object has no attribute 'other'"),
    ],
)
def test_gated(world, answer, message):
    assert says(checks.ddp_in_practice.forward, world, FORWARD.format(answer)).startswith(message)


def test_gated_by_the_row(world):
    answer = FORWARD.format("return torch.where(x.mean(dim=1, keepdim=True) > 0.5, self.extra(hidden), hidden)")
    assert says(checks.ddp_in_practice.forward, world, answer) == (
        "Not yet. On rank 0 the output for dark and bright images in one batch is not that of the exercise."
    )


def test_gated_without_the_gradient(world):
    answer = FORWARD.format("return self.extra(hidden) if x.mean() > 0.5 else hidden + 0 * self.extra(hidden).detach()")
    assert says(checks.ddp_in_practice.forward, world, answer) == (
        "Not yet. With a dark batch on rank 0 and bright ones elsewhere, on rank 0 a parameter had no part in the loss."
    )


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("return hidden + (self.extra(hidden.detach()) - self.extra(hidden).detach())", "extra.weight"),
        ("return hidden.detach() + 0 * self.extra(hidden)", "body.weight"),
    ],
)
def test_gated_with_other_gradients_for_dark_batches(world, answer, wrong):
    answer = FORWARD.format(f"if x.mean() > 0.5:\n            return self.extra(hidden)\n        {answer}")
    assert says(checks.ddp_in_practice.forward, world, answer) == (
        "Not yet. With a dark batch on rank 0 and bright ones elsewhere, on rank 0 the gradient of "
        f"{wrong} is not the mean of what the ranks' batches give."
    )


# ---------------------------------------------------------------- accuracy


def test_accuracy_solution(world):
    assert says(checks.ddp_in_practice.accuracy, world, solution("accuracy")) == (
        "Solved. Every rank returned the exact share, and evaluated no more than its own images."
    )


def test_accuracy_skeleton(world):
    assert says(checks.ddp_in_practice.accuracy, world, skeleton("accuracy")) == (
        "Not yet. With an uneven number of images, 17, rank 0 returned 0.4000, expected 0.4706."
    )


ACCURACY = """
    def accuracy(model, data):
        images, labels = data[{mine}]
        right = (model(images).argmax(dim=1) == labels).{reduce}
        dist.all_reduce(right)
        return right{result}
"""
UNEVEN = "Not yet. With an uneven number of images, 17, rank 0 returned "


@pytest.mark.parametrize(
    ("mine", "reduce", "result", "message"),
    [
        ("range(rank, len(data), n)", "sum()", " / len(data)", "Solved. "),
        ("range(rank, len(data), n)", "double().mean()", ".item() / n", UNEVEN + "0.4750, expected 0.4706."),
        (
            "list(DistributedSampler(data, shuffle=False))",
            "sum()",
            ".item() / len(data)",
            UNEVEN + "0.6471, expected 0.4706.",
        ),
        (
            "list(DistributedSampler(data, shuffle=False, drop_last=True))",
            "sum()",
            ".item() / len(data)",
            "Not yet. With an uneven number of images, 17, the ranks evaluated only 16 of them.",
        ),
        (
            "list(range(len(data)))",
            "double().mean()",
            ".item() / n",
            "Not yet. With an even number of images, 16, rank 0 evaluated 16 of them, and its share is 4.",
        ),
        (
            "range(rank, len(data), n)",
            "sum()",
            ".tolist(), len(data)",
            "Not yet. Rank 0 returned (8, 16), expected a number.",
        ),
    ],
)
def test_accuracy(world, mine, reduce, result, message):
    answer = ACCURACY.format(mine=mine, reduce=reduce, result=result)
    assert says(checks.ddp_in_practice.accuracy, world, answer).startswith(message)


# ---------------------------------------------------------------- out_of_step


def test_out_of_step_solution(world):
    assert says(checks.ddp_in_practice.out_of_step, world, solution("out_of_step")) == (
        "Solved. Every rank names the ranks that have drifted, and no weights were sent."
    )


def test_out_of_step_skeleton(world):
    assert says(checks.ddp_in_practice.out_of_step, world, skeleton("out_of_step")) == (
        "Not yet. When one bit has changed on the last rank, rank 0 returned [], expected [3]."
    )


GATHERED = """
    def out_of_step(model):
        mine = {mine}
        all_of_them = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(all_of_them, mine)
        return [other for other in range(n) if not torch.equal(all_of_them[other], all_of_them[{against}])]
"""
VECTOR = "vector(model.parameters()).detach()"


@pytest.mark.parametrize(
    ("mine", "against", "message"),
    [
        (
            f"{VECTOR}.double().sum()",
            0,
            "Not yet. When two weights have swapped places on rank 1, rank 0 returned [], expected [1].",
        ),
        (
            f"{VECTOR}.sum().round()",
            0,
            "Not yet. When one bit has changed on the last rank, rank 0 returned [], expected [3].",
        ),
        (
            VECTOR,
            0,
            "Not yet. Rank 0 handed over 1800 bytes to be sent: those are its weights.",
        ),
        (
            f"torch.tensor([zlib.crc32({VECTOR}.numpy().tobytes())])",
            "rank",
            "Not yet. When one bit has changed on the last rank, rank 3 returned [0, 1, 2], expected [3].",
        ),
    ],
)
def test_out_of_step(world, mine, against, message):
    assert says(checks.ddp_in_practice.out_of_step, world, GATHERED.format(mine=mine, against=against)) == message


OUT_OF_STEP_IN_ANOTHER_WAY = {
    "objects": """
        def out_of_step(model):
            import hashlib
            digest = hashlib.sha256(vector(model.parameters()).detach().numpy().tobytes()).hexdigest()
            digests = [None] * n
            dist.all_gather_object(digests, digest)
            return [other for other in range(n) if digests[other] != digests[0]]
        """,
    "rank 0 sends its checksum, and each says whether it has the same": """
        def out_of_step(model):
            checksum = torch.tensor(zlib.crc32(vector(model.parameters()).detach().numpy().tobytes()))
            of_rank_0 = checksum.clone()
            dist.broadcast(of_rank_0, src=0)
            differs = torch.zeros(n)
            differs[rank] = checksum != of_rank_0
            dist.all_reduce(differs)
            return differs.nonzero().flatten().tolist()
        """,
    "one parameter after another": """
        def out_of_step(model):
            mine = torch.tensor([zlib.adler32(p.detach().numpy().tobytes()) for p in model.parameters()])
            everybody = torch.empty(n * len(mine), dtype=mine.dtype)
            dist.all_gather_into_tensor(everybody, mine)
            rows = everybody.view(n, -1)
            return [other for other in range(n) if not torch.equal(rows[other], rows[0])]
        """,
}


@pytest.mark.parametrize("answer", OUT_OF_STEP_IN_ANOTHER_WAY.values(), ids=OUT_OF_STEP_IN_ANOTHER_WAY)
def test_out_of_step_in_another_way(world, answer):
    assert says(checks.ddp_in_practice.out_of_step, world, answer).startswith("Solved. ")


def test_out_of_step_by_the_hash_of_bytes(world):
    mine = f"torch.tensor([hash({VECTOR}.numpy().tobytes())])"
    assert says(checks.ddp_in_practice.out_of_step, world, GATHERED.format(mine=mine, against=0)) == (
        "Not yet. When no rank has changed, rank 0 returned [1, 2, 3], expected []. "
        "(`hash` of text and bytes is another number in each process that starts by itself.)"
    )


SENT_AROUND = """
    def out_of_step(model):
        mine = vector(model.parameters()).detach()
        others = [torch.empty_like(mine) for _ in range(n)]
        {}
        return []
"""


@pytest.mark.parametrize(
    ("how", "size"),
    [
        ("dist.all_to_all(others, [mine.clone() for _ in range(n)])", 7200),
        ("[dist.send(mine, peer) for peer in range(1, n)] if rank == 0 else dist.recv(others[0], 0)", 5400),
        ("dist.reduce(mine, dst=0)", 1800),
    ],
)
def test_out_of_step_that_sends_the_weights(world, how, size):
    verdict = says(
        checks.ddp_in_practice.out_of_step,
        world,
        SENT_AROUND.format(how).replace("        return [", "        return []  # ["),
    )
    assert verdict == f"Not yet. Rank 0 handed over {size} bytes to be sent: those are its weights."


def test_out_of_step_by_the_first_parameter_only(world):
    mine = "torch.tensor([zlib.crc32(next(model.parameters()).detach().numpy().tobytes())])"
    assert says(checks.ddp_in_practice.out_of_step, world, GATHERED.format(mine=mine, against=0)) == (
        "Not yet. When the last bit of all has changed on the last rank, rank 0 returned [], expected [3]."
    )


def test_out_of_step_on_one_rank_only(broken_world):
    answer = """
        def out_of_step(model):
            if rank == 0:
                dist.all_reduce(torch.ones(1))
            return []
    """
    assert says(checks.ddp_in_practice.out_of_step, broken_world, answer).startswith(
        "Not yet. Deadlock: the group's timeout ended"
    )


# ---------------------------------------------------------------- the lesson's own asserts


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        ("optimizer.load_state_dict(momentum)", "pass"),
        ("torch.manual_seed(SEED + n * epoch + rank)", "pass"),
    ],
)
def test_a_training_that_is_not_continued_rightly(world, tmp_path, whole, broken):
    definitions = cell(NAME, "def save(")
    assert definitions.count(whole) == 1
    world.view.update({"SEED": 0, "path": str(tmp_path / "checkpoint.pt")})
    world.view.execute(definitions.replace(whole, broken))
    world.view.execute(cell(NAME, "whole, optimizer = new_training()"))
    world.view.execute(cell(NAME, "for kept in (True, False)"))
    with pytest.raises(ipp.CompositeError) as raised:
        world.view.execute(cell(NAME, "for kept, (epoch, agreed, off)"))
    assert {kind for kind, *_ in raised.value.elist} == {"AssertionError"}


def test_a_training_that_is_continued_rightly(world, tmp_path):
    world.view.update({"SEED": 0, "path": str(tmp_path / "checkpoint.pt")})
    world.view.execute(cell(NAME, "def save("))
    world.view.execute(cell(NAME, "whole, optimizer = new_training()"))
    world.view.execute(cell(NAME, "for kept in (True, False)"))
    world.view.execute(cell(NAME, "for kept, (epoch, agreed, off)"))


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for check, function in (
            (checks.ddp_in_practice.forward, "forward"),
            (checks.ddp_in_practice.accuracy, "accuracy"),
            (checks.ddp_in_practice.out_of_step, "out_of_step"),
        ):
            assert says(check, world, solution(function)).startswith("Solved. ")
    finally:
        world.stop()
