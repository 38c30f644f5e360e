# %% World(4)
# The checks start RPC themselves.

# %% returns_of: solution
# Solved. Every step has the return of its own observer's episode, in the order of arrival.

# %% returns_of: skeleton
# Not yet. Of the rewards of observer1, observer2, observer1, observer2, observer2 ... the one in place 0, of observer1,
# has return 4.901, expected 1.990.

# %% returns_of: by the definition
# Solved. ...
def returns_of(arrived):
    returns = []
    for place, (observer, _) in enumerate(arrived):
        own = [reward for other, reward in arrived[place:] if other == observer]
        returns.append(sum(0.99**k * reward for k, reward in enumerate(own)))
    return returns

# %% returns_of: one observer after the other
# Solved. ...
def returns_of(arrived):
    returns = [0.0] * len(arrived)
    for observer in {observer for observer, _ in arrived}:
        following = 0.0
        for place in reversed(range(len(arrived))):
            if arrived[place][0] == observer:
                following = returns[place] = arrived[place][1] + 0.99 * following
    return returns

# %% returns_of: in the order of the observers
# Not yet. Of the rewards of observer1, observer2, observer1, observer2, observer2 ... the one in place 1, of observer2,
# has return 1.000, expected 2.970.
def returns_of(arrived):
    returns = []
    for name in sorted({name for name, _ in arrived}):
        own, following = [], 0.0
        for reward in [reward for other, reward in arrived if other == name]:
            following = reward + 0.99 * following
            own.append(following)
        returns += own[::-1]
    return returns

# %% returns_of: discounted by the distance in arrivals
# Not yet. Of the rewards of observer1, observer2, observer1, observer2, observer2 ... the one in place 0, of observer1,
# has return 1.980, expected 1.990.
def returns_of(arrived):
    return [
        sum(reward * 0.99**later for later, (name, reward) in enumerate(arrived[place:]) if name == arrived[place][0])
        for place in range(len(arrived))
    ]

# %% returns_of: that look back
# Not yet. Of the rewards of observer1, observer2, observer1, observer2, observer2 ... the one in place 0, of observer1,
# has return 1.000, expected 1.990.
def returns_of(arrived):
    returns, before = [], {}
    for name, reward in arrived:
        before[name] = reward + 0.99 * before.get(name, 0.0)
        returns.append(before[name])
    return returns

# %% returns_of: as a tensor on the agent alone
# Solved. ...
# solution
import os, torch
by_list = returns_of
def returns_of(arrived):
    assert os.environ["RANK"] == "0"
    return torch.tensor(by_list(arrived))

# %% returns_of: by observer
# Not yet. The agent returned a dict, expected a list of numbers.
def returns_of(arrived):
    return dict(arrived)

# %% returns_of: of a part
# Not yet. The agent returned 2 returns, expected 5, one for each reward.
def returns_of(arrived):
    return [1.99, 1.0]

# %% returns_of: that raise
# Not yet. Rank 0 raised IndexError: list index out of range
def returns_of(arrived):
    return arrived[5]

# %% run_episode: solution
# Solved. The observers made 5 calls for 4 steps, 6 calls for 5 steps, 7 calls for 6 steps, and the agent knew every
# reward before the next step.

# %% run_episode: skeleton
# Not yet. observer1 made 8 calls for 4 steps, expected 5.

# %% run_episode: with all rewards in the end
# Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1.
class Scores:
    def __init__(self, policy):
        self.policy = policy
        self.rewards = {}

    def select_action(self, name, observation):
        return self.policy(observation)

    def report_reward(self, name, reward):
        self.rewards.setdefault(name, []).append(reward)

def run_episode(agent, environment, name):
    observation, _ = environment.reset()
    terminated = truncated = False
    rewards = []
    while not (terminated or truncated):
        action = agent.rpc_sync().select_action(name, observation)
        observation, reward, terminated, truncated, _ = environment.step(action)
        rewards.append(reward)
    agent.rpc_sync().report_rewards(name, rewards)

Scores.report_rewards = lambda self, name, rewards: self.rewards.update({name: rewards})

# %% run_episode: whose last reward comes home
# Solved. ...
# solution, with `agent.rpc_sync().report_reward(name, reward)` as `return reward`

