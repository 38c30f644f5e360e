"""Exercises of 23_cartpole_solved: what observers play, how the agent answers, and how a training continues."""

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
    counted,
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
_BROKEN = "BrokenNetworkError: the network is broken"  # the error that every future gets
_ENVIRONMENTS = 3  # of each observer, for play_all
_COLUMNS = ("observations", "actions", "rewards")  # of an episode of play_all, before its end
_MANY_STEPS = 30  # a limit if play_all does not see an end; the first episodes have at most 7
# For play, (episodes, k): k divides the episodes, does not, and exceeds them.
_TASKS = ((7, 3), (4, 2), (3, 5))
_RUNNING = 123.0  # for snapshot, the running reward
_BEFORE, _AFTER = range(3), range(3, 5)  # the updates before the stop, and after it
_NO_RPC = "RPC is not running: run the setup cell and the cell of your answer, then this check."


@exercise
def my_answer(exam):
    """Check `my_answer(agent)`: one pass for all requests if as many wait as observers play, and nothing otherwise.

    Only the list may be used under the lock. If the network raises, every future gets the error.
    """
    if exam.rank == 0:
        for playing, sizes in _REQUESTS:
            case = f"With {len(sizes)} of {playing} requests in the list"
            answered = exam.on_rank(_answer_requests, playing, sizes)
            if not exam.require(not answered.error, f"{case}, `my_answer` raised {answered.error}"):
                continue
            exam.require(
                not answered.without_lock,
                f"{case}, `my_answer` used `agent.{answered.without_lock}` without `agent.lock`, expected it to hold "
                "the lock: another request may change the attribute at the same time.",
            )
            if sizes and len(sizes) >= playing:
                _require_answers(exam, case, sizes, answered)
            else:
                _require_no_answers(exam, case, sizes, answered)
        _require_errors(exam)
    return "One pass outside the lock answered all requests, once every playing observer had sent its request."


def _require_no_answers(exam, case, sizes, answered):
    exam.require(
        not answered.passes and not any(answered.done),
        f"{case}, `my_answer` called `agent.draw`, expected no call until the last request arrives.",
    )
    exam.require(
        answered.waiting == len(sizes),
        f"{case}, `agent.waiting` has {counted(answered.waiting, 'request')} afterwards, expected {len(sizes)}.",
    )


def _require_answers(exam, case, sizes, answered):
    """Require that one pass answered all requests; `sizes` are their numbers of observations."""
    for request, result in enumerate(answered.answers):
        exam.require(
            not isinstance(result, str), f"{case}, request {request} got the error {result}, expected its actions."
        )
    exam.require(
        answered.passes == [sum(sizes)],
        f"{case}, the passes had {answered.passes} observations, expected one pass with all {sum(sizes)}.",
    )
    all_expected = _observations(sizes)[:, 0].long().split(list(sizes))
    for request, expected in enumerate(map(torch.Tensor.tolist, all_expected)):
        exam.require(answered.done[request], f"{case}, request {request} got no answer, expected {expected}.")
        result = answered.answers[request]
        if isinstance(result, torch.Tensor | np.ndarray):
            result = result.tolist()
        else:
            result = f"of type {_type_name(result)}"
        exam.require(result == expected, f"{case}, request {request} got the actions {result}, expected {expected}.")
    exam.require(
        not answered.waiting,
        f"{case}, `agent.waiting` still has {counted(answered.waiting, 'request')} afterwards, expected none: they "
        "have been answered.",
    )
    exam.require(
        not answered.drew_under_lock,
        "The actions are right. `my_answer` called `agent.draw` under the lock, expected the call outside the lock: "
        "otherwise no request can join the list during the pass.",
    )
    exam.require(
        not answered.completed_under_lock,
        "The actions are right. `my_answer` called `set_result` under the lock, expected the call outside the lock: "
        "`set_result` runs the callbacks of the future, and a callback may need the lock.",
    )


