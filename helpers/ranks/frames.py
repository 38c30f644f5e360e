"""The frames of the last error of a rank: Python keeps them, with their variables, until the next error comes."""

import itertools
import linecache
import pickle
import re
import reprlib
import sys
import traceback
from types import FunctionType, ModuleType
from typing import NamedTuple

from helpers.table import shortened

_MOST_LETTERS = 60
_ADDRESS = re.compile(" at 0x[0-9a-f]+")

_numbers = itertools.count(1)


class _Brief(reprlib.Repr):
    """Makes short texts of values, and of the values inside lists and dictionaries."""

    def repr_instance(self, held, level):
        """Return the text of a value of any other class, without the address that many print."""
        return shortened(_ADDRESS.sub("", " ".join(_printed(held).split())), _MOST_LETTERS)


_brief = _Brief()


class Kept(NamedTuple):
    """A snapshot of a stack frame; `variables` maps each name to a short text, not to the value.

    `line` is the text of the line, empty when this process has no such file, as for a cell.
    """

    function: str
    path: str
    number: int
    line: str
    variables: dict[str, str]


class Failure(NamedTuple):
    """The last error of this process, with its number, and its frames, the innermost last."""

    number: int
    error: str
    frames: list[Kept]


class Value(NamedTuple):
    """The value of a variable: as it prints and, where it can be sent, pickled."""

    text: str
    pickled: bytes | None


def last_failure() -> Failure | None:
    """Return the last error that no cell has caught, None when there was no such error."""
    error = getattr(sys, "last_value", None)
    if error is None:
        return None
    if not hasattr(error, "_number_of_failure"):
        error._number_of_failure = next(_numbers)
    kept = [_keep(frame, number) for frame, number in _frames()]
    return Failure(error._number_of_failure, "".join(traceback.format_exception_only(error)).strip(), kept)


def is_last(number: int) -> bool:
    """Return whether the failure with this number is still the last one."""
    return getattr(getattr(sys, "last_value", None), "_number_of_failure", None) == number


def value(frame: int, name: str) -> Value | None:
    """Return a variable of a frame of the last failure, None when the frame has no variable of this name."""
    held, _ = _frames()[frame]
    for names in (held.f_locals, held.f_globals):
        if name in names:
            return Value(_printed(names[name]), _pickled(names[name]))
    return None


def _frames():
    """Return the frames of the last error, the innermost last, each with the number of its line.

    Left out are those of IPython and ipyparallel, which run a cell, or what the notebook has sent, among its names.
    """
    found = list(traceback.walk_tb(sys.last_traceback))
    while found and (found[0][0].f_globals.get("__name__") != "__main__" or _is_line_of_ipyparallel(found[0][0])):
        del found[0]
    return found


def _is_line_of_ipyparallel(frame):
    return frame.f_code.co_filename == "<string>"  # result = function(*arguments)


def _keep(frame, number):
    code = frame.f_code
    # A cell shares its names with all others: take those that stand in it.
    names = code.co_names if frame.f_locals is frame.f_globals else frame.f_locals
    values = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
    told = {name: _short(held) for name, held in values.items() if not _is_program(held)}
    return Kept(code.co_name, code.co_filename, number, linecache.getline(code.co_filename, number).strip(), told)


def _is_program(held):
    return isinstance(held, ModuleType | FunctionType | type)


def _short(held):
    """Return a value in a few letters: of a tensor that would be longer, its type and shape."""
    import torch

    from helpers.ranks.arguments import outline

    if isinstance(held, torch.Tensor):
        text = _printed(held) if held.numel() <= _MOST_LETTERS else ""
        return text if 0 < len(text) <= _MOST_LETTERS and "\n" not in text else outline(held)
    return shortened(_brief.repr(held), _MOST_LETTERS)


def _printed(held):
    try:
        return repr(held)
    except Exception as error:
        return f"<{type(held).__name__}, whose repr raises {type(error).__name__}>"


def _pickled(held):
    import torch

    if isinstance(held, torch.Tensor):
        held = held.detach().cpu().clone()  # what is left out: its storage, if it is a view, its device, its graph
    try:
        pickled = pickle.dumps(held)
    except Exception:  # each class has its own reason
        return None
    # What the cells of the ranks define is not there in the notebook, or is something else of that name.
    return None if b"__main__" in pickled else pickled
