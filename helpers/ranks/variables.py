"""What a rank says of the learner's variables, for Tab and Shift-Tab in a cell that will run there.

Names and attributes are looked up, but nothing is called: no property and no `__repr__` of the learner's.
"""

import builtins
import inspect

from IPython.core.completer import IPCompleter, provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

# The notebook itself completes these: the files are the same there.
_MATCHERS_OF_THE_NOTEBOOK = ["IPCompleter.magic_matcher", "IPCompleter.file_matcher"]
# Classes whose own `__getattr__` just looks something up, as in `model.layer.weight`.
_ATTRIBUTES_MAY_BE_READ = {"allowed_getattr_external": {("torch", "nn", "Module")}}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LONGEST_VALUE = 200


def complete(code: str, offset: int) -> list[tuple[str, str, str]]:
    """Return the completions at this place of the code: of each the text that it replaces, its own text, and its type.

    IPython limits their number.
    """
    with provisionalcompleter():
        found = list(_completer().completions(code, offset))
    return [(code[one.start : offset], one.text, one.type) for one in found]


def _completer():
    shell = InteractiveShell.instance()
    # Not the completer of the shell, which the thread of the cells may be using; and jedi takes seconds to start.
    completer = IPCompleter(shell, shell.user_ns, shell.user_global_ns, use_jedi=False)
    completer.disable_matchers = [*completer.disable_matchers, *_MATCHERS_OF_THE_NOTEBOOK]
    if completer.has_trait("policy_overrides"):  # IPython 9 has it
        completer.policy_overrides = _ATTRIBUTES_MAY_BE_READ
    return completer


def describe(name: str) -> str | None:
    """Return the signature, the docstring and the type of the object with this dotted name; None when there is none.

    For a number, a text or a tensor return the value or the shape.
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
        of_class = getattr(type(thing), part, None)
        # A property would run the learner's code.
        thing = of_class if isinstance(of_class, property) else getattr(thing, part)
    return thing


def _signature(name, thing):
    if not callable(thing):
        return []
    try:
        return [f"Signature: {name.split('.')[-1]}{inspect.signature(thing)}"]
    except (TypeError, ValueError):  # most functions written in C have none; their docstrings may
        return []


def _value(thing):
    import torch

    if type(thing) is torch.Tensor or type(thing) is torch.nn.Parameter:
        return [f"Value:     shape {tuple(thing.shape)}, {thing.dtype}, on {thing.device}"]
    if type(thing) not in _PLAIN:
        return []
    value = repr(thing)
    return [f"Value:     {value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + ' ...'}"]
