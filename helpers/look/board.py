"""The board: a line for each rank, updated while cells run, even while a rank is stuck.

A thread of the notebook's process updates the board, because the thread that runs the cells waits for the ranks. In
JupyterLab the board is a panel next to the notebook, jupyter-widgets' Sidecar; in other front ends it is in the output
of the cell; and in a terminal, where nothing can be updated, it is printed.
"""

import os
import threading
from collections.abc import Callable
from html import escape

from IPython import get_ipython
from IPython.display import display
from ipywidgets import HTML
from sidecar import Sidecar

from helpers.look.cells import Cells
from helpers.look.sampling import Line, Sampler
from helpers.table import table

_SECONDS_BETWEEN_LOOKS = 0.5
_HEADER = ["rank", "state", "for", "call", "line", "memory", "in", "out"]
# The columns of the panel, in two halves; in a narrow panel the second half is below the first.
# Each column has a name, a width in characters and an alignment.
_HALVES = [
    [("rank", 4, "left"), ("state", 9, "left"), ("for", 7, "right"), ("memory", 9, "right")],
    [("call (line)", 13, "left"), ("in", 9, "right"), ("out", 9, "right")],
]
# Each state has a sign and a colour of its own. The colours of the figures are mixed with the colour of the text, so
# that they are readable in JupyterLab's light theme and in its dark theme.
_SIGNS = {
    "idle": ("○", "currentColor"),
    "busy": ("●", "#0072b2"),
    "serving": ("◐", "#009e73"),
    "silent": ("?", "#e69f00"),
    "cut off": ("×", "#d55e00"),
    "dead": ("†", "#d55e00"),
}


def show(board: "Board | None", find_ranks: Callable[[], tuple[object, Cells]]) -> "Board | None":
    """Show the board of a world, a new board if the old one has ended; return it, None where nothing can be updated.

    `find_ranks` returns the current ranks, and the `Cells` that they were sent.
    """
    if not hasattr(get_ipython(), "kernel"):
        print(as_text(Sampler().look(*find_ranks())))
        return None
    if board is None or board.ended:
        return Board(find_ranks)
    if not board.is_beside:
        board.display()  # again, in this cell
    return board


class Board:
    """A board that is updated until its panel is closed, its output is cleared, or `end` is called.

    `is_beside` says whether the board is a panel next to the notebook.
    """

    def __init__(self, find_ranks: Callable[[], tuple[object, Cells]]):
        self._find_ranks = find_ranks
        self.is_beside = _is_in_jupyterlab()
        self._over = threading.Event()
        self._sampler = Sampler()
        # jupyter-widgets counts the places that show the widget only when `_view_count` is set to a number.
        self._lines = HTML(as_html(self._sampler.look(*find_ranks())), _view_count=0)
        self._lines.observe(self._note_views, "_view_count")
        self._panel = None
        if self.is_beside:
            self._panel = Sidecar(title="Ranks", anchor="right")  # it opens by itself
            self._panel.append_display_data(self._lines)
        else:
            self.display()
        self._thread = threading.Thread(target=self._work, name="board", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the board is no longer updated."""
        return self._over.is_set()

    def display(self) -> None:
        """Show the board in the output of the running cell."""
        display(self._lines)

    def end(self) -> None:
        """Remove the board, and stop looking at the ranks."""
        self._over.set()
        self._thread.join()

    def _note_views(self, change):
        # A lower number means that the panel was closed. After a reload of the page the number is too high by one.
        if change.new < change.old if self.is_beside else change.new == 0:
            self._over.set()

    def _work(self):
        while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
            self._lines.value = as_html(self._sampler.look(*self._find_ranks()))
        for widget in filter(None, [self._panel, self._lines]):
            widget.close()


def _is_in_jupyterlab():
    """Return whether the notebook is open in JupyterLab, judging by the program that started its kernel."""
    return "JPY_SESSION_NAME" in os.environ and "VSCODE_PID" not in os.environ


# ---------------------------------------------------------------- content


def as_text(lines: list[Line]) -> str:
    """Return the board as plain text."""
    return table(_HEADER, [_cells(line) for line in lines])


def as_html(lines: list[Line]) -> str:
    """Return the board as HTML, in the colours of JupyterLab."""
    header = {name: name for half in _HALVES for name, _, _ in half}
    rows = [_row(header, "columnheader", "")]
    rows += [_row(_html_cells(line), "cell", line.state.line) for line in lines]
    style = "font-size:11px; font-variant-numeric:tabular-nums; line-height:1.5; color:var(--jp-ui-font-color1)"
    return f"<div role='table' style='{style}'>{''.join(rows)}</div>"


def _cells(line):
    state = line.state
    return [
        state.rank,
        state.state,
        "" if state.seconds is None else f"{state.seconds:.1f} s",
        state.call,
        state.line_number,
        "" if line.memory is None else f"{line.memory / 2**20:.0f} MiB",
        _rate(line.received),
        _rate(line.sent),
    ]


def _html_cells(line):
    cells = dict(zip(_HEADER, _cells(line), strict=True))
    sign, colour = _SIGNS[line.state.state]
    readable = f"color-mix(in srgb, {colour} 60%, currentColor)"
    number = "" if line.state.line_number is None else f" ({line.state.line_number})"
    return {name: escape(str(text)) for name, text in cells.items()} | {
        "state": f"<span style='color:{readable}'>{sign} {line.state.state}</span>",
        "call (line)": escape(line.state.call) + number,
    }


def _row(texts, role, hint):
    halves = ""
    for half in _HALVES:
        cells = "".join(_html_cell(texts[name], role, width, side) for name, width, side in half)
        halves += f"<div style='white-space:nowrap; margin-right:1ch'>{cells}</div>"
    style = "display:flex; flex-wrap:wrap; padding:3px 4px; border-bottom:1px solid #8884"
    return f"<div role='row' title='{escape(hint)}' style='{style}'>{halves}</div>"


def _html_cell(text, role, width, side):
    style = f"display:inline-block; width:{width}ch; text-align:{side}; overflow:hidden; text-overflow:ellipsis"
    return f"<span role='{role}' style='{style}; vertical-align:bottom'>{text}</span>"


def _rate(bytes_per_second):
    if bytes_per_second is None:
        return ""
    for unit, factor in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= factor:
            number = bytes_per_second / factor
            return f"{number:.0f} {unit}" if number >= 100 else f"{number:.1f} {unit}"
    return f"{bytes_per_second:.0f} B/s"