def _require_errors(exam):
    """Require that every future gets the error of a network that raises. `my_answer` itself may raise it, too."""
    answered = exam.on_rank(_answer_requests, 2, (2, 1), True)
    for request, result in enumerate(answered.answers):
        exam.require(
            answered.done[request],
            f"`agent.draw` raised an error, and request {request} got no answer, expected the error through "
            "`set_exception`: otherwise its observer waits until the timeout.",
        )
        exam.require(
            isinstance(result, str) and result == _BROKEN,
            f"`agent.draw` raised an error, and request {request} got a result, expected the error through "
            "`set_exception`.",
        )
    exam.require(
        not answered.completed_under_lock,
        "`my_answer` called `set_exception` under the lock, expected the call outside the lock.",
    )


@exercise
def play_all(exam):
    """Check `play_all(agent, environments)`: the first episode of each environment, with a call for each step of all.

    The first half is the loop: calls, steps and actions. The second half is the list of episodes.
    """
    if exam.rank == 0 and exam.require(exam.on_rank(rpc_runs), _NO_RPC):
        for rank, played in exam.on_rank(_have_played_all).items():
            _require_first_half(exam, rank, played)
            _require_episodes(exam, rank, played.result)
    return f"Each observer returned {_ENVIRONMENTS} episodes with their ends, and made one RPC per step."


def _require_first_half(exam, rank, played):
    """Require a call and a step for all environments, with the agent's actions, until all first episodes are over."""
    observer, steps = f"observer{rank}", max(_vector_lengths(rank))
    exam.require(
        played.error != missing("play_all"),
        f"Rank {rank} has no function `play_all`: run the cell that defines it, then this check.",
    )
    exam.require(not played.error, f"{observer} raised {played.error}")
    if played.wrong:
        place, step, action = played.wrong
        exam.refuse(
            f"On {observer} environment {place} got action {action} in step {step}, expected the action that the "
            f"agent chose, {1 - action}."
        )
    exam.require(
        played.steps == steps,
        f"{observer} made {counted(played.steps, 'step')}, expected {steps}: after {steps} steps every first episode "
        "is over.",
    )
    exam.require(
        played.calls == steps,
        f"{observer} made {counted(played.calls, 'RPC')} for {steps} steps, expected one RPC per step.",
    )


def _require_episodes(exam, rank, result):
    """Require the first episode of each environment, without the steps after its end, and with its own end."""
    observer = f"The first half is right. observer{rank}"
    if not exam.require(
        isinstance(result, list | tuple) and len(result) == _ENVIRONMENTS,
        f"{observer} returned {_in_words(result)}, expected a list with an episode for each of {_ENVIRONMENTS} "
        "environments.",
    ):
        return
    for place, (episode, length) in enumerate(zip(result, _vector_lengths(rank), strict=True)):
        if not exam.require(
            isinstance(episode, list | tuple) and len(episode) == len(_COLUMNS) + 1,
            f"{observer} returned {_in_words(episode)} for environment {place}, expected a tuple (observations, "
            "actions, rewards, end).",
        ):
            continue
        for column, entries, expected in zip(_COLUMNS, episode, _first_episode(place, length), strict=False):
            _require_column(exam, f"{observer} returned", column, _listed(entries), expected, place)
        end = "terminated" if _falls(place, 0) else "truncated"
        exam.require(
            episode[-1] == end,
            f"{observer} returned the end {episode[-1]!r} for environment {place}, expected {end!r}.",
        )


def _require_column(exam, who, column, entries, expected, place):
    """Require the observations, actions or rewards of one episode, an entry for each step."""
    if not exam.require(
        isinstance(entries, list),
        f"{who} {entries} as the {column} of environment {place}, expected an entry for each step.",
    ):
        return
    exam.require(
        len(entries) == len(expected),
        f"{who} {len(entries)} {column} for environment {place}, expected {len(expected)}: its first episode has "
        f"{len(expected)} steps.",
    )
    for step, (entry, right) in enumerate(zip(entries, expected, strict=False)):
        exam.require(
            entry == right, f"{who} {entry} in the {column} of environment {place} at step {step}, expected {right}."
        )


def _first_episode(place, length):
    """Return the observations, actions and rewards of the first episode of an environment."""
    observations = [[float(place), float(step), 0.0, 0.0] for step in range(length)]
    return observations, [float(step % 2) for step in range(length)], [_reward(place, step) for step in range(length)]


