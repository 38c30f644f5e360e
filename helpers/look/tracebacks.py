"""Errors as a learner reads them: errors of the ranks, and errors of the notebook that concern the ranks."""

import re
from pathlib import Path

import ipyparallel as ipp
from IPython.utils.path import compress_user

from helpers.errors import WorldError
from helpers.look.cells import Cells
from helpers.probe import variables
from helpers.ranks.protocol import Ranks

_HELPERS = Path(__file__).resolve().parent.parent
_FRAME_OF_HELPERS = f"File {compress_user(str(_HELPERS))}/"  # as IPython writes it
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_EXECUTION_COUNT = re.compile(r"In ?\[\d+\]")
_MOST_TRACEBACKS = 4
_SECONDS_TO_ANSWER = 2


class Tracebacks:
    """An exception handler for the notebook that has this world.

    `cells` are the cells that the ranks were sent.
    """

    def __init__(self, world, ranks: Ranks, cells: Cells):
        self._world = world
        self._ranks = ranks
        self._cells = cells

    def connect(self, shell) -> None:
        """Show the errors of this shell's cells from now on, in place of an earlier world's handler."""
        shell.set_custom_exc((NameError, RuntimeError, ipp.error.IPythonError), self._show)

    def _show(self, shell, kind, error, traceback, tb_offset=None):
        """Show an error that a cell raised; IPython calls its exception handlers with these arguments."""
        stopped = self._stopped()
        if stopped and _is_without_answer(error, traceback):
            kind, error, traceback = WorldError, stopped, None
        elif isinstance(error, ipp.RemoteError):
            lines = render(error, self._ranks.engine_ids)
            error._render_traceback_ = lambda: lines  # IPython calls this
        elif kind is NameError and error.name and not stopped:
            self._add_note(error)
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)

    def _stopped(self):
        """Return the error that says that the world has stopped, None while it runs."""
        try:
            self._world.require_running()
        except WorldError as stopped:
            return stopped
        return None

    def _add_note(self, error):
        """Add a note that says which of the idle ranks have the name that the notebook lacks."""
        idle = set(range(self._ranks.size)) - self._cells.owed().keys() - self._ranks.deaths().keys()
        answers = self._ranks.ask(sorted(idle), variables.describe, error.name, seconds=_SECONDS_TO_ANSWER)
        if having := sorted(rank for rank, answer in answers.items() if isinstance(answer, str)):
            note = f"`{error.name}` is defined on {named(having)}, not in the notebook. Begin the cell with `%%px`."
            error.__notes__ = [*getattr(error, "__notes__", []), note]


def named(ranks: list[int]) -> str:
    """Return these ranks as text for a message, as in "ranks 0-3" and "rank 2"."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {numbers(ranks)}"


def numbers(ranks: list[int]) -> str:
    """Return these ranks, in ascending order, as "0-3" or as "0,2"."""
    in_a_row = len(ranks) > 1 and ranks == list(range(ranks[0], ranks[0] + len(ranks)))
    return f"{ranks[0]}-{ranks[-1]}" if in_a_row else ",".join(map(str, ranks))


def render(error: ipp.RemoteError, engine_ids: list[int]) -> list[str]:
    """Return the lines that show the errors of ranks: equal errors once, without the frames of the helpers.

    `engine_ids` are the ids of the engines in the order of their ranks.
    """
    groups = {}  # the compared text: the traceback to show, and the ranks that raised it
    for kind, text, traceback, engine in _errors(error):
        is_of_a_rank = traceback and "engine_id" in engine
        traceback = _without_helpers(traceback) if is_of_a_rank else f"{kind}: {text}"
        compared = _EXECUTION_COUNT.sub("", _COLOUR.sub("", traceback))  # the ranks may have run different cells before
        _, ranks = groups.setdefault(compared, (traceback, []))
        if engine.get("engine_id") in engine_ids:
            ranks.append(engine_ids.index(engine["engine_id"]))
    lines = []
    for traceback, ranks in list(groups.values())[:_MOST_TRACEBACKS]:
        if ranks:
            lines.append(f"{named(sorted(ranks)).capitalize()} raised:")
        lines += [*traceback.splitlines(), ""]
    if len(groups) > _MOST_TRACEBACKS:
        lines.append(f"... and {len(groups) - _MOST_TRACEBACKS} other errors on other ranks")
    return lines


def is_of_helpers(path: str) -> bool:
    """Return whether a file belongs to the helpers of the course."""
    return _HELPERS in Path(path).parents


def _errors(error):
    """Return the kind, text and traceback of each error, and a dictionary that says which engine raised it."""
    if isinstance(error, ipp.CompositeError):
        return error.elist
    return [(error.ename, error.evalue, error.traceback, error.engine_info or {})]


def _without_helpers(traceback):
    blocks = traceback.split("\n\n")  # one block for each frame
    return "\n\n".join(block for block in blocks if not _COLOUR.sub("", block).startswith(_FRAME_OF_HELPERS))


def _is_without_answer(error, traceback):
    """Return whether ipyparallel raised this error itself, rather than passing on a rank's answer."""
    if isinstance(error, ipp.RemoteError):
        return all(kind == "EngineError" for kind, *_ in _errors(error))
    while traceback:
        if traceback.tb_frame.f_globals.get("__name__", "").startswith("ipyparallel."):
            return True
        traceback = traceback.tb_next
    return False
