"""The checks of 18_reinforcement_learning: each accepts the solution, and says what is wrong with other answers."""

import textwrap

import pytest
from answers import cell, says

from helpers import checks

SETUP = "pass"  # the checks start RPC themselves


def skeleton(contains):
    return cell("18_reinforcement_learning.ipynb", contains)


def solution(contains):
    return cell("solutions/18_reinforcement_learning.ipynb", contains)


# ---------------------------------------------------------------- returns_of

SHORT = "Of the rewards of observer1, observer2, observer1, observer2, observer2 ..."


def test_returns_solution(world):
    assert says(checks.reinforcement_learning.returns_of, world, solution("def returns_of(")) == (
        "Solved. Every step has the return of its own observer's episode, in the order of arrival."
    )


def test_returns_skeleton(world):
    assert says(checks.reinforcement_learning.returns_of, world, skeleton("def returns_of(")) == (
        f"Not yet. {SHORT} the one in place 0, of observer1, has return 4.901, expected 1.990."
    )


@pytest.mark.parametrize(
    "answer",
    [
        """
        def returns_of(arrived):
            returns = []
            for place, (observer, _) in enumerate(arrived):
                own = [reward for other, reward in arrived[place:] if other == observer]
                returns.append(sum(0.99**k * reward for k, reward in enumerate(own)))
            return returns
        """,
        """
        def returns_of(arrived):
            returns = [0.0] * len(arrived)
            for observer in {observer for observer, _ in arrived}:
                following = 0.0
                for place in reversed(range(len(arrived))):
                    if arrived[place][0] == observer:
                        following = returns[place] = arrived[place][1] + 0.99 * following
            return returns
        """,
    ],
    ids=["by the definition", "one observer after the other"],
)
def test_returns_in_other_styles(world, answer):
    assert says(checks.reinforcement_learning.returns_of, world, answer).startswith("Solved. ")


def test_returns_in_the_order_of_the_observers(world):
    answer = """
        def returns_of(arrived):
            returns = []
            for name in sorted({name for name, _ in arrived}):
                own, following = [], 0.0
                for reward in [reward for other, reward in arrived if other == name]:
                    following = reward + 0.99 * following
                    own.append(following)
                returns += own[::-1]
            return returns
    """
    assert says(checks.reinforcement_learning.returns_of, world, answer) == (
        f"Not yet. {SHORT} the one in place 1, of observer2, has return 1.000, expected 2.970."
    )


def test_returns_discounted_by_the_distance_in_arrivals(world):
    answer = """
        def returns_of(arrived):
            return [sum(reward * 0.99**later for later, (name, reward) in enumerate(arrived[place:])
                        if name == arrived[place][0]) for place in range(len(arrived))]
    """
    assert says(checks.reinforcement_learning.returns_of, world, answer) == (
        f"Not yet. {SHORT} the one in place 0, of observer1, has return 1.980, expected 1.990."
    )


def test_returns_that_look_back(world):
    answer = """
        def returns_of(arrived):
            returns, before = [], {}
            for name, reward in arrived:
                before[name] = reward + 0.99 * before.get(name, 0.0)
                returns.append(before[name])
            return returns
    """
    assert says(checks.reinforcement_learning.returns_of, world, answer) == (
        f"Not yet. {SHORT} the one in place 0, of observer1, has return 1.000, expected 1.990."
    )


def test_returns_as_a_tensor_on_the_agent_alone(world):
    answer = solution("def returns_of(") + textwrap.dedent("""
        import os, torch
        by_list = returns_of
        def returns_of(arrived):
            assert os.environ["RANK"] == "0"
            return torch.tensor(by_list(arrived))
    """)
    assert says(checks.reinforcement_learning.returns_of, world, answer).startswith("Solved. ")


def test_returns_by_observer(world):
    assert says(
        checks.reinforcement_learning.returns_of, world, "def returns_of(arrived):\n    return dict(arrived)"
    ) == ("Not yet. The agent returned a dict, expected a list of numbers.")


def test_returns_of_a_part(world):
    assert says(
        checks.reinforcement_learning.returns_of, world, "def returns_of(arrived):\n    return [1.99, 1.0]"
    ) == ("Not yet. 5 rewards have arrived, and the agent returned 2 returns.")


def test_returns_that_raise(world):
    assert says(checks.reinforcement_learning.returns_of, world, "def returns_of(arrived):\n    return arrived[5]") == (
        "Not yet. Rank 0 raised IndexError: list index out of range"
    )


# ---------------------------------------------------------------- one_rpc


def test_one_rpc_solution(world):
    assert says(checks.reinforcement_learning.run_episode, world, solution("class Scores")) == (
        "Solved. The observers made 5 calls for 4 steps, 6 calls for 5 steps, 7 calls for 6 steps, and the agent knew "
        "every reward before the next step."
    )


def test_one_rpc_skeleton(world):
    assert says(checks.reinforcement_learning.run_episode, world, skeleton("class Scores")) == (
        "Not yet. observer1 made 8 calls for 4 steps, expected 5."
    )


