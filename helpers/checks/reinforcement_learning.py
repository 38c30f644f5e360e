"""Exercises of 22_reinforcement_learning: an agent on rank 0, observers on the others."""

import gc
import os
import threading
import time
import weakref
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed.rpc as rpc

from helpers.checks.exam import AnswerError, Foreign, answer, errors_of_answer, exercise, missing, number, plain, show
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import answer_with_rpc, one_line_errors, start_rpc
from helpers.torch_parts import RRef

_DISCOUNT = 0.99
_EPISODES = (
    [[1.0, 1.0], [1.0, 1.0, 1.0]],
    [[1.0, 2.0, 3.0], [5.0], [0.0, 0.0, 10.0, 0.0]],
)
_ENDINGS = (
    ([1.0, 1.0, 1.0], "terminated", 50.0),
    ([1.0, 1.0, 1.0], "truncated", 50.0),
    ([2.0, 0.0, -1.0, 5.0], "truncated", -3.0),
    ([4.0], "terminated", 7.0),
)
_OWN = ("_rref_typeof_on_owner", "_known")  # calls by torch and by this check
_FAILURE = "the disk is full"  # the error of observer1
_SECONDS_TO_MEET = 4  # they run out only if observers play one after another
_SECONDS_LONGER = 0.4  # that an observer plays on after another has failed
_stage = []  # on the agent: the object that keeps the rewards, or that watches the rounds


@exercise
def my_round(exam):
    """Check `my_round(agent)`: all observers play at once; the results of those that do not raise."""
    exam.on_rank(start_rpc, f"observer{exam.rank}" if exam.rank else "agent")
    observers = [f"observer{rank}" for rank in range(1, exam.n)]
    others = observers[1:]
    if exam.rank == 0:
        (first, failing, last), is_freed = exam.on_rank(_play_rounds)
        exam.require(
            first.error != missing("my_round"),
            "Rank 0 has no function `my_round`: run the cell that defines it, then this check.",
        )
        exam.require(not first.error, f"Rank 0 raised {first.error}")
        exam.require(
            len(first.begun) == len(observers),
            f"A round called `run_episode` on {_listed(first.begun)}, expected a call on each of {_listed(observers)}.",
        )
        exam.require(
            not first.alone,
            f"{_listed(first.alone)} played alone, expected all observers to play at the same time: call all of them "
            "before you wait for the first result.",
        )
        exam.require(
            not first.at_play,
            f"The round returned while {_listed(first.at_play)} still played, expected it to wait for every observer.",
        )
        _require_results(exam, first, observers)
        exam.require(
            not first.kept,
            f"After the round the agent has an RRef to itself, in `{first.kept}`, expected none: such a cycle is "
            "never freed.",
        )
        exam.require(
            _FAILURE not in failing.error,
            "observer1 raised a ValueError, expected `my_round` to catch every kind of error. Rank 0 raised "
            f"{failing.error}",
        )
        exam.require(
            not failing.error, f"In the round in which observer1 raised an error, rank 0 raised {failing.error}"
        )
        exam.require(
            not failing.at_play,
            f"observer1 raised an error, and the round returned while {_listed(failing.at_play)} still played, "
            "expected it to wait for every observer.",
        )
        _require_results(exam, failing, others)
        for name, held in failing.held.items():
            exam.require(
                held == others,
                f"After observer1 raised an error, `agent.{name}` has {_listed(held)}, expected {_listed(others)}.",
            )
        exam.require(not last.error, f"In the round after a failure rank 0 raised {last.error}")
        exam.require(
            sorted(last.begun) == others,
            f"The round after the failure of observer1 called `run_episode` on {_listed(last.begun)}, expected "
            f"{_listed(others)}.",
        )
        exam.require(
            is_freed,
            "Some RRef to the agent outlived the round, expected none: with it, the agent is never freed. Keep the "
            "RRef in a local variable.",
        )
    return "All observers played at once, and the agent dropped the observer that raised, once all had ended."


