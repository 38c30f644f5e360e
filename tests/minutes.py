"""Estimate by a rule how many minutes each notebook takes a reader, and write these figures into the texts.

`python -m tests.minutes` prints a table, `python -m tests.minutes 05` the minutes of each section of one notebook.
`python -m tests.minutes --write` writes the figures wherever the course states them: in `README.md`, in the opening
of each notebook, and in `docs/teaching.md`, where it also writes the tables of `docs/plans.toml`. This module does not
measure the machine's seconds: `--machine FILE` reads them from the output of `python -m benchmarks notebooks`.
"""

import argparse
import datetime
import json
import re
from dataclasses import dataclass
from pathlib import Path

from helpers import course
from helpers.table import table

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = course.NOTEBOOKS
TEACHING = ROOT / "docs/teaching.md"
PLANS = ROOT / "docs/plans.toml"

# The rule. Readers read prose about code slowly, and look at the outputs.
WORDS_PER_MINUTE = 100
LINES_PER_MINUTE = 15
MINUTES_PER_PREDICTION = 1
MINUTES_PER_ANSWER = 5
ANSWERS_PER_CASE = 2  # a diagnosis and a repair
ROUNDED_TO = 5

_PREDICTION = re.compile(r"^my_\w+ = .*(?:\.\.\.|None)|^def my_\w+\(.*\n    return \.\.\.", re.M)
_LINK = r"\[[^\]]+\]\(\.\./notebooks/(\w+)\.ipynb\)"


@dataclass
class Section:
    """The counts of one section of a notebook, without folded cells: what there is to read and to do."""

    title: str
    words: int = 0
    lines: int = 0
    predictions: int = 0
    answers: int = 0

    @property
    def minutes(self) -> float:
        """The minutes by the rule, not rounded."""
        reading = self.words / WORDS_PER_MINUTE + self.lines / LINES_PER_MINUTE
        return reading + self.predictions * MINUTES_PER_PREDICTION + self.answers * MINUTES_PER_ANSWER


@dataclass(frozen=True)
class Plan:
    """An entry of `docs/plans.toml`, which explains the fields."""

    name: str
    column: str
    rows: list[dict]
    begin: str = ""
    after: str = ""
    told: tuple[str, ...] = ()

    @property
    def lessons(self) -> dict[str, list[str]]:
        """The lessons in their order, each with the sections that the plan leaves out."""
        return {name: without for row in self.rows for name, without in row.get("lessons", {}).items()}


def sections(path: Path) -> list[Section]:
    """Return the sections of a notebook; the first section, above the first heading, has no title."""
    parts = [Section("")]
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            section = parts[-1]
            if cell["metadata"].get("jupyter", {}).get("source_hidden"):
                continue
            section.lines += sum(bool(line.strip()) for line in source.splitlines())
            section.predictions += bool(_PREDICTION.search(source))
            section.answers += len(re.findall(r"^checks\.\w+\.\w+\(", source, re.M))
            continue
        for line in source.splitlines():
            if line.startswith("## "):
                parts.append(Section(line.removeprefix("## ")))
            parts[-1].words += len(re.findall(r"\w[\w'’.-]*", line))
            parts[-1].answers += ANSWERS_PER_CASE * line.startswith("#### Case ")
    return parts


def rounded(minutes: float) -> int:
    """Round minutes to the unit of the plans, at least one unit."""
    return ROUNDED_TO * max(1, round(minutes / ROUNDED_TO))


def minutes(notebook: str, without: tuple[str, ...] = ()) -> int:
    """Return the minutes of a notebook, given by its name, without these sections and without an appendix."""
    all_sections = sections(NOTEBOOKS / f"{notebook}.ipynb")
    if missing := set(without) - {section.title for section in all_sections}:
        raise ValueError(f"{notebook} has no section {', '.join(sorted(missing))}")
    left_out = [section for section in all_sections if section.title in without or section.title.startswith("Appendix")]
    return rounded(sum(section.minutes for section in all_sections if section not in left_out))


# ---------------------------------------------------------------- the texts that state these figures


def in_readme(text: str) -> str:
    """Write the short course and the table of the course into README.md."""
    return _between(_between(text, "short course", _short_course()), "course", _course())


