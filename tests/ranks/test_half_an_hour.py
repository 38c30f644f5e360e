"""docs/half_an_hour.md: its cells run in their order, and show what the page says."""

import re

import pytest
from lesson_files import ROOT
from live import still

TWO_HOSTS = "from helpers import World\nworld = World(2, hosts=2)\nprint(world)\nworld.stop()"
PAGE = (ROOT / "docs/half_an_hour.md").read_text("utf-8")
AGAIN = "the cell with `init_process_group` again"  # which the prose has the reader run on new ranks


def cells():
    """Return each cell with the prose above it, and the output that the page shows below it, "" for none."""
    found = []
    parts = re.split(r"```(python|text)\n(.*?)```", PAGE, flags=re.S)
    for prose, kind, text in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
        if kind == "python":
            found.append([prose, text, ""])
        else:
            found[-1][2] = text
    return found


def form(text):
    """Return the words of an output, without what differs from run to run: process ids, seconds and memory."""
    return " ".join(re.sub(r"\d+(?=\s+cpu)|\d+(?= MiB)|\d+\.\d(?= s\b)", "#", text).split())


def test_the_cells_show_what_the_page_says(notebook):
    if "in name only" in notebook.run(TWO_HOSTS):
        pytest.skip("this system does not allow the namespaces that a cable needs")
    (setup,) = [cell for _, cell, _ in cells() if "init_process_group" in cell]
    assert PAGE.count(AGAIN) == 2
    for prose, cell, expected in cells():
        if AGAIN in prose:
            notebook.run(setup)
        others_wait = None
        if "(Interrupt)" in prose:
            others_wait = notebook.sees(still("[state.call for state in world.where()].count('all_reduce') == 3"))
        shown = notebook.run(cell, interrupt_when=others_wait, timeout=100)
        assert form(expected) in form(shown), f"{cell}\n{shown}"