@exercise
def my_loss(exam):
    """Check `my_loss(log_probs, rewards)`: the mean over all steps of the advantage times the log-probability, negated.

    Each gradient of the loss by a log-probability, times minus the number of steps, is the advantage of the step.
    """
    if exam.rank == 0:
        for episodes in _EPISODES:
            returned, gradients, rewards = exam.on_rank(_gradients, [list(rewards) for rewards in episodes])
            size = sum(map(len, episodes))
            if exam.require(
                gradients is not None,
                f"`my_loss` returned {returned}, expected a scalar tensor whose graph leads to the log-probabilities.",
            ):
                advantages = [0.0 if gradient is None else -size * gradient for gradient in gradients]
                _require_advantages(exam, episodes, advantages)
            exam.require(
                rewards == episodes,
                f"`my_loss` changed the rewards {episodes} to {rewards}, expected it to leave its arguments as they "
                "are.",
            )
    return "The loss weights each log-probability with the advantage of its step, and averages over all steps."


@exercise
def returns_of(exam):
    """Check `returns_of(rewards, ending, value)`: a truncated episode goes on with the value, a terminated one ends."""
    if exam.rank == 0:
        for rewards, ending, value in _ENDINGS:
            result, rewards_after = exam.on_rank(_returns_and_rewards, list(rewards), ending, value)
            returns = _floats(result)
            if not exam.require(
                returns is not None, f"`returns_of` returned {_kind(result)}, expected a list of numbers."
            ):
                continue
            exam.require(
                len(returns) == len(rewards),
                f"`returns_of` returned {len(returns)} returns, expected {len(rewards)}, one for each reward.",
            )
            right = _returns(rewards, value if ending == "truncated" else 0.0)
            for step, (found, expected) in enumerate(zip(returns, right, strict=False)):
                exam.require(
                    _close(found, expected),
                    f"The rewards {rewards}, {ending}, with the value {value} of the last observation: step {step} has "
                    f"the return {found:.3f}, expected {expected:.3f}.",
                )
            exam.require(
                rewards_after == rewards,
                f"`returns_of` changed the rewards {rewards} to {rewards_after}, expected it to leave the list as it "
                "is.",
            )
    return "A truncated episode goes on with the value of its last observation, and a terminated one does not."


@exercise
def run_episode(exam):
    """Check `Scores` and `run_episode(agent, environment, name)`: each reward is on the agent before the next step."""
    exam.on_rank(start_rpc, f"observer{exam.rank}" if exam.rank else "agent")
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
            known == step, f"When {observer} took step {step}, the agent had {known} of its rewards, expected {step}."
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


class KnownActions:
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


class AgentsPolicy:
    """The policy of the agent of a check, which no message can carry to another rank."""

    def __call__(self, observation):
        """Return an action."""
        return _policy(observation)

    def __reduce__(self):
        """Refuse to be pickled."""
        raise RuntimeError("the policy was sent to another rank, expected it to stay on the agent")


class Watch:
    """Watch, on rank 0, which observers play in a round, and whether all of them play at the same time."""

    def __init__(self, size: int):
        self.size = size
        self.begun = []
        self.alone = []
        self.at_play = []
        self._changed = threading.Condition()

    def begin(self, observer):
        """Note an observer that begins, and have it wait until all play; the first that waits too long is alone."""
        with self._changed:
            self.begun.append(observer)
            self.at_play.append(observer)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.alone or len(self.begun) >= self.size, timeout=_SECONDS_TO_MEET)
            if len(self.begun) < self.size and not self.alone:
                self.alone.append(observer)
                self._changed.notify_all()

    def at_play_after_all_began(self):
        """Return which observers play now, or have been called and begin to play within a second."""
        with self._changed:
            at_play, begun = list(self.at_play), len(self.begun)
            self._changed.wait_for(lambda: len(self.begun) >= self.size, timeout=1)
            return at_play + self.begun[begun:]

    def end(self, observer):
        """Note an observer whose episode is over."""
        with self._changed:
            self.at_play.remove(observer)


