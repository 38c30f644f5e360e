"""The check of notebook 18 accepts the solution, and refuses the skeleton and plausible wrong answers, saying why."""

from helpers import checks

SETUP = """
import os, warnings
import torch
import torch.distributed.rpc as rpc

warnings.filterwarnings("ignore", message="You are using a Backend")
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
name = f"observer{rank}" if rank > 0 else "agent"
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=10, _transports=["uv"], _channels=["basic"])
rpc.init_rpc(name, rank=rank, world_size=n, rpc_backend_options=options)
"""

PLAY = """
def play(server, policy, environment, episodes, k):
    lengths = []
    {}
    for episode in range(episodes):
        {}
        (observation, _), ends, length = environment.reset(), [], 0
        while not any(ends):
            {}
            action = policy(torch.as_tensor(observation)).{}().item()
            observation, _, *ends, _ = environment.step(action)
            length += 1
        {}
    return {}
"""
FETCH = "policy.load_state_dict(server.rpc_sync().weights())"
EVERY_KTH = f"if episode % k == 0: {FETCH}"
KEEP = "lengths.append(length)"
FIRST = "With episodes = 7 and k = 3, observer1"


def verdict(world, before="", fetch=EVERY_KTH, step="", choose="argmax", after=KEEP, result="lengths"):
    world.view.execute(PLAY.format(before, fetch, step, choose, after, result), silent=True)
    found = checks.parameter_server(world)
    assert bool(found) == repr(found).startswith("Solved. ")
    return repr(found)


def test_the_solution(world):
    solved = "Every observer made 3 calls for 7 episodes with k = 3, and played each episode with the right weights."
    assert verdict(world) == f"Solved. {solved}"
    fetched = "if episode % k == 0: policy.load_state_dict(server.remote().weights().to_here())"
    assert verdict(world, fetch=fetched) == f"Solved. {solved}"


def test_the_skeleton_fetches_before_every_step(world):
    assert verdict(world, fetch="", step=FETCH) == f"Not yet. {FIRST} made 20 calls, and the target is 3."


def test_weights_before_every_episode(world):
    assert verdict(world, fetch=FETCH) == f"Not yet. {FIRST} made 7 calls, and the target is 3."


def test_weights_once(world):
    assert verdict(world, before=FETCH, fetch="") == f"Not yet. {FIRST} made 1 call, and the target is 3."


def test_weights_one_episode_too_late(world):
    late = EVERY_KTH.replace("== 0", "== 1")
    assert verdict(world, fetch=late) == f"Not yet. {FIRST} made 2 calls, and the target is 3."
    late = f"if episode % k == 1 or episode == 6: {FETCH}"
    said = "played episode 0 with weights that it had not fetched, and not the weights of fetch 1."
    assert verdict(world, fetch=late) == f"Not yet. {FIRST} {said}"


def test_weights_after_the_kth_episode(world):
    after = f"{KEEP}\n        if episode % k == 0: {FETCH}"
    said = "played episode 0 with weights that it had not fetched, and not the weights of fetch 1."
    assert verdict(world, fetch="", after=after) == f"Not yet. {FIRST} {said}"


def test_weights_that_are_fetched_and_not_loaded(world):
    unused = "if episode % k == 0: server.rpc_sync().weights()"
    said = "played episode 0 with weights that it had not fetched, and not the weights of fetch 1."
    assert verdict(world, fetch=unused) == f"Not yet. {FIRST} {said}"


def test_the_action_that_the_policy_does_not_prefer(world):
    said = f"Not yet. {FIRST} took 20 actions that its policy does not prefer."
    assert verdict(world, choose="argmin") == said


def test_what_is_returned(world):
    target = "and the target is [2, 3, 4, 2, 3, 4, 2]."
    assert verdict(world, after="") == f"Not yet. {FIRST} returned [], {target}"
    assert verdict(world, result="None") == f"Not yet. {FIRST} returned None, {target}"


def test_an_episode_too_few_or_cut_short(world):
    assert verdict(world, before="episodes = episodes - 1") == f"Not yet. {FIRST} played 6 episodes."
    said = "took 1 step in episode 0, which has 2."
    one_step = PLAY.replace("length += 1", "length += 1; ends = [True]")
    world.view.execute(one_step.format("", EVERY_KTH, "", "argmax", KEEP, "lengths"), silent=True)
    assert repr(checks.parameter_server(world)) == f"Not yet. {FIRST} {said}"


def test_an_error_on_an_observer(world):
    said = f"Not yet. {FIRST} raised RuntimeError: the environment was asked for a step after its episode had ended"
    only_falls = PLAY.replace("any(ends)", "(ends and ends[0])")
    world.view.execute(only_falls.format("", EVERY_KTH, "", "argmax", KEEP, "lengths"), silent=True)
    assert repr(checks.parameter_server(world)) == said


def test_an_observer_without_the_function(world):
    verdict(world)
    world.view.client[world.view.targets[-1]].execute("del play", silent=True, block=True)
    said = "Not yet. With episodes = 7 and k = 3, observer3 has no function `play`: run its cell on all ranks."
    assert repr(checks.parameter_server(world)) == said


def test_without_rpc(broken_world):
    broken_world.restart()
    said = "Not yet. RPC is not running: run the setup cell and the cell of your answer, then this check."
    assert repr(checks.parameter_server(broken_world)) == said