@exercise
def play(exam):
    """Check `play(server, policy, environment, episodes, k)`, which fetches weights before every k-th episode."""
    if exam.rank == 0 and exam.require(exam.on_rank(rpc_runs), _NO_RPC):
        for episodes, k in _TASKS:
            for observer, played in exam.on_rank(_have_played, episodes, k).items():
                _require_played(exam, observer, played, episodes, k)
    episodes, k = _TASKS[0]
    counts = f"{counted(_fetches(episodes, k), 'call')} for {counted(episodes, 'episode')} with k = {k}"
    return f"Every observer made {counts}, and played each episode with the right weights."


def _require_played(exam, observer, played, episodes, k):
    task = f"With episodes = {episodes} and k = {k}, {observer}"
    exam.require(played.error != missing("play"), f"{task} has no function `play`: run its cell on all ranks.")
    exam.require(not played.error, f"{task} raised {played.error}")
    exam.require(
        len(played.used) == episodes, f"{task} played {counted(len(played.used), 'episode')}, expected {episodes}."
    )
    lengths = [_length(episode) for episode in range(episodes)]
    for episode, (used, length) in enumerate(zip(played.used, lengths, strict=False)):
        exam.require(
            len(used) == length,
            f"{task} took {counted(len(used), 'step')} in episode {episode}, expected {length}.",
        )
    exam.require(
        not played.wrong_actions,
        f"{task} took {counted(played.wrong_actions, 'action')} that its policy does not prefer, expected 0.",
    )
    fetches = _fetches(episodes, k)
    exam.require(played.calls == fetches, f"{task} made {counted(played.calls, 'call')}, expected {fetches}.")
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
            "The old agent did not train as before, expected the same updates: `snapshot` changed the agent.",
        )
        exam.require(
            not _same(begin, later),
            "The new agent began with later weights of the old agent, expected its weights at the stop: the tensors "
            "in state_dict() change with the agent, so save a copy.",
        )
        exam.require(
            _same(begin, at_stop),
            "The new agent began with different weights, expected the weights of the old agent when it was saved.",
        )
        exam.require(
            _same(end, later),
            "The new agent began with the right weights, but its next updates differ, expected the updates of the "
            "old agent: save the state of the optimizer at the stop, too.",
        )
        exam.require(
            near(running, _RUNNING), f"`go_on` returned {show(running)}, expected the running reward, {_RUNNING}."
        )
    return "The new agent made the same updates as the old agent, weight for weight."


# ---------------------------------------------------------------- my_answer


class BrokenNetworkError(Exception):
    """The error of a network that raises."""


class Lock:
    """A lock of a single thread that notices if the thread waits for itself."""

    def __init__(self):
        self.is_held = False

    def acquire(self, blocking=True, timeout=-1):
        """Take the lock. Raises RuntimeError if it is held, because no other thread can release it."""
        if self.is_held:
            raise RuntimeError("agent.lock is held already, so this thread would wait for itself")
        self.is_held = True
        return True

    def release(self):
        """Give the lock back."""
        if not self.is_held:
            raise RuntimeError("release unlocked lock")
        self.is_held = False

    def locked(self):
        """Return whether the lock is held."""
        return self.is_held

    __enter__ = acquire

    def __exit__(self, *_):
        self.release()


class Collector:
    """An agent with waiting requests. It notes the size of each pass, and what happens with and without the lock."""

    def __init__(self, playing, sizes, is_broken):
        self.lock = Lock()
        self.passes = []
        self.without_lock = ""  # the first attribute that was used without the lock
        self.drew_under_lock = self.completed_under_lock = False
        self._is_broken = is_broken
        self._playing = playing
        self.requests = [(own, torch.futures.Future()) for own in _observations(sizes).split(list(sizes))]
        for _, future in self.requests:
            future.then(self._note_completion)

    @property
    def waiting(self):
        """The requests, which only code under the lock may use."""
        self._note_use("waiting")
        return self.requests

    @waiting.setter
    def waiting(self, requests):
        self._note_use("waiting")
        self.requests = requests

    @property
    def playing(self):
        """The number of observers that still play, which only code under the lock may use."""
        self._note_use("playing")
        return self._playing

    def draw(self, observations):
        """Return an action for each observation, namely its first value."""
        self.passes.append(len(observations))
        self.drew_under_lock |= self.lock.is_held
        if self._is_broken:
            raise BrokenNetworkError("the network is broken")
        return observations[:, 0].long()

    def _note_use(self, name):
        if not self.lock.is_held:
            self.without_lock = self.without_lock or name

    def _note_completion(self, _):
        self.completed_under_lock |= self.lock.is_held


