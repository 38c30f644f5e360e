# %% World(4)
# The checks start RPC themselves.
import torch
import torch.distributed.rpc as rpc

# %% my_round: solution
# Solved. All observers played at once, and the agent dropped the observer that raised, once all had ended.

# %% my_round: skeleton
# Not yet. observer1 played alone, expected all observers to play at the same time: call all of them before you wait for
# the first result.

# %% my_round: that catches RuntimeError only
# Not yet. observer1 raised a ValueError, expected `my_round` to catch every kind of error. Rank 0 raised
# ValueError('the disk is full') on observer1
# solution, with `except Exception` as `except RuntimeError`

# %% my_round: that stops at the first failure
# Not yet. observer1 raised an error, and the round returned while observer2, observer3 still played, expected it to
# wait for every observer.
def my_round(agent):
    me = rpc.RRef(agent)
    episodes = {name: rref.rpc_async().run_episode(me) for name, rref in agent.observers.items()}
    results = {}
    try:
        for name, episode in episodes.items():
            results[name] = episode.wait()
    except Exception:
        del agent.observers[name], agent.log_probs[name], agent.rewards[name]
    return results

# %% my_round: that keeps a circle
# Not yet. After the round the agent has an RRef to itself, in `me`, expected none: such a cycle is never freed.
# solution, with `me = rpc.RRef(agent)` as `me = agent.me = rpc.RRef(agent)`

# %% my_round: that keeps half an episode
# Not yet. After observer1 raised an error, `agent.log_probs` has observer1, observer2, observer3, expected observer2,
# observer3.
# solution, with `(agent.observers, agent.log_probs, agent.rewards)` as `(agent.observers, agent.rewards)`

# %% my_round: that calls the failed observer again
# Not yet. After observer1 raised an error, `agent.observers` has observer1, observer2, observer3, expected observer2,
# observer3.
# solution, with `(agent.observers, agent.log_probs, agent.rewards)` as `(agent.log_probs, agent.rewards)`

# %% my_round: that does not wait
# Not yet. ... while ... still played, ...
# solution, with `results[name] = episode.wait()` as `results[name] = f"{name} played"`

# %% my_round: without return
# Not yet. my_round returned None, expected {'observer1': 'observer1 played', 'observer2': 'observer2 played', 'observer3':
# 'observer3 played'}.
# solution, without `return results`

# %% my_round: as the tutorial has it
# Not yet. observer1 raised a ValueError, expected `my_round` to catch every kind of error. Rank 0 raised
# ValueError('the disk is full') on observer1
def my_round(agent):
    me = rpc.RRef(agent)
    episodes = {name: rref.rpc_async().run_episode(me) for name, rref in agent.observers.items()}
    return {name: episode.wait() for name, episode in episodes.items()}

# %% my_round: with wait_all
# Not yet. observer1 raised a ValueError, expected `my_round` to catch every kind of error. Rank 0 raised
# ValueError('the disk is full') on observer1
def my_round(agent):
    me = rpc.RRef(agent)
    episodes = {name: rref.rpc_async().run_episode(me) for name, rref in agent.observers.items()}
    return dict(zip(episodes, torch.futures.wait_all(list(episodes.values()))))

# %% my_round: by remote
# Solved. ...
def my_round(agent):
    me = rpc.RRef(agent)
    episodes = {name: rref.remote().run_episode(me) for name, rref in agent.observers.items()}
    results = {}
    for name, episode in episodes.items():
        try:
            results[name] = episode.to_here()
        except Exception:
            pass
    for name in set(episodes) - set(results):
        del agent.observers[name], agent.log_probs[name], agent.rewards[name]
    return results

# %% my_round: that shrinks the dict it loops over
# Not yet. In the round in which observer1 raised an error, rank 0 raised RuntimeError: dictionary changed size during
# iteration
def my_round(agent):
    me = rpc.RRef(agent)
    episodes = {name: rref.rpc_async().run_episode(me) for name, rref in agent.observers.items()}
    results = {}
    for name in agent.observers:
        try:
            results[name] = episodes[name].wait()
        except Exception:
            del agent.observers[name], agent.log_probs[name], agent.rewards[name]
    return results

