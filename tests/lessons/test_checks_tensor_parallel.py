"""The checks of 33_tensor_parallel: each accepts right answers of any style, and says what is wrong with others."""

import pytest
from answers import cell, says

from helpers import checks

NAME = "33_tensor_parallel.ipynb"


def skeleton(contains):
    return cell(NAME, contains)


def solution(contains):
    return cell(f"solutions/{NAME}", contains)


SETUP = solution("init_process_group(") + "\nfrom torch import nn\n"


# ---------------------------------------------------------------- my_columns, my_rows

CUT = """
    def my_columns(layer):
        return {columns}, {bias}

    def my_rows(layer):
        return {rows}
"""
RIGHT = {"columns": "layer.weight.chunk(n)[rank]", "bias": "layer.bias.chunk(n)[rank]"}
RIGHT["rows"] = "layer.weight.chunk(n, 1)[rank]"


def test_cut_skeleton(world):
    assert says(checks.tensor_parallel.my_columns, world, skeleton("def my_columns(")) == (
        "Not yet. Rank 0, my_columns, weight: it keeps 48 of 48 numbers, expected 12."
    )


def test_cut_solution(world):
    assert says(checks.tensor_parallel.my_columns, world, solution("def my_columns(")) == (
        "Solved. Each rank keeps 1/4 of both layers, and the shares add up to their output."
    )


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"columns": "layer.weight[rank::n]", "bias": "layer.bias[rank::n]", "rows": "layer.weight[:, rank::n]"},
        {"columns": "layer.weight.detach().tensor_split(n)[rank].clone()"},
        {"rows": "layer.weight.T.chunk(n)[rank].T"},
    ],
)
def test_cut_in_other_styles(world, change):
    assert says(checks.tensor_parallel.my_columns, world, CUT.format(**(RIGHT | change))).startswith("Solved. ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": "layer.weight.T.chunk(n, 1)[rank]"}, "the part has the shape [3, 4], expected [4, 3]."),
        ({"bias": "layer.bias"}, "Rank 0, my_columns, bias: it keeps 16 of 16 numbers, expected 4."),
        ({"rows": "layer.weight"}, "Rank 0, my_rows: it keeps 80 of 80 numbers, expected 20."),
        ({"rows": "layer.weight[:, rank::n]"}, "the rows of the second layer that a rank keeps are to fit its columns"),
        ({"rows": "layer.weight.chunk(n, 1)[0]"}, "the shares of the ranks do not add up to the output"),
        ({"bias": "layer.bias[:0]"}, "Rank 0, my_columns, bias: it keeps 0 of 16 numbers, expected 4."),
    ],
)
def test_cut_wrong(world, change, words):
    said = says(checks.tensor_parallel.my_columns, world, CUT.format(**(RIGHT | change)))
    assert said.startswith("Not yet. ")
    assert words in said


# ---------------------------------------------------------------- my_mlp

MLP = """
    class MyF(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.view_as(x)

        @staticmethod
        def backward(context, gradient):
            total = gradient.clone()
            dist.all_reduce(total)
            return total

    class MyG(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            total = x.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(context, gradient):
            return gradient

    def my_mlp(x, up, down):
        return MyG.apply(F.linear(F.gelu(F.linear(MyF.apply(x), up)), down))
"""
BY_A_HOOK = """
    def my_mlp(x, up, down):
        x = x.view_as(x)
        x.register_hook(summed)
        share = F.linear(F.gelu(F.linear(x, up)), down)
        return share + (summed(share.detach()) - share.detach())

    def summed(x):
        total = x.clone()
        dist.all_reduce(total)
        return total
"""


ALL_REDUCED = """
    def all_reduced(x):
        total = x.detach().clone()
        dist.all_reduce(total)
        return total
"""


def test_mlp_skeleton(world):
    assert says(checks.tensor_parallel.MyF, world, skeleton("class MyF(")) == (
        "Not yet. Rank 0 returned only its own share of the output. What leaves on the ranks is to be added up."
    )


def test_mlp_solution(world):
    assert says(checks.tensor_parallel.MyF, world, solution("class MyF(")) == (
        "Solved. The output and the gradients of x and of both weights are those of one process."
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total = x.clone()", "total = x.contiguous()"),
        ("return x.view_as(x)", "return x.clone()"),
        (
            "total = gradient.clone()\n            dist.all_reduce(total)\n            return total",
            "parts = [torch.empty_like(gradient) for _ in range(n)]\n            dist.all_gather(parts, gradient)\n"
            "            return sum(parts)",
        ),
    ],
)
def test_mlp_in_other_styles(world, old, new):
    assert old in MLP
    assert says(checks.tensor_parallel.MyF, world, MLP.replace(old, new)).startswith("Solved. ")


def test_mlp_by_a_hook(world):
    assert says(checks.tensor_parallel.MyF, world, BY_A_HOOK).startswith("Solved. ")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "return gradient\n",
            "total = gradient.clone()\n            dist.all_reduce(total)\n            return total\n",
            "Rank 0 got 4 times the gradient of down. All ranks have one and the same loss",
        ),
        ("MyF.apply(x)", "x", "Rank 0 has of the gradient of x only what comes through its own columns"),
        ("MyG.apply(", "(", "returned only its own share of the output"),
        ("return gradient\n", "return gradient / n\n", "Rank 0 got 0.25 times the gradient of down."),
        ("MyG.apply(", "all_reduced(", "Rank 0 got no gradient of down."),
        ("return MyG", "MyG", "Rank 0 returned None, expected a tensor"),
    ],
)
def test_mlp_wrong(world, old, new, words):
    assert old in MLP
    said = says(checks.tensor_parallel.MyF, world, MLP.replace(old, new) + ALL_REDUCED)
    assert said.startswith("Not yet. ")
    assert words in said


