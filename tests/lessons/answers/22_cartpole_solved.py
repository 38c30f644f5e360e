# %% World(4)
import os, warnings
import torch
import torch.distributed.rpc as rpc

warnings.filterwarnings("ignore", message="You are using a Backend")
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
name = f"observer{rank}" if rank > 0 else "agent"
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=10, _transports=["uv"], _channels=["basic"])
rpc.init_rpc(name, rank=rank, world_size=n, rpc_backend_options=options)

# %% play: solution
# Solved. Every observer made 3 calls for 7 episodes with k = 3, and played each episode with the right weights.

# %% play: skeleton
# Not yet. With episodes = 7 and k = 3, observer1 made 20 calls, expected 3.

# %% play: by remote
# Solved. Every observer made 3 calls for 7 episodes with k = 3, and played each episode with the right weights.
# solution, with `server.rpc_sync().weights()` as `server.remote().weights().to_here()`

# %% play: by a future
# Solved. Every observer made 3 calls for 7 episodes with k = 3, and played each episode with the right weights.
# solution, with `if episode % k == 0` as `if not episode % k`
# and `server.rpc_sync().weights()` as `server.rpc_async().weights().wait()`

# %% play: by the number of the next fetch
# Solved. Every observer made 3 calls for 7 episodes with k = 3, and played each episode with the right weights.
# solution, with `lengths = []` as `lengths, due = [], 0` and `if episode % k == 0` as `if episode == due`
# and `policy.load_state_dict` as `due += k; policy.load_state_dict`

# %% play: weights before every episode
# Not yet. With episodes = 7 and k = 3, observer1 made 7 calls, expected 3.
# solution, with `if episode % k == 0` as `if True`

# %% play: weights once
# Not yet. With episodes = 7 and k = 3, observer1 made 1 call, expected 3.
# solution, with `if episode % k == 0` as `if episode == 0`

# %% play: weights one episode too late
# Not yet. With episodes = 7 and k = 3, observer1 made 2 calls, expected 3.
# solution, with `episode % k == 0` as `episode % k == 1`

# %% play: weights one episode too late, and at the end
# Not yet. With episodes = 7 and k = 3, observer1 played episode 0 with weights that it had not fetched, expected the
# weights of fetch 1.
# solution, with `episode % k == 0` as `episode % k == 1 or episode == 6`

# %% play: weights after the kth episode
# Not yet. With episodes = 7 and k = 3, observer1 played episode 0 with weights that it had not fetched, expected the
# weights of fetch 1.
# solution, with `if episode % k == 0` as `if False` and `lengths.append(length)`
# as `lengths.append(length); episode % k == 0 and policy.load_state_dict(server.rpc_sync().weights())`

# %% play: weights that are fetched and not loaded
# Not yet. With episodes = 7 and k = 3, observer1 played episode 0 with weights that it had not fetched, expected the
# weights of fetch 1.
# solution, with `policy.load_state_dict(server.rpc_sync().weights())` as `server.rpc_sync().weights()`

# %% play: actions that the policy does not prefer
# Not yet. With episodes = 7 and k = 3, observer1 took 20 actions that its policy does not prefer.
# solution, with `argmax` as `argmin`

# %% play: returns no lengths
# Not yet. With episodes = 7 and k = 3, observer1 returned [], expected [2, 3, 4, 2, 3, 4, 2].
# solution, without `lengths.append(length)`

# %% play: returns nothing
# Not yet. With episodes = 7 and k = 3, observer1 returned None, expected [2, 3, 4, 2, 3, 4, 2].
# solution, with `return lengths` as `return None`

# %% play: an episode too few
# Not yet. With episodes = 7 and k = 3, observer1 played 6 episodes, expected 7.
# solution, with `range(episodes)` as `range(episodes - 1)`

# %% play: an episode cut short
# Not yet. With episodes = 7 and k = 3, observer1 took 1 step in episode 0, which has 2.
# solution, with `length += 1` as `length += 1; over = True`

# %% play: an error on an observer
# Not yet. With episodes = 7 and k = 3, observer1 raised RuntimeError: the environment was asked for a step after its
# episode had ended
# solution, with `terminated or truncated` as `terminated`

