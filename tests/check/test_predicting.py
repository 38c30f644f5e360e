"""`checks.predicted`: nothing is said before something is typed, and then the two values and why."""

import numpy as np
import pytest
import torch

from helpers import WorldError
from helpers.checks import predicting

NAME = "my_prediction"
WORDS = {"right": "So it is.", "wrong": "There is a reason."}


@pytest.fixture(autouse=True)
def words(monkeypatch):
    """The sentences of one prediction, which a test may change."""
    words = dict(WORDS)
    monkeypatch.setattr(predicting, "_words", lambda: {NAME: words})
    return words


def says(mine, came, *arguments):
    """Return what a notebook shows whose variable holds `mine`."""
    notebook = {"predicted": predicting.predicted, NAME: mine, "came": came, "arguments": arguments}
    return repr(eval(f"predicted({NAME!r}, came, *arguments)", notebook))


@pytest.mark.parametrize(
    ("empty", "came", "wanted"),
    [
        (..., 3, "a number"),
        (None, 3, "a number"),
        (lambda n: ..., 3, "a formula"),
        (..., True, "True or False"),
        (..., "a ring", "a name in quotes"),
        ({...}, {1, 2}, "the members of the set"),
        ([1, ...], [1, 2], "a list in the right order"),
        ({"a": 1, "b": ...}, {"a": 1, "b": 2}, "a number for each key"),
    ],
)
def test_nothing_is_said_before_everything_is_typed(empty, came, wanted):
    arguments = (4,) if callable(empty) else ()
    assert says(empty, came, *arguments) == f"Not yet. Replace the dots in `my_prediction` with {wanted}."


@pytest.mark.parametrize(
    ("mine", "came"),
    [
        (192, 192),
        (192.0, np.int64(192)),
        (0.3334, 1 / 3),
        (5, torch.tensor(5)),
        (True, True),
        (False, np.False_),
        (" The Ring", "the ring"),
        ("rpc.shutdown()", "shutdown"),
        ("shutdown()", "shutdown"),
        ({2, 1}, {1, 2}),
        ([1, 2], {1, 2}),
        ({"Gradients", " weights"}, {"gradients", "weights"}),
        (["LOAD", "average"], ["load", "average"]),
        ((3, 1, 2), [3, 1, 2]),
        (range(3), [0, 1, 2]),
        ([1, 2], np.array([1, 2])),
        ({"a": 1, "b": 2.0}, {"b": 2, "a": 1}),
    ],
)
def test_a_right_prediction(mine, came):
    assert says(mine, came) == "Right. So it is."


def test_a_formula_is_called_with_the_arguments():
    assert says(lambda n, B: n * B, 12, 3, 4) == "Right. So it is."
    assert says(lambda n, B: n + B, 12, 3, 4) == "No. You said 7, expected 12. There is a reason."
    sentence = "Not yet. `my_prediction` returned None, expected a number. Is a `return` missing?"
    assert says(lambda n, B: None, 12, 3, 4) == sentence


@pytest.mark.parametrize(
    ("mine", "came", "values"),
    [
        (144, 192, "You said 144, expected 192"),
        (0.32, 1 / 3, "You said 0.32, expected 0.3333"),
        (True, False, "You said True, expected False"),
        ("naive", "ring", "You said naive, expected ring"),
        ("graceful_shutdown", "shutdown", "You said graceful_shutdown, expected shutdown"),
        ("shutdown.rpc", "shutdown", "You said shutdown.rpc, expected shutdown"),
        ({2, 0}, {1}, "You said {0, 2}, expected {1}"),
        ({1, "a"}, {1, 2}, "You said {1, a}, expected {1, 2}"),
        (10**400, 0.5, f"You said {10**400}, expected 0.5"),
        ([2, 1], [1, 2], "You said [2, 1], expected [1, 2]"),
        (
            set(range(1, 20)) | {-5},
            set(range(21)),
            "You said 20 members, expected 21: 2 are missing, such as 0, and 1 is wrong, such as -5",
        ),
        (range(15), set(range(16)), "You said 15 members, expected 16: 1 is missing, such as 15"),
        ({"a": 1, "b": 2}, {"a": 3, "b": 2}, "You said 1 for a, expected 3"),
        ({"a": 1, "b": 2}, {"a": 3, "b": 4}, "You said 1 for a, expected 3; you said 2 for b, expected 4"),
    ],
)
def test_a_wrong_prediction_shows_both_values_and_the_reason(mine, came, values):
    assert says(mine, came) == f"No. {values}. There is a reason."


