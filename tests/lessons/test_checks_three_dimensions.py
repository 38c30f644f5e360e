"""The checks of 35_three_dimensions: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import checks

NOTEBOOK, SOLUTION = "35_three_dimensions.ipynb", "solutions/35_three_dimensions.ipynb"
PARTS = ("init_process_group(", "def place_of(", "for sizes in", "def make_groups(", "SHAPES =", "def my_part(")
PARTS += "class Enter(", "def run_block(", "def receive("
SETUP = "\n".join(["SEED = 0", *(cell(SOLUTION, part) for part in PARTS)])


def skeleton(function):
    return cell(NOTEBOOK, f"def {function}(")


def solution(function):
    return cell(SOLUTION, f"def {function}(")


def broken(function, right, wrong):
    answer = solution(function)
    assert answer.count(right) == 1
    return answer.replace(right, wrong)


# ---------------------------------------------------------------- who is in a group

RIGHT_MEMBERS = {
    "by search": """
        def my_members(rank, layout, axis):
            mine = place_of(rank, layout)
            mine.pop(axis, None)
            return [other for other in range(n) if place_of(other, layout).items() >= mine.items()]
        """,
    "in an array": """
        def my_members(rank, layout, axis):
            axes = [name for name, _ in layout]
            if axis not in axes:
                return [rank]
            grid = torch.arange(n).reshape([size for _, size in layout])
            lines = grid.movedim(axes.index(axis), -1).reshape(-1, size_of(axis, layout))
            return lines[(lines == rank).any(1)].flatten().tolist()
        """,
    "step by step": """
        def my_members(rank, layout, axis):
            found = {rank}
            for other in range(n):
                here, there = place_of(rank, layout), place_of(other, layout)
                if [name for name in here if here[name] != there[name]] == [axis]:
                    found.add(other)
            return tuple(sorted(found))
        """,
}


def test_members_solution(world):
    assert says(checks.three_dimensions.my_members, world, solution("my_members")) == (
        "Solved. Every rank knows its neighbours in 9 layouts."
    )


def test_members_skeleton(world):
    assert says(checks.three_dimensions.my_members, world, skeleton("my_members")) == (
        "Not yet. In the layout data 4, for rank 0 along data, rank 0 returned [0], expected [0, 1, 2, 3]."
    )


@pytest.mark.parametrize("answer", RIGHT_MEMBERS.values(), ids=RIGHT_MEMBERS)
def test_members_in_another_way(world, answer):
    assert says(checks.three_dimensions.my_members, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param("in reversed(layout)", "in layout", "data 2 x pipeline 2, for rank 0 along data", id="order"),
        pytest.param("stride *= size", "stride += size", "for rank 0 along data", id="added strides"),
        pytest.param(
            "first + step * stride for", "first + step for", "returned [0, 1], expected", id="neighbours only"
        ),
        pytest.param(
            "    return [rank]", "    return list(range(n))", "along pipeline, rank 0 returned", id="off is all"
        ),
        pytest.param("    return [rank]", "    return []", "returned [], expected [0]", id="off is empty"),
    ],
)
def test_members_that_are_wrong(world, right, wrong, verdict):
    found = says(checks.three_dimensions.my_members, world, broken("my_members", right, wrong))
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- the step

RIGHT_STEPS = {
    "the lesson's own": "\n".join(cell(NOTEBOOK, f"def {name}(") for name in ("receive", "pipelined", "step"))
    + "\nmy_step = step",
    "weighted losses": solution("my_step")
    .replace("mse_loss(out_BSD, y_BSD).backward()", "(mse_loss(out_BSD, y_BSD) / len(replicas)).backward()")
    .replace(', group("data", layout)) / len(replicas)', ', group("data", layout))'),
    "by autograd's own words": solution("my_step").replace(
        "(out_BSD * receive(out_BSD, stages[stage + 1])).sum().backward()",
        "torch.autograd.backward([out_BSD], [receive(out_BSD, stages[stage + 1])])",
    ),
}


def test_step_solution(world):
    assert says(checks.three_dimensions.my_step, world, solution("my_step")) == (
        "Solved. The gradients are those of one process in 5 layouts, up to pipeline 2 x tensor 2."
    )


def test_step_skeleton(world):
    assert says(checks.three_dimensions.my_step, world, skeleton("my_step")) == (
        "Not yet. In the layout data 4, on rank 0, 48 samples went through a block, expected 12."
    )


@pytest.mark.parametrize("answer", RIGHT_STEPS.values(), ids=RIGHT_STEPS)
def test_step_in_another_way(world, answer):
    assert says(checks.three_dimensions.my_step, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param(
            " / len(replicas)", "", "data 4, on rank 0, the gradient of scale1_D in its block 0 is 4 times", id="sum"
        ),
        pytest.param(
            'total(weight.grad, group("data", layout))', "weight.grad", "data 4, on rank 0, the", id="own mean"
        ),
        pytest.param(
            "batch_BSD.chunk(len(replicas))[replica]", "batch_BSD.chunk(len(replicas))[0]", "data 4", id="first"
        ),
        pytest.param(
            'run_block(out_BSD, weights, group("tensor", layout))',
            "run_block(out_BSD, weights, None)",
            "tensor 4",
            id="f",
        ),
        pytest.param(
            "(out_BSD * receive(out_BSD, stages[stage + 1])).sum()",
            "receive(out_BSD, stages[stage + 1])\n        out_BSD.sum()",
            "In the layout pipeline 4, on rank 0, the gradient",
            id="received in vain",
        ),
        pytest.param('group("data", layout)) /', 'group("tensor", layout)) /', "data 4", id="the other group"),
    ],
)
def test_step_that_is_wrong(world, right, wrong, verdict):
    found = says(checks.three_dimensions.my_step, world, broken("my_step", right, wrong))
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- the norm

RIGHT_NORMS = {
    "group by group": """
        def whole_norm(blocks, layout):
            cut, scales = torch.zeros(2)
            for block in blocks:
                for name, weight in block.items():
                    if name.startswith("scale"):
                        scales += weight.grad.pow(2).sum()
                    else:
                        cut += weight.grad.pow(2).sum()
            squares = total(cut, group("tensor", layout)) + scales
            gathered = [torch.zeros(()) for _ in range(n)]
            dist.all_gather(gathered, squares)
            return sum(gathered[other] for other in members(rank, layout, "pipeline")).sqrt().item()
        """,
    "everything gathered": """
        def whole_norm(blocks, layout):
            parts = [None] * n
            dist.all_gather_object(parts, [{name: weight.grad for name, weight in b.items()} for b in blocks])
            squares = 0
            for other, there in enumerate(parts):
                place = place_of(other, layout)
                if place.get("data", 0) == 0:
                    for block in there:
                        for name, gradient in block.items():
                            if CUT[name] is not None or place.get("tensor", 0) == 0:
                                squares += gradient.norm() ** 2
            return squares ** 0.5
        """,
    "only firsts count": """
        def whole_norm(blocks, layout):
            place = place_of(rank, layout)
            squares = torch.zeros(())
            for block in blocks:
                for name, weight in block.items():
                    if CUT[name] is not None or place.get("tensor", 0) == 0:
                        squares += (weight.grad * weight.grad).sum()
            squares *= place.get("data", 0) == 0
            return total(squares, dist.group.WORLD).sqrt()
        """,
}


def test_norm_solution(world):
    assert says(checks.three_dimensions.whole_norm, world, solution("whole_norm")) == (
        "Solved. Every rank has the norm of the whole gradient, in 6 layouts."
    )


def test_norm_skeleton(world):
    assert says(checks.three_dimensions.whole_norm, world, skeleton("whole_norm")).startswith(
        "Not yet. In the layout pipeline 4 rank 0 returned "
    )


@pytest.mark.parametrize("answer", RIGHT_NORMS.values(), ids=RIGHT_NORMS)
def test_norm_in_another_way(world, answer):
    assert says(checks.three_dimensions.whole_norm, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param(' / size_of("data", layout)', "", "In the layout data 4 rank 0", id="replicas count"),
        pytest.param(" / copies", "", "In the layout tensor 4 rank 0", id="scales count"),
        pytest.param("1 if CUT[name] is not None else ", "", "In the layout tensor 4 rank 0", id="all copies"),
        pytest.param("    dist.all_reduce(squares)\n", "", "In the layout data 4 rank 0", id="own part"),
        pytest.param(".sqrt().item()", ".item()", "In the layout data 4 rank 0", id="squared"),
        pytest.param(".sqrt().item()", ".sqrt() > 0", "data 4 rank 0 returned True", id="a bool"),
    ],
)
def test_norm_that_is_wrong(world, right, wrong, verdict):
    found = says(checks.three_dimensions.whole_norm, world, broken("whole_norm", right, wrong))
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- between stages

RIGHT_CUTS = {
    "other parts": """
        def send_cut(out_BSD, destination, tensor):
            parts = out_BSD.flatten().chunk(tensor.size())
            dist.isend(parts[-1 - tensor.rank()], destination).wait()

        def receive_cut(like_BSD, source, tensor):
            parts = [torch.empty(like_BSD.numel() // tensor.size()) for _ in range(tensor.size())]
            dist.recv(parts[0], source)
            dist.all_gather(parts, parts[0].clone(), group=tensor)
            return torch.cat(parts[::-1]).view_as(like_BSD)
        """,
    "along the features of a batch": """
        def send_cut(out_BSD, destination, tensor):
            dist.send(out_BSD[tensor.rank() :: tensor.size()].contiguous(), destination)

        def receive_cut(like_BSD, source, tensor):
            mine = torch.empty_like(like_BSD[:: tensor.size()].contiguous())
            dist.recv(mine, source)
            parts = [torch.empty_like(mine) for _ in range(tensor.size())]
            dist.all_gather(parts, mine, group=tensor)
            return torch.stack(parts, 1).reshape(like_BSD.shape)
        """,
    "by a sum": """
        def send_cut(out_BSD, destination, tensor):
            size = len(out_BSD) // tensor.size()
            dist.send(out_BSD[tensor.rank() * size :][:size], destination)

        def receive_cut(like_BSD, source, tensor):
            whole_BSD = torch.zeros_like(like_BSD)
            size = len(like_BSD) // tensor.size()
            dist.recv(whole_BSD[tensor.rank() * size :][:size], source)
            dist.all_reduce(whole_BSD, group=tensor)
            return whole_BSD
        """,
}


def test_cut_solution(world):
    assert says(checks.three_dimensions.send_cut, world, solution("send_cut")) == (
        "Solved. Every rank of the next stage has the whole, and each of 2 has sent one part in 2."
    )


def test_cut_skeleton(world):
    assert says(checks.three_dimensions.send_cut, world, skeleton("send_cut")) == (
        "Not yet. Rank 0 sent 384 bytes to the next stage, expected 192: one of 2 parts of 384 bytes."
    )


@pytest.mark.parametrize("answer", RIGHT_CUTS.values(), ids=RIGHT_CUTS)
def test_cut_in_another_way(world, answer):
    assert says(checks.three_dimensions.send_cut, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param(
            "out_BSD.chunk(tensor.size())[tensor.rank()]", "out_BSD.chunk(2)[0]", "Rank 2 has not rec", id="0"
        ),
        pytest.param(
            "    dist.all_gather_into_tensor(whole_BSD, part, group=tensor)\n", "", "Rank 2 has not", id="part"
        ),
        pytest.param("return whole_BSD", "return part", "Rank 2 has not received what rank 0", id="part returned"),
        pytest.param("return whole_BSD", "return None", "Rank 2 has not received what rank 0", id="nothing returned"),
        pytest.param(
            "dist.send(part.contiguous(), destination)",
            "dist.send(part.contiguous(), destination)\n    dist.broadcast(out_BSD, 0)",
            "Rank 0 sent 576 bytes",
            id="to all, too",
        ),
    ],
)
def test_cut_that_is_wrong(world, right, wrong, verdict):
    answer = broken("send_cut", right, wrong)
    if "broadcast" in wrong:
        answer = answer.replace("return whole_BSD", "dist.broadcast(whole_BSD.clone(), 0)\n    return whole_BSD")
    found = says(checks.three_dimensions.send_cut, world, answer)
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- ZeRO

RIGHT_FEWEST = {
    "by parts": """
        def fewest_cuts(parameters, gpus, stage, room):
            for cuts in (number for number in range(1, gpus + 1) if gpus % number == 0):
                data = gpus // cuts
                optimizer = 12 / (data if stage >= 1 else 1)
                gradient = 2 / (data if stage >= 2 else 1)
                weight = 2 / (data if stage >= 3 else 1)
                if parameters * (optimizer + gradient + weight) / cuts <= room:
                    return cuts
        """,
    "smallest of all": """
        def fewest_cuts(parameters, gpus, stage, room):
            shared = [0, 12, 14, 16][stage] * parameters / gpus
            own = (16 - [0, 12, 14, 16][stage]) * parameters
            enough = [cuts for cuts in range(1, gpus + 1) if gpus % cuts == 0 and own / cuts + shared <= room]
            return min(enough, default=None)
        """,
    "downwards": """
        def fewest_cuts(parameters, gpus, stage, room):
            best = None
            for cuts in range(gpus, 0, -1):
                kept = 16 - (0, 12, 14, 16)[stage] * (1 - cuts / gpus)
                if gpus % cuts == 0 and kept * parameters <= room * cuts:
                    best = cuts
            return best
        """,
}


def test_fewest_solution(world):
    assert says(checks.three_dimensions.fewest_cuts, world, solution("fewest_cuts")) == (
        "Solved. Every rank found the fewest cuts for each of 8 trainings."
    )


def test_fewest_skeleton(world):
    assert says(checks.three_dimensions.fewest_cuts, world, skeleton("fewest_cuts")) == (
        "Not yet. For 76 billion parameters, 1024 GPUs with room for 80 GB and ZeRO stage 1 rank 0 returned 16, "
        "expected 4, which leaves 76.9 GB."
    )


@pytest.mark.parametrize("answer", RIGHT_FEWEST.values(), ids=RIGHT_FEWEST)
def test_fewest_in_another_way(world, answer):
    assert says(checks.three_dimensions.fewest_cuts, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param("gpus % cuts == 0 and ", "", "returned ", id="no divisor"),
        pytest.param("(0, 12, 14, 16)", "(0, 12, 12, 16)", "ZeRO stage 2 rank 0 returned 4", id="gradients kept"),
        pytest.param("cut_by_zero / replicas", "cut_by_zero / gpus", "returned ", id="among all"),
        pytest.param("parameters / cuts * (", "parameters * (", "rank 0 returned ", id="never cut"),
        pytest.param("    return None", "    return gpus", "8 GPUs with room for 80 GB and ZeRO stage 3", id="always"),
    ],
)
def test_fewest_that_is_wrong(world, right, wrong, verdict):
    found = says(checks.three_dimensions.fewest_cuts, world, broken("fewest_cuts", right, wrong))
    assert found.startswith("Not yet. ") and verdict in found