# %% my_round: that returns the error
# Not yet. my_round returned {'observer1': a ValueError, 'observer2': 'observer2 played', 'observer3': 'observer3
# played'}, expected {'observer2': 'observer2 played', 'observer3': 'observer3 played'}.
def my_round(agent):
    me = rpc.RRef(agent)
    episodes = {name: rref.rpc_async().run_episode(me) for name, rref in agent.observers.items()}
    results = {}
    for name, episode in episodes.items():
        try:
            results[name] = episode.wait()
        except Exception as error:
            results[name] = error
            del agent.observers[name], agent.log_probs[name], agent.rewards[name]
    return results

# %% my_round: on threads
# Solved. ...
from concurrent.futures import ThreadPoolExecutor

def my_round(agent):
    me = rpc.RRef(agent)
    with ThreadPoolExecutor(8) as pool:
        episodes = {name: pool.submit(rref.rpc_sync().run_episode, me) for name, rref in agent.observers.items()}
    failed = [name for name, episode in episodes.items() if episode.exception()]
    agent.observers = {name: rref for name, rref in agent.observers.items() if name not in failed}
    agent.log_probs = {name: own for name, own in agent.log_probs.items() if name not in failed}
    agent.rewards = {name: own for name, own in agent.rewards.items() if name not in failed}
    return {name: episode.result() for name, episode in episodes.items() if name not in failed}

# %% my_round: that raises
# Not yet. Rank 0 raised KeyError: 'observer0'
def my_round(agent):
    return agent.observers["observer0"]

# %% my_round: that calls nobody
# Not yet. A round called `run_episode` on no observer, expected a call on each of observer1, observer2, observer3.
def my_round(agent):
    return {}

# %% my_round: that is not there
# Not yet. Rank 0 has no function `my_round`: run the cell that defines it, then this check.
globals().pop("my_round", None)

# %% my_round: keeps an RRef in a global name
# Not yet. Some RRef to the agent outlived the round, expected none: with it, the agent is never freed. Keep the RRef
# in a local variable.
def my_round(agent):
    global me
    me = rpc.RRef(agent)
    playing = {observer: rref.rpc_async().run_episode(me) for observer, rref in agent.observers.items()}
    results = {}
    for observer, episode in playing.items():
        try:
            results[observer] = episode.wait()
        except Exception:
            for held in (agent.observers, agent.log_probs, agent.rewards):
                held.pop(observer)
    return results

# %% my_round: keeps RRefs in a dict of the agent
# Not yet. Some RRef to the agent outlived the round, expected none: with it, the agent is never freed. Keep the RRef
# in a local variable.
def my_round(agent):
    agent.references = {observer: rpc.RRef(agent) for observer in agent.observers}
    playing = {observer: rref.rpc_async().run_episode(agent.references[observer]) for observer, rref in agent.observers.items()}
    results = {}
    for observer, episode in playing.items():
        try:
            results[observer] = episode.wait()
        except Exception:
            for held in (agent.observers, agent.log_probs, agent.rewards):
                held.pop(observer)
    return results

# %% my_round: bare except, new dicts
# Solved. All observers played at once, and the agent dropped the observer that raised, once all had ended.
def my_round(agent):
    playing = [(o, r.rpc_async().run_episode(rpc.RRef(agent))) for o, r in agent.observers.items()]
    results = {}
    for observer, episode in playing:
        try:
            results[observer] = episode.wait()
        except BaseException as error:
            print(observer, "failed")
    for name in ("observers", "log_probs", "rewards"):
        setattr(agent, name, {o: v for o, v in getattr(agent, name).items() if o in results})
    return results

# %% my_loss: solution
# Solved. The loss weights each log-probability with the advantage of its step, and averages over all steps.

# %% my_loss: skeleton
# Not yet. With the rewards [[1.0, 1.0], [1.0, 1.0, 1.0]] the log-probability of step 0 of episode 0 has weight 1.000,
# expected 0.200.

# %% my_loss: without a baseline
# Not yet. ... has weight 1.990, expected 0.200. No mean is subtracted.
# solution, with `-(returns - returns.mean())` as `-returns`

# %% my_loss: with episodes joined
# Not yet. ... An episode includes the rewards of the next episode: start each episode's return at 0.
def my_loss(log_probs, rewards):
    returns, following = [], 0.0
    for reward in [reward for of_episode in rewards for reward in of_episode][::-1]:
        following = reward + 0.99 * following
        returns.append(following)
    returns = torch.tensor(returns[::-1])
    flat = torch.stack([log_prob for of_episode in log_probs for log_prob in of_episode])
    return (-(returns - returns.mean()) * flat).mean()

