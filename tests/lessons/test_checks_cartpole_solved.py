"""The checks of notebook 19 accept the solutions, and refuse the skeletons and plausible wrong answers, saying why."""

import pytest
from answers import cell, says

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
    found = checks.cartpole_solved.play(world)
    assert bool(found) == repr(found).startswith("Solved. ")
    return repr(found)


def test_the_solution(world):
    solved = "Every observer made 3 calls for 7 episodes with k = 3, and played each episode with the right weights."
    assert verdict(world) == f"Solved. {solved}"
    fetched = "if episode % k == 0: policy.load_state_dict(server.remote().weights().to_here())"
    assert verdict(world, fetch=fetched) == f"Solved. {solved}"
    fetched = "if not episode % k: weights = server.rpc_async().weights().wait(); policy.load_state_dict(weights)"
    assert verdict(world, fetch=fetched) == f"Solved. {solved}"
    assert verdict(world, before="due = 0", fetch=f"if episode == due: due += k; {FETCH}") == f"Solved. {solved}"


def test_the_skeleton_fetches_before_every_step(world):
    assert verdict(world, fetch="", step=FETCH) == f"Not yet. {FIRST} made 20 calls, expected 3."


def test_weights_before_every_episode(world):
    assert verdict(world, fetch=FETCH) == f"Not yet. {FIRST} made 7 calls, expected 3."


def test_weights_once(world):
    assert verdict(world, before=FETCH, fetch="") == f"Not yet. {FIRST} made 1 call, expected 3."


def test_weights_one_episode_too_late(world):
    late = EVERY_KTH.replace("== 0", "== 1")
    assert verdict(world, fetch=late) == f"Not yet. {FIRST} made 2 calls, expected 3."
    late = f"if episode % k == 1 or episode == 6: {FETCH}"
    said = "played episode 0 with weights that it had not fetched, expected the weights of fetch 1."
    assert verdict(world, fetch=late) == f"Not yet. {FIRST} {said}"


def test_weights_after_the_kth_episode(world):
    after = f"{KEEP}\n        if episode % k == 0: {FETCH}"
    said = "played episode 0 with weights that it had not fetched, expected the weights of fetch 1."
    assert verdict(world, fetch="", after=after) == f"Not yet. {FIRST} {said}"


def test_weights_that_are_fetched_and_not_loaded(world):
    unused = "if episode % k == 0: server.rpc_sync().weights()"
    said = "played episode 0 with weights that it had not fetched, expected the weights of fetch 1."
    assert verdict(world, fetch=unused) == f"Not yet. {FIRST} {said}"


def test_the_action_that_the_policy_does_not_prefer(world):
    said = f"Not yet. {FIRST} took 20 actions that its policy does not prefer."
    assert verdict(world, choose="argmin") == said


def test_what_is_returned(world):
    expected = "expected [2, 3, 4, 2, 3, 4, 2]."
    assert verdict(world, after="") == f"Not yet. {FIRST} returned [], {expected}"
    assert verdict(world, result="None") == f"Not yet. {FIRST} returned None, {expected}"


def test_an_episode_too_few_or_cut_short(world):
    assert verdict(world, before="episodes = episodes - 1") == f"Not yet. {FIRST} played 6 episodes, expected 7."
    said = "took 1 step in episode 0, which has 2."
    one_step = PLAY.replace("length += 1", "length += 1; ends = [True]")
    world.view.execute(one_step.format("", EVERY_KTH, "", "argmax", KEEP, "lengths"), silent=True)
    assert repr(checks.cartpole_solved.play(world)) == f"Not yet. {FIRST} {said}"


def test_an_error_on_an_observer(world):
    said = f"Not yet. {FIRST} raised RuntimeError: the environment was asked for a step after its episode had ended"
    only_falls = PLAY.replace("any(ends)", "(ends and ends[0])")
    world.view.execute(only_falls.format("", EVERY_KTH, "", "argmax", KEEP, "lengths"), silent=True)
    assert repr(checks.cartpole_solved.play(world)) == said


def test_an_observer_without_the_function(world):
    verdict(world)
    world.view.client[world.view.targets[-1]].execute("del play", silent=True, block=True)
    said = "Not yet. With episodes = 7 and k = 3, observer3 has no function `play`: run its cell on all ranks."
    assert repr(checks.cartpole_solved.play(world)) == said


