"""The files of tests/lessons/answers: answers to the exercises, each with what its check says of it.

A file is a notebook in percent format. The title of a cell says what the cell is:

    # %% World(4)                                      the ranks of the answers below, and what the ranks have run
    # %% World(2), World(5): my_ring, two_way_ring     other sizes, in which the solutions and skeletons above are tried
    # %% my_ring: copies instead of adding             an answer to the exercise `my_ring` of the file's lesson

An answer begins with the sentence of its check, as a comment, in which `...` stands for any text. Its code follows. A
comment may take code from elsewhere, and change it; a cell with the title `solution` or `skeleton` needs none:

    # solution                                         the cell of the solutions that defines what the learner writes
    # skeleton of ring_shift                           the cell of the lesson that defines `ring_shift`
    # cell `def pass_on(` of solutions                 the cell of the solutions with this text
    # cell `def pass_on(`, up to `must_agree`          ... of the lesson, up to the line that begins with `must_agree`
    # answer "copies instead of adding"                an answer above, to the same exercise
    # answer "by hops" to my_ring                      an answer above, to another exercise
    # solution, with `mine += received` as `mine.copy_(received)` and `step` as `step + 1`, without `work.wait()`

The changes are made one after the other, wherever a text occurs. A text that does not occur is an error.
"""

import re
import textwrap
from functools import cache
from pathlib import Path
from typing import NamedTuple

from answers import cell, code_cells

FOLDER = Path(__file__).parent / "lessons" / "answers"
# What a check says when the ranks are of no use to the next answer.
BROKEN = re.compile(r"world\.restart\(\)|fresh_ranks\(\)|from\s+the\s+cell\s+with\s+`World`")

_TITLE = re.compile(r"(?m)^# %% (.*)\n")
_SETUP = re.compile(r"World\((\d+)(?:, hosts=(\d+))?\)( with cables)?")
_SIZES = re.compile(r"((?:World\(\d+\)(?:, )?)+): (.+)")
_CODE = re.compile(r"# (solution\b|skeleton\b|cell `|answer \")")
_BASE = re.compile(
    r"(?P<where>solution|skeleton)(?: of (?P<name>\w+))?"
    r"|cell `(?P<text>[^`]+)`(?: of (?P<path>\w+))?"
    r'|answer "(?P<title>[^"]+)"(?: to (?P<check>\w+))?'
)
_CHANGE = re.compile(
    r",?(?: and)? "
    r"(?:(?:with )?`(?P<old>[^`]+)` as `(?P<new>[^`]*)`|without `(?P<gone>[^`]+)`|up to `(?P<end>[^`]+)`)"
)


class Setup(NamedTuple):
    """What the ranks of a test have run before it, how many they are, on how many hosts, and whether with cables."""

    code: str
    size: int = 4
    hosts: int = 1
    with_cables: bool = False


class Answer(NamedTuple):
    """An answer to the exercise `check`, "TOPIC.NAME", and the sentence that its check says of it.

    `lesson` is the name of the file, with the number, and `line` the place of its cell there.
    """

    lesson: str
    line: int
    check: str
    title: str
    sentence: str
    code: str
    setup: Setup

    def __str__(self):
        return "-".join([self.lesson, self.check.partition(".")[2], self.title or str(self.line)])

    @property
    def is_refused(self) -> bool:
        """Whether the check refuses the answer."""
        return self.sentence.startswith("Not yet.")

    @property
    def breaks_the_ranks(self) -> bool:
        """Whether the ranks are of no use to the next answer."""
        return BROKEN.search(self.sentence) is not None

    def agrees(self, said: str) -> bool:
        """Return whether the check has said the sentence; line breaks count as blanks."""
        pattern = ".*".join(map(re.escape, re.split(r" ?\.\.\. ?", self.sentence)))
        return re.fullmatch(pattern, " ".join(said.split())) is not None


class OtherSize(NamedTuple):
    """Solutions and skeletons of a lesson that are also tried with another number of ranks."""

    lesson: str
    answers: list[Answer]
    setup: Setup

    def __str__(self):
        return f"{self.lesson}-{self.setup.size} ranks"


class File(NamedTuple):
    """What a file holds. Its `setup` is that of the last answers."""

    setup: Setup
    answers: list[Answer]
    other_sizes: list[OtherSize]


def answer_of(item) -> Answer | OtherSize | None:
    """Return what a test has from a file of answers as its parameter; None for a test that has nothing from there."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next((value for value in params if isinstance(value, (Answer, OtherSize))), None)


@cache
def read(lesson: str) -> File:
    """Return what the file of a lesson holds. Raises `ValueError`, with the line, for a cell that is not right."""
    return parsed((FOLDER / f"{lesson}.py").read_text(), lesson)


def parsed(text: str, lesson: str) -> File:
    """Return what a text holds that is the file of a lesson. Raises `ValueError` as `read` does."""
    before, *parts = _TITLE.split(text)
    line = 1 + before.count("\n")
    file = File(Setup(""), [], [])
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        try:
            file = _with_cell(file, lesson, line, title, body.strip("\n"))
        except ValueError as error:
            raise ValueError(f"{lesson}.py, line {line}: {error}") from None
        line += 1 + body.count("\n")
    return file


def read_all() -> list[File]:
    """Return what the files of all lessons hold."""
    return [read(path.stem) for path in sorted(FOLDER.glob("*.py"))]


def of_topic(topic: str) -> File:
    """Return what the file of a lesson holds, whose name without the number is the topic."""
    (path,) = FOLDER.glob(f"[0-9][0-9]_{topic}.py")
    return read(path.stem)


def setup_of(topic: str) -> Setup:
    """Return how the ranks of the first answers to a lesson's exercises begin."""
    return of_topic(topic).answers[0].setup


