"""Remember the text of the cells that were sent to the ranks, and which ranks owe an answer to a cell or a call.

A call is a `world.call`. What `world.view` sends is not noted here.
"""

import linecache
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from ipykernel.compiler import get_file_name


class _Sent(NamedTuple):
    rank: int
    message: str
    seconds: float  # on the clock of time.monotonic
    line: tuple[int, str] | None


class Cells:
    """The cells and calls that were sent to the ranks of one world; the notebook keeps them.

    `client` is the ipyparallel client that sent them.
    """

    def __init__(self, client):
        self._client = client
        self._texts = {}
        self._sent = []

    def remember(self, cell: str) -> None:
        """Keep the body of a `%%px` cell, or the line of a `%px`, exactly as it is sent."""
        self._texts[_name(get_file_name(cell))] = cell

    def line(self, path: str, number: int) -> tuple[int, str]:
        """Return the number of a line as a learner counts it, and the text of the line, empty for an unknown cell.

        `path` is the file that a stack names. IPython derives this name from the text of the cell. A cell of the
        notebook itself, without `%%px`, is known under its path.
        """
        cell = self._texts.get(_name(path))
        if cell is None:
            return number, linecache.getline(path, number).strip()
        lines = cell.splitlines()
        number += len(lines) - len(cell.lstrip().splitlines())  # IPython leaves out the empty lines at the top
        text = lines[number - 1].strip() if number <= len(lines) else ""
        # The body of a `%%px` cell ends with a line break and is below its `%%px` line; a `%px` has neither.
        return (number + 1 if cell.endswith("\n") else number), text

    def sent(self, ranks: Sequence[int], messages: Sequence[str], line: tuple[int, str] | None = None) -> None:
        """Note the message that each of these ranks has to answer.

        `line` is the notebook's line of a call, with its number; a cell has its own lines.
        """
        now = time.monotonic()
        self._sent = self._unanswered() + [_Sent(*to, now, line) for to in zip(ranks, messages, strict=True)]

    def owed(self) -> dict[int, float]:
        """Return, for each rank that owes an answer, how many seconds ago the oldest such cell or call was sent."""
        now = time.monotonic()
        return {sent.rank: now - sent.seconds for sent in reversed(self._unanswered())}

    def calls(self) -> dict[int, tuple[int, str]]:
        """Return the notebook's line of the call that each rank runs, with its number."""
        return {sent.rank: sent.line for sent in reversed(self._unanswered()) if sent.line}

    def messages(self) -> set[str]:
        """Return the ids of the messages that have no answer yet."""
        return {sent.message for sent in self._unanswered()}

    def _unanswered(self):
        outstanding = self._client.outstanding
        return [sent for sent in self._sent if sent.message in outstanding]


def _name(path):
    return re.split(r"[/\\]", path)[-1]  # the folder holds the id of the process that compiled the cell
