"""Everyday slips in a real notebook: each gets a sentence that says what to do."""

import pytest
from live import Notebook

START = "from helpers import World, checks\nworld = World(3)"
NO_WORLD = (
    "WorldError: There is no world yet, so `%%px` has no ranks to run on. "
    "Run the cell with `world = World(...)` first, then this cell."
)
NOT_FIRST = "WorldError: `%%px` is not in the first line of this cell. Move it up there, and run the cell again."


@pytest.fixture(scope="module")
def notebook():
    notebook = Notebook()
    try:
        assert "Error" not in notebook.run(START)
        yield notebook
    finally:
        notebook.close()


def test_px_before_a_world_says_to_start_one():
    notebook = Notebook()
    try:
        for cell in ["%%px\nprint(1)", "%px print(1)", "%%px --targets 0\nprint(1)"]:
            assert notebook.run(cell) == NO_WORLD
        assert "Error" not in notebook.run(START)
        assert notebook.run("%px print('run')") == "[stdout:0-2] \nrun\n"
    finally:
        notebook.close()


@pytest.mark.parametrize("above", ["# where is rank 0?\n", "\n# where is\n\n    # rank 0?\n", "before = 1\n"])
def test_px_below_other_lines_is_refused_with_a_sentence(notebook, above):
    assert notebook.run(f"{above}%%px\nprint('run')") == NOT_FIRST


def test_px_below_a_comment_is_refused_even_when_the_notebook_could_not_parse_the_cell(notebook):
    assert notebook.run("# a comment\n%%px --targets 0\nprint(") == NOT_FIRST


def test_cells_with_comments_and_empty_lines_run_as_before(notebook):
    assert notebook.run("\n\n%%px\n# a comment\nprint('run')") == "[stdout:0-2] \nrun\n"
    assert notebook.run("# a comment\ntext = '''\n%%px\n'''\nprint(len(text))") == "6\n"
    assert notebook.run("# a comment\n%px print('run')") == "[stdout:0-2] \nrun\n"