# %% run_episode
# Solved. ...
# solution, with `agent.rpc_sync().report_reward(name, reward)` as `return [reward], "terminated"`

# %% run_episode: by remote
# Solved. ...
import torch.distributed.rpc as rpc

class Scores:
    def __init__(self, policy):
        self.policy = policy
        self.rewards = {}

    def select_action(self, name, observation, reward):
        if reward is not None:
            self.report_reward(name, reward)
        return self.policy(observation)

    def report_reward(self, name, reward):
        self.rewards.setdefault(name, []).append(reward)

def run_episode(agent, environment, name):
    observation, _ = environment.reset()
    reward = None
    terminated = truncated = False
    while not (terminated or truncated):
        action = agent.remote().select_action(name, observation, reward).to_here()
        observation, reward, terminated, truncated, _ = environment.step(action)
    agent.rpc_async().report_reward(name, reward).wait()

# %% run_episode: without the last reward
# Not yet. The agent holds the rewards [10.0, 11.0, 12.0] of observer1, expected [10.0, 11.0, 12.0, 13.0].
# solution, without `agent.rpc_sync().report_reward(name, reward)`

# %% run_episode: with one list for all
# Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1.
# solution, with `name, []` as `"all", []`

# %% run_episode: that counts a first reward
# Not yet. When observer1 took step 0, the agent knew 1 of its rewards, expected 0.
# solution, with `reward = None` as `reward = 0.0`

# %% run_episode: that takes no notice of a cut
# Not yet. Rank 2 raised RuntimeError: the environment was asked for a step after its episode had ended
# solution, with `while not (terminated or truncated):` as `while not terminated:`

# %% run_episode: by asynchronous reports
# Not yet. ...
# skeleton, with `agent.rpc_sync().report_reward(name, reward)` as `agent.rpc_async().report_reward(name, reward)`

# %% run_episode: that plays alone
# Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1.
# skeleton, with `action = agent.rpc_sync().select_action(name, observation)` as `action = 0`
# and `agent.rpc_sync().report_reward(name, reward)` as `pass`

# %% run_episode: with actions of its own
# Not yet. At step 1 observer1 took action 0, expected the policy's action 1.
# skeleton, with `action = agent.rpc_sync().select_action(name, observation)` as `action = 0`

# %% run_episode: whose agent raises
# Not yet. Rank 1 raised AttributeError("'Scores' object has no attribute 'polices'") on agent
# skeleton, with `return self.policy(observation)` as `return self.polices(observation)`

# %% run_episode: that is not there
# Not yet. Rank 1 has no function `run_episode`: run the cell that defines it, then this check.
# solution
del run_episode

# %% run_episode: without the class
# Not yet. Rank 0 has no class `Scores`: run the cell that defines it, then this check.
# solution
del run_episode, Scores

# %% my_episode: skeleton
# Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1.

# %% my_episode: solution
# Solved. Each observer asked the agent for every action, and reported every reward before the next one.

# %% my_episode
# Solved. Each observer asked the agent for every action, and reported every reward before the next one.
# solution,
# with `agent.rpc_sync().select_action(name, observation)`
# as `agent.rpc_async().select_action(name, observation).wait()`

# %% my_episode
# Solved. Each observer asked the agent for every action, and reported every reward before the next one.
# solution,
# with `agent.rpc_sync().select_action(name, observation)`
# as `agent.remote().select_action(name, __import__('torch').from_numpy(observation)).to_here()`

# %% my_episode
# Solved. Each observer asked the agent for every action, and reported every reward before the next one.
# solution,
# with `agent.rpc_sync().report_reward(name, reward)` as `agent.rpc_async().report_reward(name, reward).wait()`

# %% my_episode
# Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1.
# solution, without `agent.rpc_sync().report_reward(name, reward)`

# %% my_episode
# Not yet. At step 1 observer1 took action 0, expected the policy's action 1.
# solution, with `agent.rpc_sync().select_action(name, observation)` as `0`

# %% my_episode
# Not yet. observer1 made 12 calls for 4 steps, expected 8.
# solution,
# with `agent.rpc_sync().report_reward(name, reward)`
# as `agent.rpc_sync().report_reward(name, reward); agent.rpc_sync().select_action(name, observation)`