class Keeper:
    """The agent of a check: it has what the lesson's agent has, except for the policy."""

    def __init__(self):
        self.observers = {
            f"observer{rank}": rpc.remote(rank, Player, (f"observer{rank}",))
            for rank in range(1, int(os.environ["WORLD_SIZE"]))
        }

    def prepare(self):
        """Empty the lists, as the lesson does before each round."""
        self.log_probs = {observer: [] for observer in self.observers}
        self.rewards = {observer: [] for observer in self.observers}

    def select_action(self, observer, observation):
        """Keep what stands for a log-probability, and return an action."""
        self.log_probs[observer].append(observation)
        return 0

    def report_reward(self, observer, reward):
        """Keep a reward."""
        self.rewards[observer].append(reward)


class Player:
    """An observer of a check: in its second episode observer1 raises."""

    def __init__(self, observer: str):
        self.observer = observer
        self.episodes = 0

    def run_episode(self, agent):
        """Play one step once all observers play, and return a text."""
        self.episodes += 1
        rpc.rpc_sync("agent", _begin, args=(self.observer,))
        try:
            agent.rpc_sync().select_action(self.observer, 0.5)
            if self.episodes == 2:
                if self.observer == "observer1":
                    raise ValueError(_FAILURE)
                time.sleep(_SECONDS_LONGER)
            agent.rpc_sync().report_reward(self.observer, 1.0)
        finally:
            rpc.rpc_sync("agent", _end, args=(self.observer,))
        return _result(self.observer)


class _Round(NamedTuple):
    """A round of the learner's: its result, its error, and which observers began, were alone, and played on.

    `held` are the observers of each dict of the agent, and `kept` the attribute that has an RRef to the agent.
    """

    result: object
    error: str
    begun: list[str]
    alone: list[str]
    at_play: list[str]
    held: dict[str, list]
    kept: str


def _play_rounds():
    """Play a round in which all goes well, a round in which observer1 raises, and a round without observer1.

    Returns the rounds, and whether an agent is freed after a round; True if a round went wrong.
    """
    with one_line_errors():
        agent = Keeper()
        rounds = [_played_round(agent), _played_round(agent)]
        if rounds[-1].error:  # and so observer1 may still be in the list
            agent.observers.pop("observer1", None)
        rounds.append(_played_round(agent))
        return rounds, any(played.error or played.alone for played in rounds) or _is_freed_after_a_round()


def _is_freed_after_a_round():
    """Return whether an agent is freed after a round in which all goes well; the observers' messages take a moment.

    After a failure even a right answer is not freed: torch's future keeps the error, whose traceback has the frame.
    """
    agent = Keeper()
    _played_round(agent)
    reference = weakref.ref(agent)
    del agent
    end = time.monotonic() + _SECONDS_TO_MEET
    while reference() is not None and time.monotonic() < end:
        gc.collect()
        time.sleep(0.05)
    return reference() is None


def _played_round(agent):
    watch = Watch(len(agent.observers))
    _stage[:] = [watch]
    agent.prepare()
    result, error = None, ""
    try:
        with one_line_errors():
            result = answer("my_round", [agent])
    except AnswerError as raised:
        error = str(raised)
    at_play = watch.at_play_after_all_began()
    held = {name: _names(getattr(agent, name, None)) for name in ("observers", "log_probs", "rewards")}
    kept = next((name for name, value in vars(agent).items() if isinstance(value, RRef)), "")
    _wait_for_all(watch)
    return _Round(plain(result), error, list(watch.begun), list(watch.alone), at_play, held, kept)


def _wait_for_all(watch):
    """Wait until no observer plays, so that the next round begins with idle observers."""
    end = time.monotonic() + _SECONDS_TO_MEET
    while watch.at_play and time.monotonic() < end:
        time.sleep(0.01)


def _begin(observer):
    _stage[0].begin(observer)


def _end(observer):
    _stage[0].end(observer)


def _result(observer):
    return f"{observer} played"


def _names(of_agent):
    return sorted(map(str, of_agent)) if isinstance(of_agent, dict) else []


def _require_results(exam, played, observers):
    expected = {observer: _result(observer) for observer in observers}
    exam.require(
        isinstance(played.result, dict) and played.result == expected,
        f"my_round returned {show(played.result)}, expected {expected}.",
    )


def _listed(names):
    return ", ".join(sorted(map(str, names))) or "no observer"


