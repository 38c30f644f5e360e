"""The minutes of the notebooks: counted by their rule, given alike everywhere, and added up rightly in the plans."""

import ast
import re
import symtable

import nbformat
import pytest
from lesson_files import NOTEBOOKS, ROOT
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests import minutes

TEACHING = minutes.TEACHING.read_text()
EVERY = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
PLANS = {plan.name: plan for plan in minutes.plans()}


def about(name):
    """Return what docs/teaching.md says of a notebook."""
    return re.search(rf"^### \[.*\]\(\.\./notebooks/{name}\.ipynb\)\n(.*?)(?=^### |\Z)", TEACHING, re.M | re.S)[1]


def skipped(name):
    """Return the sets of sections that docs/teaching.md leaves out of a notebook, in its notes and in its plans."""
    notes = set()
    text = " ".join(about(name).split())
    for first, second in re.findall(r"\*([^*]+)\* \(\d+ min\)(?: together with \*([^*]+)\* \()?", text):
        notes.add(frozenset({first, second} - {""}))
    notes |= {frozenset(plan.lessons[name]) for plan in PLANS.values() if plan.lessons.get(name)}
    return notes


# ---------------------------------------------------------------- the rule


def test_the_rule(tmp_path):
    cells = [
        new_markdown_cell("# A lesson\n\n" + 96 * "word " + "\n\n## One\n\n" + 199 * "word "),
        new_code_cell("%%px\n" + "\n\n".join(f"line_{number} = 0" for number in range(14))),
        new_code_cell("my_number = ...  # your prediction"),
        new_code_cell("def my_bytes(n):\n    return ...  # for n ranks"),
        new_code_cell('checks.predicted("my_number", 3)'),
        new_code_cell("checks.topic.something(world)"),
        new_code_cell("assert 1 + 1 == 2", metadata={"jupyter": {"source_hidden": True}}),
        new_markdown_cell("## Two\n\n#### Case 1"),
    ]
    path = tmp_path / "00_lesson.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    opening, one, two = minutes.sections(path)
    assert (opening.title, opening.words, opening.minutes) == ("", 98, 0.98)
    assert (one.title, one.words, one.lines, one.predictions, one.answers) == ("One", 200, 20, 2, 1)
    assert one.minutes == 2 + 20 / 15 + 2 + 5
    assert (two.words, two.answers) == (3, 2)  # a diagnosis and a repair


@pytest.mark.parametrize("exact, rounded", [(1, 5), (52.4, 50), (52.6, 55), (70, 70)])
def test_minutes_are_rounded(exact, rounded):
    assert minutes.rounded(exact) == rounded


def test_without_a_section():
    (section,) = [section for section in minutes.sections(NOTEBOOKS[5]) if section.title == "Exercises"]
    whole, lesson = minutes.minutes(NOTEBOOKS[5].stem), minutes.minutes(NOTEBOOKS[5].stem, ("Exercises",))
    assert abs(whole - lesson - section.minutes) <= minutes.ROUNDED_TO
    with pytest.raises(ValueError, match="has no section Exercise"):
        minutes.minutes(NOTEBOOKS[5].stem, ("Exercise",))


# ---------------------------------------------------------------- given alike everywhere


@pytest.mark.parametrize("path", [ROOT / "README.md", minutes.TEACHING, *NOTEBOOKS], ids=lambda path: path.stem)
def test_what_is_given_is_what_the_command_writes(path):
    text = path.read_text()
    assert minutes.written(path, text, minutes.seconds_in(TEACHING)) == text, "run `make minutes`"


def test_a_stale_figure_is_written_anew():
    seconds = minutes.seconds_in(TEACHING)
    for path in [ROOT / "README.md", minutes.TEACHING, NOTEBOOKS[0]]:
        text = path.read_text()
        stale = re.sub(r"(\| |\*\*Time\*\*: )\d+( \||(?= minutes))", r"\g<1>51\2", text, count=1)
        assert stale != text
        assert minutes.written(path, stale, seconds) == text


def test_a_section_that_can_be_skipped():
    def text(title, number):
        tables = ["minutes", *(f"plan: {name}" for name in PLANS)]
        markers = "".join(f"<!-- {table} -->\n<!-- end of {table} -->\n" for table in tables)
        return f"{markers}### [06](../notebooks/06_ring_all_reduce.ipynb)\n\nSkip: *{title}*\n({number} min)."

    written = minutes.in_teaching(text("Where it\ncame from", 99), {})
    assert written.endswith("Skip: *Where it\ncame from*\n(1 min).")
    with pytest.raises(ValueError, match="has no section Where it goes"):
        minutes.in_teaching(text("Where it goes", 1), {})


