"""Completions and descriptions of the learner's variables on a rank, for Tab and Shift-Tab in a cell for the ranks.

These functions look up names and attributes, but call none of the learner's code, not even a property or `__repr__`.
"""

import builtins
import inspect

from IPython.core.completer import IPCompleter, provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

# The notebook itself completes magics and files, which are the same there.
_MATCHERS_OF_THE_NOTEBOOK = ["IPCompleter.magic_matcher", "IPCompleter.file_matcher"]
# Classes whose own `__getattr__` only looks up a value, as in `model.layer.weight`.
_ATTRIBUTES_MAY_BE_READ = {"allowed_getattr_external": {("torch", "nn", "Module")}}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LONGEST_VALUE = 200


def complete(code: str, offset: int) -> list[tuple[str, str, str]]:
    """Return the completions at this offset of the code, as triples of the text to replace, the new text, and the type.

    IPython limits their number.
    """
    with provisionalcompleter():
        completions = list(_completer().completions(code, offset))
    return [(code[completion.start : offset], completion.text, completion.type) for completion in completions]


def _completer():
    shell = InteractiveShell.instance()
    # The thread of the cells may be using the shell's own completer. jedi takes seconds to start.
    completer = IPCompleter(shell, shell.user_ns, shell.user_global_ns, use_jedi=False)
    completer.disable_matchers = [*completer.disable_matchers, *_MATCHERS_OF_THE_NOTEBOOK]
    if completer.has_trait("policy_overrides"):  # since IPython 9
        completer.policy_overrides = _ATTRIBUTES_MAY_BE_READ
    return completer


def describe(name: str) -> str | None:
    """Return the signature, the docstring and the type of the object with this dotted name; None if it is not found.

    For a number, a text or a tensor, include the value or the shape.
    """
    try:
        thing = _find(name)
    except (AttributeError, KeyError):
        return None
    sections = [*_signature(name, thing), *_value(thing), f"Type:      {type(thing).__qualname__}"]
    text = inspect.getdoc(thing)
    return "\n".join([*sections, "", text]) if text and not isinstance(thing, _PLAIN) else "\n".join(sections)


def _find(name):
    first, *others = name.split(".")
    variables = InteractiveShell.instance().user_ns
    thing = variables[first] if first in variables else vars(builtins)[first]
    for part in others:
        class_attribute = getattr(type(thing), part, None)
        # Reading a property would run the learner's code.
        thing = class_attribute if isinstance(class_attribute, property) else getattr(thing, part)
    return thing


def _signature(name, thing):
    if not callable(thing):
        return []
    try:
        return [f"Signature: {name.split('.')[-1]}{inspect.signature(thing)}"]
    except (TypeError, ValueError):  # most functions written in C have no signature; their docstrings may show it
        return []


def _value(thing):
    import torch

    if type(thing) is torch.Tensor or type(thing) is torch.nn.Parameter:
        return [f"Value:     shape {tuple(thing.shape)}, {thing.dtype}, on {thing.device}"]
    if type(thing) not in _PLAIN:
        return []
    value = repr(thing)
    return [f"Value:     {value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + ' ...'}"]
