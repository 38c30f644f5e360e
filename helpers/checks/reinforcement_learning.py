"""Exercises of 20_reinforcement_learning: an agent on rank 0, observers on the others."""

import os
import random
import time
import warnings
from typing import NamedTuple

import numpy as np
import torch.distributed.rpc as rpc

from helpers.checks.exam import AnswerError, Foreign, answer, exercise, missing, number, plain, show
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import answer_with_rpc, one_line_errors, rpc_runs

_DISCOUNT = 0.99
_EPISODES = (
    [[1.0, 1.0], [1.0, 1.0, 1.0]],
    [[1.0, 2.0, 3.0], [5.0], [0.0, 0.0, 10.0, 0.0]],
)
_OWN = ("_rref_typeof_on_owner", "_known")  # calls by torch and by this check
_stage = []  # on the agent: the object of the learner that keeps the rewards


@exercise
def my_episode(exam):
    """Check `my_episode(agent, environment, name)`: an episode with two calls a step, and its end."""
    exam.on_rank(_start_rpc)
    if exam.rank == 0:
        for observer, played in exam.on_rank(_play_for_notes).items():
            _require_played(exam, observer, played, "my_episode", 2 * _steps(observer))
            end = "terminated" if _falls(observer) else "truncated"
            exam.require(
                isinstance(played.result, str) and played.result == end,
                f"{observer} returned {show(played.result)}, expected {end!r}.",
            )
    return "Each observer asked the agent for every action, and reported every reward before the next one."


@exercise
def my_weights(exam):
    """Check `my_weights(episodes)`: the discounted return of each step, minus the mean of all returns."""
    if exam.rank == 0:
        for episodes in _EPISODES:
            result = exam.call([list(rewards) for rewards in episodes])
            weights = _floats(result)
            steps = [(episode, step) for episode, rewards in enumerate(episodes) for step in range(len(rewards))]
            if not exam.require(
                weights is not None, f"my_weights returned {_kind(result)}, expected a list of numbers."
            ):
                continue
            if exam.require(
                len(weights) == len(steps),
                f"my_weights returned {len(weights)} weights, expected {len(steps)}, one for each step.",
            ):
                _require_weights(exam, episodes, steps, weights)
    return "Each step has the return of its own episode, less the mean of all returns."


@exercise
def returns_of(exam):
    """Check `returns_of(arrived)`: the return of each step, by observer, in the order of arrival."""
    if exam.rank == 0:
        for arrived in _arrivals():
            result = exam.call(list(arrived))
            returns = _floats(result)
            if not exam.require(
                returns is not None, f"The agent returned {_kind(result)}, expected a list of numbers."
            ):
                continue
            exam.require(
                len(returns) == len(arrived),
                f"The agent returned {len(returns)} returns, expected {len(arrived)}, one for each reward.",
            )
            first = ", ".join(observer for observer, _ in arrived[:6])
            for place, (found, expected) in enumerate(zip(returns, _returns_of(arrived), strict=False)):
                exam.require(
                    _close(found, expected),
                    f"Of the rewards of {first} ... the one in place {place}, of {arrived[place][0]}, has return "
                    f"{found:.3f}, expected {expected:.3f}.",
                )
    return "Every step has the return of its own observer's episode, in the order of arrival."


@exercise
def run_episode(exam):
    """Check `Scores` and `run_episode(agent, environment, name)`: each reward is on the agent before the next step."""
    exam.on_rank(_start_rpc)
    observers = [f"observer{rank}" for rank in range(1, exam.n)]
    if exam.rank == 0 and exam.require(
        exam.on_rank(_has_scores), "Rank 0 has no class `Scores`: run the cell that defines it, then this check."
    ):
        for observer, played in exam.on_rank(_play_for_scores).items():
            _require_played(exam, observer, played, "run_episode", _steps(observer) + 1)
    counts = ", ".join(f"{_steps(observer) + 1} calls for {_steps(observer)} steps" for observer in observers)
    return f"The observers made {counts}, and the agent knew every reward before the next step."


class _Played(NamedTuple):
    """The episode of one observer.

    `wrong` is the first step with a wrong action: its number, the action, and the right one. `known` says for every
    step how many rewards of this observer the agent knew, and `rewards` lists the rewards it knows in the end.
    """

    result: object
    error: str
    calls: int
    wrong: tuple | None
    known: list[int]
    rewards: list


