"""Lessons whose cells a test runs on two ranks, whole or broken: the assert that fails is the one that was meant to."""

import re
from pathlib import Path

import ipyparallel as ipp
import nbformat
import pytest

from helpers import World

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


class Lesson:
    """Two ranks that run the cells of a notebook."""

    def __init__(self, name):
        cells = nbformat.read(NOTEBOOKS / name, as_version=4).cells
        self.cells = [cell.source for cell in cells if cell.cell_type == "code"]
        self.world = World(2)
        self.world.view["SEED"] = 0

    def cell(self, contains, *change):
        """Return a `%%px` cell, without its first line; of a change, a text and what replaces it, it is there once."""
        (source,) = [source for source in self.cells if contains in source]
        magic, _, source = source.partition("\n")
        assert magic == "%%px"
        if change:
            assert source.count(change[0]) == 1, change[0]
            source = source.replace(*change)
        return source

    def run(self, *contained):
        for contains in contained:
            self.world.view.execute(self.cell(contains))

    def failed(self, source):
        """Run a cell that fails, and return the assert that failed on each rank that raised, without its comment."""
        with pytest.raises(ipp.CompositeError) as raised:
            self.world.view.execute(source)
        lines = {}
        for kind, _, traceback, engine in raised.value.elist:
            assert kind == "AssertionError"
            arrows = re.findall(r"-+> *\d+ +(.*)", re.sub(r"\x1b\[[\d;]*m", "", traceback))
            lines[engine["engine_id"]] = [line for line in arrows if "assert" in line][0].partition("  # ")[0]
        return lines


def lesson(name, *contained):
    @pytest.fixture(scope="module")
    def ranks():
        lesson = Lesson(name)
        lesson.run(*contained)
        yield lesson
        lesson.world.stop()

    return ranks
