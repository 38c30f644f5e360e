"""Checks of the exercises: each runs the learner's function on the ranks, and says what is wrong and on which rank.

`checks.TOPIC.NAME(world)` judges the function or class NAME of the lesson NN_TOPIC. `exam` defines what an exercise is,
`judging` judges its outcomes, and each notebook has a module with its exercises. `look` and `measure` observe the
ranks.
"""

import importlib
import pkgutil

from helpers.checks.accepting import accepted
from helpers.checks.predicting import predicted

__all__ = ["accepted", "predicted"]


def __getattr__(name):
    """Return the module of a lesson, which is imported only when it is used, because it imports torch."""
    if name in __dir__():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*__all__, *(module.name for module in pkgutil.iter_modules(__path__))]