def _returns_and_rewards(rewards, ending, value):
    """Return the result of `returns_of`, and its list of rewards afterwards."""
    result = answer("returns_of", [rewards, ending, value])
    return plain(result), plain(rewards)


def _gradients(episodes):
    """Return what kind of loss the learner has, its gradient by each log-probability, and the rewards afterwards.

    In place of the gradients stands None if there are none.
    """
    sizes = [len(rewards) for rewards in episodes]
    leaves = [(-0.1 - 0.05 * torch.arange(size)).unbind() for size in sizes]
    log_probs = [[leaf.clone().requires_grad_() for leaf in of_episode] for of_episode in leaves]
    loss = answer("my_loss", [[list(of_episode) for of_episode in log_probs], episodes])
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        return _kind_of_loss(loss), None, plain(episodes)
    with errors_of_answer():
        loss.sum().backward()
    flat = [leaf.grad for of_episode in log_probs for leaf in of_episode]
    return _kind_of_loss(loss), [None if gradient is None else gradient.item() for gradient in flat], plain(episodes)


def _has_scores():
    return hasattr(learners_module(), "Scores")


def _play_for_scores():
    return _have_played(answer("Scores", [AgentsPolicy()]), "run_episode")


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
    environment = KnownActions(observer)
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
    first = 10 * int(observer.removeprefix("observer"))
    return [0.0, *(float(first + step) for step in range(1, _steps(observer)))]


def _kind_of_loss(loss):
    if not isinstance(loss, torch.Tensor):
        return _kind(plain(loss))
    return f"a tensor of shape {list(loss.shape)}{'' if loss.requires_grad else ' without a graph'}"


def _require_advantages(exam, episodes, advantages):
    expected = _less_mean(_apart(episodes))
    steps = [(episode, step) for episode, rewards in enumerate(episodes) for step in range(len(rewards))]
    why = next((f" {reason}" for reason, mistaken in _mistakes(episodes).items() if _same(advantages, mistaken)), "")
    for (episode, step), found, right in zip(steps, advantages, expected, strict=True):
        exam.require(
            _close(found, right),
            f"With the rewards {episodes} the log-probability of step {step} of episode {episode} has weight "
            f"{found:.3f}, expected {right:.3f}.{why}",
        )


def _mistakes(episodes):
    """Map the sentence about each plausible mistake to the weights that this mistake leads to."""
    joined = [reward for rewards in episodes for reward in rewards]
    returns = _apart(episodes)
    right = _less_mean(returns)
    return {
        "No mean is subtracted.": returns,
        "The sign is wrong: the optimizer descends, so the loss must fall when good actions become more likely.": [
            -value for value in right
        ],
        "This is the sum over the steps: divide by their number.": [len(right) * value for value in right],
        "All episodes have the same weight: average over all steps of the round, not over the episodes.": [
            len(right) * value / (len(episodes) * len(rewards))
            for rewards, values in zip(episodes, _by_episode(right, episodes), strict=True)
            for value in values
        ],
        "An episode includes the rewards of the next episode: start each episode's return at 0.": _less_mean(
            _returns(joined)
        ),
        "Each episode has a mean of its own: subtract the mean of all returns.": [
            value for rewards in episodes for value in _less_mean(_returns(rewards))
        ],
        "The rewards are not discounted.": _less_mean(
            [sum(rewards[step:]) for rewards in episodes for step in range(len(rewards))]
        ),
        "The advantages are divided by the standard deviation of the returns.": [
            value / (sum(other**2 for other in right) / (len(right) - 1)) ** 0.5 for value in right
        ],
        "These are the rewards less their mean: use the returns.": _less_mean(joined),
        "The returns are in reverse order, or count the rewards before the step.": _less_mean(
            [value for rewards in episodes for value in _returns(rewards)[::-1]]
        ),
    }


def _by_episode(values, episodes):
    """Split the values of all steps into a list for each episode."""
    remaining = iter(values)
    return [list(islice(remaining, len(rewards))) for rewards in episodes]


def _apart(episodes):
    return [value for rewards in episodes for value in _returns(rewards)]


def _returns(rewards, following=0.0):
    """Return the return of each step of one episode, after which the return `following` is expected."""
    returns = []
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
