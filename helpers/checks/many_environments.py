"""A check of 19_cartpole_solved: the first episode of each environment of a vector, by one message a step."""

import os
from typing import NamedTuple

from helpers.checks.judging import Run, Verdict, Wrong, judge, missing
from helpers.checks.rpc_judging import call_with_rpc, in_one_line, rpc_runs

_ENVIRONMENTS = 3
_MANY_STEPS = 30  # for whoever does not see an end; the first episodes have 4 at most


def play_all(world) -> Verdict:
    """Check `play_all(agent, environments)`: the rewards of the first episode of each environment, a call a step."""

    def check(runs):
        if runs[0].result is None:
            raise Wrong("RPC is not running: run the setup cell and the cell of your answer, then this check.")
        for rank, played in enumerate(runs[0].result, start=1):
            _require_played(rank, played)
        return f"Each observer brought {_ENVIRONMENTS} episodes, by one call a step, without the steps after an end."

    return judge(world, "play_all", check, _run)


class Played(NamedTuple):
    """What became of the environments of one observer."""

    run: Run
    calls: int
    steps: int  # that were taken
    wrong: str  # what the first wrong action was


class Agent:
    """Hands out actions for many observations at once."""

    def select_action(self, observations):
        """Return an action for each observation."""
        import torch

        return torch.tensor([_policy(observation) for observation in observations])


class Vector:
    """Environments whose next episode begins on the step after the end of one, as in gymnasium: that is no transition.

    Episodes end in turn by a fall and by a cut, and every reward is another number.
    """

    num_envs = _ENVIRONMENTS

    def __init__(self, rank):
        self.lengths = _lengths(rank)
        self.places = [0] * self.num_envs  # the steps of the episode that are over
        self.ended = [False] * self.num_envs
        self.played = [False] * self.num_envs  # whether the first episode is over
        self.steps = 0
        self.wrong = ""

    def reset(self, seed=None, options=None):
        """Begin an episode in each environment, as gymnasium does."""
        return self._observations(), {}

    def step(self, actions):
        """Take an action in each environment, and return what gymnasium returns."""
        import numpy as np

        if self.steps == _MANY_STEPS:
            raise RuntimeError(f"the first episodes were over long ago, and {_MANY_STEPS} steps have been taken")
        self.steps += 1
        rewards = np.zeros(self.num_envs)
        falls, cuts = np.zeros(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        before = self._observations()
        for place, action in enumerate(np.asarray(actions)):
            if self.ended[place]:  # the step after the end
                self.ended[place], self.places[place] = False, 0
                continue
            if not self.played[place] and action != _policy(before[place]) and not self.wrong:
                self.wrong = f"environment {place} got action {action} in step {self.places[place]}"
            rewards[place] = _reward(place, self.places[place])
            self.places[place] += 1
            if self.places[place] == self.lengths[place]:
                self.ended[place] = self.played[place] = True
                (falls if place % 2 else cuts)[place] = True
        return self._observations(), rewards, falls, cuts, {}

    def _observations(self):
        import numpy as np

        return np.array([[place, step, 0, 0] for place, step in enumerate(self.places)], dtype=np.float32)


def _require_played(rank, played):
    observer = f"observer{rank}"
    if played.run.error == missing("play_all"):
        raise Wrong(f"Rank {rank} has no function `play_all`: run the cell that defines it, then this check.")
    if played.run.error:
        raise Wrong(f"{observer} raised {played.run.error}")
    target = [[_reward(place, step) for step in range(length)] for place, length in enumerate(_lengths(rank))]
    found = played.run.result
    if not isinstance(found, list) or len(found) != _ENVIRONMENTS:
        raise Wrong(f"{observer} returned {found}, and the target is a list of rewards for each environment.")
    steps = max(_lengths(rank))
    if played.wrong:
        raise Wrong(f"On {observer} {played.wrong}, and the agent says the other one.")
    for place, (rewards, right) in enumerate(zip(found, target, strict=True)):
        if rewards != right:
            raise Wrong(f"Of environment {place} {observer} returned {rewards}, and its first episode has {right}.")
    if played.steps > steps:
        raise Wrong(f"{observer} took {played.steps} steps, and after {steps} all episodes were over.")
    if played.calls > steps:
        raise Wrong(f"{observer} made {played.calls} calls for {steps} steps, and the target is one for each.")


def _run():
    import torch.distributed.rpc as rpc

    if os.environ["RANK"] != "0" or not rpc_runs():
        return Run(None, [], "")
    try:
        agent = rpc.RRef(Agent())
        answers = [rpc.rpc_async(rank, _play, args=(agent, rank)) for rank in range(1, int(os.environ["WORLD_SIZE"]))]
        return Run([answer.wait() for answer in answers], [], "")
    except RuntimeError as error:
        return Run(None, [], in_one_line(f"RuntimeError: {error}"))


def _play(agent, rank):
    environments = Vector(rank)
    run, made = call_with_rpc("play_all", [agent, environments])
    # to_here() belongs to the call that has made the value.
    calls = sum(call.function != "_rref_typeof_on_owner" and call.kind != "fetch" for call in made)
    return Played(run._replace(result=_plain(run.result)), calls, environments.steps, environments.wrong)


def _plain(result):
    """Return a list of lists of numbers, and anything else by the name of its type."""
    try:
        return [[float(reward) for reward in rewards] for rewards in result]
    except (TypeError, ValueError):
        return "None" if result is None else f"a {type(result).__name__}"


def _policy(observation):
    return int(observation[1]) % 2


def _lengths(rank):
    return [2 + (place + rank) % 3 for place in range(_ENVIRONMENTS)]


def _reward(place, step):
    return 10.0 * (place + 1) + step