def _short_course():
    rows = [row for row in course.lessons().values() if row.in_short_course]
    until_agent = rows[: 1 + [row.name for row in rows].index("22_reinforcement_learning")]
    links = [f"[{row.numbered_title}](notebooks/{row.name}.ipynb)" for row in rows]
    return (
        f"{len(rows)} lessons, about {_hours(rows)} hours. After the first {len(until_agent)} (about "
        f"{_hours(until_agent)} hours), you have written a ring all-reduce, a gradient synchronisation, and an agent "
        "that learns from observers on other ranks. A lesson that uses a lesson outside the short course says so. "
        "In order: " + " → ".join(links) + "\n"
    )


def _hours(rows):
    return round(sum(minutes(row.name) for row in rows) / 60)


def _course():
    header = ["notebook", "what you will be able to do", "minutes", "ranks"]
    lines = [_row_of(header), _row_of(["---"] * len(header))]
    for title, rows in course.parts().items():
        for row in rows:
            part = f"**{title}**<br>" * (row is rows[0])
            star = " ★" * row.in_short_course
            link = f"{part}[{row.numbered_title}{star}](notebooks/{row.name}.ipynb)"
            ranks = f"{row.ranks} ({_span([row.ranks, *row.others])})"
            lines.append(_row_of([link, row.promise, minutes(row.name), ranks]))
    return "\n".join(lines) + "\n"


def _span(sizes):
    """Return world sizes in words: "2 to 8", or a list of all sizes if some in between do not work."""
    first, *_, last = sorted(sizes)
    return f"{first} to {last}" if len(sizes) == last - first + 1 else ", ".join(map(str, sorted(sizes)))


def _between(text, name, new):
    """Put a text between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return before + begin + new + end + rest.split(end)[1]


def in_notebook(text: str, name: str) -> str:
    """Write the minutes into the opening of a notebook."""
    return re.sub(r"(?<=\*\*Time\*\*: )\d+(?= minutes for you)", str(minutes(name)), text)


def in_teaching(text: str, seconds: dict[str, str]) -> str:
    """Write the table of all notebooks, the sections that can be skipped, and the plans.

    `seconds` has the machine's seconds by notebook.
    """
    text = _between(text, "minutes", _of_all(seconds))
    # The text below the heading of each notebook names the sections that can be skipped; `split` also returns the
    # heading and its notebook.
    opening, *rest = re.split(rf"(^#+ {_LINK}$)", text, flags=re.M)
    for heading, notebook, below in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        opening += heading + _skipped(below, notebook)
    for plan in plans():
        opening = _between(opening, f"plan: {plan.name}", _table_of(plan))
    return opening


def seconds_in(text: str) -> dict[str, str]:
    """Return the machine's seconds of each notebook, from the output of the benchmark or from the document."""
    return dict(re.findall(r"^(?:\| \[.*?/)?(\d\d_\w+)\.ipynb\b.*? (\d+) s\b", text, re.M))


def _of_all(seconds):
    header = ["notebook", "lesson", "exercises", "in all", *(["machine"] if seconds else [])]
    lines = [_row_of(header), _row_of(["---"] * len(header))]
    for name, row in course.lessons().items():
        lesson, total = minutes(name, ("Exercises",)), minutes(name)
        cells = [f"[{row.numbered_title}](../notebooks/{name}.ipynb)", lesson, total - lesson, total]
        if seconds:
            cells.append(f"{seconds[name]} s" if name in seconds else "")
        lines.append(_row_of(cells))
    return "\n".join(lines) + "\n"