# %% play: that is not there on one observer
# Not yet. With episodes = 7 and k = 3, observer3 has no function `play`: run its cell on all ranks.
# solution
if rank == 3:
    del play

# %% my_answer: skeleton
# Not yet. With 1 of 3 requests there, my_answer asked the network, expected it to wait.

# %% my_answer: solution
# Solved. All requests were answered by one pass, each with its own actions, and not before all were there.

# %% my_answer
# Solved. All requests were answered by one pass, each with its own actions, and not before all were there.
def my_answer(agent):
    if agent.waiting and len(agent.waiting) == agent.playing:
        actions = agent.select_action(torch.cat([seen for seen, _ in agent.waiting]))
        begin = 0
        for seen, future in agent.waiting:
            future.set_result(actions[begin : begin + len(seen)])
            begin += len(seen)
        agent.waiting.clear()

# %% my_answer
# Solved. All requests were answered by one pass, each with its own actions, and not before all were there.
def my_answer(agent):
    while agent.waiting and len(agent.waiting) >= agent.playing:
        asked, agent.waiting = agent.waiting, []
        seen = torch.vstack([one for one, _ in asked])
        actions = list(agent.select_action(seen))
        for one, future in asked:
            own = [actions.pop(0) for _ in one]
            future.set_result(torch.stack(own))

# %% my_answer
# Solved. All requests were answered by one pass, each with its own actions, and not before all were there.
def my_answer(agent):
    if 0 < agent.playing <= len(agent.waiting):
        observations, futures = zip(*agent.waiting)
        del agent.waiting[:]
        actions = agent.select_action(torch.cat(observations)).split([len(one) for one in observations])
        [future.set_result(own) for future, own in zip(futures, actions)]

# %% my_answer
# Not yet. With 0 of 0 requests there, my_answer raised ...
# solution, without `not agent.waiting or `

# %% my_answer
# Not yet. With 1 of 3 requests there, my_answer asked the network ...
# solution, without ` or len(agent.waiting) < agent.playing`

# %% my_answer
# Not yet. With 2 of 2 requests there, the network ...
# solution, with `len(agent.waiting) < agent.playing` as `len(agent.waiting) < 3`

# %% my_answer
# Not yet. With 3 of 3 requests there, 3 that have been answered are left in ...
# solution, without `agent.waiting = []`

# %% my_answer
# Not yet. ... request 1 got the actions [8, 12], ...
# solution, with `actions.split(sizes)` as `actions.split(2)`

# %% my_answer
# Not yet. With 3 of 3 requests there, request 0 got no answer.
# solution, with `requests,` as `requests[1:],`

# %% my_answer
# Not yet. ... request 0 got the actions [0, 4, 8, 12, 16, 20], ...
# solution, with `answer.set_result(own)` as `answer.set_result(actions)`

# %% my_answer
# Not yet. With 3 of 3 requests there, my_answer raised AttributeError ...
# solution, with `agent.select_action` as `agent.select`

# %% my_answer: one pass for each request
# Not yet. ... the network got [2, 3, 1] observations, one number for each pass ...
def my_answer(agent):
    if agent.waiting and len(agent.waiting) == agent.playing:
        for seen, future in agent.waiting:
            future.set_result(agent.select_action(seen))
        agent.waiting = []

# %% play_all: skeleton
# Not yet. Of environment 0 observer1 returned [10.0, 11.0, 12.0, 0.0, 10.0, 11.0, 12.0, 0.0 ... and its first episode
# has [10.0, 11.0, 12.0].

# %% play_all: solution
# Solved. Each observer brought 3 episodes, by one call a step, without the steps after an end.

# %% play_all
# Solved. Each observer brought 3 episodes, by one call a step, without the steps after an end.
# solution,
# with `agent.rpc_sync().select_action(observations)` as `agent.remote().select_action(observations).to_here()`

# %% play_all
# Solved. Each observer brought 3 episodes, by one call a step, without the steps after an end.
# solution, with `return rewards` as `return [torch.tensor(own) for own in rewards]`

