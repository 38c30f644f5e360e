"""Checks of 18_reinforcement_learning: an agent on rank 0, observers on the others."""

import os
import random
import time
from typing import NamedTuple

from helpers.checks.episode_weights import my_weights as my_weights
from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge, missing
from helpers.checks.rpc_judging import Made, call_with_rpc, in_one_line, rpc_runs

_DISCOUNT = 0.99
_OWN = ("_rref_typeof_on_owner", "_known")  # calls by torch and by this check
_stage = []  # on the agent: the object of the learner that keeps the rewards


def returns_of(world) -> Verdict:
    """Check `returns_of(arrived)`: the return of each step in the order of arrival, apart for each observer."""

    def check(runs):
        for arrived, returned in zip(_arrivals(), runs[0].result, strict=True):
            if not isinstance(returned, list):
                raise Wrong(f"The agent returned {returned}, and the target is a list of numbers.")
            if len(returned) != len(arrived):
                raise Wrong(f"{len(arrived)} rewards have arrived, and the agent returned {len(returned)} returns.")
            target = _returns(arrived)
            for place, (value, right) in enumerate(zip(returned, target, strict=True)):
                if abs(value - right) > 1e-3:
                    raise Wrong(
                        f"Of the rewards of {', '.join(other for other, _ in arrived[:6])} ... the one in place "
                        f"{place}, of {arrived[place][0]}, has return {value:.3f}, and the target is {right:.3f}."
                    )
        return "Every step has the return of its own observer's episode, in the order of arrival."

    return judge(world, "returns_of", check, _run_returns_of)


def run_episode(world) -> Verdict:
    """Check `Scores` and `run_episode(agent, environment, name)`: each reward is on the agent before the next step."""

    def check(runs):
        played = runs[0].result
        if played is None:
            raise Wrong("Rank 0 has no class `Scores`: run the cell that defines it, then this check.")
        for other, played_one in played.items():
            _require_played(other, played_one, "run_episode", _steps(other) + 1)
        counts = ", ".join(f"{_steps(other) + 1} calls for {_steps(other)} steps" for other in played)
        return f"The observers made {counts}, and the agent knew every reward before the next step."

    return judge(world, "run_episode", check, _run_one_rpc)


def my_episode(world) -> Verdict:
    """Check `my_episode(agent, environment, name)`: an episode with two calls a step, and how it has ended."""

    def check(runs):
        for other, played in runs[0].result.items():
            _require_played(other, played, "my_episode", 2 * _steps(other))
            target = "terminated" if _falls(other) else "truncated"
            if played.run.result != target:
                raise Wrong(f"{other} returned {played.run.result}, and its episode was {target}.")
        return "Each observer asked the agent for every action, and reported every reward before the next one."

    return judge(world, "my_episode", check, _run_observer_round)


class Played(NamedTuple):
    """What became of the episode of one observer."""

    run: Run
    made: list[Made]
    wrong: str  # what the first wrong action was
    known: list[int]  # at every step, how many rewards of this observer the agent knew
    rewards: list[float]  # that the agent knows in the end


class Line:
    """An environment of so many steps, in which the right action is known and every reward is another number.

    At every step it asks the agent how many rewards of this observer it knows.
    """

    def __init__(self, observer: str):
        self.observer = observer
        self.step_number = 0
        self.known = []
        self.wrong = ""

    def reset(self, seed=None):
        """Return the first observation, as gymnasium does."""
        return self._observation(), {}

    def step(self, action):
        """Take an action, and return what gymnasium returns."""
        import torch.distributed.rpc as rpc

        if self.step_number == _steps(self.observer):
            raise RuntimeError("the environment was asked for a step after its episode had ended")
        if not self.wrong and action != (right := _policy(self._observation())):
            self.wrong = f"At step {self.step_number} {self.observer} pushed {action}, and the policy says {right}."
        self.known.append(rpc.rpc_sync("agent", _known, args=(self.observer,)))
        reward = _rewards(self.observer)[self.step_number]
        self.step_number += 1
        over, falls = self.step_number == _steps(self.observer), _falls(self.observer)
        return self._observation(), reward, over and falls, over and not falls, {}

    def _number(self):
        return int(self.observer.removeprefix("observer"))

    def _observation(self):
        import numpy as np

        return np.array([self._number(), self.step_number], dtype=np.float32)


class Notes:
    """The agent of a check: it knows the right actions, and keeps the rewards of each observer."""

    def __init__(self):
        self.rewards = {}

    def select_action(self, name, observation):
        """Return the right action."""
        return _policy(observation)

    def report_reward(self, name, reward):
        """Keep a reward, after a while: who does not wait for the answer asks for the next action before that."""
        time.sleep(0.05)
        self.rewards.setdefault(name, []).append(reward)


