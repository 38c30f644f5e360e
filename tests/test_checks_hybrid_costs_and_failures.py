"""The checks of 24_hybrid_costs_and_failures: each accepts the solution, and says what is wrong with other answers."""

import textwrap
from pathlib import Path

import nbformat
import pytest

from helpers import World, checks

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
NAME = "24_hybrid_costs_and_failures.ipynb"


def cell(path, contains):
    """Return the `%%px` cell of a notebook that contains a text, without its first line."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / path, as_version=4).cells if cell.cell_type == "code"]
    (found,) = [source for source in cells if source.startswith("%%px") and contains in source]
    return found.partition("\n")[2]


SKELETON = {"bytes_of": cell(NAME, "def bytes_of("), "split_table": cell(NAME, "class SplitTable(")}
SOLUTION = {
    "bytes_of": cell(f"solutions/{NAME}", "def bytes_of("),
    "split_table": cell(f"solutions/{NAME}", "class SplitTable("),
}
SETUP = cell(f"solutions/{NAME}", "init_rpc(")


def says(world, check, answer):
    world.view.execute(textwrap.dedent(answer))
    return repr(getattr(checks, check)(world))


def changed(check, *change):
    answer = SOLUTION[check].replace(*change)
    assert answer != SOLUTION[check]
    return answer


# ---------------------------------------------------------------- bytes_of


def test_bytes_of_solution(world):
    assert says(world, "bytes_of", SOLUTION["bytes_of"]) == (
        "Solved. The bytes of all 4 batches are right, to the server and to the trainer."
    )


@pytest.mark.parametrize(
    "answer",
    [
        "def bytes_of(w, o):\n    return [w.nbytes + o.nbytes + 64 * len(o), 64 * len(o)]",
        "def bytes_of(w, o):\n    return torch.tensor([8 * len(w) + 72 * len(o), 64 * len(o)])",
    ],
)
def test_bytes_of_that_is_written_otherwise(world, answer):
    assert says(world, "bytes_of", answer).startswith("Solved. ")


FIRST = "Not yet. For 12 words in 3 bags, "


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("8 * len(words), 0", "312 bytes went to the server, and `bytes_of` says 96. The offsets and the gradient "),
        (
            "8 * len(words) + 8 * len(offsets), 64 * len(offsets)",
            "312 bytes went to the server, and `bytes_of` says 120. Backward sends something, too.",
        ),
        (
            "8 * len(words) + 64 * len(offsets), 64 * len(offsets)",
            "312 bytes went to the server, and `bytes_of` says 288. The offsets are missing.",
        ),
        (
            "8 * len(words) + 72 * len(offsets), 64 * len(words)",
            "192 bytes went to the trainer, and `bytes_of` says 768. One vector for each bag travels, not one for ",
        ),
        (
            "8 * len(words) + 8 * len(offsets) + 64 * len(words), 64 * len(words)",
            "312 bytes went to the server, and `bytes_of` says 888. One gradient for each bag travels, not one for ",
        ),
        (
            "8 * len(words) + 72 * len(offsets), 128 * len(offsets)",
            "192 bytes went to the trainer, and `bytes_of` says 384. A vector is 16 numbers of 4 bytes, and ",
        ),
        (
            "4 * len(words) + 68 * len(offsets), 64 * len(offsets)",
            "312 bytes went to the server, and `bytes_of` says 252. A word and an offset are 64-bit numbers.",
        ),
        (
            "8 * len(words) + 136 * len(offsets), 64 * len(offsets)",
            "312 bytes went to the server, and `bytes_of` says 504. The vectors themselves come back.",
        ),
        (
            "64 * len(offsets), 8 * len(words) + 72 * len(offsets)",
            "312 bytes went to the server, and `bytes_of` says 192. Words and offsets go there, too. Or is the pair ",
        ),
        ("312, 192", None),
    ],
)
def test_bytes_of_that_is_wrong(world, returned, message):
    message = FIRST + message if message else "Not yet. For 2 words in 2 bags, 160 bytes went to the server, and "
    assert says(world, "bytes_of", f"def bytes_of(words, offsets):\n    return {returned}").startswith(message)


def test_bytes_of_that_is_no_pair(world):
    target = "and the target is a pair of numbers: bytes to the server, bytes to the trainer."
    answer = "def bytes_of(words, offsets):\n    return 8 * len(words)"
    assert says(world, "bytes_of", answer) == f"Not yet. `bytes_of` returned 96, {target}"
    answer = "def bytes_of(words, offsets):\n    return missing"
    assert says(world, "bytes_of", answer).startswith("Not yet. Rank 0 raised NameError: name 'missing' is not ")


# ---------------------------------------------------------------- SplitTable


STEP = "The sums are right, but in a step of SGD row 0"
RIGHT = "Solved. With 20 rows on server and 20 rows on master, sums and gradients are those of one table of 40 rows."


def test_split_table_solution(world):
    assert says(world, "split_table", SOLUTION["split_table"]) == RIGHT


def test_split_table_skeleton(world):
    assert says(world, "split_table", SKELETON["split_table"]) == (
        "Not yet. 40 of 40 rows are on server, and the target is 20 on each owner."
    )


@pytest.mark.parametrize(
    "changes",
    [
        # Rows take turns, rather than the first half here and the second there.
        [("rows // self.half == number", "rows % 2 == number"), ("rows[here] - number * self.half", "rows[here] // 2")],
        # One call after the other.
        [("part.forward_async(", "part.forward("), ("call.wait() for call", "call for call")],
        # Dense gradients.
        [("(size, 16, True, seed)", "(size, 16, False, seed)")],
    ],
)  # fmt: skip
def test_split_table_that_is_written_otherwise(world, changes):
    answer = SOLUTION["split_table"]
    for change in changes:
        assert change[0] in answer
        answer = answer.replace(*change)
    assert says(world, "split_table", answer) == RIGHT


def test_split_table_with_a_row_of_zeros_for_the_words_of_the_other(world):
    answer = """
        class Padded(nn.EmbeddingBag):
            def __init__(self, rows, seed):
                torch.manual_seed(seed)
                super().__init__(rows + 1, 16, mode="sum", padding_idx=rows)

        class SplitTable(nn.Module):
            def __init__(self, rows, owners):
                super().__init__()
                self.half = rows // 2
                self.parts = [RemoteModule(f"{o}/cpu", Padded, (self.half, seed)) for seed, o in enumerate(owners)]

            def forward(self, rows, offsets):
                first = torch.where(rows < self.half, rows, self.half)
                second = torch.where(rows < self.half, self.half, rows - self.half)
                return self.parts[0].forward(first, offsets) + self.parts[1].forward(second, offsets)

            def remote_parameters(self):
                return self.parts[0].remote_parameters() + self.parts[1].remote_parameters()
    """
    assert says(world, "split_table", answer).startswith("Solved. With 21 rows on server and 21 rows on master, ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("own_rows, lengths.cumsum(0) - lengths)", "own_rows, offsets)"), "Rank 0 raised "),
        (("right=True) - 1", "right=True).clamp(max=len(offsets) - 1)"), "With bags of [3, 4, 5] words, bag "),
        ((" - number * self.half", " * 0"), "`forward` returns one vector for two different rows. Do two owners "),
        (("True, seed)", "True)"), "`forward` returns one vector for two different rows. Do two owners "),
        (("[self.half, rows - self.half]", "[rows, rows]"), "40 of 40 rows are on server, and the target is 20 on "),
        (("call.wait() for", "call.wait().detach() for"), "The sums are right, and no gradient comes to the owners."),
        (("for part in self.parts for", "for part in self.parts[:1] for"), "0 of 40 rows are on master, and the "),
        (("sum(call.wait() for call in calls)", "calls[0].wait().detach() + calls[1].wait()"), STEP + " has not "),
        (("call.wait() for", "(2 * call.wait() - call.wait().detach()) for"), f"{STEP} has moved wrongly."),
        (("call.wait() for", "call.wait()[:1] for"), "For 40 bags, `forward` returned shape (1, 16), and the "),
    ],
)  # fmt: skip
def test_split_table_that_is_wrong(world, change, message):
    assert says(world, "split_table", changed("split_table", *change)).startswith(f"Not yet. {message}")


def test_before_rpc_has_been_started():
    world = World(4)
    try:
        for check in (checks.bytes_of, checks.split_table):
            assert "RPC has not been initialized" in repr(check(world))
    finally:
        world.stop()