# %% play_all
# Solved. Each observer brought 3 episodes, by one call a step, without the steps after an end.
# solution, with `select_action(observations)` as `select_action(torch.from_numpy(observations))`

# %% play_all
# Not yet. observer1 raised RuntimeError: the first episodes were over long ago ...
# solution, without ` or truncated[place]`

# %% play_all
# Not yet. Of environment 0 observer1 returned [10.0, 11.0], and its ...
# solution, with `while any(playing)` as `while all(playing)`

# %% play_all
# Not yet. ... and 30 steps have been taken ...
# solution, with `            if playing[place]:` as `            if True:`

# %% play_all
# Not yet. observer1 made 8 calls for 4 steps, expected one for each.
# solution,
# with `actions = agent.rpc_sync().select_action(observations)`
# as `actions = agent.rpc_sync().select_action(observations); agent.rpc_sync().select_action(observations)`

# %% play_all
# Not yet. ... environment 0 got action 1 in step 0, and the agent says ...
# solution, with `actions.numpy()` as `1 - actions.numpy()`

# %% play_all
# Not yet. ... expected a list of rewards for each environment.
# solution, with `return rewards` as `return rewards[0]`

# %% play_all
# Not yet. observer1 raised NameError ...
# solution, with `return rewards` as `return missing`

# %% play_all: that are not there
# Not yet. Rank 1 has no function `play_all`: run the cell that defines it, then this check.
globals().pop("play_all", None)

# %% snapshot: skeleton
# Not yet. ... weights that the old one had only later ...

# %% snapshot: solution
# Solved. The new agent went on as the old one did, weight for weight.

# %% snapshot
# Solved. The new agent went on as the old one did, weight for weight.
import io

def snapshot(agent, running):
    file = io.BytesIO()
    torch.save([agent.policy.state_dict(), agent.optimizer.state_dict(), running], file)
    return file.getvalue()

def go_on(agent, saved):
    policy, optimizer, running = torch.load(io.BytesIO(saved))
    agent.policy.load_state_dict(policy)
    agent.optimizer.load_state_dict(optimizer)
    return running

# %% snapshot
# Solved. The new agent went on as the old one did, weight for weight.
import copy

def snapshot(agent, running):
    return copy.deepcopy((agent.policy, agent.optimizer)), running

def go_on(agent, saved):
    (agent.policy, agent.optimizer), running = saved
    return running

# %% snapshot
# Solved. The new agent went on as the old one did, weight for weight.
import pickle

def snapshot(agent, running):
    return pickle.dumps((agent.policy.state_dict(), agent.optimizer.state_dict(), running))

def go_on(agent, saved):
    policy, optimizer, running = pickle.loads(saved)
    agent.policy.load_state_dict(policy)
    agent.optimizer.load_state_dict(optimizer)
    return running

# %% snapshot
# Not yet. ... the optimizer has a state, too ...
# solution, without `agent.optimizer.load_state_dict(saved["optimizer"])`

# %% snapshot
# Not yet. ... had only later ...
# solution, with `return copy.deepcopy(saved)` as `return saved`

# %% snapshot
# Not yet. ... has a state ...
# solution, with `return copy.deepcopy(saved)` as `return {**saved, 'policy': copy.deepcopy(saved['policy'])}`

# %% snapshot
# Not yet. ... did not begin with the weights ...
# solution, without `agent.policy.load_state_dict(saved["policy"])`

# %% snapshot
# Not yet. go_on returned 0.0, expected the running reward, 123.0.
# solution, with `return saved["running"]` as `return 0.0`

# %% snapshot
# Not yet. ... raised ...
# solution, with `return copy.deepcopy(saved)` as `agent.policy.requires_grad_(False).zero_(); return saved`

# %% snapshot: without go_on
# Not yet. Rank 0 has no function `go_on`: run the cell that defines it, then this check.
# solution
del go_on

# %% snapshot: that is not there
# Not yet. Rank 0 has no function `snapshot`: run the cell that defines it, then this check.
# solution
del snapshot

# %% World(4)
# Nobody has started RPC.

# %% play: before RPC has been started
# Not yet. RPC is not running: run the setup cell and the cell of your answer, then this check.
pass