def _require_played(other, played, function, most):
    rank = other.removeprefix("observer")
    if played.run.error == missing(function):
        raise Wrong(f"Rank {rank} has no function `{function}`: run the cell that defines it, then this check.")
    if played.run.error:
        raise Wrong(f"Rank {rank} raised {played.run.error}")
    steps, target = _steps(other), _rewards(other)
    if len(played.known) != steps:
        raise Wrong(f"{other} played {len(played.known)} steps, and its episode has {steps}.")
    for step, known in enumerate(played.known):
        if known != step:
            raise Wrong(f"When {other} took step {step}, the agent knew {known} of its rewards, and not {step}.")
    # Nobody needs the last one before the next step, so it may come home with the episode.
    home = played.rewards == target[:-1] and target[-1] in _all_numbers(played.run.result)
    if played.rewards != target and not home:
        raise Wrong(f"Of {other} the agent holds the rewards {played.rewards}, and the target is {target}.")
    if played.wrong:
        raise Wrong(played.wrong)
    # to_here() belongs to the call that has made the value.
    own = [call for call in played.made if call.function not in _OWN and call.kind != "fetch"]
    calls = sum(call.callee == "agent" for call in own)
    if calls > most:
        raise Wrong(f"{other} made {calls} calls for {steps} steps, and the target is {most}.")


def _run_returns_of():
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    runs = [call_answer("returns_of", [arrived]) for arrived in _arrivals()]
    failed = [run for run in runs if run.error]
    return (failed or runs)[0]._replace(result=[_numbers(run.result) for run in runs])


def _run_one_rpc():
    _start_rpc()
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    run = call_answer("Scores", [_policy])
    if run.error == missing("Scores"):
        return run._replace(error="")
    if run.error:
        return run
    return _have_played(run.result, "run_episode")


def _run_observer_round():
    _start_rpc()
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    return _have_played(Notes(), "my_episode")


def _have_played(keeper, function):
    """Have every observer play an episode by the learner's function, with an agent that keeps the rewards."""
    import torch.distributed.rpc as rpc

    _stage[:] = [keeper]
    try:
        agent = rpc.RRef(keeper)
        others = [f"observer{rank}" for rank in range(1, int(os.environ["WORLD_SIZE"]))]
        answers = {other: rpc.rpc_async(other, _play, args=(agent, other, function)) for other in others}
        played = {other: Played(*answer.wait(), _held(other)) for other, answer in answers.items()}
    except RuntimeError as error:
        return Run(None, [], in_one_line(f"RuntimeError: {error}"))
    return Run(played, [], "")


def _start_rpc():
    """Start RPC with the names of the notebook, over TCP, unless it is running."""
    import warnings

    import torch.distributed.rpc as rpc

    if rpc_runs():
        return
    rank = int(os.environ["RANK"])
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=10, _transports=["uv"], _channels=["basic"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's warnings about itself
        name = f"observer{rank}" if rank else "agent"
        rpc.init_rpc(name, rank=rank, world_size=int(os.environ["WORLD_SIZE"]), rpc_backend_options=options)


def _play(agent, observer, function):
    environment = Line(observer)
    run, made = call_with_rpc(function, [agent, environment, observer])
    result = run.result if isinstance(run.result, str) else _all_numbers(run.result) or None
    return run._replace(result=result), made, environment.wrong, environment.known


def _all_numbers(result):
    """Return every number in what `run_episode` has returned."""
    if isinstance(result, list | tuple):
        return [number for part in result for number in _all_numbers(part)]
    return [float(result)] if isinstance(result, int | float) else []


def _known(observer):
    return len(_held(observer))


def _held(observer):
    rewards = getattr(_stage[0], "rewards", {})
    return list(rewards.get(observer, [])) if isinstance(rewards, dict) else []


def _policy(observation):
    return int(observation[1]) % 2


def _steps(observer):
    """Return how many steps the episode of an observer has in this check."""
    return 3 + int(observer.removeprefix("observer"))


def _falls(observer):
    """Return whether the episode of an observer ends by a fall in this check; the others are cut."""
    return int(observer.removeprefix("observer")) % 2 == 1


def _rewards(observer):
    return [float(10 * int(observer.removeprefix("observer")) + step) for step in range(_steps(observer))]


def _arrivals():
    """Return lists of rewards as they arrive at the agent: a short one, and one in which an observer ends early."""
    short = [("observer1", 1.0), ("observer2", 1.0), ("observer1", 1.0), ("observer2", 1.0), ("observer2", 1.0)]
    rewards = ["observer1"] * 10 + ["observer2"] * 60 + ["observer3"] * 30
    random.Random(0).shuffle(rewards)
    return [short, [(other, 1.0) for other in rewards]]


def _returns(arrived):
    returns, following = [], {}
    for other, reward in reversed(arrived):
        following[other] = reward + _DISCOUNT * following.get(other, 0.0)
        returns.append(following[other])
    return returns[::-1]


def _numbers(result):
    """Return a tensor or a sequence of numbers as a list of floats, and anything else as the name of its type."""
    if hasattr(result, "tolist"):
        result = result.tolist()
    try:
        return [float(number) for number in result]
    except (TypeError, ValueError):
        return f"a {type(result).__name__}" if result is not None else "None"
