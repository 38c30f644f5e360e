"""The notebooks read alike: parts, cells that fit on the screen, tags, links and stored outputs."""

import ast
import re

import nbformat
import pytest
from lesson_files import NOTEBOOKS, PAUSE, ROOT, SOLUTIONS

EVERY = pytest.mark.parametrize("stored", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
FOLDED = {"solution", "proof"}
TAGS = {"parameters", "nbval-ignore-output", "optional", PAUSE, *FOLDED}


def read(path):
    return nbformat.read(path, as_version=4)


def cells(notebook, kind):
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def tags(cell):
    return set(cell.metadata.get("tags", []))


def section(notebook, title):
    """Return the text of the part of a notebook that has this heading."""
    text = "\n".join(cell.source for cell in cells(notebook, "markdown"))
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return read(path)


def test_there_are_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{number:02d}" for number in range(len(NOTEBOOKS))]
    assert len(NOTEBOOKS) >= 3


@EVERY
def test_a_code_cell_fits_on_the_screen(stored):
    for cell in cells(read(stored), "code"):
        assert sum(bool(line.strip()) for line in cell.source.splitlines()) <= 25, cell.source
        assert max(map(len, cell.source.splitlines())) <= 100, cell.source


def test_opening(notebook):
    first = cells(notebook, "markdown")[0].source
    assert re.match(r"# \S", first)
    opening = "\n".join(cell.source for cell in notebook.cells[:3] if cell.cell_type == "markdown")
    for part in ("**Objectives**", "**Prerequisites**", "**Time**", "**Ranks**"):
        assert part in opening
    objectives = opening.split("**Objectives**")[1].split("**Prerequisites**")[0]
    assert 3 <= len(re.findall(r"^[-*] ", objectives, re.M)) <= 5
    parameters = cells(notebook, "code")[0]
    assert tags(parameters) == {"parameters"}
    assert re.search(r"^WORLD_SIZE = \d+", parameters.source, re.M)


def test_ending(notebook):
    assert cells(notebook, "code")[-1].source.strip() == "world.stop()"
    assert section(notebook, "Summary")


def test_exercises_have_checks_and_solutions(path, notebook):
    exercises = re.findall(r"^### Exercise \d", section(notebook, "Exercises"), re.M)
    assert 1 <= len(exercises) <= 4
    (start,) = [number for number, cell in enumerate(notebook.cells) if re.search(r"^## Exercises$", cell.source, re.M)]
    headings = [number for number, cell in enumerate(notebook.cells) if re.search(r"^## ", cell.source, re.M)]
    end = min((number for number in headings if number > start), default=None)  # an appendix may have tasks as well
    source = "\n".join(cell.source for cell in notebook.cells[start:end] if cell.cell_type == "code")
    checks = re.findall(r"checks\.(\w+\.\w+)\(", source)
    assert len(set(checks)) == len(exercises)
    solution = "\n".join(cell.source for cell in cells(read(path.parent / "solutions" / path.name), "code"))
    for check in checks:
        assert f"verdict = checks.{check}(world)\nassert verdict, verdict" in solution


@EVERY
def test_stored_outputs(stored):
    assert stored.stat().st_size <= 300_000
    notebook = read(stored)
    assert "widgets" not in notebook.metadata
    for number, cell in enumerate(cells(notebook, "code"), start=1):
        assert cell.execution_count == number, "run `make notebooks`"
        assert "execution" not in cell.metadata  # timestamps
        assert tags(cell) <= TAGS
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.text
            assert "image/svg+xml" not in output.get("data", {})


@EVERY
def test_cells_on_the_ranks_print_rather_than_end_in_a_value(stored):
    for cell in cells(read(stored), "code"):
        magic, _, body = cell.source.partition("\n")
        if magic.startswith("%%px"):
            last = ast.parse(body).body[-1]
            assert not isinstance(last, ast.Expr) or isinstance(last.value, ast.Call), cell.source


def test_a_figure_is_described_in_words(notebook):
    for cell, following in zip(notebook.cells, notebook.cells[1:], strict=False):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            assert following.cell_type == "markdown"


@pytest.mark.parametrize("stored", NOTEBOOKS + SOLUTIONS + [ROOT / "README.md"], ids=lambda path: path.name)
def test_links_lead_somewhere(stored):
    text = stored.read_text() if stored.suffix == ".md" else "\n".join(cell.source for cell in read(stored).cells)
    for link in re.findall(r"\]\(([^)#]+)", text):
        if not link.startswith("https://"):
            assert (stored.parent / link).exists(), link