def play(contains, *changes):
    """Return the solution, or the skeleton, with some lines changed."""
    answer = contains("class Scores")
    for old, new in changes:
        assert old in answer
        answer = answer.replace(old, new)
    return answer


def test_one_rpc_with_all_rewards_in_the_end(world):
    answer = play(
        skeleton,
        ("truncated = False\n", "truncated = False\n    rewards = []\n"),
        ("        agent.rpc_sync().report_reward(name, reward)", "        rewards.append(reward)"),
    )
    answer += "\n    agent.rpc_sync().report_rewards(name, rewards)\n"
    answer += "\nScores.report_rewards = lambda self, name, rewards: self.rewards.update({name: rewards})"
    assert says(checks.reinforcement_learning.run_episode, world, answer) == (
        "Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1."
    )


def test_one_rpc_whose_last_reward_comes_home(world):
    last = "\n    agent.rpc_sync().report_reward(name, reward)"
    for answer in ("reward", "[reward], 'terminated'"):
        assert says(
            checks.reinforcement_learning.run_episode, world, play(solution, (last, f"\n    return {answer}"))
        ).startswith("Solved. ")


def test_one_rpc_by_remote(world):
    answer = "import torch.distributed.rpc as rpc\n" + play(
        solution,
        (
            "agent.rpc_sync().select_action(name, observation, reward)",
            "agent.remote().select_action(name, observation, reward).to_here()",
        ),
        ("\n    agent.rpc_sync().report_reward", "\n    agent.rpc_async().report_reward"),
    )
    assert says(checks.reinforcement_learning.run_episode, world, answer + ".wait()").startswith("Solved. ")


def test_one_rpc_without_the_last_reward(world):
    answer = play(solution, ("\n    agent.rpc_sync().report_reward(name, reward)", ""))
    assert says(checks.reinforcement_learning.run_episode, world, answer) == (
        "Not yet. Of observer1 the agent holds the rewards [10.0, 11.0, 12.0], expected [10.0, 11.0, 12.0, 13.0]."
    )


def test_one_rpc_with_one_list_for_all(world):
    answer = play(solution, ("self.rewards.setdefault(name, [])", 'self.rewards.setdefault("all", [])'))
    assert says(checks.reinforcement_learning.run_episode, world, answer) == (
        "Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1."
    )


def test_one_rpc_that_counts_a_first_reward(world):
    answer = play(solution, ("    reward = None\n", "    reward = 0.0\n"))
    assert says(checks.reinforcement_learning.run_episode, world, answer) == (
        "Not yet. When observer1 took step 0, the agent knew 1 of its rewards, expected 0."
    )


def test_one_rpc_that_takes_no_notice_of_a_cut(world):
    answer = play(solution, ("while not (terminated or truncated)", "while not terminated"))
    assert says(checks.reinforcement_learning.run_episode, world, answer) == (
        "Not yet. Rank 2 raised RuntimeError: the environment was asked for a step after its episode had ended"
    )


def test_one_rpc_by_asynchronous_reports(world):
    answer = play(skeleton, ("agent.rpc_sync().report_reward", "agent.rpc_async().report_reward"))
    assert says(checks.reinforcement_learning.run_episode, world, answer).startswith("Not yet. ")


def test_one_rpc_that_plays_alone(world):
    answer = play(skeleton, ("agent.rpc_sync().select_action(name, observation)", "0"))
    answer = answer.replace("agent.rpc_sync().report_reward(name, reward)", "pass")
    assert says(checks.reinforcement_learning.run_episode, world, answer) == (
        "Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1."
    )


def test_one_rpc_with_actions_of_its_own(world):
    answer = play(skeleton, ("agent.rpc_sync().select_action(name, observation)", "0"))
    assert says(checks.reinforcement_learning.run_episode, world, answer) == (
        "Not yet. At step 1 observer1 pushed 0, and the policy says 1."
    )


def test_one_rpc_whose_agent_raises(world):
    answer = play(skeleton, ("return self.policy(observation)", "return self.polices(observation)"))
    assert says(checks.reinforcement_learning.run_episode, world, answer) == (
        "Not yet. Rank 1 raised AttributeError(\"'Scores' object has no attribute 'polices'\") on agent"
    )


def test_one_rpc_that_is_not_there(world):
    world.view.execute(solution("class Scores"))
    assert says(checks.reinforcement_learning.run_episode, world, "del run_episode") == (
        "Not yet. Rank 1 has no function `run_episode`: run the cell that defines it, then this check."
    )
    assert says(checks.reinforcement_learning.run_episode, world, "del Scores") == (
        "Not yet. Rank 0 has no class `Scores`: run the cell that defines it, then this check."
    )


# ---------------------------------------------------------------- observer_round

