"""The checks of 34_ring_attention: each accepts right answers of any style, and says what is wrong with others."""

import pytest
from answers import cell, says

from helpers import checks

NAME = "34_ring_attention.ipynb"


def skeleton(function):
    return cell(NAME, f"def {function}(")


def solution(function):
    return cell(f"solutions/{NAME}", f"def {function}(")


SETUP = cell(f"solutions/{NAME}", "init_process_group(")


# ---------------------------------------------------------------- my_update

UPDATE = """
    def my_update(state, scores, values):
        largest, total, output = state
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        correction = (largest - new).exp()
        weights = (scores - new).exp()
        total = total * correction + weights.sum(-1, keepdim=True)
        output = output * correction + weights @ values
        return new, total, output
"""
AS_LOGARITHM = """
    def my_update(state, scores, values):
        largest, total, output = state
        before = largest + total.log()
        now = torch.logaddexp(before, scores.logsumexp(-1, keepdim=True))
        output = output * (before - now).exp() + (scores - now).exp() @ values
        return now, torch.ones_like(total), output
"""
BY_QUERY = """
    def my_update(state, scores, values):
        if scores.dim() > 2:
            heads = [my_update(*head) for head in zip(zip(*state), scores, values)]
            return [torch.stack(part) for part in zip(*heads)]
        rows = []
        for (largest, total, output), row in zip(zip(*state), scores):
            new = max(largest.item(), row.max().item())
            shrunk = torch.exp(largest - new)
            weights = torch.exp(row - new)
            mean = output * shrunk + (weights.unsqueeze(1) * values).sum(0)
            rows.append((torch.full_like(largest, new), total * shrunk + weights.sum(), mean))
        return [torch.stack(part) for part in zip(*rows)]
"""
UPDATED = "Solved. Whatever the order and the size of the scores, the blocks make the attention over all keys."


def test_update_skeleton(world):
    assert says(checks.ring_attention.my_update, world, skeleton("my_update")) == (
        "Not yet. With scores of about 1,000 rank 0 gets nan for a query: exp overflows, or all weights are 0."
    )


@pytest.mark.parametrize("answer", [UPDATE, AS_LOGARITHM, BY_QUERY, solution("my_update")])
def test_update_right(world, answer):
    assert says(checks.ring_attention.my_update, world, answer) == UPDATED


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("total = total * correction", "total = total", "With small scores rank 0 gets ["),
        ("output = output * correction", "output = output", "With small scores rank 0 gets ["),
        ("(largest - new).exp()", "(new - largest).exp()", "With small scores rank 0 gets "),
        (
            "torch.maximum(largest, scores.amax(-1, keepdim=True))",
            "scores.amax(-1, keepdim=True)",
            "With scores of which some are -inf rank 0 gets nan for a query",
        ),
        ("weights @ values", "weights.softmax(-1) @ values", "With small scores rank 0 gets ["),
        (
            "return new, total, output",
            "return new, total",
            ", as in `state`: tensors of shape (3, 1), shape (3, 1), shape",
        ),
        ("return new,", "return largest,", "With small scores rank 0 gets "),
        ("sum(-1, keepdim=True)", "sum(1, keepdim=True)", "tensors of shape (2, 3, 1), shape (2, 3, 1)"),
    ],
)
def test_update_wrong(world, old, new, words):
    assert old in UPDATE
    said = says(checks.ring_attention.my_update, world, UPDATE.replace(old, new))
    assert said.startswith("Not yet. ")
    assert words in said


# ---------------------------------------------------------------- my_chunks

CHUNKS = """
    def my_chunks(rank, n):
        return {}
"""


def test_chunks_skeleton(world):
    assert says(checks.ring_attention.my_chunks, world, skeleton("my_chunks")) == (
        "Not yet. With 2 ranks the chunks of rank 0, [0, 1], meet 3 chunks, expected 5, as for each rank."
    )


@pytest.mark.parametrize(
    "chunks",
    ["rank, 2 * n - 1 - rank", "[2 * n - 1 - rank, rank]", "torch.tensor([n - 1 - rank, n + rank])"],
)
def test_chunks_right(world, chunks):
    assert (
        says(checks.ring_attention.my_chunks, world, CHUNKS.format(chunks))
        == "Solved. The chunks of every rank meet 2n + 1 chunks."
    )


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ("rank, n + rank", "With 2 ranks the chunks of rank 0, [0, 2], meet 4 chunks, expected 5, as for each rank."),
        ("rank, 2 * n - rank", "With 2 ranks the chunks [0, 1, 3, 4] are dealt out on rank 0."),
        ("0, 2 * n - 1", "With 2 ranks the chunks [0, 0, 3, 3] are dealt out on rank 0. Each of 0 to 3"),
        ("rank", "For rank 0 of 2 rank 0 returned 0, expected two chunks."),
        ("[rank]", "For rank 0 of 2 rank 0 returned [0], expected two chunks."),
    ],
)
def test_chunks_wrong(world, chunks, words):
    said = says(checks.ring_attention.my_chunks, world, CHUNKS.format(chunks))
    assert said.startswith("Not yet. ")
    assert words in said


# ---------------------------------------------------------------- merged

MERGED = """
    def merged(first, second):
        logarithm = {logarithm}
        output = {output}
        return output, logarithm
"""
RIGHT = {
    "logarithm": "torch.logaddexp(first[1], second[1])",
    "output": "first[0] * (first[1] - logarithm).exp() + second[0] * (second[1] - logarithm).exp()",
}


