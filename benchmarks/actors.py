"""The agent and the observers of 24_actors on RPC, on the lesson's own actors and on Monarch: steps per second.

All three play the same episodes, so they take the same number of steps. Monarch is an extra: `docs/install.md`.
"""

import importlib.util
from statistics import median

import ipyparallel as ipp
from tqdm import tqdm

from benchmarks import lesson, side_by_side
from helpers import World

NOTEBOOK = "24_actors.ipynb"
TURNS = 5
ROUNDS = 12  # until then episodes are short, so messages take most of the time
NAMES = [
    *["Address", "spawn", "MailboxOfTheLesson", "Agent", "discounted", "learn", "WaitingAgent", "CastingAgent"],
    *["Observer", "play_for", "MonarchMailbox", "MonarchAddress", "spawn_on_monarch"],
]
VERSIONS = ["RPC", "own actor", "Monarch"]

BEFORE = """
SEED = 1
names = [f"observer{r}" for r in range(1, n)]
try:
    import logging
    from monarch.actor import Actor, endpoint, this_host
    logging.getLogger("monarch").addHandler(logging.NullHandler())
    warnings.filterwarnings("ignore", message="Blocking get")
except ImportError:
    Actor, endpoint = object, lambda method: method
from contextlib import suppress
from types import SimpleNamespace
"""

# On rank 0, with names of the lesson.
MEASURED = """
Mailbox, Agent.learn, Observer.play_for = MailboxOfTheLesson, learn, play_for

class ByRPC:
    '''The address of an object without a mailbox: RPC's own threads run its methods.'''

    def __init__(self, worker, cls, *arguments):
        self.object = rpc.remote(worker, cls, args=arguments)

    def call(self, method, *arguments):
        return getattr(self.object.rpc_async(), method)(*arguments)

def started(spawn, agent_class):
    '''Return an agent that is ready, and its observers.'''
    agent = spawn(0, agent_class, names)
    observers = {name: spawn(r, Observer, name, SEED + r) for r, name in enumerate(names, start=1)}
    agent.call("finished").wait()
    return agent, observers

def finished_rounds(agent):
    while len(rounds := agent.call("finished").wait()) < ROUNDS:
        time.sleep(0.01)
    return rounds

def turn(kind):
    '''Return the steps per second of a training, and the rewards of its rounds.'''
    waits = kind == "RPC"
    agent, observers = started(SPAWN[kind], WaitingAgent if waits else CastingAgent)
    begin = time.monotonic()
    if waits:
        for _ in range(ROUNDS):
            agent.call("run_round", agent, observers).wait()
    else:
        agent.cast("train", agent, observers, ROUNDS)
    rounds = finished_rounds(agent)
    return sum(map(sum, rounds)) / (time.monotonic() - begin), rounds

SPAWN = {
    "RPC": lambda r, *arguments: ByRPC(f"worker{r}", *arguments),
    "own actor": lambda r, *arguments: spawn(f"worker{r}", *arguments),
}
"""
WITH_MONARCH = """
processes = this_host().spawn_procs(per_host={"ranks": n})
SPAWN["Monarch"] = spawn_on_monarch
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    has_monarch = importlib.util.find_spec("monarch") is not None
    versions = VERSIONS if has_monarch else VERSIONS[:-1]
    world = World(4)
    try:
        definitions = lesson.definitions(NOTEBOOK, *NAMES)
        world.view.execute(f"{lesson.setup(NOTEBOOK)}\n{BEFORE}\n{definitions}\nROUNDS = {ROUNDS}\n{MEASURED}")
        if has_monarch:
            world.view.client[0].execute(WITH_MONARCH, block=True)
        for version in versions:
            _turn(world, version)  # to warm up
        turns = [[_turn(world, version) for version in versions] for _ in tqdm(range(TURNS), desc="turns")]
    finally:
        world.stop()
    paces = {version: [of_turn[i][0] for of_turn in turns] for i, version in enumerate(versions)}
    same = all(rounds == turns[0][0][1] for of_turn in turns for _, rounds in of_turn)
    missing = [] if has_monarch else [["steps/s, Monarch", "not measured", "torchmonarch is not installed", ""]]
    return [
        *[_row(version, paces) for version in versions[1:]],
        *missing,
        ["equal rewards", same, f"{ROUNDS} rounds, {TURNS} turns", ""],
    ]


def _turn(world, version):
    return world.view.client[0].apply_async(ipp.Reference("turn"), version).get()


def _row(version, paces):
    steps, others = paces[version], paces[VERSIONS[0]]
    ratio = side_by_side.ratio(steps, others)
    return [f"steps/s, {version}", f"{median(steps):.0f}", f"{median(others):.0f}, {VERSIONS[0]}", f"{ratio:.2f}"]