# %% my_loss: uphill
# Not yet. ... has weight -0.200, expected 0.200. The sign is wrong: ...
# solution, with `-(returns - returns.mean())` as `(returns - returns.mean())`

# %% my_loss: as a sum
# Not yet. ... has weight 1.000, expected 0.200. This is the sum over the steps: divide by their number.
# solution, with `torch.stack(flat)).mean()` as `torch.stack(flat)).sum()`

# %% my_loss: with a mean for each episode
# Not yet. ... Each episode has a mean of its own: subtract the mean of all returns.
def of(rewards):
    returns = torch.tensor([sum(r * 0.99**k for k, r in enumerate(rewards[step:])) for step in range(len(rewards))])
    return returns - returns.mean()

def my_loss(log_probs, rewards):
    flat = torch.stack([log_prob for of_episode in log_probs for log_prob in of_episode])
    return -(torch.cat([of(of_episode) for of_episode in rewards]) * flat).mean()

# %% my_loss: with a mean of means
# Not yet. With the rewards [[1.0, 1.0], [1.0, 1.0, 1.0]] the log-probability of step 0 of episode 0 has weight 0.250,
# expected 0.200. All episodes have the same weight: average over all steps of the round, not over the episodes.
def my_loss(log_probs, rewards):
    returns = [
        torch.tensor([sum(r * 0.99**k for k, r in enumerate(rewards_of_episode[step:])) for step in range(len(rewards_of_episode))])
        for rewards_of_episode in rewards
    ]
    mean = torch.cat(returns).mean()
    losses = [(-(values - mean) * torch.stack(own)).mean() for values, own in zip(returns, log_probs)]
    return sum(losses) / len(losses)

# %% my_loss: with returns by their definition
# Solved. ...
# answer "with a mean for each episode", with `return returns - returns.mean()` as `return returns`
# and `return -(torch.cat([of(of_episode) for of_episode in rewards]) * flat).mean()`
# as `r = torch.cat([of(of_episode) for of_episode in rewards]); return -((r - r.mean()) * flat).mean()`

# %% my_loss: that does not discount
# Not yet. ... The rewards are not discounted.
# solution, with `0.99 * following` as `following`

# %% my_loss: that looks back
# Not yet. ... The returns are in reverse order, or count the rewards before the step.
# solution, with `reversed(rewards_of_episode)` as `rewards_of_episode` and `backwards[::-1]` as `backwards`

# %% my_loss: in reverse order
# Not yet. ... The returns are in reverse order, or count the rewards before the step.
# solution, with `backwards[::-1]` as `backwards`

# %% my_loss: of rewards
# Not yet. ... These are the rewards less their mean: use the returns.
# solution, with `returns += backwards[::-1]` as `returns += rewards_of_episode`

# %% my_loss: in a loop
# Solved. ...
def my_loss(log_probs, rewards):
    steps = []
    for e, of_episode in enumerate(rewards):
        for t in range(len(of_episode)):
            steps.append((sum(0.99**k * r for k, r in enumerate(of_episode[t:])), log_probs[e][t]))
    mean = sum(value for value, _ in steps) / len(steps)
    return -sum((value - mean) * log_prob for value, log_prob in steps) / len(steps)

# %% my_loss: without a graph
# Not yet. `my_loss` returned a tensor of shape [] without a graph, expected a scalar tensor whose graph leads to the
# log-probabilities.
# solution, with `torch.stack(flat)` as `torch.stack(flat).detach()`

# %% my_loss: as a number
# Not yet. `my_loss` returned a float, expected a scalar tensor whose graph leads to the log-probabilities.
# solution, with `torch.stack(flat)).mean()` as `torch.stack(flat)).mean().item()`

# %% my_loss: for each step
# Not yet. `my_loss` returned a tensor of shape [5], expected a scalar tensor whose graph leads to the
# log-probabilities.
# solution, with `torch.stack(flat)).mean()` as `torch.stack(flat))`

# %% my_loss: without return
# Not yet. `my_loss` returned None, expected a scalar tensor whose graph leads to the log-probabilities.
def my_loss(log_probs, rewards):
    pass

# %% my_loss: that raises
# Not yet. Rank 0 raised NameError: name 'absent' is not defined
def my_loss(log_probs, rewards):
    return absent

