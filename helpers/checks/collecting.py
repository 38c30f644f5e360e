"""A check of 19_cartpole_solved: the agent answers all observers that still play by one pass through its network."""

import os

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge, missing

# How many observers play, and how many observations each request brings that waits for an answer.
_CASES = ((3, (2,)), (3, (2, 3, 1)), (2, (2, 2)), (1, (4,)), (2, ()), (0, ()))


class Agent:
    """An agent with requests that wait, which notes how many observations each pass has."""

    def __init__(self, playing, sizes):
        import torch

        self.playing = playing
        self.passes = []
        observations = torch.arange(4.0 * sum(sizes)).reshape(-1, 4)
        self.waiting = [(own, torch.futures.Future()) for own in observations.split(list(sizes))]

    def select_action(self, observations):
        """Return an action for each observation, told apart by its first number."""
        self.passes.append(len(observations))
        return observations[:, 0].long()


def my_answer(world) -> Verdict:
    """Check `my_answer(agent)`: one pass for all requests if as many wait as observers play, and nothing otherwise."""

    def check(runs):
        for (playing, sizes), found in zip(_CASES, runs[0].result, strict=True):
            _require_answers(f"With {len(sizes)} of {playing} requests there", playing, sizes, *found)
        return "All requests were answered by one pass, each with its own actions, and not before all were there."

    return judge(world, "my_answer", check, _run)


def _require_answers(case, playing, sizes, error, passes, answers, targets, waiting):
    if error:
        raise Wrong(f"{case}, my_answer raised {error}")
    if not sizes or len(sizes) < playing:
        if passes or any(answer is not None for answer in answers):
            raise Wrong(f"{case}, my_answer asked the network, and the target is to wait.")
        if waiting != len(sizes):
            raise Wrong(f"{case}, {waiting} of them are left in agent.waiting, and the target is all.")
        return
    if passes != [sum(sizes)]:
        raise Wrong(
            f"{case}, the network got {passes} observations, one number for each pass, and the target is one pass with "
            f"all {sum(sizes)}."
        )
    for request, (answer, target) in enumerate(zip(answers, targets, strict=True)):
        if answer is None:
            raise Wrong(f"{case}, request {request} got no answer.")
        if answer != target:
            raise Wrong(f"{case}, request {request} got the actions {answer}, and the target is {target}.")
    if waiting:
        raise Wrong(f"{case}, {waiting} that have been answered are left in agent.waiting.")


def _run():
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    found = []
    for playing, sizes in _CASES:
        agent = Agent(playing, sizes)
        requests = list(agent.waiting)
        run = call_answer("my_answer", [agent])
        if run.error == missing("my_answer"):
            return run
        answers = [_plain(future.value()) if future.done() else None for _, future in requests]
        targets = [own[:, 0].long().tolist() for own, _ in requests]
        found.append((run.error.partition("\n")[0], agent.passes, answers, targets, len(agent.waiting)))
    return Run(found, [], "")


def _plain(answer):
    """Return actions as a list of numbers, and something else by the name of its type."""
    return answer.tolist() if hasattr(answer, "tolist") else f"of type {type(answer).__name__}"
