"""Check of the exercise of 19_cartpole_solved: observers with copies of the policy, and a server of its weights."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from helpers.checks.collecting import my_answer as my_answer
from helpers.checks.going_on import snapshot as snapshot
from helpers.checks.judging import Run, Verdict, Wrong, judge, missing
from helpers.checks.many_environments import play_all as play_all
from helpers.checks.rpc_judging import call_with_rpc, in_one_line, rpc_runs

if TYPE_CHECKING:
    from torch.distributed.rpc import RRef

# (episodes, k) of the runs: k divides the episodes, does not, and exceeds them.
_TASKS = ((7, 3), (4, 2), (3, 5))


def play(world) -> Verdict:
    """Check `play(server, policy, environment, episodes, k)`, which fetches weights before every k-th episode."""

    def check(runs):
        if runs[0].result is None:
            raise Wrong("RPC is not running: run the setup cell and the cell of your answer, then this check.")
        for (episodes, k), played in zip(_TASKS, runs[0].result, strict=True):
            for observer, one in played.items():
                _require_played(observer, one, episodes, k)
        episodes, k = _TASKS[0]
        counts = f"{_count(len(_fetches(episodes, k)), 'call')} for {_count(episodes, 'episode')} with k = {k}"
        return f"Every observer made {counts}, and played each episode with the right weights."

    return judge(world, "play", check, _run_everywhere)


class Played(NamedTuple):
    """What became of the episodes of one observer."""

    run: Run
    calls: int  # that the observer made
    used: list[list[int]]  # for each episode, the number of fetches before each of its steps
    wrong_actions: int


class Server:
    """Hands out weights, other ones at every call."""

    def __init__(self):
        self.fetches = 0

    def weights(self) -> dict:
        """Return the state of a policy that holds how often the weights have been fetched."""
        import torch

        self.fetches += 1
        return {"fetches": torch.tensor(self.fetches)}


class Line:
    """An environment whose episodes have 2, 3, 4 ... steps, ended in turn by a fall and by a cut.

    It stands in for the policy as well, and so sees with which weights each step is taken.
    """

    def __init__(self):
        self.used = []
        self.wrong_actions = 0
        self.action = None  # the one that the policy prefers
        self.step_number = 0

    def reset(self, seed=None, options=None):
        """Begin an episode, as gymnasium does."""
        self.used.append([])
        self.step_number = 0
        return self._observation(), {}

    def step(self, action):
        """Take an action, and return what gymnasium returns."""
        if not self.used:
            raise RuntimeError("the environment was asked for a step before it was reset")
        if self.step_number == self._steps():
            raise RuntimeError("the environment was asked for a step after its episode had ended")
        self.used[-1].append(self.fetches)
        self.wrong_actions += int(action) != self.action
        self.step_number += 1
        over, falls = self.step_number == self._steps(), len(self.used) % 2 == 1
        return self._observation(), 1.0, over and falls, over and not falls, {}

    def policy(self):
        """Return the policy: a module that prefers each action in turn."""
        import torch

        line = self
        line.fetches = 0

        class Policy(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("fetches", torch.tensor(0))

            def forward(self, observation):
                line.fetches, line.action = int(self.fetches), int(observation[..., 0].sum()) % 2
                return torch.tensor([[1.0, 0.0], [0.0, 1.0]][line.action]).expand(*observation.shape[:-1], 2)

        return Policy()

    def _steps(self):
        return _length(len(self.used) - 1)

    def _observation(self):
        import numpy as np

        return np.array([len(self.used) + self.step_number, 0, 0, 0], dtype=np.float32)


def _require_played(observer, played, episodes, k):
    task = f"With episodes = {episodes} and k = {k}, {observer}"
    if played.run.error == missing("play"):
        raise Wrong(f"{task} has no function `play`: run its cell on all ranks.")
    if played.run.error:
        raise Wrong(f"{task} raised {played.run.error}")
    if len(played.used) != episodes:
        raise Wrong(f"{task} played {_count(len(played.used), 'episode')}.")
    lengths = [_length(episode) for episode in range(episodes)]
    for episode, (used, length) in enumerate(zip(played.used, lengths, strict=True)):
        if len(used) != length:
            raise Wrong(f"{task} took {_count(len(used), 'step')} in episode {episode}, which has {length}.")
    if played.wrong_actions:
        raise Wrong(f"{task} took {_count(played.wrong_actions, 'action')} that its policy does not prefer.")
    target = _fetches(episodes, k)
    if played.calls != len(target):
        raise Wrong(f"{task} made {_count(played.calls, 'call')}, and the target is {len(target)}.")
    for episode, used in enumerate(played.used):
        right = episode // k + 1
        if wrong := [fetch for fetch in used if fetch != right]:
            raise Wrong(f"{task} played episode {episode} with {_weights(wrong[0])}, and not {_weights(right)}.")
    if played.run.result != lengths:
        raise Wrong(f"{task} returned {played.run.result}, and the target is {lengths}.")


def _run_everywhere():

    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    if not rpc_runs():
        return Run(None, [], "")
    try:
        return Run([_played(*task) for task in _TASKS], [], "")
    except RuntimeError as error:
        return Run(None, [], in_one_line(f"RuntimeError: {error}"))


def _played(episodes, k):
    import torch.distributed.rpc as rpc

    others = [f"observer{rank}" for rank in range(1, int(os.environ["WORLD_SIZE"]))]
    servers = {other: rpc.RRef(Server()) for other in others}
    answers = {other: rpc.rpc_async(other, _play, args=(servers[other], episodes, k)) for other in others}
    return {other: answer.wait() for other, answer in answers.items()}


def _play(server: RRef, episodes, k):
    environment = Line()
    run, made = call_with_rpc("play", [server, environment.policy(), environment, episodes, k])
    # to_here() belongs to the call that has made the value.
    calls = sum(call.function != "_rref_typeof_on_owner" and call.kind != "fetch" for call in made)
    run = run._replace(result=_plain(run.result))
    return Played(run, calls, environment.used, environment.wrong_actions)


def _plain(result):
    """Return a list as it is, and something else by its name."""
    if isinstance(result, list):
        return result
    return "None" if result is None else f"something of type {type(result).__name__}"


def _fetches(episodes, k):
    """Return the episodes before which the weights are fetched."""
    return range(0, episodes, k)


def _length(episode):
    return 2 + episode % 3


def _weights(fetch):
    return f"the weights of fetch {fetch}" if fetch else "weights that it had not fetched"


def _count(number, thing):
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