def _require_played(exam, observer, played, function, most):
    rank, steps, expected = observer.removeprefix("observer"), _steps(observer), _rewards(observer)
    exam.require(
        played.error != missing(function),
        f"Rank {rank} has no function `{function}`: run the cell that defines it, then this check.",
    )
    exam.require(not played.error, f"Rank {rank} raised {played.error}")
    exam.require(len(played.known) == steps, f"{observer} played {len(played.known)} steps, expected {steps}.")
    for step, known in enumerate(played.known):
        exam.require(
            known == step, f"When {observer} took step {step}, the agent knew {known} of its rewards, expected {step}."
        )
    rewards = list(map(number, played.rewards))
    # No step follows the last reward, so the episode may return it.
    last_at_home = rewards == expected[:-1] and expected[-1] in _numbers_in(played.result)
    exam.require(
        rewards == expected or last_at_home,
        f"The agent holds the rewards {played.rewards} of {observer}, expected {expected}.",
    )
    if played.wrong:
        step, action, right = played.wrong
        exam.refuse(f"At step {step} {observer} took action {show(action)}, expected the policy's action {right}.")
    exam.require(played.calls <= most, f"{observer} made {played.calls} calls for {steps} steps, expected {most}.")


class Line:
    """An environment in which the right action is known and all rewards differ.

    At every step it asks the agent how many rewards of this observer it knows.
    """

    def __init__(self, observer: str):
        self.observer = observer
        self.step_number = 0
        self.known = []
        self.wrong = None

    def reset(self, seed=None):
        """Return the first observation, as gymnasium does."""
        return self._observation(), {}

    def step(self, action):
        """Take an action, and return what gymnasium returns."""
        if self.step_number == _steps(self.observer):
            raise RuntimeError("the environment was asked for a step after its episode had ended")
        if not self.wrong and action != (right := _policy(self._observation())):
            self.wrong = self.step_number, action, right
        self.known.append(rpc.rpc_sync("agent", _known, args=(self.observer,)))
        reward = _rewards(self.observer)[self.step_number]
        self.step_number += 1
        over, falls = self.step_number == _steps(self.observer), _falls(self.observer)
        return self._observation(), reward, over and falls, over and not falls, {}

    def _observation(self):
        rank = int(self.observer.removeprefix("observer"))
        return np.array([rank, self.step_number], dtype=np.float32)


class Notes:
    """The agent of a check: it knows the right actions, and keeps the rewards of each observer."""

    def __init__(self):
        self.rewards = {}

    def select_action(self, name, observation):
        """Return the right action."""
        return _policy(observation)

    def report_reward(self, name, reward):
        """Keep a reward after a delay, so that an observer that does not wait asks for the next action earlier."""
        time.sleep(0.05)
        self.rewards.setdefault(name, []).append(reward)


