"""Checks of the exercises: each runs the learner's function on the ranks, and says what is wrong and on which rank.

`checks.TOPIC.NAME(world)` judges the function or class NAME of the lesson NN_TOPIC. Here belongs the judge, and one
module for each notebook: mostly sentences. How a rank is reached or watched is not written here but asked of `look` and
`measure`.
"""

import importlib
import pkgutil

from helpers.checks.accepting import accepted
from helpers.checks.predicting import predicted

__all__ = ["accepted", "predicted"]


def __getattr__(name):
    """Return the module of a lesson. It is imported when a check of the lesson is asked for, because it needs torch."""
    if name in __dir__():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*__all__, *(module.name for module in pkgutil.iter_modules(__path__))]