# %% my_loss: normalised
# Not yet. With the rewards [[1.0, 1.0], [1.0, 1.0, 1.0]] the log-probability of step 0 of episode 0 has weight 0.242,
# expected 0.200. The advantages are divided by the standard deviation of the returns.
def my_loss(log_probs, rewards):
    returns = []
    for of_episode in rewards:
        following, of_this = 0.0, []
        for reward in reversed(of_episode):
            following = reward + 0.99 * following
            of_this.insert(0, following)
        returns += of_this
    returns = torch.tensor(returns)
    advantages = (returns - returns.mean()) / (returns.std() + 1e-8)
    flat = torch.stack([p for of_episode in log_probs for p in of_episode])
    return -(advantages * flat).mean()

# %% my_loss: reverses the rewards in place
# Not yet. `my_loss` changed the rewards [[1.0, 2.0, 3.0], [5.0], [0.0, 0.0, 10.0, 0.0]] to [[3.0, 2.0, 1.0], [5.0],
# [0.0, 10.0, 0.0, 0.0]], expected it to leave its arguments as they are.
def my_loss(log_probs, rewards):
    returns = []
    for of_episode in rewards:
        following, of_this = 0.0, []
        of_episode.reverse()
        for reward in of_episode:
            following = reward + 0.99 * following
            of_this.insert(0, following)
        returns += of_this
    advantages = torch.tensor(returns) - sum(returns) / len(returns)
    flat = torch.stack([p for of_episode in log_probs for p in of_episode])
    return -(advantages * flat).mean()

# %% my_loss: pops the rewards
# Not yet. `my_loss` changed the rewards [[1.0, 1.0], [1.0, 1.0, 1.0]] to [[], []], expected it to leave its arguments
# as they are.
def my_loss(log_probs, rewards):
    returns = []
    for of_episode in rewards:
        following, of_this = 0.0, []
        while of_episode:
            following = of_episode.pop() + 0.99 * following
            of_this.insert(0, following)
        returns += of_this
    advantages = torch.tensor(returns) - sum(returns) / len(returns)
    flat = torch.stack([p for of_episode in log_probs for p in of_episode])
    return -(advantages * flat).mean()

# %% my_loss: float64 dot
# Solved. The loss weights each log-probability with the advantage of its step, and averages over all steps.
def my_loss(log_probs, rewards):
    returns = torch.tensor([sum(0.99 ** k * r for k, r in enumerate(e[t:])) for e in rewards for t in range(len(e))], dtype=torch.float64)
    flat = torch.stack(sum(log_probs, [])).double()
    return (returns.mean() - returns) @ flat / len(flat)

# %% returns_of: solution
# Solved. A truncated episode goes on with the value of its last observation, and a terminated one does not.

# %% returns_of: skeleton
# Not yet. The rewards [1.0, 1.0, 1.0], truncated, with the value 50.0 of the last observation: step 0 has the return
# 2.970, expected 51.485.

# %% returns_of: that always add the value
# Not yet. The rewards [1.0, 1.0, 1.0], terminated, with the value 50.0 of the last observation: step 0 has the return
# 51.485, expected 2.970.
# solution, with `value if ending == "truncated" else 0.0` as `value`

# %% returns_of: that take the value for the last reward
# Not yet. ... step 0 has the return 50.995, expected 51.485.
def returns_of(rewards, ending, value):
    returns = []
    following = 0.0
    for reward in reversed(rewards[:-1] + [value if ending == "truncated" else rewards[-1]]):
        following = reward + 0.99 * following
        returns.append(following)
    return returns[::-1]

# %% returns_of: by the definition, as a tensor
# Solved. ...
def returns_of(rewards, ending, value):
    if ending == "truncated":
        rewards = [*rewards, value]
    returns = [sum(0.99**k * reward for k, reward in enumerate(rewards[step:])) for step in range(len(rewards))]
    return torch.tensor(returns[:-1] if ending == "truncated" else returns)

# %% returns_of: with the value among the returns
# Not yet. `returns_of` returned 4 returns, expected 3, one for each reward.
def returns_of(rewards, ending, value):
    rewards = [*rewards, value] if ending == "truncated" else rewards
    return [sum(0.99**k * reward for k, reward in enumerate(rewards[step:])) for step in range(len(rewards))]

# %% returns_of: without return
# Not yet. `returns_of` returned None, expected a list of numbers.
def returns_of(rewards, ending, value):
    pass

# %% returns_of: that raise
# Not yet. Rank 0 raised IndexError: list index out of range
def returns_of(rewards, ending, value):
    return rewards[5]

