"""The reports of grading: a table of all learners, and a page for each learner."""

import csv
import hashlib
import html
import io
import os
import unicodedata
from pathlib import Path

from helpers.grade.keeping import write

HEADER = ["learner", "notebook", "exercise", "solved", "sentence"]
_FORMULAS = "=+-@"  # A spreadsheet evaluates a cell that begins with one of these.
_BYTES_OF_A_NAME = 200
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{learner}</title>
<style>
body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color-scheme: light dark; }}
td, th {{ text-align: left; vertical-align: top; padding: 0.3em 1em 0.3em 0; white-space: pre-wrap; }}
</style>
<h1>{learner}</h1>
<p>{solved} of {number} exercises solved.</p>
<table>
<tr><th>notebook<th>exercise<th>solved<th>what the check says
{rows}
</table>
</html>
"""


def write_table(path: Path, rows: list[list]) -> None:
    """Write all grades as a CSV file: learner, notebook, exercise, solved (yes or no) and the sentence of the check.

    A cell that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(HEADER)
    writer.writerows([_no_formula(plain(value)) for value in row] for row in rows)
    write(path, table.getvalue())


def write_page(folder: Path, learner: str, rows: list[list]) -> Path:
    """Write the page of a learner, from the learner's rows of the table, into a folder, and return its path."""
    cells = ["<tr>" + "".join(f"<td>{html.escape(plain(value))}" for value in row[1:]) for row in rows]
    solved = sum(row[3] == "yes" for row in rows)
    page = _PAGE.format(learner=html.escape(plain(learner)), solved=solved, number=len(rows), rows="\n".join(cells))
    path = folder / f"{_name_of_a_file(learner)}.html"
    write(path, page)
    return path


def plain(text: str) -> str:
    """Return a text without control characters and without characters that change its direction.

    Line breaks stay. Characters that are not valid text, as in a file name of another encoding, become escapes.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(letter for letter in text if letter == "\n" or unicodedata.category(letter)[0] != "C")


def _no_formula(text):
    first = unicodedata.normalize("NFKC", text.lstrip()[:1])
    return f"'{text}" if first and first in _FORMULAS else text


def _name_of_a_file(learner):
    name = os.fsencode(learner)
    if len(name) <= _BYTES_OF_A_NAME:
        return learner
    return os.fsdecode(name[:_BYTES_OF_A_NAME]) + hashlib.sha256(name).hexdigest()[:16]
