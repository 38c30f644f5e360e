"""What grading tells: one table of all learners, and a page for each."""

import csv
import html
from pathlib import Path

HEADER = ["learner", "notebook", "exercise", "solved", "sentence"]
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
    """Write all grades as a CSV file: learner, notebook, exercise, solved (yes or no) and the sentence of the check."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(rows)


def write_page(path: Path, learner: str, rows: list[list]) -> None:
    """Write the page of one learner, whose rows are those of the table."""
    cells = ["<tr>" + "".join(f"<td>{html.escape(str(value))}" for value in row[1:]) for row in rows]
    solved = sum(row[3] == "yes" for row in rows)
    page = _PAGE.format(learner=html.escape(learner), solved=solved, number=len(rows), rows="\n".join(cells))
    path.write_text(page, encoding="utf-8")
