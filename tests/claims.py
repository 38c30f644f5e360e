"""Print each claim of a notebook with the asserts that prove it, so that a person sees claims without asserts.

`make claims NOTEBOOKS=notebooks/06*` does this. The claims are the sentences of the Summary and the captions of the
figures, numbered from 1. A comment names the claims that an assert proves: `# Summary 2, Figure 1`, at the end of its
line, or on a separate line above one or more asserts. The last lines are the table of tests/code_in_view.py.
"""

import ast
import re
import sys
import textwrap
from pathlib import Path

import nbformat

from tests import code_in_view
from tests.mutation.cells import asserts, parse

CAPTION = re.compile(r"(?ms)^\*(?:The )?[Ff]igures?\b.*?\*$")
NAMES = re.compile(r"#.*?\b((?:Summary|Figure) \d+(?:, (?:Summary|Figure) \d+)*)")


def sentences(text: str) -> list[str]:
    """Return the sentences of a Markdown text; paragraphs that end with a colon are left out."""
    paragraphs = re.split(r"\n\s*\n|^[-*] ", text, flags=re.M)
    return [
        " ".join(sentence.split())
        for paragraph in paragraphs
        if not paragraph.rstrip().endswith(":")
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`*$\d])", paragraph.strip())
        if sentence
    ]


def claims(notebook) -> dict[str, str]:
    """Return name -> claim of a notebook, with the names `Summary 1`, `Summary 2`, ..., `Figure 1`, ..."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    summary = re.search(r"^## Summary\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    named = {f"Summary {number}": claim for number, claim in enumerate(sentences(summary[1] if summary else ""), 1)}
    captions = (" ".join(caption.strip("*").split()) for caption in CAPTION.findall(text))
    return named | {f"Figure {number}": caption for number, caption in enumerate(captions, 1)}


def named_asserts(source: str) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Return which claims the asserts of a cell name.

    The three lists are (name of a claim, assert), asserts that name no claim, and names without an assert.
    """
    lines = source.splitlines()
    places = sorted((node.lineno, node.end_lineno) for node in ast.walk(parse(source)) if asserts(node))
    text = {place: textwrap.dedent("\n".join(lines[place[0] - 1 : place[1]])) for place in places}
    pairs, lost = [], []
    for number, line in enumerate(lines, start=1):
        if found := NAMES.search(line):
            held = asserts_of_comment(places, number)
            names = found[1].split(", ")
            pairs += [(name, text[place], place) for name in names for place in held]
            lost += names if not held else []
    used = {place for _, _, place in pairs}
    return [(name, code) for name, code, _ in pairs], [text[place] for place in places if place not in used], lost


def asserts_of_comment(places, line):
    """Return the places of the asserts that a comment in this line names: on the line, or else directly below it."""
    own = [place for place in places if place[0] <= line <= place[1]]
    if own:
        return own
    below, following = [], line + 1
    for first, last in places:
        if first == following:
            below.append((first, last))
            following = last + 1
    return below


def report(path: Path) -> str:
    """Return the report on a notebook: each claim with its asserts, and the asserts that name no claim."""
    notebook = nbformat.read(path, as_version=4)
    claimed = claims(notebook)
    held, unnamed, lost = {name: [] for name in claimed}, [], []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        pairs, others, names = named_asserts(cell.source)
        for name, text in pairs:
            if name in held:
                held[name].append(f"cell {number}: {text}")
            else:
                lost.append(f"cell {number} names {name}, and there is no such sentence or figure")
        unnamed += [f"cell {number}: {text}" for text in others]
        lost += [f"cell {number} names {name} above a line that is no assert" for name in names]
    with_assert = sum(bool(asserts_of_claim) for asserts_of_claim in held.values())
    lines = [f"{path.stem}: {len(claimed)} claims, {with_assert} with an assert"]
    for name, claim in claimed.items():
        lines += ["", f"{name}. {claim}", *indented(held[name] or ["NO ASSERT"])]
    if unnamed:
        lines += ["", "Asserts that name no claim:", *indented(unnamed)]
    return "\n".join(lines + ([""] + lost if lost else []))


def indented(texts):
    return [textwrap.indent(text, "    ") for text in texts]


if __name__ == "__main__":
    lessons = [Path(name) for name in sys.argv[1:] if Path(name).parent.name != "solutions"]
    for lesson in lessons:
        print(report(lesson), end="\n\n")
    print(code_in_view.report(lessons))