@pytest.mark.parametrize(
    ("mine", "came", "misfit"),
    [
        ("192", 192, "`my_prediction` is '192', expected a number."),
        (True, 1, "`my_prediction` is True, expected a number."),
        (1, True, "`my_prediction` is 1, expected True or False."),
        (3, "ring", "`my_prediction` is 3, expected a name in quotes."),
        (3, {1}, "`my_prediction` is 3, expected the members of the set."),
        ([[0]], {0}, "`my_prediction` is [[0]], expected the members of the set."),
        ({"0"}, {0}, "`my_prediction` is {'0'}, expected numbers without quotes."),
        ([1, "2"], [1, 2], "`my_prediction` is [1, '2'], expected numbers without quotes."),
        ("ab", ["a", "b"], "`my_prediction` is 'ab', expected a list in the right order."),
        (3, {"a": 1}, "`my_prediction` is 3, expected a dict with the keys 'a'."),
        ({"b": 1}, {"a": 1}, "`my_prediction` is {'b': 1}, expected a dict with the keys 'a'."),
        ({"a": "1"}, {"a": 1}, "`my_prediction['a']` is '1', expected a number."),
    ],
)
def test_a_prediction_of_another_kind_gets_a_sentence(mine, came, misfit):
    assert says(mine, came) == f"No. {misfit}"


@pytest.mark.parametrize("mine", [{"a": 1}, {"a": ...}, ...])
def test_a_measurement_that_failed_says_nothing_about_the_prediction(mine):
    assert (
        says(mine, {})
        == "Not yet. There is no result for `my_prediction`: run the cell that measures it, then this one."
    )


def test_a_formula_that_raises():
    assert says(lambda n: 1 / 0, 12, 3) == "No. `my_prediction` raised ZeroDivisionError: division by zero."


def test_a_formula_must_fit_elsewhere_too(words):
    words["elsewhere"] = [[2, 2], [3, 6]]
    assert says(lambda n: n * (n - 1), 12, 4) == "Right. So it is."
    wrong = "No. It fits your run, but not `my_prediction(2)`: you said 6, expected 2. There is a reason."
    assert says(lambda n: 3 * n, 12, 4) == wrong
    assert says(lambda n: 3 * n, 6, 3) == "No. You said 9, expected 6. There is a reason."
    raised = "No. It fits your run, but not `my_prediction(2)`: `my_prediction` raised KeyError: 2."
    assert says(lambda n: {4: 12}[n], 12, 4) == raised
    words["elsewhere"] = [[2, {"messages": 2, "tensors": 4}]]
    formula = {"messages": 6, "tensors": 12}
    wrong = "you said 6 for messages, expected 2; you said 12 for tensors, expected 4. There is a reason."
    assert says(lambda n: formula, formula, 4) == f"No. It fits your run, but not `my_prediction(2)`: {wrong}"


def test_a_unit_and_a_tolerance(words):
    words |= {"unit": "bytes", "within": 0.1}
    assert says(95, 100) == "Right. So it is."
    assert says(80, 100) == "No. You said 80 bytes, expected 100 bytes. There is a reason."


@pytest.mark.parametrize("unit, one", [("tensors", "tensor"), ("passes", "pass"), ("ms", "ms"), ("times as far",) * 2])
def test_one_of_a_unit_is_singular(words, unit, one):
    words["unit"] = unit
    assert says(1, 2) == f"No. You said 1 {one}, expected 2 {unit}. There is a reason."


def test_a_name_that_is_missing():
    notebook = {"predicted": predicting.predicted}
    said = repr(eval(f"predicted({NAME!r}, 3)", notebook))
    assert said == "Not yet. There is no `my_prediction`: run the cell with your prediction, then this cell."
    with pytest.raises(WorldError, match="^No lesson has a prediction 'my_other'"):
        predicting.predicted("my_other", 3)


def test_it_counts_as_true_only_when_it_is_right():
    assert eval(f"predicted({NAME!r}, 3)", {"predicted": predicting.predicted, NAME: 3})
    assert not eval(f"predicted({NAME!r}, 3)", {"predicted": predicting.predicted, NAME: 4})
    assert not eval(f"predicted({NAME!r}, 3)", {"predicted": predicting.predicted, NAME: ...})