def code_of(check: str, title: str) -> str:
    """Return the code of an answer to a check, "TOPIC.NAME", by its title."""
    answers = of_topic(check.partition(".")[0]).answers
    (code,) = [answer.code for answer in answers if (answer.check, answer.title) == (check, title)]
    return code


def _with_cell(file, lesson, line, title, body):
    """Return the file with a further cell."""
    if setup := _SETUP.fullmatch(title):
        code = _composed(body, lesson, "", [])
        return file._replace(setup=Setup(code, int(setup[1]), int(setup[2] or 1), bool(setup[3])))
    if sizes := _SIZES.fullmatch(title):
        checks = [_full_name(name, lesson) for name in sizes[2].split(", ")]
        answers = [a for a in file.answers if a.check in checks and a.title in ("solution", "skeleton")]
        if missing := set(checks) - {answer.check for answer in answers}:
            raise ValueError(f"above this cell is no solution or skeleton of {', '.join(sorted(missing))}")
        for size in map(int, re.findall(r"\d+", sizes[1])):
            file.other_sizes.append(OtherSize(lesson, answers, file.setup._replace(size=size)))
        return file
    name, _, title = title.partition(": ")
    file.answers.append(_answer(file, lesson, line, _full_name(name, lesson), title, body))
    return file


def _full_name(check, lesson):
    """Return "TOPIC.NAME" for a check of the file's own lesson, too."""
    return check if "." in check else f"{lesson.partition('_')[2]}.{check}"


def _answer(file, lesson, line, check, title, body):
    lines = body.split("\n")
    sentence = []
    while lines and lines[0].startswith("# ") and not _CODE.match(lines[0]):
        sentence.append(lines.pop(0)[2:])
    sentence = " ".join(sentence)
    if not sentence.startswith(("Solved.", "Not yet.")):
        raise ValueError(f"expected what the check says, Solved. or Not yet., found {sentence!r}")
    code = "\n".join(lines).strip("\n")
    if title in ("solution", "skeleton") and not code:
        code = f"# {title}"
    if not code:
        raise ValueError("the cell has no code")
    return Answer(lesson, line, check, title, sentence, _composed(code, lesson, check, file.answers), file.setup)


def _composed(body, lesson, check, earlier):
    """Return the code of a cell, with the code that its comments take from elsewhere."""
    code, lines = [], body.split("\n")
    while lines:
        line = lines.pop(0)
        if _CODE.match(line):
            while lines and lines[0].startswith("# ") and not _CODE.match(lines[0]):
                line += lines.pop(0)[1:]
            line = _taken(line[2:], lesson, check, earlier)
        code.append(line)
    return "\n".join(code)


def _taken(words, lesson, check, earlier):
    """Return the code that a comment takes from elsewhere."""
    base = _BASE.match(words)
    if base is None:
        raise ValueError(f"expected where the code is from, found {words!r}")
    if base["title"]:
        answered = _full_name(base["check"], lesson) if base["check"] else check
        found = [answer.code for answer in earlier if (answer.check, answer.title) == (answered, base["title"])]
    elif base["text"]:
        found = [cell(_path(base["path"] or lesson, lesson), base["text"])]
    else:
        path = f"{lesson}.ipynb" if base["where"] == "skeleton" else f"solutions/{lesson}.ipynb"
        found = definitions(path, base["name"] or check.partition(".")[2])
    if len(found) != 1:
        raise ValueError(f"{base[0]!r} is there {len(found)} times, expected once")
    return _changed(found[0], words[base.end() :])


def _path(name, lesson):
    """Return the notebook that a comment names: the solutions of the lesson, or another lesson."""
    return f"solutions/{lesson}.ipynb" if name == "solutions" else f"{name}.ipynb"


def definitions(path: str, name: str) -> list[str]:
    """Return the `%%px` cells of a notebook that define a function or a class, each without its first line."""
    cells = [source.partition("\n")[2] for source in code_cells(path) if source.startswith("%%px")]
    return [source for source in cells if re.search(rf"(?m)^(def|class) {name}\b", source)]


def _changed(code, words):
    """Return the code with the changes that the words name."""
    place = 0
    while place < len(words):
        change = _CHANGE.match(words, place)
        if change is None:
            raise ValueError(f"expected a change of the code, found {words[place:]!r}")
        old = change["old"] or change["gone"] or change["end"]
        if old not in code:
            raise ValueError(f"`{old}` does not occur in\n{textwrap.indent(code, '    ')}")
        code = code.partition(f"\n{old}")[0] if change["end"] else code.replace(old, change["new"] or "")
        place = change.end()
    return code