# %% returns_of: appends to the rewards
# Not yet. `returns_of` changed the rewards [1.0, 1.0, 1.0] to [1.0, 1.0, 1.0, 50.0], expected it to leave the list as
# it is.
def returns_of(rewards, ending, value):
    if ending == "truncated":
        rewards.append(value)
    returns = [sum(0.99 ** k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]
    return returns[:-1] if ending == "truncated" else returns

# %% returns_of: tuple of tensors
# Solved. A truncated episode goes on with the value of its last observation, and a terminated one does not.
def returns_of(rewards, ending, value):
    from itertools import accumulate
    start = value if ending == "truncated" else 0.0
    back = list(accumulate(reversed(rewards), lambda following, reward: reward + 0.99 * following, initial=start))
    return tuple(torch.tensor(v) for v in back[:0:-1])

# %% run_episode: solution
# Solved. The observers made 5 calls for 4 steps, 6 calls for 5 steps, 7 calls for 6 steps, and the agent knew every
# reward before the next step.

# %% run_episode: skeleton
# Not yet. observer1 made 8 calls for 4 steps, expected 5.

# %% run_episode: with all rewards in the end
# Not yet. When observer1 took step 1, the agent had 0 of its rewards, expected 1.
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
# Not yet. The agent holds the rewards [0.0, 11.0, 12.0] of observer1, expected [0.0, 11.0, 12.0, 13.0].
# solution, without `agent.rpc_sync().report_reward(name, reward)`

# %% run_episode: with one list for all
# Not yet. When observer1 took step 1, the agent had 0 of its rewards, expected 1.
# solution, with `name, []` as `"all", []`

# %% run_episode: that counts a first reward
# Not yet. When observer1 took step 0, the agent had 1 of its rewards, expected 0.
# solution, with `reward = None` as `reward = 0.0`

# %% run_episode: that takes no notice of a cut
# Not yet. Rank 2 raised RuntimeError: the environment was asked for a step after its episode had ended
# solution, with `while not (terminated or truncated):` as `while not terminated:`

# %% run_episode: by asynchronous reports
# Not yet. ...
# skeleton, with `agent.rpc_sync().report_reward(name, reward)` as `agent.rpc_async().report_reward(name, reward)`

# %% run_episode: that plays alone
# Not yet. When observer1 took step 1, the agent had 0 of its rewards, expected 1.
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

# %% run_episode: truthy reward
# Not yet. When observer1 took step 1, the agent had 0 of its rewards, expected 1.
class Scores:
    def __init__(self, policy):
        self.policy = policy
        self.rewards = {}

    def step(self, name, observation, reward):
        self.rewards.setdefault(name, [])
        if reward:
            self.rewards[name].append(reward)
        return self.policy(observation)

def run_episode(agent, environment, name):
    observation, _ = environment.reset()
    over, reward = False, 0
    while not over:
        action = agent.rpc_sync().step(name, observation, reward)
        observation, reward, terminated, truncated, _ = environment.step(action)
        over = terminated or truncated
    return reward

# %% run_episode: policy of the observer
# Not yet. Rank 1 raised RuntimeError: ... the policy was sent to another rank, expected it to stay on the agent
class Scores:
    def __init__(self, policy):
        self.policy = policy
        self.rewards = {}

    def add(self, name, reward):
        self.rewards.setdefault(name, []).append(reward)

    def get(self):
        return self.policy

def run_episode(agent, environment, name):
    observation, _ = environment.reset()
    over = False
    policy = agent.rpc_sync().get()
    while not over:
        observation, reward, terminated, truncated, _ = environment.step(policy(observation))
        agent.rpc_sync().add(name, reward)
        over = terminated or truncated

# %% run_episode: whole list each time
# Solved. ...
class Scores:
    def __init__(self, policy):
        self.policy = policy
        self.rewards = {}

    def step(self, name, observation, rewards):
        self.rewards[name] = list(rewards)
        return self.policy(observation)

    def end(self, name, reward):
        self.rewards[name] += [reward]

def run_episode(agent, environment, name):
    observation, _ = environment.reset()
    over, rewards = False, []
    while not over:
        action = agent.rpc_async().step(name, observation, rewards).wait()
        observation, reward, terminated, truncated, _ = environment.step(action)
        rewards.append(reward)
        over = terminated or truncated
    agent.rpc_sync().end(name, reward)

# %% World(2), World(5): my_round, my_loss, returns_of, run_episode
