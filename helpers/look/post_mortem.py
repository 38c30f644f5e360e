"""The frames of the last error on a rank, and their variables, which the rank still has."""

import pickle
import re
from collections.abc import Callable

from helpers.errors import WorldError
from helpers.look.cells import Cells
from helpers.look.tracebacks import is_of_helpers
from helpers.look.where import NO_CONNECTION, RankState, is_cell
from helpers.probe import frames
from helpers.ranks.protocol import Ranks
from helpers.table import shortened, table

_SECONDS_TO_ANSWER = 10
_WIDTH_OF_LINE = 80
# Python prints the file first, the code in indented lines, and the error last.
_SYNTAX_ERROR = re.compile(r'File "(.*)", line (\d+)\n((?: .*\n)*)(\w+: (?s:.*))')


class TracebackFrame:
    """A frame of the traceback; `frame["name"]` is a variable of its function, or a global of its module.

    `line_number` and `line` say where the frame was, in a cell as a learner counts lines; `file` is empty for a cell.
    `variables` has a short text for each variable. For the lines of a cell outside of functions, it has only the
    variables that these lines name.
    """

    def __init__(self, kept: frames.Kept, cells: Cells, fetch: Callable[[str], frames.Value | None]):
        self.function = kept.function
        self.variables = kept.variables
        self.file = "" if is_cell(kept.path) else re.split(r"[/\\]", kept.path)[-1]
        self.line_number, self.line = (kept.number, kept.line) if self.file else cells.line(kept.path, kept.number)
        self._fetch = fetch

    def __getitem__(self, name: str) -> object:
        """Return a copy of the value of a variable, or its text when the value cannot be sent."""
        value = self._fetch(name)
        if value is None:
            known = ", ".join(self.variables) or "none"
            raise WorldError(f"There is no variable {name!r} in {self.function}. Its variables: {known}.")
        try:
            return value.text if value.pickled is None else pickle.loads(value.pickled)
        except Exception:  # its class exists only on the ranks, or its device is not on this machine
            return value.text


class PostMortem:
    """The last error of a rank, and its `frames`, the innermost last; its representation is a set of tables.

    `post_mortem["name"]` is a variable of the innermost frame in the learner's own code.
    """

    def __init__(self, rank: int, error: str, frames: list[TracebackFrame]):
        self.rank, self.error, self.frames = rank, error, frames

    def __getitem__(self, name: str) -> object:
        """Return the value of a variable; see `TracebackFrame`."""
        cell_frames = [frame for frame in self.frames if not frame.file]
        if not cell_frames:
            raise WorldError("The error has not come through a line of a cell. See the frames in `.frames`.")
        return cell_frames[-1][name]

    def __repr__(self):
        places = [
            [number, frame.function, frame.file, frame.line_number, shortened(frame.line, _WIDTH_OF_LINE)]
            for number, frame in enumerate(self.frames)
        ]
        variables = [
            [number, name, text]
            for number, frame in enumerate(self.frames)
            for name, text in frame.variables.items()
            if not frame.file
        ]
        shown = [f"Rank {self.rank} raised {self.error}"]
        if places:
            shown.append(table(["frame", "function", "file", "line", "code"], places))
        if variables:
            shown.append(table(["frame", "variable", "value"], variables))
        return "\n\n".join(shown)


def post_mortem(ranks: Ranks, cells: Cells, state: RankState) -> PostMortem:
    """Ask a rank for its last error, and return it.

    `cells` are the cells that the ranks were sent, and `state` says where the rank is now. Raises `WorldError` when the
    rank cannot answer, and when it has had no error.
    """
    rank = state.rank
    _require_answering(state)
    failure = _ask(ranks, rank, frames.last_failure)
    if failure is None:
        raise WorldError(f"Rank {rank} has had no error since it was started, except those that its cells have caught.")

    def fetch_from(index):
        def fetch(name):
            if not _ask(ranks, rank, frames.is_last, failure.number):
                raise WorldError(f"Rank {rank} has had another error since then: call world.post_mortem({rank}) again.")
            return _ask(ranks, rank, frames.value, index, name)

        return fetch

    shown_frames = [
        TracebackFrame(kept, cells, fetch_from(index))
        for index, kept in enumerate(failure.frames)
        if not is_of_helpers(kept.path)
    ]
    return PostMortem(rank, _with_kind_first(failure.error, cells), shown_frames)


def _with_kind_first(error, cells):
    """Return the text of an error; for a `SyntaxError`, put the kind first and count lines as a learner does."""
    match = _SYNTAX_ERROR.fullmatch(error)
    if match is None:
        return error
    path, number, code, what = match.groups()
    place = f"line {cells.line(path, int(number))[0]} of the cell" if is_cell(path) else f"line {number} of {path}"
    return f"{what} ({place})\n{code}".rstrip()


def _require_answering(state):
    if state.state == "dead":
        raise WorldError(
            f"Rank {state.rank} has died ({state.line}), and its variables with it. Call world.restart() for working "
            "ranks."
        )
    if state.state == "silent":
        why = state.line or "does not answer"
        raise WorldError(f"Rank {state.rank} {why}. Call world.restart() for working ranks.")
    if state.state == "cut off":
        raise WorldError(NO_CONNECTION)
    if state.state == "busy":
        place = f" in {state.call}" if state.call else ""
        line = f", on line {state.line_number}: {state.line}" if state.line else ""
        raise WorldError(
            f"Rank {state.rank} is busy{place}{line}. Its last error can be looked at when it is idle; world.where() "
            "shows what it does now."
        )


def _ask(ranks, rank, question, *arguments):
    try:
        return ranks.client[ranks.engine_ids[rank]].apply_async(question, *arguments).get(_SECONDS_TO_ANSWER)
    except TimeoutError:
        raise WorldError(f"Rank {rank} has not answered for {_SECONDS_TO_ANSWER} s: it runs a cell.") from None
