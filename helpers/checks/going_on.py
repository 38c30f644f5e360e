"""A check of 19_cartpole_solved: a training that was stopped goes on in another agent as if it had not been."""

import os
from types import SimpleNamespace

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge, missing

_RUNNING = 123.0
_BEFORE, _AFTER = range(3), range(3, 5)  # the updates before the stop, and after it


def snapshot(world) -> Verdict:
    """Check `snapshot(agent, running)` and `go_on(agent, saved)`: weights, optimizer and running reward come back."""

    def check(runs):
        found = runs[0].result
        if found["disturbed"]:
            raise Wrong("The agent that was saved did not train on as before: snapshot has changed it.")
        if found["late"]:
            raise Wrong(
                "The new agent began with weights that the old one had only later: what state_dict() returns changes "
                "with the agent. Save a copy."
            )
        if not found["begins right"]:
            raise Wrong("The new agent did not begin with the weights that the old one had when it was saved.")
        if not found["goes on right"]:
            raise Wrong(
                "It began with the right weights, and the next updates led elsewhere: the optimizer has a state, too, "
                "as it was when the agent was saved."
            )
        if found["running"] != _RUNNING:
            raise Wrong(f"go_on returned {found['running']}, and the target is the running reward, {_RUNNING}.")
        return "The new agent went on as the old one did, weight for weight."

    return judge(world, "snapshot", check, _run)


def _run():
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    twin, old, new = _agent(0), _agent(0), _agent(1)
    _train(twin, _BEFORE)
    _train(old, _BEFORE)
    run = call_answer("snapshot", [old, _RUNNING])
    if run.error:
        return run
    saved = run.result
    at_stop = _weights(twin)
    _train(twin, _AFTER)
    _train(old, _AFTER)
    later = _weights(twin)
    disturbed = not _same(_weights(old), later)
    run = call_answer("go_on", [new, saved])
    if run.error == missing("go_on"):
        return run._replace(error="RuntimeError: there is no function `go_on`")
    if run.error:
        return run
    at_begin = _weights(new)
    _train(new, _AFTER)
    result = {
        "disturbed": disturbed,
        "late": _same(at_begin, later),
        "begins right": _same(at_begin, at_stop),
        "goes on right": _same(_weights(new), later),
        "running": run.result if isinstance(run.result, int | float) else f"a {type(run.result).__name__}",
    }
    return Run(result, [], "")


def _agent(seed):
    """Return an agent that has a policy and an optimizer, as those of the notebook."""
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        policy = nn.Linear(4, 2)
    return SimpleNamespace(policy=policy, optimizer=torch.optim.Adam(policy.parameters(), lr=2e-2))


def _train(agent, updates):
    """Take some updates, in each of which the gradient is another one and no chance is at work."""
    import torch

    for number in updates:
        observations = torch.linspace(-1, 1 + number, 8).reshape(2, 4)
        agent.optimizer.zero_grad()
        agent.policy(observations).log_softmax(dim=1)[:, number % 2].sum().backward()
        agent.optimizer.step()


def _weights(agent):
    return [parameter.detach().clone() for parameter in agent.policy.parameters()]


def _same(mine, true):
    import torch

    return all(torch.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(mine, true, strict=True))