def _start_rpc():
    """Start RPC with the names of the notebook, over TCP, unless it is running."""
    if rpc_runs():
        return
    rank = int(os.environ["RANK"])
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=10, _transports=["uv"], _channels=["basic"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's warnings about itself
        name = f"observer{rank}" if rank else "agent"
        rpc.init_rpc(name, rank=rank, world_size=int(os.environ["WORLD_SIZE"]), rpc_backend_options=options)


def _has_scores():
    return hasattr(learners_module(), "Scores")


def _play_for_scores():
    return _have_played(answer("Scores", [_policy]), "run_episode")


def _play_for_notes():
    return _have_played(Notes(), "my_episode")


def _have_played(keeper, function) -> dict[str, _Played]:
    """Have every observer play an episode by the learner's function, with an agent that keeps the rewards."""
    _stage[:] = [keeper]
    with one_line_errors():
        agent = rpc.RRef(keeper)
        observers = [f"observer{rank}" for rank in range(1, int(os.environ["WORLD_SIZE"]))]
        answers = {observer: rpc.rpc_async(observer, _play, args=(agent, observer, function)) for observer in observers}
        return {observer: played.wait()._replace(rewards=_held(observer)) for observer, played in answers.items()}


def _play(agent, observer, function) -> _Played:
    """Play an episode on an observer."""
    environment = Line(observer)
    result, made, error = None, [], ""
    try:
        result, made = answer_with_rpc(function, [agent, environment, observer])
    except AnswerError as raised:
        error = str(raised)
    # to_here() belongs to the call that made the value.
    own = [call for call in made if call.function not in _OWN and call.kind != "fetch"]
    calls = sum(call.callee == "agent" for call in own)
    return _Played(plain(result), error, calls, plain(environment.wrong), environment.known, [])


def _known(observer):
    return len(_held(observer))


def _held(observer):
    rewards = getattr(_stage[0], "rewards", {})
    return list(rewards.get(observer, [])) if isinstance(rewards, dict) else []


def _numbers_in(result):
    """Return every number in the result of `run_episode`."""
    if isinstance(result, list | tuple):
        return [found for part in result for found in _numbers_in(part)]
    return [] if number(result) is None else [number(result)]


def _policy(observation):
    return int(observation[1]) % 2


def _steps(observer):
    """Return how many steps the episode of an observer has in this check."""
    return 3 + int(observer.removeprefix("observer"))


def _falls(observer):
    """Return whether the episode of an observer ends by a fall in this check; the other episodes are truncated."""
    return int(observer.removeprefix("observer")) % 2 == 1


def _rewards(observer):
    return [float(10 * int(observer.removeprefix("observer")) + step) for step in range(_steps(observer))]


def _arrivals():
    """Return lists of rewards as they arrive at the agent: a short one, and one in which an observer ends early."""
    short = [("observer1", 1.0), ("observer2", 1.0), ("observer1", 1.0), ("observer2", 1.0), ("observer2", 1.0)]
    observers = ["observer1"] * 10 + ["observer2"] * 60 + ["observer3"] * 30
    random.Random(0).shuffle(observers)
    return [short, [(observer, 1.0) for observer in observers]]


def _returns_of(arrived):
    """Return the return of each step in the order of arrival."""
    returns, following = [], {}
    for observer, reward in reversed(arrived):
        following[observer] = reward + _DISCOUNT * following.get(observer, 0.0)
        returns.append(following[observer])
    return returns[::-1]


def _require_weights(exam, episodes, steps, weights):
    expected = _less_mean(_apart(episodes))
    why = next((f" {reason}" for reason, mistaken in _mistakes(episodes).items() if _same(weights, mistaken)), "")
    for (episode, step), found, right in zip(steps, weights, expected, strict=True):
        exam.require(
            _close(found, right),
            f"Of the episodes {episodes} step {step} of episode {episode} has weight {found:.3f}, expected "
            f"{right:.3f}.{why}",
        )


def _mistakes(episodes):
    """Map the sentence about each plausible mistake to the weights that this mistake leads to."""
    joined = [reward for rewards in episodes for reward in rewards]
    returns = _apart(episodes)
    back = [value for rewards in episodes for value in _returns(rewards[::-1])]
    return {
        "No mean is subtracted.": returns,
        "An episode includes the rewards of the next episode: start each episode at 0.": _less_mean(_returns(joined)),
        "Each episode has a mean of its own: subtract the mean of all returns.": [
            value for rewards in episodes for value in _less_mean(_returns(rewards))
        ],
        "The rewards are not discounted.": _less_mean(
            [sum(rewards[step:]) for rewards in episodes for step in range(len(rewards))]
        ),
        "A weight counts the rewards before the step, not the rewards after it.": _less_mean(back),
        "The steps are in reverse order.": _less_mean(
            [value for rewards in episodes for value in _returns(rewards)[::-1]]
        ),
    }


def _apart(episodes):
    return [value for rewards in episodes for value in _returns(rewards)]


def _returns(rewards):
    """Return the return of each step of one episode."""
    returns, following = [], 0.0
    for reward in reversed(rewards):
        following = reward + _DISCOUNT * following
        returns.append(following)
    return returns[::-1]


def _less_mean(values):
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _same(values, others):
    return all(map(_close, values, others))


def _close(value, other):
    return abs(value - other) < 1e-3


def _floats(result):
    """Return a tensor, an array or a sequence of numbers as a list of floats; None for anything else."""
    try:
        return [float(value) for value in (result.tolist() if hasattr(result, "tolist") else result)]
    except (TypeError, ValueError):
        return None


def _kind(result):
    """Name the type that an answer returned instead of a list."""
    return str(result) if result is None or isinstance(result, Foreign) else f"a {type(result).__name__}"
