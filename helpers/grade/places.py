"""Whether the helpers on the ranks are those of the course: an answer that replaces what judges it is seen."""

import importlib
import sys
import types


def changed(world) -> str:
    """Return the name of a function of the helpers that some rank has another of; nothing when there is none."""
    if any(state.state != "idle" for state in world.where()):
        return ""  # this answer is not judged right in any case
    for of_rank in world.view.apply_sync(places):
        for module, found in of_rank.items():
            here = _places(importlib.import_module(module))
            for function, place in here.items():
                if found.get(function) != place:
                    return f"{module}.{function}"
    return ""


def places() -> dict:
    """Return for each module of the helpers that is loaded here the file and the line of each of its functions."""
    names = [name for name in sys.modules if name.split(".")[0] == "helpers"]
    return {name: _places(sys.modules[name]) for name in names}


def _places(module):
    found = {}
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            methods = {f"{name}.{method}": of_class for method, of_class in vars(value).items()}
        else:
            methods = {name: value}
        for path, function in methods.items():
            if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                found[path] = (function.__code__.co_filename, function.__code__.co_firstlineno)
    return found