def _row_of(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def _skipped(text, notebook):
    """Write the minutes of each section that can be skipped, which are the minutes that skipping it saves."""
    by_title = {section.title: section for section in sections(NOTEBOOKS / f"{notebook}.ipynb")}

    def updated(match):
        title = " ".join(match[1].split())  # a title may contain a line break
        if title not in by_title:
            raise ValueError(f"{notebook} has no section {title}")
        return f"{match[0].rpartition('(')[0]}({max(1, round(by_title[title].minutes))} min)"

    return re.sub(r"\*([^*]+)\*\s\(\d+ min\)", updated, text)


def plans() -> list[Plan]:
    """Return the plans of docs/plans.toml. A plan without rows gives each lesson of the short course a row."""
    short_course = [{"lessons": {row.name: []}} for row in course.lessons().values() if row.in_short_course]
    return [Plan(**{"rows": short_course, **entry}) for entry in course.read_toml(PLANS)["plan"]]


def schedule(plan: Plan) -> list[tuple[str, int, str]]:
    """Return the rows of a plan: the time or the number, the minutes, and what is done; the last row adds them up."""
    rows = []
    for number, row in enumerate(plan.rows, start=1):
        if "lessons" in row:
            spent = sum(minutes(name, tuple(without)) for name, without in row["lessons"].items())
            what = ", ".join(_in_plan(name, without) for name, without in row["lessons"].items())
        else:
            spent, what = row["minutes"], row["what"]
        rows.append((_clock(plan, sum(before for _, before, _ in rows)) or str(number), spent, what))
    total = sum(spent for _, spent, _ in rows)
    return [*rows, (_clock(plan, total) or str(len(rows)), total, "in all")]


def _clock(plan, later):
    """Return the time of the day so many minutes after a plan begins, and "" for a plan without a beginning."""
    if not plan.begin:
        return ""
    at = datetime.datetime.strptime(plan.begin, "%H:%M") + datetime.timedelta(minutes=later)
    return f"{at.hour}:{at.minute:02d}"


def _in_plan(name, without):
    """Return a lesson as a plan names it: a link, and the sections to leave out."""
    link = f"[{course.lessons()[name].numbered_title}](../notebooks/{name}.ipynb)"
    titles = [f"*{title}*" for title in without]
    if len(titles) > 1:
        titles = [f"{', '.join(titles[:-1])} and {titles[-1]}"]
    return " without ".join([link, *titles])


def _table_of(plan):
    rows = [[plan.column, "minutes", "what"], ["---"] * 3, *schedule(plan)]
    return "".join(f"{_row_of(row)}\n" for row in rows)


def write(seconds: dict[str, str]) -> list[Path]:
    """Write the figures into all texts that state them, and return the paths of the changed texts."""
    changed = []
    known = seconds_in(TEACHING.read_text()) | seconds
    for path in [ROOT / "README.md", TEACHING, *sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))]:
        before = path.read_text()
        after = written(path, before, known)
        if after != before:
            path.write_text(after)
            changed.append(path)
    return changed


def written(path: Path, text: str, seconds: dict[str, str]) -> str:
    """Return a text of the course with its figures brought up to date."""
    if path.suffix == ".ipynb":
        return in_notebook(text, path.stem)
    return in_readme(text) if path.name == "README.md" else in_teaching(text, seconds)


def main() -> None:
    """Print the table of all notebooks or of one notebook, or write the figures."""
    parser = argparse.ArgumentParser(description="How many minutes each notebook takes a reader.")
    parser.add_argument("notebook", nargs="?", help="print the sections of this notebook, as in 05")
    parser.add_argument("--write", action="store_true", help="write the figures into README.md, notebooks and docs")
    parser.add_argument("--machine", type=Path, help="a file with the output of `python -m benchmarks notebooks`")
    arguments = parser.parse_args()
    if arguments.write:
        for path in write(seconds_in(arguments.machine.read_text()) if arguments.machine else {}):
            print(path.relative_to(ROOT))
        return
    header = ["words", "lines", "predictions", "answers", "minutes"]
    if arguments.notebook:
        (path,) = NOTEBOOKS.glob(f"{arguments.notebook[:2]}_*.ipynb")
        rows = [[section.title or "(opening)", *_row([section])] for section in sections(path)]
        print(table(["section", *header], [*rows, ["in all", *_row(sections(path))]]))
    else:
        rows = [[name, *_row(sections(NOTEBOOKS / f"{name}.ipynb"))] for name in course.lessons()]
        print(table(["notebook", *header], rows))


def _row(of):
    counts = [sum(getattr(section, name) for section in of) for name in ("words", "lines", "predictions", "answers")]
    return [*map(str, counts), f"{sum(section.minutes for section in of):.0f}"]


if __name__ == "__main__":
    main()
