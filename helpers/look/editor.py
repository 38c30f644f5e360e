"""Tab and Shift-Tab in cells for the ranks: they know what lives there, and ask a rank that is idle.

Where no rank is idle, or none answers soon, the editor completes as it always does, by what the notebook itself has.
"""

import re
from collections.abc import Callable
from functools import partial

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.utils.tokenutil import token_at_cursor

from helpers.look.cells import Cells
from helpers.ranks import variables
from helpers.ranks.protocol import Ranks
from helpers.ranks.side_channel import Failed

_SECONDS_TO_ANSWER = 0.2
_CELL = re.compile(r"%%px\b.*\n")
_LINE = re.compile(r"^[ \t]*%px[ \t]", re.MULTILINE)
_TARGET = re.compile(r"%%px\b.*?(?:-t|--targets)[ =]*(\d+)\b(?!:)")
# Before all matchers of the notebook; see IPython.core.completer.
_FIRST = 1000


class Editor:
    """Completes and describes for the cells of one world.

    `cells` are those that the ranks were sent.
    """

    def __init__(self, ranks: Ranks, cells: Cells):
        self._ranks = ranks
        self._cells = cells
        self._shell = None

    def connect(self, shell) -> "Editor":
        """Complete and describe in the cells of this shell until `disconnect`, instead of an earlier editor."""
        self._shell = shell
        others = [one for one in shell.Completer.custom_matchers if not _is_of_an_editor(one)]
        shell.Completer.custom_matchers = [*others, self.complete]
        if kernel := getattr(shell, "kernel", None):
            # Jupyter asks the kernel here. IPython's own hooks see a name, but not in which cell it stands.
            kernel.do_inspect = partial(self.describe, partial(type(kernel).do_inspect, kernel))
        return self

    def disconnect(self) -> None:
        """Leave the cells to the notebook again; nothing happens when the editor is not connected."""
        if self._shell is None:
            return
        completer, kernel = self._shell.Completer, getattr(self._shell, "kernel", None)
        completer.custom_matchers = [matcher for matcher in completer.custom_matchers if matcher != self.complete]
        if kernel and getattr(kernel.do_inspect, "func", None) == self.describe:  # not the editor of a newer world
            del kernel.do_inspect
        self._shell = None

    @context_matcher(identifier="helpers.look.editor", priority=_FIRST)
    def complete(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return what a rank has to complete the code at the cursor, and then nothing else."""
        before = [line + "\n" for line in context.full_text.split("\n")[: context.cursor_line]]
        place = _on_the_ranks(context.full_text, len("".join(before)) + context.cursor_position)
        found = (place and self._ask(context.full_text, variables.complete, *place)) or []
        fragment = max((fragment for fragment, _, _ in found), key=len, default=context.token)
        return {
            # Each stands for the same piece of the text.
            "completions": [
                SimpleCompletion(fragment.removesuffix(replaced) + text, type=kind) for replaced, text, kind in found
            ],
            "matched_fragment": fragment,
            "suppress": bool(found),
        }

    def describe(
        self, by_the_notebook: Callable, code: str, cursor_pos: int, detail_level: int = 0, omit_sections=()
    ) -> dict:
        """Return the answer to an inspect_request: what a rank says of the name at the cursor, if it knows it."""
        place = _on_the_ranks(code, cursor_pos)
        name = token_at_cursor(*place) if place else ""
        text = self._ask(code, variables.describe, name) if name else None
        if text is None:
            return by_the_notebook(code, cursor_pos, detail_level, omit_sections)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    def _ask(self, code, function, *arguments):
        """Return what the first idle rank answers, of those that the cell is for; None when none does in time."""
        target = _TARGET.match(code)
        candidates = {int(target[1])} if target else set(range(self._ranks.size))
        idle = sorted(candidates - self._cells.owed().keys() - self._ranks.deaths().keys())
        answers = self._ranks.ask(idle[:1], function, *arguments, seconds=_SECONDS_TO_ANSWER)
        answer = next(iter(answers.values()), None)
        return None if isinstance(answer, Failed) else answer  # the log of the rank says more


def _is_of_an_editor(matcher):
    return isinstance(getattr(matcher, "__self__", None), Editor)


def _on_the_ranks(text, offset):
    """Return the code that the ranks will run, and where in it this place of the cell is; None when they will not."""
    if magic := _CELL.match(text):
        return (text[magic.end() :], offset - magic.end()) if offset >= magic.end() else None
    for magic in _LINE.finditer(text, 0, offset):
        if "\n" not in text[magic.end() : offset]:
            return text[magic.end() :].split("\n")[0], offset - magic.end()
    return None
