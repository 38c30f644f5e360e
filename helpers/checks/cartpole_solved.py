"""Exercises of 22_cartpole_solved: how the agent answers, what observers play, and how training resumes."""

import os
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed.rpc as rpc
from torch import nn

from helpers.checks.exam import (
    AnswerError,
    Foreign,
    answer,
    errors_of_answer,
    exercise,
    missing,
    near,
    number,
    plain,
    show,
)
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import answer_with_rpc, one_line_errors, rpc_runs

# For my_answer: how many observers play, and the number of observations in each waiting request.
_REQUESTS = ((3, (2,)), (3, (2, 3, 1)), (2, (2, 2)), (1, (4,)), (2, ()), (0, ()))
_ENVIRONMENTS = 3  # of each observer, for play_all
_MANY_STEPS = 30  # a limit if play_all does not see an end; the first episodes have at most 4
# For play, (episodes, k): k divides the episodes, does not, and exceeds them.
_TASKS = ((7, 3), (4, 2), (3, 5))
_RUNNING = 123.0  # for snapshot, the running reward
_BEFORE, _AFTER = range(3), range(3, 5)  # the updates before the stop, and after it
_NO_RPC = "RPC is not running: run the setup cell and the cell of your answer, then this check."


@exercise
def my_answer(exam):
    """Check `my_answer(agent)`: one pass for all requests if as many wait as observers play, and nothing otherwise."""
    if exam.rank == 0:
        for playing, sizes in _REQUESTS:
            case = f"With {len(sizes)} of {playing} requests there"
            answered = exam.on_rank(_answer_requests, playing, sizes)
            if not exam.require(not answered.error, f"{case}, my_answer raised {answered.error}"):
                continue
            if sizes and len(sizes) >= playing:
                _require_answers(exam, case, sizes, answered)
                continue
            exam.require(
                not answered.passes and not any(answered.done),
                f"{case}, my_answer asked the network, expected it to wait.",
            )
            exam.require(
                answered.waiting == len(sizes),
                f"{case}, {answered.waiting} of them are left in agent.waiting, expected all.",
            )
    return "All requests were answered by one pass, each with its own actions, and not before all were there."


def _require_answers(exam, case, sizes, answered):
    """Require that one pass answered all requests; `sizes` are their numbers of observations."""
    exam.require(
        answered.passes == [sum(sizes)],
        f"{case}, the network got {answered.passes} observations, one number for each pass, expected one pass with all "
        f"{sum(sizes)}.",
    )
    all_expected = _observations(sizes)[:, 0].long().split(list(sizes))
    for request, expected in enumerate(map(torch.Tensor.tolist, all_expected)):
        exam.require(answered.done[request], f"{case}, request {request} got no answer.")
        found = answered.answers[request]
        if isinstance(found, torch.Tensor | np.ndarray):
            found = found.tolist()
        else:
            found = f"of type {_type_name(found)}"
        exam.require(found == expected, f"{case}, request {request} got the actions {found}, expected {expected}.")
    exam.require(not answered.waiting, f"{case}, {answered.waiting} that have been answered are left in agent.waiting.")


@exercise
def play_all(exam):
    """Check `play_all(agent, environments)`: the rewards of the first episode of each environment, a call a step."""
    if exam.rank == 0 and exam.require(exam.on_rank(rpc_runs), _NO_RPC):
        for rank, played in exam.on_rank(_have_played_all).items():
            _require_played_all(exam, rank, played)
    return f"Each observer brought {_ENVIRONMENTS} episodes, by one call a step, without the steps after an end."


def _require_played_all(exam, rank, played):
    observer, steps = f"observer{rank}", max(_vector_lengths(rank))
    exam.require(
        played.error != missing("play_all"),
        f"Rank {rank} has no function `play_all`: run the cell that defines it, then this check.",
    )
    exam.require(not played.error, f"{observer} raised {played.error}")
    rewards = _rewards_in(played.result)
    is_list = exam.require(
        rewards is not None and len(rewards) == _ENVIRONMENTS,
        f"{observer} returned {_rewards_in_words(played.result)}, expected a list of rewards for each environment.",
    )
    if played.wrong:
        place, step, action = played.wrong
        exam.refuse(
            f"On {observer} environment {place} got action {action} in step {step}, and the agent says the other one."
        )
    for place, length in enumerate(_vector_lengths(rank) if is_list else ()):
        expected = [_reward(place, step) for step in range(length)]
        exam.require(
            rewards[place] == expected,
            f"Of environment {place} {observer} returned {rewards[place]}, and its first episode has {expected}.",
        )
    exam.require(
        played.steps <= steps, f"{observer} took {played.steps} steps, and after {steps} all episodes were over."
    )
    exam.require(
        played.calls <= steps,
        f"{observer} made {played.calls} calls for {steps} steps, expected one for each.",
    )


