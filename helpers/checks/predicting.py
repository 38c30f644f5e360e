"""Compare what a learner predicted with the result: one line in the notebook, and its sentences in a file.

`predictions/NN_topic.toml` has a table for each prediction of a lesson, under the name of the variable that the learner
fills in. No other lesson may use that name:

    [my_busiest_link]
    right = "Shown for a right prediction."
    wrong = "The reason, shown for a wrong prediction after both values."
    unit = "tensors"  # behind numbers; may be left out
    within = 0.05     # relative tolerance; the default is 0 for integers and 0.01 for floats
    elsewhere = [[8, 1.75]]  # for a formula: other arguments, each list with the result at its end; may be left out
"""

import re
import sys
from collections.abc import Mapping, Set
from functools import cache
from numbers import Number
from pathlib import Path

from helpers.course import read_toml
from helpers.errors import WorldError

_MANY = 12  # members of a set; larger sets are not shown
_FOLDER = Path(__file__).parent / "predictions"
_PLURAL = re.compile(r"(?<=ch|ss)es$|(?<=\w{3})s$")  # the ending of "batches", "passes", "bytes"; not of "ms"


class Prediction:
    """The verdict on a prediction: `right` is None until the learner has typed something. It shows as its sentence."""

    def __init__(self, right: bool | None, sentence: str):
        self.right = right
        self.sentence = sentence

    def __bool__(self):
        return bool(self.right)

    def __repr__(self):
        return {None: "Not yet. ", True: "Right. ", False: "No. "}[self.right] + self.sentence


def predicted(name: str, came, *arguments) -> Prediction:
    """Compare the notebook's variable `name`, the learner's prediction, with the result `came`.

    `came` is a number, a name, True or False, a set, a list or tuple in order, or a dict of such values; numbers and
    arrays of numpy and torch count as plain numbers and lists. A prediction that is a function, a formula, is called
    with `arguments`, and must also fit the results under `elsewhere` in the file. While any part of the prediction is
    still `...` or None, the sentence does not reveal the result. A prediction of the wrong type gets a sentence that
    names the expected type. Raises `WorldError` when no lesson has a prediction of that name.
    """
    if name not in _words():
        raise WorldError(f"No lesson has a prediction {name!r}; helpers/checks/predictions lists all of them.")
    variables = sys._getframe(1).f_globals
    if name not in variables:
        return Prediction(None, f"There is no `{name}`: run the cell with your prediction, then this cell.")
    mine, words = variables[name], _words()[name]
    if not callable(mine):
        return _judge(name, _plain(mine), _plain(came), words)
    verdict = _judge_formula(name, mine, arguments, came, words)
    for *others, result in words.get("elsewhere", []) if verdict.right else []:
        there = _judge_formula(name, mine, others, result, words)
        if not there.right:
            call = f"{name}({', '.join(map(str, others))})"
            sentence = there.sentence[0].lower() + there.sentence[1:]
            return Prediction(False, f"It fits your run, but not `{call}`: {sentence}")
    return verdict


@cache
def _words():
    """Return the sentences of every prediction of the course, by its name."""
    words = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        of_lesson = read_toml(path)
        if twice := words.keys() & of_lesson.keys():
            raise ValueError(f"{path.name} has predictions that another lesson has, too: {', '.join(sorted(twice))}")
        words |= of_lesson
    return words


def _judge_formula(name, formula, arguments, came, words):
    try:
        mine = formula(*arguments)
    except Exception as error:
        return Prediction(False, f"`{name}` raised {type(error).__name__}: {error}.")
    if mine is None:
        return Prediction(None, f"`{name}` returned None, expected {_wanted(_plain(came))}. Is a `return` missing?")
    if _has_dots(mine):
        return Prediction(None, f"Replace the dots in `{name}` with a formula.")
    return _judge(name, _plain(mine), _plain(came), words)


def _judge(name, mine, came, words):
    if isinstance(came, Mapping) and not came:  # the cell that measures raised an error before the first value
        return Prediction(None, f"There is no result for `{name}`: run the cell that measures it, then this one.")
    if _has_dots(mine):
        return Prediction(None, f"Replace the dots in `{name}` with {_wanted(came)}.")
    if misfit := _misfit(name, mine, came):
        return Prediction(False, misfit)
    parts = {f" for {key}": (mine[key], came[key]) for key in came} if isinstance(came, Mapping) else {"": (mine, came)}
    wrong = [
        _difference(one, other, part, words) for part, (one, other) in parts.items() if not _agree(one, other, words)
    ]
    if wrong:
        said = "; ".join(wrong)
        return Prediction(False, f"{said[0].upper()}{said[1:]}. {words['wrong']}")
    return Prediction(True, words["right"])


