"""The frames of a rank's last error, which Python keeps with their variables until the next error."""

import itertools
import linecache
import pickle
import re
import reprlib
import sys
import traceback
from types import FunctionType, ModuleType
from typing import NamedTuple

import torch

from helpers.probe.arguments import outline
from helpers.table import shortened

_MOST_LETTERS = 60
_ADDRESS = re.compile(" at 0x[0-9a-f]+")

_numbers = itertools.count(1)


class _Brief(reprlib.Repr):
    """A `Repr` that makes short texts of values, and of the values inside lists and dictionaries."""

    def repr_instance(self, value, level):
        """Return the text of a value of any other class, without the memory address that many classes print."""
        return shortened(_ADDRESS.sub("", " ".join(_printed(value).split())), _MOST_LETTERS)


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
    """The last error of this process: its number, its text, and its frames, the innermost last."""

    number: int
    error: str
    frames: list[Kept]


class Value(NamedTuple):
    """The value of a variable: its repr and, if it can be sent, its pickle."""

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
    python_frame, _ = _frames()[frame]
    for names in (python_frame.f_locals, python_frame.f_globals):
        if name in names:
            return Value(_printed(names[name]), _pickled(names[name]))
    return None


def _frames():
    """Return the frames of the last error, the innermost last, each with the number of its line.

    Leave out the outer frames, in which IPython and ipyparallel run a cell or a function that the notebook sent.
    """
    frames = list(traceback.walk_tb(sys.last_traceback))
    while frames and (frames[0][0].f_globals.get("__name__") != "__main__" or _is_line_of_ipyparallel(frames[0][0])):
        del frames[0]
    return frames


def _is_line_of_ipyparallel(frame):
    return frame.f_code.co_filename == "<string>"  # ipyparallel's own line, result = function(*arguments)


def _keep(frame, number):
    code = frame.f_code
    # All cells share one namespace, so keep only the names that occur in this cell.
    names = code.co_names if frame.f_locals is frame.f_globals else frame.f_locals
    values = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
    variables = {name: _short(value) for name, value in values.items() if not _is_program(value)}
    return Kept(code.co_name, code.co_filename, number, linecache.getline(code.co_filename, number).strip(), variables)


def _is_program(value):
    return isinstance(value, ModuleType | FunctionType | type)


def _short(value):
    """Return a short text of a value: for a tensor with a longer text, its dtype and shape."""
    if isinstance(value, torch.Tensor):
        text = _printed(value) if value.numel() <= _MOST_LETTERS else ""
        return text if 0 < len(text) <= _MOST_LETTERS and "\n" not in text else outline(value)
    return shortened(_brief.repr(value), _MOST_LETTERS)


def _printed(value):
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def _pickled(value):
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().clone()  # without its graph, its device, and the rest of a shared storage
    try:
        pickled = pickle.dumps(value)
    except Exception:  # each class has its own reason
        return None
    # A class that the cells of the ranks define does not exist in the notebook, or is a different class of that name.
    return None if b"__main__" in pickled else pickled