@EVERY
def test_every_notebook_gives_its_minutes(path):
    given = str(minutes.minutes(path.stem))
    readme = (ROOT / "README.md").read_text()
    assert f"**Time**: {given} minutes for you" in nbformat.read(path, as_version=4).cells[0].source
    assert re.search(rf"^\| .*\[.+\]\(notebooks/{path.name}\) \| .* \| {given} \|", readme, re.M)
    assert re.search(rf"^\| \[.+\]\(\.\./notebooks/{path.name}\) \| \d+ \| \d+ \| {given} \|", TEACHING, re.M)


def test_the_seconds_of_the_machine_come_from_the_benchmark():
    printed = "what                   measured\n00_meet_the_ranks.ipynb   21 s\n04_collectives.ipynb      9 s\n"
    seconds = minutes.seconds_in(printed)
    assert seconds == {"00_meet_the_ranks": "21", "04_collectives": "9"}
    text = minutes.in_teaching(TEACHING, seconds)
    assert minutes.seconds_in(text) == seconds  # they stay when they are written again
    assert minutes.in_teaching(text, minutes.seconds_in(text)) == text


# ---------------------------------------------------------------- the plans


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_adds_up(plan):
    *rows, (end, total, last) = minutes.schedule(plan)
    assert last == "in all" and total == sum(spent for _, spent, _ in rows)
    if plan.column != "time":
        assert [row[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)] and end == rows[-1][0]
        assert all(spent <= 90 for _, spent, _ in rows)  # a session
        return
    clock = [60 * int(start.split(":")[0]) + int(start.split(":")[1]) for start in [row[0] for row in rows] + [end]]
    assert [after - before for before, after in zip(clock, clock[1:], strict=False)] == [row[1] for row in rows]
    since = 0  # the last break
    for _, spent, what in rows:
        since = 0 if what in ("break", "lunch") else since + spent
        assert since <= 120, what


# ---------------------------------------------------------------- the notes


@EVERY
def test_every_notebook_has_its_notes(path):
    notes = about(path.stem)
    assert re.findall(r"^(\d)\. \*[^*]+\?\* \S", notes, re.M) == ["1", "2", "3"]
    for part in ("Skip:", "Pairs:", "Goes wrong:"):
        assert len(re.findall(rf"\b{part}", " ".join(notes.split()))) == 1, part


def texts(path):
    """Return what a notebook says and prints: its Markdown, and the text of its stored outputs."""
    cells = nbformat.read(path, as_version=4).cells
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    printed = [output.get("text", "") for output in outputs]
    return "\n".join([*prose, *printed, *[output.get("data", {}).get("text/plain", "") for output in outputs]])


def numbers(text):
    return re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?", text)


def value(number):
    return float(number.replace(",", ""))


def decimals(number):
    return 20 if "e" in number else len(number.partition(".")[2])


@EVERY
def test_a_number_that_is_marked_stored_is_in_the_notebook(path):
    """A notebook that is stored again has other numbers; then its notes have to say the new ones.

    A number that is marked "stored figure" is in no text, so nothing compares it.
    """
    notes = re.sub(r"\]\([^)]*\)", "]", " ".join(about(path.stem).split()))
    in_notebook = [value(number) for number in numbers(texts(path))]
    for sentence in re.split(r"(?<=[.?!*]) (?=[A-Z*`])", notes):
        if re.search(r"\bstored\b(?! figure)", sentence, re.I):
            for number in numbers(sentence):
                assert any(round(other, decimals(number)) == value(number) for other in in_notebook), (number, sentence)


def names_in(source):
    """Return the global names that a cell binds, and those that it reads, also on the ranks, by their names."""
    body = re.sub(r"^%%(px|writefile).*\n", "", source)
    body = re.sub(r"^(\s*)%px (?!%)", r"\1", body, flags=re.M)
    body = re.sub(r"^(\s*)[%!].*", r"\1pass", body, flags=re.M)
    bound, reads = set(), set()
    scopes = [symtable.symtable(body, "cell", "exec")]
    for scope in scopes:  # it grows meanwhile
        scopes += scope.get_children()
        for symbol in scope.get_symbols():
            if symbol.is_global() or scope is scopes[0]:
                if symbol.is_assigned() or symbol.is_imported():
                    bound.add(symbol.get_name())
                if symbol.is_referenced():
                    reads.add(symbol.get_name())
    for node in ast.walk(ast.parse(body)):
        by_name = []
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Reference", ".pull")):
            by_name = node.args
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".view"):
            by_name = [node.slice]
        reads |= {value.value for part in by_name for value in ast.walk(part) if isinstance(value, ast.Constant)}
    return bound, reads


@EVERY
def test_nothing_needs_what_is_skipped(path):
    """A name that only skipped cells bind is read nowhere after them. (Files and groups are not looked at.)"""
    cells, title = [], ""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            title = (re.findall(r"^## (.+)", cell.source, re.M) or [title])[-1]
        else:
            cells.append((title, *names_in(cell.source)))
    for left_out in skipped(path.stem):
        missing, known = set(), set()
        for title, bound, reads in cells:
            if title in left_out:
                missing |= bound - known
            else:
                known |= bound
                missing -= bound
                assert not reads & missing, (sorted(left_out), title)