def test_without_rpc(broken_world):
    broken_world.restart()
    said = "Not yet. RPC is not running: run the setup cell and the cell of your answer, then this check."
    assert repr(checks.cartpole_solved.play(broken_world)) == said


def skeleton(contains):
    return cell("19_cartpole_solved.ipynb", contains)


def solution(contains, *changes):
    """Return the solution with some lines changed."""
    answer = cell("solutions/19_cartpole_solved.ipynb", contains)
    for old, new in changes:
        assert old in answer
        answer = answer.replace(old, new)
    return answer


# ---------------------------------------------------------------- collected

ANSWERED = "Solved. All requests were answered by one pass, each with its own actions, and not before all were there."


def test_collected_skeleton_and_solution(world):
    assert says(checks.cartpole_solved.my_answer, world, skeleton("def my_answer(")) == (
        "Not yet. With 1 of 3 requests there, my_answer asked the network, expected it to wait."
    )
    assert says(checks.cartpole_solved.my_answer, world, solution("def my_answer(")) == ANSWERED


@pytest.mark.parametrize(
    "answer",
    [
        """
        def my_answer(agent):
            if agent.waiting and len(agent.waiting) == agent.playing:
                actions = agent.select_action(torch.cat([seen for seen, _ in agent.waiting]))
                begin = 0
                for seen, future in agent.waiting:
                    future.set_result(actions[begin : begin + len(seen)])
                    begin += len(seen)
                agent.waiting.clear()
        """,
        """
        def my_answer(agent):
            while agent.waiting and len(agent.waiting) >= agent.playing:
                asked, agent.waiting = agent.waiting, []
                seen = torch.vstack([one for one, _ in asked])
                actions = list(agent.select_action(seen))
                for one, future in asked:
                    own = [actions.pop(0) for _ in one]
                    future.set_result(torch.stack(own))
        """,
        """
        def my_answer(agent):
            if 0 < agent.playing <= len(agent.waiting):
                observations, futures = zip(*agent.waiting)
                del agent.waiting[:]
                actions = agent.select_action(torch.cat(observations)).split([len(one) for one in observations])
                [future.set_result(own) for future, own in zip(futures, actions)]
        """,
    ],
)
def test_collected_in_other_styles(world, answer):
    assert says(checks.cartpole_solved.my_answer, world, answer) == ANSWERED


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("not agent.waiting or ", ""), "With 0 of 0 requests there, my_answer raised "),
        ((" or len(agent.waiting) < agent.playing", ""), "With 1 of 3 requests there, my_answer asked the network"),
        (("len(agent.waiting) < agent.playing", "len(agent.waiting) < 3"), "With 2 of 2 requests there, the network"),
        (("    agent.waiting = []\n", ""), "With 3 of 3 requests there, 3 that have been answered are left in"),
        (
            ("actions.split(sizes)", "actions.split(2)"),
            "request 1 got the actions [8, 12],",
        ),
        (("zip(requests,", "zip(requests[1:],"), "With 3 of 3 requests there, request 0 got no answer."),
        (("answer.set_result(own)", "answer.set_result(actions)"), "request 0 got the actions [0, 4, 8, 12, 16, 20],"),
        (("agent.select_action(", "agent.select("), "With 3 of 3 requests there, my_answer raised AttributeError"),
    ],
)
def test_wrong_collected(world, change, why):
    said = says(checks.cartpole_solved.my_answer, world, solution("def my_answer(", change))
    assert said.startswith("Not yet. ") and why in said, said


def test_one_pass_for_each_request(world):
    answer = """
        def my_answer(agent):
            if agent.waiting and len(agent.waiting) == agent.playing:
                for seen, future in agent.waiting:
                    future.set_result(agent.select_action(seen))
                agent.waiting = []
    """
    assert "the network got [2, 3, 1] observations, one number for each pass" in says(
        checks.cartpole_solved.my_answer, world, answer
    )


# ---------------------------------------------------------------- first_episodes

BROUGHT = "Solved. Each observer brought 3 episodes, by one call a step, without the steps after an end."


def test_first_episodes_skeleton_and_solution(world):
    said = says(checks.cartpole_solved.play_all, world, skeleton("def play_all("))
    assert said.startswith("Not yet. Of environment 0 observer1 returned [10.0, 11.0, 12.0, 0.0, 10.0, 11.0, 12.0, 0.0")
    assert said.endswith("and its first episode has [10.0, 11.0, 12.0].")
    assert says(checks.cartpole_solved.play_all, world, solution("def play_all(")) == BROUGHT


