"""The training runs of 22_reinforcement_learning and 23_cartpole_solved with many seeds, in one process without RPC.

The agent, the observers and the learning rule are the lessons' own. Only `rpc` is replaced: the observers live in the
agent's process and play one after another, which changes no probability.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from statistics import median, quantiles
from typing import NamedTuple

import gymnasium as gym
import torch
from torch import nn
from torch.distributions import Categorical, Distribution
from tqdm import tqdm

from benchmarks import lesson

SEEDS = range(40)
WORLD_SIZE = 3
LEARNING = "22_reinforcement_learning.ipynb"
OF_LEARNING = ["Observer", "Agent", "run_round", "learn", "discounted", "round_of_the_lesson", "loss_of_the_lesson"]
SOLVED = "23_cartpole_solved.ipynb"
OF_SOLVED = ["Policy", "Episode", "discounted", "Agent", "learn", "train", "as_tensor"]
OF_SOLVED += ["play_all_of_the_lesson", "ManyEnvironments"]


class LocalRRef:
    """An RRef to an object in this process; a call runs at once, with the name of the owner's rank."""

    def __init__(self, value, rank, names):
        self.value, self.rank, self.names = value, rank, names

    def rpc_sync(self):
        """Return the object itself."""
        if self.rank > 0:
            self.names["name"] = f"observer{self.rank}"
        return self.value

    def rpc_async(self):
        """Return an object whose methods return futures."""
        return Completed(self.rpc_sync())


class Completed:
    """The methods of an object, each of which returns a future with the result."""

    def __init__(self, value):
        self.value = value

    def __getattr__(self, method):
        def call(*arguments):
            future = torch.futures.Future()
            future.set_result(getattr(self.value, method)(*arguments))
            return future

        return call


class LocalRPC:
    """The two functions of `torch.distributed.rpc` that the agents use."""

    def __init__(self, names):
        self.names = names

    def remote(self, rank, kind, arguments):
        """Create the object, and return an RRef to it."""
        return LocalRRef(kind(*arguments), rank, self.names)

    def RRef(self, value):  # noqa: N802, the name in torch
        """Return an RRef to an object of the agent's rank."""
        return LocalRRef(value, 0, self.names)


def names_of(notebook: str, definitions: list[str], seed: int) -> dict:
    """Return the names that the ranks of a lesson use, with the lesson's definitions."""
    torch.set_num_threads(1)
    Distribution.set_default_validate_args(False)  # faster, with the same draws
    names = {"SEED": seed, "n": WORLD_SIZE, "share": 32 // (WORLD_SIZE - 1), "torch": torch, "nn": nn, "gym": gym}
    names |= {"Categorical": Categorical, "NamedTuple": NamedTuple, "time": time}
    names["rpc"] = LocalRPC(names)
    exec(lesson.definitions(notebook, *definitions), names)
    return names


def first_training(seed: int, scaled: bool = False) -> float:
    """Return the mean of the last 20 rewards of the first training of 22.

    If `scaled`, the advantages are divided by the standard deviation of the returns.
    """
    names = names_of(LEARNING, OF_LEARNING, seed)
    agent_class, loss_of = names["Agent"], names["loss_of_the_lesson"]

    def scaled_loss(log_probs, rewards):
        returns = torch.cat([names["discounted"](of_episode) for of_episode in rewards])
        return loss_of(log_probs, rewards) / (returns.std() + 1e-8)

    agent_class.run_round, agent_class.learn = names["run_round"], names["learn"]
    names["play_round"], names["loss_of"] = names["round_of_the_lesson"], scaled_loss if scaled else loss_of
    agent = agent_class(names["Observer"])
    rewards = []
    for _ in range(60 // (WORLD_SIZE - 1)):
        agent.run_round()
        agent.learn()
        rewards += [sum(of_episode) for of_episode in agent.rewards.values()]
    return sum(rewards[-20:]) / 20


def training_until_solved(seed: int, learning_rate: float = 0.02) -> tuple[int, float, float]:
    """Return the rounds of a training of 23, the mean of its last 100 rewards, and the mean of 100 greedy episodes."""
    names = names_of(SOLVED, OF_SOLVED, seed)
    names["play_first_episodes"] = names["play_all_of_the_lesson"]
    names["Agent"].learn = names["learn"]
    agent, rewards = names["Agent"](names["ManyEnvironments"]), []
    for group in agent.optimizer.param_groups:
        group["lr"] = learning_rate
    threshold = gym.spec("CartPole-v1").reward_threshold
    names["train"](agent, rewards, [0.0], threshold, report=lambda rewards: None)
    agent.draw = lambda observations: agent.policy(observations).argmax(dim=1)
    environments = gym.make_vec("CartPole-v1", num_envs=100)
    environments.reset(seed=seed + WORLD_SIZE)
    episodes = names["play_all_of_the_lesson"](LocalRRef(agent, 0, names), environments)
    greedy = sum(len(actions) for _, actions, _, _ in episodes) / len(episodes)
    return len(rewards) // 32, sum(rewards[-100:]) / 100, greedy


def rows() -> list[list]:
    """Simulate, and return the rows of the table."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        ends = _all(pool, first_training, "22")
        scaled = _all(pool, first_training, "22, scaled", True)
        solved = _all(pool, training_until_solved, "23")
        slower = _all(pool, training_until_solved, "23, learning rate 0.01", 0.01)
    twentieths = quantiles(ends, n=20)
    higher = sum(greedy > last for _, last, greedy in solved)
    low = sum(greedy < 475 for *_, greedy in solved)
    rounds, rounds_of_slower = (median(rounds for rounds, *_ in runs) for runs in (solved, slower))
    runs = f"of {len(SEEDS)} runs"
    return [
        ["22, last 20 rewards, nine tenths of the runs", f"{twentieths[0]:.0f} to {twentieths[-1]:.0f}", runs, ""],
        ["22, last 20 rewards below 30", sum(end < 30 for end in ends), runs, ""],
        ["22, last 20 rewards, median", f"{median(ends):.0f}", f"{median(scaled):.0f}, scaled advantages", ""],
        ["23, rounds until solved, median", f"{rounds:.0f}", f"{rounds_of_slower:.0f}, learning rate 0.01", ""],
        ["23, greedy mean above the mean in training", higher, runs, ""],
        ["23, greedy mean below 475", low, runs, ""],
    ]


def _all(pool, training, what, *arguments):
    futures = [pool.submit(training, seed, *arguments) for seed in SEEDS]
    return [future.result() for future in tqdm(futures, desc=what)]
