"""The lessons of the course: where the notebooks are, and their entries in `course.toml`, next to the notebooks."""

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PACKAGE = Path(__file__).resolve().parent

# In a checkout the notebooks are next to this package, in an installed package inside it.
IS_CHECKOUT = not (_PACKAGE / "notebooks").exists()
NOTEBOOKS = (_PACKAGE.parent if IS_CHECKOUT else _PACKAGE) / "notebooks"
TABLE = NOTEBOOKS / "course.toml"
FIRST = "00_meet_the_ranks.ipynb"

# The folder of the learner's own copy: at the top of a checkout, where git ignores it, or below the current folder.
OWN_COPY = NOTEBOOKS.parent / "my-course" if IS_CHECKOUT else Path("torch-distributed-live")


@dataclass(frozen=True)
class Lesson:
    """The entry of a lesson in `course.toml`, which explains the fields."""

    name: str
    title: str
    part: str
    promise: str
    ranks: int
    others: list[int]
    needs: list[str]
    hosts: int = 1
    of_its_parameters: bool = False
    in_short_course: bool = False

    @property
    def numbered_title(self) -> str:
        """The number of the notebook and the title, as in "05 All-reduce by hand"."""
        return f"{self.name[:2]} {self.title}"


def read_toml(path: Path) -> dict:
    """Return what a TOML file holds; Python 3.10 has no parser of its own."""
    return tomllib.loads(path.read_text("utf-8"))


@cache
def lessons(table: Path = TABLE) -> dict[str, Lesson]:
    """Return the lessons by name, in teaching order."""
    return {row["name"]: Lesson(**row) for row in read_toml(table)["lesson"]}


def parts(table: Path = TABLE) -> dict[str, list[Lesson]]:
    """Return the lessons of each part of the course, by the title of the part, in teaching order."""
    lessons_by_part = {}
    for lesson in lessons(table).values():
        lessons_by_part.setdefault(lesson.part, []).append(lesson)
    return lessons_by_part