def test_merged_skeleton(world):
    said = says(checks.ring_attention.merged, world, skeleton("merged"))
    assert said.startswith("Not yet. With small scores rank 0 returned the output [")


def test_merged_solution(world):
    assert says(checks.ring_attention.merged, world, solution("merged")) == (
        "Solved. Two results make one, however large the logarithms are, and also when one set has nothing to see."
    )


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"output": "torch.lerp(second[0], first[0], torch.sigmoid(first[1] - second[1]))"},
        {"logarithm": "torch.cat([first[1], second[1]], dim=1).logsumexp(1, keepdim=True)"},
        {"output": "sum(o * w for o, w in zip((first[0], second[0]), torch.stack([first[1], second[1]]).softmax(0)))"},
    ],
)
def test_merged_in_other_styles(world, change):
    assert says(checks.ring_attention.merged, world, MERGED.format(**(RIGHT | change))).startswith("Solved. ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"output": "first[0] + second[0]"}, "With small scores rank 0 returned the output"),
        ({"logarithm": "first[1] + second[1]"}, "With small scores rank 0 returned the"),
        ({"logarithm": "(first[1].exp() + second[1].exp()).log()"}, "With logarithms of about 1,000 rank 0 returned"),
        (
            {"output": "(first[0] * first[1] + second[0] * second[1]) / (first[1] + second[1])"},
            "With small scores rank 0 returned the output",
        ),
        ({"logarithm": "torch.maximum(first[1], second[1])"}, "With small scores rank 0 returned the"),
        (
            {"output": "None"},
            "Rank 0 returned None, shape (3, 1), expected output and logarithm: tensors of shape (3, 2), shape (3, 1)",
        ),
    ],
)
def test_merged_wrong(world, change, words):
    said = says(checks.ring_attention.merged, world, MERGED.format(**(RIGHT | change)))
    assert said.startswith("Not yet. ")
    assert words in said


# ---------------------------------------------------------------- windowed

WINDOW = """
    def windowed(q, k, v):
        c = q.shape[1]
        before = torch.zeros(2, *k.shape, dtype=k.dtype)
        work = dist.irecv(before, left)
        dist.send(torch.stack([k, v]), right)
        work.wait()
        keys, values = torch.cat([before, torch.stack([k, v])], dim=2)
        behind = c + torch.arange(c).unsqueeze(1) - torch.arange(2 * c)
        seen = (behind >= 0) & (behind < c)
        if rank == 0:
            seen[:, :c] = False
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
"""
SHORTER = """
    def windowed(q, k, v):
        c = q.shape[1]
        before = torch.zeros(2, k.shape[0], c - 1, k.shape[2], dtype=k.dtype)
        if rank % 2 == 0 and rank < n - 1:
            dist.send(torch.stack([k, v])[:, :, 1:].contiguous(), right)
        if rank > 0:
            dist.recv(before, left)
        if rank % 2 == 1 and rank < n - 1:
            dist.send(torch.stack([k, v])[:, :, 1:].contiguous(), right)
        keys = torch.cat([before[0], k], dim=1)
        values = torch.cat([before[1], v], dim=1)
        rows = []
        for i in range(c):
            seen = slice(max(i, c - 1) if rank == 0 else i, i + c)
            weights = (q[:, i:i + 1] @ keys[:, seen].mT / q.shape[-1] ** 0.5).softmax(-1)
            rows.append(weights @ values[:, seen])
        return torch.cat(rows, dim=1)
"""
GATHERED = """
    def windowed(q, k, v):
        c = q.shape[1]
        both = torch.stack([k, v])
        parts = [torch.empty_like(both) for _ in range(n)]
        dist.all_gather(parts, both)
        keys, values = torch.cat(parts, dim=2)
        behind = rank * c + torch.arange(c).unsqueeze(1) - torch.arange(n * c)
        seen = (behind >= 0) & (behind < c)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
"""

AND_ONE_MORE = """\
        work = dist.irecv(torch.zeros_like(before), left)
        dist.send(before, right)
        work.wait()
"""


def test_window_skeleton(world):
    assert says(checks.ring_attention.windowed, world, skeleton("windowed")) == (
        "Not yet. Rank 1 is wrong for its position 0, number 6 of the sequence: "
        "it sees itself and up to 5 positions before it."
    )


@pytest.mark.parametrize("answer", [WINDOW, SHORTER, solution("windowed")])
def test_window_right(world, answer):
    assert says(checks.ring_attention.windowed, world, answer) == (
        "Solved. Each position has its window, and no rank sent more than 768 bytes."
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (WINDOW.replace("(behind < c)", "(behind <= c)"), "Rank 1 is wrong for its position 0, number 6"),
        (WINDOW.replace("seen[:, :c] = False", "pass"), "Rank 0 is wrong for its position 0"),
        (WINDOW.replace("(behind >= 0) & ", ""), "Rank 0 is wrong for its position 0"),
        (GATHERED, "The output is right. Rank 0 called 1 all_gather; one neighbour's are enough."),
        (
            WINDOW.replace("        keys, values", AND_ONE_MORE + "        keys, values"),
            "The output is right. Rank 0 sent 1536 bytes, expected at most 768.",
        ),
        (WINDOW.replace("return F.scaled", "F.scaled"), "Rank 0 returned None, expected a tensor of shape (2, 6, 4)"),
    ],
)
def test_window_wrong(world, answer, words):
    said = says(checks.ring_attention.windowed, world, answer)
    assert said.startswith("Not yet. ")
    assert words in said
