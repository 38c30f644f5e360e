"""A check of 18_reinforcement_learning: the weights of the steps of several episodes, returns less their mean."""

import os

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_DISCOUNT = 0.99
_TASKS = (
    [[1.0, 1.0], [1.0, 1.0, 1.0]],
    [[1.0, 2.0, 3.0], [5.0], [0.0, 0.0, 10.0, 0.0]],
)


def my_weights(world) -> Verdict:
    """Check `my_weights(episodes)`: the discounted return of each step of each episode, minus the mean of them all."""

    def check(runs):
        for episodes, found in zip(_TASKS, runs[0].result, strict=True):
            _require_weights(episodes, found)
        return "Each step has the return of its own episode, less the mean of all returns."

    return judge(world, "my_weights", check, _run)


def _require_weights(episodes, found):
    if not isinstance(found, list):
        raise Wrong(f"my_weights returned {found}, and the target is a list of numbers.")
    steps = [(episode, step) for episode, rewards in enumerate(episodes) for step in range(len(rewards))]
    if len(found) != len(steps):
        raise Wrong(f"The episodes have {len(steps)} steps, and my_weights returned {len(found)} weights.")
    target = _less_mean(_apart(episodes))
    if _same(found, target):
        return
    pairs = enumerate(zip(found, target, strict=True))
    wrong = next(place for place, (one, other) in pairs if not _close(one, other))
    episode, step = steps[wrong]
    why = next((f" {reason}" for reason, other in _mistakes(episodes).items() if _same(found, other)), "")
    raise Wrong(
        f"Of the episodes {episodes} step {step} of episode {episode} has weight {found[wrong]:.3f}, and the target is "
        f"{target[wrong]:.3f}.{why}"
    )


def _mistakes(episodes):
    """Return what plausible mistakes come to."""
    joined = [reward for rewards in episodes for reward in rewards]
    returns = _apart(episodes)
    back = [value for rewards in episodes for value in _returns(rewards[::-1])]
    return {
        "No mean is subtracted.": returns,
        "An episode goes on into the next one: begin each with nothing to follow.": _less_mean(_returns(joined)),
        "Each episode has a mean of its own: subtract that of all.": [
            value for rewards in episodes for value in _less_mean(_returns(rewards))
        ],
        "The rewards are not discounted.": _less_mean(
            [sum(rewards[step:]) for rewards in episodes for step in range(len(rewards))]
        ),
        "That counts what came before the step, not what follows.": _less_mean(back),
        "The order of the steps is turned round.": _less_mean(
            [value for rewards in episodes for value in _returns(rewards)[::-1]]
        ),
    }


def _apart(episodes):
    return [value for rewards in episodes for value in _returns(rewards)]


def _returns(rewards):
    returns, following = [], 0.0
    for reward in reversed(rewards):
        following = reward + _DISCOUNT * following
        returns.append(following)
    return returns[::-1]


def _less_mean(numbers):
    mean = sum(numbers) / len(numbers)
    return [number - mean for number in numbers]


def _same(numbers, others):
    return all(_close(one, other) for one, other in zip(numbers, others, strict=True))


def _close(one, other):
    return abs(one - other) < 1e-3


def _run():
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    runs = [call_answer("my_weights", [[list(rewards) for rewards in episodes]]) for episodes in _TASKS]
    failed = [run for run in runs if run.error]
    return (failed or runs)[0]._replace(result=[_numbers(run.result) for run in runs])


def _numbers(result):
    """Return a tensor or a sequence of numbers as a list of floats, and anything else as the name of its type."""
    if hasattr(result, "tolist"):
        result = result.tolist()
    try:
        return [float(number) for number in result]
    except (TypeError, ValueError):
        return f"a {type(result).__name__}" if result is not None else "None"