PLAYED = "Solved. Each observer asked the agent for every action, and reported every reward before the next one."
BY_THE_AGENT = "agent.rpc_sync().select_action(name, observation)"
REPORT = "        agent.rpc_sync().report_reward(name, reward)\n"


def my_episode(*changes):
    """Return the solution with some lines changed."""
    answer = solution("def my_episode(")
    for old, new in changes:
        assert old in answer
        answer = answer.replace(old, new)
    return answer


def test_my_episode_skeleton_and_solution(world):
    assert says(checks.reinforcement_learning.my_episode, world, skeleton("def my_episode(")) == (
        "Not yet. When observer1 took step 1, the agent knew 0 of its rewards, expected 1."
    )
    assert says(checks.reinforcement_learning.my_episode, world, my_episode()) == PLAYED


@pytest.mark.parametrize(
    "change",
    [
        (BY_THE_AGENT, "agent.rpc_async().select_action(name, observation).wait()"),
        (BY_THE_AGENT, "agent.remote().select_action(name, __import__('torch').from_numpy(observation)).to_here()"),
        (REPORT, REPORT.replace("rpc_sync", "rpc_async").replace("\n", ".wait()\n")),
    ],
)
def test_my_episode_in_other_styles(world, change):
    assert says(checks.reinforcement_learning.my_episode, world, my_episode(change)) == PLAYED


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([(REPORT, "")], "When observer1 took step 1, the agent knew 0 of its rewards, expected 1."),
        ([(BY_THE_AGENT, "0")], "At step 1 observer1 pushed 0, and the policy says 1."),
        ([(REPORT, f"{REPORT}        {BY_THE_AGENT}\n")], "observer1 made 12 calls for 4 steps, expected 8."),
        ([("while not (terminated or truncated)", "while not terminated")], "asked for a step after its episode had"),
        ([('return "terminated" if terminated else "truncated"', "return None")], "observer1 returned None, and its"),
        ([("rpc_sync().report_reward", "to_here().report_reward")], "the agent knew 0 of its rewards, expected 1."),
        ([("rpc_sync().report_reward", "rpc_async().report_reward")], "the agent knew 0 of its rewards, expected 1."),
    ],
)
def test_wrong_my_episode(world, changes, why):
    said = says(checks.reinforcement_learning.my_episode, world, my_episode(*changes))
    assert said.startswith("Not yet. ") and why in said, said


def test_my_episode_that_is_not_there(world):
    assert says(checks.reinforcement_learning.my_episode, world, "globals().pop('my_episode', None)") == (
        "Not yet. Rank 1 has no function `my_episode`: run the cell that defines it, then this check."
    )


# ---------------------------------------------------------------- weights

WEIGHTED = "Solved. Each step has the return of its own episode, less the mean of all returns."


def test_weights_skeleton_and_solution(world):
    assert says(checks.reinforcement_learning.my_weights, world, skeleton("def my_weights(")) == (
        "Not yet. Of the episodes [[1.0, 1.0], [1.0, 1.0, 1.0]] step 0 of episode 0 has weight 1.000, expected 0.200."
    )
    assert says(checks.reinforcement_learning.my_weights, world, solution("def my_weights(")) == WEIGHTED


@pytest.mark.parametrize(
    "lines",
    [
        "    returns = torch.cat([of(rewards) for rewards in episodes])\n    return returns - returns.mean()",
        "    returns = [x for rewards in episodes for x in of(rewards).tolist()]\n"
        "    return [x - sum(returns) / len(returns) for x in returns]",
        "    returns = np.concatenate([of(r).numpy() for r in episodes])\n    return returns - returns.mean()",
    ],
)
def test_weights_in_other_styles(world, lines):
    assert (
        says(checks.reinforcement_learning.my_weights, world, RETURNS + "def my_weights(episodes):\n" + lines)
        == WEIGHTED
    )


RETURNS = """
import numpy as np, torch
def of(rewards):
    return torch.tensor([sum(r * 0.99**k for k, r in enumerate(rewards[step:])) for step in range(len(rewards))])

"""


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("    return torch.cat([of(r) for r in episodes])", "No mean is subtracted."),
        ("    r = of(sum(episodes, []))\n    return r - r.mean()", "An episode goes on into the next one"),
        ("    return torch.cat([of(r) - of(r).mean() for r in episodes])", "Each episode has a mean of its own"),
        ("    r = torch.cat([of(r[::-1]) for r in episodes])\n    return r - r.mean()", "what came before the step"),
        ("    r = torch.cat([of(r).flip(0) for r in episodes])\n    return r - r.mean()", "is turned round"),
        ("    return of(episodes[0])", "The episodes have 5 steps, and my_weights returned 2 weights."),
        ("    return None", "my_weights returned None, expected a list of numbers."),
        ("    return missing", "NameError"),
    ],
)
def test_wrong_weights(world, lines, why):
    said = says(checks.reinforcement_learning.my_weights, world, RETURNS + "def my_weights(episodes):\n" + lines)
    assert said.startswith("Not yet. ") and why in said, said
