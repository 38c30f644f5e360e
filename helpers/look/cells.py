"""The `%px` and `%%px` cells that were sent to the ranks: their text, and which ranks have not answered yet.

Calls by `world.call` and `world.view` are not cells, and are not noted here.
"""

import re
import time

from ipykernel.compiler import get_file_name


class Cells:
    """The cells that were sent to the ranks of one world; the notebook keeps them.

    `client` is the ipyparallel client that sent them.
    """

    def __init__(self, client):
        self._client = client
        self._texts = {}
        self._sent = []  # (rank, id of the message, time at which it was sent)

    def remember(self, cell: str) -> None:
        """Keep the body of a `%%px` cell, or the line of a `%px`, exactly as it is sent."""
        self._texts[_name(get_file_name(cell))] = cell

    def line(self, path: str, number: int) -> tuple[int, str]:
        """Return the number of a line as a learner counts it, and the text of the line, empty for an unknown cell.

        `path` is the file that a stack names. IPython derives this name from the text of the cell.
        """
        cell = self._texts.get(_name(path), "")
        lines = cell.splitlines()
        number += len(lines) - len(cell.lstrip().splitlines())  # IPython leaves out the empty lines at the top
        text = lines[number - 1].strip() if number <= len(lines) else ""
        # The body of a `%%px` cell ends with a line break and is below its `%%px` line; a `%px` has neither.
        return (number + 1 if cell.endswith("\n") else number), text

    def sent(self, ranks: list[int], messages: list[str]) -> None:
        """Note the message that each of these ranks has to answer."""
        now = time.monotonic()
        self._sent = self._unanswered() + [(rank, message, now) for rank, message in zip(ranks, messages, strict=True)]

    def owed(self) -> dict[int, float]:
        """Return, for each rank that owes an answer to a cell, how many seconds ago its oldest such cell was sent."""
        now = time.monotonic()
        return {rank: now - when for rank, _, when in reversed(self._unanswered())}

    def messages(self) -> set[str]:
        """Return the ids of the messages that have no answer yet."""
        return {message for _, message, _ in self._unanswered()}

    def _unanswered(self):
        outstanding = self._client.outstanding
        return [sent for sent in self._sent if sent[1] in outstanding]


def _name(path):
    return re.split(r"[/\\]", path)[-1]  # the folder holds the id of the process that compiled the cell