@pytest.mark.parametrize(
    "changes",
    [
        [("agent.rpc_sync().select_action(observations)", "agent.remote().select_action(observations).to_here()")],
        [("return rewards", "return [torch.tensor(own) for own in rewards]")],
        [("select_action(observations)", "select_action(torch.from_numpy(observations))")],
    ],
)
def test_first_episodes_in_other_styles(world, changes):
    assert says(checks.cartpole_solved.play_all, world, solution("def play_all(", *changes)) == BROUGHT


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            [(" or truncated[place]", "")],
            "observer1 raised RuntimeError: the first episodes were over long ago",
        ),
        ([("while any(playing)", "while all(playing)")], "Of environment 0 observer1 returned [10.0, 11.0], and its"),
        ([("            if playing[place]:", "            if True:")], "and 30 steps have been taken"),
        (
            [("        step = env", "        agent.rpc_sync().select_action(observations)\n        step = env")],
            "observer1 made 8 calls for 4 steps, expected one for each.",
        ),
        ([("actions.numpy()", "1 - actions.numpy()")], "environment 0 got action 1 in step 0, and the agent says"),
        ([("return rewards", "return rewards[0]")], "expected a list of rewards for each environment."),
        ([("return rewards", "return missing")], "observer1 raised NameError"),
    ],
)
def test_wrong_first_episodes(world, changes, why):
    said = says(checks.cartpole_solved.play_all, world, solution("def play_all(", *changes))
    assert said.startswith("Not yet. ") and why in said, said


def test_first_episodes_that_are_not_there(world):
    assert says(checks.cartpole_solved.play_all, world, "globals().pop('play_all', None)") == (
        "Not yet. Rank 1 has no function `play_all`: run the cell that defines it, then this check."
    )


# ---------------------------------------------------------------- went_on

WENT_ON = "Solved. The new agent went on as the old one did, weight for weight."


def test_went_on_skeleton_and_solution(world):
    assert "weights that the old one had only later" in says(
        checks.cartpole_solved.snapshot, world, skeleton("def snapshot(")
    )
    assert says(checks.cartpole_solved.snapshot, world, solution("def snapshot(")) == WENT_ON


@pytest.mark.parametrize(
    "answer",
    [
        """
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
        """,
        """
        import copy
        def snapshot(agent, running):
            return copy.deepcopy((agent.policy, agent.optimizer)), running

        def go_on(agent, saved):
            (agent.policy, agent.optimizer), running = saved
            return running
        """,
        """
        import pickle
        def snapshot(agent, running):
            return pickle.dumps((agent.policy.state_dict(), agent.optimizer.state_dict(), running))

        def go_on(agent, saved):
            policy, optimizer, running = pickle.loads(saved)
            agent.policy.load_state_dict(policy)
            agent.optimizer.load_state_dict(optimizer)
            return running
        """,
    ],
)
def test_went_on_in_other_styles(world, answer):
    assert says(checks.cartpole_solved.snapshot, world, answer) == WENT_ON


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('    agent.optimizer.load_state_dict(saved["optimizer"])\n', ""), "the optimizer has a state, too"),
        (("return copy.deepcopy(saved)", "return saved"), "had only later"),
        (("return copy.deepcopy(saved)", "return {**saved, 'policy': copy.deepcopy(saved['policy'])}"), "has a state"),
        (('    agent.policy.load_state_dict(saved["policy"])\n', ""), "did not begin with the weights"),
        (('return saved["running"]', "return 0.0"), "go_on returned 0.0, expected the running reward, 123.0."),
        (("return copy.deepcopy(saved)", "agent.policy.requires_grad_(False).zero_(); return saved"), "raised"),
    ],
)
def test_did_not_go_on(world, change, why):
    said = says(checks.cartpole_solved.snapshot, world, solution("def snapshot(", change))
    assert said.startswith("Not yet. ") and why in said, said


def test_went_on_without_a_function(world):
    says(checks.cartpole_solved.snapshot, world, solution("def snapshot("))
    assert "Rank 0 has no function `go_on`: run the cell that defines it, then this check." in says(
        checks.cartpole_solved.snapshot, world, "globals().pop('go_on', None)"
    )
    assert says(checks.cartpole_solved.snapshot, world, "globals().pop('snapshot', None)") == (
        "Not yet. Rank 0 has no function `snapshot`: run the cell that defines it, then this check."
    )