def _plain(value):
    """Return what numpy or torch hold as plain numbers and lists, and everything else as it is."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _has_dots(mine):
    if isinstance(mine, Mapping):
        return any(map(_has_dots, mine.values()))
    return mine is None or mine is ... or isinstance(mine, Set | list | tuple) and any(part is ... for part in mine)


def _wanted(came):
    """Describe the type of the result without revealing it."""
    if isinstance(came, Mapping):
        return f"{_wanted(next(iter(came.values())))} for each key"
    kinds = {bool: "True or False", Number: "a number", str: "a name in quotes", Set: "the members of the set"}
    return next((words for kind, words in kinds.items() if isinstance(came, kind)), "a list in the right order")


def _misfit(name, mine, came):
    """Return a sentence if the prediction has the wrong type, otherwise an empty string."""
    if isinstance(came, Mapping):
        if not isinstance(mine, Mapping) or mine.keys() != came.keys():
            return f"`{name}` is {mine!r}, expected a dict with the keys {', '.join(map(repr, came))}."
        return next(filter(None, (_misfit(f"{name}[{key!r}]", mine[key], came[key]) for key in came)), "")
    kinds = bool, Number, str, Set, list | tuple
    kind = next(kind for kind in kinds if isinstance(came, kind))
    several = kind in kinds[3:]
    fits = isinstance(mine, Set | list | tuple | range) if several else isinstance(mine, kind)
    if fits and kind is Set:
        try:
            set(mine)
        except TypeError:  # a list among the members
            fits = False
    if fits and several and came and all(isinstance(part, Number) for part in came):
        if any(isinstance(part, str) and part.strip().isdecimal() for part in mine):
            return f"`{name}` is {mine!r}, expected numbers without quotes."
    if fits and isinstance(mine, bool) == isinstance(came, bool):
        return ""
    return f"`{name}` is {mine!r}, expected {_wanted(came)}."


def _agree(mine, came, words):
    if isinstance(came, str):
        mine, came = _folded(mine), _folded(came)
        return mine == came or mine.endswith(f".{came}")  # `rpc.shutdown` is `shutdown`
    if isinstance(came, Set):
        return set(map(_folded, mine)) == set(map(_folded, came))
    if isinstance(came, list | tuple):
        return list(map(_folded, mine)) == list(map(_folded, came))
    within = words.get("within", 0.01 if isinstance(came, float) else 0)
    try:
        return abs(mine - came) <= within * abs(came)
    except OverflowError:  # an integer beyond the largest float
        return False


def _folded(value):
    """Return a name without capitals, parentheses at its end, and spaces around it, and anything else as it is."""
    return value.strip().casefold().removesuffix("()") if isinstance(value, str) else value


def _difference(mine, came, part, words):
    """Say what the learner said and what was expected; of sets with many members, only how they differ."""
    if not isinstance(came, Set) or len(came) <= _MANY:
        return f"you said {_shown(mine, words)}{part}, expected {_shown(came, words)}"
    mine = set(mine)
    differences = {"missing": came - mine, "wrong": mine - came}
    which = [
        f"{len(members)} {'is' if len(members) == 1 else 'are'} {what}, such as {min(members, key=str)}"
        for what, members in differences.items()
        if members
    ]
    return f"you said {len(mine)} members{part}, expected {len(came)}: {', and '.join(which)}"


def _shown(value, words):
    if isinstance(value, Set):
        try:
            members = sorted(value)
        except TypeError:  # numbers and names together
            members = sorted(value, key=str)
        return f"{{{', '.join(map(str, members))}}}"
    if isinstance(value, bool) or not isinstance(value, Number):
        return str(value)
    number = str(value)
    if isinstance(value, float):
        number = f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"  # 864213, and not 8.642e+05
    if "unit" not in words:
        return number
    return f"{number} {_PLURAL.sub('', words['unit']) if value == 1 else words['unit']}"
