"""docs/errors.md has what PyTorch raises in the lessons, and leads to the lessons that show it."""

import json
import re

import pytest
from lesson_files import NOTEBOOKS, ROOT

PAGE = (ROOT / "docs/errors.md").read_text("utf-8")
ENTRIES = dict(re.findall(r"^### `([^\n]+)`\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
# What a message says of one run: how long, and which rank.
OF_A_RUN = r"\d+(?= ?ms)|\b\d+/\d+(?= clients)|(?<=Rank )\d|(?<=Ranks )\d|(?<=output )\d|(?<=input )\d"


def pattern(message):
    """Return the message as a pattern in which the numbers of a run may differ."""
    return ".*".join(map(re.escape, re.split(OF_A_RUN, message)))


def what_stands_in(path):
    """Return the text, the code and the outputs of a notebook."""
    words = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        words.append("".join(cell["source"]))
        words += ["".join(output.get("text", [])) for output in cell.get("outputs", [])]
    return "\n".join(words)


@pytest.mark.parametrize("message", ENTRIES)
def test_a_lesson_has_the_message(message):
    entry = ENTRIES[message]
    # Chance decides which of two messages with one meaning a stored run has.
    messages = "|".join(map(pattern, [message, *re.findall(r"`([^`]+)` means the\ssame", entry)]))
    lessons = re.findall(r"notebooks/(\w+)\.ipynb#", entry)
    assert any(re.search(messages, what_stands_in(ROOT / f"notebooks/{name}.ipynb")) for name in lessons)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_has_what_torch_raises_in_a_lesson(path):
    raised = set()
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            raised |= set(re.findall(r"\bRuntimeError: (.+)", "".join(output.get("text", []))))
    known = [pattern(words) for words in re.findall(r"`([^`]+)`", PAGE) if " " in words or words in ENTRIES]
    assert [words for words in raised if not any(re.search(message, words) for message in known)] == []
