"""The checks of 25_hybrid_costs: each accepts the solution, and says what is wrong with other answers."""

import textwrap

import pytest
from answers import NOTEBOOKS, cell

from helpers import World, checks

NAME = "25_hybrid_costs.ipynb"


SKELETON = {"two_optimizers": cell(NAME, "def two_optimizers("), "SplitTable": cell(NAME, "class SplitTable(")}
SOLUTION = {
    "two_optimizers": cell(f"solutions/{NAME}", "def two_optimizers("),
    "SplitTable": cell(f"solutions/{NAME}", "class SplitTable("),
}
SETUP = f"import sys; sys.path.append({str(NOTEBOOKS)!r})\n" + cell(f"solutions/{NAME}", "start(")


def says(world, check, answer):
    world.view.execute(textwrap.dedent(answer))
    return repr(getattr(checks.hybrid_costs, check)(world))


def changed(check, *change):
    answer = SOLUTION[check].replace(*change)
    assert answer != SOLUTION[check]
    return answer


# ---------------------------------------------------------------- two_optimizers


BOTH_PARTS = "Solved. After 4 steps both parts are where SparseAdam and Adam bring them in one process."
TWO = """
class Both:
    def step(self, context):
        for optimizer in self.optimizers:
            optimizer.step(context)

def two_optimizers(model, lr):
    both = Both()
    *rest, table = reversed(references(model))
    both.optimizers = [
        new_optimizer([table], torch.optim.SparseAdam, lr),
        new_optimizer(rest, torch.optim.Adam, lr),
    ]
    return both
"""


@pytest.mark.parametrize(
    "answer",
    [
        SOLUTION["two_optimizers"],
        TWO,
        """
        def two_optimizers(model, lr):
            import types
            table, *rest = references(model)
            one = new_optimizer([table], torch.optim.SparseAdam, lr)
            other = new_optimizer(rest, torch.optim.Adam, lr)
            def step(context):
                other.step(context)
                one.step(context)
            return types.SimpleNamespace(step=step)
        """,
    ],
    ids=["solution", "from the list", "a function"],
)
def test_two_optimizers_that_are_right(world, answer):
    assert says(world, "two_optimizers", answer) == BOTH_PARTS


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (SKELETON["two_optimizers"], "In a step the table has moved, but not as with SparseAdam at this rate."),
        (TWO.replace("SparseAdam, lr", "SparseAdam, lr / 2"), "In a step the table has moved, but not as with Sparse"),
        (TWO.replace("optim.Adam", "optim.SGD"), "In a step the weight of the dense layer has moved, but not as "),
        (TWO.replace("in self.optimizers", "in self.optimizers[1:]"), "In a step the table has not moved."),
        (TWO.replace("in self.optimizers", "in self.optimizers[:1]"), "In a step the weight of the dense layer has "),
        (TWO.replace("rest, torch", "rest[1:], torch"), "In a step the bias of the dense layer has not moved."),
        ("def two_optimizers(model, lr):\n    return [references(model)]", "Rank 0 raised AttributeError: 'list' "),
        (TWO.replace("optim.SparseAdam", "optim.Adam"), "Rank 0 raised "),
    ],
    ids=["skeleton", "rate", "SGD", "no table", "no dense layer", "no bias", "a list", "Adam for both"],
)
def test_two_optimizers_that_are_wrong(world, answer, message):
    assert says(world, "two_optimizers", answer).startswith(f"Not yet. {message}")


# ---------------------------------------------------------------- SplitTable


STEP = "The sums are right, but in a step of SGD row 0"
RIGHT = "Solved. With 20 rows on server and 20 rows on master, sums and gradients are those of one table of 40 rows."


def test_split_table_solution(world):
    assert says(world, "SplitTable", SOLUTION["SplitTable"]) == RIGHT


def test_split_table_skeleton(world):
    assert says(world, "SplitTable", SKELETON["SplitTable"]) == (
        "Not yet. By `remote_parameters`, 40 of 40 rows are on server, expected 20 on each of server and master."
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
    answer = SOLUTION["SplitTable"]
    for change in changes:
        assert change[0] in answer
        answer = answer.replace(*change)
    assert says(world, "SplitTable", answer) == RIGHT


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
    assert says(world, "SplitTable", answer).startswith("Solved. With 21 rows on server and 21 rows on master, ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("own_rows, lengths.cumsum(0) - lengths)", "own_rows, offsets)"), "Rank 0 raised "),
        (("right=True) - 1", "right=True).clamp(max=len(offsets) - 1)"), "With bags of [3, 4, 5] words, bag "),
        ((" - number * self.half", " * 0"), "`forward` returns one vector for two different rows. Do two owners "),
        (("True, seed)", "True)"), "`forward` returns one vector for two different rows. Do two owners "),
        (("[self.half, rows - self.half]", "[rows, rows]"), "By `remote_parameters`, 40 of 40 rows are "),
        (("call.wait() for", "call.wait().detach() for"), "The sums are right, and no gradient comes to the owners."),
        (("for part in self.parts for", "for part in self.parts[:1] for"), "By `remote_parameters`, 0 of 40 rows are "),
        (("sum(call.wait() for call in calls)", "calls[0].wait().detach() + calls[1].wait()"), STEP + " has not "),
        (("call.wait() for", "(2 * call.wait() - call.wait().detach()) for"), f"{STEP} has moved wrongly."),
        (("call.wait() for", "call.wait()[:1] for"), "For 40 bags, `forward` returned shape (1, 16), expected "),
    ],
)  # fmt: skip
def test_split_table_that_is_wrong(world, change, message):
    assert says(world, "SplitTable", changed("SplitTable", *change)).startswith(f"Not yet. {message}")


def test_before_rpc_has_been_started():
    world = World(4)
    try:
        for check in (checks.hybrid_costs.two_optimizers, checks.hybrid_costs.SplitTable):
            assert "RPC has not been initialized" in repr(check(world))
    finally:
        world.stop()