@exercise
def play(exam):
    """Check `play(server, policy, environment, episodes, k)`, which fetches weights before every k-th episode."""
    if exam.rank == 0 and exam.require(exam.on_rank(rpc_runs), _NO_RPC):
        for episodes, k in _TASKS:
            for observer, played in exam.on_rank(_have_played, episodes, k).items():
                _require_played(exam, observer, played, episodes, k)
    episodes, k = _TASKS[0]
    counts = f"{_count(_fetches(episodes, k), 'call')} for {_count(episodes, 'episode')} with k = {k}"
    return f"Every observer made {counts}, and played each episode with the right weights."


def _require_played(exam, observer, played, episodes, k):
    task = f"With episodes = {episodes} and k = {k}, {observer}"
    exam.require(played.error != missing("play"), f"{task} has no function `play`: run its cell on all ranks.")
    exam.require(not played.error, f"{task} raised {played.error}")
    exam.require(
        len(played.used) == episodes, f"{task} played {_count(len(played.used), 'episode')}, expected {episodes}."
    )
    lengths = [_length(episode) for episode in range(episodes)]
    for episode, (used, length) in enumerate(zip(played.used, lengths, strict=False)):
        exam.require(
            len(used) == length,
            f"{task} took {_count(len(used), 'step')} in episode {episode}, which has {length}.",
        )
    exam.require(
        not played.wrong_actions,
        f"{task} took {_count(played.wrong_actions, 'action')} that its policy does not prefer.",
    )
    fetches = _fetches(episodes, k)
    exam.require(played.calls == fetches, f"{task} made {_count(played.calls, 'call')}, expected {fetches}.")
    for episode, used in enumerate(played.used):
        right = episode // k + 1
        if others := [fetch for fetch in used if fetch != right]:
            exam.refuse(
                f"{task} played episode {episode} with {_weights_of(others[0])}, expected {_weights_of(right)}."
            )
    found = played.result if isinstance(played.result, list) else _in_words(played.result)
    exam.require(
        isinstance(found, list) and list(map(number, found)) == lengths,
        f"{task} returned {found}, expected {lengths}.",
    )


@exercise
def snapshot(exam):
    """Check `snapshot(agent, running)` and `go_on(agent, saved)`: weights, optimizer and running reward come back."""
    if exam.rank == 0 and exam.require(
        exam.on_rank(_has_go_on), "Rank 0 has no function `go_on`: run the cell that defines it, then this check."
    ):
        old, begin, end, running = exam.on_rank(_save_and_go_on)
        never_saved = _agent(0)
        _train(never_saved, _BEFORE)
        at_stop = _weights(never_saved)
        _train(never_saved, _AFTER)
        later = _weights(never_saved)
        exam.require(
            _same(old, later),
            "The agent that was saved did not train on as before: snapshot has changed it.",
        )
        exam.require(
            not _same(begin, later),
            "The new agent began with weights that the old one had only later: what state_dict() returns changes with "
            "the agent. Save a copy.",
        )
        exam.require(
            _same(begin, at_stop),
            "The new agent did not begin with the weights that the old one had when it was saved.",
        )
        exam.require(
            _same(end, later),
            "It began with the right weights, and the next updates led elsewhere: the optimizer has a state, too, as "
            "it was when the agent was saved.",
        )
        exam.require(
            near(running, _RUNNING), f"go_on returned {show(running)}, expected the running reward, {_RUNNING}."
        )
    return "The new agent went on as the old one did, weight for weight."


# ---------------------------------------------------------------- my_answer


class Collector:
    """An agent with waiting requests. It notes how many observations each pass has."""

    def __init__(self, playing, sizes):
        self.playing = playing
        self.passes = []
        self.waiting = [(own, torch.futures.Future()) for own in _observations(sizes).split(list(sizes))]

    def select_action(self, observations):
        """Return an action for each observation, namely its first value."""
        self.passes.append(len(observations))
        return observations[:, 0].long()