# ---------------------------------------------------------------- cut_qkv

QKV = """
    def cut_qkv(layer):
        return {weight}, {bias}
"""
CAT = "torch.cat([part.chunk(n)[rank] for part in layer.{}.chunk(3)])"


def test_qkv_skeleton(world):
    assert says(checks.tensor_parallel.cut_qkv, world, skeleton("def cut_qkv(")) == (
        "Not yet. Rank 0 keeps 12 rows of the queries, 0 of the keys and 0 of the values. Its heads have 4 of each."
    )


def test_qkv_solution(world):
    assert says(checks.tensor_parallel.cut_qkv, world, solution("def cut_qkv(")) == (
        "Solved. Each rank has the queries, the keys and the values of its own heads."
    )


@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        (CAT.format("weight"), CAT.format("bias")),
        (
            "layer.weight.unflatten(0, (3, n, -1))[:, rank].flatten(0, 1)",
            "layer.bias.unflatten(0, (3, n, -1))[:, rank].flatten()",
        ),
        ("layer.weight[rows(layer)].detach()", "layer.bias[rows(layer)].detach()"),
    ],
)
def test_qkv_in_other_styles(world, weight, bias):
    rows = """
    def rows(layer):
        numbers = torch.arange(len(layer.bias))
        each = len(numbers) // 3 // n
        return numbers[numbers // each % n == rank]
    """
    assert says(checks.tensor_parallel.cut_qkv, world, rows + QKV.format(weight=weight, bias=bias)).startswith(
        "Solved. "
    )


@pytest.mark.parametrize(
    ("weight", "bias", "words"),
    [
        ("layer.weight", "layer.bias", "Rank 0 keeps 16 rows of the queries, 16 of the keys and 16 of the values."),
        ("layer.weight[rank::n]", "layer.bias[rank::n]", "Rank 0 keeps row 4, which belongs to the heads of rank 1."),
        (CAT.format("weight"), "layer.bias.chunk(n)[rank]", "The weight is right. Rank 0 keeps the biases [0, 1, 2"),
        (CAT.format("weight"), "layer.bias", "The weight is right. Rank 0 keeps the biases"),
        (CAT.format("weight") + ".flip(0)", CAT.format("bias"), "Rank 0 keeps the right rows in the order [35, 34"),
        ("layer.weight.chunk(n, 1)[0]", "layer.bias", "keeps 16 rows of the queries"),
    ],
)
def test_qkv_wrong(world, weight, bias, words):
    said = says(checks.tensor_parallel.cut_qkv, world, QKV.format(weight=weight, bias=bias))
    assert said.startswith("Not yet. ")
    assert words in said


# ---------------------------------------------------------------- next_words

BY_TWO_MAXIMA = """
    def next_words(logits):
        mine, word = logits.max(-1)
        best = mine.clone()
        dist.all_reduce(best, op=dist.ReduceOp.MAX)
        word = torch.where(mine == best, word + rank * logits.shape[1], -1)
        dist.all_reduce(word, op=dist.ReduceOp.MAX)
        return word
"""
BY_A_SUM = BY_TWO_MAXIMA.replace(", -1)\n", ", 0)\n").replace("(word, op=dist.ReduceOp.MAX)", "(word)")
BY_RANK_0 = """
    def next_words(logits):
        mine, word = logits.max(-1)
        pair = torch.stack([mine, (word + rank * logits.shape[1]).double()])
        pairs = [torch.empty_like(pair) for _ in range(n)] if rank == 0 else None
        dist.gather(pair, pairs)
        result = torch.zeros(len(logits), dtype=torch.long)
        if rank == 0:
            best, words = torch.stack(pairs, dim=1)
            result = words.long()[best.argmax(0), torch.arange(len(logits))]
        dist.broadcast(result, 0)
        return result
"""
GATHERED = """
    def next_words(logits):
        parts = [torch.empty_like(logits) for _ in range(n)]
        dist.all_gather(parts, logits)
        return torch.cat(parts, dim=1).argmax(-1)
"""


def test_words_skeleton(world):
    said = says(checks.tensor_parallel.next_words, world, skeleton("def next_words("))
    assert said.startswith("Not yet. Rank 0 returned word ")
    assert ", the best of all words." in said


@pytest.mark.parametrize("answer", [BY_TWO_MAXIMA, BY_A_SUM, BY_RANK_0, solution("def next_words(")])
def test_words_right(world, answer):
    assert says(checks.tensor_parallel.next_words, world, answer) == (
        "Solved. Every rank knows the best words, and none brought more than three numbers for each token."
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (GATHERED, "The words are right. Rank 0 brought 42 numbers to its collectives for 6 tokens"),
        (BY_TWO_MAXIMA.replace(" + rank * logits.shape[1]", ""), ", the best of all words."),
        (BY_TWO_MAXIMA.replace("(best, op=dist.ReduceOp.MAX)", "(best, op=dist.ReduceOp.MIN)"), "returned word "),
        (BY_TWO_MAXIMA.replace("return word", "return word if rank == 0 else mine"), "Rank 1 returned word -1"),
        (BY_TWO_MAXIMA.replace("return word", "return word[0]"), ", expected a tensor of 6 numbers."),
    ],
)
def test_words_wrong(world, answer, words):
    said = says(checks.tensor_parallel.next_words, world, answer)
    assert said.startswith("Not yet. ")
    assert words in said
