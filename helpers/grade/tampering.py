"""Detect an answer that has replaced helpers of the course on a rank, such as the code that judges the answer.

The rank itself computes the fingerprints, so an answer that knows this module can still deceive it; see SECURITY.md.
"""

import functools
import hashlib
import importlib
import sys
from collections.abc import Sequence
from types import CodeType, FunctionType

from helpers.checks.exam import Exercise

_COURSE = __name__.partition(".")[0]


def fingerprints(modules: Sequence[str] | None = None, load: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """Return, for each module of the course, the fingerprints of its functions and constants, by name.

    The modules are the given modules, by default all, as far as this process has loaded them. Load the modules `load`
    first.
    """
    for name in load:
        importlib.import_module(name)
    if modules is None:
        modules = [name for name in sys.modules if name.partition(".")[0] == _COURSE]
    return {name: _names_of(sys.modules[name]) for name in modules if name in sys.modules}


def changed(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> str:
    """Return the first name whose fingerprint has changed or is missing, an empty string if there is none."""
    for module, names in before.items():
        for name, fingerprint in names.items():
            if after.get(module, {}).get(name) != fingerprint:
                return f"{module}.{name}"
    return ""


def _names_of(module):
    fingerprints = {}
    for name, value in list(vars(module).items()):
        if isinstance(value, type):
            fingerprints[name] = f"{value.__module__}.{value.__qualname__}"
            if value.__module__ == module.__name__:
                for attribute, member in vars(value).items():
                    if codes := _codes_in(member):
                        fingerprints[f"{name}.{attribute}"] = _digest(codes)
        elif codes := _codes_in(value):
            fingerprints[name] = f"{value.__module__}.{value.__qualname__} {_digest(codes)}"
        elif name.strip("_").isupper() and _is_plain(value):
            fingerprints[name] = repr(value)
    return fingerprints


def _is_plain(value):
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, str | int | float)


def _codes_in(value):
    """Return the code of a function, and of the functions in its closure, which a decorator may have put there."""
    if isinstance(value, staticmethod | classmethod):
        return _codes_in(value.__func__)
    if isinstance(value, property):
        return _codes_in(value.fget)
    if isinstance(value, functools.cached_property):
        return _codes_in(value.func)
    if isinstance(value, Exercise):
        return [code for part in (value.function, value.together, value.before) for code in _codes_in(part)]
    if not isinstance(value, FunctionType):
        return []
    codes = [value.__code__]
    for cell in value.__closure__ or ():
        codes += _codes_in(cell.cell_contents)
    return codes


def _digest(codes):
    return hashlib.sha256(repr([_described(code) for code in codes]).encode()).hexdigest()


def _described(code):
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            constant = _described(constant)
        elif isinstance(constant, frozenset):  # its order differs from process to process
            constant = sorted(map(repr, constant))
        constants.append(constant)
    return code.co_code, code.co_names, code.co_varnames, code.co_filename, code.co_firstlineno, constants
