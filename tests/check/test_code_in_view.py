"""The lines of a lesson's open cells are counted by what they are for."""

import nbformat
import pytest
from lesson_files import NOTEBOOKS
from nbformat.v4 import new_code_cell, new_notebook

from tests.code_in_view import counted, in_view


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("%%px\n# comment\n\nx = 1", {"code": 1}),
        ("assert x\nassert_close(\n    x,\n    y,\n)", {"code": 5, "assert": 5}),
        ('checks.predicted("my_bytes", sent)\nchecks.overlap.my_ring(world)', {"code": 2, "verdict": 2}),
        ('ring = accepted("my_ring", or_else=ring_of_the_lesson)', {"code": 1, "verdict": 1}),
        ("from helpers import World\nfrom torch import nn", {"code": 2, "harness": 1}),
        ("begin = time.perf_counter()\nwork()", {"code": 2, "harness": 1}),
        ('losses = world.view["losses"]\nworld.call(eval, "losses")', {"code": 2, "harness": 2}),
        ('world.call("train", 3)\nworld.view.execute("train()")\nworld.where()', {"code": 3, "call": 2}),
    ],
)
def test_lines_are_counted_by_their_statement(source, expected):
    assert counted(source) == expected


def test_a_compound_statement_has_only_the_lines_of_its_head():
    source = 'for loss in world.view["losses"]:\n    if loss:\n        assert loss > 0\n        print(loss)'
    assert counted(source) == {"code": 4, "harness": 1, "assert": 1}
    assert counted("@decorated\ndef f(\n    x,\n):\n    return monotonic()") == {"code": 4, "harness": 1}


def test_folded_cells_are_not_in_view():
    folded = new_code_cell("assert x", metadata={"jupyter": {"source_hidden": True}})
    assert in_view(new_notebook(cells=[folded, new_code_cell("x = 1")])) == {"code": 1}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_asserts_and_verdicts_are_at_most_a_tenth_of_the_code_in_view(path):
    counts = in_view(nbformat.read(path, as_version=4))
    assert counts["assert"] + counts["verdict"] <= counts["code"] / 10
