"""Let later cells of a lesson call the learner's function or class once its check has passed.

`accept` records on each rank the text of the cell that defined the answer. So the same cell defines the same answer,
even in a new process, and a changed cell defines a new answer.
"""

import inspect
import linecache
import os
from collections.abc import Sequence

from IPython import get_ipython

import helpers.world
from helpers.checks.learner import learners_module

_accepted = {}  # the name of each answer that has passed: the cell that defined it
_in_use = set()  # the names of the learner's answers that the lesson uses


def accepted(name: str, *, or_else):
    """Return the learner's function or class `name` if its check has passed; otherwise return the course's, `or_else`.

    All ranks must call it. Rank 0 prints which of the two the lesson uses. An answer whose cell has been changed must
    pass its check again.
    """
    answer = vars(learners_module()).get(name)
    if answer is not None and _accepted.get(name) == _cell_of(answer):
        _in_use.add(name)
        _say(f"The lesson goes on with your `{name}`.")
        return answer
    _in_use.discard(name)
    if name not in _accepted:
        why = "has not passed its check"
    elif answer is None:
        why = "is not on this rank: run its cell again"
    else:
        why = "has changed since it passed its check"
    _say(f"The lesson goes on with its own implementation, because your `{name}` {why}.")
    return or_else


def accept(world, name: str) -> None:
    """Record on each rank that the answer `name` passed its check, and keep this for ranks that start later."""
    for cell in world.call(_note, name):
        if cell:
            world.accepted[name] = cell
    _explain_failures()


def remind(world, ranks: Sequence[int]) -> None:
    """Tell ranks that are new processes which answers have passed."""
    world.call(_remember, world.accepted, targets=ranks)


def _note(name):
    if name in vars(learners_module()):
        _accepted[name] = _cell_of(vars(learners_module())[name])
    return _accepted.get(name)


def _remember(cells):
    _accepted.update(cells)


def _cell_of(answer):
    """Return the text of the cell that defined an answer; None if no cell defined it.

    Newlines at the end do not count, because IPython's `In` drops them, and a lesson may run a cell again from `In`.
    """
    parts = [vars(answer)[name] for name in vars(answer)] if inspect.isclass(answer) else [answer]
    functions = [inspect.unwrap(part) for part in parts if callable(part)]
    codes = [function.__code__ for function in functions if hasattr(function, "__code__")]
    return "".join(linecache.getlines(codes[0].co_filename)).rstrip("\n") if codes else None


def _say(sentence):
    if os.environ["RANK"] == "0":
        print(sentence)


def _explain_failures():
    """Make the notebook print, below a cell that fails, which of the learner's functions the lesson uses."""
    shell = get_ipython()
    if shell and _explain not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _explain)


def _explain(result):
    error, world = result.error_in_exec, helpers.world.current()
    if not isinstance(error, Exception) or world is None or not world.accepted:
        return
    if all(state.state == "idle" for state in world.where()):
        names = set().union(*world.call(_names_in_use))
        if names:
            named = ", ".join(f"`{name}`" for name in sorted(names))
            print(
                f"This lesson goes on with your {named}. If your code may be why this cell failed, "
                "call world.restart() and run the lesson again without the check: the lesson then uses its own "
                "implementation."
            )


def _names_in_use():
    return _in_use
