"""CartPole by an agent and 2 observers: steps per second of each version, and how long it takes to be solved."""

from statistics import median

import ipyparallel as ipp
from tqdm import tqdm

from benchmarks import lesson, side_by_side
from helpers import World

NOTEBOOK = "23_cartpole_solved.ipynb"
TURNS = 5
SEEDS = range(5)
LEARNING = ["Policy", "Episode", "discounted", "Agent", "learn", "train", "mean_lengths"]
COLLECTING = ["Collecting", "answer_of_the_lesson", "by_rule", "Counted", "race"]
OBSERVERS = ["Observer", "WithoutReports", "play_all_of_the_lesson", "as_tensor", "ManyEnvironments"]
VERSIONS = ["with reports", "without reports", "many environments", "collected"]

# On all ranks, and on the agent, with names of the lesson.
USED = """
play_first_episodes = play_all_of_the_lesson
Agent.learn = learn
Collecting.answer_if_complete = answer_of_the_lesson
sizes = []
"""
MEASURED = """
def racers():
    agents = [Agent(Counted, kind) for kind in (Observer, WithoutReports, ManyEnvironments)]
    return [by_rule(agent) for agent in [*agents, Collecting(Counted, ManyEnvironments)]]

def turn():
    return [race(agent)[0] for agent in racing]

def solve():
    '''Return the seconds to a running reward above the threshold, the last one, and the mean of 20 greedy episodes.'''
    agent, rewards, running, begin = Agent(ManyEnvironments), [], [0.0], time.monotonic()
    train(agent, rewards, running, gym.spec("CartPole-v1").reward_threshold, report=lambda rewards: None)
    seconds = time.monotonic() - begin
    agent.draw = lambda observations: agent.policy(observations).argmax(dim=1)
    return seconds, running[-1], sum(len(episode.actions) for episode in agent.run_round()[:20]) / 20

def curves(rounds):
    return [mean_lengths(Agent(Observer), share, rounds), mean_lengths(Agent(ManyEnvironments), 1, rounds)]
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(3)
    try:
        world.view["SEED"] = 0
        definitions = lesson.definitions(NOTEBOOK, *LEARNING, *COLLECTING, *OBSERVERS)
        world.view.execute(f"{lesson.setup(NOTEBOOK)}\n{definitions}\n{USED}")
        world.view.client[0].execute(MEASURED + "\nracing = racers()", block=True)
        _on_agent(world, "turn")  # to warm up
        turns = [_on_agent(world, "turn") for _ in tqdm(range(TURNS), desc="turns")]
        solved, curves = [], []
        for seed in tqdm(SEEDS, desc="seeds"):
            world.view["SEED"] = seed
            solved.append(_on_agent(world, "solve"))
            curves.append(_on_agent(world, "curves", 5))
    finally:
        world.stop()
    paces = dict(zip(VERSIONS, zip(*turns, strict=True), strict=True))
    seconds = [taken for taken, running, _ in solved if running > 475]
    greedy = min(mean for *_, mean in solved)
    return [
        *[_row(version, paces) for version in VERSIONS[1:]],
        [f"seeds solved, of {len(SEEDS)}", len(seconds), f"{greedy:.0f}: the worst mean of 20 greedy episodes", ""],
        ["CartPole solved", f"{median(seconds):.0f} s", f"{max(seconds):.0f} s, the longest", ""],
        *[_same(f"round {number + 1}", [[curve[number] for curve in two] for two in curves]) for number in (0, 2, 4)],
    ]


def _on_agent(world, function, *arguments):
    return world.view.client[0].apply_async(ipp.Reference(function), *arguments).get()


def _row(version, paces):
    steps, others = paces[version], paces[VERSIONS[0]]
    ratio = side_by_side.ratio(steps, others)
    return [f"steps/s, {version}", f"{median(steps):.0f}", f"{median(others):.0f}, {VERSIONS[0]}", f"{ratio:.1f}"]


def _same(what, means):
    slow, fast = ([two[version] for two in means] for version in (0, 1))
    compared = f"{median(slow):.0f}, {VERSIONS[0]}"
    ratio = side_by_side.ratio(fast, slow)
    return [f"mean episode of {what}, many environments", f"{median(fast):.0f} steps", compared, f"{ratio:.2f}"]