# %% my_episode
# Not yet. ... asked for a step after its episode had ...
# solution, with `while not (terminated or truncated)` as `while not terminated`

# %% my_episode
# Not yet. observer1 returned None, expected ...
# solution, with `return "terminated" if terminated else "truncated"` as `return None`

# %% my_episode
# Not yet. ... the agent knew 0 of its rewards, expected 1.
# solution, with `rpc_sync().report_reward` as `to_here().report_reward`

# %% my_episode
# Not yet. ... the agent knew 0 of its rewards, expected 1.
# solution, with `rpc_sync().report_reward` as `rpc_async().report_reward`

# %% my_episode: that is not there
# Not yet. Rank 1 has no function `my_episode`: run the cell that defines it, then this check.
globals().pop("my_episode", None)

# %% my_weights: skeleton
# Not yet. Of the episodes [[1.0, 1.0], [1.0, 1.0, 1.0]] step 0 of episode 0 has weight 1.000, expected 0.200.

# %% my_weights: solution
# Solved. Each step has the return of its own episode, less the mean of all returns.

# %% my_weights: with a tensor
# Solved. Each step has the return of its own episode, less the mean of all returns.
import numpy as np, torch

def of(rewards):
    return torch.tensor([sum(r * 0.99**k for k, r in enumerate(rewards[step:])) for step in range(len(rewards))])

def my_weights(episodes):
    returns = torch.cat([of(rewards) for rewards in episodes])
    return returns - returns.mean()

# %% my_weights
# Solved. Each step has the return of its own episode, less the mean of all returns.
# answer "with a tensor",
# with `torch.cat([of(rewards) for rewards in episodes])` as `[x for rewards in episodes for x in of(rewards).tolist()]`
# and `return returns - returns.mean()` as `return [x - sum(returns) / len(returns) for x in returns]`

# %% my_weights
# Solved. Each step has the return of its own episode, less the mean of all returns.
# answer "with a tensor",
# with `torch.cat([of(rewards) for rewards in episodes])` as `np.concatenate([of(r).numpy() for r in episodes])`

# %% my_weights
# Not yet. ... No mean is subtracted.
# answer "with a tensor",
# with `returns = torch.cat([of(rewards) for rewards in episodes])` as `return torch.cat([of(r) for r in episodes])`,
# without `return returns - returns.mean()`

# %% my_weights
# Not yet. ... An episode includes the rewards of the next episode ...
# answer "with a tensor",
# with `returns = torch.cat([of(rewards) for rewards in episodes])` as `r = of(sum(episodes, []))`
# and `return returns - returns.mean()` as `return r - r.mean()`

# %% my_weights
# Not yet. ... Each episode has a mean of its own ...
# answer "with a tensor",
# with `returns = torch.cat([of(rewards) for rewards in episodes])`
# as `return torch.cat([of(r) - of(r).mean() for r in episodes])`, without `return returns - returns.mean()`

# %% my_weights
# Not yet. ... the rewards before the step ...
# answer "with a tensor",
# with `returns = torch.cat([of(rewards) for rewards in episodes])` as `r = torch.cat([of(r[::-1]) for r in episodes])`
# and `return returns - returns.mean()` as `return r - r.mean()`

# %% my_weights
# Not yet. ... in reverse order ...
# answer "with a tensor",
# with `returns = torch.cat([of(rewards) for rewards in episodes])`
# as `r = torch.cat([of(r).flip(0) for r in episodes])` and `return returns - returns.mean()` as `return r - r.mean()`

# %% my_weights
# Not yet. my_weights returned 2 weights, expected 5, one for each step.
# answer "with a tensor", with `returns = torch.cat([of(rewards) for rewards in episodes])` as `return of(episodes[0])`,
# without `return returns - returns.mean()`

# %% my_weights
# Not yet. my_weights returned None, expected a list of numbers.
# answer "with a tensor", with `returns = torch.cat([of(rewards) for rewards in episodes])` as `return None`,
# without `return returns - returns.mean()`

# %% my_weights
# Not yet. ... NameError ...
# answer "with a tensor", with `returns = torch.cat([of(rewards) for rewards in episodes])` as `return missing`,
# without `return returns - returns.mean()`
