"""Figures of 22_reinforcement_learning: the mean of the last rewards, a death, and the order of the messages."""

import pytest
from matplotlib import pyplot as plt

from helpers import plots
from helpers.measure.calls import Call
from helpers.plots.reinforcement_learning import _answered


@pytest.fixture(autouse=True)
def without_windows():
    plt.switch_backend("agg")
    yield
    plt.close("all")


def lines(rounds):
    """Return the lines of the figure by their labels."""
    (axes,) = plots.episode_rewards(rounds, by_chance=22.0).axes
    return {line.get_label(): line for line in axes.lines}


def test_the_curve_is_the_mean_of_the_last_20_rewards():
    curve = lines([[2.0 * number, 2.0 * number + 1] for number in range(15)])["mean of the last 20"].get_ydata()
    assert len(curve) == 30
    assert list(curve[:3]) == [0.0, 0.5, 1.0]
    assert curve[-1] == sum(range(10, 30)) / 20


def test_a_death_is_before_the_first_episode_of_a_smaller_round():
    assert list(lines([[1.0, 2.0], [3.0, 4.0], [5.0], [6.0]])["an observer died"].get_xdata()) == [4.5, 4.5]
    assert "an observer died" not in lines([[1.0, 2.0], [3.0, 4.0]])
    assert "an observer died" not in lines([])


def test_the_title_says_that_the_training_goes_on_after_a_death():
    titles = [
        plots.episode_rewards(rounds, by_chance=22.0).axes[0].get_title(loc="left")
        for rounds in ([[1.0, 2.0], [5.0]], [[1.0, 2.0], [3.0, 4.0]], [[1.0], []], [])
    ]
    assert titles == ["Training goes on after an observer died", *3 * ["Rewards while the agent learns"]]


def test_a_call_is_answered_before_the_next_call_of_the_observer():
    type_of, first, second = (
        Call(kind, "observer1", "agent", function, 0, 0, begin, end)
        for kind, function, begin, end in (
            ("async", "_rref_typeof_on_owner", 1.0, 2.5),
            ("sync", "select_action", 2.0, 3.5),
            ("sync", "report_reward", 3.0, 4.0),
        )
    )
    made = [type_of, first, second]
    assert [_answered(made, call) for call in made] == [2.0, 3.0, 4.0]
