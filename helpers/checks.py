"""Checks of the exercises: each runs the learner's function on the ranks and says what is wrong with it, and where."""

from typing import NamedTuple

import ipyparallel as ipp

# Longer than the timeout of the process group that an exercise uses, so that a rank that is stuck can say so itself.
_SECONDS_TO_ANSWER = 20


class Verdict:
    """What a check has found; it counts as true when the exercise is solved, and shows as its message."""

    def __init__(self, passed: bool, message: str):
        self.passed = passed
        self.message = message

    def __bool__(self):
        return self.passed

    def __repr__(self):
        return ("Solved. " if self.passed else "Not yet. ") + self.message


class Run(NamedTuple):
    """What one rank made of the learner's function: its result, the messages it counted, and the error it raised."""

    result: object
    messages: list
    error: str


def run_on_ranks(world, function: str, *arguments) -> list[Run]:
    """Call the function of that name, which the learner has defined in a `%%px` cell, on every rank at once.

    Returns one `Run` for each rank, in the order of the ranks.
    """
    answers = world.view.apply_async(_run, function, arguments)
    return answers.get(_SECONDS_TO_ANSWER)


def _run(function, arguments):
    import __main__

    from helpers.traffic import recorded

    with recorded() as messages:
        try:
            return Run(vars(__main__)[function](*arguments), messages, "")
        except Exception as error:
            return Run(None, messages, f"{type(error).__name__}: {error}")