class _Answered(NamedTuple):
    """What `my_answer` did: whether each request got an answer, and which answer; how many requests still wait."""

    error: str
    passes: list[int]
    done: list[bool]
    answers: list
    waiting: int
    without_lock: str
    drew_under_lock: bool
    completed_under_lock: bool


def _observations(sizes):
    return torch.arange(4.0 * sum(sizes)).reshape(-1, 4)


def _answer_requests(playing, sizes, is_broken=False) -> _Answered:
    agent = Collector(playing, sizes, is_broken)
    futures = [future for _, future in agent.requests]
    error = ""
    try:
        with one_line_errors():
            answer("my_answer", [agent])
    except AnswerError as raised:
        error = str(raised)
        if error == missing("my_answer"):
            raise
    done = [future.done() for future in futures]
    answers = [_result_of(future) if future.done() else None for future in futures]
    waiting = len(agent.requests) if isinstance(agent.requests, list | tuple) else 0
    noted = agent.without_lock, agent.drew_under_lock, agent.completed_under_lock
    return _Answered(error, agent.passes, done, plain(answers), waiting, *noted)


def _result_of(future):
    """Return the result of a future, or its error in words."""
    try:
        return future.value()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# ---------------------------------------------------------------- play_all


class Chooser:
    """Chooses actions for many observations at once."""

    def select_action(self, observations):
        """Return an action for each observation."""
        return torch.tensor([_preferred(observation) for observation in observations])


class Vector:
    """Environments that begin their next episode on the step after an end, as in gymnasium; that step is no transition.

    The episodes of an environment are terminated and truncated in turn, and all rewards differ.
    """

    num_envs = _ENVIRONMENTS

    def __init__(self, rank):
        self.lengths = _vector_lengths(rank)
        self.places = [0] * self.num_envs  # how many steps of the episode are over
        self.ended = [False] * self.num_envs
        self.episodes = [0] * self.num_envs  # how many episodes are over
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
        terminated, truncated = np.zeros(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        before = self._observations()
        for place, action in enumerate(np.asarray(actions)):
            if self.ended[place]:  # the step after the end
                self.ended[place], self.places[place] = False, 0
                continue
            if not self.episodes[place] and action != _preferred(before[place]) and not self.wrong:
                self.wrong = place, self.places[place], int(action)
            rewards[place] = _reward(place, self.places[place])
            self.places[place] += 1
            if self.places[place] == self.lengths[place]:
                self.ended[place] = True
                (terminated if _falls(place, self.episodes[place]) else truncated)[place] = True
                self.episodes[place] += 1
        return self._observations(), rewards, terminated, truncated, {}

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


def _listed(entries):
    """Return the entries of a column of an episode as plain numbers; the type of anything else in words."""
    try:
        return [np.asarray(entry, dtype=float).tolist() for entry in entries]
    except (TypeError, ValueError):
        return _in_words(entries)


def _preferred(observation):
    return int(observation[1]) % 2


def _vector_lengths(rank):
    """Return the lengths of the episodes of each environment. The shortest ends again, but not with the longest."""
    return [(2, 5, 7)[(place + rank) % 3] for place in range(_ENVIRONMENTS)]


def _falls(place, episode):
    """Return whether an episode of an environment is terminated, and not truncated."""
    return (place + episode) % 2 == 0


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


class GrowingEpisodes:
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
    environment = GrowingEpisodes()
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
    """Make updates with different gradients, without randomness."""
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
    """Describe by its type, and its length if it has one, what an answer returned instead of a list."""
    if isinstance(result, list | tuple):
        return f"a {type(result).__name__} with {counted(len(result), 'part')}"
    return "None" if result is None else f"something of type {_type_name(result)}"


def _type_name(value):
    return value.type_name if isinstance(value, Foreign) else type(value).__name__