class _Answered(NamedTuple):
    """What `my_answer` did: whether each request got an answer, and which answer; how many requests still wait."""

    error: str
    passes: list[int]
    done: list[bool]
    answers: list
    waiting: int


def _observations(sizes):
    return torch.arange(4.0 * sum(sizes)).reshape(-1, 4)


def _answer_requests(playing, sizes) -> _Answered:
    agent = Collector(playing, sizes)
    futures = [future for _, future in agent.waiting]
    error, done, answers = "", [], []
    try:
        with one_line_errors():
            answer("my_answer", [agent])
            done = [future.done() for future in futures]
            answers = [future.value() if future.done() else None for future in futures]
    except AnswerError as raised:
        error = str(raised)
        if error == missing("my_answer"):
            raise
    return _Answered(error, agent.passes, done, plain(answers), len(agent.waiting))


# ---------------------------------------------------------------- play_all


class Chooser:
    """Chooses actions for many observations at once."""

    def select_action(self, observations):
        """Return an action for each observation."""
        return torch.tensor([_preferred(observation) for observation in observations])


class Vector:
    """Environments that begin their next episode on the step after an end, as in gymnasium; that step is no transition.

    Episodes end in turn by a fall and by a cut, and all rewards differ.
    """

    num_envs = _ENVIRONMENTS

    def __init__(self, rank):
        self.lengths = _vector_lengths(rank)
        self.places = [0] * self.num_envs  # how many steps of the episode are over
        self.ended = [False] * self.num_envs
        self.played = [False] * self.num_envs  # whether the first episode is over
        self.steps = 0
        self.wrong = None  # the first wrong action: its environment, step, and action

    def reset(self, seed=None, options=None):
        """Begin an episode in each environment, as gymnasium does."""
        return self._observations(), {}

    def step(self, actions):
        """Take an action in each environment, and return what gymnasium returns."""
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
            if not self.played[place] and action != _preferred(before[place]) and not self.wrong:
                self.wrong = place, self.places[place], action
            rewards[place] = _reward(place, self.places[place])
            self.places[place] += 1
            if self.places[place] == self.lengths[place]:
                self.ended[place] = self.played[place] = True
                (falls if place % 2 else cuts)[place] = True
        return self._observations(), rewards, falls, cuts, {}

    def _observations(self):
        return np.array([[place, step, 0, 0] for place, step in enumerate(self.places)], dtype=np.float32)


class _PlayedAll(NamedTuple):
    """How one observer played its environments: `steps` counts its steps, `wrong` is its first wrong action."""

    result: object
    error: str
    calls: int
    steps: int
    wrong: tuple | None


def _have_played_all() -> dict[int, _PlayedAll]:
    """Have every observer play its environments with the learner's function."""
    with one_line_errors():
        agent = rpc.RRef(Chooser())
        observers = range(1, int(os.environ["WORLD_SIZE"]))
        answers = {rank: rpc.rpc_async(rank, _play_all, args=(agent, rank)) for rank in observers}
        return {rank: played.wait() for rank, played in answers.items()}


def _play_all(agent, rank) -> _PlayedAll:
    environments = Vector(rank)
    result, error, calls = _played_by("play_all", [agent, environments])
    return _PlayedAll(result, error, calls, environments.steps, plain(environments.wrong))


def _rewards_in(result):
    """Return a list of lists of numbers; None for anything else."""
    try:
        return [[float(reward) for reward in rewards] for rewards in result]
    except (TypeError, ValueError):
        return None


def _rewards_in_words(result):
    rewards = _rewards_in(result)
    return _in_words(result) if rewards is None else rewards


def _preferred(observation):
    return int(observation[1]) % 2


def _vector_lengths(rank):
    return [2 + (place + rank) % 3 for place in range(_ENVIRONMENTS)]


def _reward(place, step):
    return 10.0 * (place + 1) + step


# ---------------------------------------------------------------- play


class Server:
    """Hands out weights that differ at every call."""

    def __init__(self):
        self.fetches = 0

    def weights(self) -> dict:
        """Return a state for the policy: how often the weights have been fetched."""
        self.fetches += 1
        return {"fetches": torch.tensor(self.fetches)}


