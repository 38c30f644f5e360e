"""The report prints every claim with its asserts."""

import nbformat
import pytest
from lesson_files import NOTEBOOKS
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.claims import claims, named_asserts, report

SUMMARY = """## Summary

With n ranks:

- A ring sends $2B$ bytes. It never sends more,
  whatever n is.
- `recv` waits."""

# Claims without an assert: advice, what sources say, an idea that a picture explains, and speeds.
UNPROVED = {
    "09_overlap": {"Summary 8", "Summary 9", "Figure 1"},
    "27_several_trainers": {"Summary 6"},
    "38_two_hosts": {"Summary 8"},
    "51_in_your_own_job": {"Summary 10"},
}


def test_claims_are_the_sentences_of_the_summary_and_the_captions():
    cells = [new_markdown_cell("*The figure: two bars. One is longer.*\n\nText."), new_markdown_cell(SUMMARY)]
    assert claims(new_notebook(cells=[*cells, new_markdown_cell("## Exercises\n\nMore.")])) == {
        "Summary 1": "A ring sends $2B$ bytes.",
        "Summary 2": "It never sends more, whatever n is.",
        "Summary 3": "`recv` waits.",
        "Figure 1": "The figure: two bars. One is longer.",
    }


def test_an_assert_names_its_claims_behind_it_or_above():
    source = """%%px
assert a  # Summary 1
# Summary 2, Figure 1
assert b
assert_close(c, d)

assert e
# Summary 3: the longest
print(f)
"""
    pairs, unnamed, lost = named_asserts(source)
    assert pairs == [
        ("Summary 1", "assert a  # Summary 1"),
        ("Summary 2", "assert b"),
        ("Summary 2", "assert_close(c, d)"),
        ("Figure 1", "assert b"),
        ("Figure 1", "assert_close(c, d)"),
    ]
    assert unnamed == ["assert e"]
    assert lost == ["Summary 3"]


def test_the_report_says_what_has_no_assert(tmp_path):
    path = tmp_path / "00_small.ipynb"
    cells = [new_code_cell("assert a  # Summary 1\nassert b\nassert c  # Summary 9"), new_markdown_cell(SUMMARY)]
    nbformat.write(new_notebook(cells=cells), path)
    said = report(path).splitlines()
    assert said[0] == "00_small: 3 claims, 1 with an assert"
    assert said[2:4] == ["Summary 1. A ring sends $2B$ bytes.", "    cell 1: assert a  # Summary 1"]
    assert said.count("    NO ASSERT") == 2
    assert "    cell 1: assert b" in said
    assert said[-1] == "cell 1 names Summary 9, and there is no such sentence or figure"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_claim_has_an_assert_or_is_listed(path):
    """If the edit of a summary moves its sentences, their names move, and a claim without an assert shows it."""
    notebook, proved = nbformat.read(path, as_version=4), set()
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        pairs, _, lost = named_asserts(cell.source)
        assert lost == []
        proved |= {name for name, _ in pairs}
    assert set(claims(notebook)) - proved == UNPROVED.get(path.stem, set())
    assert proved <= set(claims(notebook))
