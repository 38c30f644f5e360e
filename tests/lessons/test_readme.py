"""The cell of README.md prints what README.md says."""

import re

from lesson_files import ROOT
from live import Notebook


def test_the_cell_of_the_readme_prints_what_it_says():
    readme = (ROOT / "README.md").read_text("utf-8")
    cell, printed = re.search(r"```python\n(.*?)\n```\n\n```text\n(.*?)\n```", readme, re.S).groups()
    notebook = Notebook()
    try:
        assert "Error" not in notebook.run("from helpers import World\nworld = World(4)")
        shown = notebook.run(cell)
    finally:
        notebook.close()
    assert [line.rstrip() for line in shown.splitlines()] == printed.splitlines()
