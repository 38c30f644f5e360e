"""docs/sources.md leads where it says: to notebooks that are there, and to headings that they have."""

import re

import nbformat
import pytest
from lesson_files import ROOT

SOURCES = ROOT / "docs" / "sources.md"
TEXT = SOURCES.read_text()
PLACES = dict(re.findall(r"^\[(.+)\]: (\S+)$", TEXT, re.M))
ROWS = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if re.match(r"\| (?!item \|)", line)]
TABLES = [rows.splitlines() for rows in re.findall(r"^(?:\|.*\n)+", TEXT, re.M)]


def named_sections():
    """Return the headings that the tables name, by the notebook behind whose link they stand."""
    sections = {name: set() for name in PLACES}
    for line in TEXT.splitlines():
        if not line.startswith("| "):
            continue
        name = None
        for link, heading in re.findall(r"\[([^\]]+)\]|\*([^*]+)\*", line.split(" | ")[1]):
            if link:
                name = link
            else:
                sections[name].add(heading)
    return sections


def test_each_table_has_its_columns():
    assert len(TABLES) >= 4  # one for each document, or more
    for head, rule, *rows in TABLES:
        assert (head, rule) == ("| item | where | how |", "|---|---|---|")
        assert rows
    for row in ROWS:
        assert len(row) == 3, row
        assert re.match(r"(shown|corrected|left out)\b", row[2]), row
        assert row[1] == "—" if "[" not in row[1] else re.search(r"\*", row[1]), row


def test_each_link_has_a_place():
    linked = set(re.findall(r"\[(\d\d [^\]]+)\](?!:\s)", TEXT))
    assert linked == set(PLACES)


@pytest.mark.parametrize("name", PLACES, ids=lambda name: PLACES[name].rpartition("/")[2])
def test_links_and_sections_are_there(name):
    path = SOURCES.parent / PLACES[name]
    assert path.stem[:2] == name[:2]
    notebook = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = set(re.findall(r"^#+ (.+)$", text, re.M))
    assert named_sections()[name] <= headings


def test_lessons_have_names_and_no_bare_numbers():
    assert re.findall(r"\blessons? \d+", TEXT) == []  # a number changes when a lesson is added before it