class Line:
    """An environment whose episodes have 2, 3, 4 ... steps, ended in turn by a fall and by a cut.

    Its `policy` belongs to it, so it sees with which weights each step is taken.
    """

    def __init__(self):
        self.used = []
        self.wrong_actions = 0
        self.action = None  # the action that the policy prefers
        self.fetches = 0
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
        line = self

        class Policy(nn.Module):
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
        return np.array([len(self.used) + self.step_number, 0, 0, 0], dtype=np.float32)


class _Played(NamedTuple):
    """How one observer played its episodes.

    `used` says for each episode how often the weights had been fetched before each of its steps.
    """

    result: object
    error: str
    calls: int
    used: list[list[int]]
    wrong_actions: int


def _have_played(episodes, k) -> dict[str, _Played]:
    """Have every observer play this number of episodes with the learner's function."""
    with one_line_errors():
        observers = [f"observer{rank}" for rank in range(1, int(os.environ["WORLD_SIZE"]))]
        servers = {observer: rpc.RRef(Server()) for observer in observers}
        answers = {
            observer: rpc.rpc_async(observer, _play, args=(server, episodes, k)) for observer, server in servers.items()
        }
        return {observer: played.wait() for observer, played in answers.items()}


def _play(server, episodes, k) -> _Played:
    environment = Line()
    result, error, calls = _played_by("play", [server, environment.policy(), environment, episodes, k])
    return _Played(result, error, calls, environment.used, environment.wrong_actions)


def _played_by(function, arguments):
    """Call the learner's function on an observer; return its result as plain data, its error, and how often it called.

    `to_here()` does not count: it belongs to the call that made the value.
    """
    try:
        result, made = answer_with_rpc(function, arguments)
    except AnswerError as error:
        return None, str(error), 0
    calls = sum(call.function != "_rref_typeof_on_owner" and call.kind != "fetch" for call in made)
    return plain(result), "", calls


def _fetches(episodes, k):
    """Return how often the weights are fetched."""
    return len(range(0, episodes, k))


def _length(episode):
    return 2 + episode % 3


def _weights_of(fetch):
    return f"the weights of fetch {fetch}" if fetch else "weights that it had not fetched"


# ---------------------------------------------------------------- snapshot


def _has_go_on():
    """Return whether this rank has a function `go_on`. Raises `AnswerError` if it has no `snapshot`."""
    if not hasattr(learners_module(), "snapshot"):
        raise AnswerError(missing("snapshot"))
    return hasattr(learners_module(), "go_on")


def _save_and_go_on():
    """Save an agent, and have a new agent go on.

    Return the weights of the old agent after all updates, the weights of the new agent before and after its updates,
    and the result of `go_on`.
    """
    old, new = _agent(0), _agent(1)
    _train(old, _BEFORE)
    saved = answer("snapshot", [old, _RUNNING])
    with errors_of_answer():
        _train(old, _AFTER)
    running = answer("go_on", [new, saved])
    with errors_of_answer():
        begin = _weights(new)
        _train(new, _AFTER)
        return _weights(old), begin, _weights(new), running


def _agent(seed):
    """Return an agent with a policy and an optimizer, as in the notebook."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        policy = nn.Linear(4, 2)
    return SimpleNamespace(policy=policy, optimizer=torch.optim.Adam(policy.parameters(), lr=2e-2))


def _train(agent, updates):
    """Make updates with different gradients, without chance."""
    for update in updates:
        observations = torch.linspace(-1, 1 + update, 8).reshape(2, 4)
        agent.optimizer.zero_grad()
        agent.policy(observations).log_softmax(dim=1)[:, update % 2].sum().backward()
        agent.optimizer.step()


def _weights(agent):
    return [parameter.detach().clone() for parameter in agent.policy.parameters()]


def _same(weights, expected):
    return len(weights) == len(expected) and all(
        mine.shape == right.shape and torch.allclose(mine.float(), right, rtol=1e-5, atol=1e-6)
        for mine, right in zip(weights, expected, strict=True)
    )


def _in_words(result):
    """Describe by its type what an answer returned instead of a list."""
    return "None" if result is None else f"something of type {_type_name(result)}"


def _type_name(value):
    return value.type_name if isinstance(value, Foreign) else type(value).__name__


def _count(amount, thing):
    return f"{amount} {thing}" if amount == 1 else f"{amount} {thing}s"
