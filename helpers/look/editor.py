"""Tab and Shift-Tab in cells for the ranks: completions and descriptions come from the variables of an idle rank.

When no rank is idle, or none answers in time, the editor uses the notebook's own variables, as it does elsewhere.
"""

import re
from collections.abc import Callable
from functools import partial

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.utils.tokenutil import token_at_cursor

from helpers.look.cells import Cells
from helpers.probe import variables
from helpers.probe.side_channel import Failed
from helpers.ranks.protocol import Ranks

_SECONDS_TO_ANSWER = 0.2
_CELL = re.compile(r"%%px\b.*\n")
_LINE = re.compile(r"^[ \t]*%px[ \t]", re.MULTILINE)
_TARGET = re.compile(r"%%px\b.*?(?:-t|--targets)[ =]*(\d+)\b(?!:)")
# Higher than the priority of all matchers of the notebook; see IPython.core.completer.
_FIRST = 1000


class Editor:
    """Completion and inspection for the cells of one world.

    `cells` are the cells that the ranks were sent.
    """

    def __init__(self, ranks: Ranks, cells: Cells):
        self._ranks = ranks
        self._cells = cells
        self._shell = None

    def connect(self, shell) -> "Editor":
        """Complete and describe names in the cells of this shell until `disconnect`; replace an earlier editor."""
        self._shell = shell
        others = [matcher for matcher in shell.Completer.custom_matchers if not _is_of_an_editor(matcher)]
        shell.Completer.custom_matchers = [*others, self.complete]
        if kernel := getattr(shell, "kernel", None):
            # Jupyter calls this method of the kernel. IPython's own hooks receive a name, but not its cell.
            kernel.do_inspect = partial(self.describe, partial(type(kernel).do_inspect, kernel))
        return self

    def disconnect(self) -> None:
        """Give completion and inspection back to the notebook; do nothing when the editor is not connected."""
        if self._shell is None:
            return
        completer, kernel = self._shell.Completer, getattr(self._shell, "kernel", None)
        completer.custom_matchers = [matcher for matcher in completer.custom_matchers if matcher != self.complete]
        if kernel and getattr(kernel.do_inspect, "func", None) == self.describe:  # a newer world's editor stays
            del kernel.do_inspect
        self._shell = None

    @context_matcher(identifier="helpers.look.editor", priority=_FIRST)
    def complete(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return a rank's completions of the code at the cursor; if there are any, suppress the notebook's own."""
        before = [line + "\n" for line in context.full_text.split("\n")[: context.cursor_line]]
        place = _on_the_ranks(context.full_text, len("".join(before)) + context.cursor_position)
        answers = (place and self._ask(context.full_text, variables.complete, *place)) or []
        fragment = max((fragment for fragment, _, _ in answers), key=len, default=context.token)
        return {
            # All completions replace the same fragment of the text.
            "completions": [
                SimpleCompletion(fragment.removesuffix(replaced) + text, type=kind) for replaced, text, kind in answers
            ],
            "matched_fragment": fragment,
            "suppress": bool(answers),
        }

    def describe(
        self, by_the_notebook: Callable, code: str, cursor_pos: int, detail_level: int = 0, omit_sections=()
    ) -> dict:
        """Return the answer to an inspect_request: a rank's description of the name at the cursor if it has the name.

        Otherwise return the answer of `by_the_notebook`.
        """
        place = _on_the_ranks(code, cursor_pos)
        name = token_at_cursor(*place) if place else ""
        text = self._ask(code, variables.describe, name) if name else None
        if text is None:
            return by_the_notebook(code, cursor_pos, detail_level, omit_sections)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    def _ask(self, code, function, *arguments):
        """Return the answer of the first idle rank that the cell targets; None if it does not answer in time."""
        target = _TARGET.match(code)
        candidates = {int(target[1])} if target else set(range(self._ranks.size))
        idle = sorted(candidates - self._cells.owed().keys() - self._ranks.deaths().keys())
        answers = self._ranks.ask(idle[:1], function, *arguments, seconds=_SECONDS_TO_ANSWER)
        answer = next(iter(answers.values()), None)
        return None if isinstance(answer, Failed) else answer  # the log of the rank has the traceback


def _is_of_an_editor(matcher):
    return isinstance(getattr(matcher, "__self__", None), Editor)


def _on_the_ranks(text, offset):
    """Return the code that the ranks will run, and the position in it of this offset of the cell.

    Return None when the offset is not in code for the ranks.
    """
    if magic := _CELL.match(text):
        return (text[magic.end() :], offset - magic.end()) if offset >= magic.end() else None
    for magic in _LINE.finditer(text, 0, offset):
        if "\n" not in text[magic.end() : offset]:
            return text[magic.end() :].split("\n")[0], offset - magic.end()
    return None
